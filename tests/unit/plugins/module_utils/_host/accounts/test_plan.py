# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans are carried out on a model of the node, killed at every step, and rebuilt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._host.accounts.parse import (
    GroupEntry,
    State,
    UserEntry,
    WantedGroup,
    WantedUser,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host.accounts.plan import make_plan

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE/wwyhpHlXOwCL0FJc6Vap9x15wHpJmqNXVxMOMv8kJ alice"
HASH = "$6$salt$notahashofanything"

NODE = State(
    users={
        "root": UserEntry("root", 0, 0, "root", "/root", "/bin/bash"),
        "old": UserEntry("old", 2009, 2009, "", "/home/old", "/bin/bash"),
        "ops": UserEntry("ops", 1000, 1000, "Ops", "/home/ops", "/bin/bash"),
    },
    groups={
        "root": GroupEntry("root", 0),
        "old": GroupEntry("old", 2009),
        "ops": GroupEntry("ops", 1000),
        "docker": GroupEntry("docker", 900, ("ops",)),
    },
    homes={"/root", "/home/old", "/home/ops"},
    login_user="ops",
)


class Model:
    """The account files, and useradd and its siblings as their manuals describe them."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.users, self.groups = dict(state.users), dict(state.groups)
        self.keys, self.hashes = dict(state.keys), dict(state.hashes)
        self.homes = set(state.homes)

    def after(self) -> State:
        return replace(
            self.state,
            users=self.users,
            groups=self.groups,
            keys=self.keys,
            hashes=self.hashes,
            homes=self.homes,
        )

    def join(self, user, names):
        for group in list(self.groups.values()):
            members = set(group.members) - {user} | ({user} if group.name in names else set())
            self.groups[group.name] = replace(group, members=tuple(sorted(members)))

    def groupadd(self, name, options):
        numbers = {group.gid for group in self.groups.values()}
        gid = int(options.get("--gid") or next(n for n in range(990, 0, -1) if n not in numbers))
        assert gid not in numbers, "groupadd would refuse"
        self.groups[name] = GroupEntry(name, gid)

    def groupdel(self, name, options):
        if name in self.groups:
            assert self.groups[name].gid not in {user.gid for user in self.users.values()}
            del self.groups[name]

    def useradd(self, name, options):
        uid = int(options.get("--uid") or 991)
        assert uid not in {user.uid for user in self.users.values()}, "useradd would refuse"
        gid = self.groups[options["--gid"]].gid
        comment, home = options.get("--comment", ""), options["--home-dir"]
        self.users[name] = UserEntry(name, uid, gid, comment, home, options["--shell"])
        self.join(name, options.get("--groups", "").split(","))

    def usermod(self, name, options):
        entry = self.users[name]
        self.users[name] = replace(
            entry,
            shell=options.get("--shell", entry.shell),
            home=options.get("--home", entry.home),
            comment=options.get("--comment", entry.comment),
            gid=self.groups[options["--gid"]].gid if "--gid" in options else entry.gid,
        )
        if "--groups" in options:
            self.join(name, options["--groups"].split(","))

    def userdel(self, name, options):
        gid = self.users.pop(name).gid
        if name in self.groups and self.groups[name].gid == gid:
            del self.groups[name]


def carry_out(state: State, step) -> State:
    """The node after one step."""
    model = Model(state)
    name = step.subject.split(" ", 1)[1]
    if step.kind in ("command", "remove_group"):
        tool, *words, last = step.command
        assert last == name
        words = [word for word in words if word not in ("--system", "--no-create-home")]
        getattr(model, tool)(name, dict(zip(words[::2], words[1::2], strict=True)))
    elif step.kind == "password":
        model.hashes[name] = step.secret
    elif step.kind == "home":
        model.homes.add(step.path)
    elif step.kind == "keys":
        model.keys[name] = step.content
    else:
        assert step.kind == "remove_home"
        model.homes.discard(step.path)
    return model.after()


def converge(state: State, groups, users, kill_after: int | None = None) -> State:
    plan = make_plan(state, groups, users, home_removal_allowed=True)
    assert plan.errors == ()
    for step in plan.steps[:kill_after]:
        state = carry_out(state, step)
    return state


SCENARIOS = {
    "new user": ([], [WantedUser("alice", uid=2001)]),
    "everything at once": (
        [WantedGroup("research", 3000), WantedGroup("hpc"), WantedGroup("docker", present=False)],
        [
            WantedUser("alice", uid=2001, groups=("research", "hpc"), keys=(KEY,), password=HASH),
            WantedUser("bob", uid=2002, group="research", shell="/bin/sh", home="/srv/bob"),
            WantedUser("svc", system=True, create_home=False),
            WantedUser("ops", comment="Operations", groups=(), shell="/bin/sh"),
            WantedUser("old", present=False, remove_home=True),
        ],
    ),
    "a number changes its owner": (
        [WantedGroup("new", 2009)],
        [WantedUser("new", uid=2009), WantedUser("old", present=False)],
    ),
    "a user's own group gets the number of a user who leaves": (
        [],
        [WantedUser("new", uid=2009), WantedUser("old", present=False)],
    ),
    "keys for root": ([], [WantedUser("root", keys=(KEY,), keys_exclusive=True)]),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_second_run_has_nothing_to_do(name):
    groups, users = SCENARIOS[name]
    after = converge(NODE, groups, users)
    assert after != NODE
    assert make_plan(after, groups, users, home_removal_allowed=True).steps == ()


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_after_any_step_it_converges(name):
    groups, users = SCENARIOS[name]
    whole = converge(NODE, groups, users)
    steps = make_plan(NODE, groups, users, home_removal_allowed=True).steps
    for done in range(len(steps)):
        assert converge(converge(NODE, groups, users, done), groups, users) == whole


def test_the_outcome_is_what_was_declared():
    after = converge(NODE, *SCENARIOS["everything at once"])
    assert after.users["alice"] == UserEntry("alice", 2001, 2001, "", "/home/alice", "/bin/bash")
    assert after.groups["alice"].gid == 2001
    assert after.users["bob"] == UserEntry("bob", 2002, 3000, "", "/srv/bob", "/bin/sh")
    assert after.groups["research"].members == ("alice",)
    assert after.users["svc"].shell == "/usr/sbin/nologin"
    assert after.users["ops"].comment == "Operations"
    assert after.users["ops"].shell == "/bin/sh"
    assert "old" not in after.users
    assert "old" not in after.groups
    assert "docker" not in after.groups
    assert after.homes == {"/root", "/home/ops", "/home/alice", "/srv/bob"}
    assert after.keys["alice"].strip() == KEY
    assert after.hashes == {"alice": HASH}


def test_what_is_not_given_is_left_alone():
    assert make_plan(NODE, [], [WantedUser("ops")]).steps == ()
    assert make_plan(NODE, [WantedGroup("docker")], []).steps == ()
    assert make_plan(NODE, [], [WantedUser("nobody-knows", present=False)]).steps == ()


def test_no_secret_in_summary_or_repr():
    plan = make_plan(NODE, [], [WantedUser("ops", password=HASH)])
    assert [step.summary for step in plan.steps] == ["password (secret)"]
    assert HASH not in repr(plan)
    assert HASH not in repr(WantedUser("ops", password=HASH))


FOREIGN = replace(NODE, foreign_users={"ldap": 5000}, foreign_groups={"ldapgrp": 6000})
BUSY = replace(NODE, processes={"old": ("4711 python3",)})

REFUSALS = [
    # state, groups, users, what the error says
    (
        NODE,
        [],
        [WantedUser("ops", uid=1001)],
        "user ops: exists with uid 1000, the inventory says 1001",
    ),
    (NODE, [], [WantedUser("alice", uid=1000)], "user alice: uid 1000 belongs to user ops"),
    (
        NODE,
        [],
        [WantedUser("alice", uid=900)],
        "its own group would need gid 900, which belongs to docker",
    ),
    (NODE, [], [WantedUser("alice")], "user alice: no uid"),
    (NODE, [], [WantedUser("Alice", uid=2001)], "user Alice: not a user name"),
    (NODE, [], [WantedUser("a", uid=5), WantedUser("a", uid=6)], "user a: declared 2 times"),
    (NODE, [], [WantedUser("a", uid=5), WantedUser("b", uid=5)], "uid 5: declared for a, b"),
    (NODE, [], [WantedUser("alice", uid=2001, groups=("none",))], "group none does not exist"),
    (NODE, [], [WantedUser("alice", uid=2001, group="none")], "group none does not exist"),
    (
        NODE,
        [],
        [WantedUser("ops", keys=("hello",))],
        "user ops: ssh_keys[0] is not an SSH public key",
    ),
    (NODE, [], [WantedUser("ops", keys_exclusive=True)], "exclusive keys without any key"),
    (NODE, [], [WantedUser("ops", password="secret")], "password is not a crypt hash"),
    (NODE, [], [WantedUser("root", present=False)], "uid 0 cannot be removed"),
    (NODE, [], [WantedUser("ops", present=False)], "is the user of this very connection"),
    (BUSY, [], [WantedUser("old", present=False)], "still has processes (4711 python3)"),
    (FOREIGN, [], [WantedUser("ldap", uid=5000)], "a directory service has it (uid 5000)"),
    (FOREIGN, [], [WantedUser("alice", uid=5000)], "uid 5000 belongs to user ldap"),
    (
        NODE,
        [WantedGroup("docker", 901)],
        [],
        "group docker: exists with gid 900, the inventory says 901",
    ),
    (NODE, [WantedGroup("hpc", 900)], [], "group hpc: gid 900 belongs to group docker"),
    (NODE, [WantedGroup("a", 5), WantedGroup("b", 5)], [], "gid 5: declared for a, b"),
    (NODE, [WantedGroup("a"), WantedGroup("a")], [], "group a: declared 2 times"),
    (NODE, [WantedGroup("a b")], [], "group a b: not a group name"),
    (NODE, [WantedGroup("root", present=False)], [], "the group of root cannot be removed"),
    (NODE, [WantedGroup("ops", present=False)], [], "is the primary group of ops"),
    (FOREIGN, [WantedGroup("ldapgrp", 6000)], [], "a directory service has it (gid 6000)"),
    (FOREIGN, [WantedGroup("hpc", 6000)], [], "gid 6000 belongs to group ldapgrp"),
]


@pytest.mark.parametrize(
    ("state", "groups", "users", "message"), REFUSALS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_refusal(state, groups, users, message):
    plan = make_plan(state, groups, users, home_removal_allowed=True)
    assert plan.steps == ()
    assert len(plan.errors) == 1
    assert message in plan.errors[0]
    assert "secret" not in plan.errors[0]


def test_all_errors_come_at_once():
    plan = make_plan(NODE, [WantedGroup("docker", 1)], [WantedUser("ops", uid=1), WantedUser("x")])
    assert len(plan.errors) == 3


def test_home_goes_only_with_consent():
    users = [WantedUser("old", present=False, remove_home=True)]
    assert "node_base_home_removal_allowed" in make_plan(NODE, [], users).errors[0]
    steps = make_plan(NODE, [], users, home_removal_allowed=True).steps
    # without the account the owner of a half removed home is not known
    assert [step.kind for step in steps] == ["remove_home", "command"]


@pytest.mark.parametrize("home", ["/", "/root", "/home", "/home/", "/nonexistent", "/var", "/data"])
def test_homes_of_the_system_are_never_removed(home):
    users = {**NODE.users, "old": replace(NODE.users["old"], home=home)}
    state = replace(NODE, users=users, homes={home})
    plan = make_plan(state, [], [WantedUser("old", present=False, remove_home=True)], True)
    assert "never removed" in plan.errors[0]


@pytest.mark.parametrize("other", ["/home/old", "/home/old/sub"])
def test_homes_that_others_use_are_not_removed(other):
    users = {**NODE.users, "ops": replace(NODE.users["ops"], home=other)}
    plan = make_plan(
        replace(NODE, users=users), [], [WantedUser("old", present=False, remove_home=True)], True
    )
    assert "used by ops too" in plan.errors[0]
