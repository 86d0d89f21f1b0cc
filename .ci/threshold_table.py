#!/usr/bin/env python
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes docs/thresholds.md from the thresholds.py of each package."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / ".cache" / "collections"))

from ansible_collections.baremetal.dgx.plugins.module_utils._core.question import (  # noqa: E402
    Question,
)

NAME = "ansible_collections.baremetal.dgx.plugins"
PAGE = ROOT / "docs/thresholds.md"
# In the order of a validation.
TITLES = {
    "_host": "Processors and memory: cpu_memory_check",
    "_driver": "Driver: nvidia_driver_plan",
    "_gpu": "GPUs: gpu_health",
    "_ib": "Rails: ib_health, rail_addresses",
    "_storage": "Mounts and disks: mount_check, nvme_health, fio_check",
    "_node_health": "The rest of a node: node_health",
    "_burn": "Burn-in: gpu_burn",
    "_nccl": "All-reduce: nccl_all_reduce, nccl_groups",
    "_fabric": "Cables and switches: fabric_verify",
    "_pairs": "Pairs of adapters: fabric_pairs",
    "_bmc": "Machines as their BMCs see them: bmc_info",
    "_backup": "Copies of Slurm: prove_backup",
    "_operations": "Outliers: the report",
    "_trends": "Links that will fail, apart from failures: the report",
}
HEAD = """\
# Thresholds

The threshold of every check, and where it comes from. A value passes if `measured op value` holds.

A value of … comes from what `source` names: the profile, the inventory or the device. Words in
*italics*, and in braces in the name of a check, are filled in for each record.
[inventory.md](inventory.md) lists what a site may set, [records.md](records.md) defines a record.
`.ci/threshold_table.py` writes this page from the tables in `plugins/*/_*/thresholds.py`.
"""


def questions_in(table: Any) -> Iterator[Question]:
    """Yield a question, or those that a mapping holds."""
    if isinstance(table, Question):
        yield table
    elif isinstance(table, Mapping):
        for value in table.values():
            yield from questions_in(value)


def packages() -> dict[str, list[Question]]:
    """Return the questions of each package that has a thresholds.py, in their order."""
    found: dict[str, list[Question]] = {}
    for path in sorted((ROOT / "plugins").glob("*/_*/thresholds.py")):
        parts = path.relative_to(ROOT / "plugins").with_suffix("").parts
        module = importlib.import_module(".".join((NAME, *parts)))
        found[parts[1]] = [each for table in vars(module).values() for each in questions_in(table)]
    return found


def cell(text: str) -> str:
    """Return a text as one Markdown cell, with its {fields} in italics."""
    text = re.sub(r"\{(\w+)(:[^}]*)?\}", r"*\1*", text)
    return text.replace("|", "\\|")


def value_of(question: Question) -> str:
    """Return the value as a reader expects it: no `True`, groups of three digits."""
    value = question.value
    if value is None:
        return "…"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(questions: Iterable[Question]) -> str:
    """Return a table with a row for each question."""
    head = ("check", "what", "op", "value", "unit", "source", "what to do")
    rows = [head, tuple("---" for _column in head)]
    for one in questions:
        texts = (one.what, f"`{one.op}`", value_of(one), one.unit, one.source, one.remedy)
        rows.append((f"`{one.check}`", *map(cell, texts)))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def page() -> str:
    """Return the page; KeyError for a package without a title."""
    found = packages()
    order = sorted(found, key=list(TITLES).index)
    return "\n".join([HEAD, *(f"## {TITLES[name]}\n\n{table(found[name])}" for name in order)])


def main() -> int:
    """Write the page; returns the exit status."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
