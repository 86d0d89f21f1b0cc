# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The cable list as one page to print: by rack, with a label for each end. Pure.

The page needs nothing beside itself. Each row is one cable, and its two cells with a frame are the
labels to cut out and stick on. Thousands of rows stay quick to open, since a browser lays out only
the racks that it shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import Place, cage_of

from ...module_utils._fabric.model import Cable, CablePlan, End
from .._templating.page import environment

_ENVIRONMENT = environment(Path(__file__).parent / "templates")


def cables_html(plan: CablePlan, places: Mapping[str, Place], cluster: str) -> str:
    """Return the page; `places` has the rack of each machine, `cluster` is its title."""
    racks = [
        {
            "name": name,
            "cables": _counted(cables),
            "rows": [_row(plan, places, cable, number) for number, cable in cables],
        }
        for name, cables in _by_rack(plan, places).items()
    ]
    return _ENVIRONMENT.get_template("cables.html.j2").render(
        cluster=cluster,
        total=_counted(enumerate(plan.cables)),
        racks=racks,
        reserved=[_short(plan, end) for end in plan.reserved],
    )


def _by_rack(plan: CablePlan, places: Mapping[str, Place]) -> dict[str, list[tuple[int, Cable]]]:
    """Return cables and their numbers by the rack of their first end, the lowest machine first."""
    racks: dict[str, list[tuple[int, Cable]]] = {}
    for number, cable in enumerate(plan.cables, start=1):
        place = places.get(cable.a.host, Place())
        name = f"rack {place.rack}" if place.rack else _homeless(plan, cable.a)
        racks.setdefault(name, []).append((number, cable))
    for cables in racks.values():
        # Cables of one machine keep the plan's order.
        cables.sort(key=lambda item: places.get(item[1].a.host, Place()).rack_unit or 0)
    return dict(sorted(racks.items(), key=lambda item: (not item[0].startswith("rack "), item[0])))


def _homeless(plan: CablePlan, end: End) -> str:
    if not end.is_switch:
        return "nodes without a rack"
    return f"{plan.switches[end.host].tier} switches without a rack"


def _counted(cables: Iterable[tuple[int, Cable]]) -> str:
    counts = Counter(cable.kind for _number, cable in cables)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
    return f"{sum(counts.values()):,} cables ({kinds})"


def _short(plan: CablePlan, end: End) -> str:
    cage = cage_of(plan, end)
    where = f"{end.host} {cage}".rstrip()
    return f"{where} (port {end.port})" if end.is_switch else f"{where} (rail {end.rail})"


def _row(
    plan: CablePlan, places: Mapping[str, Place], cable: Cable, number: int
) -> tuple[int, str, str, str, int]:
    """Return number, label of this end, label of the other, rack of the other, rate."""
    rack = places.get(cable.b.host, Place()).rack or ""
    return number, _short(plan, cable.a), _short(plan, cable.b), rack, cable.rate_gbps
