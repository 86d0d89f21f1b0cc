# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The wiring that a sweep found, by the ends of the plan, and the misrouted cables in it. Pure.

Planned cables and found links that disagree form chains: a plug is in the port of another cable,
whose plug is in that of a third one. A chain that closes is an exchange, one that ends in a free
port a move, and what is left over of it is a missing cable, or a link that no plan knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Iterator, Mapping

from .._core.record import FAIL, NOT_MEASURED
from .._ib.descriptions import host_and_device, host_key, switch_name, unnamed
from .findings import (
    COSTS,
    DARK,
    LEVELS,
    MISSING,
    MOVED,
    SAME_SWITCHES,
    SWAPPED,
    UNEVEN,
    UNEXPECTED,
    Cost,
    Finding,
    at,
    several,
)
from .match import Matches, is_aggregation
from .model import CA, NODE_LEAF, Cable, CablePlan, End, FoundPort, Sweep

# An end at a device that is not in the plan: its host is this prefix and the GUID.
_FOREIGN = "?"
_FOREIGN_RAIL = -2
# What adapters without a name are called together.
_NAMELESS = "unnamed"


@dataclass
class Wiring:
    """What hangs where: `far` holds both directions of each link that touches the plan."""

    plan: CablePlan
    sweep: Sweep
    matches: Matches
    far: dict[End, End]
    planned: dict[End, Cable]
    # Cables that are where they belong.
    good: set[Cable] = field(default_factory=set)
    # what _fabric_rates.found_rate has worked out
    rates: dict[Cable, float | None] = field(default_factory=dict)

    def port(self, end: End) -> FoundPort | None:
        """Return the port as found, None where its device or the port is not in the sweep."""
        guid = self.matches.by_key.get((end.host, end.rail))
        if guid is None:
            return None
        ports = self.sweep.devices[guid].ports
        if end.is_switch:
            return ports.get(end.port)
        # An adapter of the plan has one port, whatever its number.
        return next(iter(ports.values()), None)

    def found(self, end: End) -> bool:
        """Return whether the sweep has the device of this end."""
        return (end.host, end.rail) in self.matches.by_key

    def right(self, cable: Cable) -> bool:
        """Return whether the cable is where it belongs."""
        return cable in self.good

    @property
    def whole(self) -> bool:
        """Return whether every planned cable is where it belongs."""
        return len(self.good) == len(self.plan.cables)

    def at(self, end: End) -> str:
        """Return how a technician finds a port, of the plan or not."""
        if end.rail != _FOREIGN_RAIL:
            return at(self.plan, end)
        return f"{self.foreign_name(end)} port {end.port}"

    def foreign_name(self, end: End) -> str:
        """Return what a device that is not in the plan calls itself."""
        guid = end.host[len(_FOREIGN) :]
        description = self.sweep.devices[guid].description.strip()
        return f"{description!r} (GUID 0x{guid})"

    def foreign_group(self, end: End) -> str:
        """Return what is reported together: the host of an adapter, or the name of a switch."""
        guid = end.host[len(_FOREIGN) :]
        device = self.sweep.devices[guid]
        if device.kind == CA:
            named = not unnamed(device.description)
            return host_and_device(device.description).host if named else _NAMELESS
        return switch_name(device.description) or f"0x{guid}"


def foreign(end: End) -> bool:
    """Return whether an end is at a device that is not in the plan."""
    return end.rail == _FOREIGN_RAIL


def wiring_of(plan: CablePlan, sweep: Sweep, matches: Matches) -> Wiring:
    """Return the links of the sweep by ends; those between two unplanned devices are left out."""
    far: dict[End, End] = {}
    planned = plan.by_end()
    # The plan's own objects: what is the same object need not be compared.
    own = {end: end for end in planned}
    for (guid, number), (other, other_number) in sweep.links():
        one, two = matches.end(guid, number), matches.end(other, other_number)
        if one is None and two is None:
            continue
        if is_aggregation(sweep.devices[guid]) or is_aggregation(sweep.devices[other]):
            continue
        one = one or End(_FOREIGN + guid, _FOREIGN_RAIL, number)
        two = two or End(_FOREIGN + other, _FOREIGN_RAIL, other_number)
        one, two = own.get(one, one), own.get(two, two)
        far[one], far[two] = two, one
    good = {cable for cable in plan.cables if far.get(cable.a) == cable.b}
    return Wiring(plan, sweep, matches, far, planned, good)


@dataclass(frozen=True)
class Unread:
    """Links of devices that have no own record: the cables of the plan, and all ends."""

    cables: set[Cable]
    ends: set[End]


def unread_links(wiring: Wiring) -> Unread:
    """Return what touches a device that only the far ends of its links name.

    An answer that was cut off has such devices. A link that one end tells proves little, and a
    device without a record is not unplanned.
    """
    missing = {guid for guid, device in wiring.sweep.devices.items() if not device.recorded}
    unread = Unread(set(), set())
    if not missing:
        return unread
    keys = {wiring.matches.by_guid[guid] for guid in missing if guid in wiring.matches.by_guid}
    for end, other in wiring.far.items():
        for one in (end, other):
            if (foreign(one) and one.host[len(_FOREIGN) :] in missing) or (
                (one.host, one.rail) in keys
            ):
                unread.ends.update((end, other))
    unread.ends.update(end for end in wiring.planned if (end.host, end.rail) in keys)
    unread.cables.update(wiring.planned[end] for end in unread.ends if end in wiring.planned)
    return unread


def spare_links(wiring: Wiring) -> set[Cable]:
    """Return the spare cables that are there, whichever of the spare ports they join."""
    lower = {cable.a: cable for cable in wiring.plan.spare}
    upper = {cable.b for cable in wiring.plan.spare}
    return {
        replace(lower[end], a=end, b=far)
        for end, far in wiring.far.items()
        if end in lower and far in upper
    }


@dataclass(frozen=True)
class Misrouted:
    """What became of the cables that are not where they belong."""

    findings: tuple[Finding, ...]
    # Cables without a link, that nothing else explains.
    unlinked: tuple[Cable, ...]
    # Ends of links that no plan knows: (end of the plan, far end).
    unknown: tuple[tuple[End, End], ...]


def find_misrouted(wiring: Wiring, explained: set[Cable], excused: set[End]) -> Misrouted:
    """Follow every chain of wrong cables and links.

    `explained` cables have a cause already; links at `excused` ends have one, too.
    """
    wrong = {
        end: cable
        for cable in wiring.plan.cables
        if cable not in wiring.good and cable not in explained
        for end in (cable.a, cable.b)
    }
    odd = {}
    for end, other in wiring.far.items():
        if wiring.planned.get(end) in wiring.good:
            continue
        if end in excused or other in excused:
            continue
        odd[end] = other
    findings: list[Finding] = []
    unlinked: list[Cable] = []
    unknown: list[tuple[End, End]] = []
    for chain in _chains(wrong, odd):
        _judge_chain(wiring, chain, findings, unlinked, unknown)
    return Misrouted(tuple(findings), tuple(unlinked), tuple(unknown))


@dataclass(frozen=True)
class _Chain:
    """Ends in order; between two of them is a cable of the plan or a link that was found."""

    ends: tuple[End, ...]
    # The cable between ends[i] and ends[i + 1], None where that is a link.
    cables: tuple[Cable | None, ...]
    closed: bool


def _chains(wrong: Mapping[End, Cable], odd: Mapping[End, End]) -> Iterator[_Chain]:
    """Yield each chain once; one that closes begins with a cable."""
    seen: set[End] = set()
    ends = sorted(set(wrong) | set(odd))

    def walk(start: End) -> _Chain:
        by_cable = start in wrong
        here, path = start, [start]
        cables: list[Cable | None] = []
        seen.add(start)
        while True:
            cable = wrong.get(here) if by_cable else None
            there = cable.other(here) if cable else (None if by_cable else odd.get(here))
            if there is None:
                return _Chain(tuple(path), tuple(cables), False)
            cables.append(cable)
            by_cable = not by_cable
            if there in seen:
                return _Chain(tuple(path), tuple(cables), True)
            seen.add(there)
            path.append(there)
            here = there

    for end in ends:
        if end not in seen and not (end in wrong and end in odd):
            yield walk(end)
    for end in ends:
        if end not in seen:
            yield walk(end)


def _judge_chain(
    wiring: Wiring,
    chain: _Chain,
    findings: list[Finding],
    unlinked: list[Cable],
    unknown: list[tuple[End, End]],
) -> None:
    ends, cables = list(chain.ends), list(chain.cables)
    planned = [cable for cable in cables if cable is not None]
    if chain.closed:
        findings.append(_exchange(wiring, ends, planned))
        return
    links = len(cables) - len(planned)
    if links > len(planned):
        # One link too many: the plan's own cable stays with its lower end, the unplanned link goes.
        if _spare_first(ends, planned):
            unknown.append((ends[1], ends[0]))
            ends, cables = ends[1:], cables[1:]
        else:
            unknown.append((ends[-2], ends[-1]))
            ends, cables = ends[:-1], cables[:-1]
    elif links < len(planned):
        # One link too few: of the cables at the two open ends one has none.
        if _lost_first(wiring, ends, planned):
            unlinked.append(planned[0])
            ends, cables = ends[1:], cables[1:]
        else:
            unlinked.append(planned[-1])
            ends, cables = ends[:-1], cables[:-1]
    if len(ends) < 3:
        return
    if cables[0] is None:
        # From the open end of a cable to the port that its plug went to.
        ends.reverse()
        cables.reverse()
    findings.append(_move(wiring, ends, [cable for cable in cables if cable is not None]))


def _spare_first(ends: list[End], planned: list[Cable]) -> bool:
    """Return whether the first link of a chain is the one that does not belong to its cable."""
    if foreign(ends[0]) != foreign(ends[-1]):
        return foreign(ends[0])
    # An adapter, or else the lower switch, keeps its cable: its link is not an unplanned device's.
    return not planned or ends[1] != planned[0].a


def _lost_first(wiring: Wiring, ends: list[End], planned: list[Cable]) -> bool:
    """Return whether the first cable of a chain is the one without a link."""
    if len(planned) == 1:
        return True
    # An adapter that the sweep has nowhere cannot have its plug in another port.
    lost = [not end.is_switch and not wiring.found(end) for end in (ends[0], ends[-1])]
    if lost[0] != lost[1]:
        return lost[0]
    # Otherwise each cable is taken to be at its lower end still.
    return ends[0] == planned[0].a


def _exchange(wiring: Wiring, ends: list[End], planned: list[Cable]) -> Finding:
    """Return the finding of a chain that closes: cables with each other's plugs."""
    subject = min(planned)
    if len(planned) == 2:
        # ends: one, its planned partner, what that is linked to, the planned partner of that
        one, two, three, four = ends
        plugs = _better_pair((two, four), (one, three))
        here, there = (wiring.at(end) for end in sorted(plugs))
        text = f"two cables are exchanged: {_is(wiring, planned[0])}; {_is(wiring, planned[1])}"
        return Finding(
            SWAPPED,
            subject.subject,
            text,
            f"exchange the two plugs at {here} and {there}",
            tuple(planned),
            graded=_cost(wiring, planned),
        )
    steps = []
    lower_first = ends[0] == planned[0].a
    for index in range(0, len(ends), 2):
        # A cable stays in its lower end; its other plug goes to where it belongs.
        near, belongs = ends[index : index + 2]
        if not lower_first:
            near, belongs = belongs, near
        has = wiring.far[near]
        steps.append(f"{wiring.at(has)} -> {wiring.at(belongs)}")
    text = f"{len(planned)} cables have exchanged their plugs in turn: " + several(
        [_is(wiring, cable) for cable in planned], 8
    )
    remedy = "take out these plugs, then move each: " + "; ".join(steps)
    cost = _cost(wiring, planned)
    return Finding(SWAPPED, subject.subject, text, remedy, tuple(planned), graded=cost)


def _cost(wiring: Wiring, cables: list[Cable]) -> Cost:
    """Return what cables in wrong ports cost: it depends on where they are."""
    costs = [_cost_of(wiring, cable) for cable in cables]
    return min(costs, key=lambda cost: LEVELS.index(cost.severity))


def _cost_of(wiring: Wiring, cable: Cable) -> Cost:
    here, there = wiring.far.get(cable.a), wiring.far.get(cable.b)
    if cable.kind == NODE_LEAF:
        if here is None or foreign(here):
            return COSTS[MISSING]
        return SAME_SWITCHES if here.host == cable.b.host else COSTS[SWAPPED]
    if here is not None and here.host == cable.b.host:
        return SAME_SWITCHES
    if there is not None and there.host == cable.a.host:
        return SAME_SWITCHES
    return COSTS[DARK] if here is None and there is None else UNEVEN


def _is(wiring: Wiring, cable: Cable) -> str:
    far = wiring.far.get(cable.a)
    now = wiring.at(far) if far else "nothing"
    return f"{wiring.at(cable.a)} is at {now} and belongs at {wiring.at(cable.b)}"


def _better_pair(one: tuple[End, End], two: tuple[End, End]) -> tuple[End, End]:
    """Return the pair of plugs that is easier to exchange: on one device, then on switches."""

    def cost(pair: tuple[End, End]) -> tuple[int, int, End]:
        far_apart = pair[0].host != pair[1].host
        nodes = sum(not end.is_switch for end in pair)
        return (far_apart, nodes, min(pair))

    return min((one, two), key=cost)


def _move(wiring: Wiring, ends: list[End], planned: list[Cable]) -> Finding:
    """Return the finding of cables of which each has a plug in the wrong port.

    ends: the empty port, the other end of its cable, the port that the plug is in, and so on.
    """
    steps, messages = [], []
    for index in range(len(planned)):
        empty, stays, wrong = ends[2 * index : 2 * index + 3]
        messages.append(
            f"the cable of {wiring.at(stays)} is in {wiring.at(wrong)} and belongs in "
            f"{wiring.at(empty)}"
        )
        steps.append(f"move the plug from {wiring.at(wrong)} to {wiring.at(empty)}")
    text = (
        messages[0]
        if len(messages) == 1
        else f"{len(messages)} cables are moved on: " + "; ".join(messages)
    )
    remedy = ", then ".join(steps)
    cost = _cost(wiring, planned)
    return Finding(MOVED, planned[0].subject, text, remedy, tuple(planned), graded=cost)


def judge_unknown(
    wiring: Wiring, unknown: list[tuple[End, End]], other_hosts: set[str], lost: int = 0
) -> Iterator[Finding]:
    """Yield a finding for each device, or pair of ports, with links that no plan knows.

    `lost` is how many rails are nowhere: adapters without a name may be these.
    """
    reserved = set(wiring.plan.reserved)
    nodes = {host_key(node) for node, _rail in wiring.plan.hcas}
    other_hosts = {host_key(host) for host in other_hosts}
    groups: dict[str, list[tuple[End, End]]] = {}
    for end, other in unknown:
        if foreign(end):
            end, other = other, end
        if foreign(other):
            group = wiring.foreign_group(other)
            if end in reserved or host_key(group) in other_hosts:
                continue
            groups.setdefault(f"device:{group}", []).append((end, other))
        elif not {end, other} <= reserved:
            first, second = sorted((end, other))
            groups.setdefault(f"port:{first}", []).append((first, second))
    for subject, links in sorted(groups.items()):
        places = [f"{wiring.at(end)} -- {wiring.at(other)}" for end, other in sorted(links)]
        known = foreign(links[0][1])
        name = subject.partition(":")[2]
        rail = known and host_key(name) in nodes
        if rail:
            what = f"{name} is in the plan, but this adapter is not one of its rails"
        elif known:
            what = f"{name} is not in the plan, but is linked"
        else:
            what = "a link that the plan does not have"
        maybe = subject == f"device:{_NAMELESS}" and len(links) <= lost
        if maybe:
            what = f"an adapter without a name, which may be one of {lost} rails that are lost"
        yield Finding(
            UNEXPECTED,
            subject,
            f"{what}: {several(places)}",
            "take the cable out"
            + (", or reserve the port (reserved_ports)" if rail else "")
            + (", or add the device to the inventory" if known and not rail else "")
            + (" or to the hosts that are known to be there" if known and not rail else ""),
            ends=tuple(end for end, _other in links),
            status=NOT_MEASURED if maybe else FAIL,
        )
