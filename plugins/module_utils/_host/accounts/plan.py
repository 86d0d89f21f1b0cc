# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Local accounts: what is declared and what is found in, a plan of steps out. Pure."""

from __future__ import annotations

from typing import Mapping, Sequence

from .parse import (
    HASH_PATTERN,
    NAME_PATTERN,
    PROTECTED_HOMES,
    Plan,
    State,
    Step,
    UserEntry,
    WantedGroup,
    WantedUser,
    count_keys,
    key_identity,
    merge_keys,
)


def _duplicates(values: Sequence[tuple[str, object]]) -> list[tuple[object, list[str]]]:
    """Return each value that more than one name uses, with the names."""
    by_value: dict[object, list[str]] = {}
    for name, value in values:
        if value is not None:
            by_value.setdefault(value, []).append(name)
    return [(value, names) for value, names in by_value.items() if len(names) > 1]


def _leaving(groups: Sequence[WantedGroup], users: Sequence[WantedUser]) -> set[str]:
    """Return the groups that go: userdel takes a user's own group along (USERGROUPS_ENAB)."""
    leaving = {group.name for group in groups if not group.present}
    return leaving | {user.name for user in users if not user.present}


def _group_errors(
    state: State, groups: Sequence[WantedGroup], users: Sequence[WantedUser]
) -> list[str]:
    errors: list[str] = []
    owners = {entry.gid: entry.name for entry in state.groups.values()}
    owners.update({gid: name for name, gid in state.foreign_groups.items() if gid not in owners})
    leaving = _leaving(groups, users)
    for name, names in _duplicates([(group.name, group.name) for group in groups]):
        errors.append(f"group {name}: declared {len(names)} times; keep one entry")
    for gid, names in _duplicates([(group.name, group.gid) for group in groups if group.present]):
        if len(set(names)) > 1:
            errors.append(f"gid {gid}: declared for {', '.join(names)}; give each its own gid")
    for group in groups:
        where = f"group {group.name}"
        if not NAME_PATTERN.match(group.name):
            errors.append(f"{where}: not a group name; use lower-case letters, digits, _ and -")
            continue
        entry = state.groups.get(group.name)
        if not group.present:
            if entry and entry.gid == 0:
                errors.append(f"{where}: the group of root cannot be removed")
            continue
        if entry is None and group.name in state.foreign_groups:
            errors.append(
                f"{where}: a directory service has it (gid {state.foreign_groups[group.name]}); "
                "take it out of the inventory or out of the directory"
            )
        elif entry and group.gid is not None and entry.gid != group.gid:
            errors.append(
                f"{where}: exists with gid {entry.gid}, the inventory says {group.gid}; files on "
                f"disk carry the old number: write gid {entry.gid}, or change the node by hand"
            )
        elif group.gid is not None and owners.get(group.gid, group.name) != group.name:
            if owners[group.gid] not in leaving:
                errors.append(
                    f"{where}: gid {group.gid} belongs to group {owners[group.gid]}; "
                    "write a free gid"
                )
    return errors


def _key_errors(user: WantedUser) -> list[str]:
    errors = [
        f"user {user.name}: ssh_keys[{number}] is not an SSH public key; write one line as in "
        "an .pub file, 'ssh-ed25519 AAAA… comment'"
        for number, key in enumerate(user.keys)
        if "\n" in key.strip() or key_identity(key) is None
    ]
    if user.keys_exclusive and not user.keys:
        errors.append(
            f"user {user.name}: exclusive keys without any key would lock the user out; "
            "give a key, or leave ssh_keys_exclusive out"
        )
    if user.password is not None and not HASH_PATTERN.match(user.password):
        errors.append(
            f"user {user.name}: password is not a crypt hash; make one with 'openssl passwd -6'"
        )
    return errors


def _identity_error(
    state: State, user: WantedUser, owners: Mapping[int, str], leaving: set[str]
) -> str:
    """Return why name and number of a present user cannot go together here, or nothing."""
    where = f"user {user.name}"
    entry = state.users.get(user.name)
    if entry is None and user.name in state.foreign_users:
        return (
            f"{where}: a directory service has it (uid {state.foreign_users[user.name]}); "
            "take it out of the inventory or out of the directory"
        )
    if entry is None and user.uid is None and not user.system:
        return f"{where}: no uid; write one, it must be the same on every node"
    if entry and user.uid is not None and entry.uid != user.uid:
        return (
            f"{where}: exists with uid {entry.uid}, the inventory says {user.uid}; files on "
            f"disk carry the old number: write uid {entry.uid}, or change the node by hand"
        )
    if user.uid is not None:
        owner = owners.get(user.uid, user.name)
        if owner not in (user.name, *leaving) and entry is None:
            return f"{where}: uid {user.uid} belongs to user {owner}; write a free uid"
    return ""


def _removal_errors(state: State, user: WantedUser, home_removal_allowed: bool) -> list[str]:
    where = f"user {user.name}"
    entry = state.users.get(user.name)
    if entry is None:
        return []
    errors: list[str] = []
    if entry.uid == 0:
        return [f"{where}: uid 0 cannot be removed"]
    if user.name == state.login_user:
        errors.append(f"{where}: is the user of this very connection; connect as another first")
    if user.name in state.processes:
        errors.append(
            f"{where}: still has processes ({', '.join(state.processes[user.name])}); "
            "end them (or let the jobs end), then run again"
        )
    if user.remove_home and entry.home in state.homes:
        sharers = sorted(
            other.name
            for other in state.users.values()
            if other.name != user.name
            and (other.home == entry.home or other.home.startswith(entry.home.rstrip("/") + "/"))
        )
        if entry.home.rstrip("/") in ("", *PROTECTED_HOMES) or entry.home.count("/") < 2:
            errors.append(f"{where}: home {entry.home} is a system directory, never removed")
        elif sharers:
            errors.append(f"{where}: home {entry.home} is used by {', '.join(sharers)} too")
        elif not home_removal_allowed:
            errors.append(
                f"{where}: remove_home would delete {entry.home} and all in it; allow it with "
                "node_base_home_removal_allowed: true (home_removal_allowed of the module), "
                "or leave remove_home out"
            )
    return errors


def _user_errors(
    state: State,
    groups: Sequence[WantedGroup],
    users: Sequence[WantedUser],
    home_removal_allowed: bool,
) -> list[str]:
    errors: list[str] = []
    owners = {entry.uid: entry.name for entry in reversed(list(state.users.values()))}
    owners.update({uid: name for name, uid in state.foreign_users.items() if uid not in owners})
    leaving = {user.name for user in users if not user.present}
    known_groups = set(state.groups) | set(state.foreign_groups)
    known_groups |= {group.name for group in groups if group.present}
    known_groups -= {group.name for group in groups if not group.present}
    private = {user.name for user in users if user.present and user.group is None}
    for name, names in _duplicates([(user.name, user.name) for user in users]):
        errors.append(f"user {name}: declared {len(names)} times; keep one entry")
    for uid, names in _duplicates([(user.name, user.uid) for user in users if user.present]):
        if len(set(names)) > 1:
            errors.append(f"uid {uid}: declared for {', '.join(names)}; give each its own uid")
    for user in users:
        where = f"user {user.name}"
        if not NAME_PATTERN.match(user.name):
            errors.append(f"{where}: not a user name; use lower-case letters, digits, _ and -")
        elif not user.present:
            errors.extend(_removal_errors(state, user, home_removal_allowed))
        else:
            errors.extend(_key_errors(user))
            errors.append(_identity_error(state, user, owners, leaving))
            errors.extend(
                f"{where}: group {name} does not exist; declare it in the groups"
                for name in (user.group, *(user.groups or ()))
                if name is not None and name not in known_groups and name not in private
            )
    return [error for error in errors if error]


def _private_group_steps(
    state: State,
    groups: Sequence[WantedGroup],
    leaving: set[str],
    user: WantedUser,
    errors: list[str],
) -> list[Step]:
    """Return the step that makes the group of the user's own name, where it is missing."""
    if user.name in state.groups or any(g.name == user.name and g.present for g in groups):
        return []
    command = ["groupadd"]
    if user.system:
        command.append("--system")
    if user.uid is not None:
        taken = {entry.gid: entry.name for entry in state.groups.values()}
        taken.update({gid: name for name, gid in state.foreign_groups.items()})
        taken = {gid: name for gid, name in taken.items() if name not in leaving}
        taken.update({g.gid: g.name for g in groups if g.present and g.gid is not None})
        if user.uid in taken:
            errors.append(
                f"user {user.name}: its own group would need gid {user.uid}, which belongs to "
                f"{taken[user.uid]}; name its primary group with 'group'"
            )
        command += ["--gid", str(user.uid)]
    return [Step("command", f"group {user.name}", "create", (*command, user.name))]


def _changes_of_user(state: State, user: WantedUser, entry: UserEntry) -> list[Step]:
    """Return the usermod steps for a user that exists."""
    options: list[str] = []
    words: list[str] = []
    for flag, want, have in (
        ("--shell", user.shell, entry.shell),
        ("--comment", user.comment, entry.comment),
        ("--home", user.home, entry.home),
    ):
        if want is not None and want != have:
            options += [flag, want]
            words.append(f"{flag[2:]} {have or '-'} -> {want}")
    primary = {group.gid: group.name for group in state.groups.values()}.get(entry.gid, "")
    if user.group is not None and user.group != primary:
        options += ["--gid", user.group]
        words.append(f"group {primary or entry.gid} -> {user.group}")
    if user.groups is not None:
        have_groups = sorted(
            group.name for group in state.groups.values() if user.name in group.members
        )
        want_groups = sorted(set(user.groups) - {user.group or primary})
        if have_groups != want_groups:
            options += ["--groups", ",".join(want_groups)]
            words.append(f"groups {','.join(have_groups) or '-'} -> {','.join(want_groups) or '-'}")
    if not options:
        return []
    subject = f"user {user.name}"
    return [Step("command", subject, "; ".join(words), ("usermod", *options, user.name))]


def _steps_of_user(
    state: State,
    groups: Sequence[WantedGroup],
    leaving: set[str],
    user: WantedUser,
    errors: list[str],
) -> list[Step]:
    """Return all steps that bring one present user to what is declared."""
    subject = f"user {user.name}"
    steps: list[Step] = []
    entry = state.users.get(user.name)
    if entry is None:
        group = user.group or user.name
        if user.group is None:
            steps += _private_group_steps(state, groups, leaving, user, errors)
        home = user.home or f"/home/{user.name}"
        # The home is its own step: useradd killed half-way would leave a home without skel.
        command = ["useradd", "--no-create-home", "--gid", group, "--home-dir", home]
        command += ["--shell", user.shell or ("/usr/sbin/nologin" if user.system else "/bin/bash")]
        command += ["--system"] if user.system else []
        command += ["--uid", str(user.uid)] if user.uid is not None else []
        command += ["--comment", user.comment] if user.comment else []
        extra = sorted(set(user.groups or ()) - {group})
        command += ["--groups", ",".join(extra)] if extra else []
        number = f" with uid {user.uid}" if user.uid is not None else ""
        steps.append(Step("command", subject, f"create{number}", (*command, user.name)))
    else:
        steps += _changes_of_user(state, user, entry)
        home = user.home or entry.home
    if user.password is not None and state.hashes.get(user.name) != user.password:
        steps.append(Step("password", subject, "password (secret)", secret=user.password))
    if user.create_home and home not in state.homes:
        steps.append(Step("home", subject, f"create home {home}", path=home))
    if user.keys:
        before = state.keys.get(user.name, "")
        after = merge_keys(before, user.keys, user.keys_exclusive)
        if after != before:
            summary = f"authorized keys {count_keys(before)} -> {count_keys(after)}"
            steps.append(Step("keys", subject, summary, path=home, content=after))
    return steps


def _steps_of_removal(
    state: State,
    groups: Sequence[WantedGroup],
    users: Sequence[WantedUser],
    errors: list[str],
) -> list[Step]:
    """Return the steps that take users and groups away."""
    steps: list[Step] = []
    primary = {entry.name: entry.gid for entry in state.users.values()}
    for user in users:
        entry = state.users.get(user.name)
        if user.present or entry is None:
            continue
        subject = f"user {user.name}"
        # The home goes first: without the account its owner would not be known later.
        if user.remove_home and entry.home in state.homes:
            steps.append(Step("remove_home", subject, f"remove home {entry.home}", path=entry.home))
        steps.append(Step("command", subject, "remove", ("userdel", user.name)))
        del primary[user.name]
    for group in groups:
        found = state.groups.get(group.name)
        if group.present or found is None:
            continue
        keepers = sorted(name for name, gid in primary.items() if gid == found.gid)
        if keepers:
            errors.append(
                f"group {group.name}: is the primary group of {', '.join(keepers)}; "
                "remove or move these users first"
            )
        # Its own kind: userdel takes the user's private group along (USERGROUPS_ENAB) or does not.
        subject = f"group {group.name}"
        steps.append(Step("remove_group", subject, "remove", ("groupdel", group.name)))
    return steps


def make_plan(
    state: State,
    groups: Sequence[WantedGroup],
    users: Sequence[WantedUser],
    home_removal_allowed: bool = False,
) -> Plan:
    """Return what has to be done, or every reason why it cannot be done.

    Users leave before groups do, and both before any is made, so that a number can change its owner
    in one run; groups are made before the users that need them.
    """
    errors = _group_errors(state, groups, users)
    errors += _user_errors(state, groups, users, home_removal_allowed)
    if errors:
        return Plan(tuple(dict.fromkeys(errors)), ())
    steps = _steps_of_removal(state, groups, users, errors)
    leaving = _leaving(groups, users)
    for group in groups:
        if group.present and group.name not in state.groups:
            options = ["--system"] if group.system else []
            options += ["--gid", str(group.gid)] if group.gid is not None else []
            number = f" with gid {group.gid}" if group.gid is not None else ""
            command = ("groupadd", *options, group.name)
            steps.append(Step("command", f"group {group.name}", f"create{number}", command))
    for user in users:
        if user.present:
            steps += _steps_of_user(state, groups, leaving, user, errors)
    return Plan(tuple(dict.fromkeys(errors)), () if errors else tuple(steps))
