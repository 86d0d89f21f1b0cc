# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds promtool and its like for tests: PROMTOOLS names their folder, otherwise .ci/promtool."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "roles/prometheus/files/rules"


@functools.cache
def _folder() -> tuple[str, str]:
    if os.environ.get("PROMTOOLS"):
        return os.environ["PROMTOOLS"], ""
    program = ROOT / ".ci/promtool"
    if not program.exists():  # the artefact, and ansible-test's copy
        return "", "no .ci here"
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    return done.stdout.strip(), done.stderr.strip()


def tool(name: str) -> str:
    """Return the path of promtool, amtool, prometheus or prometheus-alertmanager, or skip."""
    folder, why = _folder()
    if not folder:
        pytest.skip(f"no {name}: {why}")
    return str(Path(folder) / name)
