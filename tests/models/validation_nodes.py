# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stand-in nodes under the real launch of validate_nodes, their srun and their ssh.

    validation_nodes.py control WORLD     the control side: what validation_run does
    WORLD/bin/srun …                      the step: it plays all of its nodes in one process
    WORLD/bin/ssh … NODE COMMAND          what the real clush calls: it plays one node

A node answers through the real spool, keeps its answers under load in its folder and asks no such
part twice, as `_node_validation/parts.py` does. What befalls it is in WORLD/fates.json: `dead`
cannot be started, and ends the whole step, as Slurm does; with one that is `down` no step is
created; `hang` is silent after its first part; `torn` loses the end of every line. By ssh the
connection of one with `breaks` is lost once after its first load, that of one with `lost` always,
and in one with `fault` the program itself ends. All others answer, some lines twice, in any order.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.baremetal.dgx.plugins.module_utils._core.files import (
    NO_OTHER,
    make_folder,
    open_folder,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.nodeset import expand
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.launch import Launch
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.spool import (
    Spool,
    beat_of,
    lines_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.start import srun_start

RUN = "0123456789abcdef"
QUICK, LOADS = ("gpu_health", "canary"), ("burn", "nccl")
PARTS = (*QUICK, *LOADS)
DEAD, HANG, TORN, DOWN = "dead", "hang", "torn", "down"
BREAKS, LOST, FAULT = "breaks", "lost", "fault"
SILENT_S, BEAT_S = 4.0, 0.3


def answer_of(node: str, part: str) -> dict[str, object]:
    """What this node answers, of several lines."""
    numbers = random.Random(f"{node}{part}")
    records = [{"check": f"{part}.{one}", "text": str(numbers.random())} for one in range(60)]
    return {"verdict": "pass", "records": records}


@dataclass(frozen=True)
class World:
    """A folder with the nodes, what befalls them, and the spool."""

    folder: Path

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    def fates(self) -> dict[str, str]:
        return json.loads((self.folder / "fates.json").read_text())

    def names(self) -> list[str]:
        return json.loads((self.folder / "names.json").read_text())

    def make(self, names: list[str], fates: dict[str, str], part_s: float) -> None:
        (self.folder / "names.json").write_text(json.dumps(names))
        (self.folder / "fates.json").write_text(json.dumps(fates))
        (self.folder / "part_s").write_text(str(part_s))
        (self.folder / "program").write_text("a program")
        for name in names:
            (self.folder / "nodes" / name).mkdir(parents=True)
        (self.folder / "bin").mkdir()
        for name in ("srun", "ssh"):
            tool, play = self.folder / "bin" / name, f"{sys.executable} {__file__} {name}"
            tool.write_text(f'#!/bin/sh\nexec {play} {self.folder} "$@"\n')
            tool.chmod(0o755)

    def asked(self, node: str) -> list[str]:
        """The parts that a node was asked, each as often as it was begun."""
        log = self.folder / "nodes" / node / "asked"
        return log.read_text().split() if log.exists() else []

    def interrupted(self, node: str) -> int:
        """How often the program of a node was ended in the middle of a load."""
        loads = [part for part in self.asked(node) if part in LOADS]
        return len(loads) - len(list((self.folder / "nodes" / node).glob("*.json")))

    def answers(self) -> Spool:
        """What the last control side has handed on."""
        spool = Spool(RUN)
        for path in self.spool.glob("spool-*.gz"):
            with gzip.open(path, "rt") as lines:
                for line in lines:
                    node, _colon, text = line.partition(": ")
                    spool.feed(node, text)
        return spool

    def launch(self, silent_s: float = SILENT_S) -> Launch:
        make_folder(str(self.spool), 0o700, NO_OTHER)
        folder = open_folder(str(self.spool), deny=NO_OTHER)
        return Launch(RUN, folder, dict.fromkeys(self.names(), PARTS), silent_s)


def control(world: World) -> None:
    """Start all nodes as steps of jobs of up to 128 nodes; write what came, and who is missing."""
    os.environ["PATH"] = f"{world.folder / 'bin'}:{os.environ['PATH']}"
    names = world.names()
    groups = {str(at): names[at : at + 128] for at in range(0, len(names), 128)}
    launch = world.launch()
    launch.run(
        groups,
        lambda name, job, nodes: srun_start(name, job, nodes, ["python3", RUN]),
        str(world.folder / "program"),
        600,
    )
    launch.pack()
    (world.folder / "missing.json").write_text(json.dumps(launch.missing(names)))


class Node:
    """One node of a step."""

    def __init__(self, world: World, rank: int | None, name: str, fate: str, part_s: float) -> None:
        self._place = world.folder / "nodes" / name
        self._label = f"{rank}: " if rank is not None else ""
        self._name, self._fate, self._part_s = name, fate, part_s
        self._numbers = random.Random()

    def lines(self) -> Iterator[tuple[float, str]]:
        """Yield when the next line comes, and it; the caller sleeps. It ends with the program."""
        # Another step's program may still be at work: one at a time, as on a real node.
        with (self._place / "lock").open("w") as lock:
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                # Where the program of another step hangs, this one is not heard either.
                yield BEAT_S, "" if self._fate == HANG else self._beat()
            for part in PARTS:
                kept = self._place / f"{part}.json"
                if not kept.exists():
                    with (self._place / "asked").open("a") as log:
                        log.write(f"{part}\n")
                    left = self._part_s * self._numbers.random()
                    while left > 0:
                        yield min(left, BEAT_S), self._beat()
                        left -= BEAT_S
                    if part in LOADS:
                        kept.touch()
                for line in self._lines_of(part):
                    yield 0.0, f"{self._label}{line}"
                while self._fate == HANG:
                    yield 0.5, ""

    def _beat(self) -> str:
        """What a node that is at work says."""
        return f"{self._label}{beat_of(RUN, self._name)}"

    def _lines_of(self, part: str) -> list[str]:
        lines = lines_of(RUN, self._name, part, answer_of(self._name, part))
        if self._fate == TORN:
            return [line[: -1 - self._numbers.randrange(40)] for line in lines]
        lines += [line for line in lines if self._numbers.random() < 0.05]
        self._numbers.shuffle(lines)
        return lines


def srun(world: World, words: list[str]) -> int:
    """Play the nodes of a step; return its exit status."""
    given = dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
    names, fates = expand(given["--nodelist"]), world.fates()
    part_s = float((world.folder / "part_s").read_text())
    assert sys.stdin.read() == "a program"
    if any(fates.get(name) == DOWN for name in names):
        print("srun: error: Unable to create step for job 1: Required node not available (down)")
        return 1
    dead = [name for name in names if fates.get(name) == DEAD]
    for name in dead:
        message = f"srun: error: Task launch for StepId=1.0 failed on node {name}: Communication "
        print(f"{message}connection failure", flush=True)
    # What was started runs for a moment, and is then ended with the step.
    until = time.monotonic() + (0.1 if dead else 3600)
    nodes = [Node(world, rank, one, fates.get(one, ""), part_s) for rank, one in enumerate(names)]
    waits = [(time.monotonic(), node.lines()) for node in nodes if node._name not in dead]
    while waits and time.monotonic() < until:
        now, later, text = time.monotonic(), [], []
        for at, lines in waits:
            wait = 0.0
            while at <= now:
                wait, line = next(lines, (-1.0, ""))
                if wait < 0:
                    break
                if line:
                    text.append(line)
                at = now + wait if wait else at
            if wait >= 0:
                later.append((at, lines))
        if text:
            os.write(1, "".join(f"{line}\n" for line in text).encode())
        waits = later
        time.sleep(0.01)
    return 1 if dead else 0


def ssh(world: World, name: str) -> int:
    """Play a node of clush; return the exit status of ssh."""
    fate, place = world.fates().get(name, ""), world.folder / "nodes" / name
    if fate in (LOST, FAULT):
        return 255 if fate == LOST else 3
    node = Node(world, None, name, fate, float((world.folder / "part_s").read_text()))
    for wait_s, line in node.lines():
        if fate == BREAKS and (place / f"{LOADS[0]}.json").exists():
            (world.folder / "fates.json").write_text("{}")
            return 255
        time.sleep(wait_s)
        if line:
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    own = World(Path(sys.argv[2]))
    if sys.argv[1] == "control":
        control(own)
    elif sys.argv[1] == "ssh":
        sys.exit(ssh(own, sys.argv[-2]))
    else:
        sys.exit(srun(own, sys.argv[3:]))
