# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core import lock as _lock

HOLD = """\
import sys, time
sys.path[:0] = {path!r}
from ansible_collections.baremetal.dgx.plugins.module_utils._core import lock as _lock
_lock._folder = lambda: {folder!r}
with _lock.host_lock("x", 0):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(_lock, "_folder", lambda: str(tmp_path))
    return str(tmp_path)


@pytest.fixture
def holder(folder):
    """Another process that holds the lock `x`."""
    program = HOLD.format(path=sys.path, folder=folder)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_one_at_a_time(holder):
    with pytest.raises(_lock.BusyError) as caught, _lock.host_lock("x", 0.3):
        pass
    assert caught.value.holder == str(holder.pid)
    with _lock.host_lock("y", 0):
        pass


def test_the_lock_of_a_killed_run_is_free(holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with _lock.host_lock("x", 0):
        pass


def test_it_waits(holder):
    started = time.monotonic()
    subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {holder.pid}"]).wait()
    holder.wait()
    with _lock.host_lock("x", 30):
        assert time.monotonic() - started < 15


def test_shared_it_keeps_out_only_who_wants_it_alone(folder):
    with contextlib.ExitStack() as two:
        for _one in range(2):
            two.enter_context(_lock.host_lock("x", 0, shared=True))
        with pytest.raises(_lock.BusyError):
            two.enter_context(_lock.host_lock("x", 0))
    alone, shared = _lock.host_lock("x", 0), _lock.host_lock("x", 0, shared=True)
    with alone, pytest.raises(_lock.BusyError), shared:
        pass


def test_parts_are_locked_one_by_one(folder):
    program = HOLD.format(path=sys.path, folder=folder).replace(
        'host_lock("x", 0)', 'part_locks("bmc", ["a 443", "b 443"])'
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        with _lock.part_locks("bmc", ["b 443", "c 443"]) as taken:
            assert taken == {"b 443"}
        process.kill()
        process.wait()
    with _lock.part_locks("bmc", ["a 443", "b 443"]) as taken:
        assert not taken


def test_it_can_be_taken_again_and_again(folder):
    for _round in range(3):
        with _lock.host_lock("x", 0):
            pass
    assert os.listdir(folder) == ["x.lock"]


def test_a_folder_of_another_owner_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(_lock.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(_lock.os, "access", lambda *_args: False)
    (tmp_path / "baremetal-dgx").symlink_to("/tmp")
    (tmp_path / f"baremetal-dgx-{os.getuid()}").symlink_to("/tmp")
    with pytest.raises(OSError, match="has mode 1777"), _lock.host_lock("x", 0):
        pass


def test_a_users_folder_or_link_in_tmp_is_refused(open_place, as_user, monkeypatch):
    monkeypatch.setattr(_lock.tempfile, "gettempdir", lambda: str(open_place))
    monkeypatch.setattr(_lock.os, "access", lambda *_args: False)
    open_place.chmod(0o1777)
    folder = open_place / "baremetal-dgx"
    for attack, message in (
        (lambda: os.symlink("/root", folder), "is a link of user 65532"),
        (lambda: os.mkdir(folder, 0o700), "belongs to user 65532"),
    ):
        as_user(65532, attack)
        with pytest.raises(OSError, match=message), _lock.host_lock("x", 0):
            pass
        os.rename(folder, open_place / message)


def test_a_full_disk_keeps_no_run_from_the_lock(folder, monkeypatch):
    """Who holds it is a note; the lock is the kernel's, and needs no room."""

    def full(*_words):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    busy = pytest.raises(_lock.BusyError, match="process unknown")
    with _lock.host_lock("x", 0), busy, _lock.host_lock("x", 0):
        pass
    with _lock.host_lock("x", 0):
        pass
