# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The name of a run: kept over a kill, never shared by two that run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._operations.run_owner import (
    Process,
    process,
    runs,
    take_owners,
)


def test_a_killed_run_comes_back_under_its_name_and_two_at_once_have_two(tmp_path: Path) -> None:
    path, running = str(tmp_path / "runs" / "ctl.json"), {10, 20}

    def take(pid: int) -> str:
        return take_owners(
            path, "ctl.example.org", Process(pid, "1"), lambda it: it.pid in running
        )[0]

    first = take(10)
    assert first.startswith("ctl-")
    assert take(10) == first
    second = take(20)
    assert second != first
    running.remove(10)
    assert take(30) == first
    running |= {30}
    assert take(20) == second
    assert take(40) not in (first, second)


def test_a_number_that_is_used_again_is_another_process() -> None:
    here = process(os.getpid())
    assert here.started
    assert runs(here)
    assert not runs(Process(here.pid, "1"))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        kept = process(child.pid)
        assert runs(kept)
        child.kill()
    assert not runs(kept)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ctl.json"
    path.write_text("{")
    with pytest.raises(ValueError, match=r"ctl\.json"):
        take_owners(str(path), "ctl", Process(1, "1"), runs)


def test_of_several_that_are_gone_all_are_taken_over(tmp_path: Path) -> None:
    """One of them was killed, and which one is not known."""
    path, running = str(tmp_path / "runs" / "ctl.json"), {10, 20}

    def take(pid: int) -> list[str]:
        return take_owners(path, "ctl", Process(pid, "1"), lambda it: it.pid in running)

    (first,), (second,) = take(10), take(20)
    running.clear()
    running.add(30)
    assert take(30) == take(30) == [first, second]
    running.add(40)
    (other,) = take(40)
    assert other not in (first, second)
    # Whose process still runs keeps what it has taken over.
    running.remove(40)
    assert take(50) == [other]
