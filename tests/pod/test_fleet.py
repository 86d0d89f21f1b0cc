# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gate, repairs and report with 4,096 nodes in a real slurmctld, on a pod of one head node.

The compute nodes are in the inventory and in Slurm alone. A real slurmd registers each of them
once, four at a time on the head node, and ends again; later one slurmd answers for all of them,
since slurmctld asks a node that is let in whether it responds.
FLEET sets their number, FLEET_POD names a pod that is up and stays.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import CHECKOUT, environment, pod

KEPT = os.environ.get("FLEET_POD")
NAME, SUBNET = KEPT or "fleet", os.environ.get("FLEET_SUBNET", "10.79")
NODES = int(os.environ.get("FLEET", "4096"))
FAILED = 200
HEAD = "head-01"
# What a node fails on differs, since many that fail alike have one cause and get no step.
CHECKS = ("gpu.xid", "gpu.remap_failed", "gpu.ecc_uncorrectable", "host.memory_errors")
GATE = {"enabled": True, "share": 0.1, "fabric": False, "level": "standard"}
# CPU seconds of this machine for 4,096 nodes, ansible-playbook and its children.
MOST_CPU_S = {"admit_nodes": 30, "repair_nodes": 40}


@dataclass(frozen=True)
class Cost:
    """What a playbook took on this machine, its children included."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class Fleet:
    """An inventory of many nodes, and the folder of what was found out about them."""

    inventory: Path
    state: Path

    @property
    def nodes(self) -> list[str]:
        return [f"dgx-{number:04}" for number in range(1, NODES + 1)]

    def judge(self, node: str, status: str, check: str = CHECKS[0]) -> None:
        """Write the records of a validation."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        record = {
            "check": check, "subject": f"gpu:{node}/3", "status": status, "text": "of a test",
            "remedy": "look", "at": at, "evidence": [], "measured": None, "threshold": None,
            "took_s": None, "version": 1,
        }  # fmt: skip
        data = {"version": 1, "node": node, "level": "standard", "records": [record]}
        (self.state / "nodes" / f"{node}.json").write_text(json.dumps(data), encoding="utf-8")

    def run(self, name: str, *arguments: str) -> Cost:
        """Run a playbook to its end; return its costs."""
        words = {"cluster_state_dir": str(self.state), "cluster_gate": GATE}
        begun = time.monotonic()
        with (self.state / "output").open("w+", encoding="utf-8") as output:
            process = subprocess.Popen(
                ["ansible-playbook", f"baremetal.dgx.{name}", "-i", str(self.inventory),
                 "-e", json.dumps(words), *arguments],
                env=environment(), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
            _pid, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            text = output.read()
        cost = Cost(time.monotonic() - begun, usage.ru_utime + usage.ru_stime)
        print(f"{name}: {NODES} nodes, {cost.wall_s:.1f} s, {cost.cpu_s:.1f} CPU s")
        assert process.returncode == 0, text[-3000:]
        return cost


def shell(script: str) -> str:
    """Run a script on the head node; return what it prints."""
    return pod("exec", "--name", NAME, HEAD, "sh", "-ec", script, seconds=3000)


# The daemon of a node that is nowhere: its own port and folders, and none of the node's programs.
REGISTER = r"""
which slurmd > /dev/null || {
  apt-get install -y -q slurmd && systemctl disable slurmd
} > /tmp/apt.log 2>&1
for n in 0 1 2 3 4 5 6 7; do [ -e /dev/nvidia$n ] || touch /dev/nvidia$n; done
for lane in 0 1 2 3; do
  folder=/tmp/fleet/$lane
  mkdir -p $folder/spool
  cp /etc/slurm/gres.conf /etc/slurm/cgroup.conf $folder
  {
    grep -vE '^(Slurmd(Port|SpoolDir|LogFile|PidFile)|Prolog|Epilog|TaskPlugin)' \
      /etc/slurm/slurm.conf | grep -vE '^(Proctrack|JobAcct|MpiDefault)'
    printf 'SlurmdPort=710%s\nSlurmdSpoolDir=%s/spool\n' $lane $folder
    printf 'SlurmdLogFile=%s/log\nSlurmdPidFile=%s/pid\n' $folder $folder
    echo ProctrackType=proctrack/linuxproc
    echo MpiDefault=none
  } > $folder/slurm.conf
done
lane() {
  awk -v lane=$1 'NR % 4 == lane' /tmp/fleet/names | while read -r name; do
    rm -f /tmp/fleet/$1/log
    slurmd -D -N $name -f /tmp/fleet/$1/slurm.conf > /dev/null 2>&1 &
    slurmd=$!
    for _try in $(seq 100); do
      grep -qs 'slurmd started' /tmp/fleet/$1/log && break
      sleep 0.05
    done
    sleep 0.15
    kill -9 $slurmd
    wait $slurmd 2> /dev/null || true
  done
}
# slurmctld takes an answer for that of the node whose address it has asked.
for range in 16.0/20 32.0/24; do ip route replace local $NET.$range dev lo; done
pgrep -x slurmd > /dev/null || {
  mkdir -p /tmp/fleet/all/spool
  cp /tmp/fleet/0/gres.conf /tmp/fleet/0/cgroup.conf /tmp/fleet/all
  sed 's,^SlurmdPort=.*,SlurmdPort=6818,; s,/tmp/fleet/0/,/tmp/fleet/all/,' \
    /tmp/fleet/0/slurm.conf > /tmp/fleet/all/slurm.conf
  # As a unit: a child of this shell would keep the call that runs it open.
  systemd-run -q --unit fleet-slurmd slurmd -D -N dgx-0001 -f /tmp/fleet/all/slurm.conf
}
for _round in 1 2 3; do
  sinfo -hNo '%N %T' -p batch | awk '/\*$|unk|down/ { print $1 }' > /tmp/fleet/names
  [ -s /tmp/fleet/names ] || break
  for number in 0 1 2 3; do lane $number & done
  wait
done
wc -l < /tmp/fleet/names
"""


def enlarged(source: Path, target: Path) -> None:
    """Copy a pod's inventory, with all the compute nodes of the fleet in it."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".dgx"))
    hosts = target / "hosts.yml"
    hosts.write_text(
        hosts.read_text(encoding="utf-8")
        + f"    gpu_nodes:\n      hosts:\n        dgx-[0001:{NODES:04}]:\n",
        encoding="utf-8",
    )
    cluster = target / "group_vars" / "all" / "cluster.yml"
    text = cluster.read_text(encoding="utf-8")
    assert f"{SUBNET}.0.0/24" in text, text
    cluster.write_text(text.replace(f"{SUBNET}.0.0/24", f"{SUBNET}.0.0/16"), encoding="utf-8")
    folder = target / "group_vars" / "gpu_nodes"
    folder.mkdir(exist_ok=True)
    (folder / "node.yml").write_text(
        f"---\nnode_profile: dgx_h100\nnode_first_address: {{management: {SUBNET}.16.1}}\n",
        encoding="utf-8",
    )
    # Nodes that have registered once count as there for hours.
    (target / "group_vars" / "all" / "fleet.yml").write_text(
        "---\nslurm_controller_options: {SlurmdTimeout: 65000}\n", encoding="utf-8"
    )


@pytest.fixture(scope="module", name="fleet")
def the_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    if not KEPT:
        pod("down", "--force", "--name", NAME)
        pod("up", "--name", NAME, "--subnet", f"{SUBNET}.0.0/24", "--hosts",
            f"{HEAD}={SUBNET}.0.11")  # fmt: skip
        pod("inventory", "--name", NAME)
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "state" / "nodes").mkdir(parents=True)
    fleet = Fleet(folder / "inventory", folder / "state")
    enlarged(CHECKOUT / ".pod" / NAME / "inventory", fleet.inventory)
    for name in ("prepare_nodes", "configure_scheduler"):
        fleet.run(name, "--limit", HEAD)
    assert int(shell("sinfo -ho %D -p batch")) == NODES
    shell(f"NET={SUBNET}\n{REGISTER}")
    assert "*" not in shell("sinfo -hNo %T -p batch | sort -u")
    for node in fleet.nodes:
        fleet.judge(node, "pass")
    yield fleet
    if not KEPT:
        pod("down", "--force", "--name", NAME)


def test_admit_nodes(fleet: Fleet) -> None:
    """All are let in by one run, and 200 taken out by another."""
    costs = [fleet.run("admit_nodes")]
    assert shell("sinfo -hNo %N -p batch -t drain") == ""
    for number, node in enumerate(fleet.nodes[:FAILED]):
        fleet.judge(node, "fail", CHECKS[number % len(CHECKS)])
    costs.append(fleet.run("admit_nodes"))
    assert int(shell("sinfo -hNo '%N %E' -p batch | grep -c dgx-gate")) == FAILED
    assert max(cost.cpu_s for cost in costs) <= MOST_CPU_S["admit_nodes"]


def test_repairs(fleet: Fleet) -> None:
    """The first run opens 200 incidents; the second looks at all of them, and changes none."""
    costs = [fleet.run("repair_nodes"), fleet.run("repair_nodes")]
    book = fleet.state / "incidents" / "incidents.jsonl"
    names = {json.loads(line)["incident"] for line in book.read_text(encoding="utf-8").splitlines()}
    assert len(names) == FAILED
    assert max(cost.cpu_s for cost in costs) <= MOST_CPU_S["repair_nodes"]


def test_report(fleet: Fleet) -> None:
    cost = fleet.run("report")
    size = (fleet.state / "report" / "report.html").stat().st_size
    print(f"report: {size / 1e6:.1f} MB")
    assert size <= 5e6
    assert cost.wall_s <= 60
