# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Every cable of the compute fabric, from the data of the plan. Pure.

Sources: the published tables of DGX SuperPOD (H100, B200, B300) and DGX BasePOD for the counts of
switches and cables. Which port a cable takes is published nowhere; the convention here is that of
cabling vendors: the place of a node in its scalable unit is the port of each of its leaves, the
upper half of a leaf's ports goes up, and cables to one switch lie side by side. Fabrics by rule
(_plan/leaf_spine.py) follow it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.baremetal.dgx.plugins.module_utils._core.names import RAIL_DEVICE

from ...module_utils._fabric.model import (
    LEAF_LEAF,
    LEAF_SPINE,
    NODE_LEAF,
    SPINE_CORE,
    Cable,
    CablePlan,
    End,
    PlannedHca,
    PlannedSwitch,
    ports_per_cage,
    rail_end,
    switch_end,
)
from .fabric import UFM_CABLES, Fabric, parse_fabric, row_of, upper_tiers
from .leaf_spine import upper_cables


def plan_cables(plan_data: Mapping[str, Any]) -> CablePlan:
    """Return all devices and cables of the reference design for this cluster.

    plan_data is that of a valid plan (_plan.make_plan). ValueError where the design cannot be
    cabled with these switches; the checks of the inventory have found that before.
    """
    devices = plan_devices(plan_data)
    fabric = parse_fabric(plan_data["cluster"]["fabric"])
    if fabric.topology == "none":
        return devices
    cables = list(_node_cables(fabric, plan_data, devices))
    below = {cable.b for cable in cables}
    kept = _absent_ports(fabric, plan_data) - below
    spare: list[Cable] = []
    if fabric.topology == "basepod":
        trunk = list(_basepod(fabric, below, kept))
        count = _widest(fabric, below)
        cables += trunk[:count]
        # A node that left may have had more cables between the switches, or these at its ports.
        at_its_ports = _joined(fabric, sorted({end.port for end in kept}))
        spare = [*trunk[count:], *at_its_ports]
        kept = {end for cable in spare for end in (cable.a, cable.b)} - below
        free = kept.difference(devices.reserved)
        spare = [cable for cable in spare if {cable.a, cable.b} <= free]
    elif fabric.rule:
        cables += upper_cables(fabric)
    else:
        cables += _superpod(fabric)
    reserved = tuple(sorted({*devices.reserved, *_ufm_ports(fabric), *kept}))
    plan = CablePlan(devices.hcas, devices.switches, tuple(cables), reserved, tuple(spare))
    wrong = list(misfits(plan))
    if wrong:
        raise ValueError(wrong[0])
    return plan


def plan_devices(plan_data: Mapping[str, Any]) -> CablePlan:
    """Return adapters, switches and reserved ports, without cables; nothing for no fabric."""
    fabric = parse_fabric(plan_data["cluster"]["fabric"])
    if fabric.topology == "none":
        return CablePlan({}, {}, ())
    hcas: dict[tuple[str, int], PlannedHca] = {}
    for node in _gpu_nodes(plan_data):
        profile = plan_data["profiles"][node["profile"]]
        rate = min(profile["link_rate_gbps"] or fabric.rate_gbps, fabric.rate_gbps)
        for rail in profile["rails"][: fabric.rails]:
            number = rail["rail"]
            guid = node["hca_guids"].get(str(number))
            own = RAIL_DEVICE.format(rail=number)
            hcas[node["name"], number] = PlannedHca(
                node=node["name"],
                rail=number,
                guid=_digits(guid),
                pci=rail["hca_pci"],
                cage=rail["cage"],
                cage_port=rail["port"],
                devices=(own, rail["device"]) if rail["device"] else (own,),
                rate_gbps=rate,
            )
    reserved = {
        switch_end(name, port) for name, ports in fabric.reserved_ports.items() for port in ports
    }
    # How a switch of Ethernet divides its cages is not known by its rate.
    rate = 0 if plan_data["cluster"].get("fabric_kind") == "ethernet" else fabric.rate_gbps
    switches = _switches(fabric, ports_per_cage(fabric.radix, rate))
    return CablePlan(hcas, switches, (), tuple(sorted(reserved)))


def _digits(guid: str | None) -> str | None:
    return None if guid is None else guid[2:]


def _gpu_nodes(plan_data: Mapping[str, Any], state: str = "present") -> list[Mapping[str, Any]]:
    return [
        node
        for node in plan_data["nodes"]
        if node["state"] == state and "gpu_nodes" in node["groups"]
    ]


def _switches(fabric: Fabric, per_cage: int) -> dict[str, PlannedSwitch]:
    switches: dict[str, PlannedSwitch] = {}
    # The order of the list says unit and rail only where the cables are those of the design.
    by_unit = fabric.grouped and fabric.computed
    for tier in ("leaf", "spine", "core"):
        for index, name in enumerate(getattr(fabric, tier + "_switches")):
            unit, leaf = divmod(index, fabric.unit_leaves)
            rails = fabric.rails_of_leaf[leaf]
            of_unit = by_unit and tier == "leaf"
            switches[name] = PlannedSwitch(
                name=name,
                tier=tier,
                unit=unit + 1 if of_unit else None,
                rail=rails[0] if of_unit and len(rails) == 1 else None,
                radix=fabric.radix,
                guid=_digits(fabric.switch_guids.get(name)),
                ports_per_cage=per_cage,
            )
    return switches


def misfits(plan: CablePlan) -> Iterator[str]:
    """Yield what no cabling can have: a port used twice or beyond the last, an unknown end."""
    seen: set[End] = set()
    reserved = set(plan.reserved)
    for cable in plan.cables:
        for end in (cable.a, cable.b):
            if end in seen:
                yield f"{end} has two cables"
            if end in reserved:
                yield f"{end} is reserved, but the plan needs it for {cable.other(end)}"
            seen.add(end)
            if not end.is_switch:
                if (end.host, end.rail) not in plan.hcas:
                    yield f"{end} is not a rail of the plan"
            elif end.host not in plan.switches:
                yield f"{end.host} is not a switch of the plan"
            elif not 1 <= end.port <= plan.switches[end.host].radix:
                yield f"{end} is beyond port {plan.switches[end.host].radix}, the last one"
    for node, rail in plan.hcas:
        if plan.cables and rail_end(node, rail) not in seen:
            yield f"{node}/rail{rail} has no cable"


def _node_ports(
    fabric: Fabric, plan_data: Mapping[str, Any], nodes: list[Mapping[str, Any]]
) -> Iterator[tuple[End, End]]:
    """Yield each rail of the nodes with its port on a leaf of its unit: side by side by leaf."""
    leaf_of = {
        rail: (leaf, rails.index(rail), len(rails))
        for leaf, rails in enumerate(fabric.rails_of_leaf)
        for rail in rails
    }
    for node in nodes:
        # A node without rails may have no unit either.
        for rail in plan_data["profiles"][node["profile"]]["rails"][: fabric.rails]:
            first = (node["su"] - 1) * fabric.unit_leaves if fabric.grouped else 0
            leaf, index, count = leaf_of[rail["rail"]]
            port = (node["leaf_place"] - 1) * count + index + 1
            end = switch_end(fabric.leaf_switches[first + leaf], port)
            yield rail_end(node["name"], rail["rail"]), end


def _node_cables(
    fabric: Fabric, plan_data: Mapping[str, Any], devices: CablePlan
) -> Iterator[Cable]:
    """Yield the cables of each node to the leaves of its unit."""
    for rail, end in _node_ports(fabric, plan_data, _gpu_nodes(plan_data)):
        yield Cable(rail, end, NODE_LEAF, devices.hcas[rail.host, rail.rail].rate_gbps)


def _absent_ports(fabric: Fabric, plan_data: Mapping[str, Any]) -> set[End]:
    """Return the ports of nodes that are declared absent, as one in repair is, which comes back.

    Its cables may be there or not. Where it stands was not checked: a place that does not exist
    has no port.
    """
    absent = [
        node
        for node in _gpu_nodes(plan_data, "absent")
        if 1 <= (node["leaf_place"] or 0) <= fabric.room
        and (not fabric.grouped or 1 <= (node["su"] or 0) <= fabric.units)
    ]
    return {end for _rail, end in _node_ports(fabric, plan_data, absent)}


def _basepod(fabric: Fabric, below: set[End], kept: set[End]) -> Iterator[Cable]:
    """Yield the cables that join the two switches of a BasePOD, with those for absent nodes last.

    Between the switches there are as many cables as one of them has ports for nodes, which does not
    block, or as many as ports are left: below are those of nodes, kept those of absent ones. They
    count down from the last port, so that a node that is added moves none of them.
    """
    used = {end.port for end in below | kept}
    used.update(port for ports in fabric.reserved_ports.values() for port in ports)
    left = [port for port in range(fabric.radix, 0, -1) if port not in used]
    yield from _joined(fabric, left[: _widest(fabric, below | kept)])


def _joined(fabric: Fabric, ports: Iterable[int]) -> Iterator[Cable]:
    """Yield the cables from each of these ports of one switch of a BasePOD to that of the other."""
    first, second = fabric.leaf_switches
    for port in ports:
        yield Cable(switch_end(first, port), switch_end(second, port), LEAF_LEAF, fabric.rate_gbps)


def _widest(fabric: Fabric, ends: set[End]) -> int:
    """Return how many of the ports the leaf switch has that has most of them."""
    return max(sum(end.host == leaf for end in ends) for leaf in fabric.leaf_switches)


def _superpod(fabric: Fabric) -> Iterator[Cable]:
    if fabric.core_switches:
        yield from _three_tiers(fabric)
    else:
        row = row_of(fabric, fabric.units)
        yield from _tier(
            fabric,
            LEAF_SPINE,
            list(enumerate(fabric.leaf_switches)),
            fabric.spine_switches,
            row * fabric.rails,
            fabric.radix,
        )


def _ufm_ports(fabric: Fabric) -> tuple[End, ...]:
    """Return the ports that UFM takes: of the last place of its unit, on the first four leaves."""
    if not fabric.ufm_unit or fabric.topology != "superpod":
        return ()
    first = (fabric.ufm_unit - 1) * fabric.rails
    leaves = fabric.leaf_switches[first : first + min(UFM_CABLES, fabric.rails)]
    return tuple(switch_end(leaf, fabric.unit_size) for leaf in leaves)


def _tier(
    fabric: Fabric,
    kind: str,
    lowers: list[tuple[int, str]],
    uppers: tuple[str, ...],
    places: int,
    upper_ports: int,
) -> Iterator[Cable]:
    """Yield the cables from each lower switch, at its place, to all upper ones.

    `places` is how many lower switches the upper ones are made for: a fabric that is part of a
    larger row of the tables keeps the ports of the rest free, so that growing moves no cable.
    Each upper switch has `upper_ports` for them, from port 1 on. Where the ports do not divide
    evenly, the odd ones go round, so that no upper switch gets more than its share.
    """
    half = fabric.radix // 2
    uplinks = min(half, len(uppers) * upper_ports // places)
    each, odd = divmod(uplinks, len(uppers))
    taken = [0] * len(uppers)
    cables: dict[int, list[tuple[int, int]]] = {}
    for place in range(places):
        extra = {(place * odd + step) % len(uppers) for step in range(odd)}
        for upper in range(len(uppers)):
            for _link in range(each + (upper in extra)):
                taken[upper] += 1
                cables.setdefault(place, []).append((upper, taken[upper]))
    for place, name in lowers:
        for step, (upper, port) in enumerate(cables.get(place, ())):
            yield Cable(
                switch_end(name, fabric.radix - half + 1 + step),
                switch_end(uppers[upper], port),
                kind,
                fabric.rate_gbps,
            )


def three_tiers_fit(fabric: Fabric) -> bool:
    """Return whether the counts of a fabric of three tiers divide as its cabling needs."""
    row, group = row_of(fabric, fabric.units), _group_units(fabric)
    return row % group == 0 and upper_tiers(fabric, row)[1] % group == 0


def _group_units(fabric: Fabric) -> int:
    """Return how many scalable units share the spines of a rail: a spine takes half its ports."""
    return min(row_of(fabric, fabric.units), fabric.radix // 2)


def _three_tiers(fabric: Fabric) -> Iterator[Cable]:
    """Yield the cables of a fabric with core switches.

    A group is one rail of up to half a radix of units: its leaves meet on as many separate
    spines, so that traffic of a rail does not see the core. Spine j of every group goes to the same
    cores, plane j: through it any group reaches any other. Spines are listed by block of units,
    then rail; cores by plane.
    """
    if not three_tiers_fit(fabric):
        raise ValueError(f"{fabric.units} scalable units do not divide into planes")
    group, row = _group_units(fabric), row_of(fabric, fabric.units)
    half = fabric.radix // 2
    for block in range(row // group):
        for rail in range(fabric.rails):
            start = (block * fabric.rails + rail) * group
            leaves = [
                (unit, fabric.leaf_switches[(block * group + unit) * fabric.rails + rail])
                for unit in range(group)
                if block * group + unit < fabric.units
            ]
            spines = fabric.spine_switches[start : start + group]
            yield from _tier(fabric, LEAF_SPINE, leaves, spines, group, half)
    groups = row // group * fabric.rails
    plane = len(fabric.core_switches) // group
    for place in range(group):
        spines_of_plane = [
            (index, fabric.spine_switches[index * group + place]) for index in range(groups)
        ]
        cores = fabric.core_switches[place * plane : (place + 1) * plane]
        yield from _tier(fabric, SPINE_CORE, spines_of_plane, cores, groups, fabric.radix)
