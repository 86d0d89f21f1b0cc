# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Grafana's dashboards out of a small description of them. Pure.

The JSON is that of Grafana 9 and later (schema 38); only what differs from its defaults is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SCHEMA = 38
COLUMNS = 24
# Our words for kinds of panels, and Grafana's plugins.
KINDS = {
    "stat": "stat",
    "gauge": "gauge",
    "timeseries": "timeseries",
    "bars": "bargauge",
    "table": "table",
    "state": "state-timeline",
}
_PANEL_KEYS = {
    "title", "type", "width", "unit", "max", "stack", "steps", "columns", "quiet", "expr", "legend",
    "queries",
}  # fmt: skip
_NOW = ("stat", "gauge", "bars", "table")
_FOLD = {"calcs": ["lastNotNull"], "fields": "", "values": False}


def queries_of(panel: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return expression and legend of each query of a panel."""
    given = panel.get("queries") or [panel]
    return [{"expr": str(one["expr"]), "legend": one.get("legend", "")} for one in given]


def dashboards(spec: Mapping[str, Any], datasource: str) -> dict[str, dict[str, Any]]:
    """Return uid -> dashboard as Grafana imports it.

    Args:
        spec: what dashboards.yml holds.
        datasource: uid of the data source.

    Raises:
        ValueError: for an unknown kind of panel or key, and panels wider than a row.
    """
    source = {"type": "prometheus", "uid": datasource}
    return {one["uid"]: _dashboard(one, source) for one in spec["dashboards"]}


def _dashboard(given: Mapping[str, Any], source: Mapping[str, str]) -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for row in given["rows"]:
        panels.append({
            "id": len(panels) + 1, "type": "row", "title": row["title"], "collapsed": False,
            "panels": [], "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
        })  # fmt: skip
        y += 1
        x = 0
        for panel in row["panels"]:
            if x + panel["width"] > COLUMNS:
                raise ValueError(f"{given['title']}: the row {row['title']} is too wide")
            place = {"h": row["height"], "w": panel["width"], "x": x, "y": y}
            panels.append(_panel(len(panels) + 1, panel, place, source))
            x += panel["width"]
        y += row["height"]
    return {
        "uid": given["uid"],
        "title": given["title"],
        "description": given.get("description", ""),
        "tags": ["baremetal.dgx"],
        "schemaVersion": SCHEMA,
        "editable": False,
        "refresh": given.get("refresh", "1m"),
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "links": [
            {"type": "dashboards", "title": "baremetal.dgx", "tags": ["baremetal.dgx"],
             "asDropdown": True, "keepTime": True}
        ],
        "templating": {"list": [_variable(one, source) for one in given.get("variables", ())]},
        "panels": panels,
    }  # fmt: skip


def _variable(given: Mapping[str, str], source: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": given["name"], "type": "query", "datasource": source, "query": given["query"],
        "refresh": 2, "sort": 1, "multi": True, "includeAll": True, "allValue": ".+",
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def _panel(
    number: int, panel: Mapping[str, Any], place: Mapping[str, int], source: Mapping[str, str]
) -> dict[str, Any]:
    kind = panel["type"]
    strange = sorted(set(panel) - _PANEL_KEYS)
    if kind not in KINDS or strange:
        raise ValueError(f"{panel['title']}: {strange[0] if strange else kind} is not known")
    steps = panel.get("steps") or [[None, "green"]]
    defaults: dict[str, Any] = {
        "unit": panel.get("unit", "none"),
        "thresholds": {
            "mode": "absolute",
            "steps": [{"value": value, "color": colour} for value, colour in steps],
        },
    }
    if "max" in panel:
        defaults.update({"min": 0, "max": panel["max"]})
    if panel.get("stack"):
        defaults["custom"] = {"stacking": {"mode": "normal"}, "fillOpacity": 30}
    found: dict[str, Any] = {
        "id": number, "type": KINDS[kind], "title": panel["title"], "datasource": source,
        "gridPos": place, "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(kind), "targets": [
            _target(kind, letter, query, source)
            for letter, query in zip("ABCDEFGH", queries_of(panel), strict=False)
        ],
    }  # fmt: skip
    if panel.get("quiet"):
        found["fieldConfig"]["defaults"]["noValue"] = panel["quiet"]
        found["description"] = f"Nothing is shown while {panel['quiet']}."
    if kind == "table":
        found["transformations"] = _columns(panel)
    return found


def _target(
    kind: str, letter: str, query: Mapping[str, str], source: Mapping[str, str]
) -> dict[str, Any]:
    now = kind in _NOW
    return {
        "refId": letter, "datasource": source, "expr": query["expr"],
        "legendFormat": query["legend"] or "__auto", "instant": now, "range": not now,
        "format": "table" if kind == "table" else "time_series",
    }  # fmt: skip


def _options(kind: str) -> dict[str, Any]:
    if kind in ("stat", "gauge", "bars"):
        return {"reduceOptions": _FOLD}
    if kind == "timeseries":
        return {"tooltip": {"mode": "multi", "sort": "desc"}, "legend": {"displayMode": "list"}}
    if kind == "state":
        return {"mergeValues": True, "showValue": "never"}
    return {}


def _columns(panel: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Show the labels of a table in their order, then the values."""
    names = list(panel.get("columns", ()))
    queries = queries_of(panel)
    values = ["Value"] if len(queries) == 1 else [f"Value #{one}" for one in "ABCDEFGH"]
    values = values[: len(queries)]
    order = {name: place for place, name in enumerate(names + values)}
    renamed = {
        value: query["legend"]
        for value, query in zip(values, queries, strict=False)
        if query["legend"]
    }
    kept = {"include": {"names": names + values}}
    merge = [{"id": "merge", "options": {}}] if len(queries) > 1 else []
    return [
        *merge,
        {"id": "filterFieldsByName", "options": kept},
        {"id": "organize", "options": {"indexByName": order, "renameByName": renamed}},
    ]
