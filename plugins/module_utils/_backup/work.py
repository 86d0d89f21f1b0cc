# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The folder of the work: one run at a time, what killed ones left, room, what was restored."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Iterator

from .._core.files import json_if_readable, make_folder, open_folder, write_atomic
from .._core.lock import host_lock
from .._core.record import utc_text
from .._core.run import ToolError
from .repository import UnansweredError
from .settings import METRICS, Settings

PROOF, FETCH, SCRATCH, ASIDE = "proof-", "fetch-", "scratch-", "aside-"
_LOCK_S = 900
_MARKS = "restored.json"
# Of the free room; Prometheus, slurmctld and the system may write to the same disk.
_SHARE = 0.9


@contextlib.contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Copy, prove or restore as the only one on this host. ToolError, OSError.

    Whole copies that a killed run has left would fill the disk.
    """
    make_folder(settings.work_dir, 0o711)
    with host_lock("cluster-backup", _LOCK_S):
        with open_folder(settings.work_dir) as folder:
            for name in folder.names():
                if name.startswith((PROOF, FETCH, SCRATCH, ASIDE)):
                    folder.remove_tree(name)
        yield


def marks(settings: Settings) -> dict[str, Any]:
    """Return kind -> which copy was put in place, or begun to be."""
    data = json_if_readable(os.path.join(settings.work_dir, _MARKS))
    return data if isinstance(data, dict) else {}


def mark(settings: Settings, kind: str, snapshot: str, is_done: bool) -> None:
    """Keep that a copy was put in place, or is about to be. OSError."""
    data = {**marks(settings), kind: {"snapshot": snapshot, "at": utc_text(), "done": is_done}}
    write_atomic(os.path.join(settings.work_dir, _MARKS), json.dumps(data) + "\n", 0o600)


def require_no_restore(settings: Settings, kind: str) -> None:
    """Raise ToolError where a restore has begun and is not over."""
    known = marks(settings).get(kind)
    if known and not known.get("done"):
        playbook = "restore_metrics" if kind == METRICS else "restore_cluster"
        raise ToolError(f"a restore is not over, and half of it would be copied: run {playbook}")


def require_room(folder: str, size: int, what: str) -> None:
    """Raise UnansweredError if so many bytes leave too little of the folder's disk. OSError."""
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if size > free * _SHARE:
        raise UnansweredError(
            f"{what} takes {size / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free on the disk of "
            f"{folder}; give it more room"
        )
