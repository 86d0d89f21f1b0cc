#!/usr/bin/env python3
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of plugins/ and who imports whom, from the imports themselves.

.venv/bin/python .ci/house.py          writes docs/packages.svg
.venv/bin/python .ci/house.py --check  ends with 1 if the drawing is not that of the imports
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = ROOT / "plugins"
DRAWING = ROOT / "docs" / "packages.svg"
NAME = "ansible_collections.baremetal.dgx.plugins"
NODE, CONTROLLER = "module_utils", "plugin_utils"
Edges = Mapping[str, set[str]]
STYLE = """<style>
rect { stroke: #555; fill: #dcebfa } .plugin_utils rect { fill: #fbe8cf }
text { font: 14px sans-serif; text-anchor: middle; fill: #111 }
.size { font-size: 11px; fill: #555 } .key { text-anchor: start; font-size: 12px }
path { fill: none; stroke: #6b7c8f; stroke-width: 1.2; opacity: .65; marker-end: url(#tip) }
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7"
 orient="auto"><path d="M0 0 8 4 0 8z" style="fill: #6b7c8f; stroke: none; marker-end: none"/>
</marker></defs>"""
KEY = (
    "blue: module_utils, carried to nodes (Python 3.8); orange: plugin_utils, controller only",
    "An arrow points to what is imported. Every package may import _core: those are left out.",
)


def imports(text: str, module: str) -> Iterator[str]:
    """Yield what this text imports from the collection, as dotted names below plugins."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith(NAME):
                    raise ValueError(f"{module}: write from … import …, not import {alias.name}")
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            base = ".".join([*module.split(".")[: -node.level], *filter(None, [node.module])])
        elif node.module == NAME or (node.module or "").startswith(NAME + "."):
            base = (node.module or "")[len(NAME) + 1 :]
        else:
            continue
        for alias in node.names:
            inner = f"{base}.{alias.name}" if base else alias.name
            path = PLUGINS.joinpath(*inner.split("."))
            yield inner if path.with_suffix(".py").exists() else base


def graph() -> dict[str, set[str]]:
    """Return module -> the modules that it imports, of all plugins."""
    found = {}
    for path in sorted(PLUGINS.rglob("*.py")):
        module = ".".join(path.relative_to(PLUGINS).with_suffix("").parts)
        if path.name != "__init__.py":
            found[module] = set(imports(path.read_text(encoding="utf-8"), module))
    return found


def packages(modules: Edges) -> dict[str, set[str]]:
    """Return package -> the other packages that it imports, of both wings."""
    found: dict[str, set[str]] = {}
    for module, targets in modules.items():
        if module.startswith((NODE, CONTROLLER)):
            found.setdefault(package(module), set()).update(package(one) for one in targets)
    return {name: targets - {name} for name, targets in found.items()}


def package(module: str) -> str:
    """Return `_fabric` for module_utils._fabric.judge."""
    return module.split(".")[1]


def circle(edges: Edges) -> list[str]:
    """Return the names along one circle, or nothing."""
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        for target in sorted(edges.get(name, ())):
            if found := walk(target, [*way, name]):
                return found
        done.add(name)
        return []

    for name in sorted(edges):
        if found := walk(name, []):
            return found
    return []


def floors(edges: Edges) -> dict[str, int]:
    """Return package -> its floor: one above the highest that it imports. Without circles only."""
    found: dict[str, int] = {}

    def floor(name: str) -> int:
        if name not in found:
            found[name] = 1 + max((floor(one) for one in edges[name]), default=0)
        return found[name]

    for name in edges:
        floor(name)
    return found


def svg(modules: Edges) -> str:
    """Return the drawing: boxes in rows, a floor each. No arrows to `_core`: all have one."""
    edges, sizes, wing = packages(modules), dict[str, int](), dict[str, str]()
    for module in modules:
        if module.startswith((NODE, CONTROLLER)):
            sizes[package(module)] = sizes.get(package(module), 0) + 1
            wing[package(module)] = module.split(".")[0]
    level = floors(edges)
    width, row, wide, high = 1100, 110, 124, 44
    top = max(level.values())
    place = {}
    for number in range(1, top + 1):
        names = sorted(name for name in level if level[name] == number)
        for index, name in enumerate(names):
            # Every other row is shifted, so that fewer lines run through a box.
            shift = 18 if number % 2 else -18
            middle = width * (index + 0.5) / len(names) + (shift if len(names) > 1 else 0)
            place[name] = (middle, (top - number) * row + 30)
    lines = []
    for name in sorted(edges):
        for target in sorted(edges[name] - {"_core"}):
            (x, y), (u, v) = place[name], place[target]
            y += high
            lines.append(
                f'<path d="M{x:.0f} {y} C{x:.0f} {y + 40} {u:.0f} {v - 40} {u:.0f} {v - 5}"/>'
            )
    boxes = []
    for name, (x, y) in sorted(place.items()):
        boxes.append(
            f'<g class="{wing[name]}"><rect x="{x - wide / 2:.0f}" y="{y}" width="{wide}" '
            f'height="{high}" rx="5"/><text x="{x:.0f}" y="{y + 19}">{name}</text>'
            f'<text class="size" x="{x:.0f}" y="{y + 35}">{sizes[name]} '
            f"file{'s' * (sizes[name] > 1)}</text></g>"
        )
    height = top * row + 30
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        "<title>Packages of plugins/ and their imports; made by .ci/house.py</title>",
        STYLE,
        f'<rect x="0" y="0" width="{width}" height="{height}" style="fill: #fff; stroke: none"/>',
        *lines,
        *boxes,
        f'<text class="key" x="12" y="{height - 34}">{KEY[0]}</text>',
        f'<text class="key" x="12" y="{height - 16}">{KEY[1]}</text>',
        "</svg>\n",
    ])  # fmt: skip


def main() -> int:
    """Write the drawing, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    text = svg(graph())
    if not check:
        DRAWING.write_text(text, encoding="utf-8")
    elif not DRAWING.exists() or DRAWING.read_text(encoding="utf-8") != text:
        print(f"{DRAWING.relative_to(ROOT)} is not what the imports give; run .ci/house.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
