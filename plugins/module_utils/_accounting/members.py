# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Members of a directory's group as users of an account. A directory that fails removes none."""

from __future__ import annotations

import grp
import pwd
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from .._core.run import ToolError
from .._slurm.commands import Job, name_jobs
from .parse import KEEP_CASE, Present
from .values import is_name

_NAMED = 5


def by_primary_group() -> dict[int, list[str]]:
    """Return the users that this host lists, by the number of their primary group."""
    found: dict[int, list[str]] = {}
    for one in pwd.getpwall():
        found.setdefault(one.pw_gid, []).append(one.pw_name)
    return found


def members_of(group: str, people: Mapping[int, Sequence[str]]) -> list[str] | None:
    """Return the members of the group as this host knows it, sorted; None if it is unknown.

    The members that a group lists are not those whose primary group it is: these are in `people`.
    """
    try:
        found = grp.getgrnam(group)
    except KeyError:
        return None
    return sorted({*found.gr_mem, *people.get(found.gr_gid, ())})


class _Change(NamedTuple):
    """What a group makes of the users of an account that are declared nowhere."""

    entry: Mapping[str, Any]
    # None for a group that this host does not know.
    found: Sequence[str] | None
    former: Sequence[str]
    now: Sequence[str]

    @property
    def leaving(self) -> list[str]:
        """Users of the account who are no longer in the group."""
        now = set(self.now)
        return [user for user in self.former if user not in now]


def with_members(
    entries: Sequence[Mapping[str, Any]],
    present: Present,
    share: float,
    ask: Callable[[str], list[str] | None],
    queue: Callable[[], Sequence[Job]],
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return the entries, with the members of their groups among their users, and what is kept.

    Users of the account who are declared nowhere and are no longer in the group leave it, but for
    those with jobs in the queue. If more than the share would leave one account, or all of them
    together (one may always), or if the group is unknown or empty, none does. Raises ToolError for
    an unknown group of a new account.
    """
    members: dict[str, list[str]] = {}
    for account, user in present.members:
        members.setdefault(account, []).append(user)
    changes: list[_Change] = []
    notes: list[str] = []
    errors: list[str] = []
    for entry in entries:
        group = entry.get("group")
        if not group or entry.get("state") == "absent":
            changes.append(_Change(entry, [], [], []))
            continue
        name = entry["name"]
        declared = {
            user if isinstance(user, str) else str(user.get("name"))
            for user in entry.get("users") or ()
        }
        former = sorted(set(members.get(name, ())) - declared)
        found = ask(group)
        if found is None and not former:
            errors.append(
                f"accounts.{name}.group: this host knows no group {group!r}; "
                "see `getent group`, or remove it here"
            )
            continue
        fit, left_out = _fit(group, found or (), former, present.any_case)
        notes += left_out
        if found == [] and not former:
            others = "other users" if declared else "users"
            notes.append(f"{group}: empty; the account {name} has no {others}")
        now = [user for user in fit if user not in declared]
        changes.append(_Change(entry, found, former, now))
    if errors:
        raise ToolError("; ".join(errors), errors=errors)
    all_stay = _as_a_whole(changes, share)
    notes += [all_stay] if all_stay else []
    made: list[Mapping[str, Any]] = []
    for change in changes:
        entry, leaving = change.entry, change.leaving
        if not (change.former or change.now):
            made.append(entry)
            continue
        kept, note = (leaving, "") if all_stay else _kept(change, share, queue)
        notes += [note] if note else []
        users: list[Any] = [*(entry.get("users") or ()), *sorted({*change.now, *kept})]
        users += [{"name": user, "state": "absent"} for user in leaving if user not in kept]
        made.append({**entry, "users": users})
    return made, notes


def _fit(
    group: str, found: Sequence[str], former: Sequence[str], any_case: bool
) -> tuple[list[str], list[str]]:
    """Return the members who can be users of Slurm, and who is left out."""
    odd = [user for user in found if not is_name(user)]
    large = [user for user in found if is_name(user) and user != user.lower() and not any_case]
    notes = []
    if odd:
        notes.append(f"{group}: {_some(odd)} cannot be a user of Slurm, and is left out")
    if large:
        notes.append(f"{group}: left out for their capitals: {_some(large)}; {KEEP_CASE}")
    fit = set(found) - {*odd, *large}
    # A directory may take both for one name, and the other one works.
    return sorted(fit | ({user.lower() for user in large} & set(former))), notes


def _as_a_whole(changes: Sequence[_Change], share: float) -> str:
    """Return why none leaves any account: a directory that fails is one line, not one a group."""
    concerned = [change for change in changes if change.leaving]
    leaving = sum(len(change.leaving) for change in concerned)
    former = sum(len(change.former) for change in changes)
    if len(concerned) < 2 or leaving <= _most(former, share):
        return ""
    return (
        f"{leaving} of {former} users of {len(concerned)} accounts would leave at once, and "
        f"{_most(former, share)} may; all stay in "
        f"{_some([change.entry['name'] for change in concerned])}; look at the directory, and if "
        "that is right, raise leaving_share for one run"
    )


def _most(former: int, share: float) -> int:
    return max(1, int(share * former))


def _kept(
    change: _Change, share: float, queue: Callable[[], Sequence[Job]]
) -> tuple[list[str], str]:
    """Return the users who have left the group and stay in the account, and why."""
    leaving, former, group = change.leaving, change.former, change.entry["group"]
    if not leaving:
        return [], ""
    account = change.entry["name"]
    stay = f"{_some(leaving)} stay in the account {account}"
    if not change.found:
        how = "empty" if change.found == [] else "unknown"
        return leaving, f"{group}: {how} all at once; {stay}"
    most = _most(len(former), share)
    if len(leaving) > most:
        return leaving, (
            f"{group}: {len(leaving)} of {len(former)} users would leave at once, and {most} may; "
            f"{stay}; if that is right, raise leaving_share for one run"
        )
    jobs = [job for job in queue() if job.account == account]
    nameless = [job for job in jobs if job.is_nameless]
    busy = {job.user for job in jobs}
    kept = leaving if nameless else [user for user in leaving if user in busy]
    note = f"{group}: kept until their jobs have ended: {_some(kept)}" if kept else ""
    return kept, note + (f"; one of them may have {name_jobs(nameless)}" if nameless else "")


def _some(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
