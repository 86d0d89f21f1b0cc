# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils import _kernel_log
from ansible_collections.baremetal.dgx.plugins.module_utils._kernel_log import (
    KernelLog,
    read_log,
    read_ring,
    ring_gap,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)

FIRST = "6,0,0,-;Linux version 6.8.0\n"
LATER = "6,412,90000,-;something\n"


@pytest.mark.parametrize(
    ("record", "said"),
    [(FIRST, ""), (LATER, "first 412 messages"), ("", "is empty"), ("nonsense", "is empty")],
)
def test_whether_the_beginning_is_there(record: str, said: str) -> None:
    gap = ring_gap(record)
    assert said in gap
    assert bool(said) == bool(gap)


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LATER)
    assert read_log(str(tmp_path / "log"), never, 1) == KernelLog(LATER)
    assert "No such file" in read_log(str(tmp_path / "none"), never, 1).gap


def test_a_ring_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in read_ring(str(tmp_path / "kmsg")).gap
    (tmp_path / "kmsg").write_text(FIRST + LATER)
    assert read_ring(str(tmp_path / "kmsg")) == KernelLog(FIRST + LATER)


def never(argv, timeout_s=0, env=None):
    raise AssertionError(argv)


def answer(outcome: str, rc: int = 0, out: str = "", err: str = ""):
    return lambda argv, timeout_s=0, env=None: CommandResult(tuple(argv), outcome, rc, out, err, 1)


@pytest.mark.parametrize(
    ("run", "text", "said"),
    [
        (answer(ENDED, 0, "[    0.1] Linux\n"), "[    0.1] Linux\n", ""),
        (answer(ENDED, 0, ""), LATER, "first 412 messages"),
        (answer(ENDED, 1, "", "No journal files were found."), LATER, "No journal files"),
        (answer(MISSING), LATER, "journalctl is not installed"),
        (answer(TIMED_OUT), LATER, "did not end"),
    ],
)
def test_where_the_ring_has_a_gap_the_journal_is_asked(monkeypatch, run, text, said) -> None:
    monkeypatch.setattr(_kernel_log, "read_ring", lambda: KernelLog(LATER, ring_gap(LATER)))
    found = read_log("", run, 1)
    assert found.text == text
    assert said in found.gap
    assert bool(said) == bool(found.gap)


def test_a_whole_ring_is_enough(monkeypatch) -> None:
    monkeypatch.setattr(_kernel_log, "read_ring", lambda: KernelLog(FIRST))
    assert read_log("", never, 1) == KernelLog(FIRST)
