# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The name of a run, by which it knows again what it holds on the cluster after it was killed.

It is the control machine's name and a number, and is kept beside the inventory with the process
that has it. A run takes over the name of one whose process is gone; one that still runs keeps its
own. Another control machine has its own names, whether it shares the folder or not.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...module_utils._core import files

_MOST = 50


@dataclass(frozen=True)
class Process:
    """A process by its number, and the time of its start: numbers are used again."""

    pid: int
    started: str


def process(pid: int) -> Process:
    """Return the process as it runs now; without a start if that is not known."""
    try:
        text = files.read_text(f"/proc/{pid}/stat")
    except (OSError, ValueError):
        return Process(pid, "")
    # The name, in brackets, may hold anything; the start is the 22nd field (proc(5)).
    return Process(pid, text.rpartition(")")[2].split()[19])


def runs(kept: Process) -> bool:
    """Return whether that very process still runs."""
    return files.runs(kept.pid) and process(kept.pid).started == kept.started


def _kept(path: str) -> list[dict[str, Any]]:
    try:
        found = files.read_json(path, "runs of this control machine")
    except FileNotFoundError:
        return []
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def take_owners(
    path: str, host: str, mine: Process, alive: Callable[[Process], bool] = runs
) -> list[str]:
    """Return the name of the run of this process, then those that it takes over; keep them.

    Whose process is gone may have left something on the cluster, and which of several was killed
    is not known: this run takes over all of them. The caller holds a lock of the file's name.
    """
    entries = _kept(path)
    at = [Process(int(one.get("pid", 0)), str(one.get("started", ""))) for one in entries]
    if mine not in at:
        free = [entry for entry, kept in zip(entries, at, strict=True) if not alive(kept)]
        if not free:
            short = re.sub(r"[^A-Za-z0-9-]", "-", host.split(".")[0]) or "control"
            free = [{"owner": f"{short}-{secrets.token_hex(4)}"}]
            entries += free
        for entry in free:
            entry.update(pid=mine.pid, started=mine.started)
        entries = entries[-_MOST:]
        files.write_atomic(path, json.dumps(entries, indent=1) + "\n", mode=0o600)
    return [
        str(one["owner"])
        for one in entries
        if (one.get("pid"), one.get("started")) == (mine.pid, mine.started)
    ]
