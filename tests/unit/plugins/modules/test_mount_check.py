# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""mount_check on folders that are called mounts, and on what hangs."""

from __future__ import annotations

import os
import time

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._storage import ask_mounts
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.canary import (
    FOLDER,
    token_text,
)
from ansible_collections.baremetal.dgx.plugins.modules import mount_check

pytestmark = pytest.mark.slow


@pytest.fixture
def canary_at(run_module, monkeypatch):
    """`canary_at(path)(**options)`: the folder is what the kernel seems to have mounted."""
    monkeypatch.setattr(ask_mounts, "_SEEN_S", 0.2)
    monkeypatch.setattr(ask_mounts, "_PAUSE_S", 0.05)

    def at(path):
        table = f"90 22 0:40 / {path} rw - ceph mon:/ rw\n"
        monkeypatch.setattr(ask_mounts, "read", lambda _path: table)

        def run(check=False, stage="write", word="run1", **mount):
            asked = {"name": "home", "path": str(path), "limit_s": 5, **mount}
            options = {"mounts": [asked], "node": "dgx-01", "stage": stage, "run": word}
            return run_module(mount_check.main, options, check)

        run.path = path
        return run

    return at


@pytest.fixture
def canary(canary_at, tmp_path):
    """`canary(**options)` on a folder called home."""
    path = tmp_path / "home"
    path.mkdir()
    return canary_at(path)


def test_a_file_is_written_and_left_for_the_peers(canary):
    result = canary()
    assert (result["verdict"], result["changed"]) == ("pass", False)
    assert (canary.path / FOLDER / "dgx-01").read_text() == token_text("dgx-01", "run1")
    assert os.listdir(canary.path / FOLDER) == ["dgx-01"]


def test_check_mode_writes_nothing(canary):
    assert canary(check=True)["verdict"] == "pass"
    assert not list(canary.path.iterdir())


def test_what_is_not_mounted_is_never_written_to(canary, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    result = canary(path=str(other))
    assert result["failed"]
    assert "storage.mounted" in result["msg"]
    assert not list(other.iterdir())


def test_what_comes_from_elsewhere_is_never_written_to(canary):
    """A mount of the same type, in the place of the declared one."""
    asked = {"fstype": "ceph", "what": "node@f.cephfs=/home"}
    result = canary(**asked)
    assert result["failed"]
    assert "storage.mounted" in result["msg"]
    assert not list(canary.path.iterdir())
    assert canary(**{**asked, "what": "node@f.cephfs=/"})["verdict"] == "pass"


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
    folder.mkdir(0o700)
    (folder / "dgx-02").write_text(token_text("dgx-02", "run1"))
    assert canary(stage="peers", peers=["dgx-02"])["verdict"] == "pass"
    result = canary(stage="peers", peers=["dgx-02", "dgx-03"])
    assert [one["status"] for one in result["records"]] == ["pass", "fail"]
    assert canary(stage="peers", peers=["dgx-02"], word="run2")["failed"]


def test_a_hang_ends_in_time_and_measures_nothing(canary, monkeypatch):
    monkeypatch.setattr(ask_mounts, "write_token", lambda *_words: time.sleep(60))
    begun = time.monotonic()
    result = canary(limit_s=0.5)
    assert time.monotonic() - begun < 15
    assert result["failed"]
    assert result["verdict"] == "not_measured"
    assert "it hangs" in result["msg"]


def test_a_word_that_is_none_is_refused(canary):
    assert "write one word" in canary(word="two words")["msg"]


# Users were on the mount before the first canary. Each is tried with real users.
MALLORY = 65532


@pytest.fixture
def attacked(canary_at, open_place):
    """A canary on a mount that all may write into; `victim` is a file of root's alone."""
    home = open_place / "home"
    home.mkdir()
    home.chmod(0o777)
    run = canary_at(home)
    run.victim = open_place / "victim"
    run.victim.write_text("root's own file")
    run.victim.chmod(0o600)
    return run


def assert_nothing_was_done(message, victim, text):
    assert message["failed"]
    assert message["verdict"] == "not_measured"
    assert text in message["msg"]
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("root's own file", 0o600)


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o777])
@pytest.mark.parametrize("name", ["dgx-01", "dgx-01.new"])
def test_a_link_in_a_users_folder_is_not_written_through(attacked, as_user, mode, name):
    folder = attacked.path / FOLDER

    def attack():
        os.mkdir(folder)
        os.symlink(attacked.victim, folder / name)
        os.chmod(folder, mode)

    as_user(MALLORY, attack)
    result = attacked()
    assert_nothing_was_done(result, attacked.victim, f"{folder}: belongs to user {MALLORY}")


def test_a_folder_that_is_a_link_is_not_followed(attacked, as_user, open_place):
    (open_place / "roots").mkdir(0o700)
    as_user(MALLORY, lambda: os.symlink(open_place / "roots", attacked.path / FOLDER))
    assert_nothing_was_done(attacked(), attacked.victim, f"{FOLDER}: is a link of user {MALLORY}")
    assert not list((open_place / "roots").iterdir())


def test_a_folder_of_root_that_others_may_enter_is_refused(attacked):
    (attacked.path / FOLDER).mkdir(0o755)
    assert_nothing_was_done(attacked(), attacked.victim, "has mode 0755")


@pytest.mark.parametrize("target", ["/dev/zero", "victim"])
def test_a_peer_is_not_read_through_a_link(attacked, as_user, target):
    folder = attacked.path / FOLDER
    path = attacked.victim if target == "victim" else target

    def attack():
        os.mkdir(folder)
        os.symlink(path, folder / "dgx-02")

    as_user(MALLORY, attack)
    result = attacked(stage="peers", peers=["dgx-02"])
    assert_nothing_was_done(result, attacked.victim, f"belongs to user {MALLORY}")
    # The folder is root's now, and the link was left in it.
    os.chown(folder, 0, 0)
    folder.chmod(0o700)
    result = attacked(stage="peers", peers=["dgx-02"])
    assert_nothing_was_done(result, attacked.victim, "dgx-02: is a link")


def test_a_peer_that_is_endless_or_no_file_measures_nothing(attacked, as_user):
    assert as_user
    folder = attacked.path / FOLDER
    folder.mkdir(0o700)
    (folder / "dgx-02").write_bytes(b"x" * (1 << 17))
    os.mkfifo(folder / "dgx-03")
    result = attacked(stage="peers", peers=["dgx-02", "dgx-03"])
    assert [one["status"] for one in result["records"]] == ["not_measured"] * 2
    assert "dgx-03: is not a regular file" in result["msg"]
