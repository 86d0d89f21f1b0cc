# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""StateSaveLocation is copied as it is at one moment, while slurmctld writes it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._backup import state
from ansible_collections.baremetal.dgx.plugins.module_utils._backup.settings import Settings
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ToolError

from .conftest import job_state


def test_what_is_copied(settings: Settings, tmp_path: Path) -> None:
    source = Path(settings.state_dir)
    (source / "heartbeat").write_text("1")
    (source / "job_state.new").write_text("half")
    (source / "link").symlink_to("/etc/passwd")
    target = tmp_path / "copy"
    state.copy(settings.state_dir, str(target), 1)
    found = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert found == {"job_state", "node_state", "hash.1/job.11/script"}
    assert state.release(str(target)) == "24.11"
    assert state.next_job(str(target)) == 11


def test_files_of_two_moments_are_never_together(settings: Settings, tmp_path: Path) -> None:
    """As slurmctld does: two files with one generation, each renamed into its place."""
    source, stop = Path(settings.state_dir), threading.Event()

    def write() -> None:
        number = 100
        while not stop.wait(0.3):
            number += 1
            for name in ("job_state", "node_state"):
                (source / f"{name}.new").write_bytes(job_state(number))
                os.rename(source / f"{name}.new", source / name)
                stop.wait(0.02)

    for name in ("job_state", "node_state"):
        (source / name).write_bytes(job_state(100))
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for turn in range(12):
            target = tmp_path / f"copy-{turn}"
            state.copy(str(source), str(target), 20)
            # Between the two renames both are of one moment as well, of one in slurmctld's order.
            numbers = [state.next_job_of((target / n).read_bytes()) for n in
                       ("job_state", "node_state")]  # fmt: skip
            assert numbers[0] - numbers[1] in (0, 1)
    finally:
        stop.set()
        writer.join()


def test_a_copy_of_scripts_takes_longer_than_the_state_rests(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With some thousand jobs. One ends meanwhile, and takes its script with it."""
    source, stop, real = Path(settings.state_dir), threading.Event(), state.copy_file
    ended = source / "hash.1" / "job.12" / "script"
    ended.parent.mkdir()
    ended.write_text("#!/bin/sh\n")

    def write() -> None:
        number = 100
        while not stop.wait(0.3):
            number += 1
            (source / "job_state.new").write_bytes(job_state(number))
            os.rename(source / "job_state.new", source / "job_state")

    def slow(path: str, into: str, mode: int) -> None:
        if path.endswith("/script"):
            ended.unlink(missing_ok=True)
            stop.wait(1)
        real(path, into, mode)

    monkeypatch.setattr(state, "copy_file", slow)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        state.copy(str(source), str(tmp_path / "copy"), 3)
    finally:
        stop.set()
        writer.join()
    found = [str(path.relative_to(tmp_path)) for path in (tmp_path / "copy").rglob("script")]
    assert found == ["copy/hash.1/job.11/script"]


def test_a_state_that_never_rests(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = state._copy

    def copy(source: str, target: str, names: object) -> None:
        real(source, target, names)  # type: ignore[arg-type]
        Path(source, "job_state").write_bytes(os.urandom(8) + b"x" * len(os.listdir(target)))
        os.utime(Path(source, "job_state"), ns=(0, int.from_bytes(os.urandom(6), "big")))

    monkeypatch.setattr(state, "_copy", copy)
    monkeypatch.setattr(state, "_PAUSE_S", 0.05)
    with pytest.raises(ToolError, match="changed all the time"):
        state.copy(settings.state_dir, str(tmp_path / "copy"), 0.3)


@pytest.mark.parametrize("data", [b"", b"\0" * 40, job_state(7)[:30]])
def test_a_beginning_that_says_nothing(data: bytes) -> None:
    assert state.next_job_of(data) == 0
