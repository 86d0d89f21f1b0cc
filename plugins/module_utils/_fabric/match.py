# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Which device of a sweep is which device of the plan. Pure.

What is declared counts first (GUIDs), then what a device reports about itself, then where it hangs:
a device without a name, or with a wrong one, is known by its neighbours, where only one planned
device has them. Each match says why.

What the nodes report about their adapters counts before all of these, and a GUID that is known
contradicts a name or a place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Iterable, Iterator, Mapping, TypeVar

from .._ib.descriptions import (
    host_and_device,
    host_key,
    is_storage,
    kernel_number,
    switch_name,
    unnamed,
)
from .judge_adapters import MOST, Identities, Key, Usual, usual_names
from .model import CA, SWITCH, CablePlan, End, FoundDevice, Sweep, rail_end, switch_end
from .parse_discovery import resolve_path

BY_NODE = "its node reports this GUID"
BY_GUID = "its GUID is declared"
BY_NAME = "its description"
BY_USUAL = "the name that its rail has on most nodes"
BY_PLACE = "its place in the fabric"
BY_ELIMINATION = "what is in its place is in its own"
BY_REMAINDER = "nothing else is missing there, and no other adapter has no place"

# A switch without a name is known by its neighbours: so many of them, known by something else than
# their own place, and it is no longer the place of a single cable that vouches for itself.
_VOUCHERS = 3
_Name = TypeVar("_Name")
_Owner = TypeVar("_Owner")

# The part of a Quantum switch that adds up for SHARP: it hangs on its own port.
_AGGREGATION = re.compile(r"aggregation node", re.IGNORECASE)


@dataclass
class Matches:
    """Found devices by planned key and the other way round, with the reason of each."""

    by_key: dict[Key, str] = field(default_factory=dict)
    by_guid: dict[str, Key] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    # Ends that were asked for before: the same object again is found in a dictionary at once.
    ends: dict[tuple[str, int], End] = field(default_factory=dict)
    # Devices of which nothing but the place is known: no cable of theirs is proved.
    unproved: set[str] = field(default_factory=set)
    # Names that more than one device has: they prove neither.
    contested: set[Key] = field(default_factory=set)
    # Nodes whose kernel numbers moved, with the rails whose adapters are gone.
    shifted: dict[str, tuple[int, ...]] = field(default_factory=dict)
    identities: Identities = field(default_factory=Identities)

    def add(self, key: Key, guid: str, reason: str) -> None:
        """Take the device for the planned one."""
        self.by_key[key] = guid
        self.by_guid[guid] = key
        self.reasons[guid] = reason

    def end(self, guid: str, port: int) -> End | None:
        """Return the planned end that a found port is, None where the device is not known."""
        end = self.ends.get((guid, port))
        key = self.by_guid.get(guid)
        if end is not None or key is None:
            return end
        # An adapter of the plan has one port.
        end = switch_end(key[0], port) if key[1] < 0 else rail_end(*key)
        self.ends[guid, port] = end
        return end

    def links(self, device: FoundDevice) -> Iterator[tuple[int, str, End]]:
        """Yield each link to a known device: own port, GUID there, and the planned end there."""
        for number, port in device.ports.items():
            if port.peer is not None:
                far = self.end(*port.peer)
                if far is not None:
                    yield number, port.peer[0], far


def is_aggregation(device: FoundDevice) -> bool:
    """Return whether the device is the part of a switch that works for SHARP."""
    return bool(_AGGREGATION.search(device.description))


def match(
    plan: CablePlan,
    sweep: Sweep,
    names: Mapping[str, str] | None = None,
    known: Identities | None = None,
) -> Matches:
    """Return which found device is which planned one.

    `names` is a node-name map: names of switches by GUID, for those that have no description.
    `known` is what the nodes report about their adapters.
    """
    matcher = _Matcher(plan, sweep, dict(names or {}), known or Identities())
    matcher.by_own_report()
    matcher.by_declared_guid()
    matcher.switches_by_name()
    matcher.learn_usual_names()
    matcher.adapters_by_name()
    matcher.by_place()
    matcher.adapters_by_order()
    matcher.by_place()
    matcher.by_elimination()
    matcher.by_remainder()
    matcher.find_unproved()
    return matcher.found


class _Matcher:
    def __init__(
        self, plan: CablePlan, sweep: Sweep, names: dict[str, str], known: Identities
    ) -> None:
        self.plan = plan
        self.sweep = sweep
        self.names = names
        self.known = known
        self.found = Matches(identities=known)
        self.partner: dict[End, End] = {}
        for cable in plan.cables:
            self.partner[cable.a] = cable.b
            self.partner[cable.b] = cable.a
        # Names of the plan, and who has them; what two have tells neither.
        self.rails = _unique(
            ((host_key(hca.node), device.lower()), key)
            for key, hca in plan.hcas.items()
            for device in hca.devices
        )
        self.node_of = _unique((host_key(node), node) for node, _rail in plan.hcas)
        self.switch_of = _unique((name.lower(), name) for name in plan.switches)
        self.usual = Usual()
        self.rails_of: dict[str, list[Key]] = {}
        for key in plan.hcas:
            self.rails_of.setdefault(key[0], []).append(key)

    def open(self, kind: str) -> list[FoundDevice]:
        """Return devices of a kind that are not known yet, in a fixed order."""
        return [
            device
            for guid, device in sorted(self.sweep.devices.items())
            if device.kind == kind and guid not in self.found.by_guid and not is_aggregation(device)
        ]

    def _named(self, device: FoundDevice) -> Key | None:
        """Return the rail that an adapter says it is."""
        reported = host_and_device(device.description).key
        if kernel_number(reported[1]) is not None and reported[0] in self.usual.nodes:
            # What the kernel calls it counts by what it calls the others.
            return self.usual.rails.get(reported)
        return self.rails.get(reported) or self.usual.rails.get(reported)

    def _another_of_its_node(self, device: FoundDevice, key: Key) -> bool:
        """Return whether an adapter in the place of `key` is another one of that node by its name.

        It is called a port for storage; or it has a number of the kernel that lies among those of
        the rails, none of them has, and all other rails of the node have theirs.
        """
        shown = host_and_device(device.description)
        if host_key(shown.host) != host_key(key[0]):
            return False
        if is_storage(shown.device):
            return True
        number = kernel_number(shown.device)
        numbers = {other: self._kernel_number(other) for other in self.rails_of[key[0]]}
        if number is None or number in numbers.values() or None in numbers.values():
            return False
        if number > max(one for one in numbers.values() if one is not None):
            return False
        others = [other for other in numbers if other != key and other in self.found.by_key]
        named = [
            other
            for other in others
            if self.found.reasons[self.found.by_key[other]] in (BY_NAME, BY_USUAL)
            and numbers[other] == self._number_of(other)
        ]
        return len(named) == len(others) >= MOST

    def _number_of(self, key: Key) -> int | None:
        description = self.sweep.devices[self.found.by_key[key]].description
        return kernel_number(host_and_device(description).device)

    def learn_usual_names(self) -> None:
        """Learn what most nodes call their rails, where that is not what the plan has."""
        known: dict[str, Key] = {}
        places: dict[str, Key] = {}
        elsewhere = set(self._elsewhere())
        for device in self.sweep.devices.values():
            if any(far.host in elsewhere for _number, _guid, far in self.found.links(device)):
                continue
            host = host_and_device(device.description).key[0]
            if device.kind != CA or host not in self.node_of:
                continue
            key = self.found.by_guid.get(device.guid)
            if key is None:
                key = self._place_of(device)
                if key is not None and key[0] == self.node_of[host]:
                    places[device.guid] = key
            elif key[0] == self.node_of[host]:
                known[device.guid] = key
        self.usual = usual_names(self.plan, self.sweep, known, places)

    def _elsewhere(self) -> Iterator[str]:
        """Yield switches of which most cables to other switches are those of another one."""
        for guid, key in self.found.by_guid.items():
            if key[1] < 0:
                # In any of its ports: those of two spines that are exchanged are its own.
                right = [
                    far in self.partner and self.partner[far].host == key[0]
                    for _number, _guid, far in self.found.links(self.sweep.devices[guid])
                    if far.is_switch
                ]
                if len(right) >= MOST and 2 * sum(right) < len(right):
                    yield key[0]

    def _contradicted(self, device: FoundDevice, key: Key) -> bool:
        """Return whether a node reports that the adapter is not `key`."""
        return self.known.contradicts(key, guids_of(device))

    def by_own_report(self) -> None:
        """Take adapters for what their own nodes report."""
        for _guid, device in sorted(self.sweep.devices.items()):
            keys = {self.known.key_of[one] for one in guids_of(device) if one in self.known.key_of}
            if device.kind == CA and len(keys) == 1:
                key = keys.pop()
                if key not in self.found.by_key:
                    self.found.add(key, device.guid, BY_NODE)

    def by_place(self) -> None:
        """Take devices for those whose place they have, as long as one makes another known."""
        while self.switches_by_neighbours():
            pass
        self.adapters_by_place()

    def by_declared_guid(self) -> None:
        declared: dict[str, Key] = {}
        for key, hca in self.plan.hcas.items():
            if hca.guid:
                declared[hca.guid] = key
        for name, switch in self.plan.switches.items():
            if switch.guid:
                declared[switch.guid] = (name, -1)
        for guid, device in sorted(self.sweep.devices.items()):
            if guid in self.found.by_guid:
                continue
            for key in (declared[item] for item in guids_of(device) if item in declared):
                of_kind = (key[1] < 0) == (device.kind == SWITCH)
                if of_kind and key not in self.found.by_key and not self._contradicted(device, key):
                    self.found.add(key, guid, BY_GUID)
                    break

    def switches_by_name(self) -> None:
        claims: dict[Key, list[FoundDevice]] = {}
        for device in self.open(SWITCH):
            name = self.names.get(device.guid) or device.description.strip()
            if name not in self.plan.switches:
                # The name of a director is that of all its parts: these are planned in full.
                name = switch_name(name)
            name = self.switch_of.get(name.lower(), name)
            if name in self.plan.switches:
                claims.setdefault((name, -1), []).append(device)
        self._settle(claims)

    def adapters_by_name(self) -> None:
        claims: dict[Key, list[FoundDevice]] = {}
        for device in self.open(CA):
            key = self._named(device)
            if key is not None and not self._contradicted(device, key):
                claims.setdefault(key, []).append(device)
        self.found.contested.update(key for key, some in claims.items() if len(some) > 1)
        self._settle(self._without_clones(claims))

    def _without_clones(
        self, claims: Mapping[Key, list[FoundDevice]]
    ) -> dict[Key, list[FoundDevice]]:
        """Return the claims without those of a machine that has the name of another.

        Several adapters in the places of one node have the name of another one, which is in its
        places, too: then their names show nothing of the other's cables.
        """
        groups: dict[tuple[str, str], set[int]] = {}
        for key, devices in claims.items():
            for device in devices:
                place = self._place_of(device)
                if place is not None:
                    groups.setdefault((key[0], place[0]), set()).add(key[1])
        clones = {
            (name, node)
            for (name, node), rails in groups.items()
            if name != node and len(rails) > 1 and rails & groups.get((name, name), set())
        }
        return {
            key: [
                device
                for device in devices
                if (key[0], (self._place_of(device) or key)[0]) not in clones
            ]
            for key, devices in claims.items()
        }

    def _settle(self, claims: dict[Key, list[FoundDevice]]) -> None:
        """Take each device for what it says; of several that say the same, the one in its place."""
        # What has a declared GUID is known: whatever else has its name is an impostor.
        free = {
            key: devices
            for key, devices in claims.items()
            if devices and key not in self.found.by_key
        }
        for key, devices in free.items():
            if len(devices) == 1:
                self.found.add(key, devices[0].guid, self._by_name(devices[0]))
        for key, devices in free.items():
            if key not in self.found.by_key:
                # Of those that fit alike the first.
                best = max(devices, key=lambda device: self._fit(device, key))
                self.found.add(key, best.guid, self._by_name(best))

    def _by_name(self, device: FoundDevice) -> str:
        reported = host_and_device(device.description).key
        return BY_USUAL if device.kind == CA and reported in self.usual.rails else BY_NAME

    def _fit(self, device: FoundDevice, key: Key) -> int:
        """Return how many links of the device are where the plan has those of `key`."""
        fits = []
        for number, port in device.ports.items():
            if port.peer is not None:
                own = switch_end(key[0], number) if key[1] < 0 else rail_end(*key)
                fits.append(self.partner.get(own) == self._far(*port.peer))
        return sum(fits)

    def _far(self, guid: str, port: int) -> End:
        """Return the far end of a link: as matched, or as it calls itself."""
        name = switch_name(self.sweep.devices[guid].description)
        return self.found.end(guid, port) or switch_end(name, port)

    def switches_by_neighbours(self) -> bool:
        """Take switches for those whose neighbours they have; True where there were any."""
        wanted = {
            name
            for name, switch in self.plan.switches.items()
            if (name, -1) not in self.found.by_key and not switch.guid
        }
        if not wanted:
            return False
        scores: dict[str, dict[str, int]] = {}
        known: dict[str, int] = {}
        for device in self.open(SWITCH):
            score: dict[str, int] = {}
            for number, _guid, far in self.found.links(device):
                known[device.guid] = known.get(device.guid, 0) + 1
                near = self.partner.get(far)
                if near is not None and near.port == number:
                    score[near.host] = score.get(near.host, 0) + 1
            scores[device.guid] = {name: score[name] for name in score if name in wanted}
        taken = False
        for guid, score in scores.items():
            # Most of the neighbours that are known must agree, so that it can be one name alone.
            for name in (name for name in score if 2 * score[name] > known[guid]):
                if all(
                    other == guid or of_other.get(name, 0) < score[name]
                    for other, of_other in scores.items()
                ):
                    self.found.add((name, -1), guid, BY_PLACE)
                    taken = True
        return taken

    def adapters_by_place(self) -> None:
        """Take adapters without their own name for those whose place they have."""
        # Which names hang in the places of a node: a name that fills most of them is that node's.
        here: dict[str, dict[str, int]] = {}
        candidates: list[tuple[FoundDevice, Key, str]] = []
        for device in self.open(CA):
            key = self._place_of(device)
            # Nothing but the GUID tells who has one that is declared.
            if key is None or key in self.found.by_key or self.plan.hcas[key].guid:
                continue
            if self._contradicted(device, key) or self._another_of_its_node(device, key):
                continue
            host = host_and_device(device.description).host
            candidates.append((device, key, host))
            counts = here.setdefault(key[0], {})
            counts[host] = counts.get(host, 0) + 1
        for device, key, host in candidates:
            rails = len(self.rails_of[key[0]])
            if (
                host_key(host) == host_key(key[0])
                or unnamed(device.description)
                or self._named(device)
                or here[key[0]][host] * 2 > rails
            ):
                self.found.add(key, device.guid, BY_PLACE)

    def adapters_by_order(self) -> None:
        """Match nodes whose kernel numbers moved by their order.

        The kernel numbers devices in the order of their addresses. One adapter that is gone gives
        all later ones another number, and each of them then has the name of its neighbour. Cables
        that were moved never look so: order kept, numbers lower, the more so the later. The same
        holds upward for an adapter that came, as long as all rails are there.
        """
        of_node: dict[str, list[tuple[int, int, Key, str]]] = {}
        ambiguous: set[str] = set()
        for guid, device in sorted(self.sweep.devices.items()):
            shown = host_and_device(device.description)
            number = kernel_number(shown.device)
            if number is None:
                continue
            here = self._place_of(device)
            planned = None if here is None else self._kernel_number(here)
            sure = self.found.reasons.get(guid) in (BY_NODE, BY_GUID)
            host = host_key(shown.host)
            if here is None or host_key(here[0]) != host or planned is None or sure:
                ambiguous.add(host)
                continue
            of_node.setdefault(here[0], []).append((planned, number, here, guid))
        for node, rows in sorted(of_node.items()):
            if host_key(node) not in ambiguous:
                self._by_order(node, sorted(rows))

    def by_elimination(self) -> None:
        """Take adapters without a name for those whose places were taken in turn.

        One is where A belongs, A is where B belongs, and B is nowhere: then it is B. The same holds
        if cables between switches were exchanged with those of adapters.
        """
        claims: dict[Key, list[FoundDevice]] = {}
        for device in self._nameless():
            key = self._end_of_turn(device)
            if key is not None and not self._contradicted(device, key):
                claims.setdefault(key, []).append(device)
        for key, devices in claims.items():
            if len(devices) == 1:
                self.found.add(key, devices[0].guid, BY_ELIMINATION)

    def _nameless(self) -> list[FoundDevice]:
        return [device for device in self.open(CA) if unnamed(device.description)]

    def _end_of_turn(self, device: FoundDevice) -> Key | None:
        """Return the lost rail that the places lead to which were taken in turn, None without."""
        ends = {far for _number, _guid, far in self.found.links(device)}
        here = ends.pop() if len(ends) == 1 else None
        seen: set[End] = set()
        while here is not None and here not in seen:
            seen.add(here)
            near = self.partner.get(here)
            if near is None:
                return None
            key = (near.host, near.rail)
            if not near.is_switch and key not in self.found.by_key:
                return key if len(seen) > 1 and not self.plan.hcas[key].guid else None
            here = self._linked_to(near)
        return None

    def _linked_to(self, end: End) -> End | None:
        """Return the end that a planned end is linked to, None where that is not known."""
        guid = self.found.by_key.get((end.host, end.rail))
        if guid is None:
            return None
        ports = self.sweep.devices[guid].ports
        port = ports.get(end.port) if end.is_switch else next(iter(ports.values()), None)
        return self.found.end(*port.peer) if port is not None and port.peer is not None else None

    def by_remainder(self) -> None:
        """Take adapters without a name in ports that have no cable for the rails that are lost.

        All rails of a node are lost, and on each of its leaves there is one so many ports further
        on; or one rail of a leaf, or of all, is lost, and one adapter is too many there.
        """
        if self.sweep.partial or self.sweep.duplicate_guids:
            return
        strays: dict[End, FoundDevice] = {}
        for device in self._nameless():
            ends = [far for _number, _guid, far in self.found.links(device)]
            if len(ends) == 1 and ends[0] not in self.partner and ends[0] not in self.plan.reserved:
                strays[ends[0]] = device
        lost = self._lost_rails() if strays else {}
        self._nodes_further_on(lost, strays)
        for leaf in sorted({end.host for end in lost.values()}):
            self._the_one_left(
                [key for key, end in lost.items() if end.host == leaf],
                [end for end in strays if end.host == leaf],
                lost,
                strays,
            )
        self._the_one_left(list(lost), list(strays), lost, strays)

    def _lost_rails(self) -> dict[Key, End]:
        """Return the port of each rail that is nowhere, where nothing is in the port."""
        paths = (resolve_path(self.sweep, path) for path in self.sweep.silent)
        silent = {self.found.end(*place) for place in paths if place is not None}
        lost = {}
        for key, hca in self.plan.hcas.items():
            port = self.partner.get(rail_end(*key))
            if key in self.found.by_key or hca.guid or port is None or port in silent:
                continue
            guid = self.found.by_key.get((port.host, port.rail))
            device = self.sweep.devices.get(guid) if guid is not None else None
            if device is None or not device.recorded:
                continue
            there = device.ports.get(port.port)
            if there is None or there.peer is None:
                lost[key] = port
        return lost

    def _nodes_further_on(self, lost: dict[Key, End], strays: dict[End, FoundDevice]) -> None:
        claims: dict[str, list[int]] = {}
        taken: dict[End, int] = {}
        for node, keys in self.rails_of.items():
            ports = [lost[key] for key in keys if key in lost]
            if len(ports) < MOST or len(ports) < len(keys):
                continue
            first = ports[0]
            for by in (end.port - first.port for end in strays if end.host == first.host):
                there = [switch_end(port.host, port.port + by) for port in ports]
                if all(end in strays for end in there):
                    claims.setdefault(node, []).append(by)
                    for end in there:
                        taken[end] = taken.get(end, 0) + 1
        for node, shifts in sorted(claims.items()):
            moves = {
                key: switch_end(lost[key].host, lost[key].port + by)
                for key in self.rails_of[node]
                for by in shifts[:1]
            }
            if len(shifts) == 1 and all(taken[end] == 1 for end in moves.values()):
                for key, end in moves.items():
                    self._take_stray(key, end, lost, strays)

    def _the_one_left(
        self,
        keys: list[Key],
        ends: list[End],
        lost: dict[Key, End],
        strays: dict[End, FoundDevice],
    ) -> None:
        if len(keys) == len(ends) == 1:
            self._take_stray(keys[0], ends[0], lost, strays)

    def _take_stray(
        self, key: Key, end: End, lost: dict[Key, End], strays: dict[End, FoundDevice]
    ) -> None:
        if not self._contradicted(strays[end], key):
            self.found.add(key, strays[end].guid, BY_REMAINDER)
            del lost[key], strays[end]

    def _place_of(self, device: FoundDevice) -> Key | None:
        """Return the rail whose port the adapter is in, None where it is in none, or several."""
        keys = set()
        for _number, _guid, far in self.found.links(device):
            near = self.partner.get(far)
            if near is not None and not near.is_switch:
                keys.add((near.host, near.rail))
        return keys.pop() if len(keys) == 1 else None

    def _kernel_number(self, key: Key) -> int | None:
        for name in (self.usual.names.get(key, ""), *self.plan.hcas[key].devices):
            number = kernel_number(name)
            if number is not None:
                return number
        return None

    def _by_order(self, node: str, rows: list[tuple[int, int, Key, str]]) -> None:
        shifts = [planned - shown for planned, shown, _key, _guid in rows]
        if any(one[1] >= two[1] for one, two in zip(rows, rows[1:])):
            return
        gone = self._moved_down(node, rows, shifts)
        moved_up = len(rows) == len(self.rails_of[node]) >= MOST and shifts[0] <= 0 > shifts[-1]
        if moved_up and all(one >= two for one, two in zip(shifts, shifts[1:])):
            gone = []
        if gone is None:
            return
        moved = {guid: key for planned, shown, key, guid in rows if planned != shown}
        if any(self.found.by_key.get(key, guid) not in moved for guid, key in moved.items()):
            return
        for guid in moved:
            before = self.found.by_guid.pop(guid, None)
            if before is not None:
                del self.found.by_key[before]
        for guid, key in moved.items():
            self.found.add(key, guid, BY_PLACE)
        self.found.ends.clear()
        self.found.shifted[node] = tuple(gone)

    def _moved_down(
        self, node: str, rows: list[tuple[int, int, Key, str]], shifts: list[int]
    ) -> list[int] | None:
        """Return the rails whose going made the numbers of the later ones lower."""
        rising = all(one <= two for one, two in zip(shifts, shifts[1:]))
        if not rising or shifts[0] < 0 or not shifts[-1]:
            return None
        there = {key for _planned, _shown, key, _guid in rows}
        # Where numbers moved down at all, the last one did.
        last = rows[-1][0]
        gone = [
            key[1]
            for key in self.rails_of[node]
            if key not in there and (self._kernel_number(key) or 0) < last
        ]
        # A card has two functions at most, so each that is gone takes two numbers at most.
        return gone if len(gone) <= shifts[-1] <= 2 * max(1, len(gone)) else None

    def find_unproved(self) -> None:
        """Note the devices that are known by their place alone."""
        for guid, key in self.found.by_guid.items():
            reason = self.found.reasons[guid]
            usual = reason == BY_USUAL and key[0] not in self.usual.proved
            named = reason in (BY_NAME, BY_USUAL) and key in self.found.contested
            if reason != BY_PLACE and not usual and not named:
                continue
            if self._vouchers(guid, key) < _VOUCHERS:
                self.found.unproved.add(guid)

    def _vouchers(self, guid: str, key: Key) -> int:
        """Return how many neighbours that are known by more than place say what a switch is."""
        count = 0
        for number, neighbour, far in self.found.links(self.sweep.devices[guid]):
            # A neighbour that is a switch without a name has more than this one link to prove it.
            sure = far.is_switch or self.found.reasons[neighbour] != BY_PLACE
            count += sure and self.partner.get(far) == switch_end(key[0], number)
        return count


def _unique(pairs: Iterable[tuple[_Name, _Owner]]) -> dict[_Name, _Owner]:
    """Return the owner of each name that only one has."""
    owners: dict[_Name, set[_Owner]] = {}
    for name, owner in pairs:
        owners.setdefault(name, set()).add(owner)
    return {name: some.pop() for name, some in owners.items() if len(some) == 1}


def guids_of(device: FoundDevice) -> list[str]:
    """Return the GUIDs of a device and of its ports."""
    return [device.guid, *(port.guid for port in device.ports.values() if port.guid)]
