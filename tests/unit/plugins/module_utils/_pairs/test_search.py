# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The search is held against trying every set."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._pairs import search as _pairs_search
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.search import best_explanation

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


@pytest.mark.parametrize("block", range(10))
def test_the_best_set_is_found_and_proven(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        case = dice_case(seed)
        found = best_explanation(*case)
        assert found.proven, seed
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
        gaps += not found.proven
    assert gaps, "no case is hard enough for this test"


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
