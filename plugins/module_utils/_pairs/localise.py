# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""From the values of pair tests to the parts that are to blame, and what remains open. Pure.

A value is not good or bad by itself: it is compared with the fleet (median and spread), and counts
for or against a fault on its way by how likely it is with and without one. A threshold decides on
the fleet as a whole. So noise blames no part, and a part is found that is slow but above the
threshold. Flows of another rate are another fleet, with another threshold.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import Mapping, Sequence, Tuple

from .._core.record import Threshold
from .._fabric.model import CablePlan, End
from .._fabric.routes import NoRouteError, Routes
from .search import Explanation, best_explanation
from .suspects import BOTH, COST, IN_PART, NODE, PAIR, SWITCH, Suspect, Suspects, elements

# Whether a flow is a loopback, and its rate: what is compared with each other.
Kind = Tuple[bool, float]

# A good value that is not from the spread of good values: a process that was interrupted.
_GLITCH = 1e-3
# A bad part that lets a flow through unharmed.
_UNHARMED = 0.03
# An explanation that is 20 times less likely is out; what is nearer cannot be distinguished.
_CLASS_MARGIN = 3.0
# Of the parts of a node or switch that fails without being dead, each fails with this chance.
_PART_FAILS = 0.75
_CLEARLY = 3.0
_FEWEST_PARTS = 3
# No spread is believed to be smaller than this share of the median.
_LEAST_SPREAD = 0.01
_FEWEST_VALUES = 8
# Good flows of one fabric do not differ so much: three times the noise that is allowed for.
_FAR_APART = 0.15
# What a good link reaches of its rate where there are too few values to say: 392 of 400 Gb/s.
_REACHES = 0.98
# Chance that any of all good values of a run is called low.
_FALSE_LOW = 0.01


def significant(value: float, digits: int = 4) -> float:
    """Return a value in so many significant digits: 391.87 as 391.9, 0.0071234 as 0.007123."""
    return float(f"{value:.{digits}g}")


@dataclass(frozen=True)
class Measurement:
    """One flow of one half of a round; gbps is None where it was not measured, and reason says why.

    0 Gb/s is a measurement: the tool reports that no packet got through.
    """

    round: int
    half: int
    source: End
    target: End
    gbps: float | None
    reason: str = ""
    at: str = ""

    @property
    def loopback(self) -> bool:
        """Return whether the data stayed inside one adapter."""
        return self.source == self.target

    def __str__(self) -> str:
        value = "not measured" if self.gbps is None else f"{significant(self.gbps, 3):g} Gb/s"
        return f"{self.source} to {self.target}: {value}"


@dataclass(frozen=True)
class Fleet:
    """What good flows of one kind reach: median, spread (a standard deviation), of how many."""

    median: float
    spread: float
    values: int


@dataclass(frozen=True)
class Finding:
    """Parts of which one is to blame, the most likely first; more than one is an ambiguity.

    `flows` are the measurements that it explains, `good` counts those that it lets through.
    """

    suspects: tuple[Suspect, ...]
    flows: tuple[Measurement, ...]
    # Of the kind of flows that speaks for it most, and what these reach.
    kind: Kind
    median_gbps: float
    good: int
    # Whether the values reach the threshold and are only slower than those of the others.
    legal: bool
    # The elements of a node or switch where not all of them fail.
    affected: tuple[str, ...] = ()

    @property
    def subjects(self) -> tuple[str, ...]:
        """The names of the parts, each once."""
        return tuple(dict.fromkeys(suspect.subject for suspect in self.suspects))

    @property
    def interaction(self) -> bool:
        """Return whether each part passes with others, and only this combination fails."""
        return self.suspects[0].kind == PAIR


@dataclass
class Verdict:
    """What the measurements say."""

    fleets: dict[Kind, Fleet]
    findings: list[Finding]
    explanation: Explanation
    both_ways: bool
    # Low values that nothing explains and that are too few to blame a part.
    unexplained: list[Measurement] = field(default_factory=list)
    # Flows that shared a link with another of the same half, by that link.
    collisions: dict[End, list[Measurement]] = field(default_factory=dict)
    unrouted: list[Measurement] = field(default_factory=list)
    # What judged the parts: measured, routed and alone on their way.
    counted: list[Measurement] = field(default_factory=list)
    # The same by what they are compared with.
    alike: dict[Kind, list[Measurement]] = field(default_factory=dict)
    unmeasured: list[Measurement] = field(default_factory=list)


@dataclass
class Ways:
    """What a list of flows depends on, whatever is measured: worth keeping between judgements."""

    # By flow: its suspects and its kind. By suspect: its flows.
    suspects: list[tuple[int, ...]]
    kinds: list[Kind]
    hits: dict[int, list[int]]
    unrouted: set[int]
    # Directed links that several flows of one half take, with these flows.
    crowded: dict[End, list[int]]


class Localiser:
    """Judges measurements of one plan along its routes.

    With both_ways a flow is a test in both directions at once (perftest's -b), of which only the
    sum is known.
    """

    def __init__(self, plan: CablePlan, routes: Routes, both_ways: bool = False) -> None:
        self.plan = plan
        self.both_ways = both_ways
        self.suspects = Suspects(plan, routes)
        self.elements = elements(plan)

    def prepare(self, flows: Sequence[Measurement]) -> Ways:
        """Return what the flows depend on."""
        kinds = [kind_of(self.suspects, flow) for flow in flows]
        ways = Ways([], kinds, {}, set(), {})
        taken: dict[tuple[int, int, End], list[int]] = {}
        for index, flow in enumerate(flows):
            directions = [(flow.source, flow.target)]
            if self.both_ways:
                directions.append((flow.target, flow.source))
            found: tuple[int, ...] = ()
            try:
                for source, target in directions:
                    found += self.suspects.of_flow(source, target)
                    for link in self.suspects.links(source, target):
                        taken.setdefault((flow.round, flow.half, link), []).append(index)
            except NoRouteError:
                ways.unrouted.add(index)
                found = ()
            ways.suspects.append(tuple(dict.fromkeys(found)))
            for one in ways.suspects[-1]:
                ways.hits.setdefault(one, []).append(index)
        for (_round, _half, link), some in taken.items():
            if len(some) > 1:
                ways.crowded.setdefault(link, []).extend(some)
        return ways

    def judge(
        self,
        measurements: Sequence[Measurement],
        thresholds: Mapping[float, Threshold],
        ways: Ways | None = None,
    ) -> Verdict:
        """Return what the measurements say; `thresholds` has one for each rate of the plan.

        `ways` is what prepare made of the same flows.
        """
        ways = ways or self.prepare(measurements)
        verdict = Verdict({}, [], Explanation((), 0.0, 0.0), self.both_ways)
        void = ways.unrouted | {each for some in ways.crowded.values() for each in some}
        counted = [
            index
            for index, flow in enumerate(measurements)
            if flow.gbps is not None and index not in void
        ]
        verdict.counted = [measurements[index] for index in counted]
        verdict.unmeasured = [flow for flow in measurements if flow.gbps is None]
        verdict.unrouted = [measurements[index] for index in sorted(ways.unrouted)]
        verdict.collisions = {
            link: [measurements[index] for index in some] for link, some in ways.crowded.items()
        }
        for index in counted:
            verdict.alike.setdefault(ways.kinds[index], []).append(measurements[index])
        one_rate = len({rate for _loopback, rate in verdict.alike}) == 1
        verdict.fleets = {
            (loopback, rate): fleet_of(
                _values_of(flows, thresholds[rate], one_rate),
                thresholds[rate],
                rate * (1 + self.both_ways),
            )
            for (loopback, rate), flows in verdict.alike.items()
        }
        # What was not measured weighs nothing: it speaks neither for nor against any part.
        weights = [0.0] * len(measurements)
        for index in counted:
            flow = measurements[index]
            weights[index] = weigh(flow.gbps or 0.0, verdict.fleets[ways.kinds[index]])
        hits, affected = self._candidates(ways, weights)
        costs = {one: self.suspects.all[one].cost for one in hits}
        verdict.explanation = best_explanation(hits, costs, weights)
        for group in self._classes(verdict.explanation.chosen, hits, costs, weights):
            verdict.findings.append(
                self._finding(group, hits, affected, weights, measurements, ways.kinds, thresholds)
            )
        explained = {each for one in verdict.explanation.chosen for each in hits[one]}
        verdict.unexplained = [
            measurements[index]
            for index in counted
            if index not in explained
            and is_low(measurements[index], verdict.fleets[ways.kinds[index]], len(counted))
        ]
        return verdict

    def _candidates(
        self, ways: Ways, weights: Sequence[float]
    ) -> tuple[dict[int, list[int]], dict[int, tuple[str, ...]]]:
        """Return the suspects that slow flows speak for, with their flows.

        To them come nodes and switches of which several, not all, parts fail: these parts.
        """
        spoken: dict[int, float] = {}
        for index, weight in enumerate(weights):
            if weight > 0:
                for one in ways.suspects[index]:
                    spoken[one] = spoken.get(one, 0.0) + weight
        found: dict[int, list[int]] = {}
        affected: dict[int, tuple[str, ...]] = {}
        for one, weight in spoken.items():
            suspect = self.suspects.all[one]
            if weight > suspect.cost - _CLASS_MARGIN:
                found[one] = _speaking(ways.hits[one], ways.kinds, weights)
                if suspect.kind in (NODE, SWITCH):
                    self._add_partial_fault(suspect, ways, weights, found, affected)
        return found, affected

    def _add_partial_fault(
        self,
        suspect: Suspect,
        ways: Ways,
        weights: Sequence[float],
        found: dict[int, list[int]],
        affected: dict[int, tuple[str, ...]],
    ) -> None:
        number = self.suspects.number
        measured, bad = 0, []
        for subjects in self.elements.get(suspect.subject, ()):
            known = [number[name, BOTH] for name in subjects if (name, BOTH) in number]
            seen = {
                each
                for part in known
                for each in _speaking(ways.hits.get(part, ()), ways.kinds, weights)
            }
            measured += any(weights[each] for each in seen)
            if sum(weights[each] for each in seen) > _CLEARLY:
                bad.append((subjects[0], seen))
        if _FEWEST_PARTS <= len(bad) < measured:
            cost = COST[suspect.kind] - len(bad) * math.log(_PART_FAILS)
            cost -= (measured - len(bad)) * math.log(1 - _PART_FAILS)
            index = self.suspects.add(Suspect(suspect.subject, suspect.kind, IN_PART, cost))
            found[index] = sorted(set().union(*(seen for _name, seen in bad)))
            affected[index] = tuple(name for name, _seen in bad)

    def _classes(
        self,
        chosen: Sequence[int],
        hits: dict[int, list[int]],
        costs: dict[int, float],
        weights: Sequence[float],
    ) -> list[list[int]]:
        """Return each chosen suspect with all that could be in its place, the best first."""
        covered = Counter(each for one in chosen for each in hits[one])
        of: dict[int, list[int]] = {}
        for one, some in hits.items():
            for each in some:
                of.setdefault(each, []).append(one)
        groups: list[list[int]] = []
        for one in chosen:
            own = {each for each in hits[one] if covered[each] == 1}
            worth = sum(weights[each] for each in own) - costs[one]
            near = []
            for other in {other for each in own for other in of[each]} - {one}:
                new = [each for each in hits[other] if each in own or each not in covered]
                gain = sum(weights[each] for each in new) - costs[other]
                if gain > worth - _CLASS_MARGIN:
                    near.append((gain, other))
            groups.append([one, *(other for _gain, other in sorted(near, reverse=True))])
        return groups

    def _finding(
        self,
        group: Sequence[int],
        hits: dict[int, list[int]],
        affected: dict[int, tuple[str, ...]],
        weights: Sequence[float],
        flows: Sequence[Measurement],
        kinds: Sequence[Kind],
        thresholds: Mapping[float, Threshold],
    ) -> Finding:
        slow = [each for each in hits[group[0]] if weights[each] > 0]
        kind = _heaviest(slow, kinds, weights)
        middle = statistics.median(flows[each].gbps or 0.0 for each in slow if kinds[each] == kind)
        return Finding(
            suspects=tuple(self.suspects.all[one] for one in group),
            flows=tuple(flows[each] for each in slow),
            kind=kind,
            median_gbps=middle,
            good=sum(1 for each in hits[group[0]] if weights[each] < 0),
            legal=thresholds[kind[1]].holds(middle),
            affected=affected.get(group[0], ()),
        )


def kind_of(suspects: Suspects, flow: Measurement) -> Kind:
    """Return with what a flow is compared."""
    return flow.loopback, suspects.rate_gbps(flow.source, flow.target)


def _values_of(flows: Sequence[Measurement], threshold: Threshold, one_rate: bool) -> list[float]:
    """Return the values of flows of one kind, of which the median is that of a fleet.

    In a fabric of several rates few nodes may have this one. Where the median is low and a node is
    in most of the flows it is the median of this node, and only those above the threshold count.
    """
    values = [flow.gbps or 0.0 for flow in flows]
    if one_rate:
        return values
    nodes = Counter(node for flow in flows for node in sorted({flow.source.host, flow.target.host}))
    if max(nodes.values()) * 2 > len(flows) and not threshold.holds(statistics.median(values)):
        return [value for value in values if threshold.holds(value)]
    return values


def _heaviest(slow: Sequence[int], kinds: Sequence[Kind], weights: Sequence[float]) -> Kind:
    """Return the kind of slow flows that weighs most."""
    return max(
        {kinds[each] for each in slow},
        key=lambda kind: sum(weights[each] for each in slow if kinds[each] == kind),
    )


def _speaking(hits: Sequence[int], kinds: Sequence[Kind], weights: Sequence[float]) -> list[int]:
    """Return the flows over a part that speak for or against a fault of it.

    A part that is slow at its rate may still carry all of a lower one, and such flows are left out.
    """
    slow = [each for each in hits if weights[each] > 0]
    if not slow:
        return list(hits)
    _loopback, least = _heaviest(slow, kinds, weights)
    return [each for each in hits if weights[each] > 0 or kinds[each][1] >= least]


def fleet_of(values: Sequence[float], threshold: Threshold, rate_gbps: float) -> Fleet:
    """Return what good flows reach, judged by the flows themselves where there are enough.

    Where about half of them are bad the median is not a measure. Then those above the threshold
    are, if they are a fifth at least; and where values lie far apart, those above the middle are.
    """
    if len(values) >= _FEWEST_VALUES:
        good = [value for value in values if threshold.holds(value)]
        if not threshold.holds(statistics.median(values) / 0.95) and len(good) * 5 >= len(values):
            values = good
        middle, spread = _middle_and_spread(values)
        if spread > _FAR_APART * middle:
            middle, spread = _middle_and_spread([value for value in values if value >= middle])
        if middle > 0:
            return Fleet(middle, max(spread, _LEAST_SPREAD * middle), len(values))
    expected = _REACHES * rate_gbps
    return Fleet(expected, 2 * _LEAST_SPREAD * expected, 0)


def _middle_and_spread(values: Sequence[float]) -> tuple[float, float]:
    middle = statistics.median(values)
    # 1.4826 makes the median absolute deviation a standard deviation.
    return middle, 1.4826 * statistics.median(abs(value - middle) for value in values)


def weigh(gbps: float, fleet: Fleet) -> float:
    """Return how much more likely a value is with a fault on its way, as a logarithm.

    A fault may leave any rate; a good way gives values around the median, and more is as good.
    """
    deviations = max(0.0, (fleet.median - gbps) / fleet.spread)
    uniform = fleet.spread * math.sqrt(2 * math.pi) / fleet.median
    usual = math.exp(-deviations * deviations / 2)
    good = (1 - _GLITCH) * usual + _GLITCH * uniform
    bad = _UNHARMED * usual + (1 - _UNHARMED) * uniform
    return math.log(bad / good)


def is_low(flow: Measurement, fleet: Fleet, count: int) -> bool:
    """Return whether a value is lower than chance allows for any of so many good ones."""
    if flow.gbps is None:
        return False
    deviations = (fleet.median - flow.gbps) / fleet.spread
    return deviations > math.sqrt(2 * math.log(max(2, count) / _FALSE_LOW))
