# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Who the adapters are: by their nodes' reports, or by the usual names of the rails. Pure.

A node knows both halves: the PCI address of an adapter, which is its rail in the profile, and its
GUID, by which the fabric knows it. Joined, neither names nor places are needed to tell who is who.

Without reports, a name that nearly all nodes give to a rail is its name, and the plan's own was a
guess of the profile. It tells what the other adapters are, those that are not in their place among
them. Whether it proves a cable is another question. Adapters that are known otherwise, and numbers
of the kernel that all moved by the same, prove the names; names that were only seen in the places
of the rails do not, since the same mistake may have been made at every node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from .._core.names import RAIL_DEVICE, full_pci
from .._ib.descriptions import device_key, host_and_device, host_key, kernel_number
from .model import CablePlan, Sweep

# (node, rail), or (switch, -1)
Key = tuple

_KERNEL_DEVICE = re.compile(r"mlx5_\d+\Z")
_GUID = re.compile(r"(?:0x)?([0-9a-fA-F:]{1,19})\Z")


# A name is usual if so many nodes, and this share of those that are seen, give it to the rail.
MOST = 3
_SHARE = 0.75
# Of the numbers of all rails together.
_MOVED_SHARE = 0.6


@dataclass(frozen=True)
class OwnHca:
    """An adapter as its own node reports it; None is what the node could not read."""

    device: str
    pci: str | None = None
    # of the adapter and of its ports
    guids: tuple[str, ...] = ()
    serial: str | None = None


@dataclass
class Identities:
    """What the nodes' reports make certain.

    `key_of` has the rail of a GUID, `others` the owner of a GUID that is not a rail, `absent` the
    rails of which the node reports that it has no such adapter, and `own` the report on each rail.
    `counts` has the number of adapters of each node that answered.
    """

    key_of: dict[str, Key] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    absent: set[Key] = field(default_factory=set)
    own: dict[Key, OwnHca] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def contradicts(self, key: Key, guids: Sequence[str]) -> bool:
        """Return whether a device with these GUIDs cannot be `key` by what its node reports."""
        if key in self.absent or any(guid in self.others for guid in guids):
            return True
        own = self.own.get(key)
        if own is None or not own.guids:
            return any(guid in self.key_of for guid in guids)
        return not set(own.guids) & set(guids)


def _guid(value: Any) -> str | None:
    found = _GUID.match(str(value))
    digits = found.group(1).replace(":", "").lower() if found else ""
    return digits.zfill(16) if digits.strip("0") else None


def adapters_from_data(data: Mapping[str, Any]) -> dict[str, tuple[OwnHca, ...]]:
    """Return the adapters by node, from `adapters` of ib_info; ValueError for anything else."""
    found = {}
    for node, hcas in data.items():
        if not isinstance(hcas, list) or not all(
            isinstance(hca, Mapping) and isinstance(hca.get("guids"), list) for hca in hcas
        ):
            raise ValueError(
                f"adapters.{node}: is not a list of adapters; write adapters of ib_info"
            )
        found[str(node)] = tuple(
            OwnHca(
                str(hca.get("device") or "?"),
                full_pci(str(hca["pci"])) if hca.get("pci") else None,
                tuple(dict.fromkeys(guid for guid in map(_guid, hca["guids"]) if guid)),
                str(hca["serial"]) if hca.get("serial") else None,
            )
            for hca in hcas
        )
    return found


def identities(plan: CablePlan, adapters: Mapping[str, Sequence[OwnHca]]) -> Identities:
    """Join what the nodes report with the rails of the plan.

    The PCI address decides. Where the plan or the node has none, only the name that the role
    infiniband gives does, since the kernel's numbers follow the order of discovery.
    """
    result = Identities()
    rails: dict[str, list[int]] = {}
    for node, rail in plan.hcas:
        rails.setdefault(node, []).append(rail)
    claims: dict[str, list[Key]] = {}
    for node, own in adapters.items():
        if node not in rails:
            continue
        result.counts[node] = len(own)
        taken = set()
        for rail in rails[node]:
            hca = _own_of(plan.hcas[node, rail].pci, RAIL_DEVICE.format(rail=rail), own)
            if hca is None:
                if _surely_absent(plan.hcas[node, rail].pci, own):
                    result.absent.add((node, rail))
                continue
            taken.add(hca)
            result.own[node, rail] = hca
            for guid in hca.guids:
                claims.setdefault(guid, []).append((node, rail))
        for hca in own:
            # Without an address it may be one of the rails after all.
            if hca not in taken and hca.pci is not None:
                for guid in hca.guids:
                    result.others[guid] = f"{node} {hca.device}"
    for guid, keys in claims.items():
        # A GUID of two adapters tells neither of them.
        if len(keys) == 1 and guid not in result.others:
            result.key_of[guid] = keys[0]
        else:
            result.others.pop(guid, None)
    for key, hca in list(result.own.items()):
        if hca.guids and not any(result.key_of.get(guid) == key for guid in hca.guids):
            del result.own[key]
    return result


def _own_of(pci: str | None, name: str, own: Sequence[OwnHca]) -> OwnHca | None:
    for hca in own:
        if pci is not None and hca.pci == full_pci(pci):
            return hca
    for hca in own:
        if hca.device == name and (pci is None or hca.pci is None):
            return hca
    return None


def _surely_absent(pci: str | None, own: Sequence[OwnHca]) -> bool:
    """Return whether a rail that was not found among the adapters cannot be one of them.

    A node without a single adapter has no driver, or is not the node: that proves nothing of one.
    """
    if not own:
        return False
    if pci is not None and all(hca.pci is not None for hca in own):
        return True
    prefix = RAIL_DEVICE.format(rail="")
    named = [hca.device for hca in own if not _KERNEL_DEVICE.match(hca.device)]
    return len(named) == len(own) and any(name.startswith(prefix) for name in named)


@dataclass
class Usual:
    """The usual names: `rails` by host and device, and `names` the device of each rail."""

    rails: dict[tuple[str, str], Key] = field(default_factory=dict)
    names: dict[Key, str] = field(default_factory=dict)
    # Hosts whose rails have such names, and the nodes of which they prove what is what.
    nodes: set[str] = field(default_factory=set)
    proved: set[str] = field(default_factory=set)


def usual_names(
    plan: CablePlan, sweep: Sweep, known: Mapping[str, Key], places: Mapping[str, Key]
) -> Usual:
    """Return the usual names of the rails.

    `known` has the rails of adapters that are known by a report or a GUID, `places` that of others
    whose host is that of their place; both by GUID.
    """
    usual = Usual()
    families: dict[tuple[tuple[str, ...], ...], list[Key]] = {}
    devices: dict[str, list[tuple[str, ...]]] = {}
    for (node, _rail), hca in plan.hcas.items():
        devices.setdefault(node, []).append(hca.devices)
    for key in plan.hcas:
        # Nodes of one profile number their adapters alike.
        families.setdefault(tuple(devices[key[0]]), []).append(key)
    for family in families.values():
        _learn(plan, sweep, known, places, family, usual)
    return usual


def _learn(
    plan: CablePlan,
    sweep: Sweep,
    known: Mapping[str, Key],
    places: Mapping[str, Key],
    family: list[Key],
    usual: Usual,
) -> None:
    of_family = set(family)
    seen = _votes(sweep, places, of_family)
    by_known, by_place = _most(_votes(sweep, known, of_family)), _most(seen)
    rails = {rail for _node, rail in family}
    names = by_known if set(by_known) == rails else by_place
    sample = {rail: plan.hcas[node, rail].devices for node, rail in family}
    moved = _moved(sample, names)
    if moved is None:
        moved = _mostly_moved(sample, seen)
    if moved is not None:
        # So rails are known that none of the nodes shows.
        numbers = {rail: _number(devices) for rail, devices in sample.items()}
        names = {rail: f"mlx5_{(number or 0) + moved}" for rail, number in numbers.items()}
    if set(names) != rails or len(set(names.values())) < len(names):
        return
    if all(names[rail] in [name.lower() for name in sample[rail]] for rail in rails):
        return
    # What both tell must be the same.
    if any(by_known.get(rail, name) != by_place.get(rail, name) for rail, name in names.items()):
        return
    proved = names == by_known or moved is not None
    # The plan's name of another rail: all nodes may have the same mistake.
    planned = {name.lower() for devices in sample.values() for name in devices}
    if not proved and planned.intersection(names.values()):
        return
    for node, rail in family:
        usual.rails[host_key(node), names[rail]] = (node, rail)
        usual.names[node, rail] = names[rail]
        usual.nodes.add(host_key(node))
        if proved:
            usual.proved.add(node)


def _votes(sweep: Sweep, keys: Mapping[str, Key], family: set[Key]) -> dict[int, dict[str, int]]:
    votes: dict[int, dict[str, int]] = {}
    for guid, key in keys.items():
        if key in family:
            device = device_key(host_and_device(sweep.devices[guid].description).device)
            counts = votes.setdefault(key[1], {})
            counts[device] = counts.get(device, 0) + 1
    return votes


def _most(votes: Mapping[int, Mapping[str, int]]) -> dict[int, str]:
    """Return the usual name of each rail that has one; what has no name has none."""
    names = {}
    for rail, counts in votes.items():
        best = max(sorted(counts), key=lambda name: counts[name])
        if best and counts[best] >= max(MOST, _SHARE * sum(counts.values())):
            names[rail] = best
    return names


def _number(devices: tuple[str, ...]) -> int | None:
    return next((one for one in map(kernel_number, devices) if one is not None), None)


def _mostly_moved(
    planned: Mapping[int, tuple[str, ...]], seen: Mapping[int, Mapping[str, int]]
) -> int | None:
    """Return by how much the kernel's numbers of most adapters moved, None where that differs.

    Many faults at once hide the usual name of a rail; all rails together still show it.
    """
    counts: dict[int, int] = {}
    for rail, names in seen.items():
        expected = _number(planned[rail])
        for name, count in names.items():
            number = kernel_number(name)
            if number is None or expected is None:
                return None
            counts[number - expected] = counts.get(number - expected, 0) + count
    if len(seen) < MOST:
        return None
    best = max(sorted(counts), key=lambda moved: counts[moved])
    most = max(MOST * len(planned), _MOVED_SHARE * sum(counts.values()))
    return best if counts[best] >= most else None


def _moved(planned: Mapping[int, tuple[str, ...]], names: Mapping[int, str]) -> int | None:
    """Return by how much the kernel's numbers of all rails moved, None where that differs."""
    if len(names) < MOST or any(_number(devices) is None for devices in planned.values()):
        return None
    moved = set()
    for rail, name in names.items():
        number, expected = kernel_number(name), _number(planned[rail])
        if number is None or expected is None:
            return None
        moved.add(number - expected)
    return moved.pop() if len(moved) == 1 else None
