# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the values of pair tests weigh, and when few or strange ones judge by the rate instead."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import Threshold
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import rail_end
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.localise import (
    Fleet,
    Measurement,
    fleet_of,
    is_low,
    weigh,
)

THRESHOLD = Threshold(">=", 380.0, "Gb/s", "test")
LOW_THRESHOLD = Threshold(">=", 100.0, "Gb/s", "test")
RATE_GBPS = 400.0
BY_RATE = (392.0, 7.84, 0)


def fleet(values: list[float], threshold: Threshold = THRESHOLD) -> tuple[float, float, int]:
    found = fleet_of(values, threshold, RATE_GBPS)
    return found.median, found.spread, found.values


def test_eight_values_judge_by_themselves_and_seven_by_the_rate() -> None:
    assert fleet([390.0] * 8) == pytest.approx((390.0, 3.9, 8))
    assert fleet([390.0] * 7) == pytest.approx(BY_RATE)
    assert fleet([]) == pytest.approx(BY_RATE)


def test_flows_of_which_none_gets_through_judge_by_the_rate() -> None:
    assert fleet([0.0] * 8) == pytest.approx(BY_RATE)
    assert fleet([0.5] * 8) == pytest.approx((0.5, 0.005, 8))


def test_where_most_are_bad_those_that_reach_the_threshold_are_the_fleet() -> None:
    # A fifth of all is enough, less is not.
    assert fleet([392.0] * 2 + [200.0] * 8) == pytest.approx((392.0, 3.92, 2))
    assert fleet([392.0] + [200.0] * 9) == pytest.approx((200.0, 2.0, 10))
    assert fleet([392.0] * 2 + [200.0] * 9) == pytest.approx((200.0, 2.0, 11))


def test_a_fleet_a_little_below_the_threshold_is_judged_as_a_whole() -> None:
    assert fleet([370.0] * 8 + [390.0] * 3) == pytest.approx((370.0, 3.7, 11))
    # 5 % below is the end of it.
    assert fleet([361.1] * 8 + [390.0] * 3) == pytest.approx((361.1, 3.611, 11))
    assert fleet([360.9] * 8 + [390.0] * 3) == pytest.approx((390.0, 3.9, 3))


def test_where_values_lie_far_apart_the_upper_ones_are_the_fleet() -> None:
    values = [100.0, 150.0, 200.0, 250.0, 300.0, 350.0, 390.0, 391.0, 392.0]
    assert fleet(values, LOW_THRESHOLD) == pytest.approx((390.0, 3.9, 9))
    near = [260.0, 270.0, 280.0, 290.0, 300.0, 310.0, 320.0, 330.0, 340.0]
    median, spread, _count = fleet(near, LOW_THRESHOLD)
    assert median == 300.0
    assert 29 < spread < 30
    # Of values in between, those above the middle have their own spread.
    median, spread, _count = fleet([200.0 + 25 * n for n in range(9)], LOW_THRESHOLD)
    assert median == 350.0
    assert 37 < spread < 38


def test_the_spread_is_a_standard_deviation() -> None:
    like_a_bell = [NormalDist(390, 10).inv_cdf((n + 0.5) / 1001) for n in range(1001)]
    median, spread, _count = fleet(like_a_bell)
    assert median == pytest.approx(390.0)
    assert spread == pytest.approx(10.0, rel=0.01)
    # One value that is far out moves neither.
    assert fleet([*like_a_bell, 1.0])[:2] == pytest.approx((median, spread), rel=0.01)


@pytest.mark.parametrize("gbps", [0.0, 200.0, 370.0, 380.0, 388.0, 392.0])
@pytest.mark.parametrize("spread", [4.0, 12.0])
def test_a_value_weighs_what_its_densities_say(gbps: float, spread: float) -> None:
    fleet_ = Fleet(392.0, spread, 100)
    usual, anything = NormalDist(392.0, spread).pdf(gbps), 1 / 392.0
    # One good flow in a thousand is interrupted; three in a hundred pass a bad part unharmed.
    bad = 0.03 * usual + 0.97 * anything
    good = 0.999 * usual + 0.001 * anything
    assert weigh(gbps, fleet_) == pytest.approx(math.log(bad / good))


def test_more_than_usual_is_as_good_as_usual() -> None:
    fleet_ = Fleet(392.0, 4.0, 100)
    assert weigh(392.0, fleet_) == weigh(400.0, fleet_) == weigh(800.0, fleet_) < 0


ONE, TWO = rail_end("dgx-01", 0), rail_end("dgx-02", 0)


def flow(gbps: float | None) -> Measurement:
    return Measurement(0, 0, ONE, TWO, gbps)


@pytest.mark.parametrize(
    ("gbps", "count", "low"),
    [
        (387.0, 2, False),
        (386.9, 2, True),
        # Fewer than two flows are judged as two.
        (387.0, 0, False),
        (386.9, 0, True),
        (386.9, 1, True),
        # Of more good values one is further out.
        (386.9, 100, False),
        (382.9, 100, False),
        (382.7, 100, True),
        (420.0, 2, False),
        (None, 2, False),
    ],
)
def test_a_value_is_low_when_chance_does_not_explain_it(
    gbps: float | None, count: int, low: bool
) -> None:
    assert is_low(flow(gbps), Fleet(400.0, 4.0, 100), count) is low


def test_a_fleet_without_faults_has_one_low_value_in_a_hundred_runs() -> None:
    for count in (2, 50, 5000):
        # The highest value that is called low.
        limit = next(
            x for x in range(4000, 0, -1) if is_low(flow(x / 10), Fleet(400.0, 4.0, 9), count)
        )
        chance = NormalDist(400.0, 4.0).cdf(limit / 10)
        assert chance * count < 0.01


def test_flows_say_what_they_are() -> None:
    assert str(flow(387.4)) == "dgx-01/rail0 to dgx-02/rail0: 387 Gb/s"
    # A rate of soft RoCE is a few thousandths of this: it is not 0.
    assert str(flow(0.003276)) == "dgx-01/rail0 to dgx-02/rail0: 0.00328 Gb/s"
    assert str(flow(None)) == "dgx-01/rail0 to dgx-02/rail0: not measured"
    assert not flow(1.0).loopback
    assert Measurement(0, 0, ONE, ONE, 1.0).loopback
