#!/usr/bin/env python
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the tables of alerts from the rules.

docs/monitoring.md has what an alert is (severity, waiting time, threshold), docs/troubleshooting.md
has what to do about it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "roles/prometheus/files/rules"
REFERENCE = ROOT / "docs/monitoring.md"
GUIDE = ROOT / "docs/troubleshooting.md"
BEGIN, END = "<!-- BEGIN generated: alerts -->", "<!-- END generated: alerts -->"
# Headings; anchors of the page, which must not meet those of its other sections.
TITLES = {
    name: f"Alerts: {title}"
    for name, title in {
        "backup": "backup", "fabric": "fabric", "gpu": "GPUs", "health": "node health",
        "meta": "monitoring itself", "node": "nodes", "nvlink": "NVLink",
        "slurm": "Slurm", "storage": "storage",
    }.items()
}  # fmt: skip


def cell(text: str) -> str:
    """A template of Prometheus as one Markdown cell: labels by their names."""
    text = re.sub(r"\{\{ if \$labels\.(\w+) \}\}(.*?)\{\{ end \}\}", r"\2", text)
    text = re.sub(r"\{\{ *\$labels\.(\w+) *\}\}", r"*\1*", text)
    text = re.sub(r"\{\{ *\$value *(\|[^}]*)?\}\}", "*value*", text)
    # Code shows asterisks as they are.
    text = re.sub(r"`[^`]*`", lambda code: re.sub(r"\*(\w+)\*", r"<\1>", code[0]), text)
    return " ".join(text.split()).replace("|", "\\|")


def reference(rule: dict[str, Any]) -> tuple[str, ...]:
    """What the alert is."""
    texts = rule["annotations"]
    return (f"`{rule['alert']}`", rule["labels"]["severity"], rule.get("for", "at once"),
            cell(texts["summary"]), cell(texts["source"]))  # fmt: skip


def guide(rule: dict[str, Any]) -> tuple[str, ...]:
    """What to do about it."""
    texts = rule["annotations"]
    return f"`{rule['alert']}`", *(cell(texts[name]) for name in ("summary", "look", "do"))


PAGES: dict[Path, tuple[tuple[str, ...], Callable[[dict[str, Any]], tuple[str, ...]]]] = {
    REFERENCE: (("alert", "severity", "waits", "means", "threshold from"), reference),
    GUIDE: (("alert", "means", "look", "do"), guide),
}


def table(path: Path) -> str:
    """A heading and a table for each file of rules, with the columns of this page."""
    head, row = PAGES[path]
    parts = []
    for file in sorted(RULES.glob("*.yml")):
        groups = yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]
        rules = [rule for group in groups for rule in group["rules"] if "alert" in rule]
        if rules:
            lines = [head, tuple("---" for _column in head), *map(row, rules)]
            parts.append(f"### {TITLES.get(file.stem, file.stem.capitalize())}\n")
            parts.extend("| " + " | ".join(line) + " |" for line in lines)
            parts.append("")
    return "\n".join(parts)


def with_table(path: Path, page: str) -> str:
    """The page with what is between its markers replaced; ValueError without markers."""
    before, begin, rest = page.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path.relative_to(ROOT)} lacks the line {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{table(path)}\n{END}{after}"


def main() -> int:
    """Rewrite the pages; returns the exit status."""
    for path in PAGES:
        page = with_table(path, path.read_text(encoding="utf-8"))
        path.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
