# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Updates of firmware that are killed anywhere and run again, on a BMC in memory.

`Walk.tick` is called at each question to the BMC and around each line of the book; runs end there.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.firmware import (
    Book,
    Outcome,
    Rules,
    Update,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.redfish import (
    LackError,
    RefusedError,
    SilentError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.switch import Limits
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.taken import Taken
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.updates import (
    DONE,
    SETTLE_S,
    Event,
    read_line,
)

NODE = "dgx-01"
PACKAGES: list[Mapping[str, Any]] = [
    {"file": "/fw/bmc.fwpkg", "sha256": "a" * 64, "components": {"HostBMC_0": "2"},
     "activation": "none"},
    {"file": "/fw/tray.fwpkg", "sha256": "b" * 64, "components": {"HostBIOS_0": "2"},
     "activation": "dc"},
    {"file": "/fw/gpu.fwpkg", "sha256": "c" * 64, "components": {"GPU_*": "2"},
     "activation": "ac"},
]  # fmt: skip


class KilledError(Exception):
    """The run ends here."""


class KilledBook(Book):
    """A book around whose lines a run may be killed."""

    def __init__(self, folder: str, walk: Walk) -> None:
        super().__init__(folder)
        self.walk = walk

    def add(self, event: Event) -> None:
        self.walk.tick()
        super().add(event)
        self.walk.tick()


class Walk:
    """A machine with its BMC, and the runs that update it."""

    def __init__(self, folder: Path, seed: int = 0, shares: bool = False) -> None:
        self.folder, self.draw = folder, random.Random(seed)
        self.versions = {"HostBMC_0": "1", "HostBIOS_0": "1", "GPU_1": "1", "GPU_2": "1"}
        self.waiting: dict[str, list[str]] = {"none": [], "dc": [], "ac": []}
        self.flashed: list[str] = []
        self.cycles: list[str] = []
        self.known: dict[str, int] = {"/t/old": 0}
        self.state, self.away, self.number = "On", 0, "1660224000001"
        self.now, self.fuse, self.ticks, self.killed = 1_800_000_000.0, -1, 0, 0
        self.lies: set[str] = set()
        # Components without a version.
        self.unnamed: set[str] = set()
        # The maker allows one cycle for the last two packages.
        self.packages = [
            {**one, "cycle": "next"} if shares and one["activation"] == "dc" else one
            for one in PACKAGES
        ]
        self.cannot_cycle = self.loses_answers = self.spoils = self.forgets = False
        # Tasks that stay as they are.
        self.endless = False
        # An answer that names no task; whether it is 202; seconds until the task is in the list.
        self.names_none = self.is_accepted = False
        self.late_s: float | None = 0.0
        self.late: list[tuple[float, str]] = []
        # Questions without an answer after a package: the BMC starts again.
        self.restart = 0
        self.has_list = True

    # The BMC

    def tick(self) -> None:
        """A point at which the run may end."""
        self.ticks += 1
        if self.ticks == self.fuse:
            self.killed += 1
            raise KilledError

    def _asked(self) -> None:
        self.tick()
        if self.away > 0:
            self.away -= 1
            raise SilentError("no answer in time")

    def serial(self) -> str:
        # It is part of what a session begins with.
        return self.number

    def power(self) -> str:
        self._asked()
        return self.state

    def reset(self, kind: str) -> None:
        self._asked()
        if kind == "ac_cycle" and self.cannot_cycle:
            raise LackError("no way to cycle AC power")
        assert not any(self.known.values()), "a task is running"
        self.cycles.append(kind)
        self.state = "Off" if kind in ("off", "soft_off") else "On"
        if kind == "ac_cycle":
            self.away = 2
        for one in {"on": ["dc"], "ac_cycle": ["dc", "ac"]}.get(kind, []):
            self._activate(one)
        self.tick()

    def _activate(self, kind: str) -> None:
        for pattern in self.waiting[kind]:
            for name in self.versions:
                if name.startswith(pattern.rstrip("*")) and name not in self.lies:
                    self.versions[name] = "2"
        self.waiting[kind] = []

    def firmware(self) -> dict[str, str]:
        self._asked()
        return {**self.versions, **dict.fromkeys(self.unnamed, "")}

    def tasks(self) -> list[str]:
        self._asked()
        if not self.has_list:
            raise LackError("HTTP 404")
        hidden = {path for at, path in self.late if at > self.now}
        return [path for path in self.known if path not in hidden]

    def push(self, package: Mapping[str, Any]) -> Taken:
        self._asked()
        self.flashed.append(package["file"])
        path = f"/t/{len(self.known)}"
        if self.late_s is not None:
            self.known[path] = 2
            if self.names_none:
                self.late.append((self.now + self.late_s, path))
        self.waiting[package["activation"]] += list(package["components"])
        if self.late_s is None and not self.is_accepted:
            self._activate("none")
        self.tick()
        if self.loses_answers:
            raise SilentError("no answer in time")
        self.away = self.restart
        return Taken("" if self.names_none else path, not self.is_accepted)

    def task(self, path: str) -> tuple[str, str]:
        self._asked()
        if path not in self.known:
            raise RefusedError("HTTP 404")
        if self.known[path] > 0:
            self.known[path] -= not self.endless
            return "running", "39.1 %"
        if self.spoils:
            return "failed", "invalid image"
        self._activate("none")
        if self.forgets:
            self.known = {}
            raise RefusedError("HTTP 404")
        return "ended", "AC power cycle to activate"

    @contextlib.contextmanager
    def opener(self) -> Iterator[Walk]:
        self._asked()
        yield self

    # The runs

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def run(self, fuse: int = -1, **rules: Any) -> Outcome | None:
        """One run, which ends at the tick `fuse`; returns its outcome, None when killed."""
        # Time has passed: a BMC that was starting answers.
        self.ticks, self.fuse, self.away = 0, fuse, 0
        limits = Limits(soft_s=4, change_s=20, poll_s=2)
        given = Rules(limits=limits, flash_s=60, **rules)
        try:
            book = KilledBook(str(self.folder), self)
            return Update(
                NODE, self.opener, book, given, self.sleep, lambda: self.now
            ).run(self.packages)  # fmt: skip
        except KilledError:
            return None

    def events(self) -> list[Event]:
        """What stands on disk."""
        lines = (self.folder / "updates.jsonl").read_text().splitlines()
        return [event for line in lines if (event := read_line(line))]

    def check(self) -> None:
        """Whatever was sent has a line, and was sent once."""
        assert len(set(self.flashed)) == len(self.flashed), self.flashed
        noted = {event.package for event in self.events()} if self.flashed else set()
        for package in PACKAGES:
            assert package["file"] not in self.flashed or package["sha256"] in noted


def walk(folder: Path, seed: int) -> Walk:
    """Kill up to three runs at random points; the last one ends what they began."""
    world = Walk(folder, seed, shares=bool(seed % 2))
    world.names_none, world.is_accepted = bool(seed % 3), seed % 3 == 2
    world.late_s = 7.0 * (seed % 5)
    for _number in range(world.draw.randint(1, 3)):
        world.run(world.draw.randint(1, 80))
        world.check()
        world.now += SETTLE_S
    outcome = world.run()
    assert outcome is not None
    assert outcome.value == "done", outcome
    world.check()
    assert world.flashed == [package["file"] for package in PACKAGES]
    assert set(world.versions.values()) == {"2"}
    last = {event.package: event.what for event in world.events()}
    assert last == {package["sha256"]: DONE for package in PACKAGES}
    return world
