# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What stands on the labels of cables, and where their ends are. Pure."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Mapping

from ..model import CablePlan, End

# From this many ports on, a switch has two of them in a cage: 64 in 32 cages (QM9700), 144 in 72.
_TWIN_PORTS = 64


@dataclass(frozen=True)
class Place:
    """Where a machine stands; None is what the inventory leaves open."""

    rack: str | None = None
    rack_unit: int | None = None


def places_of(plan_data: Mapping[str, Any]) -> dict[str, Place]:
    """Return the places of nodes and switches by name, from the data of the plan."""
    places = {node["name"]: Place(node["rack"], node["rack_unit"]) for node in plan_data["nodes"]}
    for name, place in plan_data["cluster"]["fabric"].get("switch_places", {}).items():
        places[name] = Place(place["rack"], place["rack_unit"])
    return places


# A fabric has a few hundred ports, named for each of tens of thousands of ends.
@functools.lru_cache(maxsize=None)
def cage_label(port: int, radix: int) -> str:
    """Return what stands beside a switch's port: `1/CAGE/PORT` with two a cage, else `1/PORT`.

    Port 17 of 64 is 1/9/1, port 18 is 1/9/2: ASIC, cage and port in the words of ibdiagnet.
    """
    if radix >= _TWIN_PORTS:
        return f"1/{(port + 1) // 2}/{2 - port % 2}"
    return f"1/{port}"


def cage_of(plan: CablePlan, end: End) -> str:
    """Return the cage that an end is plugged into, as it is printed there; "" where unknown."""
    if end.is_switch:
        return cage_label(end.port, plan.switches[end.host].radix)
    hca = plan.hcas[end.host, end.rail]
    if hca.cage is None:
        return ""
    return hca.cage if hca.cage_port is None else f"{hca.cage} P{hca.cage_port}"


def near_text(plan: CablePlan, end: End) -> str:
    """Return the words for one end: machine, cage, and the number the fabric knows the port by."""
    cage = cage_of(plan, end)
    port = f"port {end.port}" if end.is_switch else f"rail {end.rail}"
    return f"{end.host} {cage} {port}" if cage else f"{end.host} {port}"
