# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""slurm_account against a model of slurmdbd: whatever is declared, one run brings it about."""

from __future__ import annotations

import random
import time
from unittest.mock import patch

import pytest
from sacctmgr_model import RefusedError, Sacctmgr

from ansible_collections.baremetal.dgx.plugins.module_utils._accounting import plan
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.commands import Job
from ansible_collections.baremetal.dgx.plugins.modules import slurm_account


@pytest.fixture
def bring(run_module):
    def bring(database, check=False, **params):
        with patch.object(slurm_account, "ModuleRunner", lambda _module: database):
            return run_module(slurm_account.main, {"cluster": "dgx", **params}, check)

    return bring


TREE = [
    {"name": "vision", "parent": "research", "users": ["alice", {"name": "bob", "max_jobs": 2}]},
    {"name": "research", "fairshare": 10, "qos": ["normal"], "users": ["alice"]},
    {
        "name": "other",
        "description": "Other Work",
        "users": [{"name": "eve", "admin_level": "operator"}],
    },
]


@pytest.mark.parametrize("drops_records", [True, False])
def test_check_then_real_then_again(bring, drops_records):
    database = Sacctmgr(drops_records=drops_records)
    predicted = bring(database, check=True, accounts=TREE)
    assert database.log == []
    done = bring(database, accounts=TREE)
    assert predicted["changed"] is done["changed"] is True
    assert predicted["commands"] == done["commands"] == database.log
    assert predicted["diff"] == done["diff"]
    again = bring(database, accounts=TREE)
    assert again["changed"] is False
    assert again["commands"] == []
    assert database.tree() == (
        {"research": "root", "vision": "research", "other": "root"},
        {
            "root": ["root"],
            "research": ["alice"],
            "vision": ["alice", "bob"],
            "other": ["eve"],
        },
    )
    assert database.users["eve"] == "Operator"
    assert database.accounts["other"] == ("other work", "root")


@pytest.mark.parametrize("drops_records", [True, False])
def test_everything_removed_leaves_no_record(bring, drops_records):
    database = Sacctmgr(drops_records=drops_records)
    bring(database, accounts=TREE)
    answer = bring(database, accounts=[], exclusive=True)
    assert "failed" not in answer
    assert set(database.accounts) == {"root"}
    assert set(database.users) == {"root"}
    assert bring(database, accounts=[], exclusive=True)["changed"] is False


def random_tree(dice):
    names = [f"a{number}" for number in range(dice.randint(0, 6))]
    dice.shuffle(names)
    users = [f"u{number}" for number in range(4)]
    entries = []
    for number, name in enumerate(names):
        members = []
        for user in dice.sample(users, dice.randint(0, 4)):
            limits = {"max_jobs": dice.randint(1, 3)} if dice.random() < 0.5 else {}
            members.append({"name": user, **limits} if limits else user)
        entry = {"name": name, "parent": dice.choice(["root", *names[:number]]), "users": members}
        if dice.random() < 0.3:
            entry["grp_tres"] = {"gres/gpu": dice.randint(1, 9)}
        if dice.random() < 0.3:
            entry.update(qos=["normal"], default_qos="normal")
        entries.append(entry)
    dice.shuffle(entries)
    return entries


@pytest.mark.parametrize("seed", range(25))
def test_any_tree_becomes_any_other(bring, seed):
    """Moves, removals and additions at once, in an order that the rules of Slurm allow."""
    dice = random.Random(seed)
    database = Sacctmgr(drops_records=dice.random() < 0.5)
    for _round in range(4):
        entries = random_tree(dice)
        predicted = bring(database, check=True, accounts=entries, exclusive=True)
        done = bring(database, accounts=entries, exclusive=True)
        assert "failed" not in done, done["msg"]
        assert done["commands"][: len(predicted["commands"])] == predicted["commands"]
        assert bring(database, accounts=entries, exclusive=True)["changed"] is False
        parents, members = database.tree()
        assert parents == {entry["name"]: entry["parent"] for entry in entries}
        wanted = {
            entry["name"]: sorted(u if isinstance(u, str) else u["name"] for u in entry["users"])
            for entry in entries
        }
        assert members == {"root": ["root"], **wanted}


def test_jobs_keep_an_account(bring):
    database = Sacctmgr()
    bring(database, accounts=TREE)
    database.queue = ["7|bob|vision|normal|RUNNING"]
    database.log.clear()
    answer = bring(database, accounts=[TREE[1]], exclusive=True)
    assert answer["failed"]
    assert answer["errors"] == [
        "accounts.vision: cannot be removed while it has jobs: 7 (bob, RUNNING)"
    ]
    assert database.log == []


def test_a_change_that_does_not_take_effect_is_an_error(bring):
    database = Sacctmgr()
    bring(database, accounts=TREE)
    with patch.object(Sacctmgr, "_modify_account", lambda *_args: None):
        answer = bring(database, accounts=[{"name": "other", "max_jobs": 3}])
    assert answer["failed"]
    assert "slurmdbd accepted every command, but still needs: modify account" in answer["msg"]


def test_a_failing_command_tells_what_was_done_before(bring):
    database = Sacctmgr()
    original = Sacctmgr._change

    def refuse_users(self, words):
        if words[:2] == ["add", "user"]:
            raise RefusedError("error: no space")
        return original(self, words)

    with patch.object(Sacctmgr, "_change", refuse_users):
        answer = bring(database, accounts=TREE)
    assert answer["failed"]
    assert answer["changed"] is True
    assert answer["commands"][0] == "add cluster dgx"
    assert "no space" in answer["msg"]
    assert bring(database, accounts=TREE)["changed"] is True
    assert bring(database, accounts=TREE)["changed"] is False


CAPITALS = [{"name": "research", "users": ["JDoe"]}]


def test_a_user_with_capitals_is_refused_where_slurm_makes_them_small(bring):
    """It would be jdoe after each run, whom no host knows."""
    database = Sacctmgr()
    answer = bring(database, accounts=CAPITALS)
    assert answer["errors"] == [
        (
            "accounts.research.users.JDoe.name: Slurm keeps it in lower case; "
            "write slurm_database_options: {Parameters: PreserveCaseUser}"
        )
    ]
    assert database.log == []
    # In a run that has pretended to write the option, nothing is known against it.
    assert bring(database, check=True, accounts=CAPITALS)["changed"] is True


def test_a_user_with_capitals_keeps_them_by_the_option(bring):
    database = Sacctmgr(parameters="PreserveCaseUser")
    assert bring(database, accounts=CAPITALS)["changed"] is True
    assert database.tree()[1]["research"] == ["JDoe"]
    assert bring(database, accounts=CAPITALS)["changed"] is False


GROUP = [{"name": "hpc", "group": "hpc", "users": ["alice"]}]


@pytest.fixture
def sync(bring):
    def sync(database, group, jobs=(), **params):
        with (
            patch.object(plan, "members_of", lambda _name, _people: group),
            patch.object(plan, "queued_jobs", lambda _run: list(jobs)),
        ):
            return bring(database, accounts=GROUP, **params)

    return sync


def test_members_of_a_group_come_and_go(sync):
    database = Sacctmgr()
    first = sync(database, ["bob", "carol", "dave"])
    assert database.tree()[1]["hpc"] == ["alice", "bob", "carol", "dave"]
    assert (first["changed"], first["notes"]) == (True, [])
    assert sync(database, ["bob", "carol", "dave"])["changed"] is False
    assert sync(database, ["bob", "carol"], check=True)["changed"] is True
    left = sync(database, ["bob", "carol"])
    assert (left["changed"], left["notes"]) == (True, [])
    assert database.tree()[1]["hpc"] == ["alice", "bob", "carol"]


@pytest.mark.parametrize("exclusive", [True, False])
def test_members_with_capitals_are_left_out_but_by_the_option(sync, exclusive):
    database = Sacctmgr()
    answer = sync(database, ["JDoe", "bob"], exclusive=exclusive)
    assert answer["notes"] == [
        (
            "hpc: left out for their capitals: JDoe; "
            "write slurm_database_options: {Parameters: PreserveCaseUser}"
        )
    ]
    assert database.tree()[1]["hpc"] == ["alice", "bob"]
    assert sync(database, ["JDoe", "bob"], exclusive=exclusive)["changed"] is False
    # By hand, where sssd takes both for one name.
    database._add_user(["jdoe"], {"account": "hpc", "cluster": "dgx"})
    assert sync(database, ["JDoe", "bob"], exclusive=exclusive)["changed"] is False
    kept = Sacctmgr(parameters="PreserveCaseUser")
    assert sync(kept, ["JDoe", "bob"], exclusive=exclusive)["notes"] == []
    assert kept.tree()[1]["hpc"] == ["JDoe", "alice", "bob"]
    assert sync(kept, ["JDoe", "bob"], exclusive=exclusive)["changed"] is False


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize(
    ("group", "why"),
    [
        ([], "hpc: empty all at once; u0, u1, u2, u3, u4 and 5 more stay in the account hpc"),
        (None, "hpc: unknown all at once; u0, u1"),
        (["u0", "u1", "u2"], "hpc: 7 of 10 users would leave at once, and 2 may; u3, u4"),
    ],
)
def test_a_directory_that_fails_removes_none(sync, group, why, exclusive):
    database = Sacctmgr()
    everyone = [f"u{number}" for number in range(10)]
    sync(database, everyone)
    before = database.tree()
    answer = sync(database, group, exclusive=exclusive)
    assert answer["changed"] is False
    assert answer["notes"][0].startswith(why)
    assert database.tree() == before


def test_who_has_jobs_stays_until_they_have_ended(sync):
    database = Sacctmgr()
    sync(database, ["bob", "carol"])
    job = Job("7", "carol", "hpc", "normal", "RUNNING")
    answer = sync(database, ["bob"], jobs=[job])
    assert (answer["changed"], answer["notes"]) == (
        False,
        ["hpc: kept until their jobs have ended: carol"],
    )
    assert sync(database, ["bob"])["changed"] is True
    assert database.tree()[1]["hpc"] == ["alice", "bob"]


@pytest.mark.parametrize("printed", ["2001", "nobody"])
def test_a_job_without_a_name_may_be_of_each_who_leaves(sync, printed):
    """squeue knows no name of a user whom the directory has deleted."""
    database = Sacctmgr()
    sync(database, ["bob", "carol"])
    jobs = [Job("7", printed, "hpc", "normal", "RUNNING")]
    answer = sync(database, ["bob"], jobs=jobs)
    assert (answer["changed"], answer["notes"]) == (
        False,
        [
            (
                "hpc: kept until their jobs have ended: carol; one of them may have "
                f"7 ({printed}, whose name is gone, RUNNING)"
            )
        ],
    )
    other = [Job("7", printed, "other", "normal", "RUNNING")]
    assert sync(database, ["bob"], jobs=other)["changed"] is True
    assert database.tree()[1]["hpc"] == ["alice", "bob"]


def test_a_misspelt_group_is_an_error(sync):
    database = Sacctmgr()
    assert "this host knows no group 'hpc'" in sync(database, None)["msg"]
    assert database.log == []


LARGE = {f"g{group:03}": [f"p{group:03}{one:02}" for one in range(25)] for group in range(200)}
SMALL = {f"g{group:03}": [f"p{group:03}{one}" for one in range(2)] for group in range(20)}


@pytest.fixture
def sync_all(bring):
    def sync_all(database, groups, known, jobs=(), **params):
        accounts = [{"name": name, "group": name} for name in groups]
        with (
            patch.object(plan, "members_of", lambda name, _people: known.get(name)),
            patch.object(plan, "queued_jobs", lambda _run: list(jobs)),
        ):
            return bring(database, accounts=accounts, **params)

    return sync_all


@pytest.mark.parametrize("groups", [LARGE, SMALL], ids=["large", "small"])
@pytest.mark.parametrize("left", [0, 0.5, None], ids=["empty", "halved", "gone"])
def test_a_directory_that_fails_as_a_whole_is_one_line(sync_all, groups, left):
    """Of groups of two, one each would be within the limit, and half of all people would go."""
    database = Sacctmgr()
    sync_all(database, groups, groups)
    before = database.tree()
    known = {
        name: None if left is None else names[: int(left * len(names))]
        for name, names in groups.items()
    }
    answer = sync_all(database, groups, known)
    assert answer["changed"] is False
    assert database.tree() == before
    (note,) = answer["notes"]
    total = sum(map(len, groups.values()))
    leaving = total - sum(len(names or ()) for names in known.values())
    assert note.startswith(f"{leaving} of {total} users of {len(groups)} accounts would leave")
    assert "\n" not in note
    assert len(note) < 300


def test_a_few_of_many_groups_change_without_a_word(sync_all):
    database = Sacctmgr()
    sync_all(database, LARGE, LARGE)
    known = {**LARGE, "g000": LARGE["g000"][1:], "g001": [*LARGE["g001"], "new"]}
    checked = sync_all(database, LARGE, known, check=True)
    assert checked["notes"] == []
    shown = [(one["before"] != "", one["after"] != "") for one in checked["diff"]]
    assert sorted(shown) == [(False, True), (True, False)], "one comes and one goes"
    assert sync_all(database, LARGE, known)["commands"] == checked["commands"]
    tree = database.tree()[1]
    assert (len(tree["g000"]), len(tree["g001"])) == (24, 26)


def test_five_thousand_people_are_compared_in_seconds(sync_all, slowness):
    """The time of the module itself; slurmdbd's is measured in tests/pod/test_many_people.py."""
    database = Sacctmgr()
    sync_all(database, LARGE, LARGE)
    begun = time.process_time()
    answer = sync_all(database, LARGE, LARGE)
    took = time.process_time() - begun
    assert (answer["changed"], answer["notes"]) == (False, [])
    assert took < 5 * slowness(), f"{took:.1f} s"
