# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fabrics that are irregular and healthy: nothing in them may be a finding."""

from __future__ import annotations

from collections.abc import Callable

from hand import FORMS, Hand, describe, name_all, same_rate
from world import CA, SWITCH, NoRoomError, switch_end

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import NODE_LEAF

IRREGULAR: dict[str, Callable[[Hand], None]] = {}


def irregular(function: Callable[[Hand], None]) -> Callable[[Hand], None]:
    IRREGULAR[function.__name__] = function
    return function


def _remove(hand: Hand, nodes: list[str]) -> None:
    for node in nodes:
        for cable in hand.of_device(node):
            hand.world.remove(hand.world.key_of[node, cable.a.rail])


def _nodes(hand: Hand) -> list[str]:
    return sorted({node for node, _rail in hand.world.plan.hcas})


@irregular
def as_planned(_hand: Hand) -> None:
    """Change nothing."""


@irregular
def a_rack_that_was_not_built(hand: Hand) -> None:
    nodes = _nodes(hand)
    first = hand.rng.randrange(1, len(nodes) - 4)
    _remove(hand, nodes[first : first + 3])


@irregular
def a_last_unit_that_is_not_full(hand: Hand) -> None:
    _remove(hand, _nodes(hand)[-5:])


@irregular
def hosts_beside_the_nodes(hand: Hand) -> None:
    """Storage with two adapters, login hosts with one at a lower rate, and UFM."""
    for number, name in enumerate(("storage-1", "storage-2", "storage-3", "login-01", "ufm-01")):
        for device in range(2 if name.startswith("storage") else 1):
            guid = f"05000000000000{number}{device}"
            hand.world.add(guid, CA, f"{name} mlx5_{device}")
            speed = "NDR" if name.startswith("storage") else "HDR"
            hand.world.link((guid, 1), hand.world.place(hand.free_port()), speed)


@irregular
def a_gateway_and_a_router(hand: Hand) -> None:
    hand.world.add("0600000000000001", CA, "MF0;skyway-1:MSKY/U1", 4)
    for port in range(1, 5):
        hand.world.link(("0600000000000001", port), hand.world.place(hand.free_port()))
    hand.world.add("0600000000000002", CA, "router-1 mlx5_0")
    hand.world.link(("0600000000000002", 1), hand.world.place(hand.free_port()))


@irregular
def a_management_leaf(hand: Hand) -> None:
    """A small switch with six hosts on two ports of the fabric."""
    guid = "07000000000000ff"
    hand.world.add(guid, SWITCH, "MF0;mgmt-leaf:MQM8700/U1", 40)
    for port in (39, 40):
        hand.world.link((guid, port), hand.world.place(hand.free_port()), "HDR")
    for port in range(1, 7):
        hand.world.add(f"07000000000000{port:02x}", CA, f"mgmt-{port} mlx5_0")
        hand.world.link((f"07000000000000{port:02x}", 1), (guid, port), "HDR")


@irregular
def leaves_with_fewer_uplinks(hand: Hand) -> None:
    """The leaves of the last unit have half of the cables to the spines."""
    leaves = [name for name, switch in hand.world.plan.switches.items() if switch.tier == "leaf"]
    if len(leaves) < 16:
        raise NoRoomError
    for name in leaves[-8:]:
        for cable in hand.of_device(name):
            if cable.kind != NODE_LEAF and cable.a.port % 2:
                hand.world.unplug(cable)


@irregular
def ports_in_no_order(hand: Hand) -> None:
    """On each leaf the nodes are plugged into any port."""
    world = hand.world
    for name, switch in world.plan.switches.items():
        if switch.tier != "leaf":
            continue
        cables = sorted(cable for cable in hand.of_device(name) if cable.kind == NODE_LEAF)
        ports = [cable.b.port for cable in cables]
        hand.rng.shuffle(ports)
        for cable in cables:
            world.unplug(cable)
        for cable, port in zip(cables, ports, strict=True):
            world.plug(cable.a, switch_end(name, port))


@irregular
def nodes_in_no_order(hand: Hand) -> None:
    """Numbers say nothing of places."""
    nodes = _nodes(hand)
    others = hand.rng.sample(nodes, len(nodes))
    for node, other in zip(nodes, others, strict=True):
        for cable in hand.of_device(node):
            describe(hand, cable, f"{other} mlx5_rail{cable.a.rail}")


@irregular
def switches_without_names(hand: Hand) -> None:
    for name in hand.world.plan.switches:
        device = hand.world.fabric.devices[hand.world.key_of[name, -1]]
        device.description = "Quantum-2 Mellanox Technologies"


@irregular
def half_of_the_nodes_at_a_lower_rate(hand: Hand) -> None:
    """Two generations of adapters on the same leaves."""
    nodes = _nodes(hand)
    for node in nodes[: len(nodes) // 2]:
        same_rate(hand, "HDR", "4x", *hand.of_device(node))
        for cable in hand.of_device(node):
            guid = hand.world.key_of[node, cable.a.rail]
            hand.world.fabric.devices[guid].device_id = "101b"


for form in FORMS:
    IRREGULAR[f"names_{form}"] = lambda hand, form=form: name_all(hand.world, form)
