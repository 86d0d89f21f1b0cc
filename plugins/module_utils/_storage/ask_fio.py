# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Runs fio in its own hidden folder on the disks, which goes however the run ends."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import subprocess
from dataclasses import asdict
from typing import Any, Callable, Iterator, Mapping

from .._core.files import make_temporary, open_folder, remove_tree, text_if_there
from .._core.hang import BrokenError, HungError, in_time
from .._core.lock import BusyError, host_lock
from .._core.mounts import table, waiting
from .._core.record import Record
from .._core.run import CommandRunner
from .fio import Place, Step, is_over, judge_step, questions_of, refuse, size_mib, steps, unmeasured

PREFIX = ".fio_check-"
# A file of many GiB takes a while to be removed.
REMOVE_S = 120.0
_MAKE_S = 20.0
# What does not say within this time where it is does not measure anything either.
_LOOK_S = 20.0


def remove_old(folder: str) -> list[str]:
    """Remove what runs left behind that were killed by force; returns their folders."""
    removed = []
    with open_folder(folder) as parent:
        for name in parent.names():
            found = parent.lstat(name)
            # Scratch may be writable for all: what another user calls so is not ours.
            mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            if name.startswith(PREFIX) and mine:
                parent.remove_tree(name)
                removed.append(os.path.join(folder, name))
    return removed


@contextlib.contextmanager
def own_folder(parent: str) -> Iterator[str]:
    """Make a folder and remove it at the end, also when this process is killed.

    A shell waits for the end of a pipe that only this process holds open. However it ends, the
    kernel closes the pipe, and the shell removes the folder. UnsafeError if another user could
    exchange a folder in `parent`; HungError if a mount keeps the making waiting.
    """
    folder = in_time(parent, lambda _send: make_temporary(PREFIX, parent), _MAKE_S)
    script = 'cat >/dev/null; rm -rf -- "$1"'
    keeper = subprocess.Popen(  # pylint: disable=ansible-bad-function
        ["/bin/sh", "-c", script, "sh", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    try:
        yield folder
    finally:
        # The shell goes on with it, and the shell is waited for only briefly.
        with contextlib.suppress(OSError, HungError, BrokenError):
            in_time(folder, lambda _send: remove_tree(folder), REMOVE_S)
        if keeper.stdin is not None:
            keeper.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            keeper.wait(30)


def place_of(folder: str) -> Place:
    """Return what is known of the file system below a folder; OSError."""
    point = os.path.realpath(folder)
    text = text_if_there("/proc/self/mountinfo") or ""
    types = dict.fromkeys(waiting(text), "autofs")
    types.update({where: live.fstype for where, live in table(text).items()})
    while point not in types and point != "/":
        point = os.path.dirname(point)
    space = os.statvfs(folder)
    return Place(
        space.f_bavail * space.f_frsize,
        space.f_blocks * space.f_frsize,
        point,
        types.get(point, ""),
    )


def look(folder: str) -> Place:
    """Return the same in time, whatever the file system does; OSError, HungError, BrokenError."""
    return Place(**in_time(folder, lambda _send: asdict(place_of(folder)), _LOOK_S))


def plan(options: Mapping[str, Any], own: str, place: Place) -> list[Step]:
    """Return the steps in the folder `own`."""
    return steps(
        options["tool"], own, size_mib(place, options["size_mib"]), options["seconds"],
        options["engine"], options["jobs"], options["extra_arguments"],
    )  # fmt: skip


def measure(
    run: CommandRunner, node: str, options: Mapping[str, Any], place: Place, result: dict[str, Any]
) -> list[Record]:
    """Run one step after the other and judge each; `result` learns what was run and removed."""
    folder = options["folder"]
    records: list[Record] = []
    questions = questions_of(options["thresholds"], options["threshold_source"])
    name = hashlib.sha256(folder.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    with host_lock(f"fio_check-{name}", 0):
        result["removed"] = in_time(folder, lambda _send: remove_old(folder), REMOVE_S)
        with own_folder(folder) as own:
            for step in plan(options, own, place):
                result["commands"].append(list(step.argv))
                records += judge_step(node, folder, step, run(step.argv, step.limit_s), questions)
                if is_over(records):
                    break
    return records


def ask_fio(
    run: CommandRunner,
    node: str,
    options: Mapping[str, Any],
    find: Callable[[str], str | None],
    result: dict[str, Any],
    check: bool,
) -> list[Record]:
    """Look where it is, write, measure, judge, clean up.

    `options` are those of fio_check, `find` tells where a program is. `check` only tells what would
    be run, or why nothing would. `result` learns the commands.
    """
    folder, why = options["folder"], ""
    try:
        place = look(folder)
        why = refuse(place, options["root_ok"], options["shared_ok"])
        if not why and not find(options["tool"]):
            why = f"{options['tool']} is not installed"
        if not why and check:
            own = os.path.join(folder, PREFIX)
            result["commands"] = [list(step.argv) for step in plan(options, own, place)]
            return []
        if not why:
            return measure(run, node, options, place, result)
    except BusyError as error:
        why = f"another fio_check is running there: process {error.holder}"
    except OSError as error:
        why = f"{folder}: {error.strerror}"
    except (HungError, BrokenError) as error:
        why = str(error)
    remedy = "settings: mount scratch, install fio, or name another folder"
    return [unmeasured(node, folder, why, remedy)]
