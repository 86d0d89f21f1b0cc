# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The chain from evidence to report, killed at random moments: nothing torn or lost, it goes on."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parent)]

import chain  # noqa: E402

from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.batch import (  # noqa: E402
    Problems,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.store import (  # noqa: E402
    Store,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import (  # noqa: E402
    read_reason,
)

SEEDS = 20
KILLS = 1


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(Path(chain.__file__)), str(folder)], stdout=subprocess.PIPE, text=True
    )


def killed(folder: Path, after_s: float) -> list[str]:
    """Start the chain, and kill it so long after its first word; returns its output."""
    process = start(folder)
    assert process.stdout is not None
    messages = [process.stdout.readline()]
    time.sleep(after_s)
    process.kill()
    messages += process.communicate()[0].splitlines()
    # A last line without an end does not count.
    return [line.strip() for line in messages if line.strip()]


def check(folder: Path, messages: list[str]) -> None:
    """Everything that was acknowledged is there, and nothing that is there is torn."""
    store, problems = Store(str(folder / "evidence")), Problems()
    kept: dict[tuple[str, str], int] = {}
    for run in store.names():
        for batch, record in store.read(run, problems):
            if record is not None:
                key = (run, str(batch.head["scope"]))
                kept[key] = kept.get(key, 0) + 1
    for line in messages:
        words = line.split()
        if words[0] == "kept" and len(words) == 3 and words[2] in chain.NODES:
            assert kept.get((words[1], words[2])) == chain.RECORDS, (line, problems.lines)
    assert all(count == chain.RECORDS for count in kept.values()), kept
    for path in (folder / "nodes").glob("*.json"):
        assert len(json.loads(path.read_text())["records"]) == chain.RECORDS
    if (folder / "slurm.json").exists():
        for name, state in json.loads((folder / "slurm.json").read_text()).items():
            drained = "DRAIN" in state["flags"]
            assert drained == (read_reason(name, state["reason"]) is not None)
            assert not drained or name == chain.BAD
    report = folder / "report"
    if (report / "report.json").exists():
        assert json.loads((report / "report.json").read_text())["verdict"]
    if (report / "report.html").exists():
        assert (report / "report.html").read_text().rstrip().endswith("</html>")
    if (report / "junit.xml").exists():
        ET.parse(report / "junit.xml")


@pytest.fixture(scope="module")
def lasts_s(tmp_path_factory: pytest.TempPathFactory) -> float:
    """How long the chain takes after its first word."""
    process = start(tmp_path_factory.mktemp("whole"))
    assert process.stdout is not None
    process.stdout.readline()
    begun = time.monotonic()
    assert process.communicate()[0].splitlines()[-1] == "reported False fail"
    return time.monotonic() - begun


@pytest.mark.parametrize("seed", range(SEEDS))
def test_killed_at_random_moments(tmp_path: Path, lasts_s: float, seed: int) -> None:
    dice, message = random.Random(seed), []
    for _kill in range(KILLS):
        message += killed(tmp_path, dice.uniform(0, lasts_s))
        check(tmp_path, message)
    process = start(tmp_path)
    last = process.communicate()[0].splitlines()
    assert process.returncode == 0
    assert last[-1] == "reported False fail"
    check(tmp_path, message + last)
    state = json.loads((tmp_path / "slurm.json").read_text())
    assert [name for name, one in state.items() if one["flags"]] == [chain.BAD]
