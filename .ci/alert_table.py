#!/usr/bin/env python
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the table of alerts in docs/monitoring.md from the rules."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "roles/prometheus/files/rules"
PAGE = ROOT / "docs/monitoring.md"
BEGIN, END = "<!-- BEGIN generated: alerts -->", "<!-- END generated: alerts -->"


def cell(text: str) -> str:
    """A template of Prometheus as one Markdown cell: labels by their names."""
    text = re.sub(r"\{\{ if \$labels\.(\w+) \}\}(.*?)\{\{ end \}\}", r"\2", text)
    text = re.sub(r"\{\{ *\$labels\.(\w+) *\}\}", r"*\1*", text)
    text = re.sub(r"\{\{ *\$value *(\|[^}]*)?\}\}", "*value*", text)
    return " ".join(text.split()).replace("|", "\\|")


def rows(rule: dict[str, Any]) -> str:
    """One row of the table."""
    waits = rule.get("for", "at once")
    told = rule["annotations"]
    cells = (f"`{rule['alert']}`", rule["labels"]["severity"], waits, cell(told["summary"]),
             cell(told["do"]), cell(told["source"]))  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def table() -> str:
    """A heading and a table for each file of rules."""
    parts = []
    for path in sorted(RULES.glob("*.yml")):
        groups = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
        rules = [rule for group in groups for rule in group["rules"] if "alert" in rule]
        if rules:
            parts.append(f"### {path.stem}\n")
            parts.append("| alert | severity | waits | says | what to do | threshold from |")
            parts.append("| --- | --- | --- | --- | --- | --- |")
            parts.extend(rows(rule) for rule in rules)
            parts.append("")
    return "\n".join(parts)


def with_table(page: str) -> str:
    """The page with what stands between its markers replaced; ValueError without markers."""
    before, begin, rest = page.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"docs/monitoring.md lacks the line {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{table()}\n{END}{after}"


def main() -> int:
    """Rewrite the page; returns the exit status."""
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
