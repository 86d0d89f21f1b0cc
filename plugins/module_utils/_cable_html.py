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
from html import escape
from typing import Iterable, Mapping

from ansible_collections.baremetal.dgx.plugins.module_utils._cable_labels import Place, cage_of
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_model import (
    Cable,
    CablePlan,
    End,
)

_STYLE = """\
body{font:13px/1.35 system-ui,sans-serif;margin:1.5em;color:#111}
h1{font-size:1.5em}h2{font-size:1.15em;margin:1.6em 0 .4em}
table{border-collapse:collapse}td,th{padding:.15em .7em;text-align:left;vertical-align:top}
th{border-bottom:1px solid #111}
.n{color:#666;text-align:right}.l{border:1px dashed #888;font-family:ui-monospace,monospace}
.l b{display:block}.d{width:1.2em;border:1px solid #111}
section{content-visibility:auto;contain-intrinsic-size:auto 60em}
@media print{body{margin:0;font-size:10px}nav{break-after:page}section{content-visibility:visible}
h2{break-after:avoid}tr{break-inside:avoid}a{color:inherit;text-decoration:none}}
"""


def cables_html(plan: CablePlan, places: Mapping[str, Place], cluster: str) -> str:
    """Return the page; `places` has the rack of each machine, `cluster` is its title."""
    title = f"Cables of {escape(cluster)}"
    racks = _by_rack(plan, places)
    parts = [
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n',
        f"<style>\n{_STYLE}</style></head><body>\n<h1>{title}</h1>\n",
        _overview(plan, racks),
    ]
    for index, (rack, cables) in enumerate(racks.items()):
        parts.append(f'<section id="r{index}"><h2>{escape(rack)}: {_counted(cables)}</h2>\n')
        parts.append(
            "<table><thead><tr><th>cable<th>label of this end<th>label of the other end"
            "<th>other rack<th>Gb/s<th>done</thead><tbody>\n"
        )
        parts.extend(_row(plan, places, cable, number) for number, cable in cables)
        parts.append("</tbody></table></section>\n")
    if plan.reserved:
        ports = ", ".join(f"{_short(plan, end)}" for end in plan.reserved)
        parts.append(f"<section><h2>Ports to keep free</h2><p>{escape(ports)}</p></section>\n")
    parts.append("</body></html>\n")
    return "".join(parts)


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


def _overview(plan: CablePlan, racks: Mapping[str, list[tuple[int, Cable]]]) -> str:
    rows = "".join(
        f'<tr><td><a href="#r{index}">{escape(rack)}</a><td>{_counted(cables)}\n'
        for index, (rack, cables) in enumerate(racks.items())
    )
    total = _counted(enumerate(plan.cables))
    return (
        f"<nav><p>{total}. A cable is listed where its lower end is. The two cells with a frame "
        "are its labels: cut them out, the first for this end and the second for the other.</p>\n"
        f"<table><thead><tr><th>place<th>cables</thead><tbody>\n{rows}</tbody></table></nav>\n"
    )


def _short(plan: CablePlan, end: End) -> str:
    cage = cage_of(plan, end)
    where = f"{end.host} {cage}".rstrip()
    return f"{where} (port {end.port})" if end.is_switch else f"{where} (rail {end.rail})"


def _row(plan: CablePlan, places: Mapping[str, Place], cable: Cable, number: int) -> str:
    near, far = escape(_short(plan, cable.a)), escape(_short(plan, cable.b))
    rack = escape(places.get(cable.b.host, Place()).rack or "")
    return (
        f"<tr><td class=n>{number}<td class=l><b>{near}</b>to {far}<td class=l><b>{far}</b>to "
        f"{near}<td>{rack}<td>{cable.rate_gbps}<td class=d>\n"
    )
