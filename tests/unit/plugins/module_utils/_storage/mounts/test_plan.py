# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mounts as declared and as found: units, fstab, what is done, what is refused."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.mounts import Live
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.mounts import plan as _mounts
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.mounts.plan import (
    Mount,
    Seen,
)

HOME = Mount(
    "home",
    "node@f.cephfs=/home",
    "/cluster/home",
    "ceph",
    ("noatime",),
    before=("slurmd.service",),
    watch=("/etc/ceph/key",),
)
LIVE = Live("/cluster/home", "ceph", "node@f.cephfs=/home")
DIGEST = {"/cluster/home": "new"}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/", "-"),
        ("/home", "home"),
        ("/cluster/a-b", r"cluster-a\x2db"),
        ("/.hidden/x", r"\x2ehidden-x"),
        ("/ü", r"\xc3\xbc"),
        ("/a b", r"a\x20b"),
    ],
)
def test_paths_are_escaped_as_systemd_does(path, name):
    assert _mounts.escape(path) == name
    if shutil.which("systemd-escape"):
        argv = ["systemd-escape", "--path", path]
        assert subprocess.check_output(argv, text=True).strip() == name


def test_unit_says_what_systemd_needs():
    text = _mounts.units("cephfs", HOME)["cluster-home.mount"]
    for line in (
        "What=node@f.cephfs=/home",
        "Options=_netdev,noatime",
        "After=network-online.target",
        "Before=slurmd.service remote-fs.target",
        "WantedBy=remote-fs.target",
        "TimeoutSec=90",
    ):
        assert line in text.splitlines()
    assert _mounts.owner_of(text) == "cephfs"
    assert _mounts.where_of(text) == "/cluster/home"
    assert _mounts.owner_of("# by hand\n" + text) == ""


def test_an_automount_is_what_is_enabled():
    files = _mounts.units("cephfs", Mount("x", "a", "/x", "ceph", automount=True))
    assert "WantedBy" not in files["x.mount"]
    assert "WantedBy=remote-fs.target" in files["x.automount"]
    assert "Before=" not in files["x.mount"]


def test_local_mounts_wait_for_no_network_and_a_percent_sign_is_itself():
    mount = Mount("s", "/dev/disk/by-label/a%b", "/scratch", "xfs", network=False)
    text = _mounts.units("local", mount)["scratch.mount"]
    assert "What=/dev/disk/by-label/a%%b" in text
    assert "network" not in text
    assert "Options" not in text
    # An array may be late, after the boot has ceased to wait for it.
    assert r"WantedBy=local-fs.target dev-disk-by\x2dlabel-a\x25b.device" in text
    fuse = Mount("s", "none", "/scratch", "fuse.x", network=False)
    assert "WantedBy=local-fs.target\n" in _mounts.units("local", fuse)["scratch.mount"]


def test_fstab_keeps_every_line_that_is_not_ours():
    before = "# mine\nUUID=1 / ext4 defaults 0 1\n"
    mount = Mount("d", "none", "/a b", "fuse.ceph", ("ceph.id=n",), automount=True)
    text = _mounts.fstab("cephfs", before, [mount])
    assert text.startswith(before)
    assert r"none /a\040b fuse.ceph _netdev,nofail,ceph.id=n," in text
    assert "x-systemd.automount" in text
    assert _mounts.fstab_owned("cephfs", text) == {"/a b": _mounts.fstab_line(mount)}
    assert _mounts.fstab("cephfs", text, [mount]) == text
    assert _mounts.fstab("cephfs", text, []) == before
    assert _mounts.fstab_owned("other", text) == {}


@pytest.mark.parametrize(
    "below", ["", "/dev/sdb1 /data xfs defaults 0 2\n", "# BEGIN other\n# END other\n"]
)
def test_a_block_of_fstab_without_its_end_is_refused(below):
    """What others wrote below would go with the block."""
    mount = Mount("d", "none", "/d", "ceph")
    text = _mounts.fstab("cephfs", "# mine\n", [mount])
    torn = text.replace("# END baremetal.dgx cephfs\n", below)
    for attempt in (
        lambda: _mounts.fstab("cephfs", torn, [mount]),
        lambda: _mounts.fstab_owned("cephfs", torn),
    ):
        with pytest.raises(ValueError, match=r"/etc/fstab: .* the line # END baremetal.dgx cephfs"):
            attempt()
    # A block of another owner does not matter.
    assert _mounts.fstab("other", torn, []) == torn


def planned(seen, wanted=(HOME,), owned=("/cluster/home",)):
    return _mounts.plan(wanted, owned, {"/cluster/home": seen}, DIGEST)


def actions(plan):
    return [(step.action, step.where) for step in plan.steps]


def test_what_is_as_declared_is_left_alone():
    plan = planned(Seen(live=LIVE, applied="new", users=("bash (pid 1)",)))
    assert plan == _mounts.Plan()


@pytest.mark.parametrize(
    ("seen", "action"),
    [
        (Seen(), "start"),
        (Seen(live=LIVE, applied="old"), "remount"),
        (Seen(live=LIVE, applied="new", dead="ENOTCONN"), "revive"),
        (Seen(live=LIVE, applied="new", dead="ESTALE", users=("vim (pid 7, uid 1)",)), "revive"),
    ],
)
def test_what_is_not_as_declared_is_brought_there(seen, action):
    assert actions(planned(seen)) == [(action, "/cluster/home")]


def test_a_changed_mount_in_use_waits_and_names_its_users():
    plan = planned(Seen(live=LIVE, applied="old", users=("python3 (pid 7, uid 2001)",)))
    assert not plan.steps
    assert "python3 (pid 7, uid 2001)" in plan.pending[0]


def test_what_hangs_is_named_and_not_touched():
    plan = planned(Seen(live=LIVE, applied="old", dead="hang"))
    assert (plan.steps, plan.hung) == ((), ("/cluster/home",))


@pytest.mark.parametrize("why", ["ENOMEM", "EINTR", "EMFILE", "ended by signal 9", "MemoryError"])
def test_what_could_not_be_asked_is_named_and_not_touched(why):
    seen = Seen(live=LIVE, applied="old", dead=why)
    plan = planned(seen)
    assert plan.steps == planned(seen, ()).steps == ()
    assert plan.refused == (
        f"/cluster/home was left alone, since it is not known whether it answers: {why}",
    )
    assert f"does not answer ({why})" in planned(seen, ()).refused[0]


def test_a_mount_point_with_files_is_refused_until_allowed():
    assert "holds 3 files" in planned(Seen(hides=3)).refused[0]
    over = Mount(**{**vars(HOME), "over": True})
    assert actions(planned(Seen(hides=3), (over,))) == [("start", "/cluster/home")]


def test_a_mount_of_another_owner_is_refused():
    nfs = Live("/cluster/home", "nfs4", "server:/home")
    plan = planned(Seen(live=nfs), owned=())
    assert "server:/home (nfs4)" in plan.refused[0]
    assert not plan.steps


SCRATCH = Mount("s", "/dev/disk/by-label/s", "/cluster/home", "xfs", network=False)
OLD = Mount("h", "10.0.0.1:3300,10.0.0.2:3300:/home", "/cluster/home", "ceph")


@pytest.mark.parametrize(
    ("mount", "source", "number", "same"),
    [
        (HOME, "node@f.cephfs=/home", "", True),
        (HOME, "node@f.cephfs=/home/", "", True),
        (HOME, "node@.cephfs=/home", "", True),
        (HOME, "admin@f.cephfs=/home", "", False),
        (HOME, "node@g.cephfs=/home", "", False),
        (HOME, "node@f.other=/home", "", False),
        (HOME, "node@f.cephfs=/", "", False),
        # Monitors are another spelling of the same cluster, in which only the path shows.
        (HOME, "10.0.0.1:6789:/home", "", True),
        (HOME, "10.0.0.1:6789:/", "", False),
        (OLD, "[fd00::1]:6789:/home", "", True),
        (OLD, "node@f.cephfs=/home", "", True),
        (OLD, "10.0.0.1:/other", "", False),
        (SCRATCH, "/dev/md127", "9:127", True),
        (SCRATCH, "/dev/sda1", "8:1", False),
        # A file system with several disks shows none of them.
        (SCRATCH, "/dev/sda1", "0:44", True),
    ],
)
@pytest.mark.parametrize("owned", [(), ("/cluster/home",)])
def test_a_mount_of_the_same_type_from_elsewhere_is_foreign(mount, source, number, same, owned):
    live = Live("/cluster/home", mount.fstype, source, number)
    plan = planned(Seen(live=live, device="9:127"), (mount,), owned)
    assert not plan.steps
    assert [f"is a foreign mount: {source}" in line for line in plan.refused] == (
        [] if same or owned else [True]
    )


def test_what_has_no_source_to_compare_is_taken_as_declared():
    fuse = Mount("f", "none", "/cluster/home", "fuse.ceph")
    live = Live("/cluster/home", "fuse.ceph-fuse", "ceph-fuse", "0:40")
    assert planned(Seen(live=live), (fuse,), ()) == _mounts.Plan()
    # The declared device is not there.
    live = Live("/cluster/home", "xfs", "/dev/sda1", "8:1")
    assert planned(Seen(live=live), (SCRATCH,), ()) == _mounts.Plan()


def test_an_automount_that_waits_is_as_declared():
    lazy = Mount(**{**vars(HOME), "automount": True})
    assert not planned(Seen(automount=True), (lazy,)).steps
    assert actions(planned(Seen(), (lazy,))) == [("start", "/cluster/home")]


def test_what_is_no_longer_declared_goes_unless_it_is_in_use():
    assert actions(planned(Seen(live=LIVE), ())) == [("remove", "/cluster/home")]
    used = planned(Seen(live=LIVE, users=("vim (pid 9, uid 2001)",)), ())
    assert not used.steps
    assert used.kept == {"/cluster/home"}
    assert "vim (pid 9, uid 2001)" in used.refused[0]
    hung = planned(Seen(live=LIVE, dead="hang"), ())
    assert "does not answer" in hung.refused[0]
    assert hung.kept == {"/cluster/home"}


def test_inner_mounts_go_first_and_come_last():
    inner = Mount("in", "x", "/a/b", "ceph")
    outer = Mount("out", "x", "/a", "ceph")
    come = _mounts.plan((inner, outer), (), {}, {"/a": "1", "/a/b": "2"})
    assert [step.where for step in come.steps] == ["/a", "/a/b"]
    go = _mounts.plan((), ("/a", "/a/b"), {}, {})
    assert [step.where for step in go.steps] == ["/a/b", "/a"]


def test_another_key_makes_another_digest():
    first = _mounts.digest(HOME, {"/etc/ceph/key": "1"})
    assert first == _mounts.digest(HOME, {"/etc/ceph/key": "1"})
    assert first != _mounts.digest(HOME, {"/etc/ceph/key": "2"})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("mount error: ceph filesystem not supported by the system", "no ceph module"),
        ("mount error 13 = Permission denied", "refuses the key"),
        ("ceph mount failed with (13) Permission denied", "refuses the key"),
        ("handle_auth_bad_method server [2]\nfailed to fetch mon config", "refuses the key"),
        ("failed to fetch mon config (--no-mon-config to skip)", "no monitor answers"),
        ("ceph mount failed with (2) No such file or directory", "path is not in"),
        ("mount error: no mds (Metadata Server) is up.", "metadata server"),
        ("ceph mount failed with (110) Connection timed out", "no monitor answers"),
        ("auth: unable to find a keyring on /etc/ceph/x", "does not lie where"),
    ],
)
def test_errors_are_told_in_words(text, part):
    assert part in _mounts.meaning(text)


def test_an_unknown_error_gets_no_words_of_ours():
    assert _mounts.meaning("something else") == ""


def test_many_users_are_not_all_named():
    assert _mounts.users_text([f"p{n}" for n in range(20)]).endswith("p7 and 12 more")
