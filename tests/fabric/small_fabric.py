# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fabric so small that every majority can be counted on one hand: four nodes with four rails."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge_adapters import Key
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.match import Matches
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    CA,
    LEAF_SPINE,
    NODE_LEAF,
    SWITCH,
    Cable,
    CablePlan,
    End,
    FoundDevice,
    FoundPort,
    PlannedHca,
    PlannedSwitch,
    Sweep,
    rail_end,
    switch_end,
)

NO_NAME = "MT4129 ConnectX7   Mellanox Technologies"
NO_SWITCH_NAME = "Quantum-2 Mellanox Technologies"
NODES, RAILS, SPINES = ("n1", "n2", "n3", "n4"), range(4), ("s1", "s2")
UNPLANNED = "f" * 16
A, B, C = ("n1", 0), ("n2", 0), ("n3", 0)
L0, L1, S1, S2 = ("l0", -1), ("l1", -1), ("s1", -1), ("s2", -1)


class Small:
    """A plan, and a sweep that is as planned until a test changes it.

    Leaf `l0` has rail 0 of n1 to n4 at its ports 1 to 4, and s1 and s2 at 11 and 12; `l1` to `l3`
    have the other rails. GUIDs are in the order of the plan, adapters before switches.
    """

    def __init__(self, nodes: tuple[str, ...] = NODES) -> None:
        hcas = {
            (node, rail): PlannedHca(
                node, rail, None, None, None, None, (f"mlx5_rail{rail}", f"mlx5_{rail}"), 400
            )
            for node in nodes
            for rail in RAILS
        }
        tiers = {**{f"l{rail}": "leaf" for rail in RAILS}, **dict.fromkeys(SPINES, "spine")}
        cables = [
            Cable(rail_end(node, rail), switch_end(f"l{rail}", place), NODE_LEAF, 400)
            for place, node in enumerate(nodes, 1)
            for rail in RAILS
        ]
        cables += [
            Cable(switch_end(f"l{rail}", 10 + place), switch_end(spine, rail + 1), LEAF_SPINE, 400)
            for place, spine in enumerate(SPINES, 1)
            for rail in RAILS
        ]
        switches = {n: PlannedSwitch(n, tier, None, None, 40, None) for n, tier in tiers.items()}
        self.plan = CablePlan(hcas, switches, tuple(cables))
        self.found = Matches()
        self.guid: dict[Key, str] = {}
        self.sweep = Sweep()
        for number, key in enumerate([*hcas, *((name, -1) for name in switches)], 1):
            guid = self.guid[key] = f"{number:016x}"
            if key[1] < 0:
                self.sweep.devices[guid] = FoundDevice(guid, SWITCH, f"MF0;{key[0]}:MQM/U1", 40)
            else:
                self.sweep.devices[guid] = FoundDevice(guid, CA, f"{key[0]} mlx5_rail{key[1]}", 1)
                self.port((guid, 1)).guid = f"a{guid[1:]}"
        for cable in cables:
            self.link(self.at(cable.a), self.at(cable.b))

    def device(self, key: Key) -> FoundDevice:
        return self.sweep.devices[self.guid[key]]

    def at(self, end: End) -> tuple[str, int]:
        return self.guid[end.host, end.rail], end.port

    def port(self, place: tuple[str, int]) -> FoundPort:
        return self.sweep.devices[place[0]].ports.setdefault(place[1], FoundPort(place[1]))

    def unlink(self, place: tuple[str, int]) -> None:
        far = self.port(place).peer
        if far:
            self.port(far).peer = self.port(place).peer = None

    def link(self, one: tuple[str, int], two: tuple[str, int]) -> None:
        """Link two ports, and whatever was in them with nothing."""
        self.unlink(one)
        self.unlink(two)
        self.port(one).peer, self.port(two).peer = two, one

    def exchange(self, one: End, two: End) -> None:
        """Let each of two ends have the link of the other."""
        first, second = self.port(self.at(one)).peer, self.port(self.at(two)).peer
        assert first
        assert second
        self.link(self.at(one), second)
        self.link(self.at(two), first)

    def call(self, description: str, *keys: Key) -> None:
        for key in keys:
            self.device(key).description = description

    def declare(self, key: Key, guid: str) -> None:
        if key[1] < 0:
            switches = {**self.plan.switches}
            switches[key[0]] = replace(switches[key[0]], guid=guid)
            self.plan = replace(self.plan, switches=switches)
        else:
            hcas = {**self.plan.hcas, key: replace(self.plan.hcas[key], guid=guid)}
            self.plan = replace(self.plan, hcas=hcas)

    def remove(self, *keys: Key) -> None:
        for key in keys:
            for number in list(self.device(key).ports):
                self.unlink((self.guid[key], number))
            del self.sweep.devices[self.guid[key]]

    def add(self, guid: str, kind: str, description: str, *ends: End) -> None:
        """Add a device whose ports 1, 2, ... are linked to what these ends are linked to."""
        self.sweep.devices[guid] = FoundDevice(guid, kind, description, 40)
        for number, end in enumerate(ends, 1):
            self.link((guid, number), self.at(end))
