# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import Unresolved
from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.profiles import (
    resolve_profiles,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import (
    Inventory,
    Value,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.fabric import parse_fabric
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.monitoring import (
    check_monitoring,
    check_series_copies,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.nodes import Node, make_node
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.slurm import (
    check_accounting,
    check_databases,
    check_engine,
    check_partitions,
    check_spares,
    controller_warnings,
    resume_warnings,
    slurm_nodes,
    slurm_topology,
)

NONE = parse_fabric({})
CPU = {"sockets": 1, "cores_per_socket": 8, "threads_per_core": 2, "numa_nodes": 1}
PROFILES = resolve_profiles(
    {
        "head": {"cpu": CPU, "real_memory_mb": 64000},
        "two": {
            "cpu": CPU,
            "real_memory_mb": 64000,
            "gpus": {"count": 2, "type": "l40s", "cores": ["0-7", "0-7"]},
        },
    },
    "all.cluster_profiles",
)[0]


def node(name: str, kind: str = "gpu_nodes", **given: Any) -> Node:
    values = {f"node_{key}": Value(value, "") for key, value in given.items()}
    return make_node(name, kind, (kind,), values, NONE, PROFILES)


def test_who_is_in_slurm_conf() -> None:
    nodes = [
        node("h-1", "login_nodes", profile="head"),
        node("g-0", profile="dgx_h100", state="absent"),
        node("g-x"),
        node("g-y", profile="hgx_h100"),
        node("g-1", profile="two", features=["a"]),
        node("c-1", "cpu_nodes", profile="head"),
    ]
    described = slurm_nodes(nodes, PROFILES)
    assert [one["name"] for one in described] == ["g-1", "c-1"]
    # Without NVLink there are no links to report.
    assert described[0]["gres"] == [
        {
            "name": "gpu",
            "type": "l40s",
            "count": 2,
            "files": ["/dev/nvidia0", "/dev/nvidia1"],
            "cores": ["0-7", "0-7"],
            "links": [],
        }
    ]
    assert (described[0]["features"], described[0]["cpus"]) == (["a"], 16)
    assert described[1]["gres"] == []


def test_instances_of_divided_gpus_are_types_of_their_own() -> None:
    layout = Value([{"gpus": [6], "profiles": ["3g.40gb", "1g.10gb", "3g.40gb"]}], "gpu_nodes.x")
    made = make_node(
        "g-1",
        "gpu_nodes",
        ("gpu_nodes",),
        {"node_profile": Value("dgx_h100", ""), "nvidia_driver_mig": layout},
        NONE,
        PROFILES,
    )
    (described,) = slurm_nodes([made], PROFILES)
    whole, small, large = described["gres"]
    assert (whole["type"], whole["count"]) == ("h100", 7)
    assert whole["files"][5:] == ["/dev/nvidia5", "/dev/nvidia7"]
    # Links counts all GPUs of a node, and a divided one has none.
    assert whole["links"] == []
    assert (small["type"], small["count"]) == ("1g.10gb", 1)
    link = "/dev/baremetal-dgx/mig/gpu6-3g.40gb-"
    assert large["files"] == [
        f"/dev/nvidia6,{link}0-gi,{link}0-ci",
        f"/dev/nvidia6,{link}1-gi,{link}1-ci",
    ]
    assert large["cores"] == ["56-111", "56-111"]


def test_units_are_switches_in_the_order_of_their_numbers() -> None:
    nodes = [
        node("c-1", "cpu_nodes"),
        node("a", su=10),
        node("b", su=2),
        node("g", su=1, state="absent"),
        node("h", "login_nodes", su=1),
        node("c", su=10),
    ]
    assert slurm_topology(nodes, parse_fabric({"topology": "superpod"}), PROFILES) == [
        {"switch": "su2", "nodes": ["b"]},
        {"switch": "su10", "nodes": ["a", "c"]},
        {"switch": "others", "nodes": ["c-1"]},
        {"switch": "core", "switches": ["su2", "su10", "others"]},
    ]
    assert slurm_topology(nodes, parse_fabric({"topology": "basepod"}), PROFILES) == []
    profiles = {**PROFILES, "own": dataclasses.replace(next(iter(PROFILES.values())), rails=())}
    unwired = [node("b", su=2), node("d", su=2, profile="own")]
    assert slurm_topology(unwired, parse_fabric({"topology": "superpod"}), profiles) == [
        {"switch": "su2", "nodes": ["b"]},
        {"switch": "others", "nodes": ["d"]},
        {"switch": "core", "switches": ["su2", "others"]},
    ]


def test_groups_of_a_rule_are_switches_below_their_islands() -> None:
    islands = [{"groups": 2, "spines": 1}, {"groups": 1, "spines": 1}, {"groups": 1, "spines": 1}]
    described = {
        "topology": "leaf_spine",
        "rails": 1,
        "leaf_switches": ["leaf-[1:4]"],
        "spine_switches": ["spine-[1:3]"],
        "core_switches": ["core-1"],
        "leaf_spine": {"nodes_per_group": 4, "islands": islands},
    }
    nodes = [node("a", su=1), node("b", su=3), node("c", su=2), node("d", "cpu_nodes")]
    groups = [
        {"switch": "su1", "nodes": ["a"]},
        {"switch": "su2", "nodes": ["c"]},
        {"switch": "su3", "nodes": ["b"]},
        {"switch": "others", "nodes": ["d"]},
    ]
    # The third island has no node yet, and Slurm wants no switch without any.
    assert slurm_topology(nodes, parse_fabric(described), PROFILES) == [
        *groups,
        {"switch": "island1", "switches": ["su1", "su2"]},
        {"switch": "island2", "switches": ["su3"]},
        {"switch": "core", "switches": ["island1", "island2", "others"]},
    ]
    described["leaf_spine"] = {"nodes_per_group": 4}
    assert slurm_topology(nodes, parse_fabric(described), PROFILES) == [
        *groups,
        {"switch": "core", "switches": ["su1", "su2", "su3", "others"]},
    ]
    # A list of cables may go without the rule, and then no group is known.
    del described["leaf_spine"]
    assert slurm_topology(nodes, parse_fabric(described), PROFILES) == []


def partitions(
    given: list[dict[str, Any]], sets: list[dict[str, Any]] | None = None
) -> tuple[list[str], list[str]]:
    nodes = [
        node("g-1", features=["fast"]),
        node("g-2"),
        node("g-3", state="absent", features=["gone"]),
        node("g-4", state="absent"),
        node("h-1", "login_nodes", features=["front"]),
    ]
    problems, warnings = check_partitions(nodes, Value(given, "p"), Value(sets or [], "s"))
    return [str(problem) for problem in problems], warnings


def named(*nodes: str, name: str = "x", **more: Any) -> dict[str, Any]:
    return {"name": name, "nodes": list(nodes), **more}


def test_partitions_that_come_from_a_fact_hide_no_other() -> None:
    fact = Unresolved("a fact", later=True)
    unknown = {"name": fact, "nodes": fact}
    given = [unknown, unknown, {"name": "y", "nodes": [fact, "g-9"]}]
    assert [line.split(":")[0] for line in partitions(given)[0]] == ["p[2].nodes[1]"]


def test_nodes_of_partitions() -> None:
    sets = [named("g-1", name="first"), {"name": "quick", "feature": "fast"}]
    assert partitions([named("ALL", "first", "quick", "g-[1-2]")], sets) == ([], [])
    nobody = "no compute node or node set is called"
    assert partitions([named("g-1"), named("ALL", "h-1", "g-[2-3]", "frst", name="y")], sets) == (
        [
            f"p[1].nodes[1]: {nobody} h-1; write nodes out of g-[1-2]",
            "p[1].nodes[2]: g-3 is declared absent by node_state; leave out g-3",
            f"p[1].nodes[3]: {nobody} frst; write first",
        ],
        [],
    )
    assert partitions([named("g-[2-6]")])[0] == [
        "p[0].nodes[0]: g-[3-4] are declared absent by node_state; leave out g-[3-4]",
        f"p[0].nodes[0]: {nobody} g-[5-6]; write nodes out of g-[1-2]",
    ]
    # A set holds nodes, and not other sets.
    assert partitions([], [named("first", name="first"), named("g-[1", name="z")])[0] == [
        f"s[0].nodes[0]: {nobody} first; write nodes out of g-[1-2]",
        "s[1].nodes[0]: the brackets of 'g-[1' do not match; write a node set like dgx-[01-04]",
    ]


def test_names_and_the_default_of_partitions() -> None:
    several = [named(name="a", default=True), named(name="b"), named(name="A")]
    assert partitions([*several, named(name="a"), named(name="d", default=False)])[0] == [
        "p[2].name: 'A' is also the name of [0]; write another name",
        "p[3].name: 'a' is also the name of [0]; write another name",
    ]
    # One of them may be named as a set is.
    assert partitions([named(name="a")], [named(name="a")]) == ([], [])
    second = [named(name=name, default=name != "a") for name in "abcd"]
    assert partitions(second)[0] == [
        "p[2].default: partition [1] is the default already; leave one default",
        "p[3].default: partition [1] is the default already; leave one default",
    ]


def test_features_that_a_node_has() -> None:
    def warned(feature: str) -> list[str]:
        problems, warnings = partitions([], [{"name": "s", "feature": feature}])
        assert problems == []
        return warnings

    assert (warned("fast"), warned("")) == ([], [])
    for none in ("gone", "front", "other"):
        assert warned(none) == [f"s[0].feature: no node has the feature '{none}'"]


@pytest.mark.parametrize("name", ["slurm_controller_accounts", "slurm_controller_qos"])
def test_accounts_need_a_database(name: str) -> None:
    given = {name: Value([{"name": "x"}], f"g.{name}")}
    (problem,) = check_accounting(given, ())
    assert str(problem) == (
        f"slurm_databases: no host in it, but g.{name} needs slurmdbd; put a host into this group"
    )
    assert not list(check_accounting(given, ("db",)))
    assert not list(check_accounting({name: Value([], "")}, ()))
    assert not list(check_accounting({}, ()))


def test_a_stand_by_shares_the_state() -> None:
    name = "slurm_controller_state_save_location"
    assert controller_warnings({}, ("a",)) == []
    assert controller_warnings({name: Value("/x", "")}, ("a", "b")) == []
    assert controller_warnings({}, ("a", "b")) == [
        f"slurm_controllers.{name}: missing; 2 controllers must share a folder for their state"
    ]


@pytest.mark.parametrize(
    ("check", "version", "count"),
    [
        ({"program": "/x"}, "25.05", 1),
        ({"program": "/x", "node_state": ["NONDRAINED_IDLE", "CYCLE"]}, "25.05", 1),
        ({"program": "/x", "node_state": ["NONDRAINED_IDLE"]}, "22.05", 1),
        ({"program": "/x"}, "22.05", 0),
        ({"program": "/x", "node_state": ["Idle", "CYCLE"]}, "25.05", 0),
        ({"program": "/x", "node_state": ["ANY"]}, "25.05", 0),
        ({}, "25.05", 0),
        (None, "25.05", 0),
    ],
)
def test_drained_nodes_that_slurm_does_not_ask(check: Any, version: str, count: int) -> None:
    values = {"slurm_base_version": Value(version, "v")}
    if check is not None:
        values["slurm_controller_health_check"] = Value(check, "g.health")
    resume = {"node_health_resume": Value(True, "g.resume")}
    found = list(resume_warnings(values, [{}, resume, resume]))
    assert len(found) == count
    assert all(line.startswith("g.health.node_state: without IDLE") for line in found)
    assert not list(resume_warnings(values, [{}, {"node_health_resume": Value(False, "")}]))


def test_two_databases_keep_one_accounting() -> None:
    def lines(*databases: str, **hosts: Any) -> list[str]:
        values = {
            host: {"slurm_database_storage": Value(storage, f"slurm_databases.{host}.storage")}
            for host, storage in hosts.items()
        }
        return [str(problem) for problem in check_databases(values, databases)]

    each = "and a and b would each keep their own accounting; write the database server "
    each += "that both use, or leave one host in slurm_databases"
    assert lines("a") == []
    assert lines("a", "b", "c") == []
    assert lines("a", "b", a={"host": "sql"}, b={"host": "sql"}) == []
    assert lines("a", "b") == [f"slurm_databases.slurm_database_storage.host: 'localhost', {each}"]
    assert lines("a", "b", a={"host": "sql"}, b={"host": "::1"}) == [
        f"slurm_databases.b.storage.host: '::1', {each}"
    ]
    assert lines("a", "b", a={"host": "127.0.0.1"}, b={}) == [
        f"slurm_databases.a.storage.host: '127.0.0.1', {each}"
    ]
    assert lines("a", "b", a={}, b={"host": "sql"}) == [
        f"slurm_databases.a.storage.host: 'localhost', {each}"
    ]


def test_spares_are_nodes_that_the_gate_holds() -> None:
    nodes = [node("g-1"), node("g-2", state="absent"), node("h-9", "login_nodes")]

    def lines(gate: Any) -> list[str]:
        found = check_spares(None if gate is None else Value(gate, "gate"), nodes)
        return [str(problem) for problem in found]

    assert (lines(None), lines({}), lines({"spares": None}), lines({"spares": ["g-1"]})) == (
        [],
        [],
        [],
        [],
    )
    assert lines({"spares": ["g-1", "g-2", "h-9"]}) == [
        "gate.spares[1]: no node of gpu_nodes is called 'g-2'; write g-1",
        "gate.spares[2]: no node of gpu_nodes is called 'h-9'; write nodes out of g-1",
    ]


def monitoring(
    members: tuple[str, ...] = (),
    unread: dict[str, Any] | None = None,
    **hosts: dict[str, Any],
) -> list[str]:
    valid = {
        host: {name: Value(value, f"of_{host}.{name}") for name, value in values.items()}
        for host, values in hosts.items()
    }
    given = Inventory(
        {"monitoring_nodes": members}, (), {}, unread={"monitoring_nodes": unread or {}}
    )
    return [str(problem) for problem in check_monitoring(given, valid)]


def test_time_series_are_copied_where_they_are() -> None:
    def found(members: tuple[str, ...], **hosts: dict[str, Any]) -> list[str]:
        valid = {
            host: {name: Value(value, f"of_{host}.{name}") for name, value in values.items()}
            for host, values in hosts.items()
        }
        given = Inventory({"monitoring_nodes": members}, (), valid)
        return [str(problem) for problem in check_series_copies(given, valid)]

    runs = {"prometheus_enabled": True, "backup_repository": "/mnt/x"}
    asks = {"backup_prometheus": True}
    assert found(("a",), a=runs) == []
    assert found(("a",), a={"backup_prometheus": False}) == []
    assert found(("a", "b"), a={**runs, **asks}, b=runs) == []
    assert found(("a", "b"), a={}, b={**runs, **asks}) == []
    nowhere = (
        "of_a.backup_prometheus: true, and no host of monitoring_nodes runs Prometheus; write "
    )
    nowhere += "prometheus_enabled: true in group_vars/monitoring_nodes, or write false"
    assert found((), a={**runs, **asks}) == [nowhere]
    assert found(("a",), a=asks) == [nowhere]
    other = "of_b.backup_prometheus: true, and not for a, whose Prometheus would be copied; write "
    other += "it in group_vars/monitoring_nodes, or write false"
    assert found(("a", "b"), a=runs, b={**runs, **asks}) == [other]
    no_place = "of_a.backup_prometheus: true, and a has no backup_repository; write the repository "
    no_place += "in group_vars/all, or write false"
    assert found(("a",), a={"prometheus_enabled": True, **asks}) == [no_place]


def test_what_is_switched_on_runs_somewhere() -> None:
    on, off = {"prometheus_enabled": True}, {"prometheus_enabled": False}
    both = {**on, "grafana_enabled": True}
    nobody = "true, and no host is in monitoring_nodes; write monitoring_nodes: {hosts: {NAME: }} "
    nobody += "below cluster, or write false"
    assert monitoring() == []
    assert monitoring(a=off, b={}) == []
    assert monitoring(("a",), a=on, b=on) == []
    assert monitoring(("a", "b"), a={}, b=on) == []
    assert monitoring(unread={"grafana_enabled": True}) == [
        f"monitoring_nodes.grafana_enabled: {nobody}"
    ]
    assert monitoring(unread={"grafana_enabled": False}) == []
    # One line for one reason.
    assert monitoring(b=both, a=both) == [f"of_a.prometheus_enabled: {nobody}"]
    elsewhere = "true, and no host of monitoring_nodes has it; write it in "
    elsewhere += "group_vars/monitoring_nodes, or write false"
    assert monitoring(("a",), a=off, b=on) == [f"of_b.prometheus_enabled: {elsewhere}"]
    assert monitoring(("a",), a=on, b=both) == [f"of_b.grafana_enabled: {elsewhere}"]


@pytest.mark.parametrize(
    ("asked", "controllers", "message"),
    [
        ({"engine": "slurm"}, (), "slurm: no host is in slurm_controllers"),
        ({"engine": "slurm", "transport": "ssh"}, ("head-01",), "slurm: it starts nothing without"),
        ({"engine": "slurm"}, ("head-01",), ""),
        ({"engine": "clustershell", "transport": "ssh"}, (), ""),
        ({}, (), ""),
        ("a text, which is reported elsewhere", (), ""),
    ],
)
def test_slurm_as_engine_needs_a_controller_and_a_job(
    asked: Any, controllers: tuple[str, ...], message: str
) -> None:
    found = list(check_engine(Value(asked, "all.cluster_validation"), controllers))
    assert [one.path for one in found] == ["all.cluster_validation.engine"] * bool(message)
    assert not found or str(found[0]).count(message)
