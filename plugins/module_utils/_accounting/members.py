# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Members of a directory's group as users of an account. A directory that fails removes none."""

from __future__ import annotations

import grp
from typing import Any, Callable, Mapping, Sequence

from .._core.run import ToolError
from .._slurm.commands import Job
from .parse import Present
from .values import is_name

_NAMED = 5


def members_of(group: str) -> list[str] | None:
    """Return the members of the group as this host knows it, sorted; None if it is unknown."""
    try:
        return sorted(set(grp.getgrnam(group).gr_mem))
    except KeyError:
        return None


def with_members(
    entries: Sequence[Mapping[str, Any]],
    present: Present,
    share: float,
    ask: Callable[[str], list[str] | None],
    queue: Callable[[], Sequence[Job]],
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return the entries, with the members of their groups among their users, and what is kept.

    Users of the account who are declared nowhere and are no longer in the group leave it, but for
    those with jobs in the queue. If more than the share would leave (one may always), or if the
    group is unknown or empty, none does. Raises ToolError for an unknown group of a new account.
    """
    made: list[Mapping[str, Any]] = []
    notes: list[str] = []
    errors: list[str] = []
    for entry in entries:
        group = entry.get("group")
        if not group or entry.get("state") == "absent":
            made.append(entry)
            continue
        name = entry["name"]
        declared = {
            user if isinstance(user, str) else str(user.get("name"))
            for user in entry.get("users") or ()
        }
        former = [user for account, user in present.members if account == name]
        former = sorted(set(former) - declared)
        found = ask(group)
        if found is None and not former:
            errors.append(
                f"accounts.{name}.group: this host knows no group {group!r}; "
                "see `getent group`, or remove it here"
            )
            continue
        odd = [user for user in found or () if not is_name(user)]
        if odd:
            notes.append(f"{group}: {_some(odd)} cannot be a user of Slurm, and is left out")
        now = [user for user in found or () if is_name(user) and user not in declared]
        kept, note = _kept(group, former, now, found, share, name, queue)
        notes += [note] if note else []
        leaving = [user for user in former if user not in now and user not in kept]
        users: list[Any] = [*(entry.get("users") or ()), *sorted({*now, *kept})]
        users += [{"name": user, "state": "absent"} for user in leaving]
        made.append({**entry, "users": users})
    if errors:
        raise ToolError("; ".join(errors), errors=errors)
    return made, notes


def _kept(
    group: str,
    former: Sequence[str],
    now: Sequence[str],
    found: Sequence[str] | None,
    share: float,
    account: str,
    queue: Callable[[], Sequence[Job]],
) -> tuple[list[str], str]:
    """Return the users who have left the group and stay in the account, and why."""
    leaving = [user for user in former if user not in now]
    if not leaving:
        return [], ""
    stay = f"{_some(leaving)} stay in the account {account}"
    if not found:
        return leaving, f"{group}: {'empty' if found == [] else 'unknown'} all at once; {stay}"
    most = max(1, int(share * len(former)))
    if len(leaving) > most:
        return leaving, (
            f"{group}: {len(leaving)} of {len(former)} users would leave at once, and {most} may; "
            f"{stay}; if that is right, raise leaving_share for one run"
        )
    busy = {job.user for job in queue() if job.account == account}
    kept = [user for user in leaving if user in busy]
    return kept, f"{group}: kept until their jobs have ended: {_some(kept)}" if kept else ""


def _some(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
