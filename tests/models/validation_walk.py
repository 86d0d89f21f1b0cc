# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A validation of many stand-in nodes whose control side is killed again and again.

Of the nodes 2 % cannot be started, 2 % hang and 1 % answer in torn lines. Sometimes only the
control side is killed and its steps go on, sometimes both. Whatever happens, the last run ends with
the answers of all others, exactly these are missing, and no load was asked twice but one that was
interrupted.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import validation_nodes as model

_COLLECTIONS = Path(__file__).resolve().parents[2] / ".cache" / "collections"


class WalkError(Exception):
    """A property does not hold."""


@dataclass(frozen=True)
class Told:
    """What a walk has seen."""

    nodes: int
    kills: int
    missing: int
    asked: int
    interrupted: int
    seconds: float


def fates_of(names: list[str], numbers: random.Random) -> dict[str, str]:
    """Return what befalls 5 % of the nodes, at least one of each kind."""
    dead = max(1, len(names) * 2 // 100)
    kinds = [model.DEAD] * dead + [model.HANG] * dead + [model.TORN] * max(1, len(names) // 100)
    return dict(zip(numbers.sample(names, len(kinds)), kinds, strict=True))


def _control(world: model.World) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, model.__file__, "control", str(world.folder)],
        env={**os.environ, "PYTHONPATH": str(_COLLECTIONS)},
        stdin=subprocess.DEVNULL,
    )


def _steps(world: model.World) -> Iterator[int]:
    """Yield the processes of steps that run, of this walk alone."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"srun" in words and str(world.folder).encode() in words:
                yield int(entry.name)


def _end_steps(world: model.World) -> None:
    for pid in list(_steps(world)):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def walk(
    folder: Path, nodes: int, kills: int, seed: int, part_s: float = 0.2, most_s: float = 1.5
) -> Told:
    """Validate, killed so many times, then to the end; WalkError says what does not hold."""
    numbers, started = random.Random(seed), time.monotonic()
    names = [f"dgx-{number:04}" for number in range(1, nodes + 1)]
    fates = fates_of(names, numbers)
    world = model.World(folder)
    world.make(names, fates, part_s)
    try:
        for _kill in range(kills):
            running = _control(world)
            try:
                running.wait(numbers.uniform(0.1, most_s))
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
            if numbers.random() < 0.5:
                _end_steps(world)
        # To the end: what an earlier step still does is waited for.
        running = _control(world)
        if running.wait(600):
            raise WalkError(f"the last run ended with {running.returncode}")
    finally:
        _end_steps(world)
    missing = json.loads((folder / "missing.json").read_text())
    _check(world, fates, missing, kills)
    return Told(
        nodes,
        kills,
        len(missing),
        sum(len(world.asked(name)) for name in names),
        sum(world.interrupted(name) for name in names),
        time.monotonic() - started,
    )


def _check(world: model.World, fates: dict[str, str], missing: list[str], kills: int) -> None:
    if sorted(missing) != sorted(fates):
        raise WalkError(f"missing are {missing}, and must be {sorted(fates)}")
    spool = world.answers()
    for name in world.names():
        asked = world.asked(name)
        if name not in fates:
            for part in model.PARTS:
                if spool.answer(name, part) != model.answer_of(name, part):
                    raise WalkError(f"{name} has no or another answer of {part}")
        if fates.get(name) == model.DEAD and asked:
            raise WalkError(f"{name} is dead and was asked {asked}")
        if fates.get(name) == model.HANG and asked[1:] != asked[1:].count("gpu_health") * [
            "gpu_health"
        ]:
            raise WalkError(f"{name} hangs after its first part and was asked {asked}")
        # A part is begun again only if it was ended in the middle, and a kill ends one at most;
        # each dead node ends its step once for each run.
        if world.interrupted(name) > 2 * (kills + 1):
            raise WalkError(f"{name} was asked {asked}")
