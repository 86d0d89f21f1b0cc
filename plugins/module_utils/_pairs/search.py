# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The cheapest set of suspects that explains what was measured. Pure.

Each observation has a weight: how much more likely its value is if something on its way has failed,
as a logarithm. Slow flows weigh more than nothing, good ones less. A set of suspects earns the
weights of all observations that depend on any of them, and pays the cost of each suspect. The best
set is a weighted minimum hitting set in which good observations count against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Sequence

# Nodes of the search tree, per block of suspects that share observations.
_MOST_BRANCHES = 2000
_TINY = 1e-9


@dataclass(frozen=True)
class Explanation:
    """The chosen suspects, what they earn, and how much more any other set could at most."""

    chosen: tuple[int, ...]
    score: float
    gap: float

    @property
    def proven(self) -> bool:
        """Return whether no other set is better."""
        return self.gap <= _TINY


def best_explanation(
    hits: Mapping[int, Sequence[int]], costs: Mapping[int, float], weights: Sequence[float]
) -> Explanation:
    """Return the best set of suspects; `hits` has the observations of each.

    A suspect that its own observations do not speak for is not a candidate: what passes elsewhere
    is not to blame. Blocks that share no observation are solved each for itself: exactly where
    branch and bound comes to an end, otherwise with the gap that is left.
    """
    candidates = [
        one
        for one in sorted(hits)
        if sum(weights[observation] for observation in hits[one]) > costs[one]
    ]
    chosen: list[int] = []
    score = gap = 0.0
    for block in _blocks(candidates, hits):
        part = _Block(block, hits, costs, weights).solve()
        chosen += part.chosen
        score += part.score
        gap += part.gap
    return Explanation(tuple(sorted(chosen)), score, gap)


def _blocks(candidates: list[int], hits: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Return the candidates in groups that share observations."""
    parent: dict[int, int] = {one: one for one in candidates}

    def root(one: int) -> int:
        while parent[one] != one:
            parent[one] = parent[parent[one]]
            one = parent[one]
        return one

    first: dict[int, int] = {}
    for one in candidates:
        for observation in hits[one]:
            other = first.setdefault(observation, one)
            parent[root(one)] = root(other)
    blocks: dict[int, list[int]] = {}
    for one in candidates:
        blocks.setdefault(root(one), []).append(one)
    return list(blocks.values())


class _Block:
    def __init__(
        self,
        suspects: list[int],
        hits: Mapping[int, Sequence[int]],
        costs: Mapping[int, float],
        weights: Sequence[float],
    ) -> None:
        self.weights = weights
        self.costs = costs
        self.hits = {one: frozenset(hits[one]) for one in suspects}
        self.suspects = self._without_twins(suspects)
        self.of: dict[int, list[int]] = {}
        for one in self.suspects:
            for observation in self.hits[one]:
                self.of.setdefault(observation, []).append(one)
        self.branches = 0
        self.best: tuple[float, tuple[int, ...]] = (0.0, ())

    def _without_twins(self, suspects: list[int]) -> list[int]:
        """Keep the cheapest of those with the same observations."""
        cheapest: dict[frozenset[int], int] = {}
        for one in suspects:
            other = cheapest.get(self.hits[one])
            if other is None or self.costs[one] < self.costs[other]:
                cheapest[self.hits[one]] = one
        return sorted(cheapest.values())

    def score(self, chosen: Sequence[int]) -> float:
        """Return what a set earns less what it costs."""
        seen: set[int] = set()
        for one in chosen:
            seen |= self.hits[one]
        return sum(self.weights[each] for each in seen) - sum(self.costs[one] for one in chosen)

    def solve(self) -> Explanation:
        """Return the best set of this block."""
        greedy = self._improved(self._greedy())
        self.best = (self.score(greedy), tuple(greedy))
        bound = self._bound(frozenset(), self.suspects)
        if bound > self.best[0] + _TINY:
            rest = self._branch((), frozenset(), self.suspects)
            bound = max(self.best[0], min(bound, rest))
        return Explanation(self.best[1], self.best[0], max(0.0, bound - self.best[0]))

    def _gain(self, one: int, seen: frozenset[int] | set[int]) -> float:
        new = self.hits[one] - seen
        return sum(self.weights[each] for each in new) - self.costs[one]

    def _greedy(self) -> list[int]:
        chosen: list[int] = []
        seen: set[int] = set()
        left = list(self.suspects)
        while left:
            gains = [(self._gain(one, seen), one) for one in left]
            # Once worth nothing, a suspect may only gain by good observations that others took.
            left = [one for gain, one in gains if gain > 0]
            if not left:
                break
            best = max(gains, key=lambda pair: (pair[0], -pair[1]))[1]
            chosen.append(best)
            seen |= self.hits[best]
            left.remove(best)
        return chosen

    def _improved(self, chosen: list[int]) -> list[int]:
        """Drop and exchange members as long as that helps."""
        better = True
        while better:
            better = False
            now = self.score(chosen)
            for one in list(chosen):
                rest = [other for other in chosen if other != one]
                seen: set[int] = set()
                for other in rest:
                    seen |= self.hits[other]
                base = self.score(rest)
                if base > now + _TINY:
                    chosen, better = rest, True
                    break
                near = {each for each in self.hits[one] if self.weights[each] > 0}
                options = {other for each in near for other in self.of[each]} - set(chosen)
                gains = [(base + self._gain(other, seen), other) for other in sorted(options)]
                top = max(gains, default=(now, -1))
                if top[0] > now + _TINY:
                    chosen, better = [*rest, top[1]], True
                    break
        return chosen

    def _bound(self, seen: frozenset[int], left: Sequence[int]) -> float:
        """Return what the remaining suspects can earn at most, by prices for observations.

        Prices that no suspect's observations add up to more than it costs are a lower bound of
        what hitting them costs (weak duality). Good observations that several hit are paid once,
        so each of these is only charged its share.
        """
        slack: dict[int, float] = {}
        shared: dict[int, int] = {}
        for one in left:
            for each in self.hits[one]:
                shared[each] = shared.get(each, 0) + 1
        for one in left:
            against = sum(
                self.weights[each] / shared[each]
                for each in self.hits[one]
                if each not in seen and self.weights[each] < 0
            )
            slack[one] = self.costs[one] - against
        total = 0.0
        open_ones = [each for each in shared if each not in seen and self.weights[each] > 0]
        # Observations with few suspects first: their price is the least contested.
        for each in sorted(open_ones, key=lambda each: (shared[each], each)):
            hitters = [one for one in self.of[each] if one in slack]
            price = min(self.weights[each], *(slack[one] for one in hitters))
            for one in hitters:
                slack[one] -= price
            total += self.weights[each] - price
        return total

    def _branch(self, chosen: tuple[int, ...], seen: frozenset[int], left: list[int]) -> float:
        """Search below a set; return the bound of what was not searched (0 if all was)."""
        now = self.score(chosen)
        if now > self.best[0] + _TINY:
            self.best = (now, chosen)
        bound = now + self._bound(seen, left)
        if bound <= self.best[0] + _TINY:
            return 0.0
        self.branches += 1
        if self.branches > _MOST_BRANCHES:
            return bound
        counted: dict[int, int] = {}
        for one in left:
            for each in self.hits[one]:
                if each not in seen and self.weights[each] > 0:
                    counted[each] = counted.get(each, 0) + 1
        if not counted:
            return 0.0
        # The weightiest observation: one of its suspects, or none of them.
        pick = max(counted, key=lambda each: (self.weights[each], -counted[each], -each))
        options = [one for one in self.of[pick] if one in set(left)]
        options.sort(key=lambda one: -self._gain(one, seen))
        remaining, rest = list(left), 0.0
        for one in options:
            remaining = [other for other in remaining if other != one]
            rest = max(rest, self._branch((*chosen, one), seen | self.hits[one], remaining))
        return max(rest, self._branch(chosen, seen, remaining))
