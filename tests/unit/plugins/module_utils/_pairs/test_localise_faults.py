# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known faults, noisy values: the right part is named, alone or with what looks the same.

tests/soak/pairs_localise does the same at length, on routes of the real opensm.
"""

from __future__ import annotations

import random

import pytest
from pair_faults import (
    EXACT,
    IN_CLASS,
    RATE_GBPS,
    THRESHOLD,
    THRESHOLDS,
    Fault,
    Lab,
    outcome,
    plan_of,
)

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.routes import computed_routes
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.localise import (
    Fleet,
    Measurement,
    fleet_of,
    weigh,
)

RIGHT = (EXACT, IN_CLASS)
SINGLE = ("cable", "port", "hca", "link", "node", "leaf")
DOUBLE = (("cable", "hca"), ("port", "link"), ("hca", "hca"), ("cable", "cable"))


@pytest.fixture(scope="module", params=["basepod-12", "superpod-31", "trays-24"])
def lab(request: pytest.FixtureRequest) -> Lab:
    plan = plan_of(request.param)
    return Lab.of(plan, computed_routes(plan))


def final(lab: Lab, faults: list[Fault], dice: random.Random) -> str:
    values = lab.measure(faults, dice)
    verdict = lab.judge(values)
    if outcome(faults, verdict) == EXACT:
        return EXACT
    return outcome(faults, lab.judge_with_follow_up(values, verdict, faults, dice))


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [*((kind,) for kind in SINGLE), *DOUBLE], ids=" + ".join)
def test_the_right_part_is_named(lab: Lab, kinds: tuple[str, ...]) -> None:
    runs = 6
    right = 0
    for seed in range(runs):
        dice = random.Random(f"{kinds} {seed}")
        right += final(lab, lab.faults(kinds, dice), dice) in RIGHT
    # The long run must have 99 of 100; these few must all be right.
    assert right == runs


@pytest.mark.slow
def test_noise_alone_accuses_none(lab: Lab) -> None:
    for seed in range(20):
        assert not lab.judge(lab.measure([], random.Random(f"healthy {seed}"))).findings


def test_what_is_not_measured_speaks_for_none(lab: Lab) -> None:
    dice = random.Random(5)
    [fault] = lab.faults(("cable",), dice)
    values = lab.measure([fault], dice)
    hung = [
        Measurement(one.round, one.half, one.source, one.target, None, "it hung")
        if one.round == 1
        else one
        for one in values
    ]
    verdict = lab.localiser.judge(hung, THRESHOLDS)
    assert len(verdict.unmeasured) == sum(1 for one in values if one.round == 1)
    assert all(fault.subject in finding.subjects for finding in verdict.findings)
    nothing = [Measurement(one.round, one.half, one.source, one.target, None) for one in values]
    silent = lab.localiser.judge(nothing, THRESHOLDS)
    assert not silent.findings
    assert not silent.counted


def test_two_halves_that_pass_and_a_whole_that_fails_are_named_as_a_pair(lab: Lab) -> None:
    dice = random.Random(7)
    values = lab.measure([], dice, noise=0.01)
    # Two nodes that meet are slow with each other on all rails, and with no other.
    chosen = next(one for one in values if not one.loopback)
    two = {chosen.source.host, chosen.target.host}
    slow = [
        Measurement(one.round, one.half, one.source, one.target, 120.0)
        if {one.source.host, one.target.host} == two
        else one
        for one in values
    ]
    verdict = lab.localiser.judge(slow, THRESHOLDS)
    assert [finding.interaction for finding in verdict.findings] == [True]
    assert verdict.findings[0].subjects[0] == "pair:" + "--".join(sorted(two))


def test_a_fleet_is_judged_by_its_own_median_and_spread() -> None:
    fleet = fleet_of([390.0, 392.0, 391.0, 393.0, 392.0, 391.0, 392.0, 100.0], THRESHOLD, RATE_GBPS)
    assert 390 < fleet.median < 393
    assert fleet.spread >= 0.01 * fleet.median
    # Too few values to say anything by themselves: the rate decides.
    assert fleet_of([100.0, 100.0], THRESHOLD, RATE_GBPS).values == 0


def test_half_of_all_flows_may_be_slow() -> None:
    values = [392.0] * 9 + [200.0] * 11
    assert fleet_of(values, THRESHOLD, RATE_GBPS).median == 392.0


def test_a_value_speaks_for_a_fault_only_when_it_is_low() -> None:
    fleet = Fleet(392.0, 4.0, 100)
    assert weigh(392.0, fleet) < 0
    assert weigh(400.0, fleet) < 0
    assert weigh(0.0, fleet) > weigh(370.0, fleet) > 0
