# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""storage_canary on folders that are called mounts, and on what hangs."""

from __future__ import annotations

import os
import time

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils import _limited
from ansible_collections.baremetal.dgx.plugins.module_utils._canary import FOLDER, token_text
from ansible_collections.baremetal.dgx.plugins.modules import storage_canary

pytestmark = pytest.mark.slow


@pytest.fixture
def canary(run_module, tmp_path, monkeypatch):
    """`canary(**options)`: the folder home is what the kernel is said to have mounted."""
    path = tmp_path / "home"
    path.mkdir()
    table = f"90 22 0:40 / {path} rw - ceph mon:/ rw\n"
    monkeypatch.setattr(storage_canary, "read", lambda _path: table)
    monkeypatch.setattr(storage_canary, "_SEEN_S", 0.2)
    monkeypatch.setattr(storage_canary, "_PAUSE_S", 0.05)

    def run(check=False, stage="write", word="run1", **mount):
        asked = {"name": "home", "path": str(path), "limit_s": 5, **mount}
        options = {"mounts": [asked], "node": "dgx-01", "stage": stage, "run": word}
        return run_module(storage_canary.main, options, check)

    run.path = path
    return run


def test_a_file_is_written_and_left_for_the_peers(canary):
    said = canary()
    assert (said["verdict"], said["changed"]) == ("pass", False)
    assert (canary.path / FOLDER / "dgx-01").read_text() == token_text("dgx-01", "run1")
    assert os.listdir(canary.path / FOLDER) == ["dgx-01"]


def test_check_mode_writes_nothing(canary):
    assert canary(check=True)["verdict"] == "pass"
    assert not list(canary.path.iterdir())


def test_what_is_not_mounted_is_never_written_to(canary, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    said = canary(path=str(other))
    assert said["failed"]
    assert "storage.mounted" in said["msg"]
    assert not list(other.iterdir())


def test_what_is_read_only_is_read(canary):
    assert canary(write=False)["verdict"] == "pass"
    assert not list(canary.path.iterdir())


def test_a_folder_in_the_way_is_a_finding(canary):
    (canary.path / FOLDER).write_text("a file")
    assert "storage.write" in canary()["msg"]


def test_another_node_may_make_the_folder_at_the_same_moment(canary, monkeypatch):
    make = os.mkdir

    def late(path, mode=0o777, **words):
        make(path, mode, **words)
        make(path, mode, **words)

    monkeypatch.setattr(os, "mkdir", late)
    assert canary()["verdict"] == "pass"


def test_peers_are_seen_or_missed(canary):
    folder = canary.path / FOLDER
    folder.mkdir()
    (folder / "dgx-02").write_text(token_text("dgx-02", "run1"))
    assert canary(stage="peers", peers=["dgx-02"])["verdict"] == "pass"
    said = canary(stage="peers", peers=["dgx-02", "dgx-03"])
    assert [one["status"] for one in said["records"]] == ["pass", "fail"]
    assert canary(stage="peers", peers=["dgx-02"], word="run2")["failed"]


def test_a_hang_ends_in_time_and_measures_nothing(canary, monkeypatch):
    monkeypatch.setattr(storage_canary, "write_token", lambda *_words: time.sleep(60))
    begun = time.monotonic()
    said = canary(limit_s=0.5)
    assert time.monotonic() - begun < 5
    assert said["failed"]
    assert said["verdict"] == "not_measured"
    assert "it hangs" in said["msg"]


def test_a_word_that_is_none_is_refused(canary):
    assert "write one word" in canary(word="two words")["msg"]


def test_a_child_that_dies_says_so_and_one_that_raises_says_why():
    died = _limited.limited(lambda: os.kill(os.getpid(), 9), 5)
    assert (died.how, died.said) == ("broken", "ended without a whole answer")
    raised = _limited.limited(lambda: 1 / 0, 5)
    assert "ZeroDivisionError" in raised.said
    large = _limited.limited(lambda: "x" * 300000, 5)
    assert large.value == "x" * 300000
