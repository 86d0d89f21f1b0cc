# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is slow though legal, and what fails again and again."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Threshold,
    judge,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._operations.outliers import (
    Fleet,
    outlier_records,
    repeat_offender,
)

RATE = Threshold(">=", 600, "TFLOP/s", "x")
ERRORS = Threshold("<=", 100, "errors", "x")


def rates(values, threshold=RATE, check="burn.rate_bf16"):
    return [
        judge(check, f"gpu:n{index // 8}/{index % 8}", v, threshold)
        for index, v in enumerate(values)
    ]


def outliers(records):
    fleet = Fleet()
    for record in records:
        fleet.add(record)
    return fleet.outliers()


GOOD = [720 + number % 7 for number in range(96)]


def test_the_slow_one_though_legal_is_told():
    found = outliers(rates([*GOOD, 655]))
    assert [(one.subject, one.value) for one in found] == [("gpu:n12/0", 655)]
    assert found[0].median == 723
    assert "median of 97 is 723" in found[0].text


def test_what_is_better_than_the_others_is_no_finding():
    assert outliers(rates([*GOOD, 900])) == []


def test_the_ordinary_spread_is_no_finding():
    assert outliers(rates(GOOD)) == []
    # All equal but for less than three in a hundred.
    assert outliers(rates([700] * 50 + [690])) == []


def test_too_few_values_say_nothing():
    assert outliers(rates([720] * 6 + [610])) == []


def test_failures_are_not_compared_again():
    assert outliers(rates([*GOOD, 100])) == []


def test_counters_at_zero_are_left_to_their_thresholds():
    assert outliers(rates([0] * 95 + [3], ERRORS)) == []


def test_too_hot_is_the_bad_side_of_a_threshold_that_says_at_most():
    threshold = Threshold("<", 95, "C", "x")
    found = outliers(rates([50 + n % 3 for n in range(40)] + [80, 20], threshold))
    assert [one.value for one in found] == [80]


def test_without_a_threshold_both_sides_stand_out():
    power = [judge("burn.watch", f"gpu:n/{i}", v, RATE) for i, v in enumerate([690] * 40)]
    for value in (400, 900):
        extra = judge("burn.watch", f"gpu:m/{value}", value, RATE)
        power.append(extra)
    power = [type(one)(**{**vars(one), "threshold": None, "status": PASS}) for one in power]
    assert {one.value for one in outliers(power)} == {400, 900}


def test_units_are_not_mixed():
    other = [judge("burn.rate_bf16", f"gpu:m/{i}", 3, Threshold(">=", 1, "PFLOP/s", "x"))
             for i in range(3)]  # fmt: skip
    assert outliers(rates(GOOD) + other) == []


def test_nodes_of_other_profiles_are_not_compared():
    fleet = Fleet()
    for index, value in enumerate(GOOD + [290] * 32):
        profile = "hgx_a100" if value == 290 else "dgx_h100"
        found = {"value": value, "unit": "TFLOP/s"}
        fleet.put("burn.rate_bf16", f"gpu:n{index}/0", "gpu", found, ">=", (profile,))
    assert fleet.outliers() == []


def test_it_fails_only_where_a_site_says_so():
    found = outliers(rates([*GOOD, 655]))
    assert outlier_records(found, frozenset()) == []
    (record,) = outlier_records(found, frozenset({"burn.rate_bf16"}))
    assert (record.check, record.status) == ("fleet.burn.rate_bf16", FAIL)
    assert not record.threshold.holds(record.measured["value"])
    assert record.threshold.holds(723)


def line(day, status, node="dgx-01", checks=("gpu.ecc",), layers=("gpu",)):
    checks = list(checks) if status == FAIL else []
    at = f"2026-03-{day:02d}T00:00:00Z"
    return {"at": at, "status": status, "node": node, "checks": checks, "layers": list(layers)}


NOW = "2026-03-29T00:00:00Z"


def test_one_failure_is_no_repeat_offender():
    found = repeat_offender("s", [line(29, FAIL)], NOW)
    assert (found.score, found.incidents, found.is_repeat_offender) == (1.0, 1, False)


def test_it_fades_by_half_in_four_weeks():
    assert repeat_offender("s", [line(1, FAIL)], NOW).score == 0.5


def test_ten_runs_over_an_unmended_part_are_one_incident():
    found = repeat_offender("s", [line(day, FAIL) for day in range(20, 30)], NOW)
    assert found.incidents == 1


def test_what_was_not_measured_ends_no_incident():
    history = [line(27, FAIL), line(28, NOT_MEASURED), line(29, FAIL)]
    assert repeat_offender("s", history, NOW).incidents == 1


def test_a_quick_run_does_not_end_what_the_burn_in_found():
    history = [
        line(20, FAIL, checks=("burn.gemm_bf16",), layers=("gpu", "burn")),
        line(21, PASS, layers=("gpu",)),
        line(22, FAIL, checks=("burn.gemm_bf16",), layers=("burn",)),
        line(23, PASS, layers=("burn",)),
        line(29, FAIL, checks=("burn.gemm_bf16",), layers=("burn",)),
    ]
    assert repeat_offender("s", history, NOW).incidents == 2


def test_three_incidents_in_five_weeks_are_a_repeat_offender():
    history = [line(1, FAIL), line(2, PASS), line(15, FAIL), line(16, PASS), line(29, FAIL)]
    found = repeat_offender("s", history, NOW)
    assert found.score == pytest.approx(0.5 + 0.5**0.5 + 1, abs=0.001)
    assert found.is_repeat_offender


def test_what_fails_in_two_nodes_is_not_the_node():
    history = [line(1, FAIL, "dgx-01"), line(29, FAIL, "dgx-02")]
    found = repeat_offender("s", history, NOW)
    assert found.score == 3.0
    assert found.is_repeat_offender
    assert found.nodes == ("dgx-01", "dgx-02")


def test_the_order_of_lines_does_not_matter():
    history = [line(1, FAIL), line(2, PASS), line(15, FAIL)]
    assert repeat_offender("s", history[::-1], NOW) == repeat_offender("s", history, NOW)


def test_a_name_in_two_places_at_once_is_no_part():
    history = [{**line(29, FAIL, node), "run": "r"} for node in ("dgx-01", "dgx-02")]
    found = repeat_offender("s", history, NOW)
    assert found.ambiguous
    assert not found.is_repeat_offender
