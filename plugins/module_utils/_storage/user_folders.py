# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Folders of users below folders of root: `PARENT/user-UID`, mode 0700, made by root.

enroot takes what it finds under that name and does not look whose it is. So no user may make such a
folder: the parents are root's, with mode 0711. What another user has left there, from a time when
any user could, is moved out of the way.

This is a program of the nodes: Slurm's prolog runs it for the user of a job, systemd for one who
logs in. It says what it has done and what it has refused, one line each, to syslog, too. A refused
folder is missing, and enroot tells the user; it is never a reason to drain a node.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import stat
import sys
import syslog
import time
from typing import Callable, Iterable, Iterator, Sequence

from .._core.files import Folder, UnsafeError, open_folder, open_to_others, trusted

PARENT_MODE, USER_MODE = 0o711, 0o700
# Below, there are services, which have no containers.
FIRST_USER = 1000
# Users that systemd makes up for services, and `nobody` (systemd's UIDS-GIDS.md).
NO_USERS = range(61184, 65536)
_PREFIX, _ASIDE = "user-", "refused-"
MADE, MOVED, REPAIRED, REFUSED = "made", "moved", "mode", "refused"


def steered_by_others(path: str) -> str:
    """Return the folder above `path` whose entries other users may exchange; else empty."""
    above = os.path.dirname(os.path.abspath(path))
    while True:
        found = os.stat(above)
        sticky = trusted(found.st_uid) and found.st_mode & stat.S_ISVTX
        if open_to_others(found) and not sticky:
            return above
        if above == "/":
            return ""
        above = os.path.dirname(above)


def open_parent(path: str) -> Folder:
    """Open a folder of root's, and close it to all who could make an entry in it.

    Raises OSError, and UnsafeError if it is not root's, or another user may exchange it.
    """
    parent = open_folder(path)
    try:
        above = steered_by_others(path)
        if above:
            raise UnsafeError(above, "other users may write into it: chown root, chmod go-w")
        found = parent.status()
        if not trusted(found.st_uid):
            raise UnsafeError(path, f"belongs to user {found.st_uid}: find out why, chown root")
        if stat.S_IMODE(found.st_mode) != PARENT_MODE:
            parent.set_attributes(PARENT_MODE)
        # One at a time. No other user can open it, so none can hold the lock against us.
        fcntl.flock(parent.descriptor, fcntl.LOCK_EX)
    except OSError:
        parent.close()
        raise
    return parent


def what_is_wrong(found: os.stat_result, uid: int) -> str:
    """Return why an entry is not the folder of this user; empty if it is."""
    if stat.S_ISLNK(found.st_mode):
        return f"a link of user {found.st_uid}"
    if not stat.S_ISDIR(found.st_mode):
        return f"a file of user {found.st_uid}"
    return "" if found.st_uid == uid else f"a folder of user {found.st_uid}"


def _move_aside(parent: Folder, name: str, why: str) -> Iterator[tuple[str, str]]:
    aside = f"{_ASIDE}{name}-{time.time_ns()}"
    parent.rename(name, aside)
    yield MOVED, f"{parent.path}/{name}: {why}, moved to {aside}"


def settle(parent: Folder, uid: int, gid: int = -1) -> Iterator[tuple[str, str]]:
    """Leave the folder of a user in an open parent: theirs, 0700. Yields what was done."""
    name = f"{_PREFIX}{uid}"
    if parent.exists(name):
        found = parent.lstat(name)
        wrong = what_is_wrong(found, uid)
        if not wrong:
            if stat.S_IMODE(found.st_mode) != USER_MODE:
                parent.attributes(name, mode=USER_MODE)
                yield REPAIRED, f"{parent.path}/{name}: had mode {stat.S_IMODE(found.st_mode):04o}"
            return
        yield from _move_aside(parent, name, wrong)
    # Under its own name only when it is the user's: a run that is killed leaves none of root's.
    fresh = f".{name}.{os.getpid()}~"
    with contextlib.suppress(FileNotFoundError):
        parent.remove_folder(fresh)
    parent.folder(fresh, make=USER_MODE).close()
    parent.attributes(fresh, USER_MODE, uid, gid)
    parent.rename(fresh, name)
    yield MADE, f"{parent.path}/{name}"


def put_aside_foreign(parent: Folder) -> Iterator[tuple[str, str]]:
    """Move every `user-UID` away that is not the folder of this user. Yields what was done."""
    for name in parent.names():
        number = name[len(_PREFIX) :]
        if name.startswith(f".{_PREFIX}") and name.endswith("~"):
            # What a killed run has left.
            with contextlib.suppress(OSError):
                parent.remove_folder(name)
        if name.startswith(_PREFIX) and number.isdigit():
            wrong = what_is_wrong(parent.lstat(name), int(number))
            if wrong:
                yield from _move_aside(parent, name, wrong)


def users_present(proc: str = "/proc") -> set[int]:
    """Return the users who have a process here."""
    found = set()
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                uid = os.stat(os.path.join(proc, name)).st_uid
            except OSError:
                continue
            if uid >= FIRST_USER and uid not in NO_USERS:
                found.add(uid)
    return found


def make_all(
    parents: Iterable[str], users: Iterable[tuple[int, int]], sweep: bool = False
) -> Iterator[tuple[str, str]]:
    """Make the folders of users in all parents; yields what was done or refused."""
    wanted = sorted(set(users))
    for path in parents:
        try:
            with open_parent(path) as parent:
                if sweep:
                    yield from put_aside_foreign(parent)
                for uid, gid in wanted:
                    yield from settle(parent, uid, gid)
        except UnsafeError as error:
            yield REFUSED, str(error)
        except OSError as error:
            yield REFUSED, f"{error.filename or path}: {error.strerror}"


def _number(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a user")
    return int(text)


def main(words: Sequence[str], log: Callable[[str], None] = syslog.syslog) -> int:
    """Do what the words say; 0 if every folder is there."""
    parser = argparse.ArgumentParser(description="Make the folders of users: PARENT/user-UID.")
    parser.add_argument("--uid", type=_number, action="append", default=[], help="a user")
    parser.add_argument("--gid", type=_number, default=-1, help="the group of the folders")
    parser.add_argument(
        "--present", action="store_true",
        help="all who have a process here; and move away what is not its user's",
    )  # fmt: skip
    parser.add_argument("parents", nargs="+", metavar="PARENT")
    given = parser.parse_args(words)
    users = {(uid, given.gid) for uid in given.uid}
    if given.present:
        users |= {(uid, -1) for uid in users_present()}
    refused = False
    for how, text in make_all(given.parents, users, given.present):
        refused = refused or how == REFUSED
        line = f"{how} {text}"
        sys.stdout.write(f"{line}\n")
        if how != MADE:
            log(f"baremetal-dgx user-folders: {line}")
    return 1 if refused else 0
