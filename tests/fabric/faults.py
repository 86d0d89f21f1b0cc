# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of a fabric: each breaks a World, and says which findings must come of it, and no others.

    .venv/bin/python tests/fabric/faults.py [pairs]

prints detection and false alarms of all faults, alone and two at a time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from world import CA, INTERVAL_S, SWITCH, Cable, End, NoRoomError, World, rail_end, switch_end

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_judge import Expectation
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_model import NODE_LEAF

SYMBOLS = "SymbolErrorCounter"
DOWNED = "LinkDownedCounter"

Expected = tuple[str, str]


@dataclass
class Done:
    """What was broken: the findings that must come of it, and the cables that are concerned."""

    findings: set[Expected]
    touched: set[Cable] = field(default_factory=set)
    doubts: set[Expected] = field(default_factory=set)


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
            if switch.tier == tier and not self.of_device(name) & self.avoid
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
        world = self.world
        names = [
            name
            for name, switch in world.plan.switches.items()
            if len(self.of_device(name)) + sum(e.host == name for e in world.plan.reserved)
            < switch.radix
        ]
        self.rng.shuffle(names)
        for name in names:
            free = world.free_ports(name)
            if free:
                return self.rng.choice(free)
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


def same_rate(hand: Hand, speed: str, width: str, *cables: Cable) -> None:
    for cable in cables:
        for end in (cable.a, cable.b):
            port = hand.world.port(hand.world.place(end))
            port.speed, port.width = speed, width


# --- one cable


@fault
def rail_missing(hand: Hand) -> Done:
    cable = hand.rail()
    hand.world.remove(hand.world.key_of[cable.a.host, cable.a.rail])
    return Done({("missing", cable.subject)}, hand.near(cable))


@fault
def uplink_dark(hand: Hand) -> Done:
    cable = hand.uplink()
    hand.world.unplug(cable)
    return Done({("dark", cable.subject)}, hand.near(cable))


@fault
def uplink_port_disabled(hand: Hand) -> Done:
    cable = hand.uplink()
    hand.world.unplug(cable)
    hand.world.disabled.add(hand.world.place(cable.b))
    return Done({("dark", cable.subject)}, hand.near(cable))


@fault
def two_cables_of_a_leaf_missing(hand: Hand) -> Done:
    one = hand.rail()
    two = hand.rail(lambda c: c.b.host == one.b.host and not hand.near(c) & hand.near(one))
    for cable in (one, two):
        hand.world.remove(hand.world.key_of[cable.a.host, cable.a.rail])
    return Done({("missing", c.subject) for c in (one, two)}, hand.near(one) | hand.near(two))


@fault
def rails_of_a_node_swapped(hand: Hand) -> Done:
    one = hand.rail()
    two = hand.rail(lambda c: c.a.host == one.a.host and c != one)
    return turn(hand, [one, two])


@fault
def nodes_on_a_leaf_swapped(hand: Hand) -> Done:
    one = hand.rail()
    two = hand.rail(lambda c: c.b.host == one.b.host and c.a.host != one.a.host)
    return turn(hand, [one, two])


@fault
def rails_of_two_nodes_swapped_across(hand: Hand) -> Done:
    one = hand.rail()
    two = hand.rail(lambda c: c.a.host != one.a.host and c.b.host != one.b.host)
    return turn(hand, [one, two])


@fault
def uplinks_of_a_leaf_swapped(hand: Hand) -> Done:
    one = hand.uplink()
    two = hand.uplink(lambda c: c.a.host == one.a.host and c != one)
    return turn(hand, [one, two])


@fault
def uplinks_of_two_leaves_swapped(hand: Hand) -> Done:
    one = hand.uplink()
    two = hand.uplink(lambda c: c.a.host != one.a.host)
    return turn(hand, [one, two])


@fault
def node_cable_swapped_with_uplink(hand: Hand) -> Done:
    one = hand.rail()
    two = hand.uplink(lambda c: c.a.host == one.b.host)
    # The two plugs at the leaf.
    exchange(hand, one.b, two.a)
    return Done({("swapped", min(one, two).subject)}, {one, two})


@fault
def three_rails_in_turn(hand: Hand) -> Done:
    one = hand.rail()
    others = hand.cables(lambda c: c.a.host == one.a.host and c != one)
    return turn(hand, [one, *others[:2]])


@fault
def four_nodes_of_a_leaf_in_turn(hand: Hand) -> Done:
    one = hand.rail()
    others = hand.cables(lambda c: c.kind == NODE_LEAF and c.b.host == one.b.host and c != one)
    return turn(hand, [one, *others[:3]])


@fault
def all_rails_of_a_node_in_turn(hand: Hand) -> Done:
    node = hand.nodes(1)[0]
    return turn(hand, sorted(hand.of_device(node)))


@fault
def rail_in_a_free_port(hand: Hand) -> Done:
    cable = hand.rail()
    free = hand.free_port()
    hand.world.unplug(cable)
    hand.world.plug(cable.a, free)
    return Done({("moved", cable.subject)}, hand.near(cable))


@fault
def uplink_in_a_free_port(hand: Hand) -> Done:
    cable = hand.uplink()
    free = hand.free_port()
    hand.world.unplug(cable)
    hand.world.plug(cable.a, free)
    return Done({("moved", cable.subject)}, hand.near(cable))


@fault
def two_cables_moved_on(hand: Hand) -> Done:
    one = hand.rail()
    two = hand.rail(lambda c: c.b.host == one.b.host and c != one)
    free = hand.free_port()
    for cable in (one, two):
        hand.world.unplug(cable)
    hand.world.plug(one.a, two.b)
    hand.world.plug(two.a, free)
    return Done({("moved", one.subject)}, hand.near(one) | hand.near(two))


@fault
def rail_in_the_port_of_a_pulled_one(hand: Hand) -> Done:
    one = hand.rail()
    two = hand.rail(lambda c: c.b.host == one.b.host and not hand.near(c) & hand.near(one))
    hand.world.remove(hand.world.key_of[two.a.host, two.a.rail])
    hand.world.unplug(one)
    hand.world.plug(one.a, two.b)
    return Done({("moved", one.subject), ("missing", two.subject)}, hand.near(one) | hand.near(two))


# --- what is not in the plan


@fault
def stranger_in_a_free_port(hand: Hand) -> Done:
    hand.world.add("0200000000000001", CA, "storage-07 mlx5_0")
    hand.world.link(("0200000000000001", 1), hand.world.place(hand.free_port()))
    return Done({("unexpected", "device:storage-07")})


@fault
def stranger_in_the_port_of_a_rail(hand: Hand) -> Done:
    cable = hand.rail()
    hand.world.remove(hand.world.key_of[cable.a.host, cable.a.rail])
    hand.world.add("0200000000000002", CA, "storage-08 mlx5_0")
    hand.world.link(("0200000000000002", 1), hand.world.place(cable.b))
    return Done({("moved", cable.subject)}, hand.near(cable))


@fault
def node_that_is_not_in_the_plan(hand: Hand) -> Done:
    for rail in range(4):
        guid = f"02000000000001{rail:02x}"
        hand.world.add(guid, CA, f"dgx-9999 mlx5_rail{rail}")
        hand.world.link((guid, 1), hand.world.place(hand.free_port()))
    return Done({("unexpected", "device:dgx-9999")})


@fault
def switch_that_is_not_in_the_plan(hand: Hand) -> Done:
    hand.world.add("02000000000002ff", SWITCH, "MF0;new-leaf:MQM9700/U1", 64)
    for port in (1, 2, 3):
        hand.world.link(("02000000000002ff", port), hand.world.place(hand.free_port()))
    return Done({("unexpected", "device:new-leaf")})


@fault
def cable_between_two_free_ports(hand: Hand) -> Done:
    one = hand.free_port()
    two = hand.free_port()
    if one == two:
        raise NoRoomError
    hand.world.plug(one, two)
    return Done({("unexpected", f"port:{min(one, two)}")})


# --- devices that are something else


@fault
def two_nodes_exchanged(hand: Hand) -> Done:
    return _names_in_turn(hand, hand.nodes(2))


@fault
def three_nodes_exchanged(hand: Hand) -> Done:
    return _names_in_turn(hand, hand.nodes(3))


def _names_in_turn(hand: Hand, nodes: list[str]) -> Done:
    world = hand.world
    names = dict(zip(nodes, [*nodes[1:], nodes[0]], strict=True))
    for (node, _rail), guid in [(k, g) for k, g in world.key_of.items() if k[0] in names]:
        device = world.fabric.devices[guid]
        device.description = device.description.replace(node, names[node])
    return Done({("exchanged", f"node:{min(nodes)}")}, hand.of_nodes(nodes))


@fault
def node_plugged_as_an_absent_one(hand: Hand) -> Done:
    one, two = hand.nodes(2)
    world = hand.world
    for (node, rail), guid in list(world.key_of.items()):
        if node == one:
            cable = world.by_end[rail_end(two, rail)]
            world.remove(world.key_of[two, rail])
            world.unlink((guid, 1))
            world.link((guid, 1), world.place(cable.b))
    findings = {("exchanged", f"node:{one}"), ("node_absent", f"node:{two}")}
    return Done(findings, hand.of_nodes([one, two]))


def _switches_exchanged(hand: Hand, tier: str) -> Done:
    world = hand.world
    if len(world.plan.switches) == 2:
        raise NoRoomError
    one, two = hand.switches(tier, 2)
    for name, other in ((one, two), (two, one)):
        device = world.fabric.devices[world.key_of[name, -1]]
        device.description = f"MF0;{other}:MQM9700/U1"
    return Done({("exchanged", f"switch:{min(one, two)}")}, hand.of_nodes([one, two]))


@fault
def two_leaves_exchanged(hand: Hand) -> Done:
    return _switches_exchanged(hand, "leaf")


@fault
def two_spines_exchanged(hand: Hand) -> Done:
    return _switches_exchanged(hand, "spine")


@fault
def rail_renamed(hand: Hand) -> Done:
    cable = hand.rail()
    _describe(hand, cable, f"{cable.a.host} mlx5_77")
    return Done({("renamed", f"hca:{cable.a}")}, {cable})


@fault
def node_renamed(hand: Hand) -> Done:
    node = hand.nodes(1)[0]
    for cable in hand.of_device(node):
        _describe(hand, cable, f"{node} ibp{cable.a.rail}s0")
    return Done({("renamed", f"node:{node}")}, hand.of_device(node))


def _describe(hand: Hand, cable: Cable, text: str) -> None:
    guid = hand.world.key_of[cable.a.host, cable.a.rail]
    hand.world.fabric.devices[guid].description = text


@fault
def rail_without_a_name(hand: Hand) -> Done:
    cable = hand.rail()
    _describe(hand, cable, "MT4129 ConnectX7   Mellanox Technologies")
    return Done({("description", f"hca:{cable.a}")}, {cable})


@fault
def node_without_a_name(hand: Hand) -> Done:
    node = hand.nodes(1)[0]
    for cable in hand.of_device(node):
        _describe(hand, cable, "MT4129 ConnectX7   Mellanox Technologies")
    return Done({("description", f"node:{node}")}, hand.of_device(node))


@fault
def node_with_a_foreign_name(hand: Hand) -> Done:
    node = hand.nodes(1)[0]
    for cable in hand.of_device(node):
        _describe(hand, cable, f"rescue mlx5_rail{cable.a.rail}")
    return Done({("description", f"node:{node}")}, hand.of_device(node))


@fault
def node_with_the_name_of_another(hand: Hand) -> Done:
    one, two = hand.nodes(2)
    for cable in hand.of_device(one):
        _describe(hand, cable, f"{two} mlx5_rail{cable.a.rail}")
    return Done({("description", f"node:{one}")}, hand.of_nodes([one, two]))


@fault
def rail_with_the_name_of_another_node(hand: Hand) -> Done:
    one = hand.rail()
    other = hand.rail(lambda c: c.a.host != one.a.host and c.a.rail == one.a.rail)
    _describe(hand, one, f"{other.a.host} mlx5_rail{one.a.rail}")
    return Done({("description", f"hca:{one.a}")}, {one, other})


@fault
def leaf_with_a_foreign_name(hand: Hand) -> Done:
    name = hand.switches("leaf", 1)[0]
    device = hand.world.fabric.devices[hand.world.key_of[name, -1]]
    device.description = "MF0;old-name:MQM9700/U1"
    return Done({("description", f"switch:{name}")}, hand.of_device(name))


@fault
def spine_with_a_foreign_name(hand: Hand) -> Done:
    name = hand.switches("spine", 1)[0]
    device = hand.world.fabric.devices[hand.world.key_of[name, -1]]
    device.description = "MF0;old-spine:MQM9700/U1"
    return Done({("description", f"switch:{name}")}, hand.of_device(name))


def _declare(hand: Hand, names: list[str]) -> None:
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


@fault
def names_of_declared_nodes_exchanged(hand: Hand) -> Done:
    nodes = hand.nodes(2)
    done = _names_in_turn(hand, nodes)
    _declare(hand, nodes)
    return Done({("description", f"node:{min(nodes)}")}, done.touched)


@fault
def declared_switch_with_the_name_of_another(hand: Hand) -> Done:
    one, two = hand.switches("leaf", 2)
    hand.world.fabric.devices[hand.world.key_of[one, -1]].description = f"MF0;{two}:MQM9700/U1"
    _declare(hand, [one, two])
    return Done({("description", f"switch:{one}")}, hand.of_nodes([one, two]))


@fault
def duplicate_guid(hand: Hand) -> Done:
    one = hand.rail()
    two = hand.rail(lambda c: c.b.host != one.b.host and c.a.host != one.a.host)
    world = hand.world
    first, second = (world.key_of[c.a.host, c.a.rail] for c in (one, two))
    guid = world.fabric.devices[first].ports[1].guid
    world.doubled.append((guid or first, second))
    world.doubled = [(guid or first, second)]
    return Done({("duplicate_guid", f"guid:0x{guid or first}")}, {one, two})


# --- what is not there


@fault
def node_absent(hand: Hand) -> Done:
    node = hand.nodes(1)[0]
    for cable in hand.of_device(node):
        hand.world.remove(hand.world.key_of[node, cable.a.rail])
    return Done({("node_absent", f"node:{node}")}, hand.of_device(node))


def _switch_absent(hand: Hand, tier: str) -> Done:
    name = hand.switches(tier, 1)[0]
    hand.world.remove(hand.world.key_of[name, -1])
    for cable in hand.of_device(name):
        if cable.kind == NODE_LEAF:
            del hand.world.fabric.devices[hand.world.key_of[cable.a.host, cable.a.rail]]
    return Done({("switch_absent", f"switch:{name}")}, hand.of_device(name))


@fault
def leaf_absent(hand: Hand) -> Done:
    return _switch_absent(hand, "leaf")


@fault
def spine_absent(hand: Hand) -> Done:
    return _switch_absent(hand, "spine")


@fault
def cage_of_a_node_dead(hand: Hand) -> Done:
    cable = hand.rail()
    hca = hand.world.plan.hcas[cable.a.host, cable.a.rail]
    both = {c for c in hand.near(cable) if c.a.host == cable.a.host}
    assert len(both) == 2
    for one in both:
        hand.world.remove(hand.world.key_of[one.a.host, one.a.rail])
    touched = set().union(*(hand.near(one) for one in both))
    return Done({("cage", f"cage:{cable.a.host}/{hca.cage}")}, touched)


@fault
def cage_of_a_leaf_dead(hand: Hand) -> Done:
    cable = hand.rail(lambda c: c.b.port % 2 == 1)
    other = hand.world.by_end.get(switch_end(cable.b.host, cable.b.port + 1))
    if other is None or other in hand.avoid or other.kind != NODE_LEAF:
        raise NoRoomError
    if other.a.host == cable.a.host:
        raise NoRoomError  # BasePOD: the cage of the node and of the leaf are one cable
    for one in (cable, other):
        hand.world.remove(hand.world.key_of[one.a.host, one.a.rail])
    cage = (cable.b.port + 1) // 2
    return Done({("cage", f"cage:{cable.b.host}/{cage}")}, hand.near(cable) | hand.near(other))


@fault
def cage_of_uplinks_dead(hand: Hand) -> Done:
    cable = hand.uplink(lambda c: c.a.port % 2 == 1)
    other = hand.world.by_end[switch_end(cable.a.host, cable.a.port + 1)]
    hand.world.unplug(cable)
    hand.world.unplug(other)
    cage = (cable.a.port + 1) // 2
    return Done({("cage", f"cage:{cable.a.host}/{cage}")}, hand.near(cable) | hand.near(other))


@fault
def adapter_that_its_node_does_not_see(hand: Hand) -> Done:
    cable = hand.rail()
    hand.world.remove(hand.world.key_of[cable.a.host, cable.a.rail])
    hand.world.adapters[cable.a.host] = {
        hca.pci
        for (node, rail), hca in hand.world.plan.hcas.items()
        if node == cable.a.host and rail != cable.a.rail and hca.pci
    }
    return Done({("hca_absent", f"hca:{cable.a}")}, hand.near(cable))


@fault
def most_of_the_fabric_out_of_reach(hand: Hand) -> Done:
    if len(hand.world.plan.switches) == 2:
        raise NoRoomError
    # Only what hangs on the leaf of the sweep is left.
    leaf = next(name for name, s in hand.world.plan.switches.items() if s.tier == "leaf")
    if hand.avoid - PROTECTED(hand.world):
        raise NoRoomError
    for cable in hand.of_device(leaf):
        if cable.kind != NODE_LEAF:
            hand.world.unplug(cable)
    hand.world.sms = {}
    hand.world.wanted = Expectation()
    findings = {("split", "fabric"), ("no_sm", "fabric")}
    return Done(findings, set(hand.world.plan.cables) - hand.of_device(leaf))


# --- what does not answer


@fault
def rail_mute(hand: Hand) -> Done:
    cable = hand.rail()
    hand.world.mute.add(hand.world.key_of[cable.a.host, cable.a.rail])
    return Done({("silent", f"hca:{cable.a}")}, {cable})


@fault
def node_mute(hand: Hand) -> Done:
    node = hand.nodes(1)[0]
    hand.world.mute |= {g for (n, _rail), g in hand.world.key_of.items() if n == node}
    return Done({("silent", f"node:{node}")}, hand.of_device(node))


def _switch_mute(hand: Hand, tier: str) -> Done:
    name = hand.switches(tier, 1)[0]
    hand.world.mute.add(hand.world.key_of[name, -1])
    return Done({("silent", f"switch:{name}")}, hand.of_device(name))


@fault
def leaf_mute(hand: Hand) -> Done:
    return _switch_mute(hand, "leaf")


@fault
def spine_mute(hand: Hand) -> Done:
    return _switch_mute(hand, "spine")


# --- slow links


@fault
def rail_at_one_lane(hand: Hand) -> Done:
    cable = hand.rail()
    same_rate(hand, "NDR", "1x", cable)
    return Done({("width", cable.subject)}, {cable})


@fault
def uplink_at_two_lanes(hand: Hand) -> Done:
    cable = hand.uplink()
    same_rate(hand, "NDR", "2x", cable)
    return Done({("width", cable.subject)}, {cable})


@fault
def rail_at_hdr(hand: Hand) -> Done:
    cable = hand.rail()
    same_rate(hand, "HDR", "4x", cable)
    return Done({("speed", cable.subject)}, {cable})


@fault
def uplink_at_sdr(hand: Hand) -> Done:
    cable = hand.uplink()
    same_rate(hand, "SDR", "4x", cable)
    return Done({("speed", cable.subject)}, {cable})


@fault
def rail_narrow_and_slow(hand: Hand) -> Done:
    cable = hand.rail()
    same_rate(hand, "HDR", "1x", cable)
    return Done({("width", cable.subject)}, {cable})


@fault
def node_at_hdr(hand: Hand) -> Done:
    node = hand.nodes(1)[0]
    same_rate(hand, "HDR", "4x", *hand.of_device(node))
    return Done({("speed", f"node:{node}")}, hand.of_device(node))


@fault
def spine_at_hdr(hand: Hand) -> Done:
    name = hand.switches("spine", 1)[0]
    same_rate(hand, "HDR", "4x", *hand.of_device(name))
    return Done({("speed", f"switch:{name}")}, hand.of_device(name))


# --- counters


def count(hand: Hand, end: End, counter: str, before: int, after: int) -> None:
    place = hand.world.place(end)
    hand.world.before.setdefault(place, {})[counter] = before
    hand.world.after.setdefault(place, {})[counter] = after


@fault
def symbol_errors_at_a_rail(hand: Hand) -> Done:
    cable = hand.rail()
    count(hand, cable.a, SYMBOLS, 10, 412)
    return Done({("errors", cable.subject)}, {cable})


@fault
def symbol_errors_at_both_ends(hand: Hand) -> Done:
    cable = hand.uplink()
    count(hand, cable.a, SYMBOLS, 0, 3)
    count(hand, cable.b, SYMBOLS, 5, 60)
    count(hand, cable.b, "PortRcvErrors", 5, 60)
    return Done({("errors", cable.subject)}, {cable})


@fault
def link_went_down(hand: Hand) -> Done:
    cable = hand.rail()
    count(hand, cable.b, DOWNED, 3, 4)
    return Done({("errors", cable.subject)}, {cable})


@fault
def link_recovered(hand: Hand) -> Done:
    cable = hand.uplink()
    count(hand, cable.b, "LinkErrorRecoveryCounter", 0, 1)
    return Done({("errors", cable.subject)}, {cable})


@fault
def errors_received(hand: Hand) -> Done:
    cable = hand.rail()
    count(hand, cable.b, "PortRcvErrors", 0, 11)
    return Done({("errors", cable.subject)}, {cable})


@fault
def counter_that_came_to_its_end(hand: Hand) -> Done:
    cable = hand.rail()
    count(hand, cable.b, SYMBOLS, 60000, 65535)
    return Done({("errors", cable.subject)}, {cable})


@fault
def counter_that_stands_at_its_end(hand: Hand) -> Done:
    cable = hand.rail()
    count(hand, cable.b, DOWNED, 255, 255)
    return Done(set(), {cable}, {("errors", cable.subject)})


@fault
def counter_that_was_cleared(hand: Hand) -> Done:
    cable = hand.rail()
    count(hand, cable.b, SYMBOLS, 900, 1)
    return Done(set(), {cable}, {("errors", cable.subject)})


# --- subnet managers


def _only_sms(hand: Hand, findings: set[Expected]) -> Done:
    if "sms" in getattr(hand.world, "used", set()):
        raise NoRoomError
    hand.world.used = {"sms"}
    return Done(findings)


@fault
def no_subnet_manager(hand: Hand) -> Done:
    done = _only_sms(hand, {("no_sm", "fabric")})
    hand.world.sms = {}
    return done


@fault
def two_masters(hand: Hand) -> Done:
    done = _only_sms(hand, {("two_masters", "fabric")})
    hand.world.sms = dict.fromkeys(hand.world.sms, "MASTER")
    return done


@fault
def standby_missing(hand: Hand) -> Done:
    standby = next(host for host, state in hand.world.sms.items() if state == "STANDBY")
    done = _only_sms(hand, {("standby_missing", f"sm:{standby}")})
    del hand.world.sms[standby]
    return done


@fault
def subnet_manager_on_a_switch(hand: Hand) -> Done:
    name = "leaf-001"
    if hand.of_device(name) & (hand.avoid - PROTECTED(hand.world)):
        raise NoRoomError
    done = _only_sms(hand, {("sm_unexpected", f"sm:{name}")})
    hand.world.sms[name] = "STANDBY"
    done.touched = hand.of_device(name)
    return done


def PROTECTED(world: World) -> set[Cable]:  # noqa: N802
    """Cables of the hosts of the subnet managers: without them there would be none to ask."""
    by_end = world.by_end
    return {by_end[rail_end(host, 0)] for host in world.wanted.subnet_managers}


# --- what must not be found


HARMLESS: dict[str, Fault] = {}


def harmless(function: Fault) -> Fault:
    HARMLESS[function.__name__] = function
    return function


@harmless
def old_totals(hand: Hand) -> Done:
    for cable in hand.cables()[:40]:
        count(hand, cable.a, SYMBOLS, 4000, 4000)
        count(hand, cable.b, DOWNED, 17, 17)
    return Done(set())


@harmless
def few_errors(hand: Hand) -> Done:
    for cable in hand.cables()[:40]:
        count(hand, cable.b, SYMBOLS, 7, 9)
        count(hand, cable.a, "PortRcvErrors", 0, 10)
    return Done(set())


@harmless
def congestion(hand: Hand) -> Done:
    for cable in hand.cables()[:40]:
        count(hand, cable.b, "PortXmitWait", 5, 4_000_000_000)
        count(hand, cable.b, "PortXmitDiscards", 0, 65535)
        count(hand, cable.a, "PortRcvRemotePhysicalErrors", 0, 5000)
    return Done(set())


@harmless
def switches_without_names(hand: Hand) -> Done:
    for name in hand.world.plan.switches:
        device = hand.world.fabric.devices[hand.world.key_of[name, -1]]
        device.description = "Quantum-2 Mellanox Technologies"
    return Done(set())


@harmless
def aggregation_nodes(hand: Hand) -> Done:
    for index, name in enumerate(hand.world.plan.switches):
        guid = f"03000000000000{index:02x}"
        hand.world.add(guid, CA, "Mellanox Technologies Aggregation Node")
        hand.world.link((guid, 1), (hand.world.key_of[name, -1], 65))
    return Done(set())


@harmless
def ufm_in_its_ports(hand: Hand) -> Done:
    for index, end in enumerate(hand.world.plan.reserved):
        guid = f"04000000000000{index:02x}"
        hand.world.add(guid, CA, f"ufm-0{index // 2 + 1} mlx5_{index % 2}")
        hand.world.link((guid, 1), hand.world.place(end))
    return Done(set())


@harmless
def a_host_that_is_known(hand: Hand) -> Done:
    guid = "0500000000000001"
    hand.world.add(guid, CA, "login-01.cluster.example mlx5_0")
    hand.world.link((guid, 1), hand.world.place(hand.free_port()))
    hand.world.wanted = replace(hand.world.wanted, other_hosts=("login-01",))
    return Done(set())


@harmless
def kernel_names(hand: Hand) -> Done:
    for cable in hand.cables(lambda c: c.kind == NODE_LEAF):
        _describe(hand, cable, f"{cable.a.host}.cluster.example mlx5_{cable.a.rail}")
    return Done(set())


@harmless
def all_guids_declared(hand: Hand) -> Done:
    names = {node for node, _rail in hand.world.plan.hcas} | set(hand.world.plan.switches)
    _declare(hand, sorted(names))
    return Done(set())


assert INTERVAL_S == 720
