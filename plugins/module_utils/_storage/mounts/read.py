# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What is mounted, who uses it, whether it answers: read so that no dead mount can hold the reader.

Nothing here asks a mount for anything except in a child process with a time limit. Links below
/proc are resolved by the kernel's own memory, never by the file system that they lead to.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from functools import partial
from typing import Iterable, Iterator, Mapping, Sequence

from ..._core.child import BROKEN, DONE, HUNG, limited
from ..._core.files import Folder, open_folder, remove, text_if_readable, write_atomic
from ..._core.mounts import errno_of, table, waiting
from .plan import Seen, inside, owner_of, unit_of, where_of

UNITS = "/etc/systemd/system"
# Notes on what live mounts were made with; gone after a boot, as are the mounts.
NOTES = "/run/baremetal-dgx/mounts"
_LINKS = ("cwd", "root", "exe")
# Folders that are looked into below a mount to be, and so how deep.
_MOST_FOLDERS = 200


def read(path: str) -> str:
    """Return a text; empty where there is none."""
    return text_if_readable(path, "surrogateescape") or ""


def digest_of(path: str) -> str:
    """Return what a small file's content is recognised by."""
    try:
        with open(path, "rb") as handle:
            return hashlib.sha256(handle.read()).hexdigest()
    except OSError:
        return ""


def changed_at(path: str) -> float:
    """Return when a file or its owner and mode last changed; 0 where it is absent."""
    try:
        return os.stat(path).st_ctime
    except OSError:
        return 0.0


def device_of(name: str) -> str:
    """Return the number of the device that a name leads to, as mountinfo has it; empty for none."""
    try:
        found = os.stat(name) if name.startswith("/dev/") else None
    except OSError:
        return ""
    if found is None or not stat.S_ISBLK(found.st_mode):
        return ""
    return f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"


def owned_units(owner: str) -> dict[str, str]:
    """Return the owner's unit files: path -> text."""
    found, folder = {}, UNITS
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if name.endswith((".mount", ".automount")):
            path = os.path.join(folder, name)
            text = read(path)
            if owner_of(text) == owner:
                found[path] = text
    return found


def owned_points(files: Mapping[str, str]) -> list[str]:
    """Return the mount points of unit files."""
    return sorted({where_of(text) for text in files.values()} - {""})


def _uses(pid: str, where: str, proc: str) -> bool:
    base = os.path.join(proc, pid)
    for name in _LINKS:
        try:
            if inside(os.readlink(os.path.join(base, name)), where):
                return True
        except OSError:
            continue
    try:
        for name in os.listdir(os.path.join(base, "fd")):
            try:
                if inside(os.readlink(os.path.join(base, "fd", name)), where):
                    return True
            except OSError:
                continue
    except OSError:
        pass
    # Mapped files that no descriptor holds any more, such as programs and libraries.
    return any(
        inside(line.split(None, 5)[5].rstrip("\n"), where)
        for line in read(os.path.join(base, "maps")).split("\n")
        if len(line.split(None, 5)) > 5
    )


def _name(pid: str, proc: str) -> str:
    status = read(os.path.join(proc, pid, "status"))
    uid = next((line.split()[1] for line in status.split("\n") if line.startswith("Uid:")), "?")
    return f"{read(os.path.join(proc, pid, 'comm')).strip() or '?'} (pid {pid}, uid {uid})"


def users(where: str, proc: str = "/proc", limit_s: float = 10) -> tuple[str, ...]:
    """Return the processes that have something below a mount point open, as `name (pid, uid)`.

    The memory map of a process that hangs in a fault cannot be read; then no process is named, and
    the mount counts as in use by what cannot be looked at.
    """

    def look() -> list[str]:
        own = {str(os.getpid()), str(os.getppid())}
        pids = sorted((name for name in os.listdir(proc) if name.isdigit()), key=int)
        return [_name(pid, proc) for pid in pids if pid not in own and _uses(pid, where, proc)]

    outcome = limited(look, limit_s)
    if outcome.how != DONE:
        return (f"processes that cannot be looked at: {outcome.message}",)
    return tuple(outcome.value)


def dead(where: str, limit_s: float) -> str:
    """Return why a mount does not answer: "hang", an errno's name, or why that is not known.

    Nothing when it answers.
    """
    outcome = limited(partial(errno_of, where), limit_s)
    if outcome.how == HUNG:
        return "hang"
    if outcome.how == BROKEN:
        return outcome.message
    # A healthy file system refuses a user who may not look.
    if outcome.value in (0, errno.EACCES, errno.EPERM):
        return ""
    return errno.errorcode.get(outcome.value, str(outcome.value))


def _holds(folder: Folder, name: str, turns: Iterator[int]) -> bool:
    """Return whether an entry is anything but a folder of empty ones; or when no turn is left."""
    try:
        if not stat.S_ISDIR(folder.lstat(name).st_mode) or next(turns, None) is None:
            return True
        with folder.folder(name) as below:
            if below.status().st_dev != folder.status().st_dev:
                return True
            return any(_holds(below, one, turns) for one in below.names())
    except OSError:
        return True


def hides(where: str, limit_s: float = 10) -> int:
    """Return how many entries the folder below a mount to be has, without those that hold nothing.

    What systemd-tmpfiles makes at a boot without the mount hides nothing.
    """

    def count() -> int:
        turns = iter(range(_MOST_FOLDERS))
        try:
            with open_folder(where) as folder:
                return sum(_holds(folder, name, turns) for name in folder.names())
        except OSError as error:
            # One that cannot be looked into may hold anything.
            return int(error.errno not in (errno.ENOENT, errno.ENOTDIR))

    return int(limited(count, limit_s).value or 0)


def keys_below(points: Iterable[str], keys: Iterable[str]) -> dict[str, str]:
    """Return a file with keys below each mount point to be; none where another file remains."""
    below = {file: [where for where in points if inside(file, where)] for file in keys}
    return {where: file for file in below for where in below[file]} if all(below.values()) else {}


def note_path(where: str) -> str:
    """Return where the note on a live mount lies."""
    return os.path.join(NOTES, unit_of(where) + ".json")


def noted(where: str) -> str:
    """Return the digest that a live mount was made with; empty when that is not known."""
    try:
        data = json.loads(read(note_path(where)) or "{}")
    except ValueError:
        return ""
    return str(data.get("digest", "")) if isinstance(data, dict) else ""


def note(where: str, digest: str) -> None:
    """Keep what a live mount was made with."""
    write_atomic(note_path(where), json.dumps({"digest": digest}), sync=False)


def is_pending(where: str, unit: str) -> bool:
    """Return whether its unit was changed since it was mounted, so that the next mount differs."""
    try:
        return os.stat(unit).st_mtime_ns > os.stat(note_path(where)).st_mtime_ns
    except OSError:
        return False


def forget(where: str) -> None:
    """Drop the note on a mount that is gone."""
    remove(note_path(where))


def look(points: Sequence[str], answer_s: float, keys: Sequence[str]) -> dict[str, Seen]:
    """Return what is at each mount point; `keys` are the files that admit who logs in here."""
    mountinfo = read("/proc/self/mountinfo")
    live, autos = table(mountinfo), waiting(mountinfo)
    # A look below an automount would mount it.
    hidden = keys_below([one for one in points if one not in live and one not in autos], keys)
    found = {}
    for where in points:
        at = live.get(where)
        if at is None:
            waits = where in autos
            found[where] = (
                Seen(automount=True)
                if waits
                else Seen(hides=hides(where), login=hidden.get(where, ""))
            )
            continue
        found[where] = Seen(
            live=at,
            applied=noted(where),
            dead=dead(where, answer_s),
            users=users(where),
            automount=where in autos,
        )
    return found
