# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""What must be done so that accounts and users of a Slurm database are as declared. Pure.

Accounts form a tree below `root`; a user's membership in an account is an association. Slurm has
rules that dictate the order of commands, all of them seen with 22.05 and 24.11:
- an account that is removed while it has others below it leaves them without parent, and slurmdbd
  24.11 then loops over them forever: accounts go from the leaves up, and never before their users;
- the association with a user's default account cannot be removed while there are others.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any, Iterable, Mapping, Sequence

from . import values
from .values import Field, Settings

ROOT = "root"
ADMIN_LEVELS = ("none", "operator", "administrator")

TEXT_FIELDS = (
    Field("description", "descr", "description", values.TEXT),
    Field("organization", "org", "organization", values.TEXT),
)
FIELDS = (
    Field("fairshare", "share", "fairshare", values.WORD, unset="1", clear="1"),
    Field("qos", "qos", "qos", values.NAMES, unset=frozenset(), clear=""),
    Field("default_qos", "defaultqos", "defaultqos", values.NAME),
    Field("grp_tres", "grptres", "grptres", values.TRES, unset={}),
    Field("grp_jobs", "grpjobs", "grpjobs", values.INTEGER),
    Field("grp_submit_jobs", "grpsubmit", "grpsubmitjobs", values.INTEGER),
    Field("max_jobs", "maxjobs", "maxjobs", values.INTEGER),
    Field("max_submit_jobs", "maxsubmit", "maxsubmitjobs", values.INTEGER),
    Field("max_tres_per_job", "maxtres", "maxtresperjob", values.TRES, unset={}),
    Field("max_wall", "maxwall", "maxwalldurationperjob", values.MINUTES),
)
ACCOUNT_COLUMNS = ("account", "descr", "org")
ASSOCIATION_COLUMNS = (
    "cluster", "account", "parentname", "user", "partition", *(item.column for item in FIELDS),
)  # fmt: skip
BLANK: Settings = {item.option: values.empty(item) for item in FIELDS}
# slurmdbd.conf(5): by default users are kept in lower case, and no host knows jdoe for JDoe.
KEEP_CASE = "write slurm_database_options: {Parameters: PreserveCaseUser}"
_KEEPS_CASE = re.compile(r"^Parameters +=.*PreserveCaseUser", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class User:
    """A declared membership of a user in an account."""

    name: str
    settings: Settings
    # empty where this entry does not say
    admin_level: str = ""
    default_account: bool = False
    absent: bool = False


@dataclass(frozen=True)
class Account:
    """A declared account; a text of None may be anything."""

    name: str
    parent: str
    settings: Settings
    description: str | None = None
    organization: str | None = None
    users: tuple[User, ...] = ()
    absent: bool = False


@dataclass(frozen=True)
class Present:
    """What the database holds, seen from one cluster.

    parents: account → parent; accounts, members: their own settings; elsewhere: accounts and users
    that other clusters know. records are kept without any association, too. any_case: names of
    users keep their capitals, or it is not known.
    """

    cluster_known: bool = False
    parents: Mapping[str, str] = field(default_factory=dict)
    accounts: Mapping[str, Settings] = field(default_factory=dict)
    members: Mapping[tuple[str, str], Settings] = field(default_factory=dict)
    account_records: Mapping[str, Settings] = field(default_factory=dict)
    user_records: Mapping[str, str] = field(default_factory=dict)
    default_accounts: Mapping[str, str] = field(default_factory=dict)
    accounts_elsewhere: frozenset[str] = frozenset()
    users_elsewhere: frozenset[str] = frozenset()
    qos: frozenset[str] | None = None
    any_case: bool = True


def parse_present(
    cluster: str,
    cluster_rows: Iterable[Mapping[str, str]],
    account_rows: Iterable[Mapping[str, str]],
    user_rows: Iterable[Mapping[str, str]],
    default_rows: Iterable[Mapping[str, str]],
    association_rows: Iterable[Mapping[str, str]],
    qos_rows: Iterable[Mapping[str, str]],
    config: str,
) -> Present:
    """The database from rows of `sacctmgr show`, and what `show config` prints. Raises ValueError.

    Associations must be shown `wopl`, that is with their own limits, not with inherited ones; those
    of a partition are passed over.
    """
    parents: dict[str, str] = {}
    accounts: dict[str, Settings] = {}
    members: dict[tuple[str, str], Settings] = {}
    accounts_elsewhere, users_elsewhere = set(), set()
    for row in association_rows:
        if row["cluster"] != cluster:
            accounts_elsewhere.add(row["account"])
            users_elsewhere.add(row["user"])
        elif not row["user"]:
            parents[row["account"]] = row["parentname"]
            accounts[row["account"]] = values.parse_settings(FIELDS, row)
        elif not row["partition"]:
            members[(row["account"], row["user"])] = values.parse_settings(FIELDS, row)
    return Present(
        cluster_known=any(row["cluster"] == cluster for row in cluster_rows),
        parents=parents,
        accounts=accounts,
        members=members,
        account_records={
            row["account"]: values.parse_settings(TEXT_FIELDS, row) for row in account_rows
        },
        user_records={row["user"]: row["adminlevel"].lower() or "none" for row in user_rows},
        default_accounts={row["user"]: row["defaultaccount"] for row in default_rows},
        accounts_elsewhere=frozenset(accounts_elsewhere),
        users_elsewhere=frozenset(users_elsewhere - {""}),
        qos=frozenset(row["name"] for row in qos_rows),
        any_case=bool(_KEEPS_CASE.search(config)),
    )


def parse_declared(
    entries: Sequence[Mapping[str, Any]], any_case: bool = True
) -> tuple[list[Account], list[str]]:
    """Declared accounts and every error of their values; `any_case` as in Present."""
    accounts: list[Account] = []
    errors: list[str] = []
    for entry in entries:
        name = str(entry["name"])
        where = f"accounts.{name}"
        errors += _name_errors(where, name, f"write {name.lower()!r}")
        settings, problems = values.wanted_settings(FIELDS, entry, where)
        texts, more = values.wanted_settings(TEXT_FIELDS, entry, where)
        users, worse = _parse_users(entry.get("users") or [], where, any_case)
        errors += [*problems, *more, *worse]
        accounts.append(
            Account(
                name=name,
                parent="" if name == ROOT else str(entry.get("parent") or ROOT),
                # root carries what holds for all; what an entry does not name stays there
                settings=_only_given(entry, settings) if name == ROOT else settings,
                description=texts["description"],
                organization=texts["organization"],
                users=tuple(users),
                absent=entry.get("state") == "absent",
            )
        )
    return accounts, [*errors, *_contradictions(accounts)]


def _only_given(entry: Mapping[str, Any], settings: Settings) -> Settings:
    return {option: value for option, value in settings.items() if entry.get(option) is not None}


def _parse_users(
    entries: Sequence[Any], where: str, any_case: bool
) -> tuple[list[User], list[str]]:
    users: list[User] = []
    errors: list[str] = []
    known = {item.option for item in FIELDS} | {"name", "admin_level", "default_account", "state"}
    for number, entry in enumerate(entries):
        given = {"name": entry} if isinstance(entry, str) else entry
        if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
            errors.append(
                f"{where}.users.{number}: is neither a name nor a mapping with a name; write alice"
            )
            continue
        name = given["name"]
        place = f"{where}.users.{name}"
        errors += _name_errors(place, name, "" if any_case else KEEP_CASE)
        for option in sorted(set(given) - known):
            errors.append(
                f"{place}.{option}: is not an option of a user; "
                f"write one of {', '.join(sorted(known))}"
            )
        settings, problems = values.wanted_settings(FIELDS, given, place)
        errors += problems
        level = str(given.get("admin_level") or "").lower()
        if level and level not in ADMIN_LEVELS:
            errors.append(
                f"{place}.admin_level: {level!r} is not known; write {', '.join(ADMIN_LEVELS)}"
            )
        state = given.get("state") or "present"
        if state not in ("present", "absent"):
            errors.append(f"{place}.state: {state!r} is not known; write present or absent")
        users.append(
            User(name, settings, level, given.get("default_account") is True, state == "absent")
        )
    return users, errors


def _name_errors(where: str, name: str, remedy: str) -> list[str]:
    """What is wrong with a name; `remedy` is that of capitals, empty where they may be."""
    if not values.is_name(name):
        return [f"{where}.name: {name!r} is not a name; write letters, digits and _.@+-"]
    if remedy and name != name.lower():
        return [f"{where}.name: Slurm keeps it in lower case; {remedy}"]
    return []


def _contradictions(accounts: Sequence[Account]) -> list[str]:
    """What is wrong between entries: duplicates, loops, a user who is declared in two ways."""
    errors = []
    names = [account.name for account in accounts]
    errors += [
        f"accounts.{n}: is declared twice; leave one"
        for n in sorted(set(names))
        if names.count(n) > 1
    ]
    parents = {account.name: account.parent for account in accounts if not account.absent}
    for name in sorted(parents):
        way = [name]
        while parents.get(way[-1]) and parents[way[-1]] not in way:
            way.append(parents[way[-1]])
        if parents.get(way[-1]) == name and name == min(way):
            errors.append(
                f"accounts.{name}.parent: is a loop: {' > '.join([*way, name])}; leave one out"
            )
    levels: dict[str, set[str]] = defaultdict(set)
    defaults: dict[str, list[str]] = defaultdict(list)
    for account in accounts:
        if account.absent and account.name == ROOT:
            errors.append("accounts.root: is Slurm's own and cannot be removed; leave state out")
        listed = [user.name for user in account.users]
        for name in sorted({name for name in listed if listed.count(name) > 1}):
            errors.append(f"accounts.{account.name}.users.{name}: is declared twice; leave one")
        for user in account.users:
            if account.absent or user.absent:
                continue
            levels[user.name] |= {user.admin_level} - {""}
            defaults[user.name] += [account.name] if user.default_account else []
        for where, settings in _places(account):
            default = settings.get("default_qos")
            if default and settings["qos"] and default not in settings["qos"]:
                errors.append(f"{where}.default_qos: {default} is not in qos; write it there too")
    for name, given in sorted(levels.items()):
        if len(given) > 1:
            errors.append(f"user {name}: has admin_level {' and '.join(sorted(given))}; leave one")
    for name, given_in in sorted(defaults.items()):
        if len(given_in) > 1:
            errors.append(
                f"user {name}: has default_account in {' and '.join(given_in)}; leave one"
            )
    return errors


def _places(account: Account) -> list[tuple[str, Settings]]:
    """Path and settings of an account and its users."""
    where = f"accounts.{account.name}"
    users = [(f"{where}.users.{user.name}", user.settings) for user in account.users]
    return [(where, account.settings), *users]


def in_tree_order(accounts: Sequence[Account]) -> list[Account]:
    """Parents before their children; loops have been refused before."""
    by_name = {account.name: account for account in accounts}

    def depth(name: str) -> int:
        steps = 0
        while name in by_name and by_name[name].parent and steps <= len(by_name):
            name, steps = by_name[name].parent, steps + 1
        return steps

    return sorted(accounts, key=lambda account: depth(account.name))


def without_qos(present: Present) -> Present:
    """The same with QOS unknown: in check mode an earlier task may have pretended to add some."""
    return replace(present, qos=None)
