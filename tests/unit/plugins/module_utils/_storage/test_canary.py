# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a canary met on a mount, and which of the three answers that is."""

from __future__ import annotations

import errno

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.child import (
    BROKEN,
    DONE,
    HUNG,
    Answer,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.mounts import Live
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import lines_of
from ansible_collections.baremetal.dgx.plugins.module_utils._storage import canary as _canary
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.canary import Canary

HOME = Canary("home", "/home", fstype="ceph", peers=("dgx-02",), most_s=2)


def written(value, how=DONE):
    return list(_canary.judge_written("dgx-01", HOME, Answer(how, value, "did not come back")))


def shared(seen, how=DONE):
    outcome = Answer(how, {"dgx-02": seen}, "did not come back")
    (record,) = _canary.judge_peers("dgx-01", HOME, "run1", outcome)
    return record


def test_a_good_mount_passes_everything():
    records = written({"same": True, "took_s": 0.01})
    assert [(one.check, one.status) for one in records] == [
        ("storage.write", "pass"),
        ("storage.latency", "pass"),
    ]
    assert {one.subject for one in records} == {"mount:dgx-01/home"}
    assert not any(one.remedy for one in records)


def test_a_slow_mount_fails_for_its_time_alone():
    assert [one.status for one in written({"same": True, "took_s": 2.5})] == ["pass", "fail"]


def test_what_comes_back_changed_is_a_failure():
    first = written({"same": False, "took_s": 0.1})[0]
    assert first.status == "fail"
    assert "keep jobs away" in first.remedy


@pytest.mark.parametrize(
    ("code", "status", "part"),
    [
        (errno.ENOSPC, "fail", "full"),
        (errno.EDQUOT, "fail", "over its quota"),
        (errno.EACCES, "fail", "refused"),
        (errno.EPERM, "fail", "refused"),
        (errno.EROFS, "fail", "read only"),
        (errno.ESHUTDOWN, "fail", "cut off"),
        (errno.ENOTCONN, "fail", "without its client"),
        (errno.ENOMEM, "not_measured", "Cannot allocate memory"),
        (errno.EINTR, "not_measured", "Interrupted"),
    ],
)
def test_errors_are_told_apart(code, status, part):
    (record,) = written({"error": code, "step": "sync"})
    assert record.status == status
    assert part in record.text
    assert "sync" in record.text
    assert record.remedy
    assert errno.errorcode[code] in record.evidence


@pytest.mark.parametrize(("how", "part"), [(HUNG, "it hangs"), (BROKEN, "the canary broke")])
def test_a_hang_and_a_broken_canary_measure_nothing(how, part):
    (record,) = written(None, how)
    assert record.status == "not_measured"
    assert part in record.text
    assert shared(None, how).status == "not_measured"


@pytest.mark.parametrize(
    ("live", "status"),
    [
        (Live("/home", "ceph", "x"), "pass"),
        (Live("/home", "nfs4", "x"), "fail"),
        (None, "fail"),
    ],
)
def test_what_is_mounted_must_be_of_the_declared_type(live, status):
    assert _canary.judge_mounted("dgx-01", HOME, live).status == status


def test_any_type_will_do_where_none_is_declared():
    record = _canary.judge_mounted("n", Canary("x", "/x"), Live("/x", "xfs", "/dev/md0"))
    assert record.status == "pass"


@pytest.mark.parametrize(
    ("live", "status", "value"),
    [
        (Live("/home", "ceph", "node@f.cephfs=/home", "0:40"), "pass", "ceph,fuse.ceph-fuse"),
        (Live("/home", "ceph", "10.0.0.1:6789:/home", "0:40"), "pass", "ceph,fuse.ceph-fuse"),
        # ceph-fuse shows nothing of it.
        (Live("/home", "fuse.ceph-fuse", "ceph-fuse", "0:41"), "pass", "ceph,fuse.ceph-fuse"),
        (Live("/home", "ceph", "node@g.cephfs=/home", "0:40"), "fail", "node@g.cephfs=/home"),
        (Live("/home", "ceph", "node@f.cephfs=/old", "0:40"), "fail", "node@f.cephfs=/old"),
        (Live("/home", "nfs4", "server:/home", "0:42"), "fail", "nfs4"),
    ],
)
def test_what_is_mounted_must_come_from_where_it_is_declared(live, status, value):
    asked = Canary("home", "/home", "node@f.cephfs=/home", "ceph,fuse.ceph-fuse")
    record = _canary.judge_mounted("n", asked, live)
    assert (record.status, record.measured["value"]) == (status, value)


@pytest.mark.parametrize(
    ("number", "device", "status"),
    [("9:127", "9:127", "pass"), ("8:1", "9:127", "fail"), ("8:1", "", "pass")],
)
def test_a_disk_of_another_name_is_the_declared_one_by_its_number(number, device, status):
    asked = Canary("scratch", "/raid", "/dev/disk/by-label/dgx-scratch")
    live = Live("/raid", "xfs", "/dev/md127", number)
    record = _canary.judge_mounted("n", asked, live, device)
    assert record.status == status
    if status == "fail":
        assert record.measured["value"] == "/dev/md127"
        assert record.threshold.value == "/dev/disk/by-label/dgx-scratch"


@pytest.mark.parametrize(
    ("seen", "status", "value"),
    [
        ({"text": _canary.token_text("dgx-02", "run1")}, "pass", "seen"),
        ({"text": _canary.token_text("dgx-02", "run0")}, "fail", "an old one"),
        ({"text": _canary.token_text("dgx-03", "run1")}, "fail", "of dgx-03"),
        ({"text": _canary.token_text("dgx-02", "run1")[:-9]}, "fail", "not whole"),
        ({"text": ""}, "fail", "not whole"),
        ({"error": errno.ENOENT}, "fail", "missing"),
        ({}, "fail", "not whole"),
    ],
)
def test_what_a_peer_wrote_must_be_seen(seen, status, value):
    record = shared(seen)
    assert (record.status, record.measured["value"]) == (status, value)


def test_a_peer_whose_file_cannot_be_read_is_told_apart():
    assert shared({"error": errno.EIO, "step": "read"}).measured["value"] == "EIO"


def test_a_folder_that_is_only_read_has_a_check_of_its_own():
    images = Canary("images", "/images", write=False)
    records = list(_canary.judge_written("n", images, Answer(DONE, {"took_s": 0.1})))
    assert [one.check for one in records] == ["storage.read", "storage.latency"]


def test_lines_say_what_to_do():
    (line,) = lines_of(written({"error": errno.EDQUOT, "step": "write"}), "fail")
    assert "mount:dgx-01/home storage.write" in line
    assert "do: look" in line
