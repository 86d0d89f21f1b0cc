# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""The tree of accounts as declared and as it is → the sacctmgr commands between them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from .._core.run import CommandRunner, ToolError
from .._slurm.commands import Job, answer_or, ask, change, name_jobs, queued_jobs, show
from . import values
from .members import by_primary_group, members_of, with_members
from .parse import (
    ACCOUNT_COLUMNS,
    ASSOCIATION_COLUMNS,
    BLANK,
    FIELDS,
    ROOT,
    TEXT_FIELDS,
    Account,
    Present,
    _places,
    in_tree_order,
    parse_declared,
    parse_present,
    without_qos,
)
from .values import Settings, is_name

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

# sacctmgr takes a list of users in one command; a command line has its limits
_BATCH = 100
# Some versions drop the record of a user or account with its last association, some leave it to a
# second command: so the plan is rebuilt until nothing is left.
_ROUNDS = 3


@dataclass(frozen=True)
class AccountPlan:
    """sacctmgr commands in order, every error, and before and after as lines for a diff."""

    commands: tuple[tuple[str, ...], ...] = ()
    errors: tuple[str, ...] = ()
    before: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    after: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Users who stay although they have left their group, and why.
    notes: tuple[str, ...] = ()


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
    used = {user_name for _account, user_name in present.members} | present.users_elsewhere
    used |= wanted_users | {ROOT}
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
            if name not in used and (exclusive or name in absent_users)
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
    """Accounts that others are still below, and members who have jobs."""
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
        queued = [
            job for job in jobs if job.account == account and (job.user == user or job.is_nameless)
        ]
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
    """New members, then what differs; all that get the same share a command."""
    added: dict[tuple[str, ...], list[str]] = {}
    modified: dict[tuple[str, ...], list[str]] = {}
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
                group = (f"account={account.name}", f"cluster={cluster}", "set", *words)
                if words:
                    modified.setdefault(group, []).append(user.name)
    commands: list[tuple[str, ...]] = []
    for group, names in added.items():
        for batch in _batches(names):
            commands.append(("add", "user", f"name={batch}", *group))
    for name, level in _admin_levels(accounts, present).items():
        if present.user_records.get(name, "none") != level:
            modified.setdefault(("set", f"adminlevel={level}"), []).append(name)
    for group, names in modified.items():
        for batch in _batches(names):
            commands.append(("modify", "user", "where", f"name={batch}", *group))
    return commands


def _batches(names: Sequence[str]) -> list[str]:
    """Names joined with commas, no more in one text than a command line should hold."""
    starts = range(0, len(names), _BATCH)
    return [",".join(names[start : start + _BATCH]) for start in starts]


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
    groups: dict[tuple[bool, str], list[str]] = {}
    for account_name, user in removal.members:
        is_default = changed_defaults.get(user) == account_name
        groups.setdefault((is_default, account_name), []).append(user)
    commands: list[tuple[str, ...]] = []
    for (_is_default, account_name), users in sorted(groups.items()):
        place = (f"account={account_name}", f"cluster={cluster}")
        for batch in _batches(users):
            commands.append(("delete", "user", "where", f"name={batch}", *place))
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


def load(run: CommandRunner, cluster: str) -> Present:
    """What the database holds. Raises ToolError."""
    try:
        return parse_present(
            cluster,
            show(run, "cluster", ("cluster",)),
            show(run, "account", ACCOUNT_COLUMNS),
            show(run, "user", ("user", "adminlevel")),
            show(
                run,
                "user",
                ("user", "defaultaccount"),
                ["withassoc", "where", f"cluster={cluster}"],
            ),
            show(run, "assoc", ASSOCIATION_COLUMNS, ["wopl"]),
            show(run, "qos", ("name",)),
            ask(run, ["sacctmgr", "show", "config"]),
        )
    except ValueError as error:
        raise ToolError(f"cannot read what sacctmgr prints: {error}") from error


def make_plan(
    run: CommandRunner,
    cluster: str,
    accounts: Sequence[Account],
    exclusive: bool,
    present: Present,
) -> AccountPlan:
    """The plan for what is present. Raises ToolError with every error at once."""
    removal = to_remove(accounts, present, exclusive)
    jobs = queued_jobs(run) if removal.members or removal.accounts else []
    plan = plan_accounts(cluster, accounts, removal, present, jobs)
    if plan.errors:
        raise ToolError("; ".join(plan.errors), errors=list(plan.errors))
    return plan


def present_in(module: AnsibleModule, run: CommandRunner, cluster: str) -> Present:
    """Return what the database holds; in check mode without QOS, and nothing if it has no answer.

    What QOS there will be, earlier tasks have only pretended to make.
    """
    note = "predicting for an empty database"
    present = answer_or(Present(), module, note, lambda: load(run, cluster))
    return without_qos(present) if module.check_mode else present


def desired(
    cluster: str, entries: Sequence[Mapping[str, Any]], any_case: bool = True
) -> list[Account]:
    """Return the accounts of the module's option. Raises ToolError with every error at once."""
    accounts, errors = parse_declared(entries, any_case)
    if not is_name(cluster):
        errors.insert(0, f"cluster: {cluster!r} is not a name")
    if errors:
        raise ToolError("; ".join(errors), errors=errors)
    return accounts


def bring_about(
    run: CommandRunner,
    cluster: str,
    accounts: Sequence[Account],
    exclusive: bool,
    plan: AccountPlan,
    done: list[str],
) -> None:
    """Run the commands until none is left; `done` gets each that succeeded. Raises ToolError."""
    rounds = 0
    while plan.commands:
        if rounds == _ROUNDS:
            undone = "; ".join(" ".join(words) for words in plan.commands)
            raise ToolError(f"slurmdbd accepted every command, but still needs: {undone}")
        for words in plan.commands:
            change(run, words)
            done.append(" ".join(words))
        plan = make_plan(run, cluster, accounts, exclusive, load(run, cluster))
        rounds += 1


def keep(module: AnsibleModule, run: CommandRunner, done: list[str]) -> AccountPlan:
    """Bring about what the module's options declare, and return the plan for it.

    `done` gets each command that succeeded; in check mode none is run. Raises ToolError.
    """
    params = module.params
    cluster, exclusive = params["cluster"].lower(), params["exclusive"]
    desired(cluster, params["accounts"])
    present = present_in(module, run, cluster)
    people = by_primary_group() if any(one.get("group") for one in params["accounts"]) else {}
    entries, notes = with_members(
        params["accounts"],
        present,
        params["leaving_share"],
        lambda group: members_of(group, people),
        lambda: queued_jobs(run),
    )
    # In check mode an earlier task may have pretended to write that they keep their capitals.
    accounts = desired(cluster, entries, present.any_case or module.check_mode)
    plan = replace(make_plan(run, cluster, accounts, exclusive, present), notes=tuple(notes))
    if not module.check_mode:
        bring_about(run, cluster, accounts, exclusive, plan, done)
    return plan


def result_of(plan: AccountPlan, done: Sequence[str], diff: bool) -> dict[str, Any]:
    """Return what the module reports."""
    result: dict[str, Any] = {
        "notes": list(plan.notes),
        "changed": bool(plan.commands),
        "commands": list(done) or [" ".join(words) for words in plan.commands],
    }
    if diff:
        result["diff"] = diff_of(plan)
    return result
