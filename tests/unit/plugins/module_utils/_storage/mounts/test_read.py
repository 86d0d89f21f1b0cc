# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a mount would hide: all but folders that systemd-tmpfiles makes there at each boot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._storage.mounts import read


@pytest.fixture(name="raid")
def made_by_tmpfiles(tmp_path: Path) -> Path:
    """The folders of local_storage_folders without their volume."""
    (tmp_path / "raid/scratch").mkdir(parents=True)
    (tmp_path / "raid/cache/enroot/data").mkdir(parents=True)
    return tmp_path / "raid"


def test_empty_folders_are_not_hidden(raid: Path) -> None:
    assert read.hides(str(raid)) == 0
    assert read.hides(str(raid / "gone")) == 0


def test_what_jobs_left_is_hidden(raid: Path) -> None:
    (raid / "scratch/job-7/deep").mkdir(parents=True)
    assert read.hides(str(raid)) == 0
    (raid / "scratch/job-7/deep/model").write_text("")
    (raid / "cache/enroot/link").symlink_to("/gone")
    os.mkfifo(raid / "pipe")
    assert read.hides(str(raid)) == 3


def test_a_link_to_an_empty_folder_is_not_followed(raid: Path) -> None:
    (raid / "scratch/link").symlink_to(raid / "cache")
    assert read.hides(str(raid)) == 1


def test_a_folder_that_cannot_be_opened_may_hide_anything(raid: Path) -> None:
    """As with EACCES, but for the reason: the superuser of this test may open every folder."""
    assert read.hides(str(raid / ("d" * 300))) == 1
    (raid / "file").write_text("")
    assert read.hides(str(raid / "file/below")) == 0


def test_what_is_not_looked_into_counts(raid: Path) -> None:
    """A user may have made folders in folders without an end."""
    deep = raid / "scratch"
    for _turn in range(read._MOST_FOLDERS + 10):
        deep = deep / "d"
        deep.mkdir()
    assert read.hides(str(raid)) == 1
