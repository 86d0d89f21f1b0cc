# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""One module of a kind at a time on a host, and one run of a playbook at a time on a cluster.

When ansible-playbook is killed, the module it has started on a host goes on. The next run must not
overtake it: else the old run's files could replace those of the new one. That lock goes with its
process; the one of a run is a file that names the run, since it lasts from module to module.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import zlib
from typing import Any, Collection, Iterator, Mapping

from .files import NO_OTHER_WRITER, make_folder, open_folder, read_json, remove, write_atomic
from .record import utc_text
from .run import ToolError
from .wait import attempts

_POLL_S = 0.2
_HELD: set[int] = set()


def _let_go() -> None:
    """In a process just forked: a lock that it inherits would outlive its parent with it."""
    for descriptor in _HELD:
        os.close(descriptor)
    _HELD.clear()


os.register_at_fork(after_in_child=_let_go)


class BusyError(ToolError):
    """Another run still holds the lock; `holder` is its process number, as far as known."""

    def __init__(self, name: str, holder: str) -> None:
        super().__init__(
            f"another run is at work on this host: process {holder} holds the lock {name}; "
            "wait for it, then run again"
        )
        self.holder = holder


@contextlib.contextmanager
def host_lock(name: str, wait_s: float, shared: bool = False) -> Iterator[int]:
    """Hold the lock of this name. Raises BusyError after wait_s seconds, OSError.

    One that is `shared` keeps out only those who want it alone. The kernel lets go of it when the
    process ends, however it ends. It yields the descriptor of the lock: a child that gets it holds
    the lock as long as it runs itself.
    """
    with open_folder(_folder(), deny=NO_OTHER_WRITER) as folder:
        handle = folder.open(f"{name}.lock", 0o600, append=False)
    with handle:
        descriptor = os.dup(handle.fileno())
    _HELD.add(descriptor)
    try:
        for _left in attempts(wait_s, _POLL_S):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(
                    descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
                )
                break
        else:
            holder = os.read(descriptor, 20).decode("ascii", "replace").strip()
            raise BusyError(name, holder or "unknown")
        # Only the message of BusyError reads it: a full /run must not keep a node from its work.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        yield descriptor
    finally:
        if descriptor in _HELD:
            _HELD.remove(descriptor)
            os.close(descriptor)


@contextlib.contextmanager
def part_locks(name: str, parts: Collection[str]) -> Iterator[frozenset[str]]:
    """Hold the locks of many parts of one kind; yield those that another process holds. OSError.

    Each is a byte of one file, so that a thousand cost one descriptor. The kernel lets go of them
    when the process ends; a process that it starts has none of them.
    """
    with open_folder(_folder(), deny=NO_OTHER_WRITER) as folder:
        handle = folder.open(f"{name}.lock", 0o600, append=False)
    with handle:
        taken = set()
        for part in parts:
            try:
                place = zlib.crc32(part.encode("utf-8"))
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
            except (BlockingIOError, PermissionError):
                taken.add(part)
        yield frozenset(taken)


def lock_folder() -> str:
    """Return the folder of the locks, which only this user can write into. OSError."""
    return _folder()


def _folder() -> str:
    """A folder that no other user can write into."""
    base = "/run" if os.access("/run", os.W_OK) else tempfile.gettempdir()
    uid = os.getuid()
    folder = os.path.join(base, "baremetal-dgx" if uid == 0 else f"baremetal-dgx-{uid}")
    make_folder(folder, 0o700, NO_OTHER_WRITER)
    return folder


def run_holder(path: str) -> dict[str, str]:
    """Return which run holds it and since when; empty if none does. OSError, ValueError."""
    try:
        found = read_json(path, "who holds it")
    except FileNotFoundError:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"{path}: not a mapping; remove it if no run is going on")
    return {key: str(found.get(key, "")) for key in ("owner", "since")}


def lock_run(params: Mapping[str, Any], path: str, check_mode: bool) -> dict[str, Any]:
    """Take or release the lock of a run; return what the module run_lock returns.

    ToolError if another run holds it; OSError, ValueError.
    """
    kept = run_holder(path)
    owner, held = params["owner"], kept.get("owner", "")
    if held in params["former"]:
        # Of a run that was killed: it is given back, or taken over, like this run's own.
        held = owner
    if params["state"] == "released":
        if held == owner and not check_mode:
            remove(path)
        return {"changed": held == owner, "held_by": "", "since": ""}
    if held and held != owner:
        raise ToolError(
            f"{params['name']}: {held} does it since {kept['since']}: wait for it; if that run "
            f"is over, remove {path} on {os.uname().nodename}",
            held_by=held,
            since=kept["since"],
        )
    since = kept.get("since") or utc_text()
    if kept.get("owner", "") != owner and not check_mode:
        write_atomic(path, json.dumps({"owner": owner, "since": since}) + "\n", 0o644)
    return {"changed": not held, "held_by": owner, "since": since}
