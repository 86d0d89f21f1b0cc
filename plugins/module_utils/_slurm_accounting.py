# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""What must be done so that accounts and users of a Slurm database are as declared. Pure.

Accounts form a tree below `root`; a user's membership in an account is an association. Slurm has
rules that dictate the order of commands, all of them seen with 22.05 and 24.11:
- an account that is removed while it has others below it leaves them without parent, and slurmdbd
  24.11 then loops over them for ever: accounts go from the leaves up, and never before their users;
- the association with a user's default account cannot be removed while there are others.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any, Iterable, Mapping, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils import _slurm_values as values
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_tools import Job, name_jobs
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_values import Field, Settings

ROOT = "root"
ADMIN_LEVELS = ("none", "operator", "administrator")
# sacctmgr takes a list of users in one command; a command line has its limits
_BATCH = 100

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
    """A declared account; texts that are None may be anything."""

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
    that other clusters know. records are kept without any association, too.
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


@dataclass(frozen=True)
class AccountPlan:
    """sacctmgr commands in order, every error, and before and after as lines for a diff."""

    commands: tuple[tuple[str, ...], ...] = ()
    errors: tuple[str, ...] = ()
    before: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    after: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def parse_present(
    cluster: str,
    cluster_rows: Iterable[Mapping[str, str]],
    account_rows: Iterable[Mapping[str, str]],
    user_rows: Iterable[Mapping[str, str]],
    default_rows: Iterable[Mapping[str, str]],
    association_rows: Iterable[Mapping[str, str]],
    qos_rows: Iterable[Mapping[str, str]],
) -> Present:
    """The database from rows of `sacctmgr show`. Raises ValueError.

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
    )


def parse_declared(entries: Sequence[Mapping[str, Any]]) -> tuple[list[Account], list[str]]:
    """Declared accounts and every error of their values."""
    accounts: list[Account] = []
    errors: list[str] = []
    for entry in entries:
        name = str(entry["name"])
        where = f"accounts.{name}"
        errors += _name_errors(where, name, lower=True)
        settings, problems = values.wanted_settings(FIELDS, entry, where)
        texts, more = values.wanted_settings(TEXT_FIELDS, entry, where)
        users, worse = _parse_users(entry.get("users") or [], where)
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


def _parse_users(entries: Sequence[Any], where: str) -> tuple[list[User], list[str]]:
    users: list[User] = []
    errors: list[str] = []
    known = {item.option for item in FIELDS} | {"name", "admin_level", "default_account", "state"}
    for number, entry in enumerate(entries):
        given = {"name": entry} if isinstance(entry, str) else entry
        if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
            errors.append(f"{where}.users.{number}: is neither a name nor a dictionary with a name")
            continue
        name = given["name"]
        place = f"{where}.users.{name}"
        errors += _name_errors(place, name, lower=False)
        for option in sorted(set(given) - known):
            errors.append(f"{place}.{option}: is not an option of a user")
        settings, problems = values.wanted_settings(FIELDS, given, place)
        errors += problems
        level = str(given.get("admin_level") or "").lower()
        if level and level not in ADMIN_LEVELS:
            errors.append(f"{place}.admin_level: {level!r} is not one of {', '.join(ADMIN_LEVELS)}")
        state = given.get("state") or "present"
        if state not in ("present", "absent"):
            errors.append(f"{place}.state: {state!r} is not one of present, absent")
        users.append(
            User(name, settings, level, given.get("default_account") is True, state == "absent")
        )
    return users, errors


def _name_errors(where: str, name: str, lower: bool) -> list[str]:
    if not values.is_name(name):
        return [f"{where}.name: {name!r} is not a name"]
    if lower and name != name.lower():
        return [f"{where}.name: Slurm keeps it in lower case, write {name.lower()!r}"]
    return []


def _contradictions(accounts: Sequence[Account]) -> list[str]:
    """What is wrong between entries: duplicates, loops, a user who is declared in two ways."""
    errors = []
    names = [account.name for account in accounts]
    errors += [f"accounts.{n}: is declared twice" for n in sorted(set(names)) if names.count(n) > 1]
    parents = {account.name: account.parent for account in accounts if not account.absent}
    for name in sorted(parents):
        way = [name]
        while parents.get(way[-1]) and parents[way[-1]] not in way:
            way.append(parents[way[-1]])
        if parents.get(way[-1]) == name and name == min(way):
            errors.append(f"accounts.{name}.parent: is a loop: {' > '.join([*way, name])}")
    levels: dict[str, set[str]] = defaultdict(set)
    defaults: dict[str, list[str]] = defaultdict(list)
    for account in accounts:
        if account.absent and account.name == ROOT:
            errors.append("accounts.root: is Slurm's own and cannot be removed")
        listed = [user.name for user in account.users]
        for name in sorted({name for name in listed if listed.count(name) > 1}):
            errors.append(f"accounts.{account.name}.users.{name}: is declared twice")
        for user in account.users:
            if account.absent or user.absent:
                continue
            levels[user.name] |= {user.admin_level} - {""}
            defaults[user.name] += [account.name] if user.default_account else []
        for where, settings in _places(account):
            default = settings.get("default_qos")
            if default and settings["qos"] and default not in settings["qos"]:
                errors.append(f"{where}.default_qos: {default} is not in qos")
    for name, given in sorted(levels.items()):
        if len(given) > 1:
            errors.append(f"user {name}: has admin_level {' and '.join(sorted(given))}")
    for name, given_in in sorted(defaults.items()):
        if len(given_in) > 1:
            errors.append(f"user {name}: has default_account in {' and '.join(given_in)}")
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


@dataclass(frozen=True)
class Removal:
    """What goes: memberships (account, user), accounts, and records that nothing refers to."""

    members: tuple[tuple[str, str], ...] = ()
    accounts: tuple[str, ...] = ()
    account_records: tuple[str, ...] = ()
    user_records: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """True when there is something to remove."""
        return bool(self.members or self.accounts or self.account_records or self.user_records)


def to_remove(accounts: Sequence[Account], present: Present, exclusive: bool) -> Removal:
    """What must be removed, as far as it is there."""
    kept = {account.name for account in accounts if not account.absent} | {ROOT}
    gone = {account.name for account in accounts if account.absent}
    if exclusive:
        gone |= {name for name in present.accounts if name not in kept}
    declared = {
        (account.name, user.name): user
        for account in accounts
        for user in account.users
        if not account.absent
    }
    members = []
    for account_name, user_name in present.members:
        user = declared.get((account_name, user_name))
        undeclared = user is None and exclusive and account_name in kept
        if (account_name, user_name) == (ROOT, ROOT):
            continue
        if account_name in gone or undeclared or (user is not None and user.absent):
            members.append((account_name, user_name))
    wanted_users = {user.name for user in declared.values() if not user.absent}
    absent_users = {user.name for user in declared.values() if user.absent}
    anywhere = {user_name for _account, user_name in present.members} | present.users_elsewhere
    known = set(present.accounts) | present.accounts_elsewhere | kept
    return Removal(
        members=tuple(members),
        accounts=tuple(name for name in present.accounts if name in gone),
        account_records=tuple(
            name
            for name in present.account_records
            if name not in known and (exclusive or name in gone)
        ),
        user_records=tuple(
            name
            for name in present.user_records
            if name not in anywhere | wanted_users | {ROOT} and (exclusive or name in absent_users)
        ),
    )


def plan_accounts(
    cluster: str,
    accounts: Sequence[Account],
    removal: Removal,
    present: Present,
    jobs: Sequence[Job] = (),
) -> AccountPlan:
    """What must be done. jobs matter only for what is to be removed."""
    errors = _reference_errors(accounts, removal, present)
    errors += _removal_errors(accounts, removal, present, jobs)
    if errors:
        return AccountPlan(errors=tuple(errors))
    kept = in_tree_order([account for account in accounts if not account.absent])
    commands: list[tuple[str, ...]] = []
    if not present.cluster_known:
        commands.append(("add", "cluster", cluster))
    for account in kept:
        commands += _account_commands(cluster, account, present)
    commands += _user_commands(cluster, kept, present)
    commands += _default_commands(cluster, kept, removal, present)
    commands += _removal_commands(cluster, kept, removal, present)
    before, after = _pictures(cluster, kept, removal, present)
    return AccountPlan(tuple(commands), (), before, after)


def _reference_errors(accounts: Sequence[Account], removal: Removal, present: Present) -> list[str]:
    """Parents and QOS that do not exist."""
    errors = []
    kept = {account.name for account in accounts if not account.absent} | {ROOT}
    existing = (kept | set(present.accounts)) - set(removal.accounts)
    for account in accounts:
        if account.absent:
            continue
        if account.parent and account.parent not in existing:
            errors.append(f"accounts.{account.name}.parent: there is no account {account.parent}")
        for where, settings in _places(account):
            for option in ("qos", "default_qos"):
                value = settings.get(option)
                names = {value} if isinstance(value, str) else value or ()
                for name in sorted(set(names) - (present.qos or set(names))):
                    errors.append(
                        f"{where}.{option}: there is no QOS {name}; declare it with slurm_qos first"
                    )
    return errors


def _removal_errors(
    accounts: Sequence[Account], removal: Removal, present: Present, jobs: Sequence[Job]
) -> list[str]:
    """Accounts that others still lie below, and members who have jobs."""
    errors = []
    parents = dict(present.parents)
    parents.update({item.name: item.parent for item in accounts if not item.absent})
    for name in removal.accounts:
        below = sorted(
            child
            for child, parent in parents.items()
            if parent == name and child not in removal.accounts
        )
        if below:
            errors.append(
                f"accounts.{name}: cannot be removed, it is the parent of {', '.join(below)};"
                " remove these as well or give them another parent"
            )
        queued = [job for job in jobs if job.account == name]
        if queued:
            errors.append(
                f"accounts.{name}: cannot be removed while it has jobs: {name_jobs(queued)}"
            )
    for account, user in removal.members:
        queued = [job for job in jobs if (job.account, job.user) == (account, user)]
        if queued and account not in removal.accounts:
            errors.append(
                f"accounts.{account}.users.{user}: cannot be removed while it has jobs:"
                f" {name_jobs(queued)}"
            )
    return errors


def _account_commands(cluster: str, account: Account, present: Present) -> list[tuple[str, ...]]:
    name = account.name
    record = present.account_records.get(name)
    commands: list[tuple[str, ...]] = []
    texts: Settings = {"description": account.description, "organization": account.organization}
    blank_texts: Settings = {"description": None, "organization": None}
    if name not in present.accounts and name != ROOT:
        words = values.changes_of(TEXT_FIELDS, blank_texts, texts) if record is None else []
        words += values.changes_of(FIELDS, BLANK, account.settings)
        commands.append(
            ("add", "account", name, f"cluster={cluster}", f"parent={account.parent}", *words)
        )
    else:
        where = ("modify", "account", "where", f"name={name}", f"cluster={cluster}", "set")
        if account.parent and present.parents.get(name) != account.parent:
            commands.append((*where, f"parent={account.parent}"))
        now = present.accounts.get(name, BLANK)
        words = values.changes_of(FIELDS, now, {**now, **account.settings})
        if words:
            commands.append((*where, *words))
    if record is not None:
        words = values.changes_of(TEXT_FIELDS, record, texts)
        if words:
            commands.append(("modify", "account", "where", f"name={name}", "set", *words))
    return commands


def _user_commands(
    cluster: str, accounts: Sequence[Account], present: Present
) -> list[tuple[str, ...]]:
    """New members, in one command for all that get the same, then what differs."""
    added: dict[tuple[str, ...], list[str]] = {}
    modified: list[tuple[str, ...]] = []
    for account in accounts:
        for user in account.users:
            if user.absent:
                continue
            now = present.members.get((account.name, user.name))
            if now is None:
                words = values.changes_of(FIELDS, BLANK, user.settings)
                group = (f"cluster={cluster}", f"account={account.name}", *words)
                added.setdefault(group, []).append(user.name)
            else:
                words = values.changes_of(FIELDS, now, user.settings)
                place = (f"name={user.name}", f"account={account.name}", f"cluster={cluster}")
                if words:
                    modified.append(("modify", "user", "where", *place, "set", *words))
    commands: list[tuple[str, ...]] = []
    for group, names in added.items():
        for start in range(0, len(names), _BATCH):
            batch = ",".join(names[start : start + _BATCH])
            commands.append(("add", "user", f"name={batch}", *group))
    commands += modified
    for name, level in _admin_levels(accounts, present).items():
        if present.user_records.get(name, "none") != level:
            commands.append(
                ("modify", "user", "where", f"name={name}", "set", f"adminlevel={level}")
            )
    return commands


def _admin_levels(accounts: Sequence[Account], present: Present) -> dict[str, str]:
    """User → admin level, `none` where no entry gives one; root keeps its own."""
    levels: dict[str, str] = {}
    for account in accounts:
        for user in account.users:
            if not user.absent:
                levels[user.name] = user.admin_level or levels.get(user.name, "")
    own = present.user_records.get(ROOT, "none")
    return {name: level or (own if name == ROOT else "none") for name, level in levels.items()}


def _default_commands(
    cluster: str, accounts: Sequence[Account], removal: Removal, present: Present
) -> list[tuple[str, ...]]:
    """Default accounts that are declared, or must change because the present one goes."""
    commands: list[tuple[str, ...]] = []
    for name, account in sorted(_new_defaults(accounts, removal, present).items()):
        where = (f"name={name}", f"cluster={cluster}")
        commands.append(("modify", "user", "where", *where, "set", f"defaultaccount={account}"))
    return commands


def _new_defaults(
    accounts: Sequence[Account], removal: Removal, present: Present
) -> dict[str, str]:
    """User → default account, for those whose default must be set."""
    memberships: dict[str, list[str]] = defaultdict(list)
    declared: dict[str, str] = {}
    for account in accounts:
        for user in account.users:
            if not user.absent:
                memberships[user.name].append(account.name)
                if user.default_account:
                    declared[user.name] = account.name
    for account_name, user_name in present.members:
        if (account_name, user_name) not in removal.members:
            memberships[user_name].append(account_name)
    defaults = {}
    for name, names in memberships.items():
        now = present.default_accounts.get(name)
        # a new user's first association becomes the default by itself
        first = names[0] if now is None else now
        wanted = declared.get(name) or (first if first in names else names[0])
        if wanted != first:
            defaults[name] = wanted
    return defaults


def _removal_commands(
    cluster: str, accounts: Sequence[Account], removal: Removal, present: Present
) -> list[tuple[str, ...]]:
    """Members first, a default account's last; then accounts from the leaves up."""
    changed_defaults = {**present.default_accounts, **_new_defaults(accounts, removal, present)}
    members = sorted(removal.members, key=lambda pair: changed_defaults.get(pair[1]) == pair[0])
    commands: list[tuple[str, ...]] = [
        ("delete", "user", "where", f"name={user}", f"account={account}", f"cluster={cluster}")
        for account, user in members
    ]
    parents = dict(present.parents)
    parents.update({account.name: account.parent for account in accounts})

    def depth(name: str) -> int:
        steps = 0
        while parents.get(name) and steps <= len(parents):
            name, steps = parents[name], steps + 1
        return steps

    for name in sorted(removal.accounts, key=lambda name: (-depth(name), name)):
        words = (f"cluster={cluster}",) if name in present.accounts_elsewhere else ()
        commands.append(("delete", "account", "where", f"name={name}", *words))
    commands += [("delete", "account", "where", f"name={n}") for n in removal.account_records]
    commands += [("delete", "user", "where", f"name={n}") for n in removal.user_records]
    return commands


def _pictures(
    cluster: str, accounts: Sequence[Account], removal: Removal, present: Present
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Each cluster, account and member as lines, before and after."""
    before: dict[str, tuple[str, ...]] = {}
    if present.cluster_known:
        before[f"cluster {cluster}"] = ("state: present",)
    for name, settings in present.accounts.items():
        texts = present.account_records.get(name, {})
        before[f"account {name}"] = _lines(present.parents[name], texts, settings)
    for (account_name, user_name), settings in present.members.items():
        before[f"user {user_name} in {account_name}"] = _user_lines(
            present.user_records.get(user_name, "none"), settings
        )
    after = {**before, f"cluster {cluster}": ("state: present",)}
    levels = _admin_levels(accounts, present)
    for account in accounts:
        now = present.accounts.get(account.name, BLANK)
        record = present.account_records.get(account.name, {})
        texts = {
            "description": account.description or record.get("description"),
            "organization": account.organization or record.get("organization"),
        }
        settings = {**now, **account.settings}
        after[f"account {account.name}"] = _lines(account.parent, texts, settings)
        for user in account.users:
            if not user.absent:
                key = f"user {user.name} in {account.name}"
                after[key] = _user_lines(levels[user.name], user.settings)
    for account_name, user_name in removal.members:
        after.pop(f"user {user_name} in {account_name}", None)
    for name in removal.accounts:
        after.pop(f"account {name}", None)
    for name, account_name in _new_defaults(accounts, removal, present).items():
        key = f"user {name} in {account_name}"
        after[key] = (*after.get(key, ()), "default_account: true")
    return before, after


def _lines(parent: str, texts: Mapping[str, Any], settings: Settings) -> tuple[str, ...]:
    shown = [f"{option}: {text}" for option, text in texts.items() if text]
    named = [f"parent: {parent}"] if parent else []
    return ("state: present", *named, *shown, *values.describe(FIELDS, settings))


def _user_lines(level: str, settings: Settings) -> tuple[str, ...]:
    shown = [] if level == "none" else [f"admin_level: {level}"]
    return ("state: present", *shown, *values.describe(FIELDS, settings))


def without_qos(present: Present) -> Present:
    """The same with QOS unknown: in check mode an earlier task may have pretended to add some."""
    return replace(present, qos=None)


def diff_of(plan: AccountPlan) -> list[dict[str, str]]:
    """Before and after of everything that changes, in Ansible's form."""
    names = [*plan.before, *(name for name in plan.after if name not in plan.before)]
    return [
        {
            "before_header": name,
            "after_header": name,
            "before": "".join(f"{line}\n" for line in plan.before.get(name, ())),
            "after": "".join(f"{line}\n" for line in plan.after.get(name, ())),
        }
        for name in names
        if plan.before.get(name) != plan.after.get(name)
    ]
