# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that is made up but behaves: files with times of change, systemd, and daemons that read.

Contents of files are real, in a folder of the test; the clock and the inodes' times of change are
the model's own, so that a history of days takes milliseconds. Daemons start slowly, crash and are
started again as time passes. Every write, command and stamp is a step at which a run can be killed.
"""

from __future__ import annotations

import fnmatch
import os
import time as real_time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ENDED, CommandResult
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units import (
    apply as _units_apply,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units import (
    systemd as _units_host,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units.plan import Stamp, Wanted

NOON = 1_790_000_000.0


class Killed(BaseException):
    """kill -9: no handler runs."""


@dataclass
class Clock:
    """Is in for the module `time`: nothing happens on the host but while it passes."""

    wall: float = NOON
    mono: float = 1000.0
    watchers: list[Callable[[], None]] = field(default_factory=list)

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.mono

    def sleep(self, seconds: float) -> None:
        while seconds > 0:
            step = min(seconds, 0.5)
            seconds -= step
            self.wall += step
            self.mono += step
            for watcher in self.watchers:
                watcher()

    def __getattr__(self, name: str) -> object:
        return getattr(real_time, name)


@dataclass
class Unit:
    """One unit: `reads` are what its process reads at start, `rereads` what it also reloads.

    `crashes_s` of a content is the number after the word `crash` in any of its files.
    """

    name: str
    definition: Path
    reads: list[str]
    rereads: list[str]
    kind: str = "notify"
    can_reload: bool = True
    restarts_itself: bool = True
    restart_s: float = 5.0
    ready_s: float = 0.0
    active: str = "inactive"
    sub: str = "dead"
    enabled: bool = False
    result: str = "success"
    exit_status: int = 0
    pid: int = 0
    invocation: str = ""
    restarts: int = 0
    born: float = 0.0
    started: float = 0.0
    started_wall: float = 0.0
    up_since: float = 0.0
    state_changed: float = 0.0
    has_read: bool = False
    runs_with: dict[str, str] = field(default_factory=dict)
    loaded_definition: str = ""
    loaded_at_start: str = ""
    starts: int = 0
    reloads: int = 0
    deaths: int = 0
    log: list[str] = field(default_factory=list)
    # the states that the next answers show
    fate: list[tuple[str, str]] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return self.pid > 0

    @property
    def crashes_s(self) -> float | None:
        """Seconds after which the process dies of what it has read."""
        times = [
            float(text.split("crash", 1)[1].split()[0])
            for text in self.runs_with.values()
            if "crash" in text
        ]
        return min(times, default=None)


class Host:
    """The model. Call it like a runner of commands."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self.clock = clock
        clock.watchers.append(self.live)
        self.units: dict[str, Unit] = {}
        # the same as in the files, for the daemons to read
        self.contents: dict[str, str] = {}
        self.ctimes: dict[str, float] = {str(folder): clock.wall}
        self.commands: list[str] = []
        # what a command answers instead, by its first two words
        self.broken: dict[str, CommandResult] = {}
        self.steps = 0
        self.kill_at: int | None = None
        self.next_pid = 100

    # files

    def text(self, path: str) -> str:
        """The content of a path; of a pattern, of all files that match."""
        if "*" in path:
            found = sorted(name for name in self.contents if fnmatch.fnmatch(name, path))
            return "\n".join(f"{name}: {self.contents[name]}" for name in found)
        return self.contents.get(path, "absent")

    def write(self, path: str, text: str | None) -> None:
        """Rename a new content into place, or remove the file."""
        if text is None:
            Path(path).unlink(missing_ok=True)
            self.ctimes.pop(path, None)
            self.contents.pop(path, None)
        else:
            self.contents[path] = text
            Path(path).write_text(text)
            self.ctimes[path] = self.tick()
        self.ctimes[str(Path(path).parent)] = self.tick()

    def chmod(self, path: str) -> None:
        if path in self.ctimes:
            self.ctimes[path] = self.tick()

    def tick(self) -> float:
        """The kernel stamps inodes with the clock of the last tick."""
        return int(self.clock.wall * 100) / 100

    def changed_ns(self, path: str) -> int:
        return int(self.ctimes.get(str(path), 0) * 1e9)

    # systemd

    def add(self, name: str, reads: Sequence[str], rereads: Sequence[str], **more: object) -> Unit:
        definition = self.folder / name
        self.write(str(definition), "[Service]\nExecStart=/bin/x\n")
        unit = Unit(name, definition, list(reads), list(rereads), **more)
        unit.loaded_definition = definition.read_text()
        self.units[name] = unit
        return unit

    def disk_of(self, unit: Unit) -> dict[str, str]:
        paths = [*unit.reads, *unit.rereads, str(unit.definition)]
        return {path: self.text(path) for path in paths}

    def up_to_date(self, unit: Unit) -> bool:
        """True when the process runs with what is on disk, once it has read all there is to it."""
        return unit.active == "active" and unit.runs_with == self.disk_of(unit)

    def set_state(self, unit: Unit, active: str, sub: str) -> None:
        if active == "active" and unit.active not in ("active", "reloading"):
            unit.up_since = self.clock.mono
        inactive = ("inactive", "failed")
        if unit.active in inactive and active not in inactive:
            unit.started, unit.started_wall = self.clock.mono, self.clock.wall
        unit.active, unit.sub, unit.state_changed = active, sub, self.clock.mono

    def start(self, unit: Unit, by_systemd: bool = False) -> None:
        """Start its process, which reads its files when it has been up for `ready_s`."""
        if unit.active not in ("inactive", "failed", "activating"):
            self.set_state(unit, "inactive", "dead")
        self.next_pid += 1
        unit.pid, unit.invocation = self.next_pid, f"invocation-{self.next_pid}"
        unit.restarts = unit.restarts + 1 if by_systemd else 0
        unit.deaths = unit.deaths if by_systemd else 0
        unit.result, unit.exit_status, unit.has_read = "success", 0, False
        unit.born = self.clock.mono
        unit.starts += not by_systemd
        self.set_state(unit, "activating", "start")
        unit.loaded_at_start = unit.loaded_definition
        if unit.kind == "simple":
            self.set_state(unit, "active", "running")
        if not unit.ready_s:
            self.read(unit)

    def read(self, unit: Unit) -> None:
        before = unit.runs_with
        unit.runs_with = {path: self.text(path) for path in [*unit.reads, *unit.rereads]}
        unit.runs_with[str(unit.definition)] = unit.loaded_at_start
        unit.has_read = True
        if unit.runs_with != before:
            unit.deaths = 0
        if unit.active == "activating":
            self.set_state(unit, "active", "running")

    def reload(self, unit: Unit) -> None:
        before = dict(unit.runs_with)
        unit.runs_with.update({path: self.text(path) for path in unit.rereads})
        unit.reloads += 1
        if unit.runs_with != before:
            unit.deaths = 0

    def die(self, unit: Unit, result: str, status: int = 0) -> None:
        unit.pid, unit.result, unit.exit_status = 0, result, status
        unit.log.append(f"Main process exited, status={status}")
        self.set_state(unit, "failed", "failed")
        if unit.restarts_itself:
            self.set_state(unit, "activating", "auto-restart")

    def live(self) -> None:
        """What happens by itself: processes get ready, crash, and are started again."""
        for unit in self.units.values():
            if unit.sub == "auto-restart":
                if self.clock.mono - unit.state_changed >= unit.restart_s:
                    self.start(unit, by_systemd=True)
                continue
            if not unit.alive:
                continue
            age = self.clock.mono - unit.born
            if not unit.has_read and age >= unit.ready_s:
                self.read(unit)
            crashes_s = unit.crashes_s
            if unit.has_read and crashes_s is not None and age - unit.ready_s >= crashes_s:
                unit.deaths += 1
                self.die(unit, "exit-code", 1)

    def reboot(self, down_s: float = 60.0) -> None:
        for unit in self.units.values():
            unit.pid, unit.restarts, unit.invocation = 0, 0, ""
            unit.active, unit.sub, unit.result = "inactive", "dead", "success"
            unit.started = unit.up_since = unit.state_changed = 0.0
            unit.loaded_definition = self.text(str(unit.definition))
        self.clock.wall += down_s
        self.clock.mono = 10.0
        for unit in self.units.values():
            if unit.enabled:
                self.start(unit)

    def daemon_reload(self) -> None:
        for unit in self.units.values():
            unit.loaded_definition = self.text(str(unit.definition))

    # commands

    def step(self) -> None:
        """A moment at which a run may be killed."""
        self.steps += 1
        if self.kill_at == self.steps:
            raise Killed

    def __call__(
        self, argv: Sequence[str], timeout_s: float = 30, env: Mapping[str, str] | None = None
    ) -> CommandResult:
        words = list(argv)
        self.step()
        self.clock.sleep(0.05)
        result = self.answer(words, timeout_s)
        self.step()
        return result

    def answer(self, words: list[str], timeout_s: float) -> CommandResult:
        key = " ".join(words[:2])
        if key in self.broken:
            return self.broken[key]
        if words[0] == "journalctl":
            unit = self.units[next(w for w in words if "." in w).removeprefix("_SYSTEMD_UNIT=")]
            return self.ended("\n".join(unit.log[-5:]))
        if words[:2] == ["systemctl", "show"]:
            names = words[words.index("--") + 1 :]
            return self.ended("\n\n".join(self.show(name) for name in names))
        self.commands.append(" ".join(words[1:] if words[0] == "systemctl" else words))
        if words[0] != "systemctl":
            for unit in self.units.values():
                self.reload(unit)
            return self.ended("")
        if words[1] == "daemon-reload":
            self.daemon_reload()
            return self.ended("")
        return self.act(words[1], self.units[words[2]], timeout_s)

    def act(self, verb: str, unit: Unit, timeout_s: float) -> CommandResult:
        if verb in ("start", "restart"):
            self.start(unit)
            waited = 0.0
            while unit.active == "activating" and unit.sub == "start" and waited < timeout_s:
                self.clock.sleep(0.5)
                waited += 0.5
            if unit.active != "active":
                return CommandResult((verb,), ENDED, 1, "", "Job failed")
        elif verb == "reload":
            if not unit.alive:
                return CommandResult((verb,), ENDED, 1, "", "Unit is not active, cannot reload")
            self.set_state(unit, "reloading", "reload")
            self.reload(unit)
            self.set_state(unit, "active", "running")
        elif verb == "stop":
            unit.pid = 0
            self.set_state(unit, "inactive", "dead")
        elif verb == "reset-failed":
            unit.result = "success"
            self.set_state(unit, "inactive", "dead")
        elif verb in ("enable", "disable"):
            if not unit.definition.exists():
                # As up to systemd 255, of `disable` too.
                err = f"Failed to {verb} unit: Unit file {unit.name} does not exist."
                return CommandResult((), ENDED, 1, "", err)
            unit.enabled = verb == "enable"
        else:
            raise AssertionError(verb)
        return self.ended("")

    @staticmethod
    def ended(out: str) -> CommandResult:
        return CommandResult((), ENDED, 0, out)

    def show(self, name: str) -> str:
        if name not in self.units:
            return f"Id={name}\nLoadState=not-found\nActiveState=inactive\nSubState=dead"
        unit = self.units[name]
        if unit.fate:
            unit.active, unit.sub = unit.fate.pop(0)
        stale = unit.loaded_definition != self.text(str(unit.definition))
        started = real_time.gmtime(unit.started_wall)
        values = {
            "Id": name,
            "LoadState": "not-found" if unit.loaded_definition == "absent" else "loaded",
            "ActiveState": unit.active,
            "SubState": unit.sub,
            "Result": unit.result,
            "UnitFileState": self.enabling(unit),
            "Type": unit.kind,
            "MainPID": unit.pid,
            "NRestarts": unit.restarts,
            "InvocationID": unit.invocation,
            "NeedDaemonReload": "yes" if stale else "no",
            "CanReload": "yes" if unit.can_reload else "no",
            "FragmentPath": unit.definition,
            "ExecMainStatus": unit.exit_status,
            "InactiveExitTimestamp": real_time.strftime("%a %Y-%m-%d %H:%M:%S UTC", started),
            "InactiveExitTimestampMonotonic": int(unit.started * 1e6),
            "ActiveEnterTimestampMonotonic": int(unit.up_since * 1e6),
            "StateChangeTimestampMonotonic": int(unit.state_changed * 1e6),
        }
        return "\n".join(f"{key}={value}" for key, value in values.items())

    @staticmethod
    def enabling(unit: Unit) -> str:
        """Of a unit whose file is gone, systemd does not say it, whatever links lead there."""
        if not unit.definition.exists():
            return ""
        return "enabled" if unit.enabled else "disabled"


class Patches:
    """Puts the model under the module, and takes it away again."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.kept: list[tuple[object, str, object]] = []

    def set(self, owner: object, name: str, value: object) -> None:
        self.kept.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def __enter__(self) -> Host:
        host = self.host
        write = _units_host.write_stamp

        def write_stamp(name: str, stamp: Stamp) -> None:
            host.step()
            write(name, stamp)
            host.step()

        # a test's folder need not survive the machine
        self.set(os, "fsync", lambda _descriptor: None)
        self.set(_units_host, "STAMP_FOLDER", str(host.folder / "applied"))
        # Thousands of runs; that a child reads the files has its own test.
        self.set(_units_host, "in_time", lambda _what, work, _limit_s: work(None))
        self.set(_units_host, "UNIT_FOLDERS", [])
        self.set(_units_host, "changed_ns", host.changed_ns)
        self.set(_units_host, "time", host.clock)
        self.set(_units_apply, "time", host.clock)
        self.set(_units_apply, "write_stamp", write_stamp)
        return host

    def __exit__(self, *_error: object) -> None:
        for owner, name, value in reversed(self.kept):
            setattr(owner, name, value)


def wanted(unit: Unit, **options: object) -> Wanted:
    """How the unit must be: running, enabled, with what is on disk."""
    return Wanted(
        unit.name,
        enabled=True,
        restart_on=tuple(unit.reads),
        reload_on=tuple(unit.rereads),
        **options,
    )
