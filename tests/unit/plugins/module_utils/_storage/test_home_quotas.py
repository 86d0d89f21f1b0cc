# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Quotas of homes follow the groups of a directory, and a directory that fails changes none."""

from __future__ import annotations

import json
import os
import stat
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._storage import home_quotas

BYTES, FILES = "ceph.quota.max_bytes", "ceph.quota.max_files"
TIB = 1 << 40
QUOTAS = [
    {"fs": "cephfs", "path": "/home", "group": "hpc", "max_bytes": TIB, "max_files": 1000},
    {"fs": "cephfs", "path": "/home", "group": "large", "max_bytes": 10 * TIB},
    {"fs": "cephfs", "path": "/home", "group": "staff", "max_bytes": 0},
]
GROUPS = {"hpc": ["carol", "dave", "erin", "gone"], "large": ["dave"], "staff": ["erin"]}
UIDS = {"carol": 20001, "dave": 20002, "erin": 20003, "frank": 20004, "grace": 20005}
# No group lists them.
PRIMARY = {"grace": 500}


class NotThereError(RuntimeError):
    """The error of libcephfs for a path that is missing."""


class Tree:
    """The root of a file system with homes, as libcephfs shows it."""

    unset = (KeyError,)
    error = RuntimeError
    missing = NotThereError

    def __init__(self, homes: dict[str, int]) -> None:
        self.uids = {f"/home/{name}": uid for name, uid in homes.items()}
        self.attributes: dict[tuple[str, str], str] = {}
        self.written: list[str] = []
        self.closed = 0

    def opendir(self, path: str) -> Any:
        assert path == "/home"
        names = [".", "..", *(os.path.basename(path) for path in self.uids)]
        return iter([SimpleNamespace(d_name=name.encode()) for name in names])

    def readdir(self, folder: Any) -> Any:
        return next(folder, None)

    def closedir(self, folder: Any) -> None:
        self.closed += 1

    def stat(self, path: str) -> Any:
        if self.uids[path] < 0:
            raise NotThereError(path)
        return SimpleNamespace(st_mode=stat.S_IFDIR | 0o700, st_uid=self.uids[path])

    def getxattr(self, path: str, name: str) -> bytes:
        return self.attributes[path, name].encode()

    def setxattr(self, path: str, name: str, value: bytes, flags: int) -> None:
        self.attributes[path, name] = value.decode()
        self.written.append(path)

    def shutdown(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def the_people(monkeypatch: pytest.MonkeyPatch) -> None:
    def account(name: str) -> SimpleNamespace:
        return SimpleNamespace(pw_uid=UIDS[name], pw_gid=PRIMARY.get(name, 100))

    one = SimpleNamespace(getpwnam=account)
    monkeypatch.setattr(home_quotas, "pwd", one)


def run(tree: Tree, groups: dict[str, list[str]] | None = None) -> list[str]:
    known = GROUPS if groups is None else groups

    def ask(group: str) -> SimpleNamespace:
        if group not in known:
            raise LookupError(group)
        return SimpleNamespace(gr_gid=500 + list(GROUPS).index(group), gr_mem=known[group])

    config = {"version": 1, "client": "admin", "quotas": QUOTAS}
    return list(home_quotas.work(config, lambda *_words: tree, ask))


def test_the_largest_quota_of_a_persons_groups_holds() -> None:
    tree = Tree(UIDS)
    assert run(tree) == [
        f"/home/carol: max_bytes {TIB}, max_files 1000",
        f"/home/dave: max_bytes {10 * TIB}, max_files 1000",
        "/home/erin: max_files 1000",
        f"/home/grace: max_bytes {TIB}, max_files 1000",
    ]
    assert tree.attributes == {
        ("/home/carol", BYTES): str(TIB),
        ("/home/carol", FILES): "1000",
        ("/home/dave", BYTES): str(10 * TIB),
        ("/home/dave", FILES): "1000",
        ("/home/erin", FILES): "1000",
        ("/home/grace", BYTES): str(TIB),
        ("/home/grace", FILES): "1000",
    }
    assert tree.closed == 2, "the folder and the file system"
    assert run(tree) == [], "a second run changes nothing"


def test_who_changes_groups_gets_another_quota_and_who_leaves_keeps_it() -> None:
    tree = Tree(UIDS)
    run(tree)
    later = {"hpc": ["dave"], "large": ["carol"], "staff": []}
    assert run(tree, later) == [
        f"/home/carol: max_bytes {10 * TIB}",
        f"/home/dave: max_bytes {TIB}",
    ]
    before = dict(tree.attributes)
    assert run(tree, {"hpc": [], "large": [], "staff": []}) == []
    assert tree.attributes == before, "an empty directory changes nothing"


def test_the_group_of_a_person_that_no_group_lists_counts_with_the_others() -> None:
    tree = Tree({"grace": 20005})
    assert run(tree, {**GROUPS, "large": ["grace"]}) == [
        f"/home/grace: max_bytes {10 * TIB}, max_files 1000"
    ]


def test_a_group_that_is_unknown_changes_nothing() -> None:
    tree = Tree(UIDS)
    with pytest.raises(LookupError):
        run(tree, {"hpc": ["carol"]})
    assert tree.written == []


def test_a_folder_of_another_person_gets_none() -> None:
    tree = Tree({"carol": 0, "dave": 20002})
    assert run(tree)[0] == "/home/carol: passed over, it is not a folder of carol"
    assert set(tree.written) == {"/home/dave"}


def test_one_home_that_cannot_be_set_ends_no_other() -> None:
    """A member without an account, and a home that was removed since it was listed."""
    groups = {**GROUPS, "hpc": ["aaron", "carol", "dave"]}
    tree = Tree({"carol": -1, "aaron": 1, "dave": 20002})
    assert run(tree, groups) == [
        "/home/aaron: passed over, this host knows no aaron",
        f"/home/dave: max_bytes {10 * TIB}, max_files 1000",
    ]
    assert set(tree.written) == {"/home/dave"}


@pytest.mark.parametrize(
    "text",
    [
        "[]", "{}", "nothing", '{"version": 1, "client": "admin"}',
        json.dumps({"version": 1, "client": "admin", "quotas": [{"group": "hpc"}]}),
        json.dumps({"version": 1, "client": "admin", "quotas": [{**QUOTAS[0], "max_byte": 1}]}),
    ],
)  # fmt: skip
def test_a_bad_configuration_is_refused(tmp_path: Any, text: str, capsys: Any) -> None:
    path = tmp_path / "config"
    path.write_text(text, encoding="utf-8")
    assert home_quotas.main(["--check-config", "--config", str(path)]) == 1
    assert capsys.readouterr().err.startswith("home-quotas: ")
    path.write_text(json.dumps({"version": 1, "client": "a", "quotas": QUOTAS}), encoding="utf-8")
    assert home_quotas.main(["--check-config", "--config", str(path)]) == 0


def test_a_group_that_this_host_does_not_know_is_named() -> None:
    with pytest.raises(LookupError, match="no-such-group: this host knows no such group"):
        home_quotas.group_of("no-such-group")
