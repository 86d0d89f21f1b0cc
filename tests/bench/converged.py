# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a re-run that changes nothing costs the control machine, layer by layer.

Prints CPU seconds (user and system, of ansible-playbook, its forks and ssh processes) per host,
over SSH with pipelining, against the converged pod named by POD. Fails when a layer changed
something, since then it was no re-run, and when the Slurm layer is over its threshold.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
# CPU seconds per host that the Slurm layer may take (the peers' comparable role: 18 to 26 s of wall
# time on one host, for less).
THRESHOLDS = {"slurm, compute node": 6.0, "slurm, controller": 20.0}
# CPU seconds that one more GPU node may add to site.yml (16.6 before the plan wrote the inputs,
# 13.4 on 26 November 2026).
ONE_MORE = 15.0
LAYERS = (
    ("check_inventory", "check_inventory", ""),
    ("node_base", "prepare_nodes", "gpu_nodes"),
    ("slurm, compute node", "configure_scheduler", "gpu_nodes"),
    ("slurm, controller", "configure_scheduler", "slurm_controllers"),
    ("slurm, login node", "configure_scheduler", "login_nodes"),
    ("verify", "verify", ""),
)


def measure(pod: str, name: str, limit: str) -> tuple[float, float, int, int]:
    """Return CPU seconds, wall seconds, hosts and tasks of one converged run."""
    arguments = ["ansible-playbook", f"baremetal.dgx.{name}", "-i"]
    arguments.append(str(CHECKOUT / ".pod" / pod / "inventory"))
    arguments += ["--limit", limit] if limit else []
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / ".cache" / "collections"),
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_NOCOLOR": "1",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    done = subprocess.run(
        arguments,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    wall = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    recap = re.findall(r"^\S+\s+: ok=(\d+)\s+changed=(\d+)", done.stdout, re.MULTILINE)
    if done.returncode or not recap or any(int(changed) for _ok, changed in recap):
        sys.exit(f"{name}: not a converged run (rc {done.returncode})\n{done.stdout[-3000:]}")
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return cpu, wall, len(recap), max(int(ok) for ok, _changed in recap)


def one_more(pod: str, number: int = 2) -> float:
    """Return the CPU seconds that a GPU node adds to site.yml, the mean of `number` nodes."""
    nodes = sorted(
        host for host in json.loads(ansible_inventory(pod, "--list"))["gpu_nodes"]["hosts"]
    )
    if len(nodes) <= number:
        sys.exit(f"pod {pod} has {len(nodes)} GPU nodes; {number + 1} are needed")
    without = ":".join(["all", *(f"!{node}" for node in nodes[-number:])])
    whole, part = (measure(pod, "site", limit)[0] for limit in ("", without))
    return (whole - part) / number


def ansible_inventory(pod: str, *arguments: str) -> str:
    """Return what ansible-inventory prints."""
    command = ["ansible-inventory", "-i", str(CHECKOUT / ".pod" / pod / "inventory"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Print one line a layer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pod", default=os.environ.get("POD", "demo"))
    pod = parser.parse_args().pod
    print(f"{'layer':22} {'hosts':>5} {'tasks':>5} {'CPU s/host':>11} {'wall s':>7}")
    over = []
    for label, name, limit in LAYERS:
        cpu, wall, hosts, tasks = measure(pod, name, limit)
        print(f"{label:22} {hosts:5} {tasks:5} {cpu / hosts:11.2f} {wall:7.1f}", flush=True)
        if cpu / hosts > THRESHOLDS.get(label, float("inf")):
            over.append(f"{label}: {cpu / hosts:.2f} CPU s per host, threshold {THRESHOLDS[label]}")
    cost = one_more(pod)
    print(f"site.yml over one more GPU node: {cost:.1f} CPU s")
    if cost > ONE_MORE:
        over.append(f"one more GPU node: {cost:.1f} CPU s, threshold {ONE_MORE}")
    if over:
        sys.exit("\n".join(over))


if __name__ == "__main__":
    main()
