# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Who is there, by nothing but a sweep: names, sorts of hosts, tiers of switches. Pure."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Iterable, Mapping

from .._fabric.match import is_aggregation
from .._fabric.model import CA, SWITCH, End, FoundDevice, Sweep, rail_end, switch_end
from .._ib.descriptions import device_key, host_and_device, switch_name, unnamed

LEAF = "leaf"
SPINE = "spine"
CORE = "core"
# A switch with this share of the hosts that leaves usually have is a leaf, too.
_LEAF_SHARE = 4
_LEAST_HOSTS = 2

_DIGITS = re.compile(r"\d+")


@dataclass
class Census:
    """Every device under a name that only it has, and every link between such names."""

    switches: dict[str, FoundDevice] = field(default_factory=dict)
    tier: dict[str, str] = field(default_factory=dict)
    # (host, rail) -> adapter and what it calls itself; the rails are counted by their names
    adapters: dict[tuple[str, int], FoundDevice] = field(default_factory=dict)
    device: dict[tuple[str, int], str] = field(default_factory=dict)
    # Names that say which device it is; for others only the GUID does.
    named: set[str] = field(default_factory=set)
    # Both directions of each link
    far: dict[End, End] = field(default_factory=dict)
    # Ports of switches where an adapter with several cables hangs, which cannot be a rail.
    reserved: set[End] = field(default_factory=set)
    # Name that more than one adapter has -> where they hang
    doubled: dict[str, list[End]] = field(default_factory=dict)
    end_of: dict[str, tuple[str, int]] = field(default_factory=dict)

    def end(self, guid: str, port: int) -> End | None:
        """Return the end that a port of a device is; None for what is not compared."""
        key = self.end_of.get(guid)
        if key is None:
            return None
        return switch_end(key[0], port) if key[1] < 0 else rail_end(*key)


def sort_of(name: str) -> str:
    """Return the sort of a name: dgx-007 is one of dgx-#."""
    return _DIGITS.sub("#", name.lower())


def numbers_of(names: Iterable[str]) -> dict[str, int]:
    """Return the number of each name of a sort: the one that varies, or its rank among all."""
    parts = {name: tuple(int(digits) for digits in _DIGITS.findall(name)) for name in names}
    parts = {name: numbers for name, numbers in parts.items() if numbers}
    if not parts:
        return {}
    length = min(len(numbers) for numbers in parts.values())
    varies = [at for at in range(length) if len({numbers[at] for numbers in parts.values()}) > 1]
    if len(varies) == 1:
        return {name: numbers[varies[0]] for name, numbers in parts.items()}
    return {name: rank for rank, name in enumerate(sorted(parts, key=lambda one: parts[one]))}


def census(sweep: Sweep) -> Census:
    """Return who is there."""
    found = Census()
    links = [
        link
        for link in sweep.links()
        if not any(is_aggregation(sweep.devices[guid]) for guid, _port in link)
    ]
    cables = Counter(guid for link in links for guid, _port in link)
    _name_switches(found, sweep)
    _name_adapters(found, sweep, cables)
    for one, two in links:
        first, second = found.end(*one), found.end(*two)
        if first is not None and second is not None:
            found.far[first], found.far[second] = second, first
        for near in (first, second):
            if near is not None and near.is_switch and (first is None or second is None):
                found.reserved.add(near)
    for doubled in found.doubled.values():
        doubled[:] = [found.far[end] for end in doubled if end in found.far]
    _find_tiers(found)
    return found


def _name_switches(found: Census, sweep: Sweep) -> None:
    devices = [device for device in sweep.devices.values() if device.kind == SWITCH]
    shorts = Counter(switch_name(device.description) for device in devices)
    whole = Counter(device.description.strip() for device in devices)
    for device in sorted(devices, key=lambda one: one.guid):
        name, text = switch_name(device.description), device.description.strip()
        if unnamed(text) or whole[text] > 1:
            # All chips of a director may have one name: the GUID tells them apart.
            name = f"0x{device.guid}"
        else:
            name = name if shorts[name] == 1 else text
            found.named.add(name)
        found.switches[name] = device
        found.end_of[device.guid] = (name, -1)


def _name_adapters(found: Census, sweep: Sweep, cables: Mapping[str, int]) -> None:
    reported: dict[tuple[str, str], list[FoundDevice]] = {}
    for guid, device in sorted(sweep.devices.items()):
        if device.kind != CA or is_aggregation(device) or cables[guid] != 1:
            continue
        named = host_and_device(device.description)
        key = (named.host, device_key(named.device))
        if unnamed(device.description) or not named.host:
            key = (f"0x{guid}", "")
        reported.setdefault(key, []).append(device)
    rails = _rails(reported)
    for (host, name), devices in sorted(reported.items()):
        for device in devices:
            rail = (host, rails[sort_of(host), name])
            if len(devices) > 1:
                rail = (f"0x{device.guid}", 0)
                found.doubled.setdefault(f"{host} {name}".strip(), []).append(rail_end(*rail))
            elif not host.startswith("0x"):
                found.named.add(host)
            found.adapters[rail] = device
            found.device[rail] = host_and_device(device.description).device
            found.end_of[device.guid] = rail


def _rails(reported: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Return the number of each name of an adapter among those of its sort of hosts."""
    counts: dict[str, Counter[str]] = {}
    for host, name in reported:
        counts.setdefault(sort_of(host), Counter())[name] += 1
    rails = {}
    for sort, names in counts.items():
        most = max(names.values())
        # Names that few have come last: they must not renumber those of all others.
        ordered = sorted(names, key=lambda one: (4 * names[one] <= most, _natural(one)))
        rails.update({(sort, name): rail for rail, name in enumerate(ordered)})
    return rails


def _natural(name: str) -> tuple[object, ...]:
    return (_DIGITS.sub("#", name), tuple(int(one) for one in _DIGITS.findall(name)))


def _find_tiers(found: Census) -> None:
    """Tell leaves, spines and cores apart by what hangs on them."""
    hosts: Counter[str] = Counter()
    uppers: dict[str, Counter[str]] = {name: Counter() for name in found.switches}
    for one, two in found.far.items():
        if one.is_switch and two.is_switch:
            uppers[one.host][two.host] += 1
        elif one.is_switch:
            hosts[one.host] += 1
    counts = sorted(count for count in hosts.values() if count >= _LEAST_HOSTS)
    least = counts[len(counts) // 2] / _LEAF_SHARE if counts else 0
    leaves = {name for name, count in hosts.items() if count >= max(_LEAST_HOSTS, least)}
    sorts = {sort_of(name) for name in leaves & found.named}
    found.tier = dict.fromkeys(leaves, LEAF)
    rest = [name for name in found.switches if name not in leaves]
    for name in rest:
        below = sum(count for other, count in uppers[name].items() if other in leaves)
        if 2 * below > sum(uppers[name].values()):
            found.tier[name] = SPINE
    for name in rest:
        if name not in found.tier:
            leaf = hosts[name] or (name in found.named and sort_of(name) in sorts)
            found.tier[name] = LEAF if leaf else CORE
