# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import (
    Opaque,
    Option,
    RoleSpec,
    Unresolved,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.contract import GROUPS
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import (
    Inventory,
    Value,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.variables import (
    Checked,
    check_groups,
    check_names,
    check_required,
    check_strays,
    check_variables,
    cluster_values,
)

SOUND = {"slurm_controllers": ("head-1",), "gpu_nodes": ("dgx-1", "dgx-2")}
ALL = "gpu_nodes, cpu_nodes, slurm_controllers, slurm_databases, login_nodes, storage_nodes, "
ALL += "monitoring_nodes or subnet_managers"


def inventory(
    groups: Mapping[str, tuple[str, ...]],
    hosts: Mapping[str, Mapping[str, Value]] | None = None,
    outside: tuple[str, ...] = (),
    others: Mapping[str, str] | None = None,
) -> Inventory:
    """An inventory with all groups below `cluster`, those outside apart."""
    below = [group for group in groups if group in GROUPS and group not in outside]
    members = tuple(dict.fromkeys(host for group in below for host in groups[group]))
    everything = {"cluster": members, **groups}
    return Inventory(everything, ("cluster", *below), hosts or {}, others or {})


def group_problems(found: Inventory) -> list[str]:
    return [str(problem) for problem in check_groups(found)]


def test_groups_that_a_cluster_needs() -> None:
    assert group_problems(inventory(SOUND)) == []
    no_group = Inventory(SOUND, (), {})
    line = (
        "cluster: no such group, or no host in it; put the groups of nodes below one named cluster"
    )
    assert group_problems(no_group) == [line]
    # Where it is there and empty, each group is outside of it.
    assert group_problems(Inventory({**SOUND, "cluster": ()}, ("cluster",), {})) == [
        line,
        "gpu_nodes: not below the group cluster; list it among the children of cluster",
        "slurm_controllers: not below the group cluster; list it among the children of cluster",
    ]
    assert group_problems(inventory({**SOUND, "login_nodes": ()}, outside=("login_nodes",))) == []
    assert group_problems(
        inventory({**SOUND, "login_nodes": ("l",)}, outside=("login_nodes",))
    ) == ["login_nodes: not below the group cluster; list it among the children of cluster"]
    assert group_problems(inventory({"login_nodes": ("l",), "gpu_nodes": ()})) == [
        (
            "slurm_controllers: no host in it; a cluster needs one that runs slurmctld; "
            "put a host into this group"
        ),
        "gpu_nodes: no host in it; a cluster needs one that runs jobs; put a host into this group",
    ]


def test_slurm_has_two_databases_at_most() -> None:
    assert group_problems(inventory({**SOUND, "slurm_databases": ("a", "b")})) == []
    assert group_problems(inventory({**SOUND, "slurm_databases": ("a", "b", "c")})) == [
        "slurm_databases: 3 hosts, but Slurm knows one slurmdbd and one stand-by; leave two at most"
    ]


def test_a_node_has_gpus_or_not() -> None:
    assert group_problems(inventory({**SOUND, "cpu_nodes": ("c-1", "dgx-2", "head-1")})) == [
        "gpu_nodes.dgx-2: is in cpu_nodes too; leave it in one of the two"
    ]


@pytest.mark.parametrize(
    ("group", "hosts", "problem", "warning"),
    [
        (
            "login_node",
            ("l-1", "l-2"),
            "login_node: l-[1-2] are in no group of the contract; write login_nodes",
            None,
        ),
        (
            "login_node",
            ("l-1",),
            "login_node: l-1 is in no group of the contract; write login_nodes",
            None,
        ),
        (
            "backup",
            ("b-1",),
            None,
            "backup: b-1 is not part of the cluster and will be left alone",
        ),
        (
            "ungrouped",
            ("b-1", "b-2"),
            f"ungrouped: b-[1-2] are in no group of the contract; put it into {ALL}",
            None,
        ),
        # Ansible's own host is in every inventory that names it, and a known one is not a stray.
        ("ungrouped", ("localhost",), None, None),
        ("racks", ("dgx-1", "dgx-2"), None, None),
    ],
)
def test_hosts_in_no_group_of_the_contract(
    group: str, hosts: tuple[str, ...], problem: str | None, warning: str | None
) -> None:
    found = inventory({"all": (*hosts, "head-1"), **SOUND, group: hosts})
    problems, warnings = check_strays(found)
    assert [str(one) for one in problems] == ([] if problem is None else [problem])
    assert warnings == ([] if warning is None else [warning])


def test_a_stray_below_the_cluster_is_meant_to_be_of_it() -> None:
    groups = {"all": ("x-1", "y-1"), **SOUND, "extra": ("x-1",), "cluster": ("x-1", "y-1")}
    problems, warnings = check_strays(Inventory(groups, ("cluster", "extra"), {}))
    assert [str(one) for one in problems] == [
        f"extra: x-1 is in no group of the contract; put it into {ALL}",
        f"cluster: y-1 is in no group of the contract; put it into {ALL}",
    ]
    assert warnings == []


def test_host_names_are_short_and_each_hosts_own() -> None:
    def lines(*hosts: str) -> list[str]:
        return [str(problem) for problem in check_names(inventory({"gpu_nodes": hosts}))]

    assert lines("dgx-1", "dgx-2", "a" * 63) == []
    again = "once more, apart from letter case and domain; leave one of the two"
    assert lines("dgx-1", "DGX-1", "dgx-1.a", "dgx_2") == [
        f"gpu_nodes.DGX-1: is gpu_nodes.dgx-1 {again}",
        f"gpu_nodes.dgx-1.a: is gpu_nodes.dgx-1 {again}",
        (
            "gpu_nodes.dgx_2: 'dgx_2' is not a short host name; write lower-case letters, digits "
            "and "
            "hyphens, at most 63, without a domain"
        ),
    ]
    assert lines("dgx-1.a.b", "dgx-2.a.b") == [
        "gpu_nodes.dgx-1.a.b: 'dgx-1.a.b' is not a short host name; write dgx-1",
        "gpu_nodes.dgx-2.a.b: 'dgx-2.a.b' is not a short host name; write dgx-2",
    ]


ROLES = {
    "ntp": RoleSpec(
        "ntp",
        {
            "ntp_servers": Option(type="list", each=Option(), required=True),
            "ntp_pool": Option(),
            "ntp_hosts": Option(type="list", each=Option(), required=True),
            "ntp_peers": Option(type="list", each=Option()),
            "ntp_key": Option(no_log=True),
        },
        groups=("gpu_nodes", "login_nodes"),
        wired=frozenset({"ntp_hosts", "ntp_peers"}),
        received=frozenset({"ntp_peers"}),
    )
}


def checked(others: Mapping[str, str] | None = None, **values: Any) -> Checked:
    """What is reported of these variables of dgx-1, which is the first of two hosts."""
    given = {name: Value(value, f"gpu_nodes.{name}") for name, value in values.items()}
    hosts = {"dgx-1": given, "dgx-2": given, "stray": {"node_x": Value(1, "stray.node_x")}}
    return check_variables(inventory(SOUND, hosts, others=others), ROLES)


def lines(found: Checked) -> list[str]:
    return [str(problem) for problem in found.problems]


def test_a_variable_that_hosts_share_is_judged_once_and_for_all_of_them() -> None:
    found = checked(ntp_servers=["a"], ntp_pool=7)
    assert lines(found) == [
        "gpu_nodes.ntp_pool: text is wanted, this is the number 7; put it in quotes"
    ]
    assert found.warnings == ()
    # A host without variables, one that has none written, and none that is not a node.
    assert {host: sorted(values) for host, values in found.valid.items()} == {
        "head-1": [],
        "dgx-1": ["ntp_servers"],
        "dgx-2": ["ntp_servers"],
    }


def test_variables_that_is_unknown() -> None:
    found = checked(node_feature=["x"], ntp_colour="red", node_zzz=1)
    assert lines(found) == [
        "gpu_nodes.node_feature: no such variable; write node_features",
        (
            "gpu_nodes.ntp_colour: no such variable; remove it, names that begin with ntp_ are the "
            "collection's"
        ),
        (
            "gpu_nodes.node_zzz: no such variable; remove it, names that begin with node_ are the "
            "collection's"
        ),
    ]
    assert found.valid["dgx-1"] == {}
    assert found.meant == {"node_features", ""}
    assert checked(ntp_server=["a"]).meant == {"ntp_servers"}


def test_other_variables_that_are_nearly_the_collections() -> None:
    others = {"clustr_name": "all.clustr_name", "my_pool": "all.my_pool"}
    assert [str(problem) for problem in checked(others).problems] == [
        "all.clustr_name: no such variable; write cluster_name",
    ]


def test_what_the_playbooks_set_themselves() -> None:
    assert checked(ntp_hosts=["a"], ntp_peers=["b"], ntp_pool="x").warnings == (
        "gpu_nodes.ntp_hosts: not used, the playbooks set ntp_hosts themselves",
    )


def test_what_cannot_be_templated() -> None:
    fact, unset = Unresolved("depends on the fact 'f'", later=True), Unresolved("refers to 'x'")
    asked = "and no host is asked before the plan is made; write the value itself"
    define = "define what it refers to, or write the value itself"
    found = checked(node_profile=fact, node_features=["a", fact], ntp_pool=fact, ntp_servers=[fact])
    assert lines(found) == [
        f"gpu_nodes.node_profile: depends on the fact 'f', {asked}",
        f"gpu_nodes.node_features[1]: depends on the fact 'f', {asked}",
    ]
    # A role may wait for a fact; the plan has no value of it to judge by.
    assert sorted(found.valid["dgx-1"]) == ["ntp_servers"]
    found = checked(ntp_pool=unset, node_address={"a": "10.0.0.1", "b": unset})
    assert lines(found) == [
        f"gpu_nodes.ntp_pool: cannot be templated: refers to 'x'; {define}",
        f"gpu_nodes.node_address.b: cannot be templated: refers to 'x'; {define}",
    ]
    found = checked(ntp_key=Opaque())
    assert (lines(found), found.valid["dgx-1"]) == ([], {})


def of_cluster(
    hosts: Mapping[str, Mapping[str, tuple[Any, str]]], faulty: tuple[str, ...] = ()
) -> tuple[dict[str, Any], list[str]]:
    """The cluster's values, and what is wrong; variables are (value, where it is written)."""
    given = {
        host: {name: Value(value, f"{where}.{name}") for name, (value, where) in values.items()}
        for host, values in hosts.items()
    }
    valid = {
        host: {name: value for name, value in values.items() if name not in faulty}
        for host, values in given.items()
    }
    found = Checked(valid, (), (), frozenset({"cluster_domain"}))
    values, problems = cluster_values(found, inventory(SOUND, given))
    return (
        {name: value.value for name, value in values.items()},
        [str(problem) for problem in problems],
    )


NET = {"cluster_networks": ({"m": {}}, "all")}
NAME = {"cluster_name": ("small", "all")}
MISSING = (
    "all.cluster_name: missing; write it in group_vars/all/cluster.yml: a lower-case letter, then "
    "letters, digits, _ and -, 40 at most"
)


def test_variables_of_the_cluster_are_the_same_for_all() -> None:
    same = {**NAME, **NET}
    assert of_cluster({"head-1": same, "dgx-1": same}) == (
        {"cluster_name": "small", "cluster_networks": {"m": {}}},
        [],
    )
    assert of_cluster({"head-1": NET, "dgx-1": NET}) == ({"cluster_networks": {"m": {}}}, [MISSING])
    # What is written but faulty has been reported, and is not a value of the cluster.
    assert of_cluster({"head-1": same, "dgx-1": same}, ("cluster_name",)) == (
        {"cluster_networks": {"m": {}}},
        [],
    )
    once = "write it once, in group_vars/all/cluster.yml"
    other = {**NET, "cluster_name": ("other", "gpu_nodes")}
    assert of_cluster({"head-1": same, "dgx-1": other, "dgx-2": other}) == (
        {"cluster_networks": {"m": {}}},
        [f"gpu_nodes.cluster_name: differs from all.cluster_name; {once}"],
    )
    assert of_cluster({"head-1": NET, "dgx-1": other, "dgx-2": other}) == (
        {"cluster_networks": {"m": {}}},
        [f"gpu_nodes.cluster_name: not set for head-1; {once}"],
    )


def required(
    hosts: Mapping[str, tuple[str, ...]],
    groups: Mapping[str, tuple[str, ...]] | None = None,
    meant: tuple[str, ...] = (),
    roles: Mapping[str, RoleSpec] | None = None,
) -> list[str]:
    """What roles lack; hosts says which variables each has."""
    given = {
        host: {name: Value(0, f"x.{name}") for name in hosts.get(host, ())}
        for host in ("head-1", "dgx-1", "dgx-2", "login-1")
    }
    place = inventory(SOUND if groups is None else groups, given)
    found = check_required(place, ROLES if roles is None else roles, frozenset(meant))
    return [str(problem) for problem in found]


def test_inputs_that_a_role_cannot_do_without() -> None:
    has = ("ntp_servers",)
    assert required({"dgx-1": has, "dgx-2": has}) == []
    # The role runs on no controller, and the playbooks give ntp_hosts.
    assert required({}) == [
        "gpu_nodes.ntp_servers: missing; write it in group_vars/gpu_nodes/ntp.yml: a list"
    ]
    assert required({}, meant=("ntp_servers",)) == []
    assert required({"dgx-1": has}) == ["gpu_nodes.dgx-2.ntp_servers: missing; write a list"]
    both = {**SOUND, "login_nodes": ("login-1",)}
    assert required({}, both) == [
        "all.ntp_servers: missing; write it in group_vars/all/ntp.yml: a list"
    ]
    assert required({"dgx-1": has, "dgx-2": has}, both) == [
        "login_nodes.login-1.ntp_servers: missing; write a list"
    ]


def test_all_required_inputs_of_all_roles_are_asked_for() -> None:
    def role(name: str, **options: Option) -> RoleSpec:
        return RoleSpec(name, options, groups=("gpu_nodes",), wired=frozenset({"wired"}))

    need = Option(required=True)
    roles = {
        "nowhere": RoleSpec("nowhere", {"nowhere_x": need}),
        "one": role("one", free=Option(), wired=need, has=need, lacks=need, partly=need, last=need),
        "two": role("two", two_x=need),
    }
    having = {"dgx-1": ("has", "partly"), "dgx-2": ("has",)}
    assert required(having, roles=roles) == [
        "gpu_nodes.lacks: missing; write it in group_vars/gpu_nodes/one.yml: text",
        "gpu_nodes.dgx-2.partly: missing; write text",
        "gpu_nodes.last: missing; write it in group_vars/gpu_nodes/one.yml: text",
        "gpu_nodes.two_x: missing; write it in group_vars/gpu_nodes/two.yml: text",
    ]
