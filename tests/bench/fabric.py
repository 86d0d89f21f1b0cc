# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What it costs to prove a fabric of 1,024 nodes with 8 rails, against the usual three commands.

Needs ibsim, opensm and infiniband-diags (tests/fabric/get_ibsim). On one simulated fabric, in turn:

    ibnetdiscover -p, iblinkinfo -l, ibqueryerrors --skip-sl --data --counters    one after another
    fabric_verify as Ansible runs it on the host: asking, judging, writing its files

first as planned, then with 35 faults at once, which must all be found, and nothing else. Fails
where the median of fabric_verify is above LIMITS, where its own process (without the tools) takes
5 CPU seconds or 500 MB, or where records.json has more than 10 MB. There is no interval between
readings: it is a wait that the user chooses.

    --nodes 4096 --rounds 1 --faults 0    the large one; an hour on two cores
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "fabric")]

from world import NoRoomError, World, choose_start, plan_cables, plan_data  # noqa: E402, I001
from fabric_netlist import netlist_of  # noqa: E402
from hand import Hand, protected  # noqa: E402
from library import ALONE, FAULTS, OF_NAMES  # noqa: E402
from sim import NoSimulatorError, Sim, simulator, tools  # noqa: E402

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (  # noqa: E402
    Cable,
    plan_to_data,
)

# Of the median of the three commands, and of ibnetdiscover alone.
SOUND, BROKEN, DISCOVERY = "as planned", "with faults", "of ibnetdiscover alone"
LIMITS = {SOUND: 0.28, BROKEN: 0.4, DISCOVERY: 1.3}
MOST_CPU_S = 5.0
MOST_MB = 500.0
MOST_RECORDS_MB = 10.0

NAIVE = (
    ["ibnetdiscover", "-p"],
    ["iblinkinfo", "-l"],
    ["ibqueryerrors", "--skip-sl", "--data", "--counters"],
)
TIERS = {4096: (1024, 1024, 512), 1024: (256, 256, 128), 127: (32, 16)}
ROOM = ("-N", "40000", "-S", "2600", "-P", "200000", "-L", "49152")
# What one reading of the counters cannot show, and what the simulator has no answer for.
NOT_PLAYED = {"errors", "no_sm", "two_masters", "standby_missing", "sm_unexpected"}
WAIT_S = 600

# Runs the module in its own process, and says what that process used, without its children.
CHILD = """
import json, resource, sys, time
sys.path.insert(0, {collections!r})
from ansible.module_utils import basic
from ansible_collections.baremetal.dgx.plugins.modules import fabric_verify
basic._ANSIBLE_ARGS = open({arguments!r}, "rb").read()
basic._ANSIBLE_PROFILE = "legacy"
try:
    fabric_verify.main()
except SystemExit:
    pass
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]), file=sys.stderr)
"""


@dataclass
class Rounds:
    """What each round took: wall seconds, and what the module's own process used."""

    three: list[float] = field(default_factory=list)
    discovery: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)
    records_mb: float = 0

    def of_three(self) -> float:
        return statistics.median(self.ours) / statistics.median(self.three)

    def of_discovery(self) -> float:
        return statistics.median(self.ours) / statistics.median(self.discovery)


def naive(sim: Sim, rounds: Rounds) -> None:
    """Run the three commands."""
    took = []
    for argv in NAIVE:
        started = time.monotonic()
        result = sim.run(argv, timeout_s=WAIT_S)
        assert result.out, result.describe()
        took.append(time.monotonic() - started)
    rounds.three.append(sum(took))
    rounds.discovery.append(took[0])


def ours(sim: Sim, folder: Path, world: World, due: set[tuple[str, str]], rounds: Rounds) -> None:
    """Run fabric_verify, and see that it finds what is due and nothing else."""
    arguments = folder / "arguments"
    params = {
        "plan_file": str(folder / "cables.json"),
        "interval_s": 0,
        "timeout_s": WAIT_S,
        "outstanding": 8,
        "tool_environment": {**tools(), **sim.environment()},
        "output": str(folder / "out"),
        "fail_on": [],
        "adapters": world.adapters,
    }
    arguments.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": params}))
    collections = str(ROOT / ".cache" / "collections")
    code = CHILD.format(collections=collections, arguments=str(arguments))
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **tools()},
        check=False,
    )
    rounds.ours.append(time.monotonic() - started)
    assert done.stdout, done.stderr[-2000:]
    answer = json.loads(done.stdout)
    found = {(one["kind"], one["subject"]) for one in answer["causes"]}
    # What is absent behind a device that is silent may not be measured.
    unsure = {(one["kind"], one["subject"]) for one in answer["doubts"]}
    assert found <= due <= found | unsure, (sorted(found ^ due), answer["text"][:500])
    if not due:
        counts = {"pass": len(world.plan.cables), "fail": 0, "not_measured": 0}
        assert answer["summary"]["cables"] == counts, answer["text"][:500]
    cpu, megabytes = json.loads(done.stderr.splitlines()[-1])
    rounds.cpu.append(cpu)
    rounds.megabytes.append(megabytes)
    rounds.records_mb = (folder / "out" / "records.json").stat().st_size / 1e6


def break_it(world: World, count: int) -> set[tuple[str, str]]:
    """Break the fabric in so many ways at once; return the findings that are due."""
    rng, done = random.Random("bench"), 0
    touched: set[Cable] = set()
    due: set[tuple[str, str]] = set()
    names = [name for name in FAULTS if name not in OF_NAMES | ALONE]
    while done < count:
        before = copy.deepcopy(world.options), dict(world.sms), set(world.disabled)
        try:
            one = FAULTS[rng.choice(names)](Hand(world, rng, protected(world) | touched))
            choose_start(world, touched | one.touched)
        except NoRoomError:
            continue
        if {kind for kind, _subject in one.findings} & NOT_PLAYED:
            world.options, world.sms, world.disabled = before
            continue
        touched |= one.touched
        due |= one.findings
        done += 1
    return due


def measure(
    world: World, due: set[tuple[str, str]], folder: Path, count: int, title: str
) -> Rounds:
    """Measure so many rounds, the commands and the module in turn."""
    folder.mkdir()
    (folder / "cables.json").write_text(json.dumps(plan_to_data(world.plan)))
    host, started, rounds = f"H-{world.start}", time.monotonic(), Rounds()
    with simulator(folder / "sim", netlist_of(world.fabric), host, *ROOM, wait_s=WAIT_S) as sim:
        sim.start_opensm(host, "-R", "updn", wait_s=3600)
        for guid in sorted(world.silent):
            kind = "S" if world.fabric.devices[guid].kind == "switch" else "H"
            sim.console(f'Error "{kind}-{guid}" 100')
        print(f"{title}: {len(due)} findings due, up after {time.monotonic() - started:.0f} s")
        # In turn, so that a machine that others use, too, is unfair to neither.
        for _round in range(count):
            naive(sim, rounds)
            ours(sim, folder, world, due, rounds)
            print(
                f"  ibnetdiscover {rounds.discovery[-1]:.2f} s, three commands "
                f"{rounds.three[-1]:.2f} s; fabric_verify {rounds.ours[-1]:.2f} s, own CPU "
                f"{rounds.cpu[-1]:.2f} s, {rounds.megabytes[-1]:.0f} MB",
                flush=True,
            )
    return rounds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1024, choices=sorted(TIERS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--faults", type=int, default=35)
    options = parser.parse_args()
    plan = plan_cables(plan_data(options.nodes, TIERS[options.nodes]))
    print(f"{options.nodes} nodes, {len(plan.switches)} switches, {len(plan.cables)} cables")
    missed = []

    def report(what: str, value: float, most: float, unit: str = "") -> None:
        print(f"{what}: {value:.2f}{unit} (at most {most:g})", flush=True)
        # A smaller fabric shows that the bench works, and not what the large one costs.
        if value > most and options.nodes >= 1024:
            missed.append(what)

    with tempfile.TemporaryDirectory() as name:
        world = World.of(plan)
        world.options = {}
        world.ask_nodes()
        try:
            for title, count in ((SOUND, 0), (BROKEN, options.faults)):
                if title == BROKEN and not count:
                    continue
                due = break_it(world, count) if count else set()
                if not count:
                    choose_start(world, set())
                rounds = measure(world, due, Path(name, str(count)), options.rounds, title)
                if options.nodes <= 1024:
                    report(f"share of the three, {title}", rounds.of_three(), LIMITS[title])
                    cpu = statistics.median(rounds.cpu)
                    report(f"own CPU, {title}", cpu, MOST_CPU_S, " s")
                    report(f"memory, {title}", max(rounds.megabytes), MOST_MB, " MB")
                if title == SOUND:
                    report(f"share {DISCOVERY}", rounds.of_discovery(), LIMITS[DISCOVERY])
                report(f"records.json, {title}", rounds.records_mb, MOST_RECORDS_MB, " MB")
        except NoSimulatorError as error:
            print(f"not measured: {error}")
            return 2
    for what in missed:
        print(f"missed: {what}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
