# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A cable plan out of a sweep, for a fabric that does not follow the cabling rules. Pure.

What is learned once is the reference from then on: so it must be whole, and rates are those of the
inventory, since a link that is slow on the day of learning must not become the threshold.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping

from ..model import NODE_LEAF, CablePlan, End, FoundDevice, Sweep, rail_end, switch_end
from .lists import Rows


@dataclasses.dataclass(frozen=True)
class Learned:
    """A reference, or None and what keeps the sweep from being one; `notes` are not mistakes."""

    plan: CablePlan | None
    problems: tuple[str, ...]
    notes: tuple[str, ...]


def learn(devices: CablePlan, sweep: Sweep, names: Mapping[str, tuple[str, int]]) -> Learned:
    """Return the cables of a sweep in the plan's words.

    `devices` is who must be there (plan_devices; cables in it do not count), `names` the device of
    the plan, as (host, rail) with -1 for a switch, of each node GUID that is one.
    """
    problems = [f"the sweep is not whole: {complaint}" for complaint in sweep.complaints]
    problems += [
        f"something at the directed route 0,{','.join(map(str, route))} does not answer; repair it"
        for route in sweep.silent
    ]
    problems += [
        f"more than one port claims the GUID {guid}; correct one of them"
        for guid in sweep.duplicate_guids
    ]
    problems += _doubtful(devices, sweep, names)
    rows = Rows(devices, "sweep")
    notes: list[str] = []
    links = sweep.links()
    for number, (one, two) in enumerate(links, start=1):
        first, second = (_end(devices, names, *end) for end in (one, two))
        if first is not None and second is not None:
            rows.add(number, first, second, ("cable", "cable"), None)
            continue
        for end, other in ((first, two), (second, one)):
            if end is None or not end.is_switch:
                continue
            unplanned = sweep.devices.get(other[0])
            rows.reserve(number, end)
            notes.append(f"{end} is kept for {_words(unplanned, other)}, none of the inventory's")
    for guid, key in names.items():
        if guid in sweep.devices:
            rows.guid(0, "guid", key, guid)
    problems += [f"{item.wrong}; {item.remedy}" for item in rows.problems]
    plan = rows.plan() if not problems else None
    if plan is None and not problems:
        problems = [f"{item.wrong}; repair it, then sweep again" for item in rows.problems]
    if plan is not None:
        # For people: a sweep has devices in the order of their GUIDs.
        by_place = sorted(plan.cables, key=lambda cable: (cable.kind != NODE_LEAF, cable))
        plan = dataclasses.replace(plan, cables=tuple(by_place))
    return Learned(plan, tuple(problems), tuple(notes))


def _end(
    devices: CablePlan, names: Mapping[str, tuple[str, int]], guid: str, port: int
) -> End | None:
    key = names.get(guid)
    if key is None:
        return None
    if key[1] >= 0:
        return rail_end(*key)
    # The service ports of a switch are numbered beyond those that take a cable.
    switch = devices.switches.get(key[0])
    return switch_end(key[0], port) if switch and port <= switch.radix else None


def _doubtful(devices: CablePlan, sweep: Sweep, names: Mapping[str, tuple[str, int]]) -> list[str]:
    """Return planned switches that the sweep lacks, and names that two devices have."""
    found: dict[tuple[str, int], str] = {}
    wrong = []
    for guid, key in sorted(names.items()):
        if guid not in sweep.devices:
            continue
        first = found.setdefault(key, guid)
        if first != guid:
            host = key[0] if key[1] < 0 else f"{key[0]}/rail{key[1]}"
            wrong.append(f"{host} is both {first} and {guid}; tell them apart by their GUIDs")
    wrong += [
        f"switch {name} is not in the sweep; repair it, or leave it out of the inventory"
        for name in devices.switches
        if (name, -1) not in found
    ]
    return wrong


def _words(device: FoundDevice | None, end: tuple[str, int]) -> str:
    return f"'{device.description}' ({end[0]})" if device else f"the device {end[0]}"
