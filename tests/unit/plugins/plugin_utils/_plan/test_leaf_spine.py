# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fabrics by rule: what each number is, was counted by hand."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.manager import VariableManager
from cable_plans import plan_data

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    LEAF_SPINE,
    NODE_LEAF,
    SPINE_CORE,
    CablePlan,
    rail_end,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._cables.files import (
    cable_line,
    fabric_files,
    read_cables,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.collect import collect
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import load_roles
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cables import (
    misfits,
    plan_cables,
    plan_devices,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.fabric import (
    check_fabric,
    parse_fabric,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.leaf_spine import (
    check_leaf_spine,
    describe,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.plan import Plan, make_plan
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.report import report

# A SuperPOD as one stands somewhere: 139 hosts, 18 trays a rack, 4 rails, 32 leaves, nine spines.
REAL = """\
cluster_fabric:
  topology: leaf_spine
  leaf_switches: ["LEAF-[01:32]"]
  spine_switches: ["SPINE-[1:9]"]
  rails: 4
  leaf_spine: {nodes_per_group: 18, trunk: 2}
"""
TRAY = """\
cluster_profiles:
  gb200_nvl72: {real_memory_mb: 800000}
"""


def real(small_files: dict[str, str]) -> dict[str, str]:
    """The small cluster with the fabric and the nodes of the real SuperPOD."""
    text = small_files["group_vars/all/cluster.yml"]
    head, _fabric, tail = text.partition("cluster_fabric:\n")
    rest = tail.splitlines(keepends=True)
    while rest and rest[0].startswith(" "):
        rest.pop(0)
    files = {**small_files, "group_vars/all/cluster.yml": head + REAL + TRAY + "".join(rest)}
    files["group_vars/gpu_nodes/node.yml"] = files["group_vars/gpu_nodes/node.yml"].replace(
        "dgx_h100", "gb200_nvl72"
    )
    files["hosts.yml"] = files["hosts.yml"].replace(
        "        dgx-01:", "        dgx-[005:139]:\n        dgx-01:"
    )
    return files


def counts(plan: CablePlan) -> dict[str, int]:
    return dict(Counter(cable.kind for cable in plan.cables))


def far(plan: CablePlan, end: str) -> str:
    """The other end of the cable that is plugged in there."""
    (cable,) = [cable for cable in plan.cables if end in (str(cable.a), str(cable.b))]
    return str(cable.b if str(cable.a) == end else cable.a)


def test_a_real_superpod_in_less_than_twenty_lines(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    assert len(REAL.splitlines()) <= 20
    plan = planned(real(small_files))
    assert plan.problems == ()
    assert plan.data is not None
    cables = plan_cables(plan.data)
    # 139 x 4; 32 leaves x 9 spines x 2.
    assert counts(cables) == {NODE_LEAF: 556, LEAF_SPINE: 576}
    assert cable_line(cables) == "cables: 556 node-leaf, 576 leaf-spine"
    assert list(misfits(cables)) == []
    # Seven full racks and 13 trays of the eighth; each spine has 32 x 2 of its 64 ports in use.
    below = Counter(cable.b.host for cable in cables.cables if cable.kind == NODE_LEAF)
    assert below == {f"LEAF-{leaf:02d}": 18 if leaf <= 28 else 13 for leaf in range(1, 33)}
    above = Counter(cable.b.host for cable in cables.cables if cable.kind == LEAF_SPINE)
    assert above == {f"SPINE-{spine}": 64 for spine in range(1, 10)}
    # Rack 2 begins with node 19, whose rail 2 is on the third of four leaves; 139 is the 13th of 8.
    assert far(cables, "dgx-019/rail2") == "LEAF-07/1"
    assert far(cables, "dgx-139/rail3") == "LEAF-32/13"
    # 18 cables up, from the upper half on: two to each spine, side by side.
    assert [far(cables, f"LEAF-01/{port}") for port in (33, 34, 35, 50)] == [
        "SPINE-1/1",
        "SPINE-1/2",
        "SPINE-2/1",
        "SPINE-9/2",
    ]
    assert far(cables, "LEAF-32/33") == "SPINE-1/63"
    leaf = cables.switches["LEAF-07"]
    assert (leaf.unit, leaf.rail) == (2, 2)
    assert report(plan.data)[-2:] == [
        "fabric leaf_spine: 32 leaf and 9 spine switches, 4 rails",
        ("fabric: 8 groups of 18 nodes; each leaf switch has 18 ports down and 18 up (1:1)"),
    ]
    files = fabric_files(cables, plan.data)
    assert "SwitchName=su8 Nodes=dgx-[127-139]\n" in files["topology.conf"]
    assert "SwitchName=core Switches=su[1-8]\n" in files["topology.conf"]
    for name in ("cables.csv", "ufm.csv"):
        again, problems = read_cables(plan_devices(plan.data), files[name].encode(), name)
        assert problems == []
        assert again is not None
        assert set(again.cables) == set(cables.cables)


def rule(nodes: int | list[int], tiers: tuple[int, ...], **fabric: Any) -> dict[str, Any]:
    return plan_data(nodes, tiers, topology="leaf_spine", **fabric)


def test_a_superpod_is_a_case_of_the_rule() -> None:
    by_rule = plan_cables(rule(127, (32, 16), leaf_spine={"nodes_per_group": 32, "trunk": 2}))
    design = plan_cables(plan_data(127, (32, 16)))
    assert by_rule.cables == design.cables
    assert by_rule.switches == design.switches


def test_sixteen_machines_on_ethernet(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "roce_16"
    shutil.copytree(root / "inventories" / "roce_16", folder)
    file = folder / "group_vars" / "all" / "cluster.yml"
    text = file.read_text(encoding="utf-8")
    old = "  topology: basepod\n  leaf_switches: [leaf-01, leaf-02]\n"
    assert old in text
    new = (
        '  topology: leaf_spine\n  leaf_switches: ["leaf-[01:04]"]\n'
        '  spine_switches: ["spine-[01:02]"]\n'
        "  leaf_spine: {nodes_per_group: 16, rails_per_leaf: 2, trunk: 16}\n"
    )
    file.write_text(text.replace(old, new), encoding="utf-8")
    roles, loader = load_roles(str(root)), DataLoader()
    loader.set_basedir(str(tmp_path))
    inventory = InventoryManager(loader=loader, sources=[str(folder)])
    manager = VariableManager(loader=loader, inventory=inventory)
    plan = make_plan(collect(loader, inventory, manager, roles, str(root)), roles)
    assert plan.problems == ()
    assert plan.data is not None
    assert plan.data["cluster"]["fabric_kind"] == "ethernet"
    cables = plan_cables(plan.data)
    # 16 x 8; 4 leaves x 2 spines x 16: each leaf has 32 ports down and 32 up.
    assert counts(cables) == {NODE_LEAF: 128, LEAF_SPINE: 128}
    # Rails 4 and 5 are on the third leaf, two ports for each node.
    assert far(cables, "hgx-03/rail5") == "leaf-03/6"
    assert far(cables, "hgx-16/rail7") == "leaf-04/32"
    # Ports 65 to 128 are the upper half.
    assert far(cables, "leaf-03/65") == "spine-01/33"
    assert far(cables, "leaf-04/96") == "spine-02/64"
    assert cables.switches["leaf-03"].rail is None


@pytest.mark.parametrize(
    ("given", "leaves", "places"),
    [
        # One leaf a rail, two rails a leaf, every fourth rail, and all rails of a rack.
        ({}, 8, {0: "leaf-009/3", 5: "leaf-014/3", 7: "leaf-016/3"}),
        ({"rails_per_leaf": 2}, 4, {0: "leaf-005/5", 5: "leaf-007/6", 7: "leaf-008/6"}),
        ({"rails_per_leaf": 8}, 1, {0: "leaf-002/17", 5: "leaf-002/22", 7: "leaf-002/24"}),
    ],
)
def test_rails_of_a_leaf(given: dict[str, int], leaves: int, places: dict[int, str]) -> None:
    described = {"nodes_per_group": 4, "trunk": 4, **given}
    plan = plan_cables(rule(8, (2 * leaves, 2), leaf_spine=described))
    ends = {rail: str(plan.by_end()[rail_end("dgx-0007", rail)].b) for rail in places}
    assert ends == places
    assert counts(plan) == {NODE_LEAF: 64, LEAF_SPINE: 2 * leaves * 2 * 4}
    assert list(misfits(plan)) == []


def test_every_fourth_rail_on_a_leaf() -> None:
    described = {"nodes_per_group": 4, "rails_per_leaf": 2}
    plan = plan_cables(rule(4, (4, 1), leaf_spine=described, rail_groups="even_odd"))
    on = {rail: str(plan.by_end()[rail_end("dgx-0001", rail)].b) for rail in (0, 1, 4, 5)}
    assert on == {0: "leaf-001/1", 1: "leaf-002/1", 4: "leaf-001/2", 5: "leaf-002/2"}


def islands(**more: Any) -> dict[str, Any]:
    described = {
        "nodes_per_group": 2,
        "core_planes": 2,
        "islands": [{"groups": 2, "spines": 2, "core_trunk": 2}, {"groups": 1, "spines": 2}],
    }
    return rule(6, (6, 4, 2), rails=2, radix=8, leaf_spine={**described, **more})


def test_islands_and_their_oversubscription() -> None:
    plan = plan_cables(islands())
    assert list(misfits(plan)) == []
    # 4 leaves x 2 spines and 2 x 2; two cables up at each of two spines and one at the others.
    assert counts(plan) == {NODE_LEAF: 12, LEAF_SPINE: 12, SPINE_CORE: 6}
    pairs = Counter(
        (cable.a.host, cable.b.host) for cable in plan.cables if cable.kind == SPINE_CORE
    )
    assert pairs == {
        ("spine-001", "core-001"): 2,
        ("spine-002", "core-002"): 2,
        ("spine-003", "core-001"): 1,
        ("spine-004", "core-002"): 1,
    }
    # Leaves 5 and 6 are the second island's; the ports of a spine to the core begin at 5.
    assert far(plan, "leaf-006/6") == "spine-004/2"
    assert [far(plan, f"spine-001/{port}") for port in (5, 6)] == ["core-001/1", "core-001/2"]
    assert far(plan, "spine-003/5") == "core-001/3"
    assert describe(parse_fabric(islands()["cluster"]["fabric"])) == [
        (
            "island 1: 2 groups of 2 nodes; each leaf switch has 2 ports down and 2 up (1:1), "
            "each spine switch 4 ports down and 2 up (2:1)"
        ),
        (
            "island 2: 1 group of 2 nodes; each leaf switch has 2 ports down and 2 up (1:1), "
            "each spine switch 2 ports down and 1 up (2:1)"
        ),
    ]


@pytest.mark.parametrize(
    ("described", "first"),
    [
        ({"nodes_per_group": 18, "trunk": 4}, 33),
        # 40 ports down leave 24, of which the last 16 go up.
        ({"nodes_per_group": 40, "trunk": 4}, 49),
        ({"nodes_per_group": 18, "trunk": 4, "first_uplink": 19}, 19),
    ],
)
def test_where_the_uplinks_begin(described: dict[str, int], first: int) -> None:
    plan = plan_cables(rule(3, (8, 4), leaf_spine=described))
    ports = [cable.a.port for cable in plan.cables if cable.a.host == "leaf-001"]
    assert ports == list(range(first, first + 16))


def test_one_leaf_needs_no_spine() -> None:
    data = rule(4, (1,), leaf_spine={"nodes_per_group": 8, "rails_per_leaf": 8})
    fabric = parse_fabric(data["cluster"]["fabric"])
    assert list(check_leaf_spine(fabric, "f", {"a": "a"}, {"a": 1})) == []
    assert counts(plan_cables(data)) == {NODE_LEAF: 32}
    assert describe(fabric) == ["fabric: 1 group of 8 nodes; each leaf switch has 64 ports down"]


def test_a_rule_without_leaf_switches() -> None:
    fabric = {"topology": "leaf_spine", "leaf_spine": {"nodes_per_group": 8, "trunk": 1}}
    (problem,) = check_leaf_spine(parse_fabric({**fabric, "rails": 4}), "f", {}, {})
    assert str(problem).startswith("f.leaf_switches: 0 switches, but each group of 8 nodes")
    assert "write 4, for 1 group, or" in str(problem)


def test_a_list_of_cables_needs_no_rule() -> None:
    fabric = {"topology": "leaf_spine", "cabling": {"source": "csv", "file": "c.csv"}}
    parsed = parse_fabric({**fabric, "leaf_switches": ["LEAF-[1:3]"]})
    assert parsed.leaf_switches == ("LEAF-1", "LEAF-2", "LEAF-3")
    assert list(check_leaf_spine(parsed, "f", {}, {})) == []
    assert (parsed.grouped, describe(parsed)) == (False, [])
    # What the cables are is not known where a list has them, even if there is a rule.
    described = {"nodes_per_group": 18, "trunk": 2}
    ruled = parse_fabric({**fabric, "leaf_switches": ["LEAF-[1:8]"], "leaf_spine": described})
    assert (ruled.grouped, describe(ruled)) == (True, [])
    listed = {**fabric, "leaf_switches": ["a"], "leaf_spine": described}
    switch = plan_devices({"cluster": {"fabric": listed}, "nodes": []}).switches["a"]
    assert (switch.unit, switch.rail) == (None, None)


def any_rule(dice: random.Random) -> tuple[int, tuple[int, ...], dict[str, Any]]:
    """Nodes, switches of each tier and cluster_fabric: as often wrong as right."""
    rails = dice.choice([1, 2, 4, 8])
    described: dict[str, Any] = {
        "nodes_per_group": dice.randint(1, 20),
        "rails_per_leaf": dice.choice([each for each in (1, 2, 3, 4, 8) if each <= rails]),
        "trunk": dice.randint(1, 5),
        "core_trunk": dice.randint(1, 4),
        "core_planes": dice.choice([1, 1, 2]),
        "islands": [
            {
                "groups": dice.randint(1, 3),
                "spines": dice.randint(1, 4),
                "trunk": dice.randint(1, 3),
            }
            for _island in range(dice.choice([0, 0, 2, 3]))
        ],
    }
    if dice.random() < 0.2:
        described["first_uplink"] = dice.randint(1, 64)
    groups = sum(island["groups"] for island in described["islands"]) or dice.randint(1, 5)
    spines = sum(island["spines"] for island in described["islands"]) or dice.randint(0, 6)
    leaves = rails // described["rails_per_leaf"] * groups + (dice.random() < 0.1)
    nodes = dice.randint(1, described["nodes_per_group"] * groups)
    fabric = {"rails": rails, "radix": dice.choice([16, 36, 40, 64]), "leaf_spine": described}
    return nodes, (leaves, spines, dice.choice([0, 1, 2, 4])), fabric


def test_a_rule_that_is_not_refused_can_be_cabled() -> None:
    dice, cabled, refused = random.Random(15), 0, 0
    for _run in range(2000):
        nodes, tiers, given = any_rule(dice)
        data = rule(nodes, tiers, **given)
        fabric = parse_fabric(data["cluster"]["fabric"])
        units = {node["name"]: node["su"] for node in data["nodes"]}
        hosts = dict.fromkeys(units, "gpu_nodes.x")
        problems = list(check_fabric(fabric, "f", hosts, units))
        problems += check_leaf_spine(fabric, "f", hosts, units)
        if problems:
            refused += 1
            continue
        cabled += 1
        # plan_cables raises for two cables in a port, and for ports that no switch has.
        plan = plan_cables(data)
        reached = {next(iter(plan.switches))}
        before = 0
        while len(reached) > before:
            before = len(reached)
            for cable in plan.cables:
                if {cable.a.host, cable.b.host} & reached:
                    reached |= {cable.a.host, cable.b.host}
        assert not set(plan.switches) - reached
        assert len(plan.hcas) == counts(plan)[NODE_LEAF]
        assert all(describe(fabric))
    assert min(cabled, refused) > 200
