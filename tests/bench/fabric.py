# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What it costs to prove a fabric of 1,024 nodes with 8 rails, against the usual three commands.

Needs ibsim, opensm and infiniband-diags (tests/fabric/get_ibsim). In one run, on one fabric:

    ibnetdiscover -p, iblinkinfo -l, ibqueryerrors --skip-sl --data --counters    one after another
    fabric_verify as Ansible runs it on the host: asking, judging, writing its files

Fails where fabric_verify takes more than 0.6 of the wall time of the three, or where its own
process (without the tools) takes 5 CPU seconds or 500 MB. There is no interval between readings: it
is a wait that the user chooses.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "fabric")]

from world import plan_cables, plan_data  # noqa: E402, I001
from sim import LARGE, NoSimulatorError, Sim, simulator  # noqa: E402

from ansible_collections.baremetal.dgx.plugins.plugin_utils._cables.netlist import (  # noqa: E402
    hca_guid,
    netlist,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (  # noqa: E402
    plan_to_data,
)

MOST_OF_WALL = 0.6
MOST_CPU_S = 5.0
MOST_MB = 500.0

NAIVE = (
    ["ibnetdiscover", "-p"],
    ["iblinkinfo", "-l"],
    ["ibqueryerrors", "--skip-sl", "--data", "--counters"],
)
TIERS = {1024: (256, 256, 128), 127: (32, 16)}

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


def naive(sim: Sim) -> tuple[float, float]:
    """Wall and CPU seconds of the three commands."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    for argv in NAIVE:
        result = sim.run(argv, timeout_s=300)
        assert result.out, result.describe()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - started, cpu


def ours(sim: Sim, folder: Path, expected: int) -> tuple[float, float, float]:
    """Wall seconds, own CPU seconds and megabytes of fabric_verify."""
    arguments = folder / "arguments"
    params = {
        "plan_file": str(folder / "cables.json"),
        "interval_s": 0,
        "timeout_s": 300,
        "outstanding": 8,
        "tool_environment": sim.environment(),
        "output": str(folder / "out"),
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
        env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"},
        check=False,
    )
    wall = time.monotonic() - started
    assert done.stdout, done.stderr[-2000:]
    answer = json.loads(done.stdout)
    counts = answer["summary"]["cables"]
    assert counts == {"pass": expected, "fail": 0, "not_measured": 0}, answer["msg"][:500]
    cpu, megabytes = json.loads(done.stderr.splitlines()[-1])
    return wall, cpu, megabytes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1024, choices=sorted(TIERS))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    plan = plan_cables(plan_data(options.nodes, TIERS[options.nodes]))
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cables.json").write_text(json.dumps(plan_to_data(plan)))
        host = f"H-{hca_guid(plan.hcas['dgx-0001', 0])}"
        try:
            with simulator(folder / "sim", netlist(plan), host, *LARGE) as sim:
                sim.start_opensm(host, "-R", "updn")
                print(
                    f"{options.nodes} nodes, {len(plan.switches)} switches, {len(plan.cables)} "
                    f"cables; up after {time.monotonic() - started:.0f} s",
                    flush=True,
                )
                usual, verified = [], []
                # In turn, so that a machine that others use, too, is unfair to neither.
                for _round in range(options.rounds):
                    usual.append(naive(sim))
                    verified.append(ours(sim, folder, len(plan.cables)))
                    print(
                        f"  three commands {usual[-1][0]:.2f} s wall, {usual[-1][1]:.2f} s CPU; "
                        f"fabric_verify {verified[-1][0]:.2f} s wall, {verified[-1][1]:.2f} s own "
                        f"CPU, {verified[-1][2]:.0f} MB",
                        flush=True,
                    )
        except NoSimulatorError as error:
            print(f"not measured: {error}")
            return 2
    wall = statistics.median(run[0] for run in usual)
    mine = statistics.median(run[0] for run in verified)
    cpu = statistics.median(run[1] for run in verified)
    megabytes = max(run[2] for run in verified)
    share = mine / wall
    print(f"fabric_verify takes {share:.2f} of the wall time (aim: {MOST_OF_WALL})")
    print(f"its own work: {cpu:.2f} CPU s (aim: {MOST_CPU_S:g}), {megabytes:.0f} MB (aim: 500)")
    good = share <= MOST_OF_WALL and cpu < MOST_CPU_S and megabytes < MOST_MB
    return 0 if good or options.nodes < 1024 else 1


if __name__ == "__main__":
    sys.exit(main())
