# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/gpu.md says what the tables say; UPDATE_DOCS=1 brings it up to date."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.models_data import MODELS
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.xid_table import (
    ACTIONS,
    CATALOGUE,
    XIDS,
)

DOCUMENT = ROOT / "docs" / "gpu.md"
FAULTS = ROOT / "virtual_pod" / "hardware" / "faults"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _column in head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def models() -> str:
    rows = (
        (
            name,
            *(
                "not known" if value is None else f"{value:,g} {unit}"
                for value, unit in zip(row[2:6], ("MHz", "MHz", "MB/s", "GT/s"), strict=True)
            ),
            row[-1],
        )
        for row in MODELS
        for name in [f"{row[0]}, {row[1]:,} MiB" if row[1] else row[0]]
    )
    return table(("model", "SM clock", "memory clock", "each NVLink", "PCIe", "source"), rows)


def ranges(codes: Iterable[int]) -> str:
    """Return "1, 3 to 5" of numbers."""
    runs: list[list[int]] = []
    for code in sorted(codes):
        if runs and code == runs[-1][-1] + 1:
            runs[-1].append(code)
        else:
            runs.append([code])
    parts = []
    for run in runs:
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(code) for code in run]
    return ", ".join(parts)


def xids() -> str:
    rows = []
    for action in reversed(ACTIONS):
        kinds: dict[tuple[str, str], list[int]] = {}
        for code, row in XIDS.items():
            if row.action == action:
                kinds.setdefault((row.meaning, row.source), []).append(code)
        for (meaning, source), codes in sorted(kinds.items(), key=lambda kind: kind[1]):
            why = "" if source == CATALOGUE else source
            rows.append((action, ranges(codes), meaning, why))
    head = ("action", "Xid", "meaning", f"source, where it is more than the {CATALOGUE}")
    return table(head, rows)


GENERATED = {"models": models, "xids": xids}


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_the_document_is_current(name: str) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    section = re.compile(
        rf"(<!-- BEGIN generated: {name} -->\n)(.*?)(<!-- END generated: {name} -->)", re.DOTALL
    )
    wanted, count = section.subn(lambda old: f"{old[1]}{GENERATED[name]()}\n{old[3]}", text)
    assert count == 1
    if os.environ.get("UPDATE_DOCS"):
        DOCUMENT.write_text(wanted, encoding="utf-8")
        return
    assert text == wanted, f"UPDATE_DOCS=1 pytest {Path(__file__).name}"


def test_ranges() -> None:
    assert ranges([5, 1, 4, 3, 9, 10]) == "1, 3 to 5, 9, 10"


def test_every_fault_that_health_finds_is_in_the_document() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for path in FAULTS.glob("*.state"):
        if "Found: gpu." in path.read_text():
            assert f"`{path.stem}`" in text, path.stem
