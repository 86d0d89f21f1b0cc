# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A report as one page that needs nothing beside itself: what its templates show, as data.

Each state has a sign and a word as well as a colour. Everything that opens is a <details> element,
which every keyboard and screen reader knows; without scripts only the single nodes of a large
cluster's heat maps are missing.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment

from ...module_utils._core.record import Threshold
from ...module_utils._core.verdict import FABRIC
from .._templating.page import environment
from . import maps

MOST_FAILED = 1000
MOST_SUBJECTS = 60
MOST_ROWS = 400

_PLAIN = re.compile(r"[^0-9A-Za-z_-]+")


def report_html(report: Mapping[str, Any], svg: str = "") -> str:
    """Return the page of a report; `svg` is the picture of the fabric."""
    shown = [(name, head, body) for name, head, body in _sections(report, svg) if body.strip()]
    return _environment().get_template("report.html.j2").render(
        report=report,
        title=f"Acceptance of {report['cluster'] or 'the cluster'}",
        sections=shown,
        badges=_badges(report),
        simulated=_simulated_parts(report),
        script_data=maps.script_data(report),
    )  # fmt: skip


def _sections(report: Mapping[str, Any], svg: str) -> list[tuple[str, str, str]]:
    """Return name, head and body of each section; a body without a word has nothing to show."""
    part: Any = _environment().get_template("sections.html.j2").module
    draw: Any = _environment().get_template("maps.html.j2").module
    # As an image its styles stay its own, and nothing in it can run.
    data = base64.b64encode(svg.encode("utf-8", "replace")).decode("ascii")
    picture = f"data:image/svg+xml;base64,{data}" if svg else ""
    return [
        ("glance", "At a glance", part.glance(report)),
        ("failed", "What failed", part.failed(report, _failed(report))),
        ("unmeasured", "What was not measured", part.unmeasured(report, _silent(report))),
        ("racks", "Racks", draw.racks(maps.rack_map(report), maps.is_wide(report))),
        ("rails", "Rails", draw.rails(maps.rail_map(report))),
        ("gpus", "GPUs", draw.gpus(maps.gpu_map(report), maps.heat_maps(report))),
        ("fabric", "Fabric", part.fabric(report, picture)),
        (
            "trends",
            "Links that will fail",
            part.trends(_trends(report)) if report.get("trends") else "",
        ),
        ("pairs", "Bandwidth between nodes", draw.pairs(maps.pair_matrix(report))),
        ("fleet", "Fleet outliers", part.fleet(report)),
        ("changes", "What changed", part.changes(report["changes"])),
        *((_anchor(name, "more"), name, part.other(rows)) for name, rows in report["more"].items()),
        ("thresholds", "Thresholds", part.thresholds(report["thresholds"])),
        ("versions", "Versions", part.versions(report["versions"])),
        ("evidence", "Evidence", part.evidence(report)),
    ]


@lru_cache(maxsize=1)
def _environment() -> Environment:
    filters = {"anchor": _anchor, "figure": _figure, "number": maps.number, "must_be": _must_be}
    made = environment(Path(__file__).parent / "templates", **filters)
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    made.globals.update(
        SIGNS=maps.SIGNS,
        WORDS=maps.WORDS,
        MOST_FAILED=MOST_FAILED,
        MOST_SUBJECTS=MOST_SUBJECTS,
        MOST_ROWS=MOST_ROWS,
    )
    return made


def _anchor(name: str, kind: str) -> str:
    """Return the id of a part of the page."""
    return f"{kind}-{_PLAIN.sub('_', name)}"


def _figure(found: Mapping[str, Any]) -> str:
    """Return a measured value with its unit."""
    value = found["value"]
    if isinstance(value, float):
        value = f"{value:g}"
    return f"{value} {found['unit']}".strip()


def _must_be(threshold: Mapping[str, Any]) -> str:
    """Return a threshold without its source."""
    return f"{threshold['op']} {threshold['value']} {threshold['unit']}".strip()


def _badges(report: Mapping[str, Any]) -> dict[str, int]:
    """Return the figures beside the links to some sections."""
    return {
        "trends": len((report.get("trends") or {}).get("will_fail", ())),
        "failed": len(report["failed"]),
        "unmeasured": report["summary"]["records"]["not_measured"]
        + sum(not one["at"] for one in report["nodes"]),
        "changes": len(report["changes"]["new"]) + len(report["changes"]["gone"]),
        "fleet": report["outliers_in_all"]
        + sum(one["is_repeat_offender"] for one in report["repeat_offenders"]),
    }


def _simulated_parts(report: Mapping[str, Any]) -> set[str]:
    """Return the sections that show what was simulated."""
    scopes = {scope for one in report["simulated"] for scope in one["scopes"]}
    fabric = {"rails", "fabric", "pairs"} if "fabric" in scopes else set()
    if (report.get("trends") or {}).get("simulated"):
        fabric = fabric | {"trends"}
    return fabric | ({"gpus", "fleet"} if scopes - {"fabric"} else set())


def _failed(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what failed by node, with where the node is and what Slurm reports about it."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for one in report["failed"][:MOST_FAILED]:
        groups.setdefault(one["node"], []).append({**one, "tells": _tells(one)})
    nodes = {one["name"]: one for one in report["nodes"]}
    found = []
    for name, findings in sorted(groups.items()):
        about = nodes.get(name, {})
        place = f", rack {about['rack']}" if about.get("rack") else ""
        place += f" unit {about['rack_unit']}" if about.get("rack_unit") else ""
        state = about.get("state") or {}
        message = " ".join(str(state[key]) for key in ("state", "reason") if state.get(key))
        found.append({"node": name, "place": place, "state": message, "findings": findings})
    return found


def _tells(one: Mapping[str, Any]) -> bool:
    """Return whether what was measured says why it failed.

    A cable in the wrong port may well run at its rate: that is not what is wrong with it.
    """
    found, threshold = one["measured"], one["threshold"]
    if not found or not threshold:
        return bool(found)
    try:
        return not Threshold(threshold["op"], threshold["value"], "", "").holds(found["value"])
    except (KeyError, TypeError):
        return True


def _trends(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the outlook of the links, each with the points of its picture."""
    found = report["trends"]
    lines = [{**one, "line": maps.sparkline(one["points"])} for one in found["will_fail"]]
    return {**found, "will_fail": lines}


def _silent(report: Mapping[str, Any]) -> list[str]:
    """Return the nodes without a record, and the fabric if it has none."""
    none = [
        one["name"]
        for one in report["nodes"]
        if not one["passed"] + one["failing"] + one["not_measured"]
    ]
    return none + ([FABRIC] if report["summary"]["fabric_records"] == 0 else [])
