# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small fabrics for the tests of pair tests: two leaves a rail, two spines."""

from __future__ import annotations

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    LEAF_SPINE,
    NODE_LEAF,
    Cable,
    CablePlan,
    PlannedHca,
    PlannedSwitch,
    rail_end,
    switch_end,
)


def small_plan(nodes: int = 8, rails: int = 2, units: int = 2, spines: int = 2) -> CablePlan:
    """Units of equal size, a leaf for each rail of a unit, two cables from a leaf to a spine."""
    hcas, switches, cables = {}, {}, []
    size = -(-nodes // units)
    for unit in range(units):
        for rail in range(rails):
            name = f"leaf-{unit + 1}{rail}"
            switches[name] = PlannedSwitch(name, "leaf", unit + 1, rail, 16, None)
    for spine in range(spines):
        switches[f"spine-{spine}"] = PlannedSwitch(f"spine-{spine}", "spine", None, None, 16, None)
    for index in range(nodes):
        node = f"dgx-{index + 1:02d}"
        for rail in range(rails):
            devices = (f"mlx5_rail{rail}", f"mlx5_{rail}")
            hcas[node, rail] = PlannedHca(node, rail, None, None, None, None, devices, 400)
            leaf = switch_end(f"leaf-{index // size + 1}{rail}", index % size + 1)
            cables.append(Cable(rail_end(node, rail), leaf, NODE_LEAF, 400))
    taken = dict.fromkeys(range(spines), 0)
    for unit in range(units):
        for rail in range(rails):
            port = 8
            for spine in range(spines):
                for _link in range(2):
                    port, taken[spine] = port + 1, taken[spine] + 1
                    one = switch_end(f"leaf-{unit + 1}{rail}", port)
                    two = switch_end(f"spine-{spine}", taken[spine])
                    cables.append(Cable(one, two, LEAF_SPINE, 400))
    return CablePlan(hcas, switches, tuple(cables))
