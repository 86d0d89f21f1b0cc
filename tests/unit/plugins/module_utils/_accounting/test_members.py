# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who of a group becomes a user of an account; what follows from it is in test_slurm_account.py."""

from __future__ import annotations

import grp
import pwd

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._accounting import members
from ansible_collections.baremetal.dgx.plugins.module_utils._accounting.parse import Present

# As `getent group` and `getent passwd` print them.
GROUPS = "hpc:x:3000:bob,alice\nold:x:3001:\nstaff:x:3002:\n"
PASSWD = """\
root:x:0:0:root:/root:/bin/bash
alice:x:2001:3000::/home/alice:/bin/bash
carol:x:2002:3000::/home/carol:/bin/bash
dave:x:2003:3002::/home/dave:/bin/bash
"""


@pytest.fixture(autouse=True)
def host(monkeypatch):
    found = {}
    for line in GROUPS.splitlines():
        name, word, number, listed = line.split(":")
        found[name] = grp.struct_group(
            (name, word, int(number), listed.split(",") if listed else [])
        )
    people = []
    for line in PASSWD.splitlines():
        name, word, uid, gid, *rest = line.split(":")
        people.append(pwd.struct_passwd((name, word, int(uid), int(gid), *rest)))
    monkeypatch.setattr(grp, "getgrnam", found.__getitem__)
    monkeypatch.setattr(pwd, "getpwall", lambda: people)


@pytest.mark.parametrize(
    ("group", "names"),
    [("hpc", ["alice", "bob", "carol"]), ("staff", ["dave"]), ("old", []), ("none", None)],
)
def test_those_whose_primary_group_it_is_are_members(group, names):
    assert members.members_of(group, members.by_primary_group()) == names


def users(found, any_case=True, **entry):
    """Return the users of the account hpc, and the notes."""
    entries = [{"name": "hpc", "group": "hpc", **entry}]
    present = Present(any_case=any_case)
    made, notes = members.with_members(entries, present, 0.2, lambda _group: found, list)
    return made[0].get("users"), notes


def test_an_empty_group_makes_an_account_without_users_and_says_so():
    assert users([]) == (None, ["hpc: empty; the account hpc has no users"])
    declared = users([], users=["alice"])
    assert declared == (["alice"], ["hpc: empty; the account hpc has no other users"])
    assert users([], state="absent") == (None, [])
    assert users(["bob"]) == (["bob"], [])


def test_names_that_slurm_would_change_are_left_out_with_the_remedy():
    why = "hpc: left out for their capitals: JDoe; write slurm_database_options: "
    assert users(["JDoe", "bob"], any_case=False) == (
        ["bob"],
        [why + "{Parameters: PreserveCaseUser}"],
    )
    assert users(["JDoe", "bob"]) == (["JDoe", "bob"], [])


def test_names_that_slurm_cannot_have_are_left_out():
    why = "hpc: Domain Users cannot be a user of Slurm, and is left out"
    assert users(["Domain Users", "bob"], any_case=False) == (["bob"], [why])
