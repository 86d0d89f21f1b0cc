# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The plan that a fabric itself seems to follow: what was found, put right where it breaks the
pattern of most machines. Pure.

Without a pattern the plan is what was found, so there is no finding.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Callable, Iterator, Mapping

from .._core.record import NOT_MEASURED
from .._fabric.findings import (
    DARK,
    DESCRIPTION,
    EXCHANGED,
    NODE_ABSENT,
    SILENT,
    SWITCH_ABSENT,
    Finding,
    several,
)
from .._fabric.model import (
    LEAF_LEAF,
    LEAF_SPINE,
    NDR200,
    NODE_LEAF,
    SPINE_CORE,
    Cable,
    CablePlan,
    End,
    PlannedHca,
    PlannedSwitch,
    Sweep,
    ports_per_cage,
    rail_end,
    rate_gbps,
    switch_end,
)
from .._fabric.parse_discovery import resolve_path
from .census import CORE, LEAF, SPINE, Census, census, numbers_of, sort_of
from .pattern import FEWEST, Hole, Pattern, Support, find_pattern, usual

# Fewer machines of a sort have no majority.
_LEAST_MACHINES = 4
_TRUNK = 4
_RATE_SHARE = 0.6
_ABOVE = {LEAF: 0, SPINE: 1, CORE: 2}


@dataclass
class Inferred:
    """The plan, what each correction rests on, and findings beside it."""

    plan: CablePlan
    # Cables that are planned elsewhere than they were found, or were not found.
    rests: dict[Cable, Support] = field(default_factory=dict)
    rates: dict[Cable, Support] = field(default_factory=dict)
    # Ends of links that nothing else of their sort has; only a guess.
    odd: set[End] = field(default_factory=set)
    # What no cable stands for.
    findings: list[Finding] = field(default_factory=list)
    guesses: list[Finding] = field(default_factory=list)
    exchanged: dict[str, Support] = field(default_factory=dict)
    # Ends that a finding of these names already
    explained: set[End] = field(default_factory=set)


@dataclass(frozen=True)
class _Wanted:
    """A cable that the pattern has, and what for."""

    a: End
    b: End
    support: Support


@dataclass
class _Inference:
    sweep: Sweep
    there: Census
    wanted: list[_Wanted] = field(default_factory=list)
    kept: set[End] = field(default_factory=set)
    regular: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    # Leaf -> unit and rail, for the picture
    units: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    # Ports behind which something does not answer
    silent: set[End] = field(default_factory=set)
    result: Inferred = field(default_factory=lambda: Inferred(CablePlan({}, {}, ())))

    def hosts(self) -> None:
        """Compare the rails of each sort of hosts."""
        machines: dict[str, dict[str, dict[int, tuple[str, int]]]] = {}
        for host, rail in self.there.adapters:
            far = self.there.far.get(rail_end(host, rail))
            if far is not None and far.is_switch and host in self.there.named:
                of = machines.setdefault(sort_of(host), {})
                of.setdefault(host, {})[rail] = (far.host, far.port)
        for sort, of in sorted(machines.items(), key=lambda item: (-len(item[1]), item[0])):
            if len(of) < _LEAST_MACHINES:
                continue
            numbers = numbers_of(of)
            pattern = find_pattern(of, numbers)
            self._take(pattern, rail_end)
            self._number_units(pattern)
            self._exchange(pattern)
            self._few_rails(sort, of, pattern)
            self._silent("node", pattern, numbers)
            for hole in pattern.holes:
                self._hole(NODE_ABSENT, "node", name_of(numbers, hole.number), hole)
            self._misplaced("node", pattern, numbers)

    def switches(self) -> None:
        """Compare the cables upward of each tier, and those downward for the order alone."""
        for tier in (LEAF, SPINE):
            for upward in (True, False):
                self._tier(tier if upward else {LEAF: SPINE, SPINE: CORE}[tier], upward)

    def _tier(self, tier: str, upward: bool) -> None:
        machines: dict[str, dict[int, tuple[str, int]]] = {}
        for end, far in self.there.far.items():
            if not end.is_switch or self.there.tier[end.host] != tier or not far.is_switch:
                continue
            steps = _ABOVE[self.there.tier[far.host]] - _ABOVE[tier]
            # A cable in a wrong port may lead to a switch of the same tier.
            if (steps >= 0) if upward else (steps < 0):
                machines.setdefault(end.host, {})[end.port] = (far.host, far.port)
        if len(machines) < _LEAST_MACHINES:
            return
        numbers = {}
        for sort in {sort_of(name) for name in machines if name in self.there.named}:
            of = [name for name in machines if sort_of(name) == sort]
            if 2 * len(of) > len(machines):
                numbers = numbers_of(of)
        pattern = find_pattern(machines, numbers)
        if upward:
            self._take(pattern, switch_end)
            self._extra(machines, pattern)
        # Upward and downward the same may be seen twice.
        if not set(pattern.exchanged) & set(self.names):
            self._exchange(pattern)
        self._silent("switch", pattern, numbers)
        for hole in pattern.holes:
            self._hole(SWITCH_ABSENT, "switch", name_of(numbers, hole.number), hole)
        self._misplaced("switch", pattern, numbers)
        self._foreign_names(pattern, numbers)

    def _number_units(self, pattern: Pattern) -> None:
        """Give the leaves of each unit its number, in the order of their names."""
        for unit in sorted(pattern.units, key=lambda one: min(one.switch.values())):
            number = 1 + max((known for known, _rail in self.units.values()), default=0)
            slots: dict[str, list[int]] = {}
            for slot, switch in unit.switch.items():
                slots.setdefault(switch, []).append(slot)
            for switch, rails in slots.items():
                self.units.setdefault(switch, (number, rails[0] if len(rails) == 1 else None))

    def _misplaced(self, what: str, pattern: Pattern, numbers: dict[str, int]) -> None:
        for name, number in sorted(pattern.misplaced.items()):
            there = name_of(numbers, number)
            self._guess(
                EXCHANGED,
                f"{what}:{name}",
                f"a guess: {name} is where {there} would be by the order of all others, and there "
                f"is no {there}",
                f"if {name} stands where it should, nothing is wrong; else see what its cables are",
                pattern.exchange_support,
            )

    def _foreign_names(self, pattern: Pattern, numbers: dict[str, int]) -> None:
        """Report switches that have the place of a number that is missing, under another name."""
        known = set(numbers.values())
        for unit in pattern.units:
            for name, base in sorted(unit.base.items()):
                number = unit.number_of(base)
                foreign = name not in numbers and name in self.there.named
                if foreign and number is not None and number not in known and number > 0:
                    there = name_of(numbers, number)
                    self._guess(
                        DESCRIPTION,
                        f"switch:{name}",
                        f"a guess: {name} is where {there} would be by the order of all others",
                        f"see which switch it is; if it is {there}, give it its name",
                        unit.ordered,
                    )

    def _take(self, pattern: Pattern, end: Callable[[str, int], End]) -> None:
        for machine, slot in pattern.kept:
            self.kept.add(end(machine, slot))
        for item in pattern.breaks:
            a = end(item.machine, item.slot)
            self.wanted.append(_Wanted(a, switch_end(*item.place), item.support))
        for unit in pattern.units:
            self.regular |= set(unit.base) | set(unit.switch.values())

    def _exchange(self, pattern: Pattern) -> None:
        self.names.update(pattern.exchanged)
        for name in pattern.exchanged:
            self.result.exchanged[name] = pattern.exchange_support

    def _few_rails(
        self, sort: str, of: dict[str, dict[int, tuple[str, int]]], pattern: Pattern
    ) -> None:
        """Report a host that has far fewer rails than nearly all of its sort."""
        counts = Counter(len(places) for places in of.values())
        most = usual(counts, len(of))
        if most is None:
            return
        judged = {name for unit in pattern.units for name in unit.base}
        for host in sorted(set(of) - judged):
            if len(of[host]) < most and counts[len(of[host])] == 1:
                self._guess(
                    DESCRIPTION,
                    f"node:{host}",
                    f"{host} has {len(of[host])} adapters, {counts[most]} of {len(of)} {sort} have "
                    f"{most}: perhaps it is of another kind, or some are not seen",
                    f"see on {host} which adapters it has (ib_info)",
                    Support(counts[most], len(of)),
                )

    def _guess(
        self, kind: str, subject: str, text: str, remedy: str, support: Support | None
    ) -> None:
        seen = (rests_on(support),) if support else ()
        self.result.guesses.append(
            Finding(kind, subject, text, remedy, evidence=seen, status=NOT_MEASURED)
        )

    def _hole(self, kind: str, what: str, name: str, hole: Hole) -> None:
        ends = [switch_end(*place) for place in hole.places]
        if any(end in self.there.far or end in self.result.explained for end in ends):
            return
        if any(end in self.there.reserved for end in ends):
            return
        subject = f"{what}:{name}"
        if any(guess.subject == subject for guess in self.result.guesses):
            return
        where = several([str(end) for end in ends])
        self._guess(
            kind,
            subject,
            f"a guess: {name} may be missing; the names around it are there, and the ports that it "
            f"would have are empty: {where}",
            f"if there is such a {what}, see that it has power and has booted",
            hole.support,
        )

    def _extra(self, machines: dict[str, dict[int, tuple[str, int]]], pattern: Pattern) -> None:
        """Note links between regular switches that no other switch of the tier has."""
        level = [
            (end, far)
            for end, far in self.there.far.items()
            if end.is_switch
            and far.is_switch
            and end < far
            and self.there.tier[end.host] == self.there.tier[far.host]
        ]
        beside = level if 0 < len(level) <= 2 else []
        for unit in pattern.units:
            pairs: Counter[tuple[str, str]] = Counter()
            for name in unit.base:
                pairs.update((name, place[0]) for place in machines[name].values())
            widths = Counter(pairs.values())
            width = max(widths, key=lambda one: (widths[one], one))
            for name in unit.base:
                for port, place in machines[name].items():
                    if port not in unit.switch and pairs[name, place[0]] > width:
                        beside.append((switch_end(name, port), switch_end(*place)))
        for end, far in beside:
            if {end.host, far.host} <= self.regular:
                self.result.odd |= {end, far}

    def _silent(self, what: str, pattern: Pattern, numbers: dict[str, int]) -> None:
        """Make one finding of all ports behind which one machine is silent."""
        for unit in pattern.units:
            bases: dict[int, list[End]] = {}
            for slot in unit.supports:
                for end in self.silent - self.result.explained:
                    base = end.port - unit.shift[slot]
                    if end.host == unit.switch[slot] and unit.spans(base):
                        bases.setdefault(base, []).append(end)
            for base, ends in sorted(bases.items(), key=lambda item: (-len(item[1]), item[0])):
                free = sorted(set(ends) - self.result.explained)
                if len(free) < FEWEST or 2 * len(free) < len(unit.supports):
                    continue
                number = unit.number_of(base)
                name = name_of(numbers, number) if number is not None else ""
                subject = f"{what}:{name}" if name else f"port:{free[0]}"
                by_order = f"; by the order of the names it is {name}" if name else ""
                self.result.explained |= set(free)
                self.result.findings.append(
                    Finding(
                        SILENT,
                        subject,
                        f"one {what} hangs at {several([str(end) for end in free])}, and does not "
                        f"answer{by_order}",
                        "look at its console, then restart it",
                        evidence=(rests_on(unit.ordered if name else min_support(unit.supports)),),
                    )
                )

    def trunks(self) -> None:
        """Compare the cables between two switches that have no third one like them."""
        pairs: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for end, far in self.there.far.items():
            if end.is_switch and far.is_switch and end.host < far.host:
                pairs.setdefault((end.host, far.host), []).append((end.port, far.port))
        kept = {end for end in self.kept if end.is_switch}
        regular = {end.host for end in kept} | {self.there.far[end].host for end in kept}
        for (one, two), links in sorted(pairs.items()):
            if {one, two} <= regular or len(links) < _TRUNK:
                continue
            shifts = Counter(far - near for near, far in links)
            shift = usual(shifts, len(links))
            if shift is not None:
                self._trunk(one, two, links, shift, Support(shifts[shift], len(links)))

    def _trunk(
        self, one: str, two: str, links: list[tuple[int, int]], shift: int, support: Support
    ) -> None:
        ports = sorted(near for near, far in links if far - near == shift)
        first, last = ports[0], ports[-1]
        broken: set[int] = set()
        for near, far in sorted(links):
            if far - near == shift:
                self.kept |= {switch_end(one, near), switch_end(two, far)}
                continue
            if first - 1 <= far - shift <= last + 1:
                near = far - shift
            broken.add(near)
            self.wanted.append(
                _Wanted(switch_end(one, near), switch_end(two, near + shift), support)
            )
        holes = set(range(first, last))
        if ports_per_cage(_radix(self.there, one)) > 1:
            # A cage of which one cable is there.
            holes |= {port + 1 if port % 2 else port - 1 for port in ports}
        for port in sorted(holes - set(ports) - broken):
            a, b = switch_end(one, port), switch_end(two, port + shift)
            if a not in self.there.far and b not in self.there.far:
                self._guess(
                    DARK,
                    f"cable:{a}--{b}",
                    f"a guess: a cable from {a} to {b} may be missing; the ports around them are "
                    "joined, and these are empty",
                    "if there is a cable, reseat it at both ends",
                    support,
                )

    def corrected(self) -> list[_Wanted]:
        """Return what the pattern wants and nothing that keeps to it is in the way of."""
        wanted = self.wanted
        if self.sweep.partial:
            return []
        while True:
            targets = Counter(item.b for item in wanted)
            sources = {item.a for item in wanted}
            left = [
                item
                for item in wanted
                if targets[item.b] == 1
                and self.there.far.get(item.b) not in self.kept
                and item.b not in self.there.reserved - sources
            ]
            if len(left) == len(wanted):
                return left
            wanted = left


def infer(sweep: Sweep) -> Inferred:
    """Return the plan that the fabric itself seems to follow."""
    there = census(sweep)
    work = _Inference(sweep, there, silent=_silent_ports(sweep, there))
    work.switches()
    work.hosts()
    work.trunks()
    corrected = work.corrected()
    touched = {end for item in corrected for end in (item.a, item.b)}
    links: dict[End, End] = {}
    for end, far in work.there.far.items():
        if not {end, far} & (touched | work.result.odd):
            links[end] = far
    for item in corrected:
        links[item.a], links[item.b] = item.b, item.a
    result = work.result
    if sweep.partial:
        result.findings, result.guesses = [], []
    result.plan = _plan(work, links)
    # Cables have the names that their machines should have.
    back = {there: name for name, there in work.names.items()}
    supports = {frozenset((item.a, item.b)): item.support for item in corrected}
    for cable in result.plan.cables:
        ends = [End(back.get(end.host, end.host), end.rail, end.port) for end in (cable.a, cable.b)]
        support = supports.get(frozenset(ends))
        if support is not None:
            result.rests[cable] = support
    result.findings += _doubled(work)
    return result


def rests_on(support: Support) -> str:
    """Return on what a judgement rests, in words."""
    return f"{support.like} of {support.of} alike are so: confidence {support.confidence:.2f}"


def min_support(supports: Mapping[int, Support]) -> Support:
    """Return the weakest of these."""
    return min(supports.values(), key=lambda one: one.confidence)


def _doubled(work: _Inference) -> Iterator[Finding]:
    hosts: dict[str, list[End]] = {}
    for name, ends in work.there.doubled.items():
        hosts.setdefault(name.split()[0], []).extend(ends)
    for host, ends in sorted(hosts.items()):
        yield Finding(
            DESCRIPTION,
            f"node:{host}",
            f"{len(ends)} adapters share their names as those of {host}: at "
            + several([str(end) for end in sorted(ends)]),
            f"compare their GUIDs with ibstat on {host}; give the other machine its own name",
            evidence=("the same name twice: confidence 1.00",),
        )


def _silent_ports(sweep: Sweep, there: Census) -> set[End]:
    """Return the ports of switches behind which something does not answer."""
    found = set()
    for path in sweep.silent:
        place = resolve_path(sweep, path)
        end = there.end(*place) if place is not None else None
        if end is not None:
            found.add(end)
    for name, device in there.switches.items():
        for number, port in device.ports.items():
            if port.peer is None and port.state in ("Active", "Init"):
                found.add(switch_end(name, number))
    return found


def name_of(numbers: dict[str, int], number: int) -> str:
    """Return the name that the machine of this number would have, like its nearest neighbour."""
    near = min(numbers, key=lambda name: (abs(numbers[name] - number), name))
    match = re.search(rf"(0*{numbers[near]})(?!.*{numbers[near]})", near)
    if match is None:
        return f"number {number} after {near}"
    digits = str(number).zfill(len(match.group(1)))
    return near[: match.start()] + digits + near[match.end() :]


def _plan(work: _Inference, links: dict[End, End]) -> CablePlan:
    there = work.there
    tiers = there.tier

    def label(end: End) -> End:
        return End(work.names.get(end.host, end.host), end.rail, end.port)

    pairs = []
    for end, far in links.items():
        lower, upper = (_ABOVE.get(tiers.get(one.host, ""), -1) for one in (end, far))
        if (lower, end) < (upper, far):
            pairs.append((end, far))
    rates = _rates(work, pairs)
    cables, hcas = [], {}
    for end, far in pairs:
        rate, support = rates[end, far]
        a, b = label(end), label(far)
        if not end.is_switch and not far.is_switch:
            continue
        cable = Cable(a, b, _kind(tiers, end, far), int(rate))
        cables.append(cable)
        if support is not None:
            work.result.rates[cable] = support
        if not end.is_switch:
            device = there.adapters.get((a.host, a.rail))
            named = a.host in there.named
            devices = (there.device[a.host, a.rail],) if device is not None else ()
            guid = device.guid if device is not None and not named else None
            hcas[a.host, a.rail] = PlannedHca(
                a.host, a.rail, guid, None, None, None, devices or ("?",), int(rate)
            )
    switches = {}
    for name, found in there.switches.items():
        unit, rail = work.units.get(name, (None, None))
        guid = None if name in there.named else found.guid
        radix = _radix(there, name)
        # A switch of InfiniBand that has the ports of NDR200 is divided for it.
        cages = ports_per_cage(radix, NDR200[0])
        switches[name] = PlannedSwitch(name, tiers[name], unit, rail, radix, guid, cages)
    reserved = tuple(sorted(label(end) for end in there.reserved))
    return CablePlan(hcas, switches, tuple(sorted(cables)), reserved)


def _radix(there: Census, name: str) -> int:
    device = there.switches[name]
    ends = (switch_end(name, number) for number in device.ports)
    used = max((end.port for end in ends if end in there.far), default=0)
    count = device.port_count
    # The last port of an odd count is that of the part which adds up for SHARP.
    return max(used, count - count % 2)


def _kind(tiers: dict[str, str], end: End, far: End) -> str:
    if not end.is_switch:
        return NODE_LEAF
    if tiers[end.host] == tiers[far.host]:
        return LEAF_LEAF
    return LEAF_SPINE if tiers[end.host] == LEAF else SPINE_CORE


def _rates(
    work: _Inference, pairs: list[tuple[End, End]]
) -> dict[tuple[End, End], tuple[float, Support | None]]:
    """Return the rate of each cable: that of most of its like where it is below, else its own."""
    there = work.there
    own: dict[tuple[End, End], float] = {}
    groups: dict[tuple[object, ...], list[tuple[End, End]]] = {}
    missing: list[tuple[str, tuple[End, End]]] = []
    for end, far in pairs:
        device = (
            there.switches.get(end.host)
            if end.is_switch
            else there.adapters.get((end.host, end.rail))
        )
        other = there.switches.get(far.host)
        port = None
        if other is not None and there.far.get(far) is not None:
            port = other.ports.get(far.port)
        rate = rate_gbps(port.width, port.speed) if port is not None else None
        own[end, far] = rate or 0
        sort = sort_of(end.host) if not end.is_switch else there.tier[end.host]
        models = (device.device_id if device else None, other.device_id if other else None)
        if device is None:
            # An adapter that is not there is like those that are.
            missing.append((sort, (end, far)))
            continue
        groups.setdefault((sort, there.tier.get(far.host), *models), []).append((end, far))
    rates: dict[tuple[End, End], tuple[float, Support | None]] = {}
    for like in groups.values():
        counts = Counter(own[pair] for pair in like if own[pair])
        best = max(counts, key=lambda rate: (counts[rate], rate), default=0)
        known = sum(counts.values())
        enough = known and counts[best] >= FEWEST and counts[best] >= _RATE_SHARE * known
        for pair in like:
            if enough and own[pair] < best:
                rates[pair] = (best, Support(counts[best], known))
            else:
                rates[pair] = (own[pair] or best, None)
    for sort, pair in missing:
        alike = Counter(known[0] for one, known in rates.items() if sort_of(one[0].host) == sort)
        rates[pair] = (max(alike, key=lambda rate: alike[rate], default=0), None)
    return rates
