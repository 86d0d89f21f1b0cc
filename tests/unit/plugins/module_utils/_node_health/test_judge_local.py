# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judgement of mounts, disks, memory, clock and services on texts as the tools write them."""

from __future__ import annotations

import errno

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    Record,
    Threshold,
    brief_of,
    judge,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health import judge_local as local
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health.judge_local import Space
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health.report import (
    metrics_of,
    reason_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health.settings import Disk, Mount
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import plain

TABLE = (
    "22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/md0 rw\n"
    "40 22 0:35 / /lustre rw,flock - lustre 10.0.0.1@o2ib:/fs rw\n"
    "41 22 0:36 / /with\\040space rw - nfs4 a:/b rw\n"
    "42 22 0:37 / /auto rw - autofs systemd-1 rw\n"
    "half a line"
)


@pytest.mark.parametrize(
    ("path", "fstype", "status"),
    [("/lustre", "lustre", "pass"), ("/lustre", "", "pass"), ("/lustre", "nfs4", "fail"),
     ("/with space", "", "pass"), ("/auto", "nfs4", "pass"), ("/gone", "", "fail"),
     ("/lustre/below", "", "fail")],
)  # fmt: skip
def test_mounts_are_looked_up_without_touching_them(path, fstype, status):
    record = local.judge_mounted("n", Mount(path, fstype=fstype), TABLE)
    assert record.status == status
    assert record.subject == f"path:n{path}"
    assert local.judge_mounted("n", Mount(path), None).status == "not_measured"


NEW = "node@3f1d.cephfs=/home"
OLD = "10.0.0.1:6789,10.0.0.2:6789:/home"
NAS = "nas.example.org:/export/home"


@pytest.mark.parametrize(
    ("source", "line", "status"),
    [
        # USER@FSID.NAME=/PATH, as the kernel shows it from 5.17 on; another client counts as well.
        (NEW, "/ - ceph node@3f1d.cephfs=/home rw", "pass"),
        (NEW, "/ - ceph node@3f1d.cephfs=/home/ rw", "pass"),
        ("node@.cephfs=//home/", "/ - ceph other@3f1d.cephfs=/home rw", "pass"),
        (NEW, "/ - ceph node@3f1d.cephfs=/old rw", "fail"),
        (NEW, "/ - ceph node@3f1d.cephfs=/home/old rw", "fail"),
        (NEW, "/ - ceph node@3f1d.archive=/home rw", "fail"),
        (NEW, "/ - ceph node@77aa.cephfs=/home rw", "fail"),
        # A folder of a mount elsewhere is bound here.
        (NEW, "/home - ceph node@3f1d.cephfs=/ rw", "pass"),
        (NEW, "/old - ceph node@3f1d.cephfs=/ rw", "fail"),
        # MONITORS:/PATH has the file system among the options, where it is not the only one.
        (NEW, f"/ - ceph {OLD} rw,name=node,secret=<hidden>", "pass"),
        (NEW, f"/ - ceph {OLD}/ rw,mds_namespace=cephfs,acl", "pass"),
        (NEW, f"/ - ceph {OLD} rw,name=node,mds_namespace=archive", "fail"),
        (NEW, f"/ - ceph {OLD} rw,fs=archive", "fail"),
        (NEW, "/ - ceph [fd00::1]:6789,[fd00::2]:6789:/home rw", "pass"),
        (NEW, "/ - ceph [fd00::1]:6789,[fd00::2]:6789:/ rw", "fail"),
        (OLD, "/ - ceph node@3f1d.cephfs=/home rw", "pass"),
        (OLD, "/ - ceph node@3f1d.cephfs=/old rw", "fail"),
        # ceph-fuse shows nothing of it, and what is none of these cannot be compared.
        (NEW, "/ - fuse.ceph-fuse ceph-fuse rw", "pass"),
        ("the shared homes", "/ - ceph node@3f1d.cephfs=/home rw", "pass"),
        (NAS, "/ - nfs4 nas.example.org:/export/home rw,addr=10.0.0.9", "pass"),
        (NAS, "/ - nfs4 NAS.example.org.:/export/home/ rw", "pass"),
        (NAS, "/ - nfs nas:/export/home rw", "pass"),
        (NAS, "/ - nfs4 10.0.0.9:/export/home rw", "pass"),
        (NAS, "/ - nfs4 nas.example.org:/export/old rw", "fail"),
        (NAS, "/ - nfs4 nas2.example.org:/export/home rw", "fail"),
        (NAS, "/ - nfs4 nas.example.com:/export/home rw", "fail"),
        (NAS, "/ - nfs4 nas2:/export/home rw", "fail"),
        (f"old,{NAS}", "/ - nfs4 nas.example.org:/export/home rw", "pass"),
        ("[fd00::9]:/export", "/ - nfs4 fd00:0::9:/export rw", "pass"),
        ("fe80::9%eth0:/export", "/ - nfs4 [fe80::9]:/export rw", "pass"),
        ("[fd00::9]:/export", "/ - nfs4 [fd00::8]:/export rw", "fail"),
        ("10.0.0.9:/export", "/ - nfs4 10.0.0.8:/export rw", "fail"),
        ("nas", "/ - nfs4 nas:/export rw", "pass"),
        ("10.0.0.1@o2ib:/fs", "/ - lustre 10.0.0.2@o2ib:/fs rw", "pass"),
        ("LABEL=raid", "/ - xfs /dev/md0 rw", "pass"),
        ("/dev/disk/by-label/raid", "/ - xfs /dev/md0 rw", "pass"),
        (NEW, "/ - autofs systemd-1 rw", "pass"),
        (NEW, "/ - nfs4 nas:/home rw", "fail"),
        (NEW, "/ - tmpfs tmpfs rw", "fail"),
        (NAS, "/ - ext4 /dev/sda5 rw", "fail"),
        ("a:/home,b:/home", "/ - nfs4 b:/home rw", "pass"),
        ("a:/home,b:/home", "/ - nfs4 c:/home rw", "fail"),
    ],
)
def test_what_is_mounted_must_come_from_where_it_is_declared(source, line, status):
    record = local.judge_mounted("n", Mount("/x", source=source), f"43 22 0:38 {line}".replace(
        " - ", " /x rw - ", 1))  # fmt: skip
    assert record.status == status
    if status == "fail":
        assert record.measured["value"] == line.split(" - ")[1].split(" ")[1]
        assert record.threshold.value == source


def test_a_disk_is_the_declared_one_by_its_number():
    table = "43 22 9:127 / /raid rw - xfs /dev/md127 rw\n"
    mount = Mount("/raid", source="/dev/disk/by-label/raid")
    for device, status in (("9:127", "pass"), ("8:1", "fail"), ("", "pass")):
        assert local.judge_mounted("n", mount, table, device).status == status
    tmpfs = "43 22 0:50 / /raid rw - tmpfs tmpfs rw\n"
    assert local.judge_mounted("n", mount, tmpfs, "9:127").status == "fail"


@pytest.mark.parametrize(
    ("source", "line", "device"),
    [(NEW, f"0:38 /other /x rw - ceph {NEW} rw", ""),
     ("/dev/nvme1n1", "259:3 / /x rw - xfs /dev/nvme1n1 rw", "259:7")],
)  # fmt: skip
def test_what_differs_in_more_than_its_text_fails(source, line, device):
    record = local.judge_mounted("n", Mount("/x", source=source), f"43 22 {line}\n", device)
    assert record.status == "fail"
    assert record.measured["value"].startswith(f"{source} (folder ")


@pytest.mark.parametrize("space", ["\x0b", "\x85", "\u2028", "\r", "\xa0"])
def test_the_name_of_a_mount_is_no_other_mount(space):
    table = f"43 22 0:38 / /tmp/x{space}/lustre rw - fuse.sshfs a{space}b rw\n"
    for path, status in ((f"/tmp/x{space}/lustre", "pass"), ("/lustre", "fail")):
        assert local.judge_mounted("n", Mount(path), table).status == status


@pytest.mark.parametrize(
    ("number", "status"),
    [(0, "pass"), (errno.ESTALE, "fail"), (errno.EIO, "fail"), (errno.EACCES, "not_measured"),
     (errno.EINTR, "not_measured"), (errno.ENOTCONN, "fail")],
)  # fmt: skip
def test_what_a_mount_says_counts_by_whose_fault_it_is(number, status):
    record = local.judge_answer("n", Mount("/a"), Space(error=number), 0.1)
    assert record.status == status
    assert bool(record.remedy) == (number != 0)


def test_a_hang_becomes_a_failure_with_time():
    mount = Mount("/a", patience_s=300)
    assert local.judge_hang("n", mount, 299, "").status == "not_measured"
    assert local.judge_hang("n", mount, 301, "").status == "fail"


def statuses(records):
    return {record.check: record.status for record in records}


def test_disks():
    good = Space(free_mib=2000, inodes=100, free_inodes=50)
    assert set(statuses(local.judge_disk("n", Disk("/d"), good)).values()) == {"pass"}
    bad = Space(free_mib=1023, inodes=1000, free_inodes=9, read_only=True)
    assert set(statuses(local.judge_disk("n", Disk("/d"), bad)).values()) == {"fail"}
    # btrfs and others have no fixed number of inodes.
    assert "disk.free_inodes" not in statuses(local.judge_disk("n", Disk("/d"), Space(2000)))


@pytest.mark.parametrize(
    ("path", "missing"),
    [
        ("/raid", "/raid"),
        ("/raid/scratch", "/raid"),
        ("/raider", ""),
        ("/raid/deep/one", ""),
        ("/with blank/x", "/with blank"),
        ("/later", ""),
        ("/lazy", ""),
        ("/var/tmp", ""),
        ("/", ""),
    ],
)
def test_a_folder_whose_file_system_is_not_mounted(path, missing):
    """It stays, and what jobs write there goes to the disk of the system."""
    fstab = (
        "# /dev/md9 /var xfs defaults 0 0\n/dev/md0 / ext4 defaults 0 1\n"
        "/dev/md1 /raid xfs defaults,nofail 0 2\n/dev/md2 /raid/deep xfs nofail 0 2\n"
        "/dev/md3 /with\\040blank/ xfs nofail 0 2\n/dev/md4 /later xfs noauto 0 2\n"
        "/dev/md5 /lazy xfs x-systemd.automount 0 2\n"
    )
    line = "36 28 9:0 / {} rw,relatime shared:1 - {} /dev/x rw\n"
    live = [("/", "ext4"), ("/raid/deep", "xfs"), ("/lazy", "autofs")]
    assert local.unmounted(path, fstab, "".join(line.format(*one) for one in live)) == missing
    live += [("/raid", "xfs"), ("/with\\040blank", "xfs")]
    assert not local.unmounted(path, fstab, "".join(line.format(*one) for one in live))


def test_a_mount_point_that_is_a_link_is_where_it_leads(tmp_path):
    (tmp_path / "raid").symlink_to(tmp_path / "mnt")
    fstab = f"/dev/md1 {tmp_path}/raid xfs nofail 0 2\n"
    line = f"36 28 9:0 / {tmp_path.resolve()}/mnt rw shared:1 - xfs /dev/md1 rw\n"
    assert not local.unmounted(f"{tmp_path}/raid/scratch", fstab, line)
    assert local.unmounted(f"{tmp_path}/raid/scratch", fstab, "") == f"{tmp_path}/raid"


def test_a_folder_that_is_left_of_a_mount_is_not_present():
    space = Space(free_mib=2000, inodes=100, free_inodes=50)
    (record,) = local.judge_disk("n", Disk("/raid/scratch"), space, "/raid")
    assert (record.check, record.status) == ("disk.present", "fail")
    assert "/raid is not mounted" in brief_of(record)


def test_memory_and_cpus_without_a_question_are_not_judged():
    assert list(local.judge_host("n", 0, 0, None, "")) == []
    assert set(statuses(local.judge_host("n", 1, 1, None, "-")).values()) == {"not_measured"}


@pytest.mark.parametrize(
    ("tracking", "found"),
    [
        ("A,b,3,99990.0,-0.05,0,0,0,0,0,0,0,64,Normal", ["pass"]),
        ("A,b,3,99990.0,-0.15,0,0,0,0,0,0,0,64,Insert second", ["fail"]),
        # Its servers are gone, and it goes on by their last answer.
        ("A,b,3,70000.0,0.000000012,0,0,0,0,0,0,3.9,1024.5,Normal", ["not_measured"]),
        ("A,b,3,170000.0,0.000000012,0,0,0,0,0,0,3.9,1024.5,Normal", ["not_measured"]),
        ("A,b,3,70000.0,-0.15,0,0,0,0,0,0,3.9,1024.5,Normal", ["fail"]),
        # Started just now, a poll of hours, and the source of a site without servers.
        ("A,b,3,99999.0,0.0,0,0,0,0,0,0,0,0.0,Normal", ["pass"]),
        ("A,b,3,70000.0,0.01,0,0,0,0,0,0,0,16384.0,Normal", ["pass"]),
        ("7F7F0101,,10,99940.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,Normal", ["pass"]),
        (",,0,0.0,0.0,0,0,0,0,0,0,0,0,Not synchronised", ["not_measured"]),
        ("A,b,3,1.0,-0.05", ["not_measured"]),
        ("", ["not_measured"]),
    ],
)
def test_the_clock(tracking, found):
    result = CommandResult(("chronyc",), ENDED, 0, tracking + "\n")
    assert [one.status for one in local.judge_clock("n", 0.1, result, 1e5)] == found


def test_a_host_that_was_not_synchronised_tells_no_time_of_silence():
    tracking = ",,0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,1.0,1.0,0.0,Not synchronised\n"
    result = CommandResult(("chronyc",), ENDED, 0, tracking)
    (record,) = local.judge_clock("n", 0.1, result, 1.8e9)
    assert record.text == "offset of the clock; chrony says Not synchronised"


@pytest.mark.parametrize("outcome", [MISSING, TIMED_OUT])
def test_a_tool_that_does_not_end_measures_nothing(outcome):
    result = CommandResult(("chronyc",), outcome, out="A,b,3,1.0,9,0,0,0,0,0,0,0,64,Normal")
    assert [one.status for one in local.judge_clock("n", 0.1, result, 1e5)] == ["not_measured"]
    assert [one.status for one in local.judge_services("n", ["a"], result)] == ["not_measured"]


SHOWN = """\
Id=chrony.service
LoadState=loaded
ActiveState=active

Id=munge.service
LoadState=loaded
ActiveState=failed

Id=gone.service
LoadState=not-found
ActiveState=inactive

Id=new.service
LoadState=loaded
ActiveState=activating
"""


def test_services_are_told_apart_by_their_place():
    units = ["chronyd.service", "munge.service", "gone.service", "new.service"]
    found = list(local.judge_services("n", units, CommandResult(("s",), ENDED, 0, SHOWN)))
    assert [one.status for one in found] == ["pass", "fail", "fail", "not_measured"]
    assert found[0].subject == "service:n/chronyd.service"
    cut = CommandResult(("s",), ENDED, 0, SHOWN[:60])
    assert {one.status for one in local.judge_services("n", units, cut)} == {"not_measured"}


# What the record says.


def fail(check, value, remedy):
    return judge(check, "gpu:n/1", value, Threshold("==", 0, "x", "s"), "text", remedy).as_data()


def test_the_reason_is_what_asks_for_the_most():
    records = [fail("a.look", 1, "look: y"), fail("a.rma", 2, "replace: z"), fail("a.c", 0, "")]
    assert reason_of(records) == "gpu:n/1 a.rma is 2 x (must be == 0): text; and 1 more"
    assert reason_of(records[2:]) == ""
    assert len(reason_of([{**records[0], "text": "long " * 100}])) <= 160


def test_a_reason_can_be_printed_back():
    assert plain("a 'b' \"c\" [d]\n|e` \\ é") == "a b c d e e"
    assert len(plain("x" * 500)) == 180


def test_metrics_escape_what_prometheus_would_misread():
    record = Record('a"b', "node:\\n", "fail", measured={"value": 1.5, "unit": "s"})
    text = metrics_of({"records": [record.as_data()]}, 1.0, 2.0, 3.0)
    assert 'check="a\\"b",subject="node:\\\\n"' in text
    assert text.endswith("\n")
    assert brief_of(record) == 'node:\\n a"b is 1.5 s'
