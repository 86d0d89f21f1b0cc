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

from .._core.files import write_atomic
from .._core.lock import BusyError
from .._core.names import boot_id
from .._core.record import FAIL, Record, utc_text
from .._core.run import run
from .._gpu.judge_device import Asker
from .._gpu.judge_node import judge_events, judge_switch_events
from .._gpu.xid import open_events, parse_line, parse_log
from .._gpu.xid_table import RECOVERY_CHANGED
from .._host.hardware_log import fault_of, status_of
from .._host.kernel_log import KernelLog, Message, message, read_log
from . import settings as s
from .own_node import OwnNode, SlurmError, own_node
from .questions import gpu_wanted
from .report import answer_of, reason_of
from .settings import EVENT, Settings
from .state import BEAT_S, EVENTS, change_state, is_of_concern, load_state, mark_of, remembered

_SLURM_S = 10.0
# A burst of lines is one event; waiting for its end costs less than a second.
_SETTLE_S = 0.3
_RETRY_S = 15.0
_FILE_POLL_S = 0.2
# A GPU that throws Xids throws thousands. The limit is for each kind, since a user's program can
# cause as many as it likes, and must not push out those of the hardware.
_MOST_LINES = 100
_JOURNAL_S = 60.0
_JUST_AFTER_S = 1e-6


class Source(Protocol):
    """Where lines of the kernel come from; `lost` once some are gone that were not read."""

    lost: bool

    def read(self, wait_s: float) -> list[str]:
        """Return the lines that have come within this time; OSError when there is no more."""


class FileSource:
    """A file that grows, such as the log of a simulated node."""

    def __init__(self, path: str) -> None:
        self.path, self.offset, self.rest, self.lost = path, 0, "", False

    def read(self, wait_s: float) -> list[str]:
        """Return whole lines; a file that became shorter is a new one."""
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
        self.lost = False

    def read(self, wait_s: float) -> list[str]:
        """Return records; where some were overwritten unread, it goes on with the next."""
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
                    self.lost = True
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
    seen: set[Message | str] = field(default_factory=set)
    whole: bool = False
    pending: str = ""
    beat: float = 0.0
    retry: float = 0.0

    def begin(self, log: KernelLog) -> None:
        """Take the log since boot, and what an earlier service has remembered."""
        kept = remembered(self.settings.state_dir, self.boot)
        # Each once: earlier releases kept the lines of the journal beside those of the kernel.
        once = {mark_of(line): line for line in kept or ()}
        self.seen.update(once)
        self.lines = list(once.values())
        self.whole = not log.gap or kept is not None
        self.take(log.text.split("\n"))

    def take(self, lines: list[str]) -> None:
        """Look at lines; what is new and serious drains the node."""
        # What a program writes by its own name must not fill the memory.
        reported = [line for line in lines if _kind_of(line)]
        fresh = [line for line in reported if mark_of(line) not in self.seen]
        if not fresh:
            return
        self.seen.update(map(mark_of, fresh))
        self.lines = _last_of_each(self.lines + fresh)
        self.store()
        records = self.judge()
        failed = [record for record in records if record.status == FAIL]
        if not failed:
            return
        data = [record.as_data() for record in failed]
        self.pending = reason_of(data)
        at = utc_text()
        answer = answer_of(self.settings.node, EVENT, at, 0.0, data)
        path = os.path.join(self.settings.state_dir, f"{EVENT}.json")
        try:
            write_atomic(path, json.dumps(answer) + "\n", sync=False)
        except OSError as error:
            self.say(f"checker: {path} cannot be written: {error.strerror}")
        self.act()

    def judge(self, found_s: float = 0.0) -> list[Record]:
        """Judge what is remembered and not yet settled, by the checks of gpu_health."""
        state = load_state(self.settings.state_dir, self.boot)
        since = max(state.settled_s, state.acted_s, found_s)
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
        records += judge_switch_events(whole, switches, log, wanted, xids)
        return records

    def act(self) -> None:
        """Drain for what is pending; where Slurm does not answer, again later."""
        if not self.pending or time.monotonic() < self.retry:
            return
        # The driver, or the operator who resumed the node, may have settled it since.
        self.pending = reason_of(record.as_data() for record in self.judge())
        if not self.pending:
            return
        try:
            change = self.slurm.drain(self.pending, _SLURM_S)
        except SlurmError as error:
            self.retry = time.monotonic() + _RETRY_S
            self.say(f"checker: Slurm did not take the change, again in {_RETRY_S:g} s: {error}")
            return
        if change.held:
            self.retry = time.monotonic() + s.HELD_S
            self.hold(change.message)
            return
        state = load_state(self.settings.state_dir, self.boot)
        known = not change.changed and change.reason == state.drained
        found_s = 0.0 if state.drained_before else state.drained_s
        if known and found_s is not None and reason_of(r.as_data() for r in self.judge(found_s)):
            # Slurm resumes it by itself after `scontrol reboot`, or the gate by evidence from
            # before: what came since is to drain it then.
            self.retry = time.monotonic() + s.HELD_S
            return
        self.say(f"{self.settings.node} {change.message}")
        self.pending = ""
        stamps = [event.uptime_s for event in open_events(parse_log("\n".join(self.lines)))]
        latest = max([stamp for stamp in stamps if stamp is not None], default=0.0)
        try:
            with change_state(self.settings.state_dir, self.boot) as state:
                state.acted_s = max(state.acted_s, latest + _JUST_AFTER_S)
                if change.reason and not known:
                    state.drain(change.reason)
                state.held = ""
        except (BusyError, OSError) as error:
            self.say(f"checker: what was done cannot be kept: {error}")

    def hold(self, text: str) -> None:
        """Remember that the brake keeps the node in service, and say so once."""
        try:
            with change_state(self.settings.state_dir, self.boot) as state:
                known, state.held = state.held, text
                state.held_s = time.clock_gettime(time.CLOCK_BOOTTIME)
            if not known:
                self.say(f"{self.settings.node} {text}")
        except (BusyError, OSError) as error:
            self.say(f"checker: {text}; that cannot be kept: {error}")

    def store(self) -> None:
        """Remember the lines, and say that the service is there."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        self.beat = time.monotonic()
        data = {"boot": self.boot, "whole": self.whole, "beat_s": now, "lines": self.lines}
        try:
            write_atomic(
                os.path.join(self.settings.state_dir, EVENTS), json.dumps(data), sync=False
            )
        except OSError as error:
            self.say(f"checker: {EVENTS} cannot be written: {error.strerror}")

    def fill(self) -> None:
        """Take what was overwritten unread from the journal; without that there is a gap."""
        self.source.lost = self.whole = False
        # The journal may take long, and a prolog must not trust the memory in the meantime.
        self.store()
        log = read_log("", run, _JOURNAL_S)
        self.whole = not log.gap
        self.take(log.text.split("\n"))
        self.store()

    def steps(self) -> Iterator[None]:
        """Follow forever; one step is at most a beat. OSError where the log ends."""
        self.store()
        while True:
            lines = self.source.read(min(BEAT_S, _RETRY_S if self.pending else BEAT_S))
            if any("Xid" in line for line in lines):
                lines += self.source.read(_SETTLE_S)
            if self.source.lost:
                self.fill()
            self.take(lines)
            self.act()
            if time.monotonic() - self.beat >= BEAT_S:
                self.store()
            yield


def _kind_of(line: str) -> tuple[str, int, str] | None:
    """Return what a line is about; None for what is neither an Xid nor a fault of the hardware.

    Faults are kept for the runs of the health program; only Xids drain at once.
    """
    if not is_of_concern(line):
        return None
    if "Xid" in line:
        event = parse_line(line)
        return None if event is None else (event.kind, event.code, event.pci)
    text = message(line)
    if text is None:
        return None
    status = status_of(text)
    if status is not None:
        return (f"status {status.bits:08x}", 0, status.where)
    fault = fault_of(text)
    return None if fault is None else (fault.kind, int(fault.corrected), fault.where)


def _last_of_each(lines: list[str]) -> list[str]:
    """Return the last lines of each kind of event, and all that settle others, in their order."""
    count: dict[tuple[str, int, str], int] = {}
    kept: list[str] = []
    for line in reversed(lines):
        key = _kind_of(line) or ("", 0, "")
        count[key] = count.get(key, 0) + 1
        if count[key] <= _MOST_LINES or key[1] == RECOVERY_CHANGED:
            kept.append(line)
    return kept[::-1]


def follower_of(settings: Settings, say: Callable[[str], None]) -> Follower:
    """Return the service of a node, which has looked at all since boot. OSError without a log."""
    path = settings.roots.kernel_log
    # Opened first: nothing may be lost between the two.
    source: Source = FileSource(path) if path else KernelSource()
    made = Follower(settings, source, say, own_node(run, settings))
    made.begin(KernelLog() if path else read_log("", run, _JOURNAL_S))
    return made
