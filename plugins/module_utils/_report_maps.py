# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The maps of a report: racks, rails, GPUs, pairs. Pure.

Up to 64 nodes each has a row. Above, a row is a rack, a cell shows the worst of its nodes, and the
rack opens.
"""

from __future__ import annotations

import re
import statistics
from os.path import commonprefix
from typing import Any, Callable, Iterable, Mapping, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils._report_page import (
    SIGNS,
    WORDS,
    anchor,
    cuts,
    esc,
    failed_gpus,
    number,
    racks_of,
    shade,
    wide,
)

_STATES = ("fail", "not_measured", "pass")
_MOST_PAIRS = 64


def _key(entries: Iterable[tuple[str, str, str]]) -> str:
    """Return what the cells mean: class, sign, words."""
    shown = "".join(
        f'<span><i class="box {kind}">{what}</i> {esc(words)}</span>'
        for kind, what, words in entries
    )
    return f'<p class="key">{shown}</p>'


_STATE_KEY = _key((kind, SIGNS[kind], WORDS[kind].lower()) for kind in _STATES[::-1])


def _grid(corner: str, columns: Sequence[str], rows: Iterable[str], caption: str) -> str:
    head = "".join(f'<th scope="col">{esc(name)}</th>' for name in columns)
    return (
        f'<div class="wide tall" tabindex="0" role="region" aria-label="{esc(caption)}">'
        f'<table class="heat"><caption>{esc(caption)}</caption><thead><tr>'
        f'<th scope="col">{esc(corner)}</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def rack_map(report: Mapping[str, Any]) -> str:
    """Return all racks with their nodes, the highest on top; a node that failed leads there."""
    if not report["nodes"]:
        return "<p>The plan has no such nodes.</p>"
    shown = {one["node"] for one in report["failed"][:1000]}
    # What all names begin with says nothing a thousand times.
    names = [node["name"] for node in report["nodes"]] if wide(report) else []
    same = commonprefix(names).rstrip("0123456789")  # noqa: RUF071 (no paths, but names)
    parts = []
    for rack, nodes in racks_of(report).items():
        name = esc(rack)
        boxes = "".join(_box(node, node["name"] in shown, len(same)) for node in nodes)
        parts.append(
            f'<div class=rack role="group" aria-label="{name}"><h3>{name}</h3>{boxes}</div>'
        )
    kind = "racks small" if wide(report) else "racks"
    return f'{_STATE_KEY}<div class="{kind}">{"".join(parts)}</div>'


def _box(node: Mapping[str, Any], leads: bool, skip: int) -> str:
    state = node["state"].get("state", "")
    place = f"unit {node['rack_unit']}" if node["rack_unit"] is not None else ""
    told = [
        node["name"],
        place,
        WORDS[node["verdict"]].lower(),
        node["first"],
        node["level"],
        node["at"],
    ]
    told += [f"Slurm: {state} {node['state'].get('reason', '')}" if state else ""]
    told += [f"fabric: {one}" for one in node["shown"][:3]]
    title = esc("; ".join(one for one in told if one))
    aside = f" <small>{esc(state)}</small>" if state else ""
    # A cable beside it failed: shown, though the node is not condemned for it.
    beside = ' <small title="a cable of it is no pass">⚠</small>' if node["shown"] else ""
    words = f"{SIGNS[node['verdict']]} {esc(node['name'][skip:])}{beside}{aside}"
    unseen = f"<span hidden>{WORDS[node['verdict']]}</span>"
    if leads:
        link = f'href="#{anchor("n", node["name"])}"'
        return f'<a class="box {node["verdict"]}" {link} title="{title}">{words}{unseen}</a>'
    return f'<span class="box {node["verdict"]}" title="{title}">{words}{unseen}</span>'


def _state_cell(states: Sequence[str]) -> str:
    """Return a cell for some states: the worst of them, and how many."""
    known = [state for state in states if state]
    if not known:
        return '<td class="none" title="nothing known">·</td>'
    worst = min(known, key=_STATES.index)
    count = known.count(worst)
    words = f"{WORDS[worst].lower()}: {count} of {len(known)}"
    many = "" if len(states) == 1 else f" {count}/{len(known)}" if worst != "pass" else f" {count}"
    return f'<td class="{worst}" title="{words}">{SIGNS[worst]}{many}</td>'


def _worst_of(states: Iterable[str]) -> int:
    return min([_STATES.index(state) for state in states if state], default=len(_STATES))


def _state_grid(
    report: Mapping[str, Any],
    states: Callable[[Mapping[str, Any]], Sequence[str]],
    column: str,
    caption: str,
) -> str:
    width = max([len(states(node)) for node in report["nodes"]] + [0])
    if not width:
        return ""
    rows = []
    groups = (
        list(racks_of(report).items())
        if wide(report)
        else [(node["name"], [node]) for node in report["nodes"]]
    )
    lines = [(name, [list(states(node)) for node in nodes]) for name, nodes in groups]
    if wide(report):
        # The worst first: nobody reads hundreds of rows.
        lines.sort(key=lambda item: _worst_of(state for one in item[1] for state in one))
        caption += "; the worst racks first"
    for name, line in lines:
        row = "".join(
            _state_cell([one[place] if place < len(one) else "" for one in line])
            for place in range(width)
        )
        rows.append(f'<tr><th scope="row">{esc(name)}</th>{row}</tr>\n')
    corner = "rack" if wide(report) else "node"
    return _grid(corner, [f"{column} {place}" for place in range(width)], rows, caption)


def rail_map(report: Mapping[str, Any]) -> str:
    """Return adapters and cables of each rail."""
    shown = _state_grid(
        report,
        lambda node: node["rails"],
        "rail",
        "Adapter and cable of each rail, the worse counts",
    )
    return f"{_STATE_KEY}{shown}" if shown else ""


def heat_maps(report: Mapping[str, Any]) -> str:
    """Return the state of each GPU, then each figure of each GPU."""
    gpus: Mapping[str, Sequence[str]] = report["gpus"]
    state = _state_grid(
        report,
        lambda node: gpus.get(node["name"], ()),
        "GPU",
        "State of each GPU, the worst counts",
    )
    if not state:
        return ""
    bad = failed_gpus(report)
    maps = [
        _heat_map(report, check, one, bad, first=place == 0)
        for place, (check, one) in enumerate(report["maps"].items())
    ]
    return f"{_STATE_KEY}{state}{''.join(maps)}"


def _heat_map(
    report: Mapping[str, Any],
    check: str,
    one: Mapping[str, Any],
    bad: Mapping[tuple[str, str], set[int]],
    first: bool,
) -> str:
    values: Mapping[str, Sequence[float | None]] = one["values"]
    every = [value for row in values.values() for value in row if value is not None]
    if not every:
        return ""
    cut = cuts(every)
    outside = {
        (each["subject"], each["check"]) for each in report["outliers"] if each["check"] == check
    }
    width = max(map(len, values.values()))
    middle, least, most = statistics.median(every), min(every), max(every)
    rows = (
        _rack_rows(report, check, one, bad, cut, width, outside, middle)
        if wide(report)
        else _node_rows(report, check, one, bad, cut, width, outside)
    )
    told = f"{number(least)} to {number(most)} {one['unit']}, median {number(middle)}"
    worst = {"low": "the least", "high": "the most"}.get(one["bad"], "the median")
    caption = f"{one['label']}, {one['unit']}" + (f": {worst} of each rack" if wide(report) else "")
    corner = "rack" if wide(report) else "node"
    grid = _grid(corner, [f"GPU {gpu}" for gpu in range(width)], rows, caption)
    steps = [least, *cut] if least < most else [least]
    key = _key((f"q{place}" if least < most else "q2", "", f"from {number(step)}")
               for place, step in enumerate(steps))  # fmt: skip
    return (
        f"<details{' open' if first else ''}><summary><b>{esc(one['label'])}</b> "
        f"<code>{esc(check)}</code> {esc(told)}</summary>{key}{grid}</details>"
    )


def _node_rows(
    report: Mapping[str, Any],
    check: str,
    one: Mapping[str, Any],
    bad: Mapping[tuple[str, str], set[int]],
    cut: Sequence[float],
    width: int,
    outside: set[tuple[str, str]],
) -> Iterable[str]:
    for node in report["nodes"]:
        name = node["name"]
        row = list(one["values"].get(name, ()))
        row += [None] * (width - len(row))
        failed = bad.get((check, name), set())
        told = []
        for gpu, value in enumerate(row):
            if value is None:
                told.append('<td class="none" title="no figure">·</td>')
            elif gpu in failed:
                told.append(f'<td class="fail" title="failed">✗ {number(value)}</td>')
            elif (f"gpu:{name}/{gpu}", check) in outside:
                told.append(
                    f'<td class="{shade(cut, value)} out" title="not like the others">'
                    f"▼ {number(value)}</td>"
                )
            else:
                told.append(f'<td class="{shade(cut, value)}">{number(value)}</td>')
        yield f'<tr><th scope="row">{esc(name)}</th>{"".join(told)}</tr>\n'


def _rack_rows(
    report: Mapping[str, Any],
    check: str,
    one: Mapping[str, Any],
    bad: Mapping[tuple[str, str], set[int]],
    cut: Sequence[float],
    width: int,
    outside: set[tuple[str, str]],
    middle: float,
) -> Iterable[str]:
    fold: Callable[[list[float]], float] = {"low": min, "high": max}.get(
        one["bad"], statistics.median
    )
    rows = []
    for rack, nodes in racks_of(report).items():
        lines = [one["values"].get(node["name"], ()) for node in nodes]
        failed = [bad.get((check, node["name"]), set()) for node in nodes]
        told = []
        for gpu in range(width):
            some = [line[gpu] for line in lines if gpu < len(line) and line[gpu] is not None]
            count = sum(gpu in one for one in failed)
            if not some:
                told.append('<td class="none">·</td>')
            elif count:
                told.append(
                    f'<td class="fail" title="{count} failed">✗{count} {number(fold(some))}</td>'
                )
            elif any((f"gpu:{node['name']}/{gpu}", check) in outside for node in nodes):
                told.append(
                    f'<td class="{shade(cut, fold(some))} out" title="not like the others">'
                    f"▼ {number(fold(some))}</td>"
                )
            else:
                told.append(f'<td class="{shade(cut, fold(some))}">{number(fold(some))}</td>')
        name = esc(rack)
        button = (
            f'<button class="row" aria-expanded="false" data-map="{esc(check)}" '
            f'data-rack="{name}">{name}</button>'
        )
        every = [value for line in lines for value in line if value is not None]
        # The worst first, which is the least, the most, or what is farthest from the middle.
        far = {"low": min(every, default=0.0), "high": -max(every, default=0.0)}.get(
            one["bad"], -max([abs(value - middle) for value in every], default=0.0)
        )
        row = f'<tr><th scope="row">{button}</th>{"".join(told)}</tr>\n'
        rows.append((-sum(map(len, failed)), not every, far, row))
    return [row for *_order, row in sorted(rows, key=lambda item: item[:3])]


def pair_matrix(report: Mapping[str, Any]) -> str:
    """Return what pairs of nodes reached; of a large cluster, pairs of racks."""
    if not report["pairs"]:
        return ""
    what, place = _places(report)
    found: dict[tuple[str, str], list[tuple[float, float, int]]] = {}
    for source, target, middle, least, count in report["pairs"]:
        found.setdefault((place.get(source, source), place.get(target, target)), []).append(
            (middle, least, count)
        )
    names = sorted({name for pair in found for name in pair}, key=_natural)
    least = {pair: min(one[1] for one in some) for pair, some in found.items()}
    middles = {pair: statistics.median([one[0] for one in some]) for pair, some in found.items()}
    cut = cuts(list(middles.values()))
    rows = []
    for source in names:
        told = []
        for target in names:
            if (source, target) not in found:
                told.append('<td class="none">·</td>')
                continue
            middle = middles[source, target]
            count = sum(one[2] for one in found[source, target])
            words = f"{count} flows, the least {number(least[source, target])} Gb/s"
            told.append(f'<td class="{shade(cut, middle)}" title="{words}">{number(middle)}</td>')
        rows.append(f'<tr><th scope="row">{esc(source)}</th>{"".join(told)}</tr>\n')
    caption = f"Gb/s from {what} (rows) to {what} (columns), the median of their flows"
    return _grid("from", names, rows, caption) + _pair_list(report)


def _natural(name: str) -> list[tuple[int, str]]:
    """Return what puts 2 before 10."""
    return [(int(part), "") if part.isdigit() else (-1, part)
            for part in re.split(r"([0-9]+)", name)]  # fmt: skip


def _places(report: Mapping[str, Any]) -> tuple[str, Mapping[str, str]]:
    """Return what the rows of the matrix are, and that of each node: few enough to be read."""
    nodes = report["nodes"]
    for what, word in (("nodes", "name"), ("racks", "rack"), ("scalable units", "su")):
        place = {node["name"]: str(node[word] or "?") for node in nodes}
        if len(set(place.values())) <= _MOST_PAIRS:
            return what, place
    return "the cluster", dict.fromkeys(place, report["cluster"] or "all")


def _pair_list(report: Mapping[str, Any]) -> str:
    """Return the slowest pairs, which a matrix of a thousand nodes would hide."""
    slowest = sorted(report["pairs"], key=lambda one: one[3])[:20]
    rows = "".join(
        f"<tr><td>{esc(source)}</td><td>{esc(target)}</td>"
        f"<td>{number(middle)}</td><td>{number(least)}</td><td>{count}</td></tr>\n"
        for source, target, middle, least, count in slowest
    )
    return (
        f"<details><summary>The {len(slowest)} slowest of {len(report['pairs']):,} pairs</summary>"
        "<div class=wide><table><thead><tr><th>from</th><th>to</th><th>median Gb/s</th>"
        f"<th>least</th><th>flows</th></tr></thead><tbody>{rows}</tbody></table></div></details>"
    )
