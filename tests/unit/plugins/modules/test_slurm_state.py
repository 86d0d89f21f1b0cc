# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""State that a release cannot take over is refused; none, or one that says nothing, is not."""

from __future__ import annotations

import struct

import pytest

from ansible_collections.baremetal.dgx.plugins.modules import slurm_state

TEXT = b"PROTOCOL_VERSION\0"


@pytest.fixture
def ask(tmp_path, run_module):
    """`ask(version)` runs the module over the files that the test has written."""

    def run(version: str):
        return run_module(slurm_state.main, {"path": str(tmp_path), "version": version})

    return run


def write(folder, name: str, number: int) -> None:
    data = struct.pack("!I", len(TEXT)) + TEXT + struct.pack("!H", number)
    (folder / name).write_bytes(data)


def test_unsupported_jump(ask, tmp_path):
    write(tmp_path, "job_state", 9728)
    said = ask("24.11")
    assert said["failed"]
    assert said["release"] == "22.05"
    assert "is of Slurm 22.05: Slurm 24.11 takes over only from" in said["msg"]
    assert "\n" not in said["msg"]


def test_supported_jump(ask, tmp_path):
    write(tmp_path, "job_state", 10752)
    said = ask("26.05")
    assert not said.get("failed")
    assert said["release"] == "24.11"


def test_another_file_tells_where_the_first_does_not(ask, tmp_path):
    (tmp_path / "job_state").write_bytes(b"")
    write(tmp_path, "node_state", 9728)
    assert ask("26.05")["failed"]


def test_no_state_is_no_obstacle(ask):
    said = ask("26.05")
    assert not said.get("failed")
    assert (said["release"], said["file"]) == ("", "")
