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
from heapq import heapify, heappop, heappush
from typing import Iterable, Iterator, Mapping, Sequence

# Nodes of the search tree, per block of suspects that share observations.
_MOST_BRANCHES = 2000
_TINY = 1e-9
# Weights and costs are counted in whole steps: a sum is the same in any order, and what is taken
# from it and put back leaves no rest.
_STEPS = 10**12
_FEW_STEPS = round(_TINY * _STEPS)


@dataclass(frozen=True)
class Explanation:
    """The chosen suspects, what they earn, and how much more any other set could at most."""

    chosen: tuple[int, ...]
    score: float
    gap: float


def best_explanation(
    hits: Mapping[int, Sequence[int]], costs: Mapping[int, float], weights: Sequence[float]
) -> Explanation:
    """Return the best set of suspects; `hits` has the observations of each.

    A suspect that its own observations do not speak for is not a candidate: what passes elsewhere
    is not to blame. Blocks that share no observation are solved each for itself: exactly where
    branch and bound comes to an end, otherwise with the gap that is left.
    """
    worth = [round(weight * _STEPS) for weight in weights]
    price = {one: round(costs[one] * _STEPS) for one in hits}
    candidates = [
        one
        for one in sorted(hits)
        if sum(worth[observation] for observation in hits[one]) > price[one]
    ]
    chosen: list[int] = []
    score = gap = 0.0
    for block in _blocks(candidates, hits):
        part = _Block(block, hits, price, worth).solve()
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
    """The search in one block; weights and costs are in steps.

    `chosen`, `seen` and `left` are where in the tree it is: the suspects that are chosen, what they
    have of the observations, and the suspects that are not decided.
    """

    def __init__(
        self,
        suspects: list[int],
        hits: Mapping[int, Sequence[int]],
        costs: Mapping[int, int],
        weights: Sequence[int],
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
        self.best: tuple[int, tuple[int, ...]] = (0, ())
        # The bound of what was not searched.
        self.rest = 0
        self.chosen: list[int] = []
        self.seen: set[int] = set()
        self.left = set(self.suspects)

    def _without_twins(self, suspects: list[int]) -> list[int]:
        """Keep the cheapest of those with the same observations."""
        cheapest: dict[frozenset[int], int] = {}
        for one in suspects:
            other = cheapest.get(self.hits[one])
            if other is None or self.costs[one] < self.costs[other]:
                cheapest[self.hits[one]] = one
        return sorted(cheapest.values())

    def solve(self) -> Explanation:
        """Return the best set of this block."""
        greedy = self._improved(self._greedy())
        seen = {each for one in greedy for each in self.hits[one]}
        score = self._sum(seen) - sum(self.costs[one] for one in greedy)
        self.best = (score, tuple(greedy))
        bound, _shared = self._bound()
        # A walk for each suspect on the way down: more than Python lets functions call each other.
        walks = [self._walk(0)]
        while walks:
            now = next(walks[-1], None)
            if now is None:
                walks.pop()
            else:
                walks.append(self._walk(now))
        gap = max(0, min(bound, self.rest) - self.best[0])
        return Explanation(self.best[1], self.best[0] / _STEPS, gap / _STEPS)

    def _sum(self, observations: Iterable[int]) -> int:
        return sum(self.weights[each] for each in observations)

    def _gain(self, one: int) -> int:
        return self._sum(self.hits[one] - self.seen) - self.costs[one]

    def _greedy(self) -> list[int]:
        chosen: list[int] = []
        seen: set[int] = set()
        # Once worth nothing, a suspect may only gain by good observations that others took.
        gains = {one: gain for one in self.suspects for gain in [self._gain(one)] if gain > 0}
        queue = [(-gain, one) for one, gain in gains.items()]
        heapify(queue)
        while queue:
            gain, best = heappop(queue)
            if gains.get(best) != -gain:
                continue
            del gains[best]
            chosen.append(best)
            new = self.hits[best] - seen
            seen |= new
            near: set[int] = set()
            for each in new:
                for one in self.of[each]:
                    if one in gains:
                        gains[one] -= self.weights[each]
                        near.add(one)
            for one in near:
                if gains[one] > 0:
                    heappush(queue, (-gains[one], one))
                else:
                    del gains[one]
        return chosen

    def _improved(self, chosen: list[int]) -> list[int]:
        """Drop and exchange members as long as that helps, always the first that it helps with."""
        places = {one: place for place, one in enumerate(chosen)}
        next_place = len(chosen)
        # How many members have an observation, and what each suspect would earn besides.
        count: dict[int, int] = {}
        gains = {one: self._gain(one) for one in self.suspects}

        def put(one: int, more: int) -> None:
            for each in self.hits[one]:
                before = count.get(each, 0)
                count[each] = before + more
                if not before or not count[each]:
                    for other in self.of[each]:
                        gains[other] -= more * self.weights[each]

        for one in chosen:
            put(one, 1)
        queue = [(place, one) for one, place in places.items()]
        waiting = set(queue)
        while queue:
            place, one = heappop(queue)
            waiting.remove((place, one))
            if places.get(one) != place:
                continue
            put(one, -1)
            # Without this one the score is so much less.
            loss = gains[one]
            options = {
                other
                for each in self.hits[one]
                if self.weights[each] > 0
                for other in self.of[each]
                if other not in places
            }
            gain, best = max(((gains[other], other) for other in options), default=(0, -1))
            touched = self.hits[one]
            if -loss > _FEW_STEPS:
                del places[one]
            elif gain - loss > _FEW_STEPS:
                del places[one]
                places[best] = next_place
                next_place += 1
                put(best, 1)
                touched |= self.hits[best]
            else:
                put(one, 1)
                continue
            # What may help now and did not before.
            near = {other for each in touched for other in self.of[each]}
            again = near.union(
                *(self.of[each] for other in near for each in self.hits[other]
                  if self.weights[each] > 0)
            )  # fmt: skip
            for item in {(places[other], other) for other in again if other in places} - waiting:
                waiting.add(item)
                heappush(queue, item)
        return sorted(places, key=places.__getitem__)

    def _bound(self) -> tuple[int, dict[int, int]]:
        """Return what the suspects that are left can earn at most, by prices for observations.

        Prices that no suspect's observations add up to more than it costs are a lower bound of
        what hitting them costs (weak duality). Good observations that several hit are paid once,
        so each of these is only charged its share. Comes with how many hit each observation.
        """
        new = {one: self.hits[one] - self.seen for one in self.left}
        shared: dict[int, int] = {}
        for some in new.values():
            for each in some:
                shared[each] = shared.get(each, 0) + 1
        slack = {
            one: self.costs[one]
            + sum(-self.weights[each] // shared[each] for each in some if self.weights[each] < 0)
            for one, some in new.items()
        }
        total = 0
        open_ones = [each for each in shared if self.weights[each] > 0]
        # Observations with few suspects first: their price is the least contested.
        for each in sorted(open_ones, key=lambda each: (shared[each], each)):
            hitters = [one for one in self.of[each] if one in slack]
            price = min(self.weights[each], *(slack[one] for one in hitters))
            for one in hitters:
                slack[one] -= price
            total += self.weights[each] - price
        return total, shared

    def _walk(self, now: int) -> Iterator[int]:
        """Search below a set that scores `now`; yield the score of each one below it, in place."""
        if now > self.best[0] + _FEW_STEPS:
            self.best = (now, tuple(self.chosen))
        bound, shared = self._bound()
        if now + bound <= self.best[0] + _FEW_STEPS:
            return
        self.branches += 1
        if self.branches > _MOST_BRANCHES:
            self.rest = max(self.rest, now + bound)
            return
        # The weightiest observation: one of its suspects, or none of them.
        pick = max(
            (each for each in shared if self.weights[each] > 0),
            key=lambda each: (self.weights[each], -shared[each], -each),
        )
        options = [one for one in self.of[pick] if one in self.left]
        options.sort(key=self._gain, reverse=True)
        for one in options:
            new = self.hits[one] - self.seen
            gain = self._gain(one)
            self.left.remove(one)
            self.chosen.append(one)
            self.seen |= new
            yield now + gain
            self.seen -= new
            self.chosen.pop()
        yield now
        self.left.update(options)
