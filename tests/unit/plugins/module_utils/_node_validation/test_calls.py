# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A burn-in that the program of a node waits for, while Slurm keeps jobs away."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._burn.control import (
    is_running,
    settings_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.state import State, load, save
from ansible_collections.baremetal.dgx.plugins.module_utils._core import lock
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import run
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation import calls
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.calls import completed

# Holds the lock of a burn-in until it is ended, or for so many seconds.
BURN = """
import fcntl, sys, time
with open(sys.argv[1] + "/lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("burns", flush=True)
    time.sleep(float(sys.argv[2]))
"""
LOST = "it is IDLE, and nothing holds it any more"
Begin = Callable[[float], "dict[str, Any]"]


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Begin a burn-in of so many seconds; return the options that wait for its end."""
    (tmp_path / "locks").mkdir(mode=0o700)
    monkeypatch.setattr(lock, "_folder", lambda: str(tmp_path / "locks"))
    monkeypatch.setattr(calls, "_LOOK_S", 0.2)
    folder, made = tmp_path / "burn", list[subprocess.Popen[str]]()
    folder.mkdir()

    def begin(seconds: float) -> dict[str, Any]:
        options = completed("gpu_burn", {"node": "dgx-01", "folder": str(folder)})
        argv = [sys.executable, "-c", BURN, str(folder), str(seconds)]
        made.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        assert made[0].stdout is not None
        assert made[0].stdout.readline() == "burns\n"
        save(str(folder), State(settings_of(options), pid=made[0].pid))
        return options

    yield begin
    for process in made:
        process.kill()
        process.communicate()


def test_a_hold_that_goes_stops_the_burn_in(begun: Begin) -> None:
    """Else a job would start beside it."""
    options, says = begun(60), iter(["", "", LOST])
    answer = calls.call(run, "gpu_burn", options, lambda: next(says))
    assert answer == {"skipped": True, "why": LOST}
    assert not is_running(options["folder"])
    kept = load(options["folder"])
    assert kept is not None
    assert kept.state == "running", "it can be resumed"


def test_a_hold_that_lasts_lets_it_end(begun: Begin) -> None:
    options, asked = begun(1.0), list[float]()
    answer = calls.call(run, "gpu_burn", options, lambda: asked.append(time.monotonic()) or "")
    assert answer["run"]["state"] == "running"
    assert not is_running(options["folder"])
    assert asked, "Slurm was asked meanwhile"


def test_what_is_over_when_the_hold_goes_counts(begun: Begin) -> None:
    answer = calls.call(run, "gpu_burn", begun(0.1), lambda: LOST)
    assert "records" in answer
