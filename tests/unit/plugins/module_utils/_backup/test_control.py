# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control machine's folder comes back: each file whole, and none over what is there."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._backup import control, restore
from ansible_collections.baremetal.dgx.plugins.module_utils._backup.settings import Settings
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    CommandResult,
    ToolError,
    run,
)


@pytest.fixture(name="archive")
def packed(tmp_path: Path) -> str:
    """An archive of a folder that was copied while half of it was restored."""
    source = tmp_path / "copied"
    for name in ("secrets/key", "secrets/word", "evidence/runs/1", ".restoring/secrets/key"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(f"copied {name}")
    (source / "secrets").chmod(0o700)
    (source / "secrets/key").chmod(0o600)
    (source / "newest").symlink_to("evidence/runs")
    archive = tmp_path / "control.tar.gz"
    subprocess.run(["tar", "-czf", archive, "-C", source, "."], check=True)
    return str(archive)


def unpack(archive: str, folder: Path, check: bool = False) -> bool:
    return bool(control.unpack(run, archive, str(folder), check)["changed"])


def test_what_is_missing_comes_back(archive: str, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    (folder / "secrets").mkdir(parents=True)
    (folder / "secrets/word").write_text("mine")
    assert unpack(archive, folder, check=True)
    assert os.listdir(folder) == ["secrets"]
    assert unpack(archive, folder)
    assert sorted(os.listdir(folder)) == ["evidence", "newest", "secrets"]
    assert (folder / "secrets/word").read_text() == "mine"
    assert (folder / "secrets/key").read_text() == "copied secrets/key"
    assert (folder / "secrets/key").stat().st_mode & 0o777 == 0o600
    assert os.readlink(folder / "newest") == "evidence/runs"
    assert not unpack(archive, folder)


def test_a_folder_that_was_not_there_is_as_open_as_it_was(archive: str, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    unpack(archive, folder)
    assert (folder / "secrets").stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("as_user")
def test_a_folder_that_was_not_there_belongs_to_whom_its_files_belong(tmp_path: Path) -> None:
    source, folder, archive = tmp_path / "copied", tmp_path / "state", tmp_path / "control.tar.gz"
    for made in (source / "secrets", source / "evidence/runs", folder / "evidence"):
        made.mkdir(parents=True)
    for path in (source / "secrets", source / "evidence", source / "evidence/runs"):
        os.chown(path, 1234, 1235)
    (source / "secrets/key").touch()
    os.chown(source / "secrets/key", 1234, 1235)
    subprocess.run(["tar", "-czf", archive, "-C", source, "."], check=True)
    assert unpack(str(archive), folder)
    found = {name: (folder / name).stat() for name in ("secrets", "secrets/key", "evidence/runs")}
    assert {(one.st_uid, one.st_gid) for one in found.values()} == {(1234, 1235)}
    # It was there.
    assert (folder / "evidence").stat().st_uid == 0


def test_a_part_on_another_disk_comes_back(
    archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.rename

    def rename(old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if src_dir_fd != dst_dir_fd:
            raise OSError(errno.EXDEV, "another disk")
        real(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    # Folder.write and Folder.link name one folder twice, files.rename two.
    monkeypatch.setattr(os, "rename", rename)
    folder = tmp_path / "state"
    folder.mkdir()
    assert unpack(archive, folder)
    assert sorted(os.listdir(folder)) == ["evidence", "newest", "secrets"]
    assert sorted(os.listdir(folder / "secrets")) == ["key", "word"]
    assert (folder / "secrets/key").read_text() == "copied secrets/key"
    assert (folder / "secrets/key").stat().st_mode & 0o777 == 0o600
    assert os.readlink(folder / "newest") == "evidence/runs"


def test_what_was_interrupted_shows_and_is_done_again(archive: str, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()

    def torn(argv: Sequence[str], *words: Any, **named: Any) -> CommandResult:
        run([*argv, "./secrets"], *words, **named)
        (folder / ".restoring/secrets/key").write_text("cop")
        return CommandResult(tuple(argv), ENDED, 2, "", "tar: Unexpected EOF in archive")

    with pytest.raises(ToolError, match=r"control\.tar\.gz: .*Unexpected EOF in archive"):
        control.unpack(torn, archive, str(folder), False)
    assert os.listdir(folder) == [".restoring"]
    assert unpack(archive, folder)
    assert (folder / "secrets/key").read_text() == "copied secrets/key"
    assert not (folder / ".restoring").exists()


@pytest.mark.slow
def test_a_folder_that_was_never_copied_is_no_error(settings: Settings) -> None:
    never = float(1 << 36)
    seen = restore.look(settings, run, "control", never, False)
    assert seen == {"there": False, "done": False, "begun": False}
    with pytest.raises(restore.NoCopyError, match="has no copy of the controller"):
        restore.look(settings, run, "controller", never, False)
