# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The kernel's log for the health program: what the event service remembers, and the rest of it.

The kernel's buffer is a ring. The event service has followed it since boot and keeps the lines with
Xids, so that a prolog need not ask the journal, which may take seconds.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Sequence

from .._core.run import MISSING, CommandResult, CommandRunner
from .._host.kernel_log import KernelLog, read_log, read_ring
from .settings import Settings
from .state import EVENTS, read_json

# The event service says this often that it is there.
BEAT_S = 30.0
_JOURNAL_S = 20.0


def _no_journal(argv: Sequence[str], timeout_s: float = 0, env: Any = None) -> CommandResult:
    """Stand for a tool that a quick run does not ask."""
    del timeout_s, env
    return CommandResult(tuple(argv), MISSING)


def known_log(settings: Settings, boot: str, run: CommandRunner | None) -> Callable[[], KernelLog]:
    """Return a reader of the log since boot; without `run` the journal is not asked."""

    def read() -> KernelLog:
        path = settings.roots.kernel_log
        if path:
            return read_log(path, _no_journal, 0)
        ring = read_ring()
        if not ring.gap:
            return ring
        kept = remembered(settings.state_dir, boot)
        if kept is not None:
            there = set(ring.text.split("\n"))
            return KernelLog(
                "\n".join(line for line in kept if line not in there) + "\n" + ring.text
            )
        if run is not None:
            return read_log("", run, _JOURNAL_S)
        return ring

    return read


def remembered(folder: str, boot: str) -> list[str] | None:
    """Return the lines that the event service keeps; None where it has not followed all along."""
    kept = read_json(os.path.join(folder, EVENTS))
    try:
        fresh = abs(time.clock_gettime(time.CLOCK_BOOTTIME) - kept["beat_s"]) < 3 * BEAT_S
        if kept["boot"] == boot and kept["whole"] and fresh:
            return [str(line) for line in kept["lines"]]
    except (KeyError, TypeError):
        pass
    return None
