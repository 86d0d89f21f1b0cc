# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of cables and of what hangs where: each says which findings must come of it."""

from __future__ import annotations

from hand import Done, Hand, exchange, fault, turn
from world import CA, SWITCH, NoRoomError, switch_end

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import NODE_LEAF

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
def two_trunks_exchanged(hand: Hand) -> Done:
    one = hand.uplink(lambda c: not c.b.host.startswith("leaf"))
    trunks: dict[str, list] = {}
    for cable in sorted(hand.of_device(one.a.host)):
        if cable.a.host == one.a.host:
            trunks.setdefault(cable.b.host, []).append(cable)
    free = [cables for cables in trunks.values() if not set(cables) & hand.avoid]
    if len(free) < 2 or len(free[0]) < 2:
        raise NoRoomError
    first, second = hand.rng.sample(free, 2)
    for here, there in zip(first, second, strict=True):
        exchange(hand, here.b, there.b)
    return Done({("swapped", min(*first, *second).subject)}, {*first, *second})


@fault
def node_at_another_place(hand: Hand) -> Done:
    node = hand.nodes(1)[0]
    world, cables = hand.world, sorted(hand.of_device(node))
    free = [{end.port for end in world.free_ports(cable.b.host)} for cable in cables]
    common = sorted(
        by for by in range(1, 64)
        if all(cable.b.port + by in ports for cable, ports in zip(cables, free, strict=True))
    )  # fmt: skip
    if not common:
        raise NoRoomError
    by = hand.rng.choice(common)
    for cable in cables:
        world.unplug(cable)
        world.plug(cable.a, switch_end(cable.b.host, cable.b.port + by))
    return Done({("moved", f"node:{node}")}, hand.of_device(node))


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
def unplanned_host_in_a_free_port(hand: Hand) -> Done:
    hand.world.add("0200000000000001", CA, "storage-07 mlx5_0")
    hand.world.link(("0200000000000001", 1), hand.world.place(hand.free_port()))
    return Done({("unexpected", "device:storage-07")})


@fault
def unplanned_host_in_the_port_of_a_rail(hand: Hand) -> Done:
    cable = hand.rail()
    hand.world.remove(hand.world.key_of[cable.a.host, cable.a.rail])
    hand.world.add("0200000000000002", CA, "storage-08 mlx5_0")
    hand.world.link(("0200000000000002", 1), hand.world.place(cable.b))
    return Done({("moved", cable.subject)}, hand.near(cable))


@fault
def node_that_is_not_in_the_plan(hand: Hand) -> Done:
    for rail, port in enumerate(hand.free_ports(4)):
        guid = f"02000000000001{rail:02x}"
        hand.world.add(guid, CA, f"dgx-9999 mlx5_rail{rail}")
        hand.world.link((guid, 1), hand.world.place(port))
    return Done({("unexpected", "device:dgx-9999")})


@fault
def switch_that_is_not_in_the_plan(hand: Hand) -> Done:
    ports = hand.free_ports(3)
    hand.world.add("02000000000002ff", SWITCH, "MF0;new-leaf:MQM9700/U1", 64)
    for number, port in enumerate(ports, 1):
        hand.world.link(("02000000000002ff", number), hand.world.place(port))
    return Done({("unexpected", "device:new-leaf")})


@fault
def cable_between_two_free_ports(hand: Hand) -> Done:
    one, two = hand.free_ports(2)
    hand.world.plug(one, two)
    return Done({("unexpected", f"port:{min(one, two)}")})


@fault
def another_fabric_joined(hand: Hand) -> Done:
    """A leaf with its hosts and a spine of another cluster, by one cable."""
    (port,) = hand.free_ports(1)
    leaf, spine = "02000000000003fe", "02000000000003ff"
    hand.world.add(leaf, SWITCH, "MF0;other-leaf:MQM9700/U1", 64)
    hand.world.add(spine, SWITCH, "MF0;other-spine:MQM9700/U1", 64)
    for number in range(1, 17):
        guid = f"02000000000003{number:02x}"
        hand.world.add(guid, CA, f"other-{number:02} mlx5_0")
        hand.world.link((guid, 1), (leaf, number))
        hand.world.link((leaf, 32 + number), (spine, number))
    hand.world.link((leaf, 64), hand.world.place(port))
    return Done({("unexpected", "device:other-leaf")})
