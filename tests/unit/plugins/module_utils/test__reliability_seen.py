# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts, histories and the table of the reliability arithmetic."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._reliability import (
    parts_from_data,
    reliability,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._reliability_seen import (
    ASSUMED_HOURS,
    counts_of,
    parts_for,
    seen_in,
    table_of,
)

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


def test_a_failure_that_nobody_mended_is_one():
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
    assert set(parts) == {"GPUs", "links"}
    assert parts["links"] == {"count": 2032, "mttf_hours": 5 * 8760}
    assert ASSUMED_HOURS["GPUs"] == pytest.approx(82_944, abs=1)
    figures = reliability(parts_from_data(parts), 72, 0.99, 24)
    rows = table_of(figures, {"links": 5})
    assert rows[1][:2] == ["GPUs", "1,016"]
    assert rows[1][4] == "9"
    # One assumed failure and nine that were seen.
    now = (82_944 + 1016 * 2190) / 10 / 8760
    assert rows[1][2] == f"{now:,.1f} years"
    assert rows[2][3] == "5.0 years (the inventory)"
    assert rows[3] == ["first failure of any", f"after {figures['first_failure_hours']:.0f} hours"]
    assert all(isinstance(cell, str) for row in rows for cell in row)


def test_the_figure_of_a_hundred_thousand_links_and_an_empty_cluster():
    figures = reliability(parts_from_data(parts_for({"links": 100_000}, {}, {"links": 5})), 72,
                          0.99, 24)  # fmt: skip
    assert table_of(figures, ())[2] == ["first failure of any", "after 26 minutes"]
    assert table_of(reliability([], 72, 0.99, 24), ()) == []
