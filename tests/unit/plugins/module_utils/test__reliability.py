# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of reliability against published ones, tables, and a simulation."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.baremetal.dgx.plugins.filter.reliability import FilterModule
from ansible_collections.baremetal.dgx.plugins.module_utils._reliability import (
    HOURS_A_YEAR,
    Parts,
    expected_failures,
    first_failure_hours,
    parts_from_data,
    spares_needed,
    survives,
)

figures = FilterModule().filters()["reliability"]


def test_a_hundred_thousand_links_of_five_years() -> None:
    """SemiAnalysis, 100,000 H100 Clusters (June 2024): 26 minutes, with one link a GPU."""
    found = figures({"links": {"count": 100_000, "mttf_years": 5}})
    assert found["first_failure_minutes"] == pytest.approx(26.28, abs=0.005)


def test_what_meta_projects_for_sixteen_thousand_gpus() -> None:
    """arXiv 2410.21680: 6.50 failures per 1000 node-days, and 1.8 h for 16,384 GPUs."""
    nodes = Parts("nodes", 16384 // 8, 24 * 1000 / 6.50)
    assert first_failure_hours([nodes]) == pytest.approx(1.8, abs=0.05)


def test_kinds_of_parts_add_up() -> None:
    found = figures({
        "links": {"count": 1000, "mttf_hours": 100_000},
        "gpus": {"count": 1000, "mttf_hours": 50_000},
    })  # fmt: skip
    assert found["first_failure_hours"] == pytest.approx(1 / (0.01 + 0.02))
    assert [part["share"] for part in found["parts"]] == pytest.approx([1 / 3, 2 / 3])
    assert found["failures_a_month"] == pytest.approx(0.03 * 730)


def test_nothing_that_can_fail() -> None:
    found = figures({"links": {"count": 0, "mttf_years": 5}})
    assert found["first_failure_hours"] is None
    assert (found["spares"], found["job_survives"], found["failures_a_month"]) == (0, 1.0, 0.0)
    assert figures({})["first_failure_minutes"] is None


def test_a_long_job() -> None:
    parts = [Parts("nodes", 100, 10_000)]
    assert survives(parts, 100) == pytest.approx(math.exp(-1))
    assert expected_failures(parts, 100) == pytest.approx(1)


@pytest.mark.parametrize(
    ("mean", "confidence", "spares"),
    [
        # from a table of the cumulative Poisson distribution
        (0.0, 0.99, 0), (0.1, 0.90, 0), (0.1, 0.95, 1), (1.0, 0.735, 1), (1.0, 0.92, 3),
        (1.0, 0.99, 4), (2.0, 0.95, 5), (5.0, 0.95, 9), (10.0, 0.95, 15), (10.0, 0.99, 18),
        (20.0, 0.99, 31), (100.0, 0.99, 124),
    ],
)  # fmt: skip
def test_spares(mean: float, confidence: float, spares: int) -> None:
    assert spares_needed(mean, confidence) == spares


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99, 0.999])
def test_the_approximation_meets_the_sum(confidence: float) -> None:
    exact, near = spares_needed(500.0, confidence), spares_needed(500.0001, confidence)
    assert abs(exact - near) <= 2


def test_a_confidence_next_to_one_ends() -> None:
    assert 15 < spares_needed(1.0, 1 - 2**-53) < 200


def test_history_moves_a_guess() -> None:
    guess = Parts("links", 1000, 40_000)
    assert guess.mttf_now_hours == 40_000
    # 30 failures in 100,000 part-hours say 3333 hours, and the guess hardly counts
    seen = Parts("links", 1000, 40_000, failures=30, part_hours=100_000)
    assert seen.mttf_now_hours == pytest.approx(140_000 / 31)
    # nothing failed for a while: better than guessed, but not for ever
    quiet = Parts("links", 1000, 40_000, failures=0, part_hours=40_000)
    assert quiet.mttf_now_hours == 80_000
    firm = Parts("links", 1000, 40_000, failures=30, part_hours=100_000, prior_failures=100)
    assert seen.mttf_now_hours < firm.mttf_now_hours < 40_000


def test_the_estimate_finds_the_truth() -> None:
    """Whatever was guessed, a simulated year of 2000 parts that last 20,000 hours tells."""
    chance, truth, hours, count = random.Random(6), 20_000.0, HOURS_A_YEAR, 2000
    failures = 0
    for _part in range(count):
        at = chance.expovariate(1 / truth)
        while at < hours:
            failures += 1
            at += chance.expovariate(1 / truth)
    for guess in (2_000.0, 20_000.0, 200_000.0):
        part = Parts("gpus", count, guess, failures, count * hours)
        assert part.mttf_now_hours == pytest.approx(truth, rel=0.1)


def test_spares_suffice_as_often_as_promised() -> None:
    """Nodes fail and are repaired for a simulated time; how often are more out than spares?"""
    chance, rate, repair = random.Random(7), 0.1, 72.0
    spares = spares_needed(rate * repair, 0.95)
    clock, back, short, total = 0.0, [], 0.0, 0.0
    while clock < 400_000:
        step = chance.expovariate(rate)
        # between two failures, nodes come back one by one
        for until in sorted([*[one for one in back if one < clock + step], clock + step]):
            if sum(one > clock for one in back) > spares:
                short += until - clock
            total += until - clock
            clock = until
        back = [one for one in back if one > clock] + [clock + chance.uniform(0, 2 * repair)]
    assert short / total < 0.05
    assert short / total > 0.01


def test_hours_of_all_parts() -> None:
    one = parts_from_data({"n": {"count": 10, "mttf_hours": 100, "failures": 2, "hours": 50}})
    other = parts_from_data(
        {"n": {"count": 10, "mttf_hours": 100, "failures": 2, "part_hours": 500}}
    )
    assert one == other
    assert one[0].part_hours == 500


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "takes a mapping"),
        ({"n": 3}, "n: write count"),
        ({"n": {"count": 1}}, "n: write one of mttf_years and mttf_hours"),
        ({"n": {"count": 1, "mttf_years": 1, "mttf_hours": 1}}, "n: write one of mttf_years"),
        ({"n": {"count": 1, "mttf_years": 0}}, "n: an MTTF and prior_failures must be more"),
        ({"n": {"count": 1, "mttf_years": "five"}}, "n.mttf_years: is 'five'"),
        ({"n": {"count": -1, "mttf_years": 1}}, "n.count: is -1"),
        ({"n": {"count": 1.5, "mttf_years": 1}}, "n.count: is 1.5; write a whole number"),
        ({"n": {"count": True, "mttf_years": 1}}, "n.count: is True"),
        ({"n": {"count": 1, "mttf_years": "nan"}}, "n.mttf_years: is 'nan'"),
        ({"n": {"count": 1, "mttf_years": 1, "size": 3}}, "n.size: unknown"),
        ({"n": {"count": 1, "mttf_years": 1, "failures": 3}}, "n.failures: in how many hours"),
        ({"n": {"count": 1, "mttf_years": 1, "hours": 3, "part_hours": 3}}, "one of hours and"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(given: Any, said: str) -> None:
    with pytest.raises(AnsibleFilterError, match=said.replace(".", r"\.")):
        figures(given)


@pytest.mark.parametrize(
    "options", [{"confidence": 1}, {"confidence": 0}, {"repair_hours": -1}, {"job_hours": "x"}]
)
def test_options_that_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(AnsibleFilterError, match="reliability: "):
        figures({"n": {"count": 1, "mttf_years": 1}}, **options)
