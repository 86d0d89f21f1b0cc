# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The search is held against trying every set."""

from __future__ import annotations

import random
import sys
from itertools import combinations
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._pairs import search as _pairs_search
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.search import (
    Explanation,
    best_explanation,
)

Case = tuple[dict[int, list[int]], dict[int, float], list[float]]


def score(chosen: tuple[int, ...], case: Case) -> float:
    hits, costs, weights = case
    seen = {each for one in chosen for each in hits[one]}
    return sum(weights[each] for each in seen) - sum(costs[one] for one in chosen)


def best_of_all(case: Case) -> float:
    """The best set of those that their own observations speak for."""
    hits, costs, weights = case
    able = [one for one in hits if sum(weights[each] for each in hits[one]) > costs[one]]
    return max(
        score(some, case) for size in range(len(able) + 1) for some in combinations(able, size)
    )


def dice_case(seed: int) -> Case:
    dice = random.Random(seed)
    observations = dice.randint(4, 24)
    weights = dice.choices((6.9, 4.0, 1.0, -0.5, -2.0), k=observations)
    hits = {
        one: sorted(dice.sample(range(observations), dice.randint(1, min(8, observations))))
        for one in range(dice.randint(2, 11))
    }
    return hits, {one: dice.choice((1.0, 3.0, 8.0)) for one in hits}, weights


def proven(found: Explanation) -> bool:
    """Return whether no other set is better."""
    return found.gap <= _pairs_search._TINY


@pytest.mark.parametrize("block", range(10))
def test_the_best_set_is_found_and_proven(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        case = dice_case(seed)
        found = best_explanation(*case)
        assert proven(found), seed
        assert found.score == pytest.approx(best_of_all(case)), seed
        assert found.score == pytest.approx(score(found.chosen, case)), seed


def test_without_time_the_gap_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pairs_search, "_MOST_BRANCHES", 0)
    gaps = 0
    for seed in range(400):
        case = dice_case(seed)
        found = best_explanation(*case)
        best = best_of_all(case)
        assert found.score <= best + 1e-9
        assert best <= found.score + found.gap + 1e-9, seed
        gaps += not proven(found)
    assert gaps, "no case is hard enough for this test"


def triangles(count: int) -> Case:
    """Blocks of three, of which two are the answer, joined by what was not measured.

    The bound is above the best everywhere, so that the search goes down until it must end.
    """
    hits: dict[int, list[int]] = {}
    for first in range(0, 3 * count, 3):
        for corner in range(3):
            hits[first + corner] = [first + corner, first + (corner + 1) % 3]
        hits[first] += [3 * count + first, 3 * count + first + 3]
    return hits, dict.fromkeys(hits, 8.0), [10.0] * 3 * count + [0.0] * (3 * count + 4)


def test_a_search_may_be_deeper_than_functions_call_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_pairs_search, "_MOST_BRANCHES", 300)
    frame, depth = sys._getframe(), 0
    while frame.f_back:
        frame, depth = frame.f_back, depth + 1
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 100)
    try:
        found = best_explanation(*triangles(80))
    finally:
        sys.setrecursionlimit(limit)
    assert (len(found.chosen), found.score) == (160, pytest.approx(80 * 14.0))
    assert not proven(found)


def bad_parts(count: int) -> Case:
    """Bad parts in a row, each next to the one before, and a switch that has all of their flows."""
    parts = {one: [3 * one, 3 * one + 1, 3 * one + 2, 3 * one + 3] for one in range(count)}
    every = range(3 * count + 2)
    costs = {**dict.fromkeys(parts, 8.0), count: 10.5}
    slow = [6.9] * (3 * count + 1)
    return {**parts, count: [*every]}, costs, [*slow, 14.0 - sum(slow)]


def steps(case: Case) -> int:
    """Return how many calls, to Python and to C, the search makes: the same on every machine."""
    calls = 0

    def count(_frame: Any, _event: str, _argument: Any) -> None:
        nonlocal calls
        calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        found = best_explanation(*case)
    finally:
        sys.setprofile(before)
    assert len(found.chosen) == len(case[0]) - 1
    return calls


def test_eight_times_as_many_bad_parts_take_about_eight_times_as_long() -> None:
    assert steps(bad_parts(400)) < 12 * steps(bad_parts(50))


def test_nothing_slow_is_nobodys_fault() -> None:
    assert best_explanation({0: [0, 1]}, {0: 8.0}, [-2.0, -1.5]).chosen == ()


def test_what_passes_elsewhere_is_not_to_blame() -> None:
    # Both explain the slow ones; one of them has good ones as well.
    hits = {0: [0, 1, 2], 1: [0, 1, 2, 3, 4]}
    assert best_explanation(hits, {0: 8.0, 1: 8.0}, [6.9, 6.9, 6.9, -2.0, -2.0]).chosen == (0,)


def test_one_whole_rather_than_its_parts() -> None:
    hits = {0: [0, 1], 1: [2, 3], 2: [4, 5], 9: [0, 1, 2, 3, 4, 5]}
    costs = {0: 8.0, 1: 8.0, 2: 8.0, 9: 10.5}
    assert best_explanation(hits, costs, [6.9] * 6).chosen == (9,)


def test_two_that_have_nothing_in_common() -> None:
    hits = {0: [0, 1], 1: [2, 3], 2: [1, 2]}
    found = best_explanation(hits, {0: 8.0, 1: 8.0, 2: 8.0}, [6.9] * 4)
    assert found.chosen == (0, 1)
    assert found.score == pytest.approx(4 * 6.9 - 16)
