# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The extra pairs that tell apart what a first run could not. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import Iterator

from .._fabric.model import End, rail_end
from .._fabric.routes import NoRouteError
from .localise import Finding, Verdict
from .schedule import HALVES, Schedule, Unit
from .suspects import BOTH, Suspects

# So many extra units for two parts: with half as many good or bad values one part is ahead by more
# than the margin within which parts count as alike.
_ENOUGH = 3
# Flows of a finding whose ends are tried as one end of an extra pair.
_MOST_ENDS = 12


@dataclass
class FollowUp:
    """Rounds that tell more, and pairs of parts that no pair of nodes can tell apart."""

    schedule: Schedule
    # Parts that are alike, with the units that use only one of them.
    apart: list[tuple[str, str, tuple[Unit, ...]]] = field(default_factory=list)
    inseparable: list[tuple[str, str]] = field(default_factory=list)


def follow_up(suspects: Suspects, verdict: Verdict, schedule: Schedule) -> FollowUp:
    """Return what to run next: for each ambiguity, and again for lone low values."""
    result = FollowUp(schedule)
    wanted: list[Unit] = []
    seeker = _Seeker(suspects, verdict)
    for finding in verdict.findings:
        for one, two in combinations(finding.subjects, 2):
            units = tuple(seeker.telling_apart(finding, one, two))
            if units:
                result.apart.append((one, two, units))
                wanted += units
            else:
                result.inseparable.append((one, two))
    for low in verdict.unexplained:
        wanted.append(seeker.unit(low.source, low.target))
        wanted += seeker.others(low.source, low.target)
    rounds = _packed(list(dict.fromkeys(wanted)), suspects)
    result.schedule = Schedule(
        rounds=rounds,
        pairs_per_link=schedule.pairs_per_link,
        seed=schedule.seed,
        routes=schedule.routes,
    )
    return result


class _Seeker:
    def __init__(self, suspects: Suspects, verdict: Verdict) -> None:
        self.suspects = suspects
        keys = sorted(suspects.plan.hcas)
        self.modulus = 1 + max((rail for _node, rail in keys), default=0)
        self.rails = [rail_end(*key) for key in keys]
        self.verdict = verdict
        # Parts that failed, and ends that gave no answer, do not serve as partners in a test.
        self.bad_hosts = {
            one.split(":", 1)[1].split("/")[0]
            for finding in verdict.findings
            for one in finding.subjects
            if one.startswith(("hca:", "node:", "cable:"))
        }
        self.silent = {flow.source for flow in verdict.unmeasured} | {
            flow.target for flow in verdict.unmeasured
        }

    def unit(self, source: End, target: End) -> Unit:
        """Return the unit of one flow."""
        shift = (target.rail - source.rail) % self.modulus
        return Unit(source.host, target.host, shift, (source.rail,), self.modulus)

    def telling_apart(self, finding: Finding, one: str, two: str) -> Iterator[Unit]:
        """Yield units that use exactly one of two parts and nothing of another finding."""
        number = self.suspects.number
        numbers = [number.get((name, BOTH), -1) for name in (one, two)]
        elsewhere = {
            number.get((name, BOTH), -1)
            for other in self.verdict.findings
            if other is not finding
            for name in other.subjects
        }
        found: set[tuple[End, End]] = set()
        for source, target in self._candidates(finding):
            if len(found) == _ENOUGH:
                return
            both = (min(source, target), max(source, target))
            if both in found:
                continue
            try:
                there = set(self.suspects.of_flow(source, target))
                back = set(self.suspects.of_flow(target, source))
            except NoRouteError:
                continue
            used = [number in there or number in back for number in numbers]
            if used[0] != used[1] and not elsewhere & (there | back):
                found.add(both)
                yield self.unit(source, target)

    def _candidates(self, finding: Finding) -> Iterator[tuple[End, End]]:
        """Yield flows from where those of the finding begin: loopback, like rails, unlike ones."""
        ends = list(
            dict.fromkeys(end for flow in finding.flows for end in (flow.source, flow.target))
        )[:_MOST_ENDS]
        for end in ends:
            yield end, end
        for same in (True, False):
            for end in ends:
                for other in self.rails:
                    if (
                        other.host != end.host
                        and (other.rail == end.rail) == same
                        and other not in self.silent
                    ):
                        yield end, other

    def others(self, source: End, target: End) -> Iterator[Unit]:
        """Yield both ends of a lone low value, each with another partner."""
        for end, partner in ((source, target), (target, source)):
            for other in self.rails:
                if (
                    other.rail == partner.rail
                    and other.host not in {source.host, target.host} | self.bad_hosts
                    and other not in self.silent
                ):
                    yield self.unit(end, other)
                    break


@dataclass
class _Round:
    units: list[Unit] = field(default_factory=list)
    nodes: set[str] = field(default_factory=set)
    busy: tuple[set[End], set[End]] = field(default_factory=lambda: (set(), set()))

    def takes(self, unit: Unit, ways: list[set[End]]) -> bool:
        """Return whether nodes and links of a unit are free."""
        if self.nodes & {unit.a, unit.b}:
            return False
        return all(self.busy[half].isdisjoint(ways[half]) for half in HALVES)


def _packed(units: list[Unit], suspects: Suspects) -> tuple[tuple[Unit, ...], ...]:
    """Return rounds in which no node is twice and no two flows share a link."""
    rounds: list[_Round] = []
    for unit in units:
        ways = [
            {link for flow in unit.flows(half) for link in suspects.links(*flow)} for half in HALVES
        ]
        fitting = (one for one in rounds if one.takes(unit, ways))
        room = next(fitting, None)
        if room is None:
            room = _Round()
            rounds.append(room)
        room.units.append(unit)
        room.nodes.update((unit.a, unit.b))
        for half in HALVES:
            room.busy[half].update(ways[half])
    return tuple(tuple(one.units) for one in rounds)
