# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._plan_fabric import (
    Fabric,
    check_fabric,
    fabric_warnings,
    parse_fabric,
    upper_tiers,
)


def superpod(leaf: int, spine: int, core: int = 0, ufm_unit: int = 0) -> Fabric:
    tiers = {"leaf": leaf, "spine": spine, "core": core}
    switches = {
        f"{tier}_switches": [f"{tier}-{index}" for index in range(count)]
        for tier, count in tiers.items()
    }
    return parse_fabric({"topology": "superpod", "ufm_unit": ufm_unit, **switches})


def said(fabric: Fabric, nodes: int) -> list[str]:
    units = {f"dgx-{number}": fabric.unit_of(number) for number in range(1, nodes + 1)}
    hosts = {name: f"gpu_nodes.{name}" for name in units}
    return [str(problem) for problem in check_fabric(fabric, "all.cluster_fabric", hosts, units)]


# NVIDIA's tables: scalable units, nodes, leaf, spine and core switches. H100 (with UFM), then B200.
@pytest.mark.parametrize(
    ("units", "nodes", "leaf", "spine", "core", "ufm_unit"),
    [
        (1, 31, 8, 4, 0, 1),
        (2, 63, 16, 8, 0, 2),
        (3, 95, 24, 16, 0, 3),
        (4, 127, 32, 16, 0, 4),
        (2, 64, 16, 8, 0, 0),
        (4, 128, 32, 16, 0, 0),
        (8, 256, 64, 32, 0, 0),
        (16, 512, 128, 128, 64, 0),
        (32, 1024, 256, 256, 128, 0),
        (64, 2048, 512, 512, 256, 0),
    ],
)
def test_published_designs_are_sound(
    units: int, nodes: int, leaf: int, spine: int, core: int, ufm_unit: int
) -> None:
    fabric = superpod(leaf, spine, core, ufm_unit)
    assert fabric.units == units
    assert upper_tiers(fabric, units) == (spine, core)
    assert said(fabric, nodes) == []


@pytest.mark.parametrize(
    ("fabric", "nodes", "line"),
    [
        (
            superpod(8, 4, ufm_unit=1),
            32,
            (
                "all.cluster_fabric: 32 nodes in scalable unit 1, but its leaf switches have ports "
                "for 31, one node's ports being UFM's; write another node_su for 1 of them"
            ),
        ),
        (
            superpod(24, 12),
            95,
            (
                "all.cluster_fabric.spine_switches: 12 switches for 24 leaf switches; write 16, as "
                "the reference design has"
            ),
        ),
        (
            superpod(128, 128),
            512,
            (
                "all.cluster_fabric.core_switches: 0 switches for 128 leaf switches; write 64, as "
                "the reference design has"
            ),
        ),
        (
            superpod(8, 4),
            33,
            (
                "gpu_nodes.dgx-33.node_su: in scalable unit 2, but 8 leaf switches make 1; "
                "write 16 leaf switches, or another unit"
            ),
        ),
    ],
)
def test_what_differs_is_said(fabric: Fabric, nodes: int, line: str) -> None:
    assert said(fabric, nodes) == [line]


def test_a_fabric_for_fewer_nodes_than_it_could_take_is_sound() -> None:
    assert said(superpod(16, 8), 33) == []


def test_basepod_ports() -> None:
    fabric = parse_fabric({"topology": "basepod", "leaf_switches": ["a", "b"]})
    assert said(fabric, 15) == []
    assert len(said(fabric, 16)) == 1
    assert fabric_warnings(fabric, "p", 8) == []
    assert len(fabric_warnings(fabric, "p", 9)) == 1
