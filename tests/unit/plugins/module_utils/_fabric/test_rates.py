# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sample of the fabrics by which docs/fabric.md gives the rates (tests/fabric/rates.py)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import rates

SMALL = ("BasePOD, 12 nodes", "SuperPOD, 16 nodes", "leaf_spine, 16 nodes, 2 rails a leaf")
NUMBERS = [number for number in range(100) if rates.drawn(number).shape in SMALL]


@pytest.mark.parametrize("number", NUMBERS)
def test_nothing_is_invented_and_with_guids_all_is_found(number: int) -> None:
    rate = rates.run(number)
    assert (rate.broken_passed, rate.healthy_failed, rate.false) == (0, 0, 0), rate.wrong
    if rate.known != rates.NOT and not rate.cut:
        assert (rate.found, rate.wrong) == (rate.due, [])


def test_the_sample_has_all_of_what_is_known_and_goes_through_the_module() -> None:
    sample = [rates.drawn(number) for number in NUMBERS]
    assert {rate.known for rate in sample} == {rates.ASKED, rates.DECLARED, rates.NOT}
    assert {rate.form for rate in sample} == set(rates.FORMS_OF)
    assert {rate.wanted for rate in sample} == set(rates.COUNTS)
    assert Counter(rate.module for rate in sample)[True] >= 8
    assert any(rate.cut for rate in sample)


def test_a_number_is_always_the_same_fabric_and_the_module_judges_it_alike() -> None:
    number = next(n for n in NUMBERS if rates.drawn(n).module)
    fabric = rates.broken(number)
    one, two = rates.by_module(fabric.world), rates.by_judge(rates.broken(number).world)
    assert (one.findings, one.doubts, one.status) == (two.findings, two.doubts, two.status)
    assert one.findings


def test_a_report_fails_on_what_must_not_be() -> None:
    healthy = rates.Rate(
        1, SMALL[0], "planned", rates.ASKED, cut=False, due=200, found=199, wanted=1,
        of_fault=[("half_of_a_leaf_dead", 100, 100), ("rail_missing", 100, 99)],
    )  # fmt: skip
    assert list(rates.shortfalls([healthy])) == []
    assert list(rates.shortfalls([replace(healthy, found=197)])) == [
        "1 at once: 197 of 200 found", f"{SMALL[0]}: 197 of 200 found",
        "as planned: 197 of 200 found",
    ]  # fmt: skip
    half = replace(healthy, of_fault=[("half_of_a_leaf_dead", 100, 98)])
    assert list(rates.shortfalls([half])) == ["half devices: 98 of 100 found"]
    for known in (rates.ASKED, rates.DECLARED, rates.NOT):
        one = replace(healthy, known=known)
        assert list(rates.shortfalls([replace(one, broken_passed=1)]))
        assert list(rates.shortfalls([replace(one, healthy_failed=1, cut=True)]))
        cloned = replace(one, form="cloned", healthy_failed=1)
        assert bool(list(rates.shortfalls([cloned]))) is (known != rates.NOT)
        assert bool(list(rates.shortfalls([replace(one, false=1)]))) is (known != rates.NOT)
        assert list(rates.shortfalls([replace(one, form="none", false=1)]))
    # What a cut sweep does not show is not due, and without GUIDs no share is promised.
    assert list(rates.shortfalls([replace(half, cut=True), replace(half, known=rates.NOT)])) == []


def test_a_run_is_made_of_ranges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rates.jsonl"
    first = NUMBERS[0]
    for start in (first, first + 1):
        assert rates.main([str(start), str(start + 1), str(path)]) == 0
    lines = [json.loads(line)["number"] for line in path.read_text().splitlines()]
    assert lines == [first, first + 1]
    assert rates.main([str(path)]) == 0
    assert "2 fabrics, " in capsys.readouterr().out
