# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A report as one page that needs nothing beside itself. Pure.

Each state has a sign and a word as well as a colour. Everything that opens is a <details> element,
which every keyboard and screen reader knows; without scripts only the single nodes of a large
cluster's heat maps are missing.
"""

from __future__ import annotations

import base64
from typing import Any, Iterable, Mapping, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils._records import Threshold
from ansible_collections.baremetal.dgx.plugins.module_utils._report_maps import (
    heat_maps,
    pair_matrix,
    rack_map,
    rail_map,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._report_page import (
    SCRIPT,
    SIGNS,
    STYLE,
    WORDS,
    anchor,
    clean,
    esc,
    figure,
    json_script,
    number,
    sign,
    table,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._verdict import FABRIC

_MOST_FAILED = 1000
_MOST_SUBJECTS = 60
_MOST_ROWS = 400


def report_html(report: Mapping[str, Any], svg: str = "") -> str:
    """Return the page of a report; `svg` is the picture of the fabric."""
    title = f"Acceptance of {report['cluster'] or 'the cluster'}"
    sections = [
        ("glance", "At a glance", _glance(report)),
        ("failed", "What failed", _failed(report)),
        ("unmeasured", "What was not measured", _unmeasured(report)),
        ("racks", "Racks", rack_map(report)),
        ("rails", "Rails", rail_map(report)),
        ("gpus", "GPUs", heat_maps(report)),
        ("fabric", "Fabric", _fabric(report, svg)),
        ("pairs", "Bandwidth between nodes", pair_matrix(report)),
        ("fleet", "One among its like", _fleet(report)),
        ("changes", "What changed", _changes(report)),
        *((anchor("more", name), name, _more(rows)) for name, rows in report["more"].items()),
        ("thresholds", "Thresholds", _thresholds(report)),
        ("versions", "Versions", _versions(report)),
        ("evidence", "Evidence", _evidence(report)),
    ]
    links = "".join(
        f'<li><a href="#{name}">{esc(head)}</a>{_badge(report, name)}</li>'
        for name, head, body in sections
        if body
    )
    main = "".join(
        f'<section id="{name}" aria-labelledby="h-{name}"><h2 id="h-{name}">{esc(head)}'
        f"{_unreal(report, name)}</h2>{body}</section>\n"
        for name, head, body in sections
        if body
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">"
        f"<title>{esc(title)}</title><style>{STYLE}</style></head><body>\n"
        '<a class="skip" href="#glance">Skip to the results</a>\n'
        f'{_header(report, title)}<nav aria-label="Sections"><ul>{links}</ul></nav>\n'
        f"<main>{main}</main>\n{json_script(report)}<script>{SCRIPT}</script></body></html>\n"
    )


def _header(report: Mapping[str, Any], title: str) -> str:
    verdict = report["verdict"]
    unreal = "".join(
        f"<p class=sim><b>SIMULATED:</b> {esc(one['what'])} "
        f"({_some(one['scopes'], 6)}). These figures are no measurements.</p>"
        for one in report["simulated"]
    )
    return (
        f"<header><h1>{esc(title)}</h1>"
        f'<p class="verdict {verdict}"><span aria-hidden="true">{SIGNS[verdict]}</span> '
        f"{WORDS[verdict]}</p><p>{esc(report['at'])}</p>{unreal}</header>\n"
    )


def _badge(report: Mapping[str, Any], name: str) -> str:
    count = {
        "failed": len(report["failed"]),
        "unmeasured": report["summary"]["records"]["not_measured"]
        + sum(not one["at"] for one in report["nodes"]),
        "changes": len(report["changes"]["new"]) + len(report["changes"]["gone"]),
        "fleet": report["outliers_in_all"] + sum(one["is_lemon"] for one in report["lemons"]),
    }.get(name)
    return f" <b>{count:,}</b>" if count else ""


def _unreal(report: Mapping[str, Any], name: str) -> str:
    scopes = {scope for one in report["simulated"] for scope in one["scopes"]}
    fabric, nodes = "fabric" in scopes, bool(scopes - {"fabric"})
    shown = {"rails": fabric, "fabric": fabric, "pairs": fabric, "gpus": nodes, "fleet": nodes}
    return ' <span class="sim">simulated</span>' if shown.get(name) else ""


# ---- sections


def _glance(report: Mapping[str, Any]) -> str:
    summary = report["summary"]
    nodes, records = summary["nodes"], summary["records"]
    tiles = [
        ("nodes in all", f"{len(report['nodes']):,}", ""),
        *((f"nodes {WORDS[status].lower()}", f"{nodes[status]:,}", status if nodes[status] else "")
          for status in ("pass", "fail", "not_measured")),
        *([("fabric", WORDS[summary["fabric"]], summary["fabric"])] if summary["fabric"] else []),
        ("records", f"{sum(records.values()):,}", ""),
    ]  # fmt: skip
    shown = "".join(
        f'<div class="tile {status}"><b>{sign(status)}{esc(value)}</b>{esc(name)}</div>'
        for name, value, status in tiles
    )
    parts = [f"<div class=tiles>{shown}</div>"]
    for one in report["questions"]:
        parts.append(
            f'<p class="question"><b>Is the checker right?</b> {len(one["nodes"]):,} nodes '
            f"({one['share']:.0%}) fail {esc(one['check'])}: look at the check and its "
            f"threshold before the nodes. {_some(one['nodes'], 12)}</p>"
        )
    kinds = [
        [esc(kind), *(f"{count:,}" for count in counts)]
        for kind, counts in summary["records_by_kind"].items()
    ]
    if kinds:
        head = ("records of a", *(WORDS[one].lower() for one in ("pass", "fail", "not_measured")))
        parts.append(table(head, kinds, "Records by what they are about", numbers=True))
    if report["strangers"]:
        parts.append(f"<p>Not in the plan, but judged: {_some(report['strangers'], 20)}</p>")
    if not report["failed"] and report["verdict"] == "pass":
        parts.append("<p>Every question was asked and answered, and nothing failed.</p>")
    return "".join(parts)


def _measured(one: Mapping[str, Any]) -> str:
    found, mark = one["measured"], one["threshold"]
    # A cable in the wrong port may well run at its rate: that is not what is wrong with it.
    if not found or (mark and _holds(found, mark)):
        return ""
    told = f"<b>{figure(found)}</b>"
    if mark:
        unit = f" {mark['unit']}" if mark["unit"] else ""
        want = esc(f"{mark['op']} {mark['value']}{unit}")
        source = esc(mark["source"])
        told += f" must be {want} <span class=src>({source})</span>"
    return told


def _holds(found: Mapping[str, Any], mark: Mapping[str, Any]) -> bool:
    try:
        return Threshold(mark["op"], mark["value"], "", "").holds(found["value"])
    except (KeyError, TypeError):
        return False


def _failed(report: Mapping[str, Any]) -> str:
    if not report["failed"]:
        return "<p>Nothing.</p>"
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for one in report["failed"][:_MOST_FAILED]:
        groups.setdefault(one["node"], []).append(one)
    nodes = {one["name"]: one for one in report["nodes"]}
    box = '<input type="search" id="filter" autocomplete="off">'
    told = '<span id="filtered" role="status"></span>'
    parts = [f"<p><label>Show only what contains {box}</label> {told}</p>"]
    for node, some in sorted(groups.items()):
        about = nodes.get(node, {})
        place = f", rack {about['rack']}" if about.get("rack") else ""
        place += f" unit {about['rack_unit']}" if about.get("rack_unit") else ""
        state = about.get("state") or {}
        told = " ".join(clean(state[key]) for key in ("state", "reason") if state.get(key))
        parts.append(
            f'<div class="node" id="{anchor("n", node)}"><h3>{sign("fail")}{esc(node)}'
            f"<small>{esc(place)}{' · Slurm: ' + esc(told) if told else ''}"
            "</small></h3>"
        )
        parts += [_finding(one) for one in some]
        parts.append("</div>")
    more = len(report["failed"]) - _MOST_FAILED
    if more > 0:
        parts.append(f"<p>And {more:,} more: report.json has them all.</p>")
    return "".join(parts)


def _finding(one: Mapping[str, Any]) -> str:
    unreal = ' <span class="sim">simulated</span>' if one["simulated"] else ""
    remedy = f"<p class=do><b>Do:</b> {esc(one['remedy'])}</p>" if one["remedy"] else ""
    lines = "\n".join(clean(line) for line in one["evidence"])
    evidence = (
        f"<details><summary>Evidence</summary><pre>{esc(lines)}</pre></details>" if lines else ""
    )
    return (
        f'<article class="finding"><h4>{esc(one["subject"])} '
        f"<code>{esc(one['check'])}</code>{unreal}</h4>"
        f"<p>{esc(one['text'])} {_measured(one)}</p>{remedy}{evidence}"
        f"<p class=src>{esc(one['at'])}</p></article>"
    )


def _unmeasured(report: Mapping[str, Any]) -> str:
    none = [
        one["name"]
        for one in report["nodes"]
        if not one["passed"] + one["failing"] + one["not_measured"]
    ]
    none += [FABRIC] if report["summary"]["fabric_records"] == 0 else []
    if not report["not_measured"] and not none:
        return "<p>Nothing.</p>"
    parts = ["<p>No pass, and nobody's fault: what was asked gave no answer.</p>"]
    if none:
        parts.append(
            f"<p>{sign('not_measured')}<b>No records at all</b>, so no pass either: "
            f"{_some(none, _MOST_SUBJECTS)}. Run <code>validate_nodes</code>, and for the fabric "
            "<code>validate_fabric</code>.</p>"
        )
    for one in report["not_measured"][:_MOST_ROWS]:
        subjects = one["subjects"]
        lines = "\n".join(clean(line) for line in one["evidence"])
        evidence = f"<pre>{esc(lines)}</pre>" if lines else ""
        remedy = f"<b>Do:</b> {esc(one['remedy'])}" if one["remedy"] else ""
        parts.append(
            f"<details class=group><summary>{sign('not_measured')}"
            f"<code>{esc(one['check'])}</code> {len(subjects):,} times: "
            f"{esc(one['text'])}</summary>"
            f"<p>{remedy}</p><p>{_some(subjects, _MOST_SUBJECTS)}</p>{evidence}</details>"
        )
    more = len(report["not_measured"]) - _MOST_ROWS
    if more > 0:
        parts.append(f"<p>And {more:,} more kinds: report.json has them all.</p>")
    return "".join(parts)


def _fabric(report: Mapping[str, Any], svg: str) -> str:
    if not svg:
        return ""
    # As an image its styles stay its own, and nothing in it can run.
    data = base64.b64encode(svg.encode("utf-8", "replace")).decode("ascii")
    alt = f"Cables of the fabric, {WORDS[report['summary']['fabric']].lower()}"
    return (
        f'<div class=wide tabindex="0" role="region" aria-label="Picture of the fabric">'
        f'<img alt="{alt}" src="data:image/svg+xml;base64,{data}"></div>'
    )


def _fleet(report: Mapping[str, Any]) -> str:
    rows = [
        [esc(one["subject"]), f"<code>{esc(one['check'])}</code>",
         f"{number(one['value'])} {esc(one['unit'])}", f"{number(one['median'])}",
         f"{number(one['mad'])}", f"{one['values']:,}"]
        for one in report["outliers"][:_MOST_ROWS]
    ]  # fmt: skip
    parts = []
    if rows:
        head = ("subject", "check", "measured", "median", "MAD", "values")
        parts.append(
            "<p>Legal, but not like the others: by 5 times 1.4826 median absolute deviations, and "
            "by 3 %. No failure until the site says so.</p>" + table(head, rows, "Outliers")
        )
        if report["outliers_in_all"] > len(rows):
            parts.append(f"<p>And {report['outliers_in_all'] - len(rows):,} more.</p>")
    lemons = [
        [("<b>return it</b> " if one["is_lemon"] else "") + esc(one["serial"]),
         f"{one['score']:g}", str(one["incidents"]), esc(", ".join(one["nodes"])),
         esc(", ".join(one["checks"][:6]))
         + (" (the name is not that of one part)" if one["ambiguous"] else "")]
        for one in report["lemons"][:_MOST_ROWS]
    ]  # fmt: skip
    if lemons:
        columns = ("part", "score", "incidents", "in", "checks")
        parts.append(
            "<h3>Parts that failed before</h3><p>Each incident counts 1, half after four weeks, "
            "twice where there were some in two nodes. From 2 on a part is to be returned.</p>"
            + table(columns, lemons, "Parts that failed before")
        )
    return "".join(parts) or "<p>Nothing stands out.</p>"


def _changes(report: Mapping[str, Any]) -> str:
    found = report["changes"]
    if not found["since"]:
        return "<p>There is no earlier run to compare with.</p>"
    rows = []
    every = [*found["new"], *found["gone"]]
    for check, subject, before, after in every[:_MOST_ROWS]:
        rows.append(
            [esc(subject), f"<code>{esc(check)}</code>",
             f"{sign(before)}{WORDS[before]}", f"{sign(after)}{WORDS[after]}"]
        )  # fmt: skip
    if not rows:
        return f"<p>Nothing, since {esc(found['since'])}.</p>"
    more = len(found["new"]) + len(found["gone"]) - len(rows)
    head = ("subject", "check", "before", "now")
    rest = f"<p>And {more:,} more.</p>" if more > 0 else ""
    since = f"<p>Since {esc(found['since'])}.</p>"
    return since + table(head, rows, "Changes") + rest


def _more(rows: Sequence[Sequence[Any]]) -> str:
    shown = [[esc(value) for value in row] for row in rows]
    return table((), shown, "")


def _thresholds(report: Mapping[str, Any]) -> str:
    rows = [
        [f"<code>{esc(one['check'])}</code>",
         esc(f"{one['op']} {one['value']} {one['unit']}"), esc(one["source"]),
         f"{one['records']:,}", f"{one['failed']:,}"]
        for one in report["thresholds"][: 3 * _MOST_ROWS]
    ]  # fmt: skip
    if not rows:
        return ""
    head = ("check", "must be", "who says so", "records", "failed")
    shown = table(head, rows, "Thresholds with their sources")
    more = len(report["thresholds"]) - len(rows)
    rest = f"<p>And {more:,} more in report.json.</p>" if more > 0 else ""
    count = f"{len(report['thresholds']):,} thresholds"
    return f"<details><summary>{count}</summary>{shown}{rest}</details>"


def _versions(report: Mapping[str, Any]) -> str:
    rows = []
    for name, said in report["versions"].items():
        told = said if isinstance(said, str) else "\n".join(map(str, said))
        rows.append([esc(name), f"<pre>{esc(told)}</pre>"])
    return table(("of", "release"), rows, "Versions")


def _evidence(report: Mapping[str, Any]) -> str:
    rows = [
        [esc(one["run"]), esc(one["level"]), f"{one['batches']:,}",
         f"{one['records']:,}", esc(one["simulated"])]
        for one in report["runs"]
    ]  # fmt: skip
    parts = ["<p>Raw evidence lies beside the records in <code>.dgx/evidence/runs/</code>.</p>"]
    head = ("run", "level", "nodes or fabric", "records used", "not real")
    parts.append(table(head, rows, "Runs that this report is made of"))
    wrong = report["store_problems"]
    if wrong:
        lines = "\n".join(clean(line) for line in wrong[:_MOST_ROWS])
        parts.append(
            f"<details open><summary>{len(wrong):,} lines of the store were cut short: a run was "
            f"killed. They count for nothing.</summary><pre>{esc(lines)}</pre></details>"
        )
    return "".join(parts)


def _some(names: Iterable[str], most: int) -> str:
    names = list(names)
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return esc(", ".join(names[:most])) + more
