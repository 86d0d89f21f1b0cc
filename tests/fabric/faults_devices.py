# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of devices: exchanged, misnamed, absent, silent."""

from __future__ import annotations

from dataclasses import replace

from hand import (
    Done,
    Expected,
    Hand,
    declare,
    describe,
    fault,
    name_all,
    protected,
    turn,
)
from world import CA, NoRoomError, rail_end, switch_end

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import NODE_LEAF

# --- devices that are something else


def by_place(subject: str) -> set[Expected]:
    """What is not measured since only its place says what it is."""
    return {("identity", subject)}


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
    # A machine reports its adapters under the name that it has.
    world.called.update(names)
    world.adapters.update(
        {names[node]: adapters for node, adapters in world.adapters.items() if node in names}
    )
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
    describe(hand, cable, f"{cable.a.host} mlx5_77")
    found = {("renamed", f"hca:{cable.a}")}
    return Done(found, {cable}, by_place(f"hca:{cable.a}"), answered=set())


@fault
def node_renamed(hand: Hand) -> Done:
    node = hand.nodes(1)[0]
    for cable in hand.of_device(node):
        describe(hand, cable, f"{node} ibp{cable.a.rail}s0")
    found = {("renamed", f"node:{node}")}
    return Done(found, hand.of_device(node), by_place(f"node:{node}"), answered=set())


@fault
def rail_without_a_name(hand: Hand) -> Done:
    cable = hand.rail()
    describe(hand, cable, "MT4129 ConnectX7   Mellanox Technologies")
    return Done({("description", f"hca:{cable.a}")}, {cable}, by_place(f"hca:{cable.a}"))


@fault
def node_without_a_name(hand: Hand) -> Done:
    node = hand.nodes(1)[0]
    for cable in hand.of_device(node):
        describe(hand, cable, "MT4129 ConnectX7   Mellanox Technologies")
    return Done({("description", f"node:{node}")}, hand.of_device(node), by_place(f"node:{node}"))


@fault
def node_with_a_foreign_name(hand: Hand) -> Done:
    node = hand.nodes(1)[0]
    for cable in hand.of_device(node):
        describe(hand, cable, f"rescue mlx5_rail{cable.a.rail}")
    return Done({("description", f"node:{node}")}, hand.of_device(node), by_place(f"node:{node}"))


@fault
def node_with_the_name_of_another(hand: Hand) -> Done:
    one, two = hand.nodes(2)
    for cable in hand.of_device(one):
        describe(hand, cable, f"{two} mlx5_rail{cable.a.rail}")
    found = {("description", f"node:{one}")}
    doubts = by_place(f"node:{one}") | by_place(f"node:{two}")
    return Done(found, hand.of_nodes([one, two]), doubts)


@fault
def rail_with_the_name_of_another_node(hand: Hand) -> Done:
    one = hand.rail()
    other = hand.rail(lambda c: c.a.host != one.a.host and c.a.rail == one.a.rail)
    describe(hand, one, f"{other.a.host} mlx5_rail{one.a.rail}")
    doubts = by_place(f"hca:{one.a}") | by_place(f"hca:{other.a}")
    return Done({("description", f"hca:{one.a}")}, {one, other}, doubts)


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


@fault
def names_of_declared_nodes_exchanged(hand: Hand) -> Done:
    nodes = hand.nodes(2)
    done = _names_in_turn(hand, nodes)
    declare(hand, nodes)
    found = {("description", f"node:{min(nodes)}")}
    # Machines that answer by each other's name are those of each other.
    return Done(found, done.touched, answered=done.findings)


@fault
def declared_switch_with_the_name_of_another(hand: Hand) -> Done:
    one, two = hand.switches("leaf", 2)
    hand.world.fabric.devices[hand.world.key_of[one, -1]].description = f"MF0;{two}:MQM9700/U1"
    declare(hand, [one, two])
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
    if tier != "leaf":
        reach(hand, hand.of_device(name))
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
def half_of_a_leaf_dead(hand: Hand) -> Done:
    return _half_dead(hand, "leaf")


@fault
def half_of_a_spine_dead(hand: Hand) -> Done:
    return _half_dead(hand, "spine")


def _half_dead(hand: Hand, tier: str) -> Done:
    name = hand.switches(tier, 1)[0]
    world = hand.world
    of = {c.a.port if c.a.host == name else c.b.port: c for c in hand.of_device(name)}
    numbers = sorted(of)
    # A leaf keeps an uplink, or it would be cut off.
    first = hand.rng.randrange(len(numbers) // 2)
    half = numbers[first : first + len(numbers) // 2]
    near = set().union(*(hand.near(of[number]) for number in half))
    if len(half) < 8 or (tier == "leaf" and len(world.plan.switches) == 2) or near & hand.avoid:
        raise NoRoomError
    reach(hand, {of[number] for number in half})
    for number in half:
        world.unplug(of[number])
        if of[number].kind == NODE_LEAF:
            end = of[number].a
            world.remove(world.key_of[end.host, end.rail])
    return Done({("ports", f"switch:{name}")}, hand.of_device(name) | near)


def reach(hand: Hand, lost: set) -> None:
    """See that each switch below these cables keeps an uplink; one without is as if it were off."""
    world = hand.world
    for name in {cable.a.host for cable in lost if cable.a.is_switch}:
        if not any(
            cable.a.host == name
            and world.in_place(cable)
            and world.key_of[cable.b.host, -1] not in world.silent
            for cable in hand.of_device(name) - lost
        ):
            raise NoRoomError


@fault
def spine_that_loses_most(hand: Hand) -> Done:
    name = hand.switches("spine", 1)[0]
    cables = sorted(hand.of_device(name))
    lost = hand.rng.sample(cables, (2 * len(cables)) // 3)
    reach(hand, set(lost))
    for cable in lost:
        hand.world.unplug(cable)
    return Done({("ports", f"switch:{name}")}, set(cables))


@fault
def spine_that_loses_a_few_cables(hand: Hand) -> Done:
    name = hand.switches("spine", 1)[0]
    spines = [one for one, switch in hand.world.plan.switches.items() if switch.tier == "spine"]
    # Two of one cage are lost together, and from one leaf it may be that leaf.
    of_leaf: dict[str, list] = {}
    for cable in sorted(hand.of_device(name)):
        if cable.b.host == name and cable.a.port % 2:
            of_leaf.setdefault(cable.a.host, []).append(cable)
    if len(of_leaf) < 8 or len(spines) < 8:
        raise NoRoomError
    leaves = hand.rng.sample(sorted(of_leaf), max(6, len(of_leaf) // 4))
    for number, leaf in enumerate(leaves):
        hand.world.unplug(of_leaf[leaf][number % len(of_leaf[leaf])])
    return Done({("ports", f"switch:{name}")}, hand.of_device(name))


@fault
def rails_exchanged_and_one_has_no_name(hand: Hand) -> Done:
    one = hand.rail()
    two = hand.rail(lambda c: c.b.host == one.b.host and c.a.host != one.a.host)
    describe(hand, two, "MT4129 ConnectX7   Mellanox Technologies")
    done = turn(hand, [one, two])
    touched = hand.of_nodes([one.a.host, two.a.host])
    return Done(done.findings | {("description", f"hca:{two.a}")}, touched)


@fault
def three_in_turn_and_one_has_no_name(hand: Hand) -> Done:
    one = hand.rail()
    others = hand.cables(lambda c: c.kind == NODE_LEAF and c.b.host == one.b.host and c != one)
    cables = [one, *others[:2]]
    describe(hand, one, "MT4129 ConnectX7   Mellanox Technologies")
    done = turn(hand, cables)
    touched = hand.of_nodes([cable.a.host for cable in cables])
    return Done(done.findings | {("description", f"hca:{one.a}")}, touched)


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


def _adapter_gone(hand: Hand, node: str, rail: int) -> None:
    hand.world.gone.add((node, rail))
    hand.world.remove(hand.world.key_of[node, rail])


@fault
def adapter_that_its_node_does_not_see(hand: Hand) -> Done:
    cable = hand.rail()
    _adapter_gone(hand, cable.a.host, cable.a.rail)
    hand.world.ask_nodes(cable.a.host)
    return Done({("hca_absent", f"hca:{cable.a}")}, hand.near(cable))


@fault
def adapter_gone_and_all_nodes_answer(hand: Hand) -> Done:
    cable = hand.rail()
    _adapter_gone(hand, cable.a.host, cable.a.rail)
    hand.world.ask_nodes()
    return Done({("hca_absent", f"hca:{cable.a}")}, hand.near(cable))


@fault
def cable_pulled_and_its_node_sees_the_adapter(hand: Hand) -> Done:
    cable = hand.rail()
    hand.world.ask_nodes(cable.a.host)
    hand.world.remove(hand.world.key_of[cable.a.host, cable.a.rail])
    return Done({("missing", cable.subject)}, hand.near(cable))


def renumber(hand: Hand, node: str, gone: int | None = None, by: int = 1) -> None:
    """Give the adapters of a node the kernel's numbers, those after `gone` lower ones."""
    for cable in hand.of_device(node):
        lower = by if gone is not None and cable.a.rail > gone else 0
        if hand.world.key_of[node, cable.a.rail] in hand.world.fabric.devices:
            describe(hand, cable, f"{node} mlx5_{cable.a.rail - lower}")


def _numbers_moved_down(hand: Hand) -> tuple[str, int, set]:
    node = hand.nodes(1)[0]
    rails = sorted(cable.a.rail for cable in hand.of_device(node))
    gone = hand.rng.choice(rails[:-1])
    _adapter_gone(hand, node, gone)
    renumber(hand, node, gone)
    later = {("identity", f"hca:{node}/rail{rail}") for rail in rails if rail > gone}
    if gone == rails[0]:
        later = by_place(f"node:{node}") if len(later) > 1 else later
    return node, gone, later


@fault
def adapter_gone_and_later_ones_renumbered(hand: Hand) -> Done:
    node, gone, later = _numbers_moved_down(hand)
    return Done({("hca_absent", f"hca:{node}/rail{gone}")}, hand.of_device(node), later)


@fault
def adapter_gone_and_renumbered_as_the_node_reports(hand: Hand) -> Done:
    node, gone, _later = _numbers_moved_down(hand)
    hand.world.ask_nodes(node)
    return Done({("hca_absent", f"hca:{node}/rail{gone}")}, hand.of_device(node))


@fault
def rails_swapped_under_any_names_and_nodes_answer(hand: Hand) -> Done:
    node = hand.nodes(1)[0]
    one, two = hand.rng.sample(sorted(hand.of_device(node)), 2)
    form = hand.rng.choice(["capitals", "hca", "none"])
    name_all(hand.world, form, [node])
    hand.world.ask_nodes(node)
    done = turn(hand, [one, two])
    names = {("description", f"node:{node}")} if form == "none" else set()
    return Done(done.findings | names, hand.of_device(node))


@fault
def rails_swapped_under_default_names(hand: Hand) -> Done:
    node = hand.nodes(1)[0]
    one, two = hand.rng.sample(sorted(hand.of_device(node)), 2)
    name_all(hand.world, "hca", [node])
    done = turn(hand, [one, two])
    return Done(done.findings, hand.of_device(node))


@fault
def rails_swapped_under_foreign_names(hand: Hand) -> Done:
    # Ambiguous: two adapters in their node's places, under names that say no rail.
    node = hand.nodes(1)[0]
    one, two = hand.rng.sample(sorted(hand.of_device(node)), 2)
    for cable in hand.of_device(node):
        describe(hand, cable, f"{node} ibp{cable.a.rail}s0")
    turn(hand, [one, two])
    return Done({("renamed", f"node:{node}")}, hand.of_device(node), by_place(f"node:{node}"))


@fault
def rails_swapped_under_the_usual_names(hand: Hand) -> Done:
    # Everywhere the kernel's numbers are two higher than those of the profile.
    if hand.avoid - protected(hand.world):
        raise NoRoomError
    name_all(hand.world, "shifted")
    node = hand.nodes(1)[0]
    one, two = hand.rng.sample(sorted(hand.of_device(node)), 2)
    done = turn(hand, [one, two])
    return Done(done.findings | {("renamed", "fabric")}, hand.of_device(node))


@fault
def numbers_of_a_node_moved_up(hand: Hand) -> Done:
    node = hand.nodes(1)[0]
    name_all(hand.world, "shifted", [node])
    return Done({("renamed", f"node:{node}")}, hand.of_device(node), by_place(f"node:{node}"))


@fault
def rail_in_the_storage_adapter_of_its_node(hand: Hand) -> Done:
    cable = hand.rail()
    world, node = hand.world, cable.a.host
    world.remove(world.key_of[node, cable.a.rail])
    world.add("0600000000000001", CA, f"{node} mlx5_storage0")
    world.link(("0600000000000001", 1), world.place(cable.b))
    return Done({("moved", cable.subject)}, hand.near(cable))


@fault
def adapter_replaced(hand: Hand) -> Done:
    cable = hand.rail()
    declare(hand, [cable.a.host])
    hcas = {**hand.world.plan.hcas}
    key = (cable.a.host, cable.a.rail)
    hcas[key] = replace(hcas[key], guid="0600000000000002")
    hand.world.plan = replace(hand.world.plan, hcas=hcas)
    return Done({("replaced", f"hca:{cable.a}")}, hand.of_device(cable.a.host))


@fault
def leaf_replaced(hand: Hand) -> Done:
    name = hand.switches("leaf", 1)[0]
    switches = {**hand.world.plan.switches}
    switches[name] = replace(switches[name], guid="0600000000000003")
    hand.world.plan = replace(hand.world.plan, switches=switches)
    return Done({("replaced", f"switch:{name}")}, hand.of_device(name))


@fault
def declared_guid_in_the_place_of_another(hand: Hand) -> Done:
    # Both without a name: the declaration alone says that the cables are exchanged.
    one = hand.rail()
    two = hand.rail(lambda c: c.a.host != one.a.host and c.b.host == one.b.host)
    declare(hand, [one.a.host, two.a.host])
    for cable in (one, two):
        describe(hand, cable, "MT4129 ConnectX7   Mellanox Technologies")
    done = turn(hand, [one, two])
    names = {("description", f"hca:{cable.a}") for cable in (one, two)}
    return Done(done.findings | names, hand.of_nodes([one.a.host, two.a.host]))


@fault
def most_of_the_fabric_out_of_reach(hand: Hand) -> Done:
    if len(hand.world.plan.switches) == 2:
        raise NoRoomError
    # Only what hangs on the leaf of the sweep is left.
    leaf = next(name for name, s in hand.world.plan.switches.items() if s.tier == "leaf")
    if hand.avoid - protected(hand.world):
        raise NoRoomError
    for cable in hand.of_device(leaf):
        if cable.kind != NODE_LEAF:
            hand.world.unplug(cable)
    hand.world.sms = {}
    hand.world.options = {}
    findings = {("split", "fabric"), ("no_sm", "fabric")}
    return Done(findings, set(hand.world.plan.cables) - hand.of_device(leaf))


# --- what does not answer


@fault
def rail_silent(hand: Hand) -> Done:
    cable = hand.rail()
    hand.world.silent.add(hand.world.key_of[cable.a.host, cable.a.rail])
    return Done({("silent", f"hca:{cable.a}")}, {cable})


@fault
def node_silent(hand: Hand) -> Done:
    node = hand.nodes(1)[0]
    hand.world.silent |= {g for (n, _rail), g in hand.world.key_of.items() if n == node}
    return Done({("silent", f"node:{node}")}, hand.of_device(node))


def _switch_silent(hand: Hand, tier: str) -> Done:
    name = hand.switches(tier, 1)[0]
    if tier != "leaf":
        reach(hand, hand.of_device(name))
    hand.world.silent.add(hand.world.key_of[name, -1])
    return Done({("silent", f"switch:{name}")}, hand.of_device(name))


@fault
def leaf_silent(hand: Hand) -> Done:
    return _switch_silent(hand, "leaf")


@fault
def spine_silent(hand: Hand) -> Done:
    return _switch_silent(hand, "spine")
