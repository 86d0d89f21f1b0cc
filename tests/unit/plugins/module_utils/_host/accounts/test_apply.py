# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pwd
import resource
import signal
import stat

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    CommandResult,
    ToolError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host.accounts import apply as host
from ansible_collections.baremetal.dgx.plugins.module_utils._host.accounts.parse import WantedUser

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE/wwyhpHlXOwCL0FJc6Vap9x15wHpJmqNXVxMOMv8kJ alice"
ME = pwd.getpwuid(os.getuid())


def answers(*results):
    """A runner that gives these answers in turn, and remembers what it was asked."""
    left = list(results)
    asked = []

    def run(argv, timeout_s=30, env=None):
        asked.append(tuple(argv))
        return left.pop(0)

    run.asked = asked
    return run


def ended(rc=0, out="", err=""):
    return CommandResult(("tool",), ENDED, rc, out, err)


def names(folder):
    return sorted(os.listdir(folder))


@pytest.fixture
def skeleton(tmp_path, monkeypatch):
    folder = tmp_path / "skel"
    folder.mkdir()
    (folder / ".profile").write_text("umask 027\n")
    (folder / "link").symlink_to("nowhere")
    monkeypatch.setattr(host, "_SKELETON", str(folder))
    return folder


def test_home_has_the_skeleton_and_the_mode(tmp_path, skeleton):
    home = tmp_path / "homes" / "alice"
    host.create_home(str(home), os.getuid(), os.getgid(), 0o750)
    assert names(home) == [".profile", "link"]
    assert stat.S_IMODE(home.stat().st_mode) == 0o750
    assert names(home.parent) == ["alice"]


def test_home_of_a_killed_run_is_made_again(tmp_path, skeleton, monkeypatch):
    def killed(*_args, **_folders):
        raise KeyboardInterrupt

    home = tmp_path / "homes" / "alice"
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            host.create_home(str(home), os.getuid(), os.getgid(), 0o700)
    assert not home.exists()
    host.create_home(str(home), os.getuid(), os.getgid(), 0o700)
    assert names(home.parent) == ["alice"]


def test_home_that_another_node_made_meanwhile_stays(tmp_path, skeleton, monkeypatch):
    home = tmp_path / "alice"
    really = os.rename

    def late(source, target, **folders):
        home.mkdir()
        (home / "data").write_text("x")
        really(source, target, **folders)

    monkeypatch.setattr(os, "rename", late)
    host.create_home(str(home), os.getuid(), os.getgid(), 0o700)
    assert names(home) == ["data"]
    assert names(tmp_path) == ["alice", "skel"]


def test_keys_are_private_and_leave_nothing_beside_them(tmp_path):
    for content in ("one\n", "two\n"):
        host.write_keys(str(tmp_path), ME.pw_uid, ME.pw_gid, content)
    folder = tmp_path / ".ssh"
    assert names(folder) == ["authorized_keys"]
    assert (folder / "authorized_keys").read_text() == "two\n"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "authorized_keys").stat().st_mode) == 0o600


def test_root_does_not_follow_a_users_link(open_place, as_user):
    assert as_user
    target = open_place / "etc"
    target.mkdir(mode=0o700)
    home = open_place / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    (home / ".ssh").symlink_to(target)
    with pytest.raises(PermissionError, match="authorized_keys"):
        host.write_keys(str(home), 65534, 65534, "x\n")
    assert names(target) == []
    assert os.geteuid() == 0


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.symlink_to("/dev/zero"), "is not a regular file: remove it"),
        (os.mkfifo, "is not a regular file: remove it"),
        (lambda path: path.write_bytes(bytes(2 << 20)), "has more than 1048576 bytes"),
    ],
    ids=["endless", "pipe", "large"],
)
def test_what_a_user_has_put_for_its_keys_neither_hangs_nor_fills_the_host(tmp_path, make, why):
    (tmp_path / ".ssh").mkdir()
    keys = tmp_path / ".ssh/authorized_keys"
    make(keys)
    users = [WantedUser(ME.pw_name, home=str(tmp_path), keys=(KEY,))]

    def in_seconds(*_caught):
        raise AssertionError("it is read without an end")

    # Without the reader, memory is what would end it.
    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, in_seconds)
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, limits[1]))
    signal.alarm(5)
    try:
        with pytest.raises(ToolError) as raised:
            host.load_state([], users, {})
        # sshd takes no key from it either.
        assert host.login_keys(answers(settings(str(keys))), ME.pw_name) == 0
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert str(raised.value) == f"user {ME.pw_name}: {keys}: {why}"


def test_a_link_is_removed_and_not_followed(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("x")
    (tmp_path / "home").symlink_to("data")
    host.remove_home(str(tmp_path / "home"))
    assert names(tmp_path) == ["data"]
    host.remove_home(str(tmp_path / "data"))
    assert names(tmp_path) == []


def test_login_user_is_the_one_behind_sudo(monkeypatch):
    assert host.login_user({"SUDO_USER": "ops"}) == "ops"
    # what /proc/self/loginuid says before a login
    monkeypatch.setattr(host, "read_text", lambda path: "4294967295")
    assert host.login_user({}) == ME.pw_name
    monkeypatch.setattr(host, "read_text", lambda path: "0\n")
    assert host.login_user({}) == "root"


def test_processes_are_found_and_named():
    found = host.processes_of({os.getuid(): "me"})
    assert 1 <= len(found["me"]) <= 5
    assert host.processes_of({}) == {}
    assert host.processes_of({4242424: "nobody"}) == {}


def test_a_lock_is_waited_for(monkeypatch):
    monkeypatch.setattr(host.time, "sleep", lambda _s: None)
    locked = ended(1, err="useradd: cannot lock /etc/passwd; try again later.")
    run = answers(locked, locked, ended())
    host.run_account_tool(run, ["useradd", "x"])
    assert len(run.asked) == 3
    with pytest.raises(ToolError, match="ended with 9: no"):
        host.run_account_tool(answers(ended(9, err="no")), ["useradd", "x"])


def settings(files, command="none", authorities="none"):
    return ended(
        out=f"port 22\nauthorizedkeysfile {files}\nauthorizedkeyscommand {command}\n"
        f"trustedusercakeys {authorities}\n"
    )


def test_login_keys_counts_every_file_of_the_daemon(tmp_path):
    (tmp_path / "a").write_text(f"{KEY}\n# {KEY}\n")
    (tmp_path / ME.pw_name).write_text(f"{KEY}\n")
    run = answers(settings(f"{tmp_path}/a {tmp_path}/%u {tmp_path}/none"))
    assert host.login_keys(run, ME.pw_name) == 2
    assert run.asked[0][:2] == ("sshd", "-T")
    assert host.login_keys(answers(settings(f"{tmp_path}/none")), ME.pw_name) == 0


@pytest.mark.parametrize(
    "answer",
    [
        CommandResult(("sshd",), MISSING),
        ended(1),
        settings("x", command="/usr/bin/sss_ssh_authorizedkeys %u"),
        settings("x", authorities="/etc/ssh/ca.pub"),
    ],
)
def test_login_keys_are_unknown(answer):
    assert host.login_keys(answers(answer), ME.pw_name) is None


def test_login_keys_of_no_user():
    assert host.login_keys(answers(), "no-such-user-here") is None
