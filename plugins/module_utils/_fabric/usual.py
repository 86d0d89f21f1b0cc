# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The names that a fabric usually gives to each rail, where they are not those of the plan. Pure.

If nearly all nodes call a rail the same, that is its name: the plan's own was a guess of the
profile. It tells what the other adapters are, those that are not in their place among them.

Whether it proves a cable is another question. Adapters that are known otherwise, and numbers of
the kernel that all moved by the same, prove the names; names that were only seen in the places of
the rails do not, since the same mistake may have been made at every node.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping

from .judge_adapters import Key
from .model import CablePlan, Sweep
from .names import device_key, host_and_device, host_key, kernel_number

# A name is usual if so many nodes, and this share of those that are seen, give it to the rail.
MOST = 3
_SHARE = 0.75


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
    by_known = _most(_votes(sweep, known, of_family))
    by_place = _most(_votes(sweep, places, of_family))
    rails = {rail for _node, rail in family}
    names = by_known if set(by_known) == rails else by_place
    sample = {rail: plan.hcas[node, rail].devices for node, rail in family}
    moved = _moved(sample, names)
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
