# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hand that breaks a fabric, and the list of all faults that it knows."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from world import Cable, End, NoRoomError, World, rail_end

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import NODE_LEAF

SYMBOLS = "SymbolErrorCounter"
DOWNED = "LinkDownedCounter"

Expected = tuple[str, str]


@dataclass
class Done:
    """What was broken: the findings that must come of it, and the cables that are concerned.

    `answered` must come of it instead where the broken nodes report which adapter is which.
    """

    findings: set[Expected]
    touched: set[Cable] = field(default_factory=set)
    doubts: set[Expected] = field(default_factory=set)
    answered: set[Expected] | None = None


@dataclass
class Hand:
    """The hand that breaks things: it knows what must be left alone."""

    world: World
    rng: random.Random
    avoid: set[Cable]

    def cables(self, where: Callable[[Cable], bool] = lambda _cable: True) -> list[Cable]:
        found = [c for c in self.world.plan.cables if where(c) and not self.near(c) & self.avoid]
        if not found:
            raise NoRoomError
        self.rng.shuffle(found)
        return found

    def one(self, where: Callable[[Cable], bool]) -> Cable:
        found = [c for c in self.world.plan.cables if where(c)]
        self.rng.shuffle(found)
        for cable in found:
            if not self.near(cable) & self.avoid:
                return cable
        raise NoRoomError

    def rail(self, where: Callable[[Cable], bool] = lambda _cable: True) -> Cable:
        return self.one(lambda c: c.kind == NODE_LEAF and where(c))

    def uplink(self, where: Callable[[Cable], bool] = lambda _cable: True) -> Cable:
        return self.one(lambda c: c.kind != NODE_LEAF and where(c))

    def near(self, cable: Cable) -> set[Cable]:
        """The cable and those that share a cage with it: together they would be another fault."""
        return self.world.near[cable]

    def of_device(self, name: str) -> set[Cable]:
        return self.world.of_device[name]

    def nodes(self, count: int) -> list[str]:
        names = sorted({node for node, _rail in self.world.plan.hcas})
        names = [name for name in names if not self.of_device(name) & self.avoid]
        if len(names) < count:
            raise NoRoomError
        return self.rng.sample(names, count)

    def switches(self, tier: str, count: int) -> list[str]:
        names = [
            name
            for name, switch in self.world.plan.switches.items()
            if switch.tier == tier
            and name not in self.world.busy
            and not self.of_device(name) & self.avoid
        ]
        if len(names) < count or (
            tier == "leaf" and len(self.world.plan.switches) == 2 < 2 * count
        ):
            raise NoRoomError
        return self.rng.sample(names, count)

    def of_nodes(self, names: list[str]) -> set[Cable]:
        return set().union(*(self.of_device(name) for name in names))

    def free_port(self) -> End:
        """A port of a switch that nothing is planned for; a full SuperPOD has none."""
        return self.free_ports(1)[0]

    def free_ports(self, count: int) -> list[End]:
        """So many of these ports, each of any switch."""
        world = self.world
        names = [
            name
            for name, switch in world.plan.switches.items()
            if len(self.of_device(name)) + sum(e.host == name for e in world.plan.reserved)
            < switch.radix
            and world.key_of[name, -1] in world.fabric.devices
            and world.key_of[name, -1] not in world.silent
        ]
        self.rng.shuffle(names)
        free: list[End] = []
        for name in names:
            ports = world.free_ports(name)
            free += self.rng.sample(ports, min(len(ports), count - len(free)))
            if len(free) == count:
                # No later fault takes these switches away.
                world.busy.update(end.host for end in free)
                return free
        raise NoRoomError


Fault = Callable[[Hand], Done]
FAULTS: dict[str, Fault] = {}


def fault(function: Fault) -> Fault:
    FAULTS[function.__name__] = function
    return function


def exchange(hand: Hand, one: End, two: End) -> None:
    """Exchange the plugs at two ports."""
    world = hand.world
    here, there = world.place(one), world.place(two)
    first, second = world.port(here).peer, world.port(there).peer
    assert first is not None
    assert second is not None
    world.unlink(here)
    world.unlink(there)
    world.link(here, second)
    world.link(there, first)


def turn(hand: Hand, cables: list[Cable]) -> Done:
    """Move the upper plug of each cable on to the port of the next one."""
    world = hand.world
    for cable in cables:
        world.unplug(cable)
    for cable, after in zip(cables, [*cables[1:], cables[0]], strict=True):
        world.plug(cable.a, after.b)
    return Done({("swapped", min(cables).subject)}, set(cables))


def protected(world: World) -> set[Cable]:
    """Cables of the hosts of the subnet managers: without them there would be none to ask."""
    by_end = world.by_end
    return {by_end[rail_end(host, 0)] for host in world.options.get("subnet_managers", ())}


HARMLESS: dict[str, Fault] = {}


def harmless(function: Fault) -> Fault:
    HARMLESS[function.__name__] = function
    return function


def same_rate(hand: Hand, speed: str, width: str, *cables: Cable) -> None:
    for cable in cables:
        for end in (cable.a, cable.b):
            port = hand.world.port(hand.world.place(end))
            port.speed, port.width = speed, width


def describe(hand: Hand, cable: Cable, text: str) -> None:
    guid = hand.world.key_of[cable.a.host, cable.a.rail]
    hand.world.fabric.devices[guid].description = text


# What adapters call themselves that have no name in the plan, by node and rail.
FORMS: dict[str, Callable[[str, int], str]] = {
    "hca": lambda node, rail: f"{node} HCA-{rail + 1}",
    "capitals": lambda node, rail: f"{node.upper()} mlx5_rail{rail}",
    "shifted": lambda node, rail: f"{node} mlx5_{rail + 2}",
    "renamed": lambda node, rail: f"{node} ibp{rail}s0",
    "none": lambda _node, _rail: "MT4129 ConnectX7   Mellanox Technologies",
}


def name_all(world: World, form: str, nodes: list[str] | None = None) -> None:
    """Give the adapters of these nodes, or of all, names of another form."""
    for (node, rail), guid in world.key_of.items():
        if rail >= 0 and (nodes is None or node in nodes) and guid in world.fabric.devices:
            world.fabric.devices[guid].description = FORMS[form](node, rail)


def declare(hand: Hand, names: list[str]) -> None:
    """Let the inventory know the GUIDs of these devices."""
    world = hand.world
    plan = world.plan
    hcas = {
        key: replace(hca, guid=world.key_of[key]) if key[0] in names else hca
        for key, hca in plan.hcas.items()
    }
    switches = {
        name: replace(switch, guid=world.key_of[name, -1]) if name in names else switch
        for name, switch in plan.switches.items()
    }
    world.plan = replace(plan, hcas=hcas, switches=switches)


def count(hand: Hand, end: End, counter: str, before: int, after: int) -> None:
    place = hand.world.place(end)
    hand.world.before.setdefault(place, {})[counter] = before
    hand.world.after.setdefault(place, {})[counter] = after
