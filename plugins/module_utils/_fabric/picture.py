# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A picture of the fabric with its faults: an SVG that needs nothing beside itself. Pure.

Lines between a thousand ports show nothing, so cables are the cells of a table: a row for each rail
and its leaf, a column for each node, then one for each spine. Nodes that share leaves are one
table, also where the plan is a list without units. A cell has a frame and a sign as well as a
colour, and the number of its finding, which is listed below.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Sequence
from xml.sax.saxutils import escape

from .._core.record import FAIL, NOT_MEASURED, PASS
from .judge import Verdict
from .model import NODE_LEAF, Cable, CablePlan
from .text import summary

# Above so many nodes a unit is one row.
_NODES_ONE_BY_ONE = 256
_CELL = 17
_GAP = 26
_LEFT = 150
_LINE = 15
_LISTED = 200

# Colours that people with any colour vision can tell apart (Okabe and Ito), on white.
_STYLE = """
text{font:11px sans-serif;fill:#111}
.h{font-size:15px;font-weight:bold}
.s{font-size:9px}
.v{font-size:9px;text-anchor:end}
.n{font-size:9px;text-anchor:middle;font-weight:bold}
.pass{fill:#d9ecf8;stroke:#8fb8d4}
.fail{fill:#d55e00;stroke:#000;stroke-width:1.5}
.not_measured{fill:#fff;stroke:#000;stroke-dasharray:2 2}
.noted{fill:#fff;stroke:#000;stroke-width:2.5}
.none{fill:#f4f4f4;stroke:#e4e4e4}
text.w{fill:#fff}
"""


@dataclass
class _Mark:
    """Cables that share a cell."""

    cables: list[Cable] = field(default_factory=list)


@dataclass
class _Drawing:
    verdict: Verdict
    parts: list[str] = field(default_factory=list)
    width: int = 0
    y: int = 0

    def __post_init__(self) -> None:
        self.number: dict[Cable, int] = {}
        # Cables that are right, of a device that is not: one with a wrong name.
        self.noted: dict[Cable, int] = {}
        of_device: dict[str, list[Cable]] = {}
        for cable in self.verdict.wiring.plan.cables:
            for end in (cable.a, cable.b):
                of_device.setdefault(end.host, []).append(cable)
                if not end.is_switch:
                    of_device.setdefault(str(end), []).append(cable)
        for number, finding in enumerate(self.verdict.findings, 1):
            for cable in finding.cables:
                self.number.setdefault(cable, number)
            if not finding.cables:
                name = finding.subject.partition(":")[2]
                for cable in of_device.get(name, ()):
                    self.noted.setdefault(cable, number)

    def text(self, x: float, y: float, words: str, kind: str = "", turn: bool = False) -> None:
        kinds = f' class="{kind}"' if kind else ""
        turned = f' transform="rotate(90 {x:g} {y:g})"' if turn else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}"{kinds}{turned}>{escape(words)}</text>')

    def cell(self, x: int, y: int, mark: _Mark | None, title: str, wide: int = 1) -> None:
        """Draw the cables of a cell: the worst of them decides."""
        self.width = max(self.width, x + wide * _CELL)
        size = f'width="{wide * _CELL - 3}" height="{_CELL - 3}"'
        if mark is None or not mark.cables:
            self.parts.append(f'<rect class="none" x="{x}" y="{y}" {size}/>')
            return
        status = {cable: self.verdict.cables[cable][0] for cable in mark.cables}
        bad = [cable for cable in mark.cables if status[cable] == FAIL]
        unsure = [cable for cable in mark.cables if status[cable] == NOT_MEASURED]
        noted = [cable for cable in mark.cables if cable in self.noted]
        kind = FAIL if bad else NOT_MEASURED if unsure else "noted" if noted else PASS
        reported = [title] if len(mark.cables) == 1 else [f"{title}: {len(mark.cables)} cables"]
        reported += [
            f"{cable.subject}: {self.verdict.cables[cable][1]}" for cable in (bad + unsure)[:8]
        ]
        self.parts.append(
            f'<rect class="{kind}" x="{x}" y="{y}" {size} rx="{6 if kind == FAIL else 0}">'
            f"<title>{escape(chr(10).join(reported))}</title></rect>"
        )
        sign = self._sign(bad, unsure, len(mark.cables), wide)
        if kind == "noted" and wide == 1:
            sign = str(self.noted[noted[0]])
        if sign:
            colour = "n w" if kind == FAIL else "n"
            self.text(x + wide * _CELL / 2 - 1.5, y + _CELL - 6, sign, colour)

    def _sign(self, bad: list[Cable], unsure: list[Cable], of_all: int, wide: int) -> str:
        if wide > 1:
            if bad:
                return f"{len(bad)}/{of_all}"
            return f"?{len(unsure)}/{of_all}" if unsure else str(of_all)
        if bad:
            return str(self.number.get(bad[0], "!"))
        if unsure:
            return str(self.number.get(unsure[0], "?"))
        return ""


def fabric_svg(verdict: Verdict, name: str = "", right: str = "as planned") -> str:
    """Return the picture of a verdict; `name` is that of the cluster.

    `right` is the word of the legend on cells without a fault: what they were compared with.
    """
    drawing = _Drawing(verdict)
    drawing.text(10, 22, f"Fabric {name}".strip(), "h")
    drawing.text(10, 40, summary(verdict))
    drawing.y = 58
    _legend(drawing, right)
    nodes = {node for node, _rail in verdict.wiring.plan.hcas}
    if len(nodes) > _NODES_ONE_BY_ONE:
        _by_unit(drawing)
    else:
        _by_node(drawing)
    _uppers(drawing)
    _list(drawing)
    width, height = max(drawing.width + 20, 760), drawing.y + 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><style>{_STYLE}</style>'
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n'
        + "\n".join(drawing.parts)
        + "\n</svg>\n"
    )


def _legend(drawing: _Drawing, right: str) -> None:
    x, y = 10, drawing.y
    for kind, words in (
        (PASS, right),
        (FAIL, "wrong; the number is that of the finding below"),
        (NOT_MEASURED, "not measured"),
        ("noted", "its device is wrong"),
        ("none", "no cable"),
    ):
        drawing.parts.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="14" height="14" '
            f'rx="{6 if kind == FAIL else 0}"/>'
        )
        drawing.text(x + 20, y + 11, words)
        x += 45 + 6 * len(words)
    drawing.y += 30


def _units(plan: CablePlan) -> dict[str, int]:
    """Return the unit of each node and leaf: the plan's, or what shares leaves; 0 if it is one."""
    leaves: dict[str, set[str]] = {}
    for cable in plan.cables:
        if cable.kind == NODE_LEAF:
            leaves.setdefault(cable.a.host, set()).add(cable.b.host)
    units = {name: one.unit for name, one in plan.switches.items() if one.unit is not None}
    if not units:
        groups: list[set[str]] = []
        for names in leaves.values():
            joined = names.union(*(group for group in groups if group & names))
            groups = [*(group for group in groups if not group & names), joined]
        for number, group in enumerate(sorted(groups, key=min), 1):
            units.update(dict.fromkeys(group, number if len(groups) > 1 else 0))
    nodes = {node: units.get(min(names), 0) for node, names in leaves.items()}
    spare = {name: 0 for name, one in plan.switches.items() if one.tier == "leaf"}
    return {**spare, **units, **nodes}


def _by_node(drawing: _Drawing) -> None:
    """Draw a table for each unit: rails by nodes, and the leaves' cables upward."""
    plan = drawing.verdict.wiring.plan
    units = _units(plan)
    rails: dict[tuple[int, int], set[str]] = {}
    cells: dict[tuple[int, int, str], _Mark] = {}
    ups: dict[tuple[str, str], _Mark] = {}
    for cable in plan.cables:
        if cable.kind == NODE_LEAF:
            unit = units[cable.a.host]
            rails.setdefault((unit, cable.a.rail), set()).add(cable.b.host)
            cells.setdefault((unit, cable.a.rail, cable.a.host), _Mark()).cables.append(cable)
        else:
            for end in (cable.a, cable.b):
                ups.setdefault((end.host, cable.other(end).host), _Mark()).cables.append(cable)
    uppers = sorted({upper for leaf, upper in ups if _is_leaf(drawing, leaf)})
    of_unit = {
        unit: sorted({node for node, _rail in plan.hcas if units.get(node) == unit})
        for unit in sorted(set(units.values()))
    }
    # The same spine below itself, whatever the size of the unit.
    start = _LEFT + max(map(len, of_unit.values())) * _CELL + _GAP
    for unit, nodes in of_unit.items():
        rows = sorted(rail for of, rail in rails if of == unit)
        longest = max([len(name) for name in nodes + uppers] + [0])
        top = drawing.y + 22 + 6 * longest
        drawing.text(10, drawing.y + 12, f"unit {unit}" if unit else "nodes and leaves", "h")
        for column, node in enumerate(nodes):
            drawing.text(_LEFT + column * _CELL + 10, top - 5, node, "v", turn=True)
        for column, upper in enumerate(uppers):
            drawing.text(start + column * _CELL + 10, top - 5, upper, "v", turn=True)
        seen: set[str] = set()
        for row, rail in enumerate(rows):
            y = top + row * _CELL
            leaves = sorted(rails[unit, rail])
            drawing.text(10, y + 11, f"rail {rail}: " + (leaves[0] if len(leaves) == 1 else "…"))
            for column, node in enumerate(nodes):
                mark = cells.get((unit, rail, node))
                drawing.cell(_LEFT + column * _CELL, y, mark, f"{node} rail {rail}")
            if len(leaves) == 1 and leaves[0] not in seen:
                seen.add(leaves[0])
                _uplinks(drawing, leaves[0], start, y, ups, uppers)
        drawing.y = top + len(rows) * _CELL
        # Leaves that share their rails with others, or have no node.
        others = [name for name in plan.switches if _is_leaf(drawing, name) and name not in seen]
        for name in others:
            if units.get(name, 0) == unit and any((name, upper) in ups for upper in uppers):
                drawing.text(10, drawing.y + 11, name)
                _uplinks(drawing, name, start, drawing.y, ups, uppers)
                drawing.y += _CELL
        drawing.y += 18


def _uplinks(
    drawing: _Drawing,
    leaf: str,
    start: int,
    y: int,
    ups: Mapping[tuple[str, str], _Mark],
    uppers: Sequence[str],
) -> None:
    for column, upper in enumerate(uppers):
        drawing.cell(start + column * _CELL, y, ups.get((leaf, upper)), f"{leaf} to {upper}")


def _is_leaf(drawing: _Drawing, name: str) -> bool:
    return drawing.verdict.wiring.plan.switches[name].tier == "leaf"


def _by_unit(drawing: _Drawing) -> None:
    """Draw one table: a row for each unit, and for each rail its nodes and its uplinks."""
    plan = drawing.verdict.wiring.plan
    units = _units(plan)
    rail_of: dict[str, int] = {}
    for cable in plan.cables:
        if cable.kind == NODE_LEAF:
            name, rail = cable.b.host, cable.a.rail
            rail_of[name] = min(rail, rail_of.get(name, rail))
    below: dict[tuple[int, int], _Mark] = {}
    above: dict[tuple[int, int], _Mark] = {}
    for cable in plan.cables:
        if cable.kind == NODE_LEAF:
            below.setdefault((units[cable.a.host], cable.a.rail), _Mark()).cables.append(cable)
        else:
            leaf = plan.switches[cable.a.host]
            if leaf.tier == "leaf":
                # With several rails, a leaf is in the column of the first.
                place = (units.get(leaf.name, 0), rail_of.get(leaf.name, leaf.rail or 0))
                above.setdefault(place, _Mark()).cables.append(cable)
    rails = sorted({rail for _unit, rail in (*below, *above)})
    wide = 3
    start = _LEFT + len(rails) * wide * _CELL + _GAP
    drawing.text(_LEFT, drawing.y + 12, "cables to the nodes, by rail")
    drawing.text(start, drawing.y + 12, "cables upward, by rail")
    top = drawing.y + 34
    for column, rail in enumerate(rails):
        for x in (_LEFT, start):
            drawing.text(x + column * wide * _CELL, top - 5, f"rail {rail}", "s")
    for row, unit in enumerate(sorted({unit for unit, _rail in (*below, *above)})):
        y = top + row * _CELL
        drawing.text(10, y + 11, f"unit {unit}" if unit else "all nodes")
        for column, rail in enumerate(rails):
            x = column * wide * _CELL
            title = f"unit {unit} rail {rail}"
            drawing.cell(_LEFT + x, y, below.get((unit, rail)), title, wide)
            drawing.cell(start + x, y, above.get((unit, rail)), f"{title} upward", wide)
        drawing.y = y + _CELL + 18


def _uppers(drawing: _Drawing) -> None:
    """Draw each switch above the leaves as one cell for all its cables."""
    plan = drawing.verdict.wiring.plan
    of: dict[str, _Mark] = {}
    for cable in plan.cables:
        for end in (cable.a, cable.b):
            if end.is_switch and plan.switches[end.host].tier != "leaf":
                of.setdefault(end.host, _Mark()).cables.append(cable)
    across = 32
    for tier in ("spine", "core"):
        names = sorted(name for name, switch in plan.switches.items() if switch.tier == tier)
        if not names:
            continue
        drawing.text(10, drawing.y + 12, f"{tier}s", "h")
        first = drawing.y + 20
        for index, name in enumerate(names):
            x, y = _LEFT + index % across * _CELL, first + index // across * _CELL
            if index % across == 0:
                drawing.text(10, y + 11, name + (" …" if len(names) > index + 1 else ""))
            drawing.cell(x, y, of.get(name), name)
            drawing.y = y + _CELL + 14


def _list(drawing: _Drawing) -> None:
    findings = drawing.verdict.findings
    if findings:
        drawing.text(10, drawing.y + 14, "findings", "h")
        drawing.y += 22
    for number, finding in enumerate(findings[:_LISTED], 1):
        words = f"{number}. {finding.kind} {finding.subject}: {finding.text}"
        drawing.y += _LINE
        shown = words if len(words) <= 160 else words[:159] + "…"
        drawing.text(10, drawing.y, shown)
        drawing.width = max(drawing.width, 10 + 6 * len(shown))
    if len(findings) > _LISTED:
        drawing.y += _LINE
        drawing.text(10, drawing.y, f"and {len(findings) - _LISTED} more: see findings.txt")
