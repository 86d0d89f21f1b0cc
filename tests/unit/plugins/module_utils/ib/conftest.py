# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tree generator by name, and the folder of real outputs where there is one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

ROOT = Path(__file__).resolve().parents[5]


@pytest.fixture
def capture():
    """`capture("mlxlink/x.json")` → its path; skips where the captures are not at hand."""

    def find(name: str) -> Path:
        path = Path(os.environ.get("CAPTURES", ROOT.parent / "shared" / "captures")) / name
        if not path.exists():
            pytest.skip(f"no capture {name}")
        return path

    return find
