# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Follows the kernel's log and drains the node at once when a GPU throws a serious Xid.

What was there before the service came up is looked at as well, but acted on only once: each line
that was seen is remembered until the next boot.
"""

from __future__ import annotations

import errno
import json
import os
import select
import time
from dataclasses import dataclass, field
from typing import Callable, Iterator, Protocol

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_health_device import Asker
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_health_events import (
    judge_events,
    judge_switch_events,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._health_ask import (
    boot_id,
    gpu_wanted,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._health_log import (
    BEAT_S,
    remembered,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._health_report import (
    answer_of,
    reason_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._health_settings import (
    EVENT,
    Settings,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._health_slurm import (
    OwnNode,
    SlurmError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._health_state import (
    EVENTS,
    change_state,
    load_state,
    write_text,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._kernel_log import KernelLog, read_log
from ansible_collections.baremetal.dgx.plugins.module_utils._lock import BusyError
from ansible_collections.baremetal.dgx.plugins.module_utils._records import FAIL, Record
from ansible_collections.baremetal.dgx.plugins.module_utils._run_alone import run
from ansible_collections.baremetal.dgx.plugins.module_utils._xid import open_events, parse_log
from ansible_collections.baremetal.dgx.plugins.module_utils._xid_table import RECOVERY_CHANGED

_SLURM_S = 10.0
# A burst of lines is one event; waiting for its end costs less than a second.
_SETTLE_S = 0.3
_RETRY_S = 15.0
_FILE_POLL_S = 0.2
# A GPU that throws Xids throws thousands.
_MOST_LINES = 500
_JOURNAL_S = 60.0
_JUST_AFTER_S = 1e-6


class Source(Protocol):
    """Where lines of the kernel come from."""

    def read(self, wait_s: float) -> list[str]:
        """Return the lines that have come within this time; OSError when there is no more."""


class FileSource:
    """A file that grows, such as the log of a simulated node."""

    def __init__(self, path: str) -> None:
        self.path, self.offset, self.rest = path, 0, ""

    def read(self, wait_s: float) -> list[str]:
        """Return whole lines; a file that became shorter was begun anew."""
        until = time.monotonic() + wait_s
        while True:
            try:
                size = os.stat(self.path).st_size
            except OSError:
                size = self.offset
            if size != self.offset:
                break
            if time.monotonic() >= until:
                return []
            time.sleep(min(_FILE_POLL_S, wait_s))
        if size < self.offset:
            self.offset, self.rest = 0, ""
        with open(self.path, encoding="utf-8", errors="replace") as handle:
            handle.seek(self.offset)
            text = self.rest + handle.read()
            self.offset = handle.tell()
        lines = text.split("\n")
        self.rest = lines.pop()
        return lines


class KernelSource:
    """The kernel's buffer, from its beginning on."""

    def __init__(self, path: str = "/dev/kmsg") -> None:
        self.handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def read(self, wait_s: float) -> list[str]:
        """Return records; one was overwritten where lines were lost, and the next is read."""
        lines: list[str] = []
        if not select.select([self.handle], [], [], wait_s)[0]:
            return lines
        while True:
            try:
                part = os.read(self.handle, 8192)
            except BlockingIOError:
                return lines
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue
                raise
            if not part:
                return lines
            # What follows the first line are tags of the record.
            lines.append(part.decode("utf-8", "replace").split("\n", 1)[0])


@dataclass
class Follower:
    """The event service: its memory, and what it does with new lines."""

    settings: Settings
    source: Source
    say: Callable[[str], None]
    slurm: OwnNode
    boot: str = field(default_factory=boot_id)
    lines: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    whole: bool = False
    pending: str = ""
    beat: float = 0.0
    retry: float = 0.0

    def begin(self, log: KernelLog) -> None:
        """Take the log since boot, and what an earlier service has remembered."""
        kept = remembered(self.settings.state_dir, self.boot)
        self.seen.update(kept or ())
        self.lines = list(kept or ())
        self.whole = not log.gap or kept is not None
        self.take(log.text.splitlines())

    def take(self, lines: list[str]) -> None:
        """Look at lines; what is new and serious drains the node."""
        fresh = [line for line in lines if "Xid" in line and line not in self.seen]
        if not fresh:
            return
        self.seen.update(fresh)
        marker = f": {RECOVERY_CHANGED},"
        room = max(0, _MOST_LINES - len(self.lines))
        self.lines += fresh[:room] + [line for line in fresh[room:] if marker in line]
        self.store()
        records = self.judge()
        failed = [record for record in records if record.status == FAIL]
        if not failed:
            return
        data = [record.as_data() for record in failed]
        self.pending = reason_of(data)
        self.retry = 0.0
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        answer = answer_of(self.settings.node, EVENT, at, 0.0, data)
        path = os.path.join(self.settings.state_dir, f"{EVENT}.json")
        try:
            write_text(path, json.dumps(answer) + "\n")
        except OSError as error:
            self.say(f"checker: {path} cannot be written: {error.strerror}")
        self.act()

    def judge(self) -> list[Record]:
        """Judge what is remembered and not yet settled, by the checks of gpu_health."""
        state = load_state(self.settings.state_dir, self.boot)
        since = max(state.settled_s, state.acted_s)
        wanted = gpu_wanted(self.settings, idle=False, since_s=since)
        node, log = self.settings.node, KernelLog()
        events = parse_log("\n".join(self.lines))
        xids = [event for event in events if event.kind == "xid"]
        records: list[Record] = []
        for number, address in enumerate(wanted.pci):
            mine = [event for event in xids if event.pci == address]
            asker = Asker(f"gpu:{node}/{number}", wanted, (f"PCI {address}",))
            records += judge_events(asker, mine, log)
        strange = [event for event in xids if event.pci not in wanted.pci]
        whole = Asker(f"node:{node}", wanted)
        if strange:
            records += judge_events(whole, strange, log)
        switches = [event for event in events if event.kind == "sxid"]
        records += judge_switch_events(whole, switches, log, wanted)
        return records

    def act(self) -> None:
        """Drain for what is pending; where Slurm does not answer, again later."""
        if not self.pending or time.monotonic() < self.retry:
            return
        try:
            change = self.slurm.drain(self.pending, _SLURM_S)
        except SlurmError as error:
            self.retry = time.monotonic() + _RETRY_S
            self.say(f"checker: Slurm was not told, again in {_RETRY_S:g} s: {error}")
            return
        self.say(f"{self.settings.node} {change.said}")
        self.pending = ""
        stamps = [event.uptime_s for event in open_events(parse_log("\n".join(self.lines)))]
        latest = max([stamp for stamp in stamps if stamp is not None], default=0.0)
        try:
            with change_state(self.settings.state_dir, self.boot) as state:
                state.acted_s = max(state.acted_s, latest + _JUST_AFTER_S)
                state.drained = change.reason or state.drained
        except (BusyError, OSError) as error:
            self.say(f"checker: what was done cannot be kept: {error}")

    def store(self) -> None:
        """Remember the lines, and say that the service is there."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        self.beat = time.monotonic()
        data = {"boot": self.boot, "whole": self.whole, "beat_s": now, "lines": self.lines}
        try:
            write_text(os.path.join(self.settings.state_dir, EVENTS), json.dumps(data))
        except OSError as error:
            self.say(f"checker: {EVENTS} cannot be written: {error.strerror}")

    def steps(self) -> Iterator[None]:
        """Follow for ever; one step is at most a beat. OSError where the log ends."""
        self.store()
        while True:
            lines = self.source.read(min(BEAT_S, _RETRY_S if self.pending else BEAT_S))
            if any("Xid" in line for line in lines):
                lines += self.source.read(_SETTLE_S)
            self.take(lines)
            self.act()
            if time.monotonic() - self.beat >= BEAT_S:
                self.store()
            yield


def follower_of(settings: Settings, say: Callable[[str], None]) -> Follower:
    """Return the service of a node, which has looked at all since boot. OSError without a log."""
    path = settings.roots.kernel_log
    # Opened first: nothing may be lost between the two.
    source: Source = FileSource(path) if path else KernelSource()
    made = Follower(settings, source, say, OwnNode(run, settings.node, settings.scontrol))
    made.begin(KernelLog() if path else read_log("", run, _JOURNAL_S))
    return made
