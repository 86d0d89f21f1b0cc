# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes `ansible_collections.baremetal.dgx` importable from a checkout at any path."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def collections_path() -> Path:
    """The folder above `ansible_collections`; a checkout elsewhere is linked into .cache."""
    if ROOT.parts[-3:] == ("ansible_collections", "baremetal", "dgx"):
        return ROOT.parents[2]
    collections = ROOT / ".cache" / "collections"
    link = collections / "ansible_collections" / "baremetal" / "dgx"
    if not (link.exists() and link.resolve() == ROOT):
        link.parent.mkdir(parents=True, exist_ok=True)
        fresh = link.with_name(f".dgx.{os.getpid()}")
        fresh.symlink_to(os.path.relpath(ROOT, link.parent))
        fresh.replace(link)
    return collections


sys.path.insert(0, str(collections_path()))


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def fixture_text() -> Callable[[str], str]:
    """Read a text below tests/unit/fixtures: `fixture_text("slurm/sinfo.txt")`."""

    def read(name: str) -> str:
        return (ROOT / "tests" / "unit" / "fixtures" / name).read_text(encoding="utf-8")

    return read
