# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.fabric import (
    OTHER_DESIGN,
    Cabling,
    Fabric,
    SwitchPlace,
    check_fabric,
    check_kinds,
    check_managed,
    check_partners,
    check_ports,
    fabric_warnings,
    manager_warnings,
    parse_fabric,
    rail_kind,
    upper_tiers,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.networks import parse_networks


def superpod(leaf: int, spine: int, core: int = 0, ufm_unit: int = 0) -> Fabric:
    tiers = {"leaf": leaf, "spine": spine, "core": core}
    switches = {
        f"{tier}_switches": [f"{tier}-{index}" for index in range(count)]
        for tier, count in tiers.items()
    }
    return parse_fabric({"topology": "superpod", "ufm_unit": ufm_unit, **switches})


def problems(fabric: Fabric, nodes: int, absent: Sequence[str] = ()) -> list[str]:
    units = {f"dgx-{number}": fabric.unit_of(number) for number in range(1, nodes + 1)}
    hosts = {name: f"gpu_nodes.{name}" for name in units}
    found = check_fabric(fabric, "all.cluster_fabric", hosts, units, absent)
    return [str(problem) for problem in found]


# NVIDIA's tables: scalable units, nodes, leaf, spine and core switches. H100 (with UFM), then B200.
@pytest.mark.parametrize(
    ("units", "nodes", "leaf", "spine", "core", "ufm_unit"),
    [
        (1, 31, 8, 4, 0, 1),
        (2, 63, 16, 8, 0, 2),
        (3, 95, 24, 16, 0, 3),
        (4, 127, 32, 16, 0, 4),
        (2, 64, 16, 8, 0, 0),
        (4, 128, 32, 16, 0, 0),
        (8, 256, 64, 32, 0, 0),
        (16, 512, 128, 128, 64, 0),
        (32, 1024, 256, 256, 128, 0),
        (64, 2048, 512, 512, 256, 0),
    ],
)
def test_published_designs_are_healthy(
    units: int, nodes: int, leaf: int, spine: int, core: int, ufm_unit: int
) -> None:
    fabric = superpod(leaf, spine, core, ufm_unit)
    assert fabric.units == units
    assert upper_tiers(fabric, units) == (spine, core)
    assert problems(fabric, nodes) == []


@pytest.mark.parametrize(
    ("fabric", "nodes", "line"),
    [
        (
            superpod(8, 4, ufm_unit=1),
            32,
            (
                "all.cluster_fabric: 32 nodes in scalable unit 1, but its leaf switches have ports "
                "for 31, one node's ports being UFM's; write another node_su for 1 of them"
            ),
        ),
        (
            superpod(24, 12),
            95,
            (
                "all.cluster_fabric.spine_switches: 12 switches for 24 leaf switches; write 16, as "
                f"the reference design has; {OTHER_DESIGN}"
            ),
        ),
        (
            superpod(128, 128),
            512,
            (
                "all.cluster_fabric.core_switches: 0 switches for 128 leaf switches; write 64, as "
                f"the reference design has; {OTHER_DESIGN}"
            ),
        ),
        (
            superpod(8, 4),
            33,
            (
                "gpu_nodes.dgx-33.node_su: in scalable unit 2, but 8 leaf switches make 1; "
                "write 16 leaf switches, or another unit"
            ),
        ),
    ],
)
def test_what_differs_is_said(fabric: Fabric, nodes: int, line: str) -> None:
    assert problems(fabric, nodes) == [line]


def test_a_fabric_for_fewer_nodes_than_it_could_take_is_healthy() -> None:
    assert problems(superpod(16, 8), 33) == []


# DGX SuperPOD B300 with XDR, Table 3: 72 nodes a unit on switches of 144 ports.
@pytest.mark.parametrize(
    ("units", "leaf", "spine"), [(1, 8, 4), (2, 16, 8), (4, 32, 18), (8, 64, 36), (18, 144, 72)]
)
def test_published_designs_of_xdr_are_healthy(units: int, leaf: int, spine: int) -> None:
    switches = {
        f"{tier}_switches": [f"{tier}-{index}" for index in range(count)]
        for tier, count in (("leaf", leaf), ("spine", spine))
    }
    fabric = parse_fabric({"topology": "superpod", "radix": 144, "rate_gbps": 800, **switches})
    assert (fabric.units, fabric.unit_size) == (units, 72)
    assert problems(fabric, units * 72) == []


@pytest.mark.parametrize(
    ("rails", "units", "tiers"),
    [
        (8, 3, (18, 0)),
        (8, 5, (36, 0)),
        (8, 9, (72, 0)),
        # Beyond the table, and with other rails, the rows are powers of two.
        (8, 19, (256, 128)),
        (4, 4, (8, 0)),
    ],
)
def test_counts_of_xdr_between_and_beyond_the_rows(
    rails: int, units: int, tiers: tuple[int, int]
) -> None:
    fabric = parse_fabric({"topology": "superpod", "radix": 144, "rails": rails})
    assert upper_tiers(fabric, units) == tiers


@pytest.mark.parametrize(
    ("rate_gbps", "radix", "most"), [(400, 64, 8), (400, 128, 8), (200, 64, 8), (200, 128, 16)]
)
def test_a_basepod_of_ndr200_is_specified_for_sixteen(
    rate_gbps: int, radix: int, most: int
) -> None:
    pair = {"topology": "basepod", "leaf_switches": ["a", "b"]}
    fabric = parse_fabric({**pair, "rate_gbps": rate_gbps, "radix": radix})
    assert fabric_warnings(fabric, "f", most) == []
    (line,) = fabric_warnings(fabric, "f", most + 1)
    assert f"which is specified for {most};" in line


def test_basepod_ports() -> None:
    fabric = parse_fabric({"topology": "basepod", "leaf_switches": ["a", "b"]})
    assert problems(fabric, 15) == []
    assert len(problems(fabric, 16)) == 1
    assert fabric_warnings(fabric, "p", 8) == []
    assert len(fabric_warnings(fabric, "p", 9)) == 1


def test_ports_of_absent_nodes_join_nothing() -> None:
    fabric = parse_fabric({"topology": "basepod", "leaf_switches": ["a", "b"]})
    absent = ["dgx-09", "dgx-10", "dgx-11", "dgx-12"]
    assert fabric_warnings(fabric, "f", 7, absent[:1]) == []
    (line,) = fabric_warnings(fabric, "f", 8, absent)
    assert line == (
        "f: dgx-[09-12] absent, with ports that are kept: 16 cables are planned to join the two "
        "switches, and 32 would not block; delete the lines of nodes that do not come back"
    )
    assert problems(fabric, 8, absent) == []
    full = parse_fabric(
        {
            "topology": "basepod",
            "leaf_switches": ["a", "b"],
            "reserved_ports": {"b": list(range(49, 65))},
        }
    )
    (line,) = problems(full, 8, absent)
    assert line == (
        "all.cluster_fabric.topology: 8 nodes, and the absent dgx-[09-12], which keep theirs, take "
        "all ports of each switch but those of reserved_ports, none is left to join the two; "
        "delete the lines of absent nodes that do not come back"
    )


def test_reserved_ports_join_nothing() -> None:
    data = {"topology": "basepod", "leaf_switches": ["a", "b"], "reserved_ports": {"a": [63, 64]}}
    (line,) = fabric_warnings(parse_fabric(data), "f", 12)
    assert "; 14 ports of each switch are left to join the two, 48 would not block" in line
    del data["reserved_ports"]
    assert "; 16 ports of each" in fabric_warnings(parse_fabric(data), "f", 12)[0]


def test_what_the_inventory_leaves_out() -> None:
    fabric = parse_fabric({})
    assert (fabric.topology, fabric.switches) == ("none", ())
    assert (fabric.radix, fabric.rails, fabric.rate_gbps, fabric.ufm_unit) == (64, 8, 400, 0)
    assert (fabric.rail_groups, fabric.computed, fabric.cabling.file) == ("halves", True, None)
    empty = ("ufm_unit", "cabling", "switch_guids", "switch_places", "reserved_ports")
    assert parse_fabric(dict.fromkeys(empty)) == fabric


def test_what_the_inventory_says() -> None:
    fabric = parse_fabric(
        {
            "topology": "superpod",
            "leaf_switches": ["l1", "l2"],
            "spine_switches": ["s1"],
            "core_switches": ["c1"],
            "radix": "40",
            "rails": "4",
            "rate_gbps": "200",
            "ufm_unit": "3",
            "rail_groups": "even_odd",
            "cabling": {"source": "csv", "file": "/srv/c.csv"},
            "switch_guids": {"l1": "0xFC6A1C0301000000", "l2": "fc6a:1c03"},
            "switch_places": {"l1": {"rack": "r1"}, "l2": {"rack": "r1", "rack_unit": "40"}},
            "reserved_ports": {"l1": ["7", 8]},
            "fabric_host": "dgx-01",
        }
    )
    assert fabric.switches == ("l1", "l2", "s1", "c1")
    assert (fabric.radix, fabric.rails, fabric.rate_gbps, fabric.ufm_unit) == (40, 4, 200, 3)
    assert (fabric.rail_groups, fabric.fabric_host) == ("even_odd", "dgx-01")
    assert (fabric.computed, fabric.cabling) == (False, Cabling("csv", "/srv/c.csv"))
    assert fabric.switch_guids == {"l1": "0xfc6a1c0301000000", "l2": "0x00000000fc6a1c03"}
    assert fabric.switch_places == {"l1": SwitchPlace("r1"), "l2": SwitchPlace("r1", 40)}
    assert fabric.reserved_ports == {"l1": (7, 8)}


@pytest.mark.parametrize(
    ("rails", "groups", "first", "second"),
    [
        (8, "halves", (0, 1, 2, 3), (4, 5, 6, 7)),
        (8, "even_odd", (0, 2, 4, 6), (1, 3, 5, 7)),
        # The first switch has the one that is left over.
        (3, "halves", (0, 1), (2,)),
        (3, "even_odd", (0, 2), (1,)),
        (1, "halves", (0,), ()),
    ],
)
def test_rails_of_the_two_switches(
    rails: int, groups: str, first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    fabric = parse_fabric({"topology": "basepod", "rails": rails, "rail_groups": groups})
    assert fabric.rails_of_leaf == (first, second)


@pytest.mark.parametrize(
    ("number", "unit", "place"), [(1, 1, 1), (32, 1, 32), (33, 2, 1), (64, 2, 32), (65, 3, 1)]
)
def test_unit_and_place_of_a_number(number: int, unit: int, place: int) -> None:
    fabric = superpod(8, 4)
    assert (fabric.unit_of(number), fabric.place_of(number)) == (unit, place)
    # A BasePOD has no units: places go on.
    assert parse_fabric({"topology": "basepod"}).place_of(number) == number


@pytest.mark.parametrize(
    ("rails", "units", "tiers"),
    [
        (1, 1, (1, 0)),
        (2, 1, (1, 0)),
        (4, 1, (2, 0)),
        # As many leaves as a switch has ports are the most of two tiers.
        (8, 8, (32, 0)),
        (8, 9, (128, 64)),
        (4, 16, (32, 0)),
    ],
)
def test_upper_tiers(rails: int, units: int, tiers: tuple[int, int]) -> None:
    assert upper_tiers(parse_fabric({"topology": "superpod", "rails": rails}), units) == tiers


IB, ETH = "infiniband", "ethernet"


@pytest.mark.parametrize(
    ("topology", "kinds", "kind"),
    [
        ("none", {"rail0": ETH}, "none"),
        # InfiniBand needs no addresses, and other networks are not rails.
        ("basepod", {}, IB),
        ("basepod", {"management": ETH, "guardrail0": ETH, "rail0_old": ETH, "rail": ETH}, IB),
        ("basepod", {"management": IB, "rail0": ETH, "rail11": ETH}, ETH),
        ("superpod", {"rail0": ETH, "rail1": IB}, IB),
        ("superpod", {"rail0": IB}, IB),
    ],
)
def test_what_the_rails_run(topology: str, kinds: dict[str, str], kind: str) -> None:
    assert rail_kind(parse_fabric({"topology": topology}), kinds) == kind


def test_all_rails_are_of_one_kind() -> None:
    def lines(**kinds: str | None) -> list[str]:
        networks = {name: {} if kind is None else {"kind": kind} for name, kind in kinds.items()}
        return [str(problem) for problem in check_kinds(networks, "n")]

    assert lines(rail0=IB, rail1=IB, management=ETH) == []
    assert lines(rail0=ETH, rail1=None, storage=IB) == []
    assert lines(rail0=IB, rail1=ETH, rail2=IB, rail3=None, management=ETH) == [
        (
            "n.rail1.kind: ethernet, but infiniband is the kind of rail0 and rail2; "
            "write the same kind for all rails"
        ),
        (
            "n.rail3.kind: missing, which means ethernet, but infiniband is the kind of rail0 and "
            "rail2; write the same kind for all rails"
        ),
    ]


def managed(kind: str = IB, managers: tuple[str, ...] = ("head-01",), **given: Any) -> list[str]:
    found = check_managed(given, kind, "f", managers, ("head-01", "dgx-01"), ())
    return [str(problem) for problem in found]


def test_a_host_manages_an_infiniband_subnet() -> None:
    assert managed() == []
    assert managed("ethernet", ()) == []
    assert managed("none", ()) == []
    assert managed(managers=(), fabric_host="dgx-01") == []
    (line,) = managed(managers=())
    assert line.startswith("subnet_managers: no host in it")
    assert line.endswith("write a host on the fabric as f.fabric_host")
    # One mistake is one line: the host was named, though misspelt.
    assert managed(managers=(), fabric_host="dgx-02") == [
        "f.fabric_host: no host that is present is called 'dgx-02'; write dgx-01"
    ]
    assert managed(fabric_host="x") == [
        "f.fabric_host: no host that is present is called 'x'; write a host of the inventory"
    ]


def ports(kind: str, *used: str, **given: Any) -> list[str]:
    """What has no port, of networks of Ethernet, or of InfiniBand where the name has an `!`."""
    networks, _none = parse_networks(
        {
            name.rstrip("!"): {"cidr": f"10.{index}.0.0/24", "kind": IB if "!" in name else ETH}
            for index, name in enumerate(used)
        },
        "n",
    )
    fabric = parse_fabric({"topology": "none" if kind == "none" else "basepod", **given})
    found = check_ports(fabric, kind, "f", "n", list(networks.values()), ())
    return [str(problem) for problem in found]


def test_what_is_declared_of_a_fabric_has_a_port() -> None:
    assert ports(IB, "management", "storage!", "rail0!", "rail7!") == []
    assert ports(ETH, "management", "storage", "rail0", "rail1", rails=2) == []
    assert ports("none", "management", "storage", "rail0") == []
    # One mistake is one line: switches and cables lack a topology, too.
    assert ports("none", "rail0!", leaf_switches=["leaf-01"]) == []
    assert ports("none", "rail0!", cabling={"source": "learned"}) == []
    (line,) = ports("none", "rail0!", "rail1!")
    assert line.startswith("f.topology: none, but GPU nodes have addresses on rail[0-1]; ")
    lost = "no port of the GPU nodes gets the addresses on"
    for line, where, remedy in (
        (*ports(IB, "rail1!", "rail2!", rails=2), "rail2", "names out of rail[0-1],storage"),
        (*ports(ETH, "rail0", "rail01"), "rail01", "names out of rail[0-7]"),
        (*ports(ETH, "storage!", "rail0"), "storage", "kind: ethernet"),
    ):
        assert line.startswith(f"n.{where}: {lost} {where}; write {remedy}, or, where the site")


def test_switches_that_no_host_would_ask() -> None:
    assert managed(switch_health=True) == managed(ETH, switch_health=False) == []
    assert managed(ETH, switch_health=True) == [
        "f.switch_health: true, but ibswinfo asks InfiniBand switches only; write false"
    ]


def test_hosts_that_manage_no_subnet() -> None:
    def warned(topology: str, kind: str, *managers: str) -> list[str]:
        return manager_warnings(parse_fabric({"topology": topology}), kind, "f", managers)

    assert warned("basepod", IB, "sm-01") == warned("basepod", ETH) == []
    assert warned("basepod", ETH, "sm-01", "sm-02") == [
        (
            "f: its rails are Ethernet, with which sm-[01-02] of subnet_managers manages no "
            "subnet; leave the group empty"
        )
    ]
    assert warned("none", "none", "sm-01")[0].startswith("f.topology: none, with which sm-01 of")


@pytest.mark.parametrize("key", ["pair_tests", "group_tests"])
def test_what_can_be_measured_between_nodes(key: str) -> None:
    on, off = {key: {"transport": "ssh"}}, {key: {"transport": "none"}}
    assert (managed(ETH, **on), managed(ETH, **off), managed(ETH, **{key: {}})) == ([], [], [])
    assert (managed(ETH, **{key: None}), managed(IB, **on), managed("none", **on)) == ([], [], [])

    def partners(described: dict[str, Any], count: int) -> list[str]:
        return [str(problem) for problem in check_partners(described, "f", count)]

    assert partners(on, 1) == [
        (
            f"f.{key}.transport: 1 node is in gpu_nodes, and two are needed to measure "
            "between nodes; "
            "write none"
        )
    ]
    assert (partners(on, 2), partners(on, 3)) == ([], [])
    assert (partners(off, 1), partners({key: {}}, 1), partners({key: None}, 1)) == ([], [], [])


def unit_problems(fabric: Fabric, **units: int) -> list[str]:
    hosts = {name: f"gpu_nodes.{name}" for name in units}
    return [str(problem) for problem in check_fabric(fabric, "f", hosts, units)]


def test_leaf_switches_of_a_superpod_are_whole_units() -> None:
    needs = "but each of 8 rails needs one in each scalable unit"
    assert unit_problems(superpod(0, 0)) == [
        f"f.leaf_switches: 0 switches, {needs}; write 8, for 1 scalable unit; {OTHER_DESIGN}"
    ]
    assert unit_problems(superpod(9, 4), a=1, b=2) == [
        f"f.leaf_switches: 9 switches, {needs}; write 16, for 2 scalable units; {OTHER_DESIGN}"
    ]
    one = superpod(1, 0)
    assert unit_problems(one, a=1) == [
        f"f.leaf_switches: 1 switch, {needs}; write 8, for 1 scalable unit; {OTHER_DESIGN}"
    ]


def test_units_that_nodes_are_in() -> None:
    # Nodes without one are not the 33rd of another unit.
    full = {f"n{number}": 1 for number in range(32)}
    missing = "missing, and the host name has no number to count it from; write its scalable unit"
    assert unit_problems(superpod(16, 8), **full, x=0, y=2) == [f"gpu_nodes.x.node_su: {missing}"]
    assert unit_problems(superpod(16, 8), x=0, **dict.fromkeys(map(str, range(40)), 0))[0] == (
        f"gpu_nodes.x.node_su: {missing}"
    )
    assert unit_problems(superpod(16, 8), a=2, b=3) == [
        (
            "gpu_nodes.b.node_su: in scalable unit 3, but 16 leaf switches make 2; "
            "write 24 leaf switches, or another unit"
        )
    ]
    more = {**full, "n32": 1, "n33": 1}
    assert unit_problems(superpod(16, 8, ufm_unit=2), **more, other=2) == [
        (
            "f: 34 nodes in scalable unit 1, but its leaf switches have ports for 32; "
            "write another node_su for 2 of them"
        )
    ]
    # UFM takes the ports of one node, in its own unit only.
    assert unit_problems(superpod(16, 8, ufm_unit=2), **full) == []
    assert unit_problems(superpod(16, 8, ufm_unit=1), **more) == [
        (
            "f: 34 nodes in scalable unit 1, but its leaf switches have ports for 31, one "
            "node's ports "
            "being UFM's; write another node_su for 3 of them"
        )
    ]
    assert unit_problems(superpod(16, 8, ufm_unit=2)) == []
    assert unit_problems(superpod(16, 8, ufm_unit=3)) == [
        "f.ufm_unit: 3, but the leaf switches make 2 scalable units; write a unit that exists"
    ]


def test_switches_of_other_topologies() -> None:
    none = {"leaf_switches": ["l"], "spine_switches": ["s1", "s2"], "core_switches": ["c"]}
    but = (
        "but the topology is none; write topology: basepod, superpod or leaf_spine, or remove them"
    )
    assert unit_problems(parse_fabric(none)) == [
        f"f.leaf_switches: 1 switch, {but}",
        f"f.spine_switches: 2 switches, {but}",
        f"f.core_switches: 1 switch, {but}",
    ]
    base = "but a BasePOD has none; remove them, or write topology: superpod"
    assert unit_problems(parse_fabric({"topology": "basepod", **none})) == [
        "f.leaf_switches: 1 switch for a BasePOD; write the names of its two",
        f"f.spine_switches: 2 switches, {base}",
        f"f.core_switches: 1 switch, {base}",
    ]
    # Who lists the cables decides how many switches there are, but some there are.
    listed = {"topology": "superpod", "cabling": {"source": "csv", "file": "/c.csv"}}
    assert unit_problems(parse_fabric({**listed, "leaf_switches": ["l"]}), a=9) == []
    assert unit_problems(parse_fabric(listed)) == [
        "f.leaf_switches: no switches; write the names of the leaf switches"
    ]


def test_each_switch_has_a_name_of_its_own() -> None:
    fabric = parse_fabric(
        {
            "topology": "superpod",
            "cabling": {"source": "csv", "file": "/c.csv"},
            "leaf_switches": ["a", "b"],
            "spine_switches": ["c", "B"],
            "core_switches": ["b", "Head"],
        }
    )
    lines = [str(one) for one in check_fabric(fabric, "f", {"head": "login_nodes.head"}, {})]
    assert lines == [
        "f.spine_switches[1]: 'B' is also the name of f.leaf_switches[1]; write another name",
        "f.core_switches[0]: 'b' is also the name of f.leaf_switches[1]; write another name",
        "f.core_switches[1]: 'Head' is also the name of login_nodes.head; write another name",
    ]


def test_only_a_computed_basepod_is_specified_for_eight_nodes() -> None:
    basepod = {"topology": "basepod", "leaf_switches": ["a", "b"]}
    (line,) = fabric_warnings(parse_fabric(basepod), "f", 9)
    assert line == (
        "f: 9 nodes in a BasePOD, which is specified for 8; 28 ports of each switch are left to "
        "join the two, 36 would not block"
    )
    csv = {"cabling": {"source": "csv", "file": "/c.csv"}}
    assert fabric_warnings(parse_fabric({**basepod, **csv}), "f", 9) == []
    assert fabric_warnings(superpod(8, 4), "f", 9) == []
    assert fabric_warnings(parse_fabric({}), "f", 9) == []
