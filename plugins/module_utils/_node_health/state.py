# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the health program remembers from run to run, and what it leaves for others to read.

That includes lines of the kernel's log: its buffer is a ring. The event service has followed it
since boot and keeps the lines with Xids, so that a prolog need not ask the journal, which may take
seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import zlib
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Mapping, Sequence

from .._core.child import Process
from .._core.files import json_if_readable, write_atomic
from .._core.lock import host_lock
from .._core.run import MISSING, CommandResult, CommandRunner
from .._host.hardware_log import WORDS
from .._host.kernel_log import KernelLog, Message, message, read_log, read_ring
from .settings import Settings

STATE, EVENTS = "state.json", "events.json"
# The event service says this often that it is there.
BEAT_S = 30.0
_WAIT_S = 0.5
_JOURNAL_S = 20.0


@dataclass
class Hung:
    """A question without an answer since `since_s` (of the clock that runs since boot)."""

    since_s: float
    process: Process | None = None


@dataclass
class State:
    """What is remembered.

    `drained` is the reason that this program wrote and has not seen go, in the boot `drained_boot`;
    where that boot only found the drain, `drained_s` is of the last Xid that was there then.
    Xids until `settled_s` (seconds since boot) were dealt with by the operator who resumed the
    node; the event service has acted on those until `acted_s`.
    """

    boot: str = ""
    hung: dict[str, Hung] = field(default_factory=dict)
    drained: str = ""
    settled_s: float = 0.0
    acted_s: float = 0.0
    # Why the node is unfit and yet in service, and since when (of the clock that runs since boot).
    held: str = ""
    held_s: float = 0.0
    drained_boot: str = ""
    drained_s: float | None = None

    @property
    def drained_before(self) -> bool:
        """Whether the drain is of an earlier boot: what resumes the node has seen nothing since."""
        return bool(self.drained) and self.drained_boot != self.boot

    def drain(self, reason: str, found_s: float | None = None) -> None:
        """Remember a drain of this boot, or with "" that there is none."""
        self.drained, self.drained_boot = reason, self.boot if reason else ""
        self.drained_s = found_s

    def as_data(self) -> dict[str, Any]:
        """Return mappings and scalars, for JSON."""
        hung = {
            name: {"since_s": one.since_s, "process": vars(one.process) if one.process else None}
            for name, one in self.hung.items()
        }
        return {**vars(self), "hung": hung}


def state_from_data(data: Any, boot: str) -> State:
    """Return what was remembered; of an earlier boot only the drain."""
    if not isinstance(data, Mapping):
        return State(boot)
    try:
        # Releases before did not keep the boot of a drain.
        drained_boot = str(data.get("drained_boot", data["boot"]))
        if data["boot"] != boot:
            return State(boot, drained=str(data["drained"]), drained_boot=drained_boot)
        hung = {
            str(name): Hung(
                float(one["since_s"]),
                Process(int(one["process"]["pid"]), str(one["process"]["start"]))
                if one["process"]
                else None,
            )
            for name, one in data["hung"].items()
        }
        settled, acted = float(data["settled_s"]), float(data["acted_s"])
        held, held_s = str(data.get("held", "")), float(data.get("held_s", 0.0))
        drained, found = str(data["drained"]), data.get("drained_s")
        drained_s = None if found is None else float(found)
        return State(boot, hung, drained, settled, acted, held, held_s, drained_boot, drained_s)
    except (KeyError, TypeError, ValueError, AttributeError):
        return State(boot)


def load_state(folder: str, boot: str) -> State:
    """Return what is remembered."""
    return state_from_data(json_if_readable(os.path.join(folder, STATE)), boot)


def lock_name(folder: str, what: str) -> str:
    """Return the name of a lock that stands for something in this folder."""
    return f"node-health-{zlib.crc32(folder.encode()):08x}-{what}"


@contextlib.contextmanager
def change_state(folder: str, boot: str) -> Iterator[State]:
    """Change what is remembered, one at a time. Raises BusyError, OSError."""
    with host_lock(lock_name(folder, STATE), _WAIT_S):
        state = load_state(folder, boot)
        yield state
        text = json.dumps(state.as_data())
        write_atomic(os.path.join(folder, STATE), text, 0o600, sync=False)


def is_of_concern(line: str) -> bool:
    """Return whether a line may be an Xid or a fault of the hardware; most lines are neither."""
    return "Xid" in line or any(word in line for word in WORDS)


def mark_of(line: str) -> Message | str:
    """Return what tells a message from others, in a record of the kernel and in the journal alike.

    journald keeps the microseconds of the record. A line without a time stands for itself.
    """
    found = message(line)
    return line if found is None or found.uptime_s is None else found


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
            there = {mark_of(line) for line in ring.text.split("\n") if is_of_concern(line)}
            lost = [line for line in kept if mark_of(line) not in there]
            return KernelLog("\n".join([*lost, ring.text]))
        if run is not None:
            return read_log("", run, _JOURNAL_S)
        return ring

    return read


def remembered(folder: str, boot: str) -> list[str] | None:
    """Return the lines that the event service keeps; None where it has not followed all along."""
    kept = json_if_readable(os.path.join(folder, EVENTS))
    try:
        fresh = abs(time.clock_gettime(time.CLOCK_BOOTTIME) - kept["beat_s"]) < 3 * BEAT_S
        if kept["boot"] == boot and kept["whole"] and fresh:
            return [str(line) for line in kept["lines"]]
    except (KeyError, TypeError):
        pass
    return None
