# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which parts a flow depends on, and which of them slow flows blame: small fabrics, no noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import pytest
from pair_plans import small_plan

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    Record,
    Threshold,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    CablePlan,
    End,
    rail_end,
    switch_end,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.routes import computed_routes
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.localise import (
    Finding,
    Fleet,
    Localiser,
    Measurement,
    Verdict,
    _heaviest,
    _speaking,
    _values_of,
    weigh,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.options import make_session
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.perftest import Recipe
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.session import _outcome, judge
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.suspects import (
    CAGE,
    COST,
    Suspects,
    elements,
    parts,
)

THRESHOLDS = {400: Threshold(">=", 380.0, "Gb/s", "test")}
GOOD, SLOW = 392.0, 195.0
Rate = Callable[[End, End], "float | None"]


def every_flow(plan: CablePlan, rate: Rate, loopback: bool = True) -> list[Measurement]:
    """Each flow of each rail, alone in its round."""
    flows = []
    for rail in sorted({rail for _node, rail in plan.hcas}):
        ends = [rail_end(node, one) for node, one in sorted(plan.hcas) if one == rail]
        ways = [*permutations(ends, 2), *((end, end) for end in ends if loopback)]
        flows += ways
    return [Measurement(n, 0, a, b, rate(a, b)) for n, (a, b) in enumerate(flows)]


def localiser(plan: CablePlan, both_ways: bool = False) -> Localiser:
    return Localiser(plan, computed_routes(plan), both_ways)


def judged(plan: CablePlan, rate: Rate, loopback: bool = True) -> Verdict:
    return localiser(plan).judge(every_flow(plan, rate, loopback), THRESHOLDS)


def only(verdict: Verdict) -> Finding:
    (finding,) = verdict.findings
    return finding


ONE = rail_end("dgx-01", 0)
LEAF = small_plan(nodes=5, rails=2, units=1, spines=0)
RAILS = small_plan(nodes=5, rails=4, units=1, spines=0)


def slow_if(chosen: Callable[[End, End], bool], rate: float = SLOW) -> Rate:
    return lambda a, b: rate if chosen(a, b) else GOOD


def test_a_cable_is_told_from_its_adapter_by_the_loopback() -> None:
    cable = only(judged(LEAF, slow_if(lambda a, b: a != b and ONE in (a, b))))
    assert cable.subjects == ("cable:dgx-01/rail0--leaf-10/1",)
    assert (len(cable.flows), cable.good, cable.median_gbps) == (8, 0, SLOW)
    assert all(ONE in (flow.source, flow.target) for flow in cable.flows)
    assert (cable.legal, cable.interaction, cable.affected) == (False, False, ())
    hca = only(judged(LEAF, slow_if(lambda a, b: ONE in (a, b))))
    assert (hca.subjects[0], len(hca.flows)) == ("hca:dgx-01/rail0", 9)
    # Without it nothing tells them apart: the cable, which fails more often, comes first.
    both = only(judged(LEAF, slow_if(lambda a, b: ONE in (a, b)), loopback=False))
    assert both.subjects == ("cable:dgx-01/rail0--leaf-10/1", "hca:dgx-01/rail0")


def test_a_fault_of_one_direction_names_the_direction() -> None:
    sends = only(judged(LEAF, slow_if(lambda a, b: a == ONE != b)))
    assert sends.suspects[0].name == "cable:dgx-01/rail0--leaf-10/1 (from dgx-01/rail0)"
    receives = only(judged(LEAF, slow_if(lambda a, b: b == ONE != a)))
    assert receives.suspects[0].name == "cable:dgx-01/rail0--leaf-10/1 (from leaf-10/1)"
    adapter = only(judged(LEAF, slow_if(lambda a, b: a == ONE)))
    assert adapter.suspects[0].name == "hca:dgx-01/rail0 (sends)"
    # One that lets the other direction through is not the whole cable.
    assert (sends.good, receives.good, adapter.good) == (0, 0, 0)


def test_two_faults_are_two_findings_and_healthy_parts_none() -> None:
    two = rail_end("dgx-03", 1)
    found = judged(LEAF, slow_if(lambda a, b: a != b and bool({ONE, two} & {a, b})))
    assert {finding.subjects for finding in found.findings} == {
        ("cable:dgx-01/rail0--leaf-10/1",),
        ("cable:dgx-03/rail1--leaf-11/3",),
    }
    healthy = judged(LEAF, lambda _a, _b: GOOD)
    assert (healthy.findings, healthy.unexplained, len(healthy.counted)) == ([], [], 50)


def test_a_slow_part_above_the_threshold_is_found_and_called_legal() -> None:
    values = every_flow(LEAF, slow_if(lambda a, b: a != b and ONE in (a, b), 300.0))
    low = {400: Threshold(">=", 290.0, "Gb/s", "contract")}
    finding = only(localiser(LEAF).judge(values, low))
    assert (finding.subjects, finding.legal) == (("cable:dgx-01/rail0--leaf-10/1",), True)


def test_a_dead_part_is_one_that_passes_nothing() -> None:
    finding = only(judged(LEAF, slow_if(lambda a, b: a != b and ONE in (a, b), 0.0)))
    assert (finding.subjects, finding.median_gbps) == (("cable:dgx-01/rail0--leaf-10/1",), 0.0)
    # The fleet is of the others.
    values = every_flow(LEAF, lambda _a, _b: 0.0, loopback=False)
    nothing = localiser(LEAF).judge(values, THRESHOLDS)
    assert nothing.findings
    assert nothing.fleets[False, 400].values == 0


def test_inside_the_adapters_is_a_fleet_of_its_own() -> None:
    verdict = judged(LEAF, lambda a, b: 250.0 if a == b else GOOD)
    assert (verdict.findings, verdict.unexplained) == ([], [])
    assert (verdict.fleets[True, 400].median, verdict.fleets[False, 400].median) == (250.0, GOOD)
    assert (verdict.fleets[True, 400].values, verdict.fleets[False, 400].values) == (10, 40)


def test_two_nodes_that_are_slow_only_with_each_other_are_a_pair() -> None:
    two = {"dgx-01", "dgx-04"}
    finding = only(judged(LEAF, slow_if(lambda a, b: {a.host, b.host} == two)))
    assert finding.subjects[0] == "pair:dgx-01--dgx-04"
    assert finding.interaction
    rails = only(judged(LEAF, slow_if(lambda a, b: {a, b} == {ONE, rail_end("dgx-04", 0)})))
    assert "pair:dgx-01/rail0--dgx-04/rail0" in rails.subjects
    assert rails.interaction


def test_one_low_flow_blames_nothing_and_is_reported() -> None:
    pair = (ONE, rail_end("dgx-02", 0))
    verdict = judged(LEAF, slow_if(lambda a, b: (a, b) == pair, 340.0))
    assert not verdict.findings
    assert [(flow.source, flow.target) for flow in verdict.unexplained] == [pair]
    # What a finding explains is not reported twice.
    cable = judged(LEAF, slow_if(lambda a, b: a != b and ONE in (a, b)))
    assert cable.unexplained == []
    # What is a little low is noise.
    assert judged(LEAF, slow_if(lambda a, b: (a, b) == pair, 380.0)).unexplained == []


def test_a_value_that_is_as_likely_either_way_is_neither_slow_nor_good() -> None:
    silent = every_flow(LEAF, slow_if(lambda a, b: a != b and ONE in (a, b)))
    silent = [
        replace(flow, gbps=None) if flow.target == rail_end("dgx-05", 0) else flow
        for flow in silent
    ]
    verdict = localiser(LEAF).judge(silent, THRESHOLDS)
    finding = only(verdict)
    assert finding.subjects == ("cable:dgx-01/rail0--leaf-10/1",)
    assert (len(finding.flows), finding.good) == (7, 0)
    assert len(verdict.unmeasured) == 5
    assert len(verdict.counted) == 45
    assert not {flow.target for flow in verdict.counted} & {rail_end("dgx-05", 0)}


def test_good_flows_through_a_blamed_part_are_counted() -> None:
    spared = [(ONE, rail_end("dgx-02", 0))]
    finding = only(
        judged(LEAF, slow_if(lambda a, b: a != b and ONE in (a, b) and (a, b) not in spared))
    )
    assert finding.subjects[0] == "cable:dgx-01/rail0--leaf-10/1"
    assert (len(finding.flows), finding.good) == (7, 1)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_some_rails_of_a_node(count: int) -> None:
    def slow(a: End, b: End) -> bool:
        return a != b and "dgx-02" in (a.host, b.host) and a.rail < count

    verdict = judged(RAILS, slow_if(slow))
    cables = [f"cable:dgx-02/rail{rail}--leaf-1{rail}/2" for rail in range(count)]
    if count < 3:
        assert [finding.subjects[0] for finding in verdict.findings] == cables
        return
    finding = only(verdict)
    assert finding.subjects[0] == "node:dgx-02"
    # Three of four are named, all four are the node.
    assert finding.affected == (tuple(cables) if count == 3 else ())
    modes = [one.mode for one in finding.suspects if one.kind == "node"]
    assert modes == ["in part" if count == 3 else ""]
    assert len(finding.flows) == 8 * count
    if count == 3:
        # A node fails, three of its rails of four with it.
        chance = math.exp(-10.0) * 0.75**3 * 0.25
        assert finding.suspects[0].cost == pytest.approx(-math.log(chance))


def test_rails_that_were_not_measured_do_not_count_as_healthy() -> None:
    def rate(a: End, b: End) -> float | None:
        if a.rail == 3:
            return None
        return SLOW if a != b and "dgx-02" in (a.host, b.host) else GOOD

    finding = only(judged(RAILS, rate))
    assert (finding.suspects[0].name, finding.affected) == ("node:dgx-02", ())


def test_flows_that_share_a_link_are_left_out_and_reported() -> None:
    values = every_flow(LEAF, lambda _a, _b: GOOD)
    crowd = [
        Measurement(100, 0, rail_end(f"dgx-0{n}", 0), ONE, SLOW) for n in (2, 3)
    ]  # both to the same rail
    verdict = localiser(LEAF).judge([*values, *crowd], THRESHOLDS)
    assert verdict.collisions == {switch_end("leaf-10", 1): crowd}
    assert (verdict.findings, verdict.unexplained, len(verdict.counted)) == ([], [], 50)
    # In different halves or rounds they do not meet.
    for apart in ({"half": 1}, {"round": 101}):
        alone = [crowd[0], replace(crowd[1], **apart)]
        verdict = localiser(LEAF).judge([*values, *alone], THRESHOLDS)
        assert (verdict.collisions, len(verdict.counted)) == ({}, 52)


def test_a_flow_without_a_way_is_reported() -> None:
    plan = replace(LEAF, cables=tuple(c for c in LEAF.cables if c.a != ONE))
    verdict = judged(plan, slow_if(lambda a, b: a != b and ONE in (a, b)))
    assert {ONE in (flow.source, flow.target) for flow in verdict.unrouted} == {True}
    assert len(verdict.unrouted) == 8
    assert verdict.findings == []
    assert not {(f.round) for f in verdict.unrouted} & {f.round for f in verdict.counted}


def test_both_ways_depend_on_both_directions() -> None:
    two = rail_end("dgx-02", 0)
    flows = [Measurement(0, 0, ONE, two, GOOD), Measurement(1, 0, ONE, ONE, GOOD)]
    for both_ways in (False, True):
        made = localiser(LEAF, both_ways)
        ways = made.prepare(flows)
        names = {made.suspects.all[one].name for one in ways.suspects[0]}
        assert ("hca:dgx-01/rail0 (receives)" in names) is both_ways
        assert ("cable:dgx-01/rail0--leaf-10/1 (from leaf-10/1)" in names) is both_ways
        # A loopback takes no link, and is not a collision with itself.
        assert ways.crowded == {}
        assert made.judge(flows, THRESHOLDS).both_ways is both_ways
    # Two flows that cross on a link meet in both directions only.
    crossing = [flows[0], Measurement(0, 0, two, ONE, GOOD)]
    assert not localiser(LEAF).prepare(crossing).crowded
    assert localiser(LEAF, True).prepare(crossing).crowded


def test_ways_that_are_prepared_are_used_again() -> None:
    made = localiser(LEAF)
    values = every_flow(LEAF, slow_if(lambda a, b: a != b and ONE in (a, b)))
    ways = made.prepare(values)
    assert made.judge(values, THRESHOLDS, ways).findings
    ways.unrouted.update(range(len(values)))
    assert not made.judge(values, THRESHOLDS, ways).findings


def test_two_weak_values_blame_a_pair_and_many_weaker_ones_a_cable() -> None:
    two = {ONE, rail_end("dgx-04", 0)}
    # Each is four and a half spreads below the fleet.
    pair = only(judged(LEAF, slow_if(lambda a, b: {a, b} == two, 374.4)))
    assert pair.interaction
    # Three spreads: one by one they are noise, 24 of them on one cable are not.
    wide = small_plan(nodes=13, rails=1, units=1, spines=0)
    cable = only(judged(wide, slow_if(lambda a, b: a != b and ONE in (a, b), 380.24)))
    assert cable.subjects[0] == "cable:dgx-01/rail0--leaf-10/1"
    assert (len(cable.flows), cable.median_gbps, cable.legal) == (24, 380.24, True)


def test_one_way_is_what_a_flow_is_unless_said() -> None:
    made = Localiser(LEAF, computed_routes(LEAF))
    assert not made.both_ways
    assert not made.judge(every_flow(LEAF, lambda _a, _b: GOOD), THRESHOLDS).both_ways


# What could take the place of a chosen part: 0 explains the flows 0 to 3 for a cost of 8.
WEIGHTS = [5.0, 5.0, 5.0, 5.0, 2.0, -1.0]


@pytest.mark.parametrize(
    ("hits", "cost", "alike"),
    [
        ([0, 1, 2, 3], 9.0, True),
        ([0, 1, 2, 3], 10.5, True),
        # e**3 times less likely is out.
        ([0, 1, 2, 3], 11.0, False),
        ([0, 1, 2, 3], 11.5, False),
        ([0, 1, 2], 5.5, True),
        ([0, 1, 2], 6.5, False),
        # A flow that nothing else explains counts for it, one that passes against it.
        ([0, 1, 2, 4], 7.5, True),
        ([0, 1, 2, 4], 8.5, False),
        ([0, 1, 2, 3, 5], 9.5, True),
        ([0, 1, 2, 3, 5], 10.5, False),
        # What explains none of its flows is another fault.
        ([4], 0.0, False),
        ([4], -20.0, False),
    ],
)
def test_what_cannot_be_told_from_a_chosen_part(hits: list[int], cost: float, alike: bool) -> None:
    all_hits = {7: [4], 0: [0, 1, 2, 3], 1: hits}
    costs = {7: 1.0, 0: 8.0, 1: cost}
    (group,) = localiser(LEAF)._classes([0], all_hits, costs, WEIGHTS)
    assert group == ([0, 1] if alike else [0])


def test_the_likeliest_of_a_class_comes_first() -> None:
    same = {one: [0, 1, 2, 3] for one in range(4)}
    costs = {0: 8.0, 1: 10.0, 2: 8.5, 3: 9.0}
    assert localiser(LEAF)._classes([0], same, costs, WEIGHTS) == [[0, 2, 3, 1]]


def test_what_another_finding_explains_speaks_for_none_of_a_class() -> None:
    # Flow 3 is explained by 0 and by 9; 1 has only this one and the flow 4 of 9.
    hits = {0: [0, 1, 2, 3], 9: [3, 4, 5], 1: [3, 4], 2: [0, 1, 2]}
    costs = {0: 8.0, 9: 0.5, 1: 0.1, 2: 7.0}
    groups = localiser(LEAF)._classes([0, 9], hits, costs, WEIGHTS)
    assert groups == [[0, 2], [9, 1]]


# ---- adapters of two rates in one fabric


MIXED = small_plan(nodes=8, rails=4)
NODES = sorted({node for node, _rail in MIXED.hcas})


def records_of_mixed(slower: list[str], rate: Rate, **options: object) -> list[Record]:
    """The records of a run in a fabric where these nodes have adapters of 200 Gb/s.

    `rate` is what a flow reaches where that is less than what the slower of its ends does.
    """
    hcas = {
        key: replace(hca, rate_gbps=200 if hca.node in slower else 400)
        for key, hca in MIXED.hcas.items()
    }
    plan = replace(MIXED, hcas=hcas)
    params = {
        "threshold_gbps": None, "judge_only": False, "pairs_per_link": 3, "seed": 1, "exclude": [],
        "loopback": True, "cross_rail": True, "both_ways": False, "duration_s": 10, **options,
    }  # fmt: skip
    session, _schedule = make_session(params, plan, computed_routes(plan), Recipe())
    found = localiser(plan)
    values = []
    for number, half, _unit, a, b in session.schedule.flows():
        least = min(hcas[end.host, end.rail].rate_gbps for end in (a, b))
        gbps = rate(a, b)
        reached = None if gbps is None else min(gbps, 0.98 * least)
        values.append(Measurement(number, half, a, b, reached))
    verdict, further = judge(session, found, values)
    return _outcome(session, found, values, verdict, further, 0).records


def failed(records: list[Record]) -> list[tuple[str, str]]:
    return [(one.check, one.subject) for one in records if one.status == FAIL]


@pytest.mark.parametrize("count", range(1, 8))
def test_healthy_nodes_of_two_rates_pass(count: int) -> None:
    records = records_of_mixed(NODES[:count], lambda _a, _b: 400.0)
    assert failed(records) == []
    assert not [one for one in records if one.check == "fabric.pairs.repeat"]


@pytest.mark.parametrize("count", range(1, 8))
def test_a_node_at_half_its_rate_is_found_among_slower_ones(count: int) -> None:
    """A node of 400 Gb/s at 196, which is what flows to the others reach: those do not clear it."""
    bad = NODES[-1]
    records = records_of_mixed(
        NODES[:count], lambda a, b: 196.0 if bad in (a.host, b.host) else 400.0
    )
    assert failed(records) == [("fabric.pairs.part", f"node:{bad}")]
    (record,) = (one for one in records if one.status == FAIL)
    assert record.measured == {"value": 196.0, "unit": "Gb/s"}
    assert record.threshold is not None
    assert record.threshold.value == 360.0


@pytest.mark.parametrize("count", range(1, 8))
def test_a_slow_node_of_the_lower_rate_is_found_by_the_threshold_of_that_rate(count: int) -> None:
    bad = NODES[0]
    records = records_of_mixed(
        NODES[:count], lambda a, b: 98.0 if bad in (a.host, b.host) else 400.0
    )
    assert failed(records) == [("fabric.pairs.part", f"node:{bad}")]
    (record,) = (one for one in records if one.status == FAIL)
    assert record.threshold is not None
    assert record.threshold.value == 175.0


def test_each_rate_has_a_fleet_and_the_one_by_its_threshold_is_judged() -> None:
    slower = NODES[:4]
    good = records_of_mixed(slower, lambda _a, _b: 400.0)[0]
    assert (good.check, good.status, good.measured) == (
        "fabric.pairs.fleet", "pass", {"value": 196.0, "unit": "Gb/s"},
    )  # fmt: skip
    assert good.text.startswith("the median of ")
    assert good.text.endswith(" flows of 200 Gb/s")
    assert [line.rsplit(" ", 2)[1] for line in good.evidence] == ["196", "2", "392", "3.9"]

    # All that is slow at a rate has a cause in common, at the other rate nothing is wrong.
    def slow(a: End, b: End) -> float:
        return 150.0 if {a.host, b.host} & {*slower} else 400.0

    records = records_of_mixed(slower, slow)
    assert failed(records) == [("fabric.pairs.fleet", "fabric")]
    assert records[0].measured == {"value": 150.0, "unit": "Gb/s"}
    # A threshold of the site is one for all.
    records = records_of_mixed(slower, slow, threshold_gbps=100.0, threshold_source="contract")
    assert failed(records) == []
    records = records_of_mixed(
        slower, lambda _a, _b: 400.0, threshold_gbps=390.0, threshold_source="contract"
    )
    assert failed(records) == [("fabric.pairs.fleet", "fabric")]
    nothing = records_of_mixed(NODES[:1], lambda _a, _b: None)[0]
    assert (nothing.status, nothing.text) == ("not_measured", "no flow was measured")


def test_both_ways_each_rate_is_twice_as_much() -> None:
    plan = small_plan(nodes=3, rails=1, units=1, spines=0)
    key = ("dgx-01", 0)
    plan = replace(plan, hcas={**plan.hcas, key: replace(plan.hcas[key], rate_gbps=200)})
    two, three = rail_end("dgx-02", 0), rail_end("dgx-03", 0)
    flows = [Measurement(0, 0, ONE, two, 392.0), Measurement(1, 0, two, three, 784.0)]
    thresholds = {rate: Threshold(">=", 1.8 * rate, "Gb/s", "test") for rate in (200, 400)}
    for both_ways, times in ((False, 1), (True, 2)):
        fleets = localiser(plan, both_ways).judge(flows, thresholds).fleets
        assert {kind: one.median for kind, one in fleets.items()} == {
            (False, 200): pytest.approx(times * 196.0),
            (False, 400): pytest.approx(times * 392.0),
        }


def test_a_flow_is_as_fast_as_the_slowest_that_is_planned_on_its_way() -> None:
    there = rail_end("dgx-03", 0)
    plan = small_plan(nodes=4, rails=2, units=2, spines=1)
    route = computed_routes(plan).route(ONE, there)
    assert Suspects(plan, computed_routes(plan)).rate_gbps(ONE, there) == 400
    for end in route:
        cables = tuple(
            replace(one, rate_gbps=100) if end in (one.a, one.b) else one for one in plan.cables
        )
        slow = replace(plan, cables=cables)
        suspects = Suspects(slow, computed_routes(slow))
        assert suspects.rate_gbps(ONE, there) == 100
        assert suspects.rate_gbps(ONE, ONE) == 400


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        # One node is in three of five flows, and the median is below 380.
        ([300.0, 300.0, 300.0, 390.0, 390.0], [390.0, 390.0]),
        ([390.0, 390.0, 390.0, 300.0, 300.0], [390.0, 390.0, 390.0, 300.0, 300.0]),
        # It is in half of them.
        ([300.0, 300.0, 300.0, 300.0, 300.0, 390.0], None),
    ],
)
def test_the_median_of_one_node_is_not_that_of_a_fleet(
    values: list[float], kept: list[float] | None
) -> None:
    names = iter(range(100))
    flows = [
        Measurement(
            number,
            0,
            rail_end("dgx-01" if number < 3 else f"n{next(names)}", 0),
            rail_end(f"n{next(names)}", 0),
            value,
        )
        for number, value in enumerate(values)
    ]
    found = _values_of(flows, THRESHOLDS[400], False)
    assert found == (values if kept is None else kept)
    # In a fabric of one rate all count.
    assert _values_of(flows, THRESHOLDS[400], True) == values


FAST, FASTER, TURNED = (False, 200.0), (False, 400.0), (True, 200.0)


def test_good_flows_of_a_lower_rate_do_not_clear_a_part_that_is_slow_at_a_higher_one() -> None:
    kinds = [FASTER, FASTER, FAST, FAST, FASTER]
    assert _speaking(range(5), kinds, [0.5, 0.5, -3.0, -3.0, -3.0]) == [0, 1, 4]
    # Nor does what is not measured.
    assert _speaking(range(5), kinds, [5.0, 5.0, 0.0, -3.0, -3.0]) == [0, 1, 4]
    assert _speaking(range(5), kinds, [0.0, -3.0, -3.0, -3.0, -3.0]) == [0, 1, 2, 3, 4]
    # What is slow at the lower rate speaks all the same, and so does all where that is most.
    assert _speaking(range(5), kinds, [5.0, 5.0, 0.5, -3.0, -3.0]) == [0, 1, 2, 4]
    assert _speaking(range(5), kinds, [1.0, -3.0, 5.0, -3.0, -3.0]) == [0, 1, 2, 3, 4]
    assert _speaking(range(5), kinds, [-3.0] * 5) == [0, 1, 2, 3, 4]
    assert _heaviest([0, 1, 2], [FAST, FAST, FASTER], [2.0, 2.0, 3.0]) == FAST
    assert _heaviest([0, 1, 2], [FAST, TURNED, TURNED], [3.0, 2.0, 2.0]) == TURNED


# ---- what a flow depends on

WIDE = small_plan(nodes=4, rails=2, units=2, spines=1)


def names_of(plan: CablePlan, source: End, target: End) -> set[str]:
    suspects = Suspects(plan, computed_routes(plan))
    found = suspects.of_flow(source, target)
    assert suspects.of_flow(source, target) == found
    assert len(found) == len(set(found))
    return {suspects.all[one].name for one in found}


def test_a_flow_depends_on_every_part_of_its_way() -> None:
    there = rail_end("dgx-03", 0)
    route = computed_routes(WIDE).route(ONE, there)
    cables = [WIDE.by_end()[end] for end in route]
    assert len(route) == 4
    assert names_of(WIDE, ONE, there) == {
        "node:dgx-01", "node:dgx-03",
        "hca:dgx-01/rail0", "hca:dgx-01/rail0 (sends)",
        "hca:dgx-03/rail0", "hca:dgx-03/rail0 (receives)",
        *(cable.subject for cable in cables),
        *(f"{cable.subject} (from {end})" for cable, end in zip(cables, route, strict=True)),
        "switch:leaf-10", "switch:spine-0", "switch:leaf-20",
        "pair:dgx-01--dgx-03", "pair:dgx-01/rail0--dgx-03/rail0",
    }  # fmt: skip


def test_a_loopback_depends_on_its_adapter_alone() -> None:
    adapter = {f"hca:dgx-01/rail0{mode}" for mode in ("", " (sends)", " (receives)")}
    assert names_of(WIDE, ONE, ONE) == {"node:dgx-01", *adapter}
    # A node with one rail is its adapter.
    single = small_plan(nodes=4, rails=1, units=1, spines=0)
    assert names_of(single, ONE, ONE) == adapter


def test_cages_that_carry_two_cables_are_parts() -> None:
    cages = {("dgx-01", 0): "OSFP1", ("dgx-01", 1): "OSFP1", ("dgx-02", 0): "OSFP1"}
    hcas = {key: replace(hca, cage=cages.get(key)) for key, hca in WIDE.hcas.items()}
    switches = {name: replace(one, radix=64) for name, one in WIDE.switches.items()}
    two = rail_end("dgx-02", 0)
    plain = replace(WIDE, hcas=hcas)
    assert {name for name in names_of(plain, ONE, two) if "cage" in name} == {"cage:dgx-01/OSFP1"}
    twin = replace(WIDE, hcas=hcas, switches=switches)
    # dgx-01 and dgx-02 are in the ports 1 and 2 of their leaf, which are one cage.
    assert {name for name in names_of(twin, ONE, two) if "cage" in name} == {
        "cage:dgx-01/OSFP1",
        "cage:leaf-10/1",
    }
    found = Suspects(twin, computed_routes(twin)).cages
    # Uplinks are in the ports 9 and 10, at the spine in 1 and 2 for the first leaf.
    assert found[switch_end("leaf-10", 9)] == found[switch_end("leaf-10", 10)] == "cage:leaf-10/5"
    assert found[switch_end("spine-0", 1)] == found[switch_end("spine-0", 2)] == "cage:spine-0/1"
    assert found[switch_end("spine-0", 3)] == "cage:spine-0/2"
    assert two not in found


def test_what_fails_more_often_is_believed_first() -> None:
    suspects = Suspects(WIDE, computed_routes(WIDE))
    suspects.of_flow(ONE, rail_end("dgx-03", 0))
    cost = {one.name: one.cost for one in suspects.all}
    cable = cost["cable:dgx-01/rail0--leaf-10/1"]
    # One fault of a whole before two of its parts, and a cable before all else.
    wholes = [cost["hca:dgx-01/rail0"], cost["node:dgx-01"], cost["switch:leaf-10"]]
    assert [cable, *wholes] == sorted([cable, *wholes])
    assert cable < wholes[0] < wholes[1] < wholes[2] < 2 * cable
    assert wholes[0] < COST[CAGE] < wholes[1]
    # A direction is a little less likely, and never as unlikely as the next kind of part.
    assert cable < cost["cable:dgx-01/rail0--leaf-10/1 (from dgx-01/rail0)"] < wholes[0]
    assert wholes[0] < cost["hca:dgx-01/rail0 (sends)"] < wholes[1]
    assert cost["pair:dgx-01--dgx-03"] == wholes[0]


def test_the_parts_that_records_are_made_of() -> None:
    found = {subject: (kind, ends) for subject, kind, ends in parts(LEAF)}
    assert len(found) == 10 + 10 + 2
    assert found["hca:dgx-01/rail0"] == ("hca", (ONE,))
    assert found["cable:dgx-01/rail0--leaf-10/1"] == ("cable", (ONE, switch_end("leaf-10", 1)))
    ports = tuple(switch_end("leaf-11", n) for n in range(1, 6))
    assert found["switch:leaf-11"] == ("switch", ports)


def test_what_nodes_and_switches_are_made_of() -> None:
    found = elements(WIDE)
    assert found["node:dgx-01"] == [
        ("cable:dgx-01/rail0--leaf-10/1", "hca:dgx-01/rail0"),
        ("cable:dgx-01/rail1--leaf-11/1", "hca:dgx-01/rail1"),
    ]
    assert ("cable:dgx-02/rail0--leaf-10/2",) in found["switch:leaf-10"]
    assert len(found["switch:leaf-10"]) == 4
    assert len(found["switch:spine-0"]) == 8


@pytest.mark.parametrize(("each", "whole"), [(3.5, True), (2.5, False)])
def test_rails_that_are_a_little_slow_together_are_their_node(each: float, whole: bool) -> None:
    plan = small_plan(nodes=5, rails=8, units=1, spines=0)

    def weight(rate: float) -> float:
        return weigh(rate, Fleet(GOOD, 0.01 * GOOD, 32))

    # The rate of which the eight flows of a rail weigh so much: too little to blame the cable.
    low, high = 370.0, GOOD
    for _step in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if weight(middle) > each / 8 else (low, middle)
    slow = slow_if(lambda a, b: "dgx-02" in (a.host, b.host) and a.rail < 6, low)
    verdict = judged(plan, slow, loopback=False)
    named = tuple(f"cable:dgx-02/rail{rail}--leaf-1{rail}/2" for rail in range(6))
    assert [finding.affected for finding in verdict.findings] == ([named] if whole else [])
