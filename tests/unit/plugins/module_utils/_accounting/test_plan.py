# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from sacctmgr_model import CONFIG

from ansible_collections.baremetal.dgx.plugins.module_utils._accounting import (
    parse as accounting,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._accounting import (
    plan as planning,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._accounting.parse import Present
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.commands import Job, parse_table

# As `sacctmgr -nP show … wopl` of 22.05 and 24.11 prints it.
ASSOCIATIONS = """\
dgx|root||||1|normal||||||||
dgx|root||root||1|||||||||
dgx|research|root|||10|gpu,normal|gpu|gres/gpu=32|50|100|20|30|gres/gpu=8|2-00:00:00
dgx|research||alice||1|||||||||
dgx|vision|research|||1|||||||||
dgx|vision||alice||parent||||||3|||
dgx|vision||bob||1|||||||||
dgx|vision||bob|big|1|||||||||
old|archive|root|||1|||||||||
old|archive||zoe||1|||||||||
"""


def rows(text, *columns):
    return parse_table(text, columns)


def present(parameters="(null)"):
    return accounting.parse_present(
        "dgx",
        rows("dgx\nold\n", "cluster"),
        parse_table(
            "archive|archive|x\nresearch|all research|acme\nroot|default root account|root\n"
            "vision|vision|research\n",
            accounting.ACCOUNT_COLUMNS,
        ),
        rows("alice|None\nbob|Operator\nroot|Administrator\nzoe|None\n", "user", "adminlevel"),
        rows("alice|vision\nalice|vision\nbob|vision\nroot|root\n", "user", "defaultaccount"),
        parse_table(ASSOCIATIONS, accounting.ASSOCIATION_COLUMNS),
        rows("normal\ngpu\n", "name"),
        CONFIG.format(parameters=parameters),
    )


RESEARCH = {
    "name": "research",
    "description": "All Research",
    "fairshare": "10",
    "qos": ["gpu", "normal"],
    "default_qos": "gpu",
    "grp_tres": {"gres/gpu": 32},
    "grp_jobs": 50,
    "grp_submit_jobs": 100,
    "max_jobs": 20,
    "max_submit_jobs": 30,
    "max_tres_per_job": {"gres/gpu": 8},
    "max_wall": "2-00:00:00",
    "users": ["alice"],
}
VISION = {
    "name": "vision",
    "parent": "research",
    "users": [
        {"name": "alice", "fairshare": "parent", "max_jobs": 3},
        {"name": "bob", "admin_level": "operator"},
    ],
}


def plan(*entries, exclusive=False, have=None, jobs=()):
    accounts, errors = accounting.parse_declared(entries)
    assert errors == []
    have = have or present()
    removal = planning.to_remove(accounts, have, exclusive)
    return planning.plan_accounts("dgx", accounts, removal, have, jobs)


def commands(*entries, **options):
    made = plan(*entries, **options)
    assert made.errors == ()
    return [" ".join(words) for words in made.commands]


def test_present():
    have = present()
    assert have.cluster_known
    assert have.parents == {"root": "", "research": "root", "vision": "research"}
    # an association of a partition is not the user's own
    assert set(have.members) == {
        ("root", "root"),
        ("research", "alice"),
        ("vision", "alice"),
        ("vision", "bob"),
    }
    assert have.accounts["research"]["max_wall"] == 2880
    assert have.accounts_elsewhere == {"archive"}
    assert have.users_elsewhere == {"zoe"}


def test_what_is_there_needs_nothing():
    made = plan(VISION, RESEARCH)
    assert made.commands == ()
    assert planning.diff_of(made) == []
    assert plan(VISION, RESEARCH, exclusive=True).commands == ()


def test_only_what_differs_is_sent():
    research = {**RESEARCH, "grp_tres": {"cpu": 5}, "default_qos": None, "organization": "Else"}
    vision = {**VISION, "parent": "root", "users": [{"name": "alice"}, "bob"]}
    assert commands(research, vision) == [
        (
            "modify account where name=research cluster=dgx set defaultqos=-1"
            " grptres=cpu=5,gres/gpu=-1"
        ),
        "modify account where name=research set organization=else",
        "modify account where name=vision cluster=dgx set parent=root",
        "modify user where name=alice account=vision cluster=dgx set fairshare=1 maxjobs=-1",
        "modify user where name=bob set adminlevel=none",
    ]


def test_an_empty_database():
    made = commands(VISION, RESEARCH, {"name": "a", "users": ["u1", "u2", "bob"]}, have=Present())
    assert made == [
        "add cluster dgx",
        (
            "add account research cluster=dgx parent=root description=all research fairshare=10"
            " qos=gpu,normal defaultqos=gpu grptres=gres/gpu=32 grpjobs=50 grpsubmitjobs=100"
            " maxjobs=20 maxsubmitjobs=30 maxtresperjob=gres/gpu=8 maxwalldurationperjob=2-00:00:00"
        ),
        "add account a cluster=dgx parent=root",
        "add account vision cluster=dgx parent=research",
        "add user name=alice cluster=dgx account=research",
        "add user name=u1,u2,bob cluster=dgx account=a",
        "add user name=alice cluster=dgx account=vision fairshare=parent maxjobs=3",
        "add user name=bob cluster=dgx account=vision",
        "modify user where name=bob set adminlevel=operator",
    ]


def test_many_users_need_few_commands():
    made = commands({"name": "a", "users": [f"u{n}" for n in range(250)]})
    assert len(made) == 4
    assert made[1].startswith("add user name=u0,u1,")


def test_of_root_only_what_is_given_changes():
    assert commands({"name": "root", "max_jobs": 9}) == [
        "modify account where name=root cluster=dgx set maxjobs=9"
    ]
    assert commands({"name": "root", "users": ["root"]}) == []


@pytest.mark.parametrize(
    ("entries", "exclusive", "expected"),
    [
        pytest.param(
            [RESEARCH, {**VISION, "users": [VISION["users"][0]]}], False, [], id="others are left"
        ),
        pytest.param(
            [RESEARCH, {**VISION, "users": [VISION["users"][0]]}],
            True,
            ["delete user where name=bob account=vision cluster=dgx"],
            id="exclusive",
        ),
        pytest.param(
            [RESEARCH, {**VISION, "users": [{"name": "bob", "state": "absent"}]}],
            False,
            ["delete user where name=bob account=vision cluster=dgx"],
            id="absent user",
        ),
        pytest.param(
            [RESEARCH, {"name": "vision", "state": "absent"}],
            False,
            [
                "modify user where name=alice cluster=dgx set defaultaccount=research",
                "delete user where name=alice account=vision cluster=dgx",
                "delete user where name=bob account=vision cluster=dgx",
                "delete account where name=vision",
            ],
            id="the default account goes last or moves",
        ),
        pytest.param(
            [],
            True,
            [
                "delete user where name=alice account=research cluster=dgx",
                "delete user where name=alice,bob account=vision cluster=dgx",
                "delete account where name=vision",
                "delete account where name=research",
            ],
            id="everything, from the leaves up",
        ),
    ],
)
def test_removal(entries, exclusive, expected):
    assert commands(*entries, exclusive=exclusive) == expected


def test_an_account_of_another_cluster_keeps_its_record():
    have = present()
    elsewhere = Present(**{**vars(have), "accounts_elsewhere": frozenset(["vision"])})
    made = commands(RESEARCH, {"name": "vision", "state": "absent"}, have=elsewhere)
    assert made[-1] == "delete account where name=vision cluster=dgx"


def test_records_that_nothing_refers_to():
    have = present()
    left = Present(
        **{
            **vars(have),
            "account_records": {**have.account_records, "ghost": {}},
            "user_records": {**have.user_records, "gone": "operator"},
        }
    )
    assert commands(RESEARCH, VISION, have=left) == []
    cleared = ["delete account where name=ghost", "delete user where name=gone"]
    assert commands(RESEARCH, VISION, have=left, exclusive=True) == cleared
    absent = {**RESEARCH, "users": ["alice", {"name": "gone", "state": "absent"}]}
    ghost = {"name": "ghost", "state": "absent"}
    assert commands(absent, VISION, ghost, have=left) == cleared


def test_default_accounts():
    research = {**RESEARCH, "users": [{"name": "alice", "default_account": True}, "carol"]}
    vision = {**VISION, "users": [*VISION["users"], {"name": "carol", "default_account": True}]}
    assert commands(research, vision) == [
        "add user name=carol cluster=dgx account=research",
        "add user name=carol cluster=dgx account=vision",
        "modify user where name=alice cluster=dgx set defaultaccount=research",
        "modify user where name=carol cluster=dgx set defaultaccount=vision",
    ]


JOBS = [Job("7", "bob", "vision", "normal", "RUNNING"), Job("8", "eve", "other", "x", "PENDING")]


@pytest.mark.parametrize(
    ("entries", "errors"),
    [
        (
            [{"name": "research", "state": "absent"}],
            [
                (
                    "accounts.research: cannot be removed, it is the parent of vision; remove these"
                    " as well or give them another parent"
                )
            ],
        ),
        (
            [{"name": "vision", "state": "absent"}],
            ["accounts.vision: cannot be removed while it has jobs: 7 (bob, RUNNING)"],
        ),
        (
            [
                {
                    "name": "vision",
                    "parent": "research",
                    "users": [{"name": "bob", "state": "absent"}],
                }
            ],
            ["accounts.vision.users.bob: cannot be removed while it has jobs: 7 (bob, RUNNING)"],
        ),
        ([{"name": "a", "parent": "b"}], ["accounts.a.parent: there is no account b"]),
        (
            [{"name": "a", "qos": ["x"], "users": [{"name": "u", "default_qos": "y"}]}],
            [
                "accounts.a.qos: there is no QOS x; declare it with slurm_qos first",
                (
                    "accounts.a.users.u.default_qos: there is no QOS y; declare it with slurm_qos"
                    " first"
                ),
            ],
        ),
    ],
)
def test_plans_that_are_refused(entries, errors):
    made = plan(*entries, jobs=JOBS)
    assert list(made.errors) == errors
    assert made.commands == ()


@pytest.mark.parametrize("printed", ["2001", "nobody"])
def test_a_job_without_a_name_may_be_of_each_who_is_removed(printed):
    """squeue knows no name of a user whom the directory has deleted."""
    entry = {**VISION, "users": [VISION["users"][0], {"name": "bob", "state": "absent"}]}
    made = plan(RESEARCH, entry, jobs=[Job("7", printed, "vision", "normal", "RUNNING")])
    assert made.commands == ()
    assert made.errors == (
        (
            "accounts.vision.users.bob: cannot be removed while it has jobs: "
            f"7 ({printed}, whose name is gone, RUNNING)"
        ),
    )
    other = [Job("7", printed, "research", "normal", "RUNNING")]
    assert commands(RESEARCH, entry, jobs=other) == commands(RESEARCH, entry)


def test_in_check_mode_a_qos_may_be_missing():
    have = accounting.without_qos(present())
    assert commands({"name": "a", "qos": ["x"]}, have=have) == [
        "add account a cluster=dgx parent=root qos=x"
    ]


@pytest.mark.parametrize(
    ("entries", "error"),
    [
        ([{"name": "A"}], "accounts.A.name: Slurm keeps it in lower case; write 'a'"),
        ([{"name": "a b"}], "accounts.a b.name: 'a b' is not a name"),
        ([{"name": "a"}, {"name": "a"}], "accounts.a: is declared twice"),
        ([{"name": "a", "users": ["u", "u"]}], "accounts.a.users.u: is declared twice"),
        ([{"name": "a", "users": [3]}], "accounts.a.users.0: is neither a name nor a map"),
        ([{"name": "a", "users": [{"name": "u", "limit": 3}]}], "accounts.a.users.u.limit: is not"),
        ([{"name": "a", "users": [{"name": "u", "state": "off"}]}], "accounts.a.users.u.state: "),
        (
            [{"name": "a", "users": [{"name": "u", "admin_level": "boss"}]}],
            "accounts.a.users.u.admin_level: 'boss' is not known; write none, operator",
        ),
        (
            [
                {"name": "a", "users": [{"name": "u", "admin_level": "operator"}]},
                {"name": "b", "users": [{"name": "u", "admin_level": "none"}]},
            ],
            "user u: has admin_level none and operator",
        ),
        (
            [
                {"name": "a", "users": [{"name": "u", "default_account": True}]},
                {"name": "b", "users": [{"name": "u", "default_account": True}]},
            ],
            "user u: has default_account in a and b",
        ),
        (
            [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}],
            "accounts.a.parent: is a loop: a > b > a",
        ),
        ([{"name": "a", "parent": "a"}], "accounts.a.parent: is a loop: a > a"),
        ([{"name": "root", "state": "absent"}], "accounts.root: is Slurm's own"),
        ([{"name": "a", "qos": ["x"], "default_qos": "y"}], "accounts.a.default_qos: y is not in"),
        ([{"name": "a", "max_wall": 7200}], "accounts.a.max_wall: 7200 is a number; write times"),
    ],
)
def test_declarations_that_are_refused(entries, error):
    errors = accounting.parse_declared(entries)[1]
    assert len(errors) == 1
    assert errors[0].startswith(error)


def test_a_user_with_capitals_needs_an_option_of_slurmdbd():
    entries = [{"name": "a", "users": ["alice", {"name": "JDoe"}]}]
    assert not present().any_case
    assert accounting.parse_declared(entries, any_case=False)[1] == [
        (
            "accounts.a.users.JDoe.name: Slurm keeps it in lower case; "
            "write slurm_database_options: {Parameters: PreserveCaseUser}"
        )
    ]
    # slurmdbd looks for the word in any case.
    for parameters in ("PreserveCaseUser", "preservecaseuser,other"):
        assert present(parameters).any_case
    assert accounting.parse_declared(entries)[1] == []


def test_an_admin_level_given_once_holds_everywhere():
    entries = [
        {"name": "vision", "parent": "research", "users": ["bob"]},
        {"name": "other", "users": [{"name": "bob", "admin_level": "administrator"}]},
    ]
    assert commands(*entries)[-1] == "modify user where name=bob set adminlevel=administrator"


def test_diff():
    made = plan(
        {**RESEARCH, "max_jobs": 21}, {**VISION, "users": [{"name": "bob", "state": "absent"}]}
    )
    account, user = planning.diff_of(made)
    assert account["before_header"] == "account research"
    assert "max_jobs: 20\n" in account["before"]
    assert "max_jobs: 21\n" in account["after"]
    assert (user["before"], user["after"]) == ("state: present\nadmin_level: operator\n", "")
