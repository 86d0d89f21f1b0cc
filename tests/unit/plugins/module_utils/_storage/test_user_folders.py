# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folders of containers, attacked by a real user: the program and the prolog as installed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from jinja2 import Environment
from role_rules import Role

from ansible_collections.baremetal.dgx.plugins.module_utils._storage import user_folders
from ansible_collections.baremetal.dgx.plugins.plugin_utils._programs import program

ALICE, MALLORY = 65533, 65532
ROLE = ROOT / "roles" / "enroot"
PROLOG = "etc/slurm/prolog.d/45-enroot-folders"


class Node:
    """A node with the program and the prolog, and the folder `data` as the role leaves it."""

    def __init__(self, place: Path) -> None:
        self.place, self.data = place, place / "data"
        self.program = place / "user-folders"
        self.program.write_bytes(program("user-folders", sys.executable))
        self.program.chmod(0o755)
        self.prolog = place / "prolog"
        template = (ROLE / "templates" / f"{PROLOG}.j2").read_text()
        shebang, managed, text = template.split("\n", 2)
        assert shebang == "#!/bin/sh"
        assert "ansible_managed" in managed
        values = {"__enroot_user_folders": self.program, "__enroot_parents": [str(self.data)]}
        made = Environment(keep_trailing_newline=True).from_string(text).render(values)
        self.prolog.write_text(f"{shebang}\n{made}")
        self.prolog.chmod(0o755)
        variables = Role(ROLE).values["__enroot_folders"]
        mode = variables.partition("'/data', 'state': 'directory', 'mode': '")[2][:4]
        self.data.mkdir()
        self.data.chmod(int(mode, 8))

    def job_of(self, uid: int) -> None:
        """What slurmd does before a job."""
        environment = {**os.environ, "SLURM_JOB_UID": str(uid), "SLURM_JOB_GID": str(uid)}
        assert subprocess.run([str(self.prolog)], env=environment, check=False).returncode == 0

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The program itself."""
        return subprocess.run(
            [str(self.program), *words, str(self.data)], capture_output=True, text=True, check=False
        )

    def owner(self, uid: int) -> tuple[int, int, str]:
        """Return owner, group and mode of a user's folder."""
        found = (self.data / f"user-{uid}").lstat()
        assert stat.S_ISDIR(found.st_mode)
        return found.st_uid, found.st_gid, oct(stat.S_IMODE(found.st_mode))


@pytest.fixture
def node(as_user: Callable[..., None], open_place: Path) -> Node:
    assert as_user
    return Node(open_place)


def enroot(node: Node, uid: int) -> Callable[[], None]:
    """What enroot does: makes the folder of the user, unless there is one, and unpacks into it."""

    def use() -> None:
        folder = node.data / f"user-{uid}"
        if not folder.exists():
            folder.mkdir(mode=0o700)
        (folder / "image").mkdir(exist_ok=True)
        (folder / "image" / "sh").write_text("the user's own")

    return use


def squat(node: Node, uid: int) -> Callable[[], None]:
    """What an attacker does before: the victim's folder, open to both."""

    def make() -> None:
        folder = node.data / f"user-{uid}"
        folder.mkdir()
        folder.chmod(0o777)

    return make


def test_no_user_can_make_the_folder_of_another(node: Node, as_user: Callable[..., None]) -> None:
    with pytest.raises(AssertionError):
        as_user(MALLORY, squat(node, ALICE))
    # Nor their own: without a prolog, enroot fails and says why.
    with pytest.raises(AssertionError):
        as_user(ALICE, enroot(node, ALICE))
    node.job_of(ALICE)
    assert node.owner(ALICE) == (ALICE, ALICE, "0o700")
    as_user(ALICE, enroot(node, ALICE))
    with pytest.raises(AssertionError):
        as_user(MALLORY, (node.data / f"user-{ALICE}" / "image" / "sh").read_text)
    with pytest.raises(AssertionError):
        as_user(MALLORY, lambda: os.rename(node.data / f"user-{ALICE}", node.data / "mine"))


def a_folder(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


ATTACKS: dict[str, Callable[[Path], Any]] = {
    "folder": a_folder,
    "file": lambda path: path.write_text("x"),
    "link to root's": lambda path: path.symlink_to("/etc"),
    "link to their own": lambda path: path.symlink_to(path.parent / "user-1"),
    "link to nowhere": lambda path: path.symlink_to("nowhere"),
    "pipe": os.mkfifo,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_was_squatted_while_anybody_could_is_moved_away(
    node: Node, as_user: Callable[..., None], attack: str
) -> None:
    node.data.chmod(0o1777)
    etc = os.stat("/etc")
    as_user(MALLORY, lambda: ATTACKS[attack](node.data / f"user-{ALICE}"))
    node.job_of(ALICE)
    assert stat.S_IMODE(node.data.stat().st_mode) == user_folders.PARENT_MODE
    assert node.owner(ALICE) == (ALICE, ALICE, "0o700")
    as_user(ALICE, enroot(node, ALICE))
    assert (os.stat("/etc").st_uid, os.stat("/etc").st_mode) == (etc.st_uid, etc.st_mode)
    (aside,) = node.data.glob("refused-*")
    assert aside.lstat().st_uid == MALLORY


def test_own_folder_stays_with_what_is_in_it_and_is_closed(
    node: Node, as_user: Callable[..., None]
) -> None:
    node.job_of(ALICE)
    as_user(ALICE, enroot(node, ALICE))
    as_user(ALICE, lambda: (node.data / f"user-{ALICE}").chmod(0o777))
    node.job_of(ALICE)
    assert node.owner(ALICE)[2] == "0o700"
    assert (node.data / f"user-{ALICE}" / "image" / "sh").read_text() == "the user's own"
    before = (node.data / f"user-{ALICE}").stat().st_ctime_ns
    node.job_of(ALICE)
    assert (node.data / f"user-{ALICE}").stat().st_ctime_ns == before


def test_the_sweep_says_what_it_moved_and_a_second_one_nothing(
    node: Node, as_user: Callable[..., None]
) -> None:
    node.data.chmod(0o1777)
    as_user(MALLORY, squat(node, ALICE))
    as_user(MALLORY, lambda: (node.data / f"user-{MALLORY}").mkdir(mode=0o700))
    (node.data / ".user-7.1~").mkdir()
    first = node.run("--present")
    assert first.returncode == 0, first.stdout
    message = (
        f"moved {node.data}/user-{ALICE}: a folder of user {MALLORY}, moved to refused-user-{ALICE}"
    )
    assert message in first.stdout
    assert (node.data / f"user-{MALLORY}").exists()
    assert not (node.data / ".user-7.1~").exists()
    assert node.run("--present").stdout == ""


def test_a_parent_that_others_can_steer_gets_no_folder(
    node: Node, as_user: Callable[..., None]
) -> None:
    os.chown(node.data, MALLORY, MALLORY)
    result = node.run("--uid", str(ALICE))
    assert result.returncode == 1
    assert (
        result.stdout
        == f"refused {node.data}: belongs to user {MALLORY}: find out why, chown root\n"
    )
    # A prank of one user must not drain the node.
    node.job_of(ALICE)
    os.chown(node.data, 0, 0)
    os.chown(node.place, MALLORY, MALLORY)
    result = node.run("--uid", str(ALICE))
    assert "other users may write into it" in result.stdout
    os.chown(node.place, 0, 0)
    node.data.rmdir()
    as_user(0, (node.place / "theirs").mkdir)
    node.data.symlink_to(node.place / "theirs")
    os.lchown(node.data, MALLORY, MALLORY)
    node.place.chmod(0o777)
    assert node.run("--uid", str(ALICE)).returncode == 1
    assert not list((node.place / "theirs").iterdir())


@pytest.mark.parametrize("uid", ["", "-1", "alice", "1; touch /tmp/x"])
def test_a_prolog_without_a_user_makes_nothing(node: Node, uid: str) -> None:
    environment = {**os.environ, "SLURM_JOB_UID": uid}
    assert subprocess.run([str(node.prolog)], env=environment, check=False).returncode == 0
    assert not list(node.data.iterdir())


def test_many_jobs_of_one_user_start_at_once(node: Node) -> None:
    environment = {**os.environ, "SLURM_JOB_UID": str(ALICE), "SLURM_JOB_GID": str(ALICE)}
    node.data.chmod(0o1777)
    a_folder(node.data / f"user-{ALICE}")
    for one in [subprocess.Popen([str(node.prolog)], env=environment) for _turn in range(8)]:
        assert one.wait() == 0
    assert len(os.listdir(node.data)) == 2
    assert node.owner(ALICE) == (ALICE, ALICE, "0o700")


def test_users_present_are_those_with_processes(
    tmp_path: Path, as_user: Callable[..., None]
) -> None:
    proc = {"1": 0, "77": 105, "200": 1007, "300": 20001, "400": 61184, "500": 65534, "self": 1009}
    for name, uid in proc.items():
        (tmp_path / name).mkdir()
        os.chown(tmp_path / name, uid, uid)
    assert as_user
    assert user_folders.users_present(str(tmp_path)) == {1007, 20001}
