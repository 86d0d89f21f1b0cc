# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""StateSaveLocation as slurmctld has it at one moment, without asking slurmctld.

slurmctld writes each file under another name and renames it, so that one file is always whole. The
files belong together, so they are copied again until none has changed in the meantime. Scripts of
jobs are written before job_state names their job, and removed after it has ended: those that are
there after job_state was read are all that it needs. Their copy may take longer than slurmctld
leaves its files alone, so it comes after.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from typing import Iterator, Mapping

from .._core.files import copy_file, make_folder, remove_tree
from .._core.run import ToolError
from .._core.wait import attempts
from .._slurm.saved_state import read_release

_PAUSE_S = 0.5
# Written every few seconds whatever happens, or not of use to another slurmctld.
_LEFT_OUT = ("heartbeat", "slurmctld.pid")
_FROM = ("job_state", "job_state.old")
_WORD = b"PROTOCOL_VERSION\0"
_SCRIPTS = "hash."


def _state_files(folder: str) -> dict[str, tuple[int, int, int]]:
    """Return name -> what changes with each writing, of the files that belong together."""
    found = {}
    for entry in os.scandir(folder):
        if entry.name in _LEFT_OUT or entry.name.endswith((".new", "~")):
            continue
        # One that was renamed since it was listed is another one now.
        with contextlib.suppress(FileNotFoundError):
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                found[entry.name] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def _scripts(folder: str) -> Iterator[str]:
    """Yield the files of jobs, relative to the folder; they come and go."""
    for name in sorted(os.listdir(folder)):
        if name.startswith(_SCRIPTS):
            for above, _folders, files in os.walk(os.path.join(folder, name)):
                yield from (os.path.relpath(os.path.join(above, one), folder) for one in files)


def _copy(source: str, target: str, names: Iterator[str] | Mapping[str, object]) -> None:
    for name in names:
        into = os.path.join(target, name)
        make_folder(os.path.dirname(into), 0o700)
        with contextlib.suppress(FileNotFoundError):
            copy_file(os.path.join(source, name), into, 0o600)


def copy(source: str, target: str, limit_s: float) -> None:
    """Copy the state to a folder that is made again. ToolError, OSError."""
    for _left in attempts(limit_s, _PAUSE_S):
        remove_tree(target)
        make_folder(target, 0o700)
        before = _state_files(source)
        _copy(source, target, before)
        if _state_files(source) == before and set(before) <= set(os.listdir(target)):
            _copy(source, target, _scripts(source))
            return
    raise ToolError(f"{source}: changed all the time for {limit_s:.0f} s, and was not copied")


def release(folder: str) -> str:
    """Return the release that wrote a state; empty where none is there."""
    return read_release(folder, _FROM)[0]


def next_job(folder: str) -> int:
    """Return the number that the next job gets at least; 0 where the state does not say."""
    for name in _FROM:
        try:
            with open(os.path.join(folder, name), "rb") as handle:
                return next_job_of(handle.read(64))
        except FileNotFoundError:
            continue
    return 0


def next_job_of(data: bytes) -> int:
    """Return the same of the beginning of job_state. Pure.

    It is a counted word, the protocol, the time, and the last number (tried with 24.11 and 26.05).
    """
    at = 4 + len(_WORD) + 2 + 8
    if data[4 : 4 + len(_WORD)] != _WORD or len(data) < at + 4:
        return 0
    (number,) = struct.unpack_from("!I", data, at)
    return int(number)
