# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The maps of a report as data for maps.html.j2: racks, rails, GPUs, pairs. Pure.

Up to 64 nodes each has a row. Above, a row is a rack, a cell shows the worst of its nodes, and the
rack opens.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os.path import commonprefix
from typing import Any, NamedTuple

SIGNS = {"pass": "✓", "fail": "✗", "not_measured": "?", "": "·"}
WORDS = {"pass": "Passed", "fail": "Failed", "not_measured": "Not measured", "": "None"}

# Above so many nodes the maps have a row for each rack, which opens.
NODES_ONE_BY_ONE = 64

_STATES = ("fail", "not_measured", "pass")
_MOST_PAIRS = 64


class Cell(NamedTuple):
    """A cell: its class, what it shows, what its tooltip says."""

    kind: str
    text: str
    title: str = ""


class Row(NamedTuple):
    """A row with its name; one that opens has the map that its cells are of."""

    name: str
    cells: list[Cell]
    map: str = ""


class Grid(NamedTuple):
    """A map: a name for the rows, those of the columns, the rows, what all of it shows."""

    corner: str
    columns: list[str]
    rows: list[Row]
    caption: str


class Box(NamedTuple):
    """A node in its rack: its state, the name as shown, and where a click leads, if anywhere."""

    name: str
    verdict: str
    shown: str
    title: str
    state: str
    # A cable beside it failed: shown, though it does not fail the node.
    beside: bool
    leads: bool


class Heat(NamedTuple):
    """A figure of each GPU: its grid, and what each colour begins with, by class."""

    check: str
    label: str
    range: str
    key: list[Cell]
    grid: Grid


class Pairs(NamedTuple):
    """What pairs of nodes reached: all of them as a grid, and the slowest."""

    grid: Grid
    slowest: list[Sequence[Any]]
    in_all: int


def number(value: float) -> str:
    """Return a figure with as many digits as one reads."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"


def cuts(values: Sequence[float]) -> list[float]:
    """Return the four values at which the next stronger colour begins: equal steps, no more."""
    if not values:
        return []
    low, high = min(values), max(values)
    if high == low:
        # One colour in the middle.
        return [low, low]
    return [low + (high - low) * step / 5 for step in range(1, 5)]


def shade(cut: Sequence[float], value: float) -> str:
    """Return the class of a value, as report.js does."""
    return f"q{sum(value >= one for one in cut)}"


def is_wide(report: Mapping[str, Any]) -> bool:
    """Return whether the cluster is too large for a row for each node."""
    return len(report["nodes"]) > NODES_ONE_BY_ONE


def racks_of(report: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the nodes by rack, the highest first; those without one are together."""
    racks: dict[str, list[Mapping[str, Any]]] = {}
    for node in report["nodes"]:
        racks.setdefault(str(node["rack"] or "no rack"), []).append(node)
    for some in racks.values():
        some.sort(key=lambda one: (-(one["rack_unit"] or 0), one["name"]))
    return dict(sorted(racks.items()))


def failed_gpus(report: Mapping[str, Any]) -> dict[tuple[str, str], set[int]]:
    """Return the numbers of the GPUs that fail a check, by check and node."""
    found: dict[tuple[str, str], set[int]] = {}
    for one in report["failed"]:
        kind, _colon, name = one["subject"].partition(":")
        node, _slash, place = name.partition("/")
        if kind == "gpu" and place.isdigit():
            found.setdefault((one["check"], node), set()).add(int(place))
    return found


def script_data(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what report.js opens a rack with: nothing where each node has a row."""
    data: dict[str, Any] = {"maps": {}, "racks": {}}
    if not is_wide(report):
        return data
    data["racks"] = {rack: [one["name"] for one in some] for rack, some in racks_of(report).items()}
    bad = failed_gpus(report)
    for check, one in report["maps"].items():
        values = one["values"]
        every = [value for row in values.values() for value in row if value is not None]
        data["maps"][check] = {
            "cut": cuts(every),
            "wide": max(map(len, values.values()), default=0),
            "values": {
                node: [None if value is None else round(value, 2) for value in row]
                for node, row in values.items()
            },
            "failed": {node: sorted(gpus) for (which, node), gpus in bad.items() if which == check},
        }
    return data


def rack_map(report: Mapping[str, Any]) -> dict[str, list[Box]]:
    """Return the nodes of each rack, the highest on top; a node that failed leads there."""
    shown = {one["node"] for one in report["failed"][:1000]}
    # A prefix of all names helps no reader.
    names = [node["name"] for node in report["nodes"]] if is_wide(report) else []
    same = commonprefix(names).rstrip("0123456789")  # noqa: RUF071 (no paths, but names)
    return {
        rack: [_box(node, node["name"] in shown, len(same)) for node in nodes]
        for rack, nodes in racks_of(report).items()
    }


def _box(node: Mapping[str, Any], leads: bool, skip: int) -> Box:
    state = node["state"].get("state", "")
    place = f"unit {node['rack_unit']}" if node["rack_unit"] is not None else ""
    reported = [
        node["name"],
        place,
        WORDS[node["verdict"]].lower(),
        node["first"],
        node["level"],
        node["at"],
    ]
    reported += [f"Slurm: {state} {node['state'].get('reason', '')}" if state else ""]
    reported += [f"fabric: {one}" for one in node["shown"][:3]]
    return Box(
        name=node["name"],
        verdict=node["verdict"],
        shown=node["name"][skip:],
        title="; ".join(one for one in reported if one),
        state=state,
        beside=bool(node["shown"]),
        leads=leads,
    )


def _state_cell(states: Sequence[str]) -> Cell:
    """Return a cell for some states: the worst of them, and how many."""
    known = [state for state in states if state]
    if not known:
        return Cell("none", "·", "nothing known")
    worst = min(known, key=_STATES.index)
    count = known.count(worst)
    many = "" if len(states) == 1 else f" {count}/{len(known)}" if worst != "pass" else f" {count}"
    words = f"{WORDS[worst].lower()}: {count} of {len(known)}"
    return Cell(worst, f"{SIGNS[worst]}{many}", words)


def _worst_of(states: Iterable[str]) -> int:
    return min([_STATES.index(state) for state in states if state], default=len(_STATES))


def _state_grid(
    report: Mapping[str, Any],
    states: Callable[[Mapping[str, Any]], Sequence[str]],
    column: str,
    caption: str,
) -> Grid | None:
    width = max([len(states(node)) for node in report["nodes"]] + [0])
    if not width:
        return None
    groups = (
        list(racks_of(report).items())
        if is_wide(report)
        else [(node["name"], [node]) for node in report["nodes"]]
    )
    lines = [(name, [list(states(node)) for node in nodes]) for name, nodes in groups]
    if is_wide(report):
        # The worst first: hundreds of rows are not read.
        lines.sort(key=lambda item: _worst_of(state for one in item[1] for state in one))
        caption += "; the worst racks first"
    rows = [
        Row(
            name,
            [
                _state_cell([one[place] if place < len(one) else "" for one in line])
                for place in range(width)
            ],
        )
        for name, line in lines
    ]
    return Grid(_corner(report), [f"{column} {place}" for place in range(width)], rows, caption)


def _corner(report: Mapping[str, Any]) -> str:
    return "rack" if is_wide(report) else "node"


def rail_map(report: Mapping[str, Any]) -> Grid | None:
    """Return adapters and cables of each rail, if there are any."""
    caption = "Adapter and cable of each rail, the worse counts"
    return _state_grid(report, lambda node: node["rails"], "rail", caption)


def gpu_map(report: Mapping[str, Any]) -> Grid | None:
    """Return the state of each GPU, if there are any."""
    gpus: Mapping[str, Sequence[str]] = report["gpus"]
    caption = "State of each GPU, the worst counts"
    return _state_grid(report, lambda node: gpus.get(node["name"], ()), "GPU", caption)


class _Figures:
    """What one figure of all GPUs has in common: colours, failures, outliers."""

    def __init__(self, report: Mapping[str, Any], check: str, one: Mapping[str, Any]) -> None:
        self.check = check
        self.values: Mapping[str, Sequence[float | None]] = one["values"]
        self.bad = one["bad"]
        self.every = [value for row in self.values.values() for value in row if value is not None]
        self.cut = cuts(self.every)
        self.width = max(map(len, self.values.values()), default=0)
        self._outside = {each["subject"] for each in report["outliers"] if each["check"] == check}

    def is_outside(self, node: str, gpu: int) -> bool:
        return f"gpu:{node}/{gpu}" in self._outside

    def fold(self, values: Sequence[float]) -> float:
        """Return the worst of some values, or their median if neither end is worse."""
        worst: Callable[[Sequence[float]], float] = {"low": min, "high": max}.get(
            self.bad, statistics.median
        )
        return worst(values)

    def plain(self, value: float) -> Cell:
        return Cell(shade(self.cut, value), number(value))

    def outside(self, value: float) -> Cell:
        kind = f"{shade(self.cut, value)} out"
        return Cell(kind, f"▼ {number(value)}", "not like the others")


def heat_maps(report: Mapping[str, Any]) -> list[Heat]:
    """Return each figure of each GPU."""
    bad = failed_gpus(report)
    maps = []
    for check, one in report["maps"].items():
        figures = _Figures(report, check, one)
        if figures.every:
            maps.append(_heat_map(report, one, figures, bad))
    return maps


def _heat_map(
    report: Mapping[str, Any],
    one: Mapping[str, Any],
    figures: _Figures,
    bad: Mapping[tuple[str, str], set[int]],
) -> Heat:
    every = figures.every
    middle, least, most = statistics.median(every), min(every), max(every)
    rows = (
        _rack_rows(report, figures, bad, middle)
        if is_wide(report)
        else list(_node_rows(report, figures, bad))
    )
    worst = {"low": "the least", "high": "the most"}.get(figures.bad, "the median")
    caption = f"{one['label']}, {one['unit']}"
    caption += f": {worst} of each rack" if is_wide(report) else ""
    steps = [least, *figures.cut] if least < most else [least]
    return Heat(
        check=figures.check,
        label=one["label"],
        range=f"{number(least)} to {number(most)} {one['unit']}, median {number(middle)}",
        key=[
            Cell(f"q{place}" if least < most else "q2", "", f"from {number(step)}")
            for place, step in enumerate(steps)
        ],
        grid=Grid(_corner(report), [f"GPU {gpu}" for gpu in range(figures.width)], rows, caption),
    )


def _node_rows(
    report: Mapping[str, Any], figures: _Figures, bad: Mapping[tuple[str, str], set[int]]
) -> Iterator[Row]:
    for node in report["nodes"]:
        name = node["name"]
        values = list(figures.values.get(name, ()))
        values += [None] * (figures.width - len(values))
        failed = bad.get((figures.check, name), set())
        cells = []
        for gpu, value in enumerate(values):
            if value is None:
                cells.append(Cell("none", "·", "no figure"))
            elif gpu in failed:
                cells.append(Cell("fail", f"✗ {number(value)}", "failed"))
            elif figures.is_outside(name, gpu):
                cells.append(figures.outside(value))
            else:
                cells.append(figures.plain(value))
        yield Row(name, cells)


def _rack_rows(
    report: Mapping[str, Any],
    figures: _Figures,
    bad: Mapping[tuple[str, str], set[int]],
    middle: float,
) -> list[Row]:
    rows = []
    for rack, nodes in racks_of(report).items():
        lines = [figures.values.get(node["name"], ()) for node in nodes]
        failed = [bad.get((figures.check, node["name"]), set()) for node in nodes]
        cells = []
        for gpu in range(figures.width):
            given = (line[gpu] for line in lines if gpu < len(line))
            some = [value for value in given if value is not None]
            count = sum(gpu in one for one in failed)
            if not some:
                cells.append(Cell("none", "·"))
            elif count:
                text = f"✗{count} {number(figures.fold(some))}"
                cells.append(Cell("fail", text, f"{count} failed"))
            elif any(figures.is_outside(node["name"], gpu) for node in nodes):
                cells.append(figures.outside(figures.fold(some)))
            else:
                cells.append(figures.plain(figures.fold(some)))
        every = [value for line in lines for value in line if value is not None]
        # The worst first, which is the least, the most, or what is farthest from the middle.
        far = {"low": min(every, default=0.0), "high": -max(every, default=0.0)}.get(
            figures.bad, -max([abs(value - middle) for value in every], default=0.0)
        )
        row = Row(rack, cells, figures.check)
        rows.append((-sum(map(len, failed)), not every, far, row))
    return [row for *_order, row in sorted(rows, key=lambda item: item[:3])]


def pair_matrix(report: Mapping[str, Any]) -> Pairs | None:
    """Return what pairs of nodes reached; of a large cluster, pairs of racks."""
    if not report["pairs"]:
        return None
    what, place = _places(report)
    found: dict[tuple[str, str], list[tuple[float, float, int]]] = {}
    for source, target, middle, least, count in report["pairs"]:
        found.setdefault((place.get(source, source), place.get(target, target)), []).append(
            (middle, least, count)
        )
    names = sorted({name for pair in found for name in pair}, key=_natural)
    middles = {pair: statistics.median([one[0] for one in some]) for pair, some in found.items()}
    cut = cuts(list(middles.values()))

    def cell(pair: tuple[str, str]) -> Cell:
        if pair not in found:
            return Cell("none", "·")
        least = min(one[1] for one in found[pair])
        flows = sum(one[2] for one in found[pair])
        words = f"{flows} flows, the least {number(least)} Gb/s"
        return Cell(shade(cut, middles[pair]), number(middles[pair]), words)

    rows = [Row(source, [cell((source, target)) for target in names]) for source in names]
    caption = f"Gb/s from {what} (rows) to {what} (columns), the median of their flows"
    # A matrix of a thousand nodes would hide the slowest.
    slowest = sorted(report["pairs"], key=lambda one: one[3])[:20]
    return Pairs(Grid("from", names, rows, caption), slowest, len(report["pairs"]))


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


# Of the picture of a link's values over time.
LINE_WIDTH, LINE_HEIGHT = 120, 24


def sparkline(points: Sequence[Sequence[float]]) -> str:
    """Return points (day, value) as those of an SVG polyline; a day without a reading is a gap.

    The oldest is left, the largest value above; nothing for fewer than two points.
    """
    if len(points) < 2:
        return ""
    days, values = [one[0] for one in points], [one[1] for one in points]
    wide, low = days[-1] - days[0] or 1.0, min(values)
    high = max(values) - low or 1.0
    return " ".join(
        f"{(day - days[0]) / wide * LINE_WIDTH:.1f},{(1 - (value - low) / high) * LINE_HEIGHT:.1f}"
        for day, value in zip(days, values, strict=True)
    )
