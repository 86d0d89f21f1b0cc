# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What a cluster has and has seen, as the reliability arithmetic takes it. Pure.

Failures are the incidents of the parts' own histories: ten runs over a GPU that nobody has mended
are one. The hours of a part count from the first time that it was seen to the last.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Iterable, Mapping, Sequence, Tuple

from ansible_collections.baremetal.dgx.plugins.module_utils._fleet import lemon
from ansible_collections.baremetal.dgx.plugins.module_utils._verdict import place_of

# What is assumed until the cluster has a history of its own, in years. Llama 3 (arXiv 2407.21783,
# table 5): 54 days of 16,384 H100, in which 256 GPUs (148 as such, 72 HBM3, 19
# SRAM, 17 system processors), 35 switches or cables, and 7 adapters failed.
_SEEN_HOURS = 16384 * 54 * 24.0
ASSUMED_HOURS = {
    "GPUs": _SEEN_HOURS / 256,
    "adapters": _SEEN_HOURS / 7,
    "links": _SEEN_HOURS / 35,
}
SOURCE = "assumed: Llama 3, arXiv 2407.21783, table 5; 16,384 H100 for 54 days"
_KINDS = {"gpu": "GPUs", "hca": "adapters", "cable": "links"}
_ISO = "%Y-%m-%dT%H:%M:%SZ"

History = Tuple[str, Sequence[Mapping[str, Any]]]


def counts_of(plan: Mapping[str, Any]) -> dict[str, int]:
    """Return how many parts the plan has: of nodes that are present, each rail with one link.

    Links between switches come with the cables of the plan, where it has them.
    """
    profiles = plan.get("profiles") or {}
    found = dict.fromkeys(ASSUMED_HOURS, 0)
    for node in plan.get("nodes") or ():
        profile = profiles.get(node.get("profile") or "") or {}
        if node.get("state", "present") != "present":
            continue
        found["GPUs"] += int((profile.get("gpus") or {}).get("count") or 0)
        found["adapters"] += len(profile.get("rails") or ())
    found["links"] = len(plan.get("cables") or ()) or found["adapters"]
    return found


def seen_in(histories: Iterable[History], now: str) -> dict[str, dict[str, float]]:
    """Return by kind how many failures were seen in how many part-hours.

    A name that two parts share says nothing of either. ValueError for a time that is none.
    """
    found = {kind: {"failures": 0.0, "part_hours": 0.0} for kind in ASSUMED_HOURS}
    for serial, lines in histories:
        times = sorted(_hours(str(line["at"])) for line in lines if line.get("at"))
        if not times:
            continue
        kind = _KINDS.get(place_of(str(lines[-1].get("subject", ""))).kind)
        told = lemon(serial, lines, now)
        if kind is None or told.ambiguous:
            continue
        found[kind]["failures"] += told.incidents
        found[kind]["part_hours"] += times[-1] - times[0]
    return found


def _hours(at: str) -> float:
    return datetime.strptime(at, _ISO).replace(tzinfo=timezone.utc).timestamp() / 3600


def parts_for(
    counts: Mapping[str, int],
    seen: Mapping[str, Mapping[str, float]],
    assumed_years: Mapping[str, float],
) -> dict[str, dict[str, Any]]:
    """Return the parts as the filter `reliability` takes them; `assumed_years` are the site's."""
    parts = {}
    for kind, hours in ASSUMED_HOURS.items():
        if not counts.get(kind):
            continue
        own = assumed_years.get(kind)
        part: dict[str, Any] = {"count": counts[kind]}
        part["mttf_hours"] = hours if own is None else float(own) * 8760
        had = seen.get(kind) or {}
        if had.get("part_hours"):
            part.update(failures=int(had["failures"]), part_hours=had["part_hours"])
        parts[kind] = part
    return parts


def table_of(figures: Mapping[str, Any], own: Iterable[str]) -> list[list[str]]:
    """Return the rows of the report, of what the filter `reliability` says; texts."""
    if not figures["parts"]:
        return []
    first = figures["first_failure_hours"]
    rows = [["part", "how many", "MTTF of one", "assumed", "failures seen", "a month"]]
    mine = set(own)
    for part in figures["parts"]:
        assumed = f"{part['assumed_mttf_hours'] / 8760:,.1f} years"
        rows.append([
            str(part["name"]), f"{part['count']:,}", f"{part['mttf_years']:,.1f} years",
            assumed + (" (the inventory)" if part["name"] in mine else ""),
            f"{part['failures_seen']:,}", f"{part['failures_a_month']:.2f}",
        ])  # fmt: skip
    rows += [
        ["first failure of any", "after " + _span(first) if first else "none"],
        ["failures a month", f"{figures['failures_a_month']:.2f}"],
        ["spares", f"{figures['spares']} suffice at {figures['confidence']:.0%}"],
        [
            f"a job of {figures['job_hours']:g} h on all of it",
            f"meets no failure with {figures['job_survives']:.1%}",
        ],
        ["source", SOURCE],
    ]
    return rows


def _span(hours: float) -> str:
    if hours < 2:
        return f"{hours * 60:.0f} minutes"
    return f"{hours:.0f} hours" if hours < 72 else f"{hours / 24:.0f} days"
