# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate with a real slurmctld: verdicts written by hand, jobs, an operator, and the share."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import CHECKOUT, INVENTORY, Run, environment, on, playbook, until
from .test_operations import job_of_alice, state_of, wait_for

HEAD = "head-01"
GATE = {"enabled": True, "share": 0.34, "fabric": False, "level": "standard"}


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Cluster:
    """A folder of verdicts, the gate that reads it, and what Slurm reports about the nodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "nodes").mkdir()
        (folder / "plan").mkdir()
        shutil.copy(INVENTORY / ".dgx" / "plan" / "plan.json", folder / "plan")

    def judge(self, node: str, status: str, level: str = "standard", at: str = "") -> None:
        record = {
            "check": "gpu.ecc_volatile", "subject": f"gpu:{node}/3", "status": status,
            "text": "12 uncorrected errors", "remedy": "replace the GPU", "at": at or now(),
            "evidence": [], "measured": None, "threshold": None, "took_s": None, "version": 1,
        }  # fmt: skip
        data = {"version": 1, "node": node, "level": level, "records": [record]}
        (self.folder / "nodes" / f"{node}.json").write_text(json.dumps(data), encoding="utf-8")

    def gate(self, *arguments: str, **policy: Any) -> Run:
        given = {"cluster_state_dir": str(self.folder), "cluster_gate": {**GATE, **policy}}
        return playbook("admit_nodes", "-e", json.dumps(given), *arguments)


def node(name: str) -> str:
    return on(HEAD, f"scontrol show node -o {name}").stdout


def scontrol(*words: str) -> subprocess.CompletedProcess[str]:
    return on(HEAD, "scontrol update " + " ".join(f"'{word}'" for word in words))


def drained(name: str) -> bool:
    return "+DRAIN" in node(name)


def until_ready(names: list[str]) -> None:
    deadline = time.monotonic() + 90
    while any("NOT_RESPONDING" in node(name) or "*" in node(name) for name in names):
        assert time.monotonic() < deadline, [node(name) for name in names]
        time.sleep(1)


@pytest.fixture
def cluster(tmp_path: Path, nodes: list[str]) -> Iterator[Cluster]:
    for name in nodes:
        scontrol(f"NodeName={name}", "State=UNDRAIN")
    until_ready(nodes)
    yield Cluster(tmp_path)
    for name in nodes:
        scontrol(f"NodeName={name}", "State=UNDRAIN")
    until_ready(nodes)


def test_a_node_that_fails_is_drained_and_its_job_ends_by_itself(
    cluster: Cluster, nodes: list[str]
) -> None:
    bad = nodes[0]
    job = job_of_alice("sleep 90", f"-w {bad}", "-N1")
    wait_for(job, "RUNNING")
    cluster.judge(bad, "fail")
    shown = cluster.gate("--check", "--diff")
    assert shown.rc == 0, shown.output
    assert "+reason: dgx-gate: gpu3 ecc_volatile: 12 uncorrected errors" in shown.output
    assert not drained(bad)
    done = cluster.gate()
    assert done.rc == 0, done.output
    assert done.changed[HEAD] == 1
    assert "Reason=dgx-gate: gpu3 ecc_volatile: 12 uncorrected errors; replace" in node(bad)
    assert state_of(job) == "RUNNING"
    assert cluster.gate().changed[HEAD] == 0
    assert "dgx-gate: gpu3 ecc_v" in on(HEAD, "sinfo -R").stdout
    wait_for(job, "COMPLETED", 180)
    assert drained(bad)


def test_it_comes_back_on_newer_evidence_only(cluster: Cluster, nodes: list[str]) -> None:
    bad = nodes[0]
    before = now()
    cluster.judge(bad, "fail")
    assert cluster.gate().rc == 0
    cluster.judge(bad, "pass", at=before)
    old = cluster.gate()
    assert "on evidence from before it was taken out" in old.output, old.output
    assert drained(bad)
    time.sleep(1.1)
    cluster.judge(bad, "pass", level="quick")
    assert "at level quick only" in cluster.gate().output
    cluster.judge(bad, "pass")
    back = cluster.gate()
    assert back.changed[HEAD] == 1, back.output
    assert not drained(bad)
    assert "Reason=" not in node(bad)
    until_ready([bad])
    assert cluster.gate().changed[HEAD] == 0


@pytest.fixture(name="production")
def slurm_of_a_site(cluster: Cluster) -> Iterator[Cluster]:
    """slurmctld as a site has it, but for the time that it waits: who was down stays down."""
    conf = "/etc/slurm/slurm.conf"
    on(
        HEAD,
        f"cp -p {conf} {conf}.pod; sed -i 's/^ReturnToService=.*/ReturnToService=1/;"
        f" s/^SlurmdTimeout=.*/SlurmdTimeout=20/' {conf}; scontrol reconfigure",
    )
    yield cluster
    on(HEAD, f"mv {conf}.pod {conf}; scontrol reconfigure")


def test_a_drained_node_that_boots_for_long_comes_back(
    production: Cluster, nodes: list[str]
) -> None:
    bad = nodes[0]
    production.judge(bad, "fail")
    assert production.gate().rc == 0
    on(bad, "systemctl stop slurmd")
    until(lambda: "State=DOWN+DRAIN" in node(bad), f"{bad} is down", 240)
    production.judge(bad, "pass")
    away = production.gate()
    assert away.changed[HEAD] == 0, away.output
    time.sleep(1.1)
    on(bad, "systemctl start slurmd")
    until(lambda: "NOT_RESPONDING" not in node(bad), f"slurmd of {bad} answers")
    assert "State=DOWN+DRAIN" in node(bad)
    old = production.gate()
    assert old.changed[HEAD] == 0, old.output
    time.sleep(1.1)
    production.judge(bad, "pass")
    back = production.gate()
    assert back.changed[HEAD] == 1, back.output
    assert "State=IDLE " in node(bad)


def test_what_an_operator_drained_or_edited_stays(cluster: Cluster, nodes: list[str]) -> None:
    first, second = nodes[:2]
    scontrol(f"NodeName={first}", "State=DRAIN", "Reason=broken fan")
    cluster.judge(first, "pass")
    cluster.judge(second, "fail")
    done = cluster.gate()
    assert f"{first} is left alone: drained by root: broken fan" in done.output
    assert "Reason=broken fan [root@" in node(first)
    reason = node(second).split("Reason=")[1].split(" [root")[0]
    scontrol(f"NodeName={second}", f"Reason={reason} (spare part ordered)")
    time.sleep(1.1)
    cluster.judge(second, "pass")
    done = cluster.gate()
    assert done.changed[HEAD] == 0
    assert f"{second} is left alone: drained, and the reason was changed" in done.output
    assert drained(second)


def test_more_than_the_share_is_refused(cluster: Cluster, nodes: list[str]) -> None:
    for name in nodes[:2]:
        cluster.judge(name, "fail")
    refused = cluster.gate()
    assert refused.rc != 0
    assert f"1 of {len(nodes)} may be (share 0.34): nothing of this run is done" in refused.output
    assert [name for name in nodes if drained(name)] == []
    allowed = cluster.gate("-e", "gate_share=0.7")
    assert allowed.rc == 0, allowed.output
    assert [name for name in nodes if drained(name)] == nodes[:2]


def test_a_spare_serves_for_a_node_that_fails(cluster: Cluster, nodes: list[str]) -> None:
    bad, spare = nodes[0], nodes[-1]
    pool = {"spares": [spare], "spares_in_service": 1, "share": 0.5}
    cluster.judge(spare, "pass")
    back = cluster.gate("-e", json.dumps({"gate_return_spares": [spare]}), **pool)
    assert back.changed[HEAD] == 1, back.output
    assert "Reason=dgx-gate: spare, ready" in node(spare)
    assert cluster.gate(**pool).changed[HEAD] == 0
    cluster.judge(bad, "fail")
    swapped = cluster.gate(**pool)
    assert f"{spare}: swap_in: passes, and {bad} is out" in swapped.output
    assert drained(bad)
    assert not drained(spare)


def test_a_new_node_starts_drained(cluster: Cluster, nodes: list[str]) -> None:
    new = nodes[1]
    known = "/tmp/gate-known.json"
    on(HEAD, f"rm -f {known}")

    def module(**params: Any) -> str:
        given = json.dumps({"known_file": known, **params})
        line = [
            "ansible",
            HEAD,
            "-i",
            str(INVENTORY),
            "-m",
            "baremetal.dgx.slurm_gate",
            "-a",
            given,
        ]
        path = f"{CHECKOUT}/.venv/bin:{os.environ['PATH']}"
        done = subprocess.run(line, env={**environment(), "PATH": path}, capture_output=True,
                              text=True, check=False, timeout=300)  # fmt: skip
        return done.stdout + done.stderr

    assert f'"{new}"' in module(state="remembered")
    assert '"changed": false' in module(state="introduced", nodes=nodes)
    assert '"action": "drain"' in module(state="introduced", nodes=nodes, renewed=[new])
    assert "Reason=dgx-gate: replaced node, run validate_nodes" in node(new)
    message = f"{new} is left alone: not measured: there are no records; stays out"
    assert message in cluster.gate().output
    cluster.judge(new, "pass")
    assert cluster.gate().changed[HEAD] == 1
    assert not drained(new)
    on(HEAD, f"rm -f {known}")


@pytest.mark.usefixtures("cluster")
def test_slurm_does_what_the_model_of_it_does(nodes: list[str]) -> None:
    """What tests/models/slurmctld_model.py refuses and drops, slurmctld does too."""
    name = f"NodeName={nodes[2]}"
    reason = "You must specify a reason"
    for words, message in (
        ((name, "State=DRAIN"), reason),
        ((name, "State=DRAIN", "Reason="), reason),
        ((name, "State=RESUME"), "Invalid node state specified"),
        (("NodeName=dgx-99", "State=UNDRAIN"), "Invalid node name specified"),
    ):
        done = scontrol(*words)
        assert done.returncode == 1, words
        assert message in done.stderr, words
    assert scontrol(name, "State=UNDRAIN").returncode == 0
    assert scontrol(name, "Reason=dropped").returncode == 0
    assert "Reason=" not in node(nodes[2])
    scontrol(name, "State=DRAIN", "Reason=a")
    assert scontrol(name, "Reason=b").returncode == 0
    assert "+DRAIN" in node(nodes[2])
    assert "Reason=b [root@" in node(nodes[2])
    assert scontrol(name, "State=UNDRAIN").returncode == 0
    assert "Reason=" not in node(nodes[2])
