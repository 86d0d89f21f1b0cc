# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of clusters of any size for the tests of cables, without an inventory."""

from __future__ import annotations

from typing import Any

from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.fabric import parse_fabric


def plan_data(
    nodes: int | list[int], tiers: tuple[int, ...] = (), rails: int = 8, **fabric: Any
) -> dict[str, Any]:
    """The data of a plan as make_plan would make it; without tiers, of a BasePOD."""
    described: dict[str, Any] = {
        "topology": "superpod" if tiers else "basepod",
        "rails": rails,
        **fabric,
    }
    for tier, count in zip(("leaf", "spine", "core"), tiers or (2,), strict=False):
        described[tier + "_switches"] = [f"{tier}-{index:03d}" for index in range(1, count + 1)]
    parsed = parse_fabric(described)
    numbers = range(1, nodes + 1) if isinstance(nodes, int) else nodes
    return {
        "cluster": {"fabric": described},
        "profiles": {
            "dgx": {
                "link_rate_gbps": 400,
                "rails": [
                    {
                        "rail": rail,
                        "hca_pci": f"0000:{rail + 16:02x}:00.0",
                        "cage": f"OSFP{rail // 2}",
                        "port": rail % 2 + 1,
                        "device": f"mlx5_{rail}",
                    }
                    for rail in range(rails)
                ],
            }
        },
        "nodes": [
            {
                "name": f"dgx-{number:04d}",
                "state": "present",
                "groups": ["gpu_nodes"],
                "profile": "dgx",
                "hca_guids": {"3": "0x946dae0300a1b2c3"} if number == 1 else {},
                "su": parsed.unit_of(number) if tiers else None,
                "leaf_place": parsed.place_of(number),
            }
            for number in numbers
        ],
    }
