# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.profiles import (
    resolve_profiles,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import Value
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.fabric import parse_fabric
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.nodes import (
    Node,
    check_identities,
    check_numbers,
    check_profiles,
    check_racks,
    check_rails,
    has_place,
    keeping_ports,
    make_node,
    missing_addresses,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.plan import Plan

NONE = parse_fabric({})
BASEPOD = parse_fabric({"topology": "basepod", "leaf_switches": ["a", "b"]})
SUPERPOD = parse_fabric({"topology": "superpod"})
SITE = {
    "head": {
        "cpu": {"sockets": 1, "cores_per_socket": 8, "threads_per_core": 2, "numa_nodes": 1},
        "real_memory_mb": 64000,
        "rack_units": 2,
    },
    "slow": {"inherit": "dgx_h100", "link_rate_gbps": 200},
}
PROFILES, _problems, _broken = resolve_profiles(SITE, "all.cluster_profiles")
BUILT_IN = resolve_profiles({}, "all.cluster_profiles")[0]


def node(name: str = "dgx-01", kind: str = "gpu_nodes", **given: Any) -> Node:
    fabric = given.pop("fabric", NONE)
    variables = {
        f"node_{key}": Value(value, f"{kind}.{name}.node_{key}") for key, value in given.items()
    }
    return make_node(name, kind, (kind,), variables, fabric, PROFILES)


def test_unit_and_place_are_counted_where_the_fabric_has_them() -> None:
    def of(kind: str, fabric: Any, **given: Any) -> tuple[int | None, int | None]:
        made = node("n-034", kind, fabric=fabric, **given)
        return made.su, made.leaf_place

    assert of("gpu_nodes", SUPERPOD) == (2, 2)
    assert of("gpu_nodes", SUPERPOD, number=64) == (2, 32)
    assert of("gpu_nodes", SUPERPOD, number=65) == (3, 1)
    assert of("gpu_nodes", SUPERPOD, su=7, leaf_place=9) == (7, 9)
    assert of("gpu_nodes", BASEPOD) == (None, 34)
    assert of("gpu_nodes", NONE) == (None, None)
    assert of("cpu_nodes", SUPERPOD) == (None, None)
    assert of("cpu_nodes", BASEPOD) == (None, None)
    assert node("n-c", fabric=SUPERPOD).su is None
    assert node("n-c", fabric=SUPERPOD).leaf_place is None
    assert node("n-00", fabric=SUPERPOD).su is None
    assert node("n-00", fabric=BASEPOD).leaf_place is None
    assert (node("n-12").number, node("n-12", number="3").number) == (12, 3)


def test_absent_nodes_keep_the_ports_of_their_places() -> None:
    lines = [("dgx-01", "present", 1), ("dgx-02", "absent", 2), ("dgx-03", "absent", 3),
             ("dgx-04", "present", 3), ("dgx-05", "absent", 16)]  # fmt: skip
    nodes = [
        node(name, state=state, leaf_place=place, fabric=BASEPOD) for name, state, place in lines
    ]
    # Another machine took the place of dgx-03, and dgx-05 has none.
    assert keeping_ports(nodes, BASEPOD) == ["dgx-02"]
    assert keeping_ports(nodes, SUPERPOD) == []


def test_who_runs_jobs() -> None:
    assert node().runs_jobs
    assert node(kind="cpu_nodes").runs_jobs
    assert not node(kind="login_nodes").runs_jobs
    assert not node(state="absent").runs_jobs
    assert make_node("h", "login_nodes", ("login_nodes", "cpu_nodes"), {}, NONE, {}).runs_jobs


def profile_lines(
    nodes: list[Node],
    paths: Mapping[str, str] | None = None,
    profiles: Mapping[str, Any] = PROFILES,
    broken: tuple[str, ...] = (),
    faulty: tuple[str, ...] = (),
    topology: str = "basepod",
) -> list[str]:
    """Problems of the nodes' profiles; paths says where a node's is written if not at it."""
    written = {
        one.name: {
            "node_profile": Value(
                one.profile, (paths or {}).get(one.name, one.path + ".node_profile")
            )
        }
        for one in nodes
        if one.profile
    }
    everything = {**written, **{name: {"node_profile": Value(0, "")} for name in faulty}}
    fabric = parse_fabric({"topology": topology})
    found = check_profiles(nodes, written, profiles, list(broken), everything, fabric)
    return [str(problem) for problem in found]


KNOWN = "dgx_a100, dgx_b200, dgx_h100, dgx_h200, gb200_nvl72, gb300_nvl72, head, hgx_h100 or slow"


def test_a_profile_that_is_missing() -> None:
    with_one, without = node("a-1", profile="dgx_h100"), node("a-2")
    assert profile_lines([with_one]) == []
    assert profile_lines([without, node("a-3")]) == [
        f"gpu_nodes.node_profile: missing; write {KNOWN}"
    ]
    assert profile_lines([with_one, without, node("a-3")]) == [
        f"gpu_nodes.a-2.node_profile: missing; write {KNOWN}",
        f"gpu_nodes.a-3.node_profile: missing; write {KNOWN}",
    ]
    # What is written but faulty has been reported.
    assert profile_lines([without], faulty=("a-2",)) == []
    # Only what runs jobs needs one, and no built-in profile is for a node without GPUs.
    assert profile_lines([node("h-1", "login_nodes")]) == []
    cpu_node = node("c-1", "cpu_nodes")
    assert profile_lines([cpu_node]) == ["cpu_nodes.node_profile: missing; write head or slow"]
    assert profile_lines([cpu_node], profiles=BUILT_IN) == [
        (
            "cpu_nodes.node_profile: missing; write your own from cluster_profiles, "
            "with cpu "
            "and real_memory_mb"
        )
    ]


def test_a_profile_that_is_unknown() -> None:
    assert profile_lines([node("a-1", profile="dgx_h10")]) == [
        "gpu_nodes.a-1.node_profile: no profile is called 'dgx_h10'; write dgx_h100"
    ]
    assert profile_lines([node("a-1", profile="zzz")]) == [
        f"gpu_nodes.a-1.node_profile: no profile is called 'zzz'; write {KNOWN}"
    ]
    # A node without one hides no other.
    assert len(profile_lines([node("a-0"), node("a-1", profile="zzz")])) == 2
    # One that is declared but faulty has been reported.
    assert profile_lines([node("a-1", profile="mine")], broken=("mine",)) == []
    shared = dict.fromkeys(("a-1", "a-2"), "gpu_nodes.node_profile")
    nodes = [node("a-1", profile="zzz"), node("a-2", profile="zzz")]
    assert len(profile_lines(nodes, shared)) == 1


OPEN = (
    "profile hgx_h100 leaves open cpu, real_memory_mb, gpus.cores and hca_pci of rails; write "
    "them in cluster_profiles.hgx_h100, as this machine has them"
)


def test_a_profile_that_leaves_open_what_slurm_needs() -> None:
    assert profile_lines([node("a-1", profile="hgx_h100")]) == [
        f"gpu_nodes.a-1.node_profile: {OPEN}"
    ]
    (line,) = profile_lines([node("a-1", profile="hgx_h100")], topology="none")
    assert "leaves open cpu, real_memory_mb and gpus.cores; write" in line
    # Without GPUs to be used, only what the node itself needs.
    (line, _others) = profile_lines([node("c-1", "cpu_nodes", profile="hgx_h100")])
    assert "leaves open cpu and real_memory_mb; write" in line
    assert profile_lines([node("a-1", "login_nodes", profile="hgx_h100")]) == []
    assert profile_lines([node("a-1", profile="hgx_h100", state="absent")]) == []
    assert profile_lines([node("a-1", profile="head")]) == [
        (
            "gpu_nodes.a-1.node_profile: profile head has no GPUs; write another, or put the host "
            "into cpu_nodes"
        )
    ]
    assert profile_lines([node("c-1", "cpu_nodes", profile="head")]) == []
    assert profile_lines([node("c-1", "cpu_nodes", profile="dgx_h100")]) == [
        (
            "cpu_nodes.c-1.node_profile: profile dgx_h100 has GPUs, and hosts of cpu_nodes get no "
            "driver for them; put the host into gpu_nodes, or write another profile"
        )
    ]


@pytest.mark.parametrize(("sockets", "cores", "is_open"), [(1, (), 0), (2, (), 1), (2, ("0",), 0)])
def test_one_socket_is_next_to_all_gpus(sockets: int, cores: tuple[str, ...], is_open: int) -> None:
    given = PROFILES["dgx_h100"]
    assert given.cpu is not None
    assert given.gpus is not None
    profile = dataclasses.replace(
        given,
        cpu=dataclasses.replace(given.cpu, sockets=sockets),
        gpus=dataclasses.replace(given.gpus, cores=cores),
    )
    found = profile_lines([node("a-1", profile="dgx_h100")], profiles={"dgx_h100": profile})
    assert [line.partition("; ")[0] for line in found] == [
        "gpu_nodes.a-1.node_profile: profile dgx_h100 leaves open gpus.cores"
    ] * is_open


@pytest.mark.parametrize(
    "first",
    [
        node("a-0", "login_nodes", profile="hgx_h100"),
        node("a-0", profile="hgx_h100", state="absent"),
        node("a-0", "cpu_nodes", profile="head"),
    ],
    ids=["of another group", "absent", "with another value"],
)
def test_a_host_that_shares_the_variable_hides_nothing(first: Node) -> None:
    """A template may give each host another value, and their use may differ."""
    nodes = [first, node("a-1", profile="hgx_h100"), node("a-2", profile="hgx_h100")]
    paths = dict.fromkeys(("a-0", "a-1", "a-2"), "all.node_profile")
    assert profile_lines(nodes, paths) == [f"all.node_profile: {OPEN}"]


def test_an_open_profile_for_all_hosts_makes_no_plan(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    """The head node is the first that has it, and its figures are not asked for."""
    place = "group_vars/gpu_nodes/node.yml"
    small_files[place] = small_files[place].replace("node_profile: dgx_h100\n", "")
    small_files["group_vars/all/cluster.yml"] += "node_profile: hgx_h100\n"
    plan = planned(small_files)
    assert plan.problems == (f"all.node_profile: {OPEN}",)
    assert plan.data is None


def test_numbers_begin_with_1_and_are_each_nodes_own() -> None:
    def lines(*nodes: Node) -> list[str]:
        return [str(problem) for problem in check_numbers(list(nodes))]

    assert lines(node("a-1"), node("a-2"), node("b-1", "login_nodes"), node("c")) == []
    assert lines(node("a-1", state="absent"), node("b-c"), node("b-1")) == []
    assert lines(node("x"), node("y-0", state="absent"), node("a-0"), node("a-1"), node("b-1")) == [
        "gpu_nodes.a-0.node_number: 0, from the host name; write a number from 1 on",
        ("gpu_nodes.b-1.node_number: 1 is also the number of gpu_nodes.a-1; write another number"),
    ]


def test_serials_and_guids_are_of_one_machine_each() -> None:
    def lines(*nodes: Node) -> list[str]:
        return [str(problem) for problem in check_identities(list(nodes))]

    guids = {0: "946dae0300a1b2c3", 1: "946dae0300a1b2c4"}
    gone = node("a-0", state="absent", serial="S1", hca_guids=guids)
    assert lines(gone, node("a-1", serial="S1", hca_guids=guids)) == []
    assert lines(node("a-1"), node("a-2"), node("a-3", serial="S3")) == []
    assert lines(gone, node("a-1", serial="s1", hca_guids=guids), node("a-2", serial="S1")) == [
        (
            "gpu_nodes.a-2.node_serial: 'S1' is also the serial number of gpu_nodes.a-1; "
            "write the one on this machine"
        )
    ]
    assert lines(node("a-1", hca_guids=guids), node("a-2", hca_guids={7: guids[1]})) == [
        (
            "gpu_nodes.a-2.node_hca_guids.7: 0x946dae0300a1b2c4 is also the GUID of "
            "gpu_nodes.a-1.node_hca_guids.1; write the one of this adapter"
        )
    ]


def rails(nodes: list[Node], **fabric: Any) -> tuple[list[str], list[str]]:
    described = parse_fabric({"topology": "basepod", **fabric})
    problems, warnings = check_rails(nodes, PROFILES, described, "f")
    return [str(problem) for problem in problems], warnings


def test_guids_are_of_rails_that_the_profile_has() -> None:
    guid = "946dae0300a1b2c3"
    assert rails([node(profile="dgx_h100", hca_guids={7: guid})]) == ([], [])
    last = node("a-2", profile="dgx_h100", hca_guids={7: guid, 8: guid, 9: guid}, state="absent")
    others = [
        node("c-1", profile="unknown", hca_guids={9: guid}),
        node("c-2", "cpu_nodes", profile="dgx_h100", hca_guids={9: guid}),
        node("c-3", profile="head", hca_guids={9: guid}),
        node("c-4", hca_guids={9: guid}),
    ]
    assert rails([*others, last]) == (
        [
            f"gpu_nodes.a-2.node_hca_guids.{rail}: profile dgx_h100 has rails 0 to 7; "
            "write one of them"
            for rail in (8, 9)
        ],
        [],
    )


def test_profile_and_fabric_agree_on_rails_and_rate() -> None:
    fast, gone = node("a-1", profile="dgx_h100"), node("a-0", profile="slow", state="absent")
    assert rails([gone, fast]) == ([], [])
    assert rails([gone, fast, node("a-2", profile="dgx_h100")], rails=4) == (
        ["f.rails: 4, but profile dgx_h100 has 8; write 8"],
        [],
    )
    assert rails([fast], topology="none", rails=4) == ([], [])
    slow = [node("a-2", profile="slow"), node("a-3", profile="slow")]
    assert rails([gone, fast, *slow]) == (
        [],
        ["f.rate_gbps: 400, but profile slow runs at 200"],
    )
    assert rails([node("a-2", profile="slow")], rate_gbps=200) == ([], [])
    # Fewer rails than the fabric, or none: the widest node decides.
    few = dataclasses.replace(
        PROFILES["dgx_h100"], name="few", rails=PROFILES["dgx_h100"].rails[:4]
    )
    none = dataclasses.replace(PROFILES["slow"], name="none", rails=())
    some = {**PROFILES, "few": few, "none": none}
    described = parse_fabric({"topology": "basepod", "rails": 8})
    mixed = [fast, node("a-2", profile="few"), node("a-3", profile="none")]
    assert check_rails(mixed, some, described, "f") == ([], [])
    (problem,), _warnings = check_rails(mixed[1:], some, described, "f")
    assert str(problem) == "f.rails: 8, but profile few has 4; write 4"
    (problem,), _warnings = check_rails(mixed[2:], some, described, "f")
    assert str(problem) == "f.rails: 8, but no node has a rail; write topology: none"
    # A profile that leaves its rate open agrees with any.
    open_rate = dataclasses.replace(PROFILES["dgx_h100"], link_rate_gbps=None)
    described = parse_fabric({"topology": "basepod", "rate_gbps": 100})
    assert check_rails([fast], {"dgx_h100": open_rate}, described, "f") == ([], [])


def racks(*nodes: Node, faulty: tuple[str, ...] = ()) -> list[str]:
    written: dict[str, dict[str, Value]] = {one.name: {} for one in nodes}
    for name in faulty:
        written[name]["node_rack"] = Value(0, "")
    return [str(problem) for problem in check_racks(list(nodes), PROFILES, written)]


def in_rack(name: str, unit: int, profile: str = "dgx_h100", **more: Any) -> Node:
    return node(name, rack="r1", rack_unit=unit, profile=profile, **more)


def filled(name: str, units: str, other: str, others: str) -> str:
    verb = "are" if units.startswith("units") else "is"
    return (
        f"gpu_nodes.{name}.node_rack_unit: {units} of rack r1 {verb} filled by gpu_nodes.{other} "
        f"({others}); write a free unit, or another node_rack"
    )


def test_nodes_of_a_rack_may_touch_but_not_overlap() -> None:
    # A DGX H100 is 8 units high, a head node 2, and what has no profile is taken for 1.
    assert racks(in_rack("a", 1), in_rack("b", 9), in_rack("c", 17, "head")) == []
    assert racks(in_rack("a", 2, "head"), in_rack("b", 4, "head"), in_rack("c", 1, "")) == []
    assert racks(in_rack("a", 1), in_rack("b", 8, "")) == [
        filled("b", "unit 8", "a", "units 1-8"),
    ]
    assert racks(in_rack("b", 8, ""), in_rack("a", 1)) == [
        filled("b", "unit 8", "a", "units 1-8"),
    ]
    assert racks(in_rack("a", 3, ""), in_rack("b", 2, "head")) == [
        filled("a", "unit 3", "b", "units 2-3"),
    ]
    assert racks(in_rack("a", 1), node("b", rack="r2", rack_unit=1, profile="dgx_h100")) == []


def test_a_low_node_hides_no_high_one_behind_it() -> None:
    assert racks(in_rack("a", 1), in_rack("b", 2, ""), in_rack("c", 8, "")) == [
        filled("b", "unit 2", "a", "units 1-8"),
        filled("c", "unit 8", "a", "units 1-8"),
    ]
    # Of two that end alike, the one that begins below.
    assert racks(in_rack("a", 1), in_rack("b", 8, ""), in_rack("c", 8, "")) == [
        filled("b", "unit 8", "a", "units 1-8"),
        filled("c", "unit 8", "a", "units 1-8"),
    ]
    # Of two that begin alike, the lower one comes first.
    assert racks(in_rack("a", 1), in_rack("b", 1, "")) == [
        filled("a", "units 1-8", "b", "unit 1"),
    ]
    assert racks(in_rack("b", 1, ""), in_rack("a", 1), in_rack("c", 5, "head")) == [
        filled("a", "units 1-8", "b", "unit 1"),
        filled("c", "units 5-6", "a", "units 1-8"),
    ]


def test_nodes_without_a_place_in_a_rack() -> None:
    lost = node("c", rack_unit=5, profile="dgx_h100")
    line = "gpu_nodes.c.node_rack: missing, but node_rack_unit is given; write the name of the rack"
    somewhere, gone = node("b", rack="r1"), in_rack("d", 1, state="absent")
    assert racks(gone, somewhere, in_rack("a", 1)) == []
    assert racks(gone, somewhere, lost, in_rack("a", 1), in_rack("e", 3, "")) == [
        line,
        filled("e", "unit 3", "a", "units 1-8"),
    ]
    # What is written for it but faulty has been reported.
    assert racks(lost, node("f", rack_unit=5), faulty=("c",)) == [
        line.replace("nodes.c", "nodes.f")
    ]


def test_missing_addresses_are_asked_for_where_they_are_written() -> None:
    nodes = [node("h-1", "login_nodes"), node("a-1"), node("a-2")]
    assert [str(problem) for problem in missing_addresses(nodes, "mgmt")] == [
        (
            "login_nodes.h-1.node_address.mgmt: missing, and this is the network that SSH uses; "
            "write the address, or node_first_address.mgmt for login_nodes"
        ),
        (
            "gpu_nodes.node_first_address.mgmt: missing for a-[1-2], and this is the network "
            "that SSH "
            "uses; write the address of node number 1"
        ),
    ]


def test_who_may_stand_on_the_leaf_switches() -> None:
    """Only a node that is known to lack rails has no place."""
    none = {"none": dataclasses.replace(PROFILES["dgx_h100"], name="none", rails=())}
    some = {**PROFILES, **none}
    assert has_place(node(profile="dgx_h100"), some)
    assert has_place(node(), some)
    assert has_place(node(profile="unknown"), some)
    assert not has_place(node(profile="none"), some)
    assert has_place(node(kind="cpu_nodes", profile="none"), some)
