# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of Slurm: what its modules would refuse, and names that one takes from another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import Problem, Unresolved
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import Value
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.slurm_values import (
    check_conf,
    check_entries,
    check_ipv6,
    check_names,
    check_pmix,
)

LATER = Unresolved("a fact", later=True)
HARDWARE = {
    "cpus": 4,
    "sockets": 1,
    "cores_per_socket": 2,
    "threads_per_core": 2,
    "real_memory_mb": 8000,
}
DESCRIBED = {
    "cluster_name": "cluster",
    "controllers": ["head-01"],
    "databases": [],
    "nodes": [{"name": "dgx-01", **HARDWARE}],
    "topology": [],
}


def values(**given: Any) -> dict[str, Value]:
    """Variables of the primary, the prefix of its role left out."""
    return {
        f"slurm_controller_{name}": Value(value, f"slurm_controllers.{name}")
        for name, value in given.items()
    }


def conf(
    described: dict[str, Any] | None = None,
    nodes: Sequence[str] = ("dgx-01",),
    found: Sequence[Problem] = (),
    version: str | None = "24.11",
    **given: Any,
) -> list[str]:
    base = {} if version is None else {"slurm_base_version": Value(version, "all.version")}
    known = {**base, **values(**given)}
    problems = check_conf(known, {**DESCRIBED, **(described or {})}, nodes, found)
    return [str(problem) for problem in problems]


def test_what_slurm_config_refuses_is_found_before() -> None:
    assert conf() == []
    assert conf(mpi_default="pmix", resume_timeout_s=600) == []
    assert conf(mpi_default="mpich") == [
        "slurm_controllers.mpi_default: mpich is not known; write none, pmi2 or pmix"
    ]
    assert conf(mpi_default=LATER) == []
    assert conf(mpi_default="pmix\nx") == [
        "slurm_controllers.mpi_default: has a line break; write one line"
    ]
    # The nodes are those of the plan.
    assert conf(default_mem_per_cpu_mb=2000) == []
    (line,) = conf(default_mem_per_cpu_mb=2001)
    assert line.startswith("slurm_controllers.default_mem_per_cpu_mb: 2001, but no node has more")
    # Without nodes or a release nothing is rendered.
    assert conf(mpi_default="mpich", nodes=()) == []
    assert conf(mpi_default="mpich", version=None) == []


def test_what_the_plan_made_is_no_line() -> None:
    """Its cause has been found: an unknown profile, a name that Slurm does not take."""
    assert conf({"cluster_name": "a b"}) == []
    assert conf({"nodes": []}) == []
    assert conf({"nodes": [{"name": "dgx-01", **HARDWARE, "cpus": 3}]}) == []
    assert len(conf({"nodes": [], "cluster_name": "a b"}, mpi_default="mpich")) == 1


def test_one_line_for_a_place() -> None:
    path = "slurm_controllers.mpi_default"
    for place in (path, path.upper(), path + ".x", path + "[0]"):
        assert conf(mpi_default="mpich", found=[Problem(place, "wrong", "right")]) == []
    for place in (path + "s", "slurm_controllers.mpi"):
        assert len(conf(mpi_default="mpich", found=[Problem(place, "wrong", "right")])) == 1
    twice = {"SchedulerType": "a#b", "schedulertype": "a#b"}
    assert len(conf(options=twice)) == 1


def test_slurm_on_ipv6_alone() -> None:
    line = (
        "has no EnableIPv6, and the network access of Slurm is IPv6; write "
        "CommunicationParameters: [EnableIPv6] in it"
    )
    assert [str(one) for one in check_ipv6({}, "access")] == [
        f"slurm_controllers.slurm_controller_options: {line}"
    ]
    found = check_ipv6(values(options={"CommunicationParameters": "x"}), "access")
    assert [str(one) for one in found] == [f"slurm_controllers.options: {line}"]
    given = values(options={"CommunicationParameters": ["enableipv6"]})
    assert not list(check_ipv6(given, "access"))


def test_pmix_that_is_kept_off_a_host() -> None:
    def hosts(*given: bool | None) -> list[dict[str, Value]]:
        return [
            {} if one is None else {"slurm_base_pmix": Value(one, f"h{at}.slurm_base_pmix")}
            for at, one in enumerate(given)
        ]

    def found(mpi: str | None, *given: bool | None) -> list[str]:
        own = {} if mpi is None else values(mpi_default=mpi)
        return [problem.path for problem in check_pmix(own, hosts(*given))]

    assert found("pmix", None, True, False) == ["h2.slurm_base_pmix"]
    assert found("pmix_v4", False, False) == ["h0.slurm_base_pmix", "h1.slurm_base_pmix"]
    assert found("pmi2", False) == []
    assert found(None, False) == []
    assert found("pmix", None, True) == []


USER = [{"name": "research", "users": ["JDoe"]}]


@pytest.mark.parametrize(
    ("databases", "count"),
    [
        # Not known where slurmdbd is the site's own.
        ([], 0),
        ([None], 1),
        ([{}], 1),
        ([{"Parameters": "PreserveCaseUser"}], 0),
        ([{"Parameters": ["preservecaseuser"]}, None], 0),
        ([{"Parameters": LATER}], 0),
    ],
)
def test_capitals_of_users(databases: list[Any], count: int) -> None:
    hosts = [
        {} if one is None else {"slurm_database_options": Value(one, "x")} for one in databases
    ]
    assert len(list(check_entries(values(accounts=USER), hosts))) == count


def test_entries_are_named_by_their_place() -> None:
    wrong = {"default_qos": "x", "qos": ["y"]}
    accounts = [{"name": "a"}, {"name": "ab", **wrong}, {"name": "a.b", **wrong}]
    line = "x is not in qos; write it there too"
    assert [str(problem) for problem in check_entries(values(accounts=accounts), [{}])] == [
        f"slurm_controllers.accounts[1].default_qos: {line}",
        f"slurm_controllers.accounts[2].default_qos: {line}",
    ]
    twice = [{"name": "a"}, {"name": "b"}, {"name": "a"}]
    assert [str(problem) for problem in check_entries(values(qos=twice), [{}])] == [
        "slurm_controllers.qos[2]: is declared twice; leave one"
    ]
    # What has no name that could be looked up.
    (problem,) = check_entries(values(qos=[{"name": "a"}, {"name": "c d"}]), [{}])
    assert str(problem).startswith("slurm_controllers.qos: qos.1.name 'c d' is not a name; write")
    assert not list(check_entries({}, [{}]))
    assert not list(check_entries(values(qos=[{"name": LATER}], accounts=[]), [{}]))


def names(users: Sequence[str] | None = None, **given: Any) -> list[str]:
    return [str(problem) for problem in check_names(values(**given), users)]


def test_names_of_qos_and_accounts() -> None:
    """Slurm has one of each itself, and ALL stands for any."""
    partition = {"name": "p", "allow_qos": ["ALL", "normal"], "allow_accounts": ["ALL", "root"]}
    assert names(partitions=[partition]) == []
    assert names(partitions=[{"name": "p", "qos": "debug"}], qos=[{"name": "debug"}]) == []
    assert names(partitions=[{"name": "p", "qos": "debgu"}], qos=[{"name": "debug"}]) == [
        "slurm_controllers.partitions[0].qos: no QOS is called 'debgu'; write debug"
    ]
    accounts = [
        {"name": "old", "state": "absent", "parent": "gone"},
        {"name": "a", "parent": "old"},
    ]
    assert names(accounts=accounts) == [
        (
            "slurm_controllers.accounts[1].parent: no account is called 'old'; write a or root, or "
            "declare it in slurm_controller_accounts"
        )
    ]
    assert names(accounts=[{"name": "a", "qos": ["normal", "x", LATER], "default_qos": ""}]) == [
        (
            "slurm_controllers.accounts[0].qos[1]: no QOS is called 'x'; write normal, or declare "
            "it in slurm_controller_qos"
        )
    ]
    assert names(qos=[{"name": "a"}, {"name": "b", "preempt": ["a", "c"]}]) == [
        (
            "slurm_controllers.qos[1].preempt[1]: no QOS is called 'c'; write a, b or normal, or "
            "declare it in slurm_controller_qos"
        )
    ]
    # What comes from a fact may have the name.
    assert names(partitions=[{"name": "p", "qos": "x"}], qos=[{"name": LATER}]) == []
    given = {"accounts": [{"name": LATER}], "partitions": [{"name": "p", "allow_accounts": ["x"]}]}
    assert names(**given) == []


def test_users_of_accounts() -> None:
    users = [
        "alice",
        "alcie",
        {"name": "bob", "state": "absent"},
        {"name": "carol"},
        {"name": "root"},
        # Which slurm_account refuses.
        {"state": "present"},
        7,
    ]
    accounts = [{"name": "a", "users": users}, {"name": "b"}, {"name": "c", "users": ["zoe"]}]
    path = "slurm_controllers.accounts"
    assert names(("alice",), accounts=accounts) == [
        f"{path}[0].users[1]: no user of node_base_users is called 'alcie'; write alice",
        (
            f"{path}[0].users[3]: no user of node_base_users is called 'carol'; add it there, or "
            "write cluster_user_directory: true where a directory has it"
        ),
        (
            f"{path}[2].users[0]: no user of node_base_users is called 'zoe'; add it there, or "
            "write cluster_user_directory: true where a directory has it"
        ),
    ]
    assert names(None, accounts=accounts) == []
    assert names(("alice",)) == []
    assert names(("alice",), accounts=[{"name": "a", "users": ["zoe", LATER]}]) == []
