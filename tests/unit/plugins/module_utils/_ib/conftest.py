# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tree generator by name, and the folder of real outputs where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def capture(captures: Path):
    """`capture("mlxlink/x.json")` → its path below $CAPTURES."""

    def find(name: str) -> Path:
        return captures / name

    return find
