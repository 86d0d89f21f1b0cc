# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a technician finds a port, and what a finding costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from library import build
from small_fabric import A, Small

from ansible_collections.baremetal.dgx.plugins.module_utils._core.question import Question
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric import findings, thresholds
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.findings import (
    COSTS,
    LEVELS,
    Cost,
    Finding,
    at,
    by_cost,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    End,
    ports_per_cage,
    rail_end,
    switch_end,
)


@pytest.mark.parametrize(
    ("radix", "port", "text"),
    [
        (64, 17, "l0 port 17 (1/9/1)"),
        (64, 18, "l0 port 18 (1/9/2)"),
        (64, 64, "l0 port 64 (1/32/2)"),
        # The part that works for SHARP hangs on its own port, which is in no cage.
        (64, 65, "l0 port 65"),
        # Where each port has a cage, its number says enough.
        (63, 17, "l0 port 17"),
        (40, 40, "l0 port 40"),
    ],
)
def test_a_port_of_a_switch(radix: int, port: int, text: str) -> None:
    small = Small()
    switches = {**small.plan.switches, "l0": replace(small.plan.switches["l0"], radix=radix)}
    plan = replace(small.plan, switches=switches)
    assert at(plan, switch_end("l0", port)) == text
    assert ports_per_cage(radix) == (2 if radix == 64 else 1)
    assert at(plan, switch_end("x", 17)) == "x port 17"


@pytest.mark.parametrize(
    ("cage", "port", "text"),
    [
        (None, None, "n1 rail 0"),
        ("OSFP1", None, "n1 rail 0 (OSFP1)"),
        ("OSFP1", 2, "n1 rail 0 (OSFP1 P2)"),
    ],
)
def test_a_rail(cage: str | None, port: int | None, text: str) -> None:
    small = Small()
    hcas = {**small.plan.hcas, A: replace(small.plan.hcas[A], cage=cage, cage_port=port)}
    plan = replace(small.plan, hcas=hcas)
    assert at(plan, rail_end("n1", 0)) == text
    assert at(plan, End("x", 3, 1)) == "x rail 3"


def test_every_kind_has_a_cost_with_its_reason() -> None:
    named = {
        value
        for name, value in vars(findings).items()
        if name.isupper() and name[0] != "_" and isinstance(value, str)
    }
    assert named - {findings.FAIL, *LEVELS} == set(COSTS)
    questions = [one for one in vars(thresholds).values() if isinstance(one, Question)]
    asked = {question.check.partition(".")[2] for question in questions}
    assert asked - {"cable"} <= set(COSTS)
    assert all(cost.severity in LEVELS and len(cost.why) > 20 for cost in COSTS.values())


def test_what_costs_most_comes_first_then_what_concerns_more() -> None:
    small = Small()
    one, two, *_rest = small.plan.cables

    def of(kind: str, *cables, **more) -> Finding:
        return Finding(kind, kind, "", "", tuple(cables), **more)

    crossed = of(findings.SWAPPED, one, two, graded=Cost(findings.HARMLESS, "none"))
    found = [
        of(findings.RENAMED), crossed, of(findings.WIDTH, one), of(findings.DARK, one),
        of(findings.DARK, one, two), of(findings.SWAPPED, one, two),
    ]  # fmt: skip
    order = [found[5], found[4], found[3], found[2], crossed, found[0]]
    assert by_cost(found) == order


def severities(case) -> list[tuple[str, str]]:
    return [(one.kind, one.cost.severity) for one in case.world.judge().findings]


@pytest.mark.parametrize(
    ("fault", "severity"),
    [
        ("rails_of_a_node_swapped", "critical"),
        # Two nodes have each other's port of one leaf: each rail is at its leaf.
        ("nodes_on_a_leaf_swapped", "harmless"),
        ("rails_of_two_nodes_swapped_across", "critical"),
        # At one leaf: both cables still lead to it.
        ("node_cable_swapped_with_uplink", "harmless"),
        ("three_rails_in_turn", "critical"),
        # Each leaf has as many cables to each spine as before.
        ("uplinks_of_a_leaf_swapped", "harmless"),
        ("rail_in_the_storage_adapter_of_its_node", "major"),
        ("unplanned_host_in_the_port_of_a_rail", "major"),
        ("rail_missing", "major"),
        ("node_absent", "critical"),
        ("leaf_absent", "critical"),
        ("rail_renamed", "harmless"),
    ],
)
def test_what_a_fault_costs(fault: str, severity: str) -> None:
    assert severities(build("superpod-32-of-64", (fault,), 3))[0][1] == severity


@pytest.mark.parametrize(("other", "severity"), [("same spine", "harmless"), ("none", "minor")])
def test_crossed_uplinks_cost_what_their_spines_lose(other: str, severity: str) -> None:
    case = build("superpod-32-of-64", ("old_totals",), 1)
    ups = sorted(c for c in case.world.plan.cables if c.a.is_switch)
    one = ups[0]
    two = next(
        c
        for c in ups
        if c.a.host != one.a.host and (c.b.host == one.b.host) == (other == "same spine")
    )
    for cable in (one, two):
        case.world.unplug(cable)
    case.world.plug(one.a, two.b)
    case.world.plug(two.a, one.b)
    assert severities(case) == [("swapped", severity)]


def test_a_rail_swap_stands_before_twenty_names() -> None:
    names = (
        "node_renamed",
        "leaf_with_a_foreign_name",
        "uplinks_of_a_leaf_swapped",
        "uplink_dark",
        "standby_missing",
        "rails_of_a_node_swapped",
    )
    case = build("superpod-32-of-64", names, 2)
    reported = severities(case)
    assert reported[0] == ("swapped", "critical")
    assert [LEVELS.index(severity) for _kind, severity in reported] == sorted(
        LEVELS.index(severity) for _kind, severity in reported
    )
    assert {kind for kind, _severity in reported[-2:]} == {"renamed", "description"}


# bandwidth


def carried(verdict) -> dict[str, tuple[float, float]]:
    return {one.of: (one.planned_gbps, one.found_gbps) for one in verdict.bandwidths}


def test_lost_bandwidth_in_numbers() -> None:
    healthy = carried(build("superpod-32-of-64", ("old_totals",), 1).world.judge())
    # 16 leaves of 16 nodes of 400 Gb/s; 32 nodes on each of 8 rails.
    assert healthy == {
        "bisection": (51200, 51200), **{f"rail {rail}": (12800, 12800) for rail in range(8)},
    }  # fmt: skip
    case = build("superpod-32-of-64", ("leaf_absent",), 3)
    verdict = case.world.judge()
    (leaf,) = (one.subject[7:] for one in verdict.findings)
    rail = case.world.plan.switches[leaf].rail
    lost = {of for of, (planned, found) in carried(verdict).items() if found < planned}
    assert lost == {"bisection", f"rail {rail}"}
    assert carried(verdict)[f"rail {rail}"] == (12800, 6400)
    assert carried(verdict)["bisection"] == (51200, 48000)
    assert f"rail {rail}: 6400 of 12800 Gb/s are left, 50 % are lost" in verdict.information


def test_a_rail_at_the_leaf_of_another_carries_nothing_of_its_rail() -> None:
    verdict = build("superpod-32-of-64", ("rails_of_a_node_swapped",), 3).world.judge()
    short = [of for of, (planned, found) in carried(verdict).items() if found == planned - 400]
    assert len(short) == 2
    assert carried(verdict)["bisection"] == (51200, 51200)


def test_of_a_doubtful_sweep_no_bandwidth_is_told() -> None:
    case = build("superpod-32-of-64", ("old_totals",), 1)
    case.world.errors = ["ibwarn: something new"]
    assert case.world.judge().bandwidths == []
    case = build("superpod-32-of-64", ("old_totals",), 1)
    case.world.share = 0.6
    assert case.world.judge().bandwidths == []


def test_crossed_uplinks_reach_the_spine_all_the_same() -> None:
    case = build("superpod-32-of-64", ("uplinks_of_two_leaves_swapped",), 3)
    assert not [line for line in case.world.judge().information if "uplinks" in line]
    assert carried(case.world.judge())["bisection"] == (51200, 51200)
