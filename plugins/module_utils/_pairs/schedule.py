# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Which pairs of nodes measure together, in which round, so that every link is loaded. Pure.

A unit is two nodes and all rails of both at once, since the rails of a node share neither PCIe
lanes nor cables: rail r of one with rail r + shift of the other. Its halves are the two directions,
one after the other. In a round a node is in one unit, and no two flows of a half share a link: two
flows on one cable would halve each other, and the routing would be measured instead of the cable.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any, Iterable, Iterator, Mapping, Tuple

from .._fabric.model import CablePlan, End, rail_end
from .._fabric.routes import NoRouteError, Routes

VERSION = 1
HALVES = (0, 1)

# A link is distinguished from the next one on the way by as many flows that use only one of the
# two.
SEPARATING_FLOWS = 2
# How many partners of a node are weighed at a time, and how many in a fabric of over 128 nodes:
# there, with its many more pairs, a sample of them is as good.
_MOST_PARTNERS = 64
_FEW_PARTNERS = 32
_MOST_SHIFTS = 4
# Orders of the nodes that are tried for a round of a small fabric; the best is kept.
_TRIES = 3
_SMALL = 64
_MOST_ROUNDS = 1000
_MOST_WAYS = 40000
# Links of a route; five are enough for three tiers, a route with more goes round in a loop.
_LONGEST_WAY = 16

# A rail and the links from it to the rail it meets, and back.
_Way = Tuple[int, Tuple[int, ...], Tuple[int, ...]]


@dataclass(frozen=True, order=True)
class Unit:
    """Two nodes that measure together, or one with itself: then each adapter turns its data round.

    `rails` are those of node a; rail r meets rail (r + shift) mod `modulus` of node b.
    """

    a: str
    b: str
    shift: int
    rails: tuple[int, ...]
    modulus: int

    @property
    def pair(self) -> tuple[str, str]:
        """The two nodes, whichever way round."""
        return (min(self.a, self.b), max(self.a, self.b))

    def flows(self, half: int) -> list[tuple[End, End]]:
        """Return sender and receiver of each flow; the second half goes the other way."""
        ways = [
            (rail_end(self.a, rail), rail_end(self.b, (rail + self.shift) % self.modulus))
            for rail in self.rails
        ]
        return [(two, one) for one, two in ways] if half else ways

    @property
    def loopback(self) -> bool:
        """Return whether the data stays inside the adapters."""
        return self.a == self.b


@dataclass(frozen=True)
class Schedule:
    """Rounds of units, and what they cannot do."""

    rounds: tuple[tuple[Unit, ...], ...]
    pairs_per_link: int
    seed: int
    routes: str
    # Directed links (by the end that sends) that no pair of these nodes can load.
    unloaded: tuple[End, ...] = ()
    # Directed links that fewer pairs load than was asked for, and how many do.
    thin: tuple[tuple[End, int], ...] = ()

    def flows(self) -> Iterator[tuple[int, int, Unit, End, End]]:
        """Yield round, half, unit, sender and receiver of every flow."""
        for number, units in enumerate(self.rounds):
            for half in HALVES:
                for unit in units:
                    for source, target in unit.flows(half):
                        yield number, half, unit, source, target


@dataclass(frozen=True)
class Request:
    """What a schedule shall do; `excluded` has names of nodes, and rails as node/rail3."""

    pairs_per_link: int = 3
    seed: int = 1
    loopback: bool = True
    cross_rail: bool = True
    excluded: frozenset[str] = frozenset()


def make_schedule(plan: CablePlan, routes: Routes, request: Request | None = None) -> Schedule:
    """Return rounds that load each link by as many different pairs in each direction as wanted.

    The same plan, routes and seed give the same schedule. Rails meet their like first; unlike rails
    meet only where a link is loaded in no other way.
    """
    return _Builder(plan, routes, request or Request()).build()


class _Builder:
    def __init__(self, plan: CablePlan, routes: Routes, request: Request) -> None:
        self.routes = routes
        self.request = request
        self.random = random.Random(request.seed)
        self.rails: dict[str, list[int]] = {}
        for node, rail in sorted(plan.hcas):
            if {node, f"{node}/rail{rail}"} & request.excluded:
                continue
            if rail_end(node, rail) in routes.by_end:
                self.rails.setdefault(node, []).append(rail)
        self.nodes = sorted(self.rails)
        self.modulus = 1 + max((rail for _node, rail in plan.hcas), default=0)
        self.ends: list[End] = sorted({end for cable in plan.cables for end in (cable.a, cable.b)})
        self.number = {end: index for index, end in enumerate(self.ends)}
        self.of_interest = [self._concerns_these_nodes(end) for end in self.ends]
        # Rails and leaf switches by number: looking up ends costs most of the time otherwise.
        self.rail_of: dict[tuple[str, int], int] = {}
        self.leaf_of: dict[int, str] = {}
        for node, rails in self.rails.items():
            for rail in rails:
                number = self.number[rail_end(node, rail)]
                self.rail_of[node, rail] = number
                self.leaf_of[number] = routes.leaf_port(rail_end(node, rail)).host
        far = [routes.by_end[end].other(end) for end in self.ends]
        self.switch_after = [end.host if end.is_switch else None for end in far]
        self.tails: dict[tuple[str, int], tuple[int, ...] | None] = {}
        self.ways: dict[tuple[str, str, int], list[_Way]] = {}
        self.need = [0] * len(self.ends)
        self.pairs: list[set[tuple[str, str]]] = [set() for _turn in self.ends]
        # Pairs of links that too few flows tell apart: link -> the others
        self.alike: dict[int, dict[int, int]] = {}
        self.used: set[tuple[str, str, int]] = set()
        self.rounds: list[tuple[Unit, ...]] = []

    def _concerns_these_nodes(self, end: End) -> bool:
        """A link from or to a rail that takes no part need not be loaded."""
        far = self.routes.by_end[end].other(end)
        rails = [one for one in (end, far) if not one.is_switch]
        return all(rail.rail in self.rails.get(rail.host, ()) for rail in rails)

    def build(self) -> Schedule:
        """Return the schedule."""
        if self.request.loopback and self.nodes:
            self.rounds.append(
                tuple(
                    Unit(node, node, 0, tuple(self.rails[node]), self.modulus)
                    for node in self.nodes
                )
            )
        same = self._reach(same_rail=True)
        self._ask_for(same)
        self._add_rounds((0,))
        reach = same
        shifts: tuple[int, ...] = (0,)
        if self.request.cross_rail:
            reach = self._reach(same_rail=False)
            self._ask_for(reach)
            if any(self.need):
                shifts = tuple(range(1, self.modulus))
                self._add_rounds(shifts)
        self._ask_for_separation()
        self._add_rounds((0,))
        if len(shifts) > 1 and self.alike:
            self._add_rounds(shifts)
        k = self.request.pairs_per_link
        loaded = [
            (end, len(self.pairs[index]))
            for index, end in enumerate(self.ends)
            if self.of_interest[index]
        ]
        return Schedule(
            rounds=tuple(self.rounds),
            pairs_per_link=k,
            seed=self.request.seed,
            routes=self.routes.source,
            unloaded=tuple(end for end, count in loaded if not count),
            thin=tuple((end, count) for end, count in loaded if 0 < count < k),
        )

    def _links(self, source: int, target: int) -> tuple[int, ...] | None:
        """Return the links between two rails; None where there is no route."""
        key = (self.leaf_of[source], target)
        if key not in self.tails:
            try:
                tail = self.routes.tail(key[0], self.ends[target])
                self.tails[key] = tuple(self.number[end] for end in tail)
            except NoRouteError:
                self.tails[key] = None
        known = self.tails[key]
        return None if known is None else (source, *known)

    def _ways(self, a: str, b: str, shift: int) -> list[_Way]:
        """Return each rail of node a that has a way to b and back, with the links of both."""
        known = self.ways.get((a, b, shift))
        if known is not None:
            return known
        found = []
        for rail in self.rails[a]:
            far = self.rail_of.get((b, (rail + shift) % self.modulus))
            if far is not None:
                near = self.rail_of[a, rail]
                there, back = self._links(near, far), self._links(far, near)
                if there is not None and back is not None:
                    found.append((rail, there, back))
        if len(self.ways) < _MOST_WAYS:
            self.ways[a, b, shift] = found
        return found

    def _reach(self, same_rail: bool) -> Counter[int]:
        """Return how many pairs there are whose flows take each link."""
        reach: Counter[int] = Counter()
        sources: dict[int, Counter[str]] = {}
        for (_node, rail), number in self.rail_of.items():
            group = rail if same_rail else 0
            sources.setdefault(group, Counter())[self.leaf_of[number]] += 1
        everyone = len(self.nodes) - 1
        for (_node, rail), number in self.rail_of.items():
            own = self.leaf_of[number]
            hops: dict[str, int | None] = {}
            for leaf, count in sources[rail if same_rail else 0].items():
                others = count - (leaf == own)
                for link in self._way_down(leaf, number, hops) if others else ():
                    reach[link] += others
            reach[number] = everyone
        return reach

    def _way_down(self, leaf: str, target: int, hops: dict[str, int | None]) -> list[int]:
        """Return the links from a leaf to a rail, nothing where they do not lead there.

        `hops` has each switch's link to this rail. Routes remembers whole routes, of which there
        are millions here.
        """
        links: list[int] = []
        switch: str | None = leaf
        while switch is not None and len(links) < _LONGEST_WAY:
            if switch not in hops:
                end = self.routes.next_end(switch, self.ends[target])
                hops[switch] = None if end is None else self.number[end]
            link = hops[switch]
            if link is None:
                return []
            links.append(link)
            switch = self.switch_after[link]
        return links if links and self.leaf_of[target] == self.ends[links[-1]].host else []

    def _ask_for(self, reach: Counter[int]) -> None:
        k = self.request.pairs_per_link
        for link in range(len(self.ends)):
            wanted = min(k, reach[link]) if self.of_interest[link] else 0
            self.need[link] = max(0, wanted - len(self.pairs[link]))

    def _ask_for_separation(self) -> None:
        """Ask for flows that use one of two links where too few do that yet."""
        uses: Counter[int] = Counter()
        together: Counter[tuple[int, int]] = Counter()
        for units in self.rounds:
            for unit in units:
                for half in () if unit.loopback else HALVES:
                    for links in self._of_unit(unit, half):
                        uses.update(links)
                        together.update(zip(links, links[1:]))
        self.alike = {}
        for (one, two), count in together.items():
            missing = SEPARATING_FLOWS - (uses[one] + uses[two] - 2 * count)
            if missing > 0:
                self.alike.setdefault(one, {})[two] = missing
                self.alike.setdefault(two, {})[one] = missing

    def _add_rounds(self, shifts: tuple[int, ...]) -> None:
        while (any(self.need) or self.alike) and len(self.rounds) < _MOST_ROUNDS:
            orders = _TRIES if len(self.nodes) <= _SMALL else 1
            tries = [self._round(shifts) for _order in range(orders)]
            gain, units = max(tries, key=lambda each: each[0])
            if not gain:
                return
            for unit in units:
                self._take(unit)
            self.rounds.append(tuple(sorted(units)))

    def _round(self, shifts: tuple[int, ...]) -> tuple[int, list[Unit]]:
        """Return a round that was put together node by node, and its gain."""
        free = list(self.nodes)
        self.random.shuffle(free)
        busy: tuple[set[int], set[int]] = (set(), set())
        units: list[Unit] = []
        total = 0
        spare: list[str] = []
        while free:
            node = free.pop()
            best: tuple[int, Unit] | None = None
            for partner, shift in self._candidates(free, shifts):
                gain, unit = self._weigh(node, partner, shift, busy)
                if unit is not None and gain and (best is None or gain > best[0]):
                    best = (gain, unit)
            if best is None:
                spare.append(node)
                continue
            total += best[0]
            units.append(best[1])
            free.remove(best[1].b)
            self._occupy(best[1], busy)
        if total:
            units += self._fill(spare, busy)
        return total, units

    def _fill(self, spare: list[str], busy: tuple[set[int], set[int]]) -> Iterator[Unit]:
        """Yield units of nodes that would be idle: more evidence in the same time."""
        while spare:
            node = spare.pop()
            for partner in spare[:_MOST_PARTNERS]:
                _gain, unit = self._weigh(node, partner, 0, busy)
                if unit is not None and len(unit.rails) == len(self.rails[node]):
                    self._occupy(unit, busy)
                    spare.remove(partner)
                    yield unit
                    break

    def _candidates(self, free: list[str], shifts: tuple[int, ...]) -> Iterable[tuple[str, int]]:
        """Return whom a node may meet, and with which shift: a sample where there are many."""
        if len(shifts) > _MOST_SHIFTS:
            shifts = tuple(self.random.sample(shifts, _MOST_SHIFTS))
        most = _MOST_PARTNERS if len(self.nodes) <= 2 * _MOST_PARTNERS else _FEW_PARTNERS
        most = max(1, most // (len(shifts) if most == _FEW_PARTNERS else 1))
        partners = free if len(free) <= most else self.random.sample(free, most)
        return ((partner, shift) for partner in partners for shift in shifts)

    def _weigh(
        self, a: str, b: str, shift: int, busy: tuple[set[int], set[int]]
    ) -> tuple[int, Unit | None]:
        """Return what a unit would bring and the unit, with the rails whose links are free."""
        if (a, b, shift) in self.used or (b, a, -shift % self.modulus) in self.used:
            return 0, None
        pair = (min(a, b), max(a, b))
        need, alike, first, second = self.need, self.alike, *busy
        # Two nodes that have met with other rails are not a new pair for the links they had then.
        met = shift != 0
        rails, gain = [], 0
        mine: tuple[set[int], set[int]] = (set(), set())
        for rail, there, back in self._ways(a, b, shift):
            if not (first.isdisjoint(there) and second.isdisjoint(back)):
                continue
            if not (mine[0].isdisjoint(there) and mine[1].isdisjoint(back)):
                continue
            mine[0].update(there)
            mine[1].update(back)
            rails.append(rail)
            for links in (there, back):
                for link in links:
                    if need[link] and (not met or pair not in self.pairs[link]):
                        gain += need[link]
                    if alike and link in alike:
                        gain += sum(1 for other in alike[link] if other not in links)
        if not rails:
            return 0, None
        return gain, Unit(a, b, shift, tuple(rails), self.modulus)

    def _of_unit(self, unit: Unit, half: int) -> Iterator[tuple[int, ...]]:
        """Yield the links of each flow of a unit."""
        for rail, there, back in self._ways(unit.a, unit.b, unit.shift):
            if rail in unit.rails:
                yield back if half else there

    def _occupy(self, unit: Unit, busy: tuple[set[int], set[int]]) -> None:
        for half in HALVES:
            for links in self._of_unit(unit, half):
                busy[half].update(links)

    def _take(self, unit: Unit) -> None:
        """Count what a unit of a finished round has brought."""
        self.used.add((unit.a, unit.b, unit.shift))
        for half in HALVES:
            for links in self._of_unit(unit, half):
                for link in links:
                    if unit.pair not in self.pairs[link]:
                        self.pairs[link].add(unit.pair)
                        self.need[link] = max(0, self.need[link] - 1)
                    if link in self.alike:
                        self._separate(link, links)

    def _separate(self, link: int, links: tuple[int, ...]) -> None:
        for other in [one for one in self.alike[link] if one not in links]:
            left = self.alike[link][other] - 1
            for one, two in ((link, other), (other, link)):
                self.alike[one][two] = left
                if not left:
                    del self.alike[one][two]
                    if not self.alike[one]:
                        del self.alike[one]


def schedule_to_data(schedule: Schedule) -> dict[str, Any]:
    """Return mappings, lists and scalars, for JSON."""
    return {
        "version": VERSION,
        "seed": schedule.seed,
        "pairs_per_link": schedule.pairs_per_link,
        "routes": schedule.routes,
        "rounds": [
            [[unit.a, unit.b, unit.shift, list(unit.rails), unit.modulus] for unit in units]
            for units in schedule.rounds
        ],
        "unloaded": [[end.host, end.rail, end.port] for end in schedule.unloaded],
        "thin": [[[end.host, end.rail, end.port], count] for end, count in schedule.thin],
    }


def schedule_from_data(data: Mapping[str, Any]) -> Schedule:
    """Return what schedule_to_data wrote; KeyError, TypeError or ValueError for other things."""
    return Schedule(
        rounds=tuple(
            tuple(Unit(a, b, shift, tuple(rails), modulus) for a, b, shift, rails, modulus in units)
            for units in data["rounds"]
        ),
        pairs_per_link=data["pairs_per_link"],
        seed=data["seed"],
        routes=data["routes"],
        unloaded=tuple(End(*end) for end in data["unloaded"]),
        thin=tuple((End(*end), count) for end, count in data["thin"]),
    )


def all_pairs_rounds(nodes: int) -> int:
    """Return the rounds in which each meets each other (the circle method)."""
    return max(0, nodes - 1 if nodes % 2 == 0 else nodes)
