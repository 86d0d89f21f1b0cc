# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from cable_plans import plan_data

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    LEAF_LEAF,
    LEAF_SPINE,
    NODE_LEAF,
    SPINE_CORE,
    CablePlan,
    rail_end,
    switch_end,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cables import (
    misfits,
    plan_cables,
    plan_devices,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.fabric import (
    parse_fabric,
    upper_tiers,
)


def superpod(nodes: int, units: int, **fabric: Any) -> CablePlan:
    rails = fabric.get("rails", 8)
    spare = parse_fabric({"topology": "superpod", **fabric})
    spines, cores = upper_tiers(spare, units)
    tiers = (units * rails, spines, cores) if cores else (units * rails, spines)
    return plan_cables(plan_data(nodes, tiers, **fabric))


def kinds(plan: CablePlan) -> dict[str, int]:
    return dict(Counter(cable.kind for cable in plan.cables))


def pairs(plan: CablePlan, kind: str) -> Counter[tuple[str, str]]:
    return Counter((cable.a.host, cable.b.host) for cable in plan.cables if cable.kind == kind)


# DGX SuperPOD H100: units, nodes, compute and UFM cables, leaf-spine cables, cables of each pair.
@pytest.mark.parametrize(
    ("units", "nodes", "compute_and_ufm", "leaf_spine", "of_a_pair"),
    [(1, 31, 252, 256, 8), (2, 63, 508, 512, 4), (3, 95, 764, 768, 2), (4, 127, 1020, 1024, 2)],
)
def test_published_table_with_ufm(
    units: int, nodes: int, compute_and_ufm: int, leaf_spine: int, of_a_pair: int
) -> None:
    plan = superpod(nodes, units, ufm_unit=units)
    assert list(misfits(plan)) == []
    assert kinds(plan)[NODE_LEAF] + len(plan.reserved) == compute_and_ufm
    assert kinds(plan)[LEAF_SPINE] == leaf_spine
    assert set(pairs(plan, LEAF_SPINE).values()) == {of_a_pair}
    assert len(pairs(plan, LEAF_SPINE)) == leaf_spine // of_a_pair
    assert [str(end) for end in plan.reserved] == [
        f"leaf-{(units - 1) * 8 + rail:03d}/32" for rail in range(1, 5)
    ]


# DGX SuperPOD B200: units, nodes, node-leaf, leaf-spine, spine-core.
@pytest.mark.parametrize(
    ("units", "nodes", "node_leaf", "leaf_spine", "spine_core"),
    [
        (2, 64, 512, 512, 0),
        (4, 128, 1024, 1024, 0),
        (8, 256, 2048, 2048, 0),
        (16, 512, 4096, 4096, 4096),
        (32, 1024, 8192, 8192, 8192),
        (64, 2048, 16384, 16384, 16384),
    ],
)
def test_published_table_without_ufm(
    units: int, nodes: int, node_leaf: int, leaf_spine: int, spine_core: int
) -> None:
    plan = superpod(nodes, units)
    assert list(misfits(plan)) == []
    counted = kinds(plan)
    assert (counted[NODE_LEAF], counted[LEAF_SPINE]) == (node_leaf, leaf_spine)
    assert counted.get(SPINE_CORE, 0) == spine_core
    assert plan.reserved == ()


@pytest.mark.parametrize("units", [16, 32, 64])
def test_three_tiers_keep_a_rail_below_the_core(units: int) -> None:
    plan = superpod(units * 32, units)
    spine_of: dict[str, set[str]] = {}
    for leaf, spine in pairs(plan, LEAF_SPINE):
        spine_of.setdefault(leaf, set()).add(spine)
    group = min(units, 32)
    for rail in range(8):
        leaves = [f"leaf-{unit * 8 + rail + 1:03d}" for unit in range(units)]
        blocks = [leaves[start : start + group] for start in range(0, units, group)]
        for block in blocks:
            assert len({frozenset(spine_of[leaf]) for leaf in block}) == 1
            assert len(spine_of[block[0]]) == group
    cores_of: dict[str, set[str]] = {}
    groups_of: Counter[str] = Counter()
    for spine, core in pairs(plan, SPINE_CORE):
        cores_of.setdefault(spine, set()).add(core)
        groups_of[core] += 1
    # Each core switch sees one spine of every group, so that any group reaches any other.
    assert set(groups_of.values()) == {8 * units // group}
    assert set().union(*cores_of.values()) == {
        name for name, switch in plan.switches.items() if switch.tier == "core"
    }


@pytest.mark.parametrize("units", range(1, 12))
@pytest.mark.parametrize("radix", [64, 40, 144])
def test_no_port_has_two_cables(units: int, radix: int) -> None:
    nodes = units * (radix // 2) - 3
    plan = superpod(nodes, units, radix=radix)
    assert list(misfits(plan)) == []
    ends = [end for cable in plan.cables for end in (cable.a, cable.b)]
    assert len(ends) == len(set(ends))
    spread = pairs(plan, LEAF_SPINE).values()
    assert max(spread) - min(spread) <= 1


# DGX SuperPOD B300 with XDR, Table 3: units, leaf-spine cables, cables of each pair.
@pytest.mark.parametrize(
    ("units", "leaf_spine", "of_a_pair"),
    [(1, 576, 18), (2, 1152, 9), (4, 2304, 4), (8, 4608, 2), (18, 10368, 1)],
)
def test_published_table_of_xdr(units: int, leaf_spine: int, of_a_pair: int) -> None:
    plan = superpod(units * 72, units, radix=144)
    assert list(misfits(plan)) == []
    assert kinds(plan) == {NODE_LEAF: units * 72 * 8, LEAF_SPINE: leaf_spine}
    assert set(pairs(plan, LEAF_SPINE).values()) == {of_a_pair}


@pytest.mark.parametrize("rails", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("units", [1, 2, 3, 4])
def test_any_number_of_rails(rails: int, units: int) -> None:
    plan = superpod(units * 32, units, rails=rails)
    assert list(misfits(plan)) == []
    assert kinds(plan)[NODE_LEAF] == units * 32 * rails


def test_planes_that_do_not_divide_are_refused() -> None:
    fabric = {"topology": "superpod", "radix": 24, "rails": 8}
    spines, cores = upper_tiers(parse_fabric(fabric), 16)
    assert cores
    with pytest.raises(ValueError, match="16 scalable units do not divide into planes"):
        plan_cables(plan_data(12, (128, spines, cores), radix=24))


def test_each_rail_of_a_unit_is_on_one_leaf() -> None:
    plan = superpod(127, 4, ufm_unit=4)
    by_end = plan.by_end()
    for number in (1, 32, 33, 96, 97, 127):
        unit, place = (number - 1) // 32, (number - 1) % 32 + 1
        for rail in range(8):
            leaf = f"leaf-{unit * 8 + rail + 1:03d}"
            cable = by_end[rail_end(f"dgx-{number:04d}", rail)]
            assert cable.b == switch_end(leaf, place)
            assert (plan.switches[leaf].unit, plan.switches[leaf].rail) == (unit + 1, rail)


def test_uplinks_take_the_upper_half_in_order() -> None:
    plan = superpod(127, 4)
    first = [cable for cable in plan.cables if cable.a.host == "leaf-001"]
    assert [cable.a.port for cable in first] == list(range(33, 65))
    assert [str(cable.b) for cable in first[:4]] == [
        "spine-001/1",
        "spine-001/2",
        "spine-002/1",
        "spine-002/2",
    ]


def test_uplinks_beyond_an_even_share_go_round() -> None:
    """20 cables up to 16 spines: the four second ones begin where those of the last leaf end."""
    plan = superpod(3, 3, radix=40)
    doubled = {pair for pair, count in pairs(plan, LEAF_SPINE).items() if count == 2}
    assert doubled == {
        (f"leaf-{leaf + 1:03d}", f"spine-{(leaf * 4 + step) % 16 + 1:03d}")
        for leaf in range(24)
        for step in range(4)
    }


def test_part_of_a_row_has_the_cables_of_the_whole_row() -> None:
    """Three units are a part of four: with the fourth, no cable of the three moves."""
    three, four = superpod(96, 3), superpod(128, 4)
    assert set(three.cables) < set(four.cables)
    assert kinds(three)[LEAF_SPINE] == 24 * 32
    # Each of the 16 spines has 48 of its 64 ports in use.
    assert set(
        Counter(cable.b.host for cable in three.cables if cable.kind == LEAF_SPINE).values()
    ) == {48}
    assert set(superpod(9 * 32, 9).cables) < set(superpod(16 * 32, 16).cables)


def test_a_node_that_comes_or_goes_moves_no_cable() -> None:
    all_nodes = set(plan_cables(plan_data(8)).cables)
    fewer = set(plan_cables(plan_data([1, 2, 4, 5, 6, 8])).cables)
    assert fewer < all_nodes
    tiers = (8, 4)
    whole = set(plan_cables(plan_data(32, tiers)).cables)
    assert set(plan_cables(plan_data([1, 7, 31], tiers)).cables) < whole


@pytest.mark.parametrize(
    ("nodes", "joining", "used"), [(2, 8, 8), (4, 16, 16), (8, 32, 32), (12, 16, 48), (15, 4, 60)]
)
def test_basepod(nodes: int, joining: int, used: int) -> None:
    plan = plan_cables(plan_data(nodes))
    assert kinds(plan) == {NODE_LEAF: nodes * 8, LEAF_LEAF: joining}
    assert list(misfits(plan)) == []
    assert Counter(cable.b.host for cable in plan.cables if cable.kind == NODE_LEAF) == {
        "leaf-001": used,
        "leaf-002": used,
    }


@pytest.mark.parametrize(
    ("groups", "first"), [("halves", (0, 1, 2, 3)), ("even_odd", (0, 2, 4, 6))]
)
def test_basepod_rails(groups: str, first: tuple[int, ...]) -> None:
    plan = plan_cables(plan_data(3, rail_groups=groups))
    for number in (1, 2, 3):
        ends = [
            plan.by_end()[rail_end(f"dgx-{number:04d}", rail)].other(
                rail_end(f"dgx-{number:04d}", rail)
            )
            for rail in range(8)
        ]
        on_first = [rail for rail, end in enumerate(ends) if end.host == "leaf-001"]
        assert tuple(on_first) == first
        assert [ends[rail].port for rail in first] == list(range(number * 4 - 3, number * 4 + 1))
    assert (plan.switches["leaf-001"].unit, plan.switches["leaf-001"].rail) == (None, None)


def test_ports_for_what_is_not_planned() -> None:
    """The cables between the switches of a BasePOD go round them; nothing else can."""
    plan = plan_cables(plan_data(8, reserved_ports={"leaf-001": [33], "leaf-002": [64]}))
    assert [str(end) for end in plan.reserved] == ["leaf-001/33", "leaf-002/64"]
    assert kinds(plan) == {NODE_LEAF: 64, LEAF_LEAF: 30}
    assert not {33, 64} & {cable.a.port for cable in plan.cables if cable.kind == LEAF_LEAF}
    plan = plan_cables(plan_data(31, (8, 4), ufm_unit=1, reserved_ports={"leaf-008": [32]}))
    assert [str(end) for end in plan.reserved] == [
        *(f"leaf-00{leaf}/32" for leaf in (1, 2, 3, 4)),
        "leaf-008/32",
    ]
    needed = "leaf-001/40 is reserved, but the plan needs it for spine-001/8"
    with pytest.raises(ValueError, match=needed):
        plan_cables(plan_data(31, (8, 4), reserved_ports={"leaf-001": [40]}))


def test_devices() -> None:
    data = plan_data(1, switch_guids={"leaf-001": "FC6A:1C03:0100:0000"})
    plan = plan_devices(data)
    assert plan.cables == ()
    hca = plan.hcas["dgx-0001", 3]
    assert (hca.guid, hca.pci, hca.cage, hca.cage_port) == (
        "946dae0300a1b2c3",
        "0000:13:00.0",
        "OSFP1",
        2,
    )
    assert hca.devices == ("mlx5_rail3", "mlx5_3")
    assert plan.hcas["dgx-0001", 2].guid is None
    assert plan.switches["leaf-001"].guid == "fc6a1c0301000000"
    assert plan.switches["leaf-002"].guid is None


def test_the_slower_of_adapter_and_fabric_is_the_rate() -> None:
    data = plan_data(1)
    data["profiles"]["dgx"]["link_rate_gbps"] = 200
    plan = plan_cables(data)
    assert {(cable.kind, cable.rate_gbps) for cable in plan.cables} == {
        (NODE_LEAF, 200),
        (LEAF_LEAF, 400),
    }
    assert plan.hcas["dgx-0001", 0].rate_gbps == 200
    data["profiles"]["dgx"]["link_rate_gbps"] = 800
    assert {cable.rate_gbps for cable in plan_cables(data).cables} == {400}
    # Adapters whose rate the profile leaves open.
    data["profiles"]["dgx"]["link_rate_gbps"] = None
    assert {cable.rate_gbps for cable in plan_cables(data).cables} == {400}


def test_absent_and_other_nodes_have_no_cables() -> None:
    data = plan_data(3)
    data["nodes"][1]["state"] = "absent"
    data["nodes"].append({"name": "head-01", "state": "present", "groups": ["login_nodes"]})
    plan = plan_cables(data)
    assert sorted({node for node, _rail in plan.hcas}) == ["dgx-0001", "dgx-0003"]


@pytest.mark.parametrize(("nodes", "trunk"), [(8, 28), (12, 16)])
def test_a_node_in_repair_keeps_its_ports(nodes: int, trunk: int) -> None:
    """No cable is planned at another port, and nothing at those that were is a finding."""
    whole, data = plan_cables(plan_data(nodes)), plan_data(nodes)
    data["nodes"][4]["state"] = "absent"
    plan = plan_cables(data)
    assert kinds(plan)[LEAF_LEAF] == trunk
    assert set(plan.cables) < set(whole.cables)
    left = set(whole.cables) - set(plan.cables)
    ends = {end for cable in left for end in (cable.a, cable.b) if end.is_switch}
    assert plan.reserved == tuple(sorted(ends))
    # A machine that took its place has the ports.
    data["nodes"].append({**data["nodes"][4], "name": "dgx-0099", "state": "present"})
    assert plan_cables(data).reserved == ()
    assert kinds(plan_cables(data)) == kinds(whole)


def test_places_of_absent_nodes_that_do_not_exist() -> None:
    data = plan_data(3)
    for number, place in ((1, None), (2, 16)):
        data["nodes"][number] |= {"state": "absent", "leaf_place": place}
    assert plan_cables(data) == plan_cables(plan_data(1))
    data = plan_data(4, (8, 4))
    for number, unit, place in ((1, None, 2), (2, 2, 1), (3, 1, 33)):
        data["nodes"][number] |= {"state": "absent", "su": unit, "leaf_place": place}
    assert plan_cables(data) == plan_cables(plan_data(1, (8, 4)))


@pytest.mark.parametrize("tiers", [(), (8, 4)])
def test_a_node_without_rails_needs_neither_unit_nor_place(tiers: tuple[int, ...]) -> None:
    data = plan_data(2, tiers)
    data["profiles"]["bare"] = {"link_rate_gbps": None, "rails": []}
    data["nodes"][1] |= {"profile": "bare", "su": None, "leaf_place": None, "hca_guids": {}}
    assert plan_cables(data) == plan_cables(plan_data(1, tiers))


def test_no_fabric_no_cables() -> None:
    plan = plan_cables({"cluster": {"fabric": {"topology": "none"}}, "nodes": [], "profiles": {}})
    assert plan == CablePlan({}, {}, ())


def test_what_no_cabling_can_have_is_refused() -> None:
    data = plan_data(2)
    data["nodes"][1]["leaf_place"] = 1
    with pytest.raises(ValueError, match="leaf-001/1 has two cables"):
        plan_cables(data)
    data["nodes"][1]["leaf_place"] = 17
    with pytest.raises(ValueError, match="leaf-001/65 is beyond port 64"):
        plan_cables(data)


def test_the_plan_is_the_same_each_time() -> None:
    assert plan_cables(plan_data(95, (24, 16))) == plan_cables(plan_data(95, (24, 16)))
    # Cables of a node stand together, in the order of its rails.
    cables = plan_cables(plan_data(4)).cables
    of_nodes = [cable.a for cable in cables if cable.kind == NODE_LEAF]
    assert all(one < two for one, two in pairwise(of_nodes))


@pytest.mark.parametrize(("units", "radix", "uplinks"), [(3, 40, 20), (4, 64, 32), (5, 144, 72)])
def test_every_leaf_has_all_its_uplinks(units: int, radix: int, uplinks: int) -> None:
    plan = superpod(units, units, radix=radix)
    of_leaf = Counter(cable.a.host for cable in plan.cables if cable.kind == LEAF_SPINE)
    assert of_leaf == {f"leaf-{number:03d}": uplinks for number in range(1, units * 8 + 1)}


@pytest.mark.parametrize("units", [7, 8])
def test_units_beyond_half_a_radix_are_blocks_that_meet_at_the_core(units: int) -> None:
    """Switches of 8 ports: two blocks of 4 units, each with 4 spines a rail."""
    tiers = (units * 2, 16, 8)
    plan = plan_cables(plan_data(units * 4, tiers, rails=2, radix=8))
    assert list(misfits(plan)) == []
    spines_of: dict[tuple[int, int], set[int]] = {}
    for leaf, spine in pairs(plan, LEAF_SPINE):
        unit, rail = divmod(int(leaf[-3:]) - 1, 2)
        spines_of.setdefault((unit // 4, rail), set()).add(int(spine[-3:]) - 1)
    # By block, then rail.
    assert spines_of == {
        (block, rail): set(range((block * 2 + rail) * 4, (block * 2 + rail) * 4 + 4))
        for block in (0, 1)
        for rail in (0, 1)
    }
    # Spine j of every group goes to the cores of plane j, and to no other.
    cores = {(int(a[-3:]) - 1, int(b[-3:]) - 1) for a, b in pairs(plan, SPINE_CORE)}
    assert cores == {(spine, spine % 4 * 2 + core) for spine in range(16) for core in (0, 1)}


def test_cores_that_do_not_divide_into_planes_are_refused() -> None:
    # 6 cores are for 12 leaves, and would be those of 4 planes.
    with pytest.raises(ValueError, match="4 scalable units do not divide into planes"):
        plan_cables(plan_data(1, (12, 12, 6), rails=3, radix=8))


def test_ports_of_a_place_that_no_node_has_join_the_two_switches() -> None:
    plan = plan_cables(plan_data(list(range(2, 16))))
    joining = [cable.a.port for cable in plan.cables if cable.kind == LEAF_LEAF]
    assert joining == [64, 63, 62, 61, 4, 3, 2, 1]
    # With three rails the first switch has two of each node, and what is taken there joins nothing.
    plan = plan_cables(plan_data(30, rails=3))
    joining = [cable.a.port for cable in plan.cables if cable.kind == LEAF_LEAF]
    assert joining == [64, 63, 62, 61]
