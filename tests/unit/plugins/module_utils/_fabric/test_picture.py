# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The picture of a real SuperPOD: its uplinks are seen, whether a rule or a list made the plan."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from cable_plans import plan_data
from fabric_texts import counted
from world import World

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric import picture
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import CablePlan
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.picture import fabric_svg
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cables import plan_cables

# 139 trays, 18 a rack, 4 rails, 32 leaves, nine spines, two cables from each leaf to each spine.
RULE = {"topology": "leaf_spine", "leaf_spine": {"nodes_per_group": 18, "trunk": 2}}


def planned(nodes: int, tiers: tuple[int, ...], listed: bool, **fabric: object) -> CablePlan:
    """The plan of a rule, or the same as a list of cables has it: no switch has a unit or rail."""
    plan = plan_cables(plan_data(nodes, tiers, **fabric))  # type: ignore[arg-type]
    hcas = {key: replace(hca, guid=None) for key, hca in plan.hcas.items()}
    switches = {
        name: replace(switch, unit=None, rail=None) if listed else switch
        for name, switch in plan.switches.items()
    }
    return replace(plan, hcas=hcas, switches=switches)


def world_of(plan: CablePlan) -> World:
    world = World.of(plan)
    world.start = world.key_of["leaf-001", -1]
    return world


def titles(svg: str) -> list[str]:
    return [title.split(":")[0] for title in re.findall(r"<title>([^<\n]*)", svg)]


@pytest.mark.parametrize("listed", [False, True], ids=["rule", "list"])
def test_a_missing_uplink_has_its_own_cell(listed: bool) -> None:
    world = world_of(planned(139, (32, 9), listed, rails=4, **RULE))
    verdict = world.judge()
    assert verdict.findings == []
    svg = fabric_svg(verdict)
    ET.fromstring(svg)
    # The legend, 139 x 4 rails, 32 x 9 trunks and nine spines; five racks' places are empty.
    assert counted(svg)["pass"] == 1 + 556 + 288 + 9
    assert [f">unit {rack}<" in svg for rack in range(10)] == [False, *[True] * 8, False]
    # A spine is in one column, though the last rack has 13 nodes.
    columns = re.findall(r'<rect class="pass" x="(\d+)"[^>]*><title>leaf-\d+ to spine-009', svg)
    assert (len(columns), len(set(columns))) == (32, 1)
    gone = [cable for cable in verdict.wiring.plan.cables if cable.a.host == "leaf-030"][-1]
    assert gone.b.host == "spine-009"
    world.unplug(gone)
    verdict = world.judge()
    (finding,) = verdict.findings
    assert finding.cables == (gone,)
    svg = fabric_svg(verdict)
    # The pair's cell, the spine's and the legend's.
    assert counted(svg)["fail"] == 3
    assert "leaf-030 to spine-009: 2 cables" in svg


def test_the_legend_says_what_the_fabric_was_compared_with() -> None:
    verdict = world_of(planned(2, (2, 1), True, rails=1, **RULE)).judge()
    assert ">as planned</text>" in fabric_svg(verdict)
    svg = fabric_svg(verdict, "x", "as most of it is cabled")
    assert ">as most of it is cabled</text>" in svg
    assert "planned<" not in svg


@pytest.mark.parametrize("listed", [False, True], ids=["rule", "list"])
def test_a_large_fabric_has_a_row_for_each_rack(
    monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    monkeypatch.setattr(picture, "_NODES_ONE_BY_ONE", 100)
    svg = fabric_svg(world_of(planned(139, (32, 9), listed, rails=4, **RULE)).judge())
    # 8 racks x 4 rails, downward and upward.
    assert counted(svg)["pass"] == 1 + 32 + 32 + 9
    assert sum(title.endswith("upward") for title in titles(svg)) == 32


@pytest.mark.parametrize("listed", [False, True], ids=["rule", "list"])
def test_leaves_of_several_rails_show_their_uplinks_once(listed: bool) -> None:
    rule = {"nodes_per_group": 4, "rails_per_leaf": 2, "trunk": 2}
    plan = planned(8, (8, 2), listed, topology="leaf_spine", leaf_spine=rule)
    svg = fabric_svg(world_of(plan).judge())
    assert counted(svg)["pass"] == 1 + 64 + 8 * 2 + 2


def test_a_leaf_that_shares_its_rail_has_a_row_of_its_uplinks() -> None:
    """In a list, rail 0 of two nodes may be on two leaves."""
    plan = planned(
        2, (2, 1), True, rails=1, topology="leaf_spine", leaf_spine={"nodes_per_group": 1}
    )
    third = [
        replace(cable, b=replace(cable.b, host="leaf-001", port=9))
        for cable in plan.cables
        if str(cable.a) == "dgx-0002/rail0"
    ]
    others = [cable for cable in plan.cables if str(cable.a) != "dgx-0002/rail0"]
    svg = fabric_svg(world_of(replace(plan, cables=(*others, *third))).judge())
    assert "leaf-001 to spine-001" in titles(svg)
    assert "leaf-002 to spine-001" in titles(svg)
