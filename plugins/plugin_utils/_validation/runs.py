# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The run of an engine that is not over, beside the inventory: the next run goes on with it.

A run has a name by which nodes keep what they have answered. It is taken over if the same is asked
again before its time is over, and forgotten when its records are saved.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

from ...module_utils._core import files
from ...module_utils._core.child import Process, is_alive

_CURRENT = "current.json"


@dataclass(frozen=True)
class Run:
    """A run: its name, and the folder of its files on this machine."""

    name: str
    folder: str
    goes_on: bool = False


@dataclass(frozen=True)
class Holder:
    """Who has a run: the process of ansible-playbook, and its machine."""

    host: str
    process: Process


def _kept(folder: str) -> dict[str, object]:
    with contextlib.suppress(OSError, ValueError):
        found = files.read_json(os.path.join(folder, _CURRENT), "the run that is not over")
        return found if isinstance(found, dict) else {}
    return {}


def _at_work(kept: Mapping[str, object], mine: Holder, fresh: bool) -> bool:
    """Return whether another run that is still at work has the folder."""
    host, pid, start = (str(kept.get(name, "")) for name in ("host", "pid", "start"))
    if not pid.isdigit():
        return False
    holder = Holder(host, Process(int(pid), start))
    if holder == mine:
        return False
    # Whether a process of another machine runs is not known here.
    return is_alive(holder.process) if host == mine.host else fresh


def run_for(
    folder: str,
    asked: str,
    questions: Mapping[str, str],
    seconds: float,
    mine: Holder,
    now: float | None = None,
) -> Run:
    """Return the run that is not over if it asks the same, else a new one.

    OSError; ValueError where another run is at work.

    `asked` says what is asked of all, `questions` by node what is asked of it. What nodes keep of
    a run is as old as that run, so it is taken over for `seconds` only.
    """
    now = time.time() if now is None else now
    kept = _kept(folder)
    name, begun, before = str(kept.get("run", "")), kept.get("begun"), kept.get("questions")
    fresh = isinstance(begun, (int, float)) and 0 <= now - begun < seconds
    if _at_work(kept, mine, fresh):
        raise ValueError(
            f"process {kept.get('pid')} on {kept.get('host')} validates nodes by an engine: wait "
            f"for it, or remove {os.path.join(folder, _CURRENT)} if it is over"
        )
    same = (
        kept.get("asked") == asked
        and fresh
        and isinstance(before, dict)
        and all(before.get(node, one) == one for node, one in questions.items())
        and len(name) == 16
    )
    files.make_folder(folder, 0o700, files.NO_OTHER)
    if not same or not isinstance(before, dict) or not isinstance(begun, (int, float)):
        name, begun, before = secrets.token_hex(8), now, {}
        with files.open_folder(folder, deny=files.NO_OTHER) as here:
            for one in here.names():
                here.remove_tree(one)
    data = {
        "run": name,
        "asked": asked,
        "begun": begun,
        "questions": {**before, **questions},
        "host": mine.host,
        "pid": mine.process.pid,
        "start": mine.process.start,
    }
    files.write_atomic(os.path.join(folder, _CURRENT), json.dumps(data) + "\n", 0o600)
    own = os.path.join(folder, name)
    files.make_folder(own, 0o700, files.NO_OTHER)
    return Run(name, own, bool(same))


def forget(folder: str) -> None:
    """Forget the run: its records are saved. OSError."""
    with files.open_folder(folder, deny=files.NO_OTHER) as here:
        # First, so that a kill here leaves nothing that would be taken over in part.
        here.remove(_CURRENT)
        for one in here.names():
            here.remove_tree(one)
