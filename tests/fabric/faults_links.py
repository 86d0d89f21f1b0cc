# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of links, counters and subnet managers; and conditions that are not a fault."""

from __future__ import annotations

from hand import (
    DOWNED,
    SYMBOLS,
    Done,
    Expected,
    Hand,
    count,
    declare,
    describe,
    fault,
    harmless,
    name_all,
    protected,
    same_rate,
)
from world import CA, Cable, NoRoomError

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import NODE_LEAF

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


@fault
def leaf_at_hdr_on_most_links(hand: Hand) -> Done:
    return _most_at_hdr(hand, sorted(hand.of_device(hand.switches("leaf", 1)[0])), "switch")


@fault
def node_at_hdr_on_most_links(hand: Hand) -> Done:
    return _most_at_hdr(hand, sorted(hand.of_device(hand.nodes(1)[0])), "node")


def _most_at_hdr(hand: Hand, cables: list[Cable], kind: str) -> Done:
    slow = hand.rng.sample(cables, len(cables) - len(cables) // 5)
    hosts = set.intersection(*({cable.a.host, cable.b.host} for cable in cables))
    if len(hosts) != 1 or 2 * len(slow) > len(hand.world.plan.cables):
        raise NoRoomError
    same_rate(hand, "HDR", "4x", *slow)
    return Done({("speed", f"{kind}:{hosts.pop()}")}, set(cables))


# --- counters


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


def _standby(hand: Hand) -> str:
    found = [host for host, state in hand.world.sms.items() if state == "STANDBY"]
    if not found:
        raise NoRoomError
    return found[0]


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
    standby = _standby(hand)
    done = _only_sms(hand, {("standby_missing", f"sm:{standby}")})
    del hand.world.sms[standby]
    return done


@fault
def subnet_manager_on_a_switch(hand: Hand) -> Done:
    name = "leaf-001"
    if hand.of_device(name) & (hand.avoid - protected(hand.world)):
        raise NoRoomError
    done = _only_sms(hand, {("sm_unexpected", f"sm:{name}")})
    hand.world.sms[name] = "STANDBY"
    done.touched = hand.of_device(name)
    return done


def _ufm(hand: Hand) -> None:
    """Let UFM manage the subnet, from its own host."""
    world, guid = hand.world, "0400000000000001"
    place = world.place(hand.free_port())
    world.add(guid, CA, "ufm-01 mlx5_0")
    world.link((guid, 1), place)
    world.key_of["ufm-01", -1] = guid
    hand.world.options = {
        "subnet_managers": list(world.options["subnet_managers"]),
        "subnet_manager_provider": "ufm",
        "other_hosts": ["ufm-01"],
    }
    world.sms = {"ufm-01": "MASTER"}


@fault
def subnet_manager_on_a_node_beside_ufm(hand: Hand) -> Done:
    node = _standby(hand)
    done = _only_sms(hand, {("sm_unexpected", f"sm:{node}")})
    _ufm(hand)
    hand.world.sms[node] = "STANDBY"
    return done


@fault
def symbol_errors_just_above_the_limit(hand: Hand) -> Done:
    # 2.88 are allowed in twelve minutes of 400 Gb/s.
    cable = hand.rail()
    count(hand, cable.b, SYMBOLS, 7, 10)
    return Done({("errors", cable.subject)}, {cable})


# --- what must not be found


@harmless
def ufm_manages_the_subnet(hand: Hand) -> Done:
    _ufm(hand)
    return Done(set())


@harmless
def all_nodes_answer(hand: Hand) -> Done:
    hand.world.ask_nodes()
    return Done(set())


@harmless
def default_names(hand: Hand) -> Done:
    name_all(hand.world, "hca")
    return Done(set())


@harmless
def names_in_capitals(hand: Hand) -> Done:
    name_all(hand.world, "capitals")
    for name in hand.world.plan.switches:
        device = hand.world.fabric.devices[hand.world.key_of[name, -1]]
        device.description = device.description.replace(name, name.upper())
    return Done(set())


@harmless
def default_names_and_all_nodes_answer(hand: Hand) -> Done:
    name_all(hand.world, "hca")
    hand.world.ask_nodes()
    return Done(set())


@harmless
def names_in_capitals_and_all_nodes_answer(hand: Hand) -> Done:
    name_all(hand.world, "capitals")
    hand.world.ask_nodes()
    return Done(set())


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
    hand.world.options["other_hosts"] = ["login-01"]
    return Done(set())


@harmless
def kernel_names(hand: Hand) -> Done:
    for cable in hand.cables(lambda c: c.kind == NODE_LEAF):
        describe(hand, cable, f"{cable.a.host}.cluster.example mlx5_{cable.a.rail}")
    return Done(set())


@harmless
def all_guids_declared(hand: Hand) -> Done:
    names = {node for node, _rail in hand.world.plan.hcas} | set(hand.world.plan.switches)
    declare(hand, sorted(names))
    return Done(set())
