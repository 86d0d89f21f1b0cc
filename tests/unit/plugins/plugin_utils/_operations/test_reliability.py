# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of reliability against published ones and a simulation; counts, histories, the table."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._operations.reliability import (
    ASSUMED_HOURS,
    HOURS_A_YEAR,
    Parts,
    counts_of,
    expected_failures,
    first_failure_hours,
    parts_for,
    reliability,
    seen_in,
    spares_needed,
    survives,
    table_of,
)


def figures(*parts: Parts) -> dict[str, Any]:
    return reliability(parts, 72, 0.99, 24)


def test_a_hundred_thousand_links_of_five_years() -> None:
    """SemiAnalysis, 100,000 H100 Clusters (June 2024): 26 minutes, with one link a GPU."""
    found = figures(Parts("links", 100_000, 5 * HOURS_A_YEAR))
    assert found["first_failure_minutes"] == pytest.approx(26.28, abs=0.005)


def test_what_meta_projects_for_sixteen_thousand_gpus() -> None:
    """arXiv 2410.21680: 6.50 failures per 1000 node-days, and 1.8 h for 16,384 GPUs."""
    nodes = Parts("nodes", 16384 // 8, 24 * 1000 / 6.50)
    assert first_failure_hours([nodes]) == pytest.approx(1.8, abs=0.05)


def test_kinds_of_parts_add_up() -> None:
    found = figures(Parts("links", 1000, 100_000), Parts("gpus", 1000, 50_000))
    assert found["first_failure_hours"] == pytest.approx(1 / (0.01 + 0.02))
    assert [part["share"] for part in found["parts"]] == pytest.approx([1 / 3, 2 / 3])
    assert found["failures_a_month"] == pytest.approx(0.03 * 730)


def test_nothing_that_can_fail() -> None:
    found = figures(Parts("links", 0, 5 * HOURS_A_YEAR))
    assert found["first_failure_hours"] is None
    assert (found["spares"], found["job_survives"], found["failures_a_month"]) == (0, 1.0, 0.0)
    assert figures()["first_failure_minutes"] is None


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
    # nothing failed for a while: better than guessed, but not forever
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


@pytest.mark.parametrize("years", ["five", 0, -1, "nan", True, None, [5]])
def test_years_that_are_no_number_are_named(years: Any) -> None:
    if years is None:
        assert parts_for({"links": 1}, {}, {"links": None})[0].mttf_hours == ASSUMED_HOURS["links"]
        return
    with pytest.raises(ValueError, match=r"^years\.links: is .*; write a number above 0$"):
        parts_for({"links": 1}, {}, {"links": years})


@pytest.mark.parametrize("confidence", [0, 1])
def test_a_confidence_that_is_none_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence: is"):
        reliability([Parts("n", 1, 8760)], 72, confidence, 24)


NOW = "2026-03-31T00:00:00Z"
PLAN = {
    "profiles": {"dgx_h100": {"gpus": {"count": 8}, "rails": [{"rail": n} for n in range(8)]}},
    "nodes": [
        {"name": "head-01", "profile": None},
        {"name": "dgx-01", "profile": "dgx_h100", "state": "present"},
        {"name": "dgx-02", "profile": "dgx_h100"},
        {"name": "dgx-03", "profile": "dgx_h100", "state": "absent"},
    ],
}


def line(day, status="pass", subject="gpu:dgx-01/3", **more):
    checks = ["gpu.ecc_uncorrectable"] if status == "fail" else []
    return {"at": f"2026-03-{day:02d}T00:00:00Z", "run": f"r{day}", "node": "dgx-01",
            "subject": subject, "status": status, "checks": checks, "layers": ["gpu"],
            **more}  # fmt: skip


def test_the_plan_says_how_many():
    assert counts_of(PLAN) == {"GPUs": 16, "adapters": 16, "links": 16}
    assert counts_of({**PLAN, "cables": [1] * 40})["links"] == 40
    assert counts_of({}) == {"GPUs": 0, "adapters": 0, "links": 0}


def test_a_failure_that_was_not_repaired_is_one():
    history = [line(1), line(11, "fail"), line(12, "fail"), line(13), line(21, "fail")]
    seen = seen_in([("gpu-1", history), ("gpu-2", [line(1), line(31)])], NOW)
    assert seen["GPUs"] == {"failures": 2, "part_hours": 20 * 24 + 30 * 24}
    assert seen["links"] == {"failures": 0, "part_hours": 0}
    hca = [line(1, subject="hca:dgx-01/rail3"), line(2, "fail", subject="hca:dgx-01/rail3")]
    assert seen_in([("0xa", hca)], NOW)["adapters"] == {"failures": 1, "part_hours": 24}


def test_what_is_no_part_or_shares_its_name_counts_for_nothing():
    twice = [line(1, "fail"), line(1, "fail", node="dgx-02")]
    assert seen_in([("x", []), ("y", [line(1, subject="fabric")]), ("z", twice)], NOW)["GPUs"] == {
        "failures": 0, "part_hours": 0,
    }  # fmt: skip
    with pytest.raises(ValueError, match="does not match"):
        seen_in([("x", [{"at": "yesterday", "subject": "gpu:a/1"}])], NOW)


def test_the_cluster_corrects_what_was_assumed():
    counts = {"GPUs": 1016, "adapters": 0, "links": 2032}
    seen = {"GPUs": {"failures": 9, "part_hours": 1016 * 2190.0}}
    parts = parts_for(counts, seen, {"links": 5})
    assert [part.name for part in parts] == ["GPUs", "links"]
    assert parts[1] == Parts("links", 2032, 5 * 8760)
    assert ASSUMED_HOURS["GPUs"] == pytest.approx(82_944, abs=1)
    found = figures(*parts)
    rows = table_of(found, {"links": 5})
    assert rows[1][:2] == ["GPUs", "1,016"]
    assert rows[1][4] == "9"
    # One assumed failure and nine that were seen.
    now = (82_944 + 1016 * 2190) / 10 / 8760
    assert rows[1][2] == f"{now:,.1f} years"
    assert rows[2][3] == "5.0 years (the inventory)"
    assert rows[3] == ["first failure of any", f"after {found['first_failure_hours']:.0f} hours"]
    assert all(isinstance(cell, str) for row in rows for cell in row)


def test_the_figure_of_a_hundred_thousand_links_and_an_empty_cluster():
    found = figures(*parts_for({"links": 100_000}, {}, {"links": 5}))
    assert table_of(found, ())[2] == ["first failure of any", "after 26 minutes"]
    assert table_of(figures(), ()) == []
