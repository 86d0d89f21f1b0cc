# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""storage_mounts against a systemd that is played: files, commands, refusals, and what is found."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ENDED, CommandResult
from ansible_collections.baremetal.dgx.plugins.module_utils._host.accounts import (
    apply as _accounts,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.mounts import (
    apply as _mounts_apply,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.mounts import (
    read as _mounts_host,
)
from ansible_collections.baremetal.dgx.plugins.modules import storage_mounts

pytestmark = pytest.mark.slow


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE/wwyhpHlXOwCL0FJc6Vap9x15wHpJmqNXVxMOMv8kJ alice"
_dead = _mounts_host.dead


def _killed(*_words):
    os.kill(os.getpid(), signal.SIGKILL)


class World:
    """systemd and the kernel: `live` is what is mounted; `broken` is why mounting fails."""

    def __init__(self, tmp_path, monkeypatch):
        self.units, self.fstab = tmp_path / "units", tmp_path / "fstab"
        self.units.mkdir()
        self.fstab.write_text("UUID=1 / ext4 defaults 0 1\n")
        self.root = tmp_path / "mnt"
        self.live: dict[str, str] = {}
        self.sshd = ""
        self.broken, self.calls, self.number = "", [], "0:4"
        # When each mount became active, in seconds of the machine's uptime.
        self.active = time.monotonic() + 3600
        self.dead: dict[str, str] = {}
        self.used: dict[str, tuple[str, ...]] = {}
        monkeypatch.setattr(_mounts_host, "UNITS", str(self.units))
        monkeypatch.setattr(_mounts_host, "NOTES", str(tmp_path / "notes"))
        monkeypatch.setattr(_mounts_apply, "FSTAB_PATH", str(self.fstab))
        real = _mounts_host.read
        monkeypatch.setattr(
            _mounts_host,
            "read",
            lambda path: self.table() if path == "/proc/self/mountinfo" else real(path),
        )
        monkeypatch.setattr(_mounts_host, "dead", lambda where, _s: self.dead.get(where, ""))
        monkeypatch.setattr(_mounts_host, "users", lambda where: self.used.get(where, ()))
        monkeypatch.setattr(storage_mounts, "ModuleRunner", lambda _module: self.run)

    def table(self):
        rows = (
            f"9 1 {self.number} / {where} rw - {kind} src rw" for where, kind in self.live.items()
        )
        return "\n".join(rows) + "\n"

    def run(self, argv, timeout_s=30, env=None):
        words = [word for word in argv if not word.startswith("--")]
        self.calls.append(" ".join(words))
        out, rc = "", 0
        unit = words[-1]
        path = self.units / unit
        where = _mounts_host.where_of(path.read_text()) if path.is_file() else ""
        if words[:2] == ["systemctl", "show"]:
            self.calls.pop()
            out = f"ActiveEnterTimestampMonotonic={int(self.active * 1e6)}\n"
        elif words[0] == "sshd":
            self.calls.pop()
            out = self.sshd
        elif words[0] == "journalctl":
            out = f"Mounting x\n{self.broken}\n"
        elif words[:2] == ["systemctl", "start"] and where:
            if self.broken:
                rc = 1
            else:
                self.live[where] = "fuse.ceph-fuse"
        elif words[:2] == ["systemctl", "stop"] and where:
            self.live.pop(where, None)
        elif words[0] == "umount":
            self.live.pop(unit, None)
            self.dead.pop(unit, None)
        elif words[1:2] == ["reenable"]:
            for by in path.read_text().partition("WantedBy=")[2].split():
                link = self.units / f"{by}.wants" / unit
                link.parent.mkdir(exist_ok=True)
                link.symlink_to(path)
        return CommandResult(tuple(argv), ENDED, rc, out, "")

    def mount(self, name, **more):
        where = str(self.root / name)
        base = {"name": name, "what": "none", "where": where, "fstype": "fuse.ceph"}
        return {**base, "options": ["ceph.id=node"], **more}


@pytest.fixture
def world(tmp_path, monkeypatch, run_module):
    """A world, with `apply(*mounts)`."""
    made = World(tmp_path, monkeypatch)

    def apply(*mounts, check=False, style="unit", **more):
        made.calls.clear()
        options = {"owner": "cephfs", "mounts": list(mounts), "style": style, **more}
        return run_module(storage_mounts.main, options, check)

    made.apply = apply
    return made


def test_check_mode_then_mounted_then_nothing_to_do(world):
    home = world.mount("home")
    assert world.apply(home, check=True)["changed"]
    assert not list(world.units.glob("*.*mount"))
    assert not world.calls
    first = world.apply(home)
    assert first["steps"] == [f"start {home['where']}: not mounted"]
    assert home["where"] in world.live
    again = world.apply(home)
    assert (again["changed"], again["steps"]) == (False, [])
    assert not [call for call in world.calls if "start" in call or "stop" in call]


@pytest.mark.parametrize("more", [{}, {"automount": True}, {"fstype": "xfs", "network": False}])
def test_the_keys_by_which_ansible_logs_in_are_not_hidden(world, monkeypatch, more):
    home = world.mount("home", over=True, **more)
    monkeypatch.setenv("SUDO_USER", "admin")
    number, group = os.getuid(), os.getgid()
    user = pwd.struct_passwd(("admin", "x", number, group, "", f"{home['where']}/admin", "/bin/sh"))
    monkeypatch.setattr(_accounts.pwd, "getpwnam", {"admin": user}.__getitem__)
    monkeypatch.setattr(_accounts, "acting_as", lambda uid, gid: contextlib.nullcontext())
    keys = Path(home["where"], "admin/.ssh/authorized_keys")
    keys.parent.mkdir(parents=True)
    # Whom a directory admits has none, and an account without a key is not locked out.
    keys.write_text("")
    assert "failed" not in world.apply(home, check=True)
    keys.write_text(f"{KEY}\n")
    for check in (True, False):
        answer = world.apply(home, check=check)
        (line,) = answer["refused"]
        assert line == (
            f"{home['where']} would hide {keys}, by which admin logs in here; log in as root, or "
            "as another user whose home is elsewhere, whom bootstrap admits; "
            # A local volume has no such consent.
            + (
                "or write another mountpoint"
                if "fstype" in more
                else "where CephFS has the key, too, write cephfs_login_hidden_allowed: true"
            )
        )
        assert answer["failed"]
    # Nor does the next boot mount it.
    assert (world.live, list(world.units.glob("*mount"))) == ({}, [])
    # A key in another folder still admits, a command may, and no login over SSH needs none.
    elsewhere = world.root / "keys"
    elsewhere.write_text(f"{KEY}\n")
    world.sshd = f"authorizedkeysfile .ssh/authorized_keys {elsewhere}"
    assert "failed" not in world.apply(home, check=True)
    world.sshd = "authorizedkeyscommand /usr/bin/sss_ssh_authorizedkeys"
    assert "failed" not in world.apply(home, check=True)
    world.sshd = ""
    assert "failed" not in world.apply(home, check=True, keep_login=False)
    assert "failed" in world.apply(home, check=True)
    monkeypatch.setenv("SUDO_USER", "root")
    assert "failed" not in world.apply(home)
    # What is mounted hides nothing more.
    monkeypatch.setenv("SUDO_USER", "admin")
    assert "failed" not in world.apply(home)


def test_a_local_mount_follows_its_device_also_where_an_older_unit_did_not(world):
    scratch = world.mount("scratch", what="/dev/disk/by-label/a-b", fstype="xfs", network=False)
    world.apply(scratch)
    link = world.units / r"dev-disk-by\x2dlabel-a\x2db.device.wants" / world.calls[-1].split()[-1]
    assert link.is_symlink()
    assert not world.apply(scratch)["changed"]
    assert not world.calls, "enabled as it is"
    link.unlink()
    world.apply(scratch)
    assert world.calls == [f"systemctl reenable {link.name}"]


def test_a_failed_mount_is_told_in_words(world):
    world.broken = "ceph mount failed with (13) Permission denied"
    result = world.apply(world.mount("home"))
    assert result["failed"]
    assert "the cluster refuses the key" in result["msg"]
    assert "(13) Permission denied" in result["msg"]
    world.broken = ""
    assert not world.apply(world.mount("home")).get("failed")


def test_what_is_no_longer_declared_goes_with_its_unit(world):
    home, data = world.mount("home"), world.mount("data")
    world.apply(home, data)
    result = world.apply(home)
    assert result["steps"] == [f"remove {data['where']}: no longer declared"]
    assert list(world.live) == [home["where"]]
    assert len(list(world.units.glob("*.mount"))) == 1
    assert not world.apply(home)["changed"]


def test_what_is_in_use_stays_with_its_unit(world):
    home = world.mount("home")
    world.apply(home)
    world.used[home["where"]] = ("vim (pid 7, uid 2001)",)
    result = world.apply()
    assert "vim (pid 7, uid 2001)" in result["msg"]
    assert home["where"] in world.live
    assert len(list(world.units.glob("*.mount"))) == 1


def test_another_definition_is_mounted_when_it_is_not_in_use(world):
    home = world.mount("home")
    world.apply(home)
    other = {**home, "options": ["ceph.id=node", "noatime"]}
    world.used[home["where"]] = ("vim (pid 7, uid 2001)",)
    result = world.apply(other)
    assert result["pending"]
    assert result["warnings"] == result["pending"]
    # Still so at the next run, though its unit is written.
    assert world.apply(other)["pending"]
    world.used.clear()
    assert world.apply(other)["steps"] == [f"remount {home['where']}: declared otherwise now"]
    assert not world.apply(other)["changed"]


def test_what_a_boot_has_mounted_is_known(world, tmp_path):
    home = world.mount("home")
    world.apply(home)
    for note in (tmp_path / "notes").iterdir():
        note.unlink()
    assert not world.apply(home)["changed"]
    for note in (tmp_path / "notes").iterdir():
        note.unlink()
    changed = world.apply({**home, "options": ["ceph.id=other"]})
    assert changed["steps"] == [f"remount {home['where']}: declared otherwise now"]


@pytest.fixture
def booted(world, tmp_path):
    """`booted(change, style)`: mounted, booted, changed; what two runs in use, and one after, do.

    `change` gets the key that the mount watches, and returns what is declared otherwise.
    """
    key = tmp_path / "key"

    def boot(change, style="unit"):
        key.write_text("old")
        home = world.mount("home", watch=[str(key)])
        world.apply(home, style=style)
        # fstab's mount is made by the generator's unit, which this world does not play.
        world.live[home["where"]] = "fuse.ceph-fuse"
        world.active = time.monotonic() + 0.001
        time.sleep(0.05)
        for note in (tmp_path / "notes").iterdir():
            note.unlink()
        declared = {**home, **change(key)}
        world.used[home["where"]] = ("vim (pid 7, uid 2001)",)
        first, second = world.apply(declared, style=style), world.apply(declared, style=style)
        world.used.clear()
        return first, second, world.apply(declared, style=style)

    return boot


@pytest.mark.parametrize("style", ["unit", "fstab"])
@pytest.mark.parametrize(
    "change",
    [lambda key: key.write_text("rotated") and {}, lambda _key: {"options": ["ceph.id=other"]}],
    ids=["key", "options"],
)
def test_what_has_changed_since_the_boot_is_not_taken_for_what_is_mounted(booted, change, style):
    first, second, unused = booted(change, style)
    assert first["pending"]
    # What the first run has written is not what the mount was made with.
    assert second["pending"]
    assert [step.split(":")[0].split()[0] for step in unused["steps"]] == ["remount"]


@pytest.mark.parametrize("style", ["unit", "fstab"])
def test_what_is_as_at_the_boot_is_left_alone(booted, style):
    for run in booted(lambda _key: {}, style):
        assert (run["changed"], run["steps"], run["pending"]) == (False, [], [])


def test_where_systemd_does_not_know_since_when_the_key_is_not_compared(world, tmp_path, booted):
    def forgotten(key):
        world.active = 0
        key.write_text("rotated")
        return {}

    assert not booted(forgotten)[0]["pending"]


def test_a_run_that_is_killed_before_it_mounts_again_takes_nothing_for_mounted(
    world, tmp_path, monkeypatch
):
    home = world.mount("home")
    world.apply(home)
    for note in (tmp_path / "notes").iterdir():
        note.unlink()

    def killed(*_words):
        raise KeyboardInterrupt

    other = {**home, "options": ["ceph.id=other"]}
    with monkeypatch.context() as patch:
        patch.setattr(_mounts_apply.Applier, "_systemctl", killed)
        with pytest.raises(KeyboardInterrupt):
            world.apply(other)
    assert world.apply(other)["steps"] == [f"remount {home['where']}: declared otherwise now"]


def test_a_disk_of_another_file_system_is_not_taken_for_the_declared_one(world, monkeypatch):
    scratch = world.mount("scratch", what="/dev/null", fstype="xfs", network=False)
    world.live[scratch["where"]] = "xfs"
    monkeypatch.setattr(_mounts_host.stat, "S_ISBLK", lambda _mode: True)
    world.number = "8:1"
    assert "is a foreign mount" in world.apply(scratch)["msg"]
    assert not list(world.units.glob("*.*mount"))
    world.number = "1:3"
    assert not world.apply(scratch).get("failed")
    assert not world.apply(scratch)["changed"]


def test_a_dead_client_is_revived_and_a_hung_one_left_alone(world):
    home = world.mount("home")
    world.apply(home)
    world.dead[home["where"]] = "ENOTCONN"
    assert world.apply(home)["steps"] == [f"revive {home['where']}: ENOTCONN"]
    assert home["where"] in world.live
    world.dead[home["where"]] = "hang"
    result = world.apply(home)
    assert result["hung"] == [home["where"]]
    assert "it was left alone" in result["msg"]
    assert not [call for call in world.calls if "umount" in call or " stop " in call]


@pytest.mark.parametrize(
    ("probe", "why"),
    [
        (_killed, "ended by signal 9 without a whole answer"),
        (lambda _where: errno.ENOMEM, "ENOMEM"),
        (lambda _where: errno.EMFILE, "EMFILE"),
    ],
)
def test_what_could_not_be_asked_is_left_alone(world, monkeypatch, probe, why):
    home = world.mount("home")
    world.apply(home)
    monkeypatch.setattr(_mounts_host, "errno_of", probe)
    world.dead[home["where"]] = _dead(home["where"], 20)
    # Not even what is declared otherwise, or no longer.
    for asked in ([home], [{**home, "options": ["noatime"]}], []):
        result = world.apply(*asked)
        assert result["failed"]
        assert why in result["msg"]
        assert result["steps"] == []
        assert home["where"] in world.live
        assert not [call for call in world.calls if "umount" in call or " stop " in call]
        assert len(list(world.units.glob("*.mount"))) == 1


def test_files_below_are_not_hidden(world):
    home = world.mount("home")
    os.makedirs(os.path.join(home["where"], "alice", ".ssh"))
    Path(home["where"], "alice", "notes").write_text("")
    assert "holds 1 files or folders" in world.apply(home)["msg"]
    assert not list(world.units.glob("*.*mount"))
    assert not world.apply({**home, "over": True}).get("failed")


def test_units_of_others_are_not_touched(world):
    (world.units / "srv.mount").write_text("[Mount]\nWhat=x\nWhere=/srv\n")
    world.apply(world.mount("home"))
    world.apply()
    assert [path.name for path in world.units.glob("*.mount")] == ["srv.mount"]


def test_style_fstab_moves_the_mounts_there(world):
    home = world.mount("home")
    world.apply(home)
    result = world.apply(home, style="fstab")
    assert result["changed"]
    assert not list(world.units.glob("*.*mount"))
    assert home["where"] in world.fstab.read_text()
    assert world.fstab.read_text().startswith("UUID=1 / ext4")


@pytest.mark.parametrize(
    ("mounts", "part"),
    [
        ([{"where": "relative"}], "is not a mount point"),
        ([{"where": "/a/../b"}], "is not a mount point"),
        ([{"where": "/a"}, {"where": "/a"}], "is declared twice"),
    ],
)
def test_declarations_that_cannot_be_are_refused(world, mounts, part):
    asked = [{**world.mount(str(n)), **one} for n, one in enumerate(mounts)]
    assert part in world.apply(*asked)["msg"]


@pytest.mark.parametrize("end", ["\x0b", "\x85", "\u2028", "\r"])
def test_what_a_process_calls_itself_and_maps_is_one_line(tmp_path, end):
    """As /proc shows them: the kernel writes a line feed as a code, and all else as it is."""
    process = tmp_path / "proc" / "7"
    process.mkdir(parents=True)
    (process / "comm").write_text("a\n")
    (process / "status").write_bytes(f"Name:\ta{end}Uid:\t0\nUid:\t2001\t2001\n".encode())
    mapped = f"7f00-7f01 r--p 00000000 08:01 7          /data/a{end}b\n"
    (process / "maps").write_bytes(f"{mapped[:-1]}{end}7f 0 0 0 7 /scratch/x\n".encode())
    assert _mounts_host._name("7", str(tmp_path / "proc")) == "a (pid 7, uid 2001)"
    assert _mounts_host._uses("7", "/data", str(tmp_path / "proc"))
    assert not _mounts_host._uses("7", "/scratch", str(tmp_path / "proc"))


def test_users_of_a_folder_are_found_by_folder_file_and_map(tmp_path, monkeypatch):
    code = f"import time; held = open({str(tmp_path / 'x')!r}, 'w'); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            until = time.monotonic() + 20
            found: tuple[str, ...] = ()
            while not found and time.monotonic() < until:
                found = _mounts_host.users(str(tmp_path))
            assert len(found) == 1
            assert f"(pid {process.pid}, uid {os.getuid()})" in found[0]
        finally:
            process.kill()
    assert _mounts_host.users(str(tmp_path)) == ()
    monkeypatch.setattr(_mounts_host, "_uses", _killed)
    assert "ended by signal 9" in _mounts_host.users(str(tmp_path))[0], "not known is not unused"
    assert _mounts_host.dead(str(tmp_path), 5) == ""
    assert _mounts_host.dead(str(tmp_path / "none"), 5) == "ENOENT"
