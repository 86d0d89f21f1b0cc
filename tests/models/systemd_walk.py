# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random histories of one host: what people, packages and killed runs do between two runs.

After each completed run the daemon must run with what is on disk, and nothing may have been
started or reloaded without cause. A run may be red only when the daemon crashes by what it reads.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from systemd_host import Clock, Host, Killed, Patches, Unit, wanted

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ToolError
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units import apply as _units_apply

UNIT = "slurmd.service"
FILES = ("key", "conf", "extra.conf", "rules-a.conf", "rules-b.conf", "other", "definition")


class HistoryError(AssertionError):
    """A history in which something went wrong that must not."""


@dataclass
class Since:
    """What has happened since the last completed run."""

    touched: set[str] = field(default_factory=set)
    new_process: bool = False
    reloaded: bool = False
    killed: bool = True


class Walk:
    """One history, from a seed."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.dice = random.Random(seed)
        self.seed = seed
        self.folder = folder
        self.clock = Clock()
        self.host = Host(folder, self.clock)
        self.story: list[str] = []
        self.since = Since()
        kind = self.dice.choice(["notify", "simple"])
        paths = {name: str(folder / name) for name in FILES}
        paths["definition"] = str(folder / UNIT)
        (folder / "rules").mkdir()
        for name in ("rules-a.conf", "rules-b.conf"):
            paths[name] = str(folder / "rules" / name)
        self.paths = paths
        self.unit: Unit = self.host.add(
            UNIT,
            [paths["key"], paths["extra.conf"]],
            [paths["conf"], str(folder / "rules" / "rules-*.conf")],
            kind=kind,
            can_reload=self.dice.random() < 0.8,
            restarts_itself=self.dice.random() < 0.8,
            restart_s=self.dice.choice([0.5, 5.0, 20.0]),
            ready_s=self.dice.choice([0.0, 0.0, 3.0, 8.0]),
        )
        self.inventories: list[dict[str, str | None]] = [self.inventory()]

    # inventories

    def inventory(self) -> dict[str, str | None]:
        """One content for each file: A, B, or (where it may be so) nothing."""
        return {
            "key": self.dice.choice("AB"),
            "conf": self.content("conf"),
            "extra.conf": self.dice.choice(["A", None, None]),
            "rules-a.conf": "A",
            "rules-b.conf": self.dice.choice(["B", None]),
            "other": str(self.dice.random()),
            "definition": f"[Service]\nExecStart=/bin/{self.dice.choice('xy')}\n",
        }

    def content(self, name: str) -> str | None:
        """A content for a drift or an inventory; now and then one that crashes the daemon."""
        if name == "conf" and self.dice.random() < 0.15:
            return f"crash {self.dice.choice([0.2, 1, 10, 40])}"
        if name == "definition":
            return f"[Service]\nExecStart=/bin/{self.dice.choice('xyz')}\n"
        if name in ("extra.conf", "rules-b.conf") and self.dice.random() < 0.5:
            return None
        return self.dice.choice("ABC")

    def change_inventory(self) -> None:
        new = dict(self.inventories[-1])
        for name in self.dice.sample(FILES, self.dice.randint(1, 3)):
            new[name] = self.content(name)
        self.inventories.append(new)
        self.story.append("inventory changed")

    def revert_inventory(self) -> None:
        self.inventories.append(dict(self.dice.choice(self.inventories)))
        self.story.append("inventory taken back")

    # other hands

    def write(self, name: str, text: str | None) -> None:
        self.host.write(self.paths[name], text)
        self.since.touched.add(name)

    def drift(self) -> None:
        name = self.dice.choice(FILES)
        self.write(name, self.content(name))
        self.story.append(f"drift in {name}")
        if name == "definition" and self.dice.random() < 0.7:
            self.host.daemon_reload()

    def chmod(self) -> None:
        name = self.dice.choice(FILES)
        self.host.chmod(self.paths[name])
        self.since.touched.add(name)
        self.story.append(f"chmod of {name}")

    def restart(self) -> None:
        self.host.daemon_reload()
        self.host.act("restart", self.unit, 90)
        self.since.new_process = True
        self.story.append("restart by hand")

    def reload(self) -> None:
        if self.unit.active == "active" and self.unit.can_reload:
            self.host.act("reload", self.unit, 90)
            self.since.reloaded = True
            self.story.append("reload by hand")

    def signal(self) -> None:
        """A reload that systemd does not see."""
        if self.unit.active == "active" and self.unit.can_reload:
            self.host.reload(self.unit)
            self.since.reloaded = True
            self.story.append("SIGHUP by hand")

    def kill_process(self) -> None:
        if self.unit.alive:
            self.host.die(self.unit, "signal")
            self.since.new_process = True
            self.story.append("kill -9 of the daemon")

    def stop(self) -> None:
        self.host.act("stop", self.unit, 90)
        self.unit.deaths = 0
        self.since.new_process = True
        self.story.append("stop by hand")

    def reboot(self) -> None:
        self.host.reboot()
        self.since.new_process = True
        self.story.append("reboot")

    def rest(self) -> None:
        self.clock.sleep(self.dice.choice([1.0, 4.0, 30.0, 90.0]))
        self.story.append("time passes")

    # runs

    def apply(self, kill_at: int | None) -> bool:
        """Write the files and synchronise; True when the run was not killed."""
        host = self.host
        host.steps, host.kill_at = 0, kill_at
        deaths = self.unit.deaths if self.unit.runs_with == host.disk_of(self.unit) else 0
        before = host.disk_of(self.unit)
        try:
            for name, text in self.inventories[-1].items():
                have = host.text(self.paths[name])
                if have != ("absent" if text is None else text):
                    host.step()
                    self.write(name, text)
                    self.clock.sleep(self.dice.choice([0.3, 1.0]))
                    host.step()
            self.synchronise(deaths if host.disk_of(self.unit) == before else 0)
        except Killed:
            self.since.killed = True
            self.story.append(f"run killed at step {kill_at}")
            return False
        finally:
            host.kill_at = None
        return True

    def synchronise(self, deaths: int) -> None:
        """One call of the module; deaths: how often the daemon has died with these very files."""
        unit, since = self.unit, self.since
        for _ in range(40):  # what is already going on in the daemon comes to its end
            if unit.has_read or not unit.alive:
                break
            self.clock.sleep(0.5)
        was_right = self.host.up_to_date(unit) and unit.enabled
        steady = was_right and not (unit.restarts and self.clock.mono - unit.up_since < 60)
        starts, reloads = unit.starts, unit.reloads
        try:
            _units_apply.synchronise(self.host, [wanted(unit)], False)
        except ToolError as error:
            self.story.append(f"run red: {error}")
            if "crash" not in str(self.host.disk_of(unit)):
                raise HistoryError(f"red without cause: {error}") from error
            since.killed = True
            return
        self.story.append(f"run: {unit.starts - starts} starts, {unit.reloads - reloads} reloads")
        self.judge_end(deaths)
        self.judge_cause(was_right, steady, unit.starts - starts, unit.reloads - reloads)
        self.since = Since(killed=False)
        if "crash" not in str(self.host.disk_of(unit)):
            again = _units_apply.synchronise(self.host, [wanted(unit)], False)
            if again.actions:
                raise HistoryError(f"the second run does {again.actions} {again.reasons}")

    def judge_end(self, deaths: int) -> None:
        unit, host = self.unit, self.host
        if deaths and (unit.crashes_s or 99) < 50:
            raise HistoryError("a daemon that crashes again and again is green")
        for _ in range(40):
            if unit.has_read or not unit.alive:
                break
            self.clock.sleep(0.5)
        if "crash" in str(host.disk_of(unit)):
            return
        if not host.up_to_date(unit):
            raise HistoryError(
                f"it is {unit.active} with {unit.runs_with}, not {host.disk_of(unit)}"
            )

    def judge_cause(self, was_right: bool, steady: bool, starts: int, reloads: int) -> None:
        since = self.since
        if starts > 1:
            raise HistoryError("started more than once")
        if not steady or since.killed or not (starts or reloads):
            return
        watched = since.touched - {"other"}
        another = since.new_process or since.reloaded
        if not watched and not (another and since.touched):
            raise HistoryError("started or reloaded though nothing was touched")
        settled = self.unit.kind == "notify" or "settled" in self.story
        if starts and was_right and settled and not another and self.unit.can_reload:
            raise HistoryError("started though the same process runs with what is on disk")

    def run(self) -> None:
        """The whole history; raises HistoryError."""
        moves: list[Callable[[], None]] = [
            self.change_inventory,
            self.change_inventory,
            self.revert_inventory,
            self.revert_inventory,
            self.drift,
            self.drift,
            self.chmod,
            self.restart,
            self.reload,
            self.signal,
            self.kill_process,
            self.stop,
            self.reboot,
            self.rest,
            self.rest,
        ]
        with Patches(self.host):
            self.apply(None)
            for _ in range(self.dice.randint(3, 12)):
                for _ in range(self.dice.randint(1, 3)):
                    self.dice.choice(moves)()
                    self.clock.sleep(self.dice.choice([0.3, 2.0, 10.0]))
                if self.dice.random() < 0.7:
                    kill = self.dice.randint(1, 30) if self.dice.random() < 0.4 else None
                    self.apply(kill)
            self.apply(None)


def walk(seed: int) -> int:
    """One history; returns the runs in it. Raises HistoryError with the story."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        history = Walk(seed, Path(folder))
        try:
            history.run()
        except HistoryError as error:
            report = "\n  ".join(history.story)
            raise HistoryError(f"seed {seed}: {error}\n  {report}") from error
        return sum(line.startswith("run") for line in history.story)


def first_broken(seeds: range) -> str:
    """The story of the first history that breaks, or nothing."""
    for seed in seeds:
        try:
            walk(seed)
        except HistoryError as error:
            return str(error)
    return ""
