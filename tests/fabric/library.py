# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the fault library on worlds, alone and two at a time, and count what was found.

.venv/bin/python tests/fabric/library.py [PAIRS_PER_FABRIC]
"""

from __future__ import annotations

import copy
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]

from world import SIZES, NoRoomError, World, choose_start, copied, plan_of  # noqa: E402, I001
from hand import FAULTS, HARMLESS, Done, Hand, protected  # noqa: E402
import faults_cables  # noqa: E402, F401  (they enter themselves in the list)
import faults_devices  # noqa: E402, F401
import faults_links  # noqa: E402, F401

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_model import (  # noqa: E402
    Sweep,
)

_worlds: dict[str, World] = {}


def fresh(size: str) -> World:
    if size not in _worlds:
        _worlds[size] = World.of(plan_of(size))
    kept = _worlds[size]
    world = copy.copy(kept)
    world.fabric = Sweep({guid: copied(device) for guid, device in kept.fabric.devices.items()})
    for name in ("mute", "disabled", "before", "after", "doubled", "sms", "adapters", "errors"):
        setattr(world, name, copy.copy(getattr(kept, name)))
    return world


@dataclass
class Case:
    """A broken fabric, what must be found in it, and what was."""

    size: str
    names: tuple[str, ...]
    seed: int
    world: World
    expected: set[tuple[str, str]] = field(default_factory=set)
    doubts: set[tuple[str, str]] = field(default_factory=set)
    touched: set = field(default_factory=set)

    def run(self) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
        verdict = self.world.judge()
        found = {(finding.kind, finding.subject) for finding in verdict.findings}
        unsure = {(finding.kind, finding.subject) for finding in verdict.doubts}
        # Each finding is told once.
        assert len(found) == len(verdict.findings), sorted(found)
        return found, unsure

    def __str__(self) -> str:
        return f"{self.size}: {' + '.join(self.names)} (seed {self.seed})"


def build(size: str, names: tuple[str, ...], seed: int) -> Case:
    """Break a fabric; NoRoomError where it has no place for these faults together."""
    world = fresh(size)
    rng = random.Random(f"{size} {names} {seed}")
    case = Case(size, names, seed, world)
    for name in names:
        hand = Hand(world, rng, protected(world) | case.touched)
        done: Done = {**FAULTS, **HARMLESS}[name](hand)
        case.expected |= done.findings
        case.doubts |= done.doubts
        case.touched |= done.touched
    choose_start(world, case.touched)
    return case


def singles(seeds: int = 3) -> list[tuple[str, tuple[str, ...], int]]:
    names = [*FAULTS, *HARMLESS]
    return [(size, (name,), seed) for size in SIZES for name in names for seed in range(seeds)]


def pairs(per_fabric: int, seed: int = 0) -> list[tuple[str, tuple[str, ...], int]]:
    rng = random.Random(seed)
    chosen = []
    # What is out of reach cannot be seen to be broken as well.
    names = [name for name in FAULTS if name != "most_of_the_fabric_out_of_reach"]
    for size in SIZES:
        for index in range(per_fabric):
            chosen.append((size, tuple(rng.sample(names, 2)), index))
    return chosen


@dataclass
class Score:
    runs: int = 0
    no_room: int = 0
    faults: int = 0
    detected: int = 0
    false: int = 0
    exact: int = 0
    wrong: list[str] = field(default_factory=list)

    def take(self, size: str, names: tuple[str, ...], seed: int) -> None:
        try:
            case = build(size, names, seed)
        except NoRoomError:
            self.no_room += 1
            return
        found, unsure = case.run()
        self.runs += 1
        self.faults += len(case.expected)
        self.detected += len(case.expected & found)
        self.false += len(found - case.expected)
        if found == case.expected and unsure == case.doubts:
            self.exact += 1
        else:
            self.wrong.append(
                f"{case}: not found {sorted(case.expected - found)}, besides "
                f"{sorted(found - case.expected)}, unsure {sorted(unsure ^ case.doubts)}"
            )


def main() -> int:
    per_fabric = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    rc = 0
    for title, runs in (("one fault", singles()), ("two faults", pairs(per_fabric))):
        for size in SIZES:
            score = Score()
            for run in runs:
                if run[0] == size:
                    score.take(*run)
            if not score.runs:
                continue
            print(
                f"{title}, {size}: {score.runs} fabrics, {score.faults} findings due, "
                f"{100 * score.detected / score.faults:.2f} % found, {score.false} false alarms, "
                f"{100 * score.exact / score.runs:.2f} % exact ({score.no_room} without room)"
            )
            for line in score.wrong[:20]:
                print("  " + line)
                rc = 1
    print(f"{len(FAULTS)} faults, {len(HARMLESS)} harmless conditions, {len(SIZES)} fabrics")
    return rc


if __name__ == "__main__":
    sys.exit(main())
