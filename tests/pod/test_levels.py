# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Levels of validate_nodes and groups of validate_fabric in a running pod with Slurm.

GPUs, dcgmi and all_reduce_perf are simulated; Slurm, fio and the nodes' processors are real. Where
the pod cannot get fio, its part must say so.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import STATE, Run, command, environment, on, playbook

DATA = STATE / "inventory" / ".dgx"
HEAD = "head-01"
# A container shows the processors and memory of its host, so cpu_memory has findings by nature.
PARTS = {"cpu_memory": False, "dcgm": True, "nccl": True, "fio": False}
JOB = "dgx-validate"


def asked(**changes: Any) -> list[str]:
    """Return the options of a run; `parts` are added to PARTS."""
    parts = {**PARTS, **changes.pop("parts", {})}
    return ["-e", json.dumps({"level": "standard", "parts": parts, **changes})]


def validate(**changes: Any) -> Run:
    return playbook("validate_nodes", *asked(**changes))


def records(node: str) -> list[dict[str, Any]]:
    return json.loads((DATA / "nodes" / f"{node}.json").read_text())["records"]


def bad(node: str) -> dict[str, dict[str, Any]]:
    return {one["check"]: one for one in records(node) if one["status"] != "pass"}


def layers(node: str) -> set[str]:
    return {one["check"].split(".")[0] for one in records(node)}


def holds() -> list[str]:
    """Return the nodes that are held."""
    found = on(HEAD, "squeue -h -o '%N %j'")
    assert found.returncode == 0, found.stderr
    lines = [line.split() for line in found.stdout.splitlines()]
    # The name of the run comes after that of the job.
    return [cells[0] for cells in lines if len(cells) == 2 and cells[1].startswith(JOB)]


@pytest.fixture(autouse=True)
def nothing_held() -> Iterator[None]:
    """Each test leaves Slurm as it was."""
    yield
    held = holds()
    on(HEAD, f"squeue -h -o '%A %j' | awk '$2 ~ /^{JOB}/ {{print $1}}' | xargs -r scancel")
    assert not held


@pytest.fixture
def busy(nodes: list[str]) -> Iterator[str]:
    """A node with a job of alice's."""
    node = nodes[0]
    made = on(
        HEAD,
        f"su alice -c 'cd /tmp; sbatch --parsable -o /dev/null -w {node} --wrap \"sleep 600\"'",
    )
    job = made.stdout.strip()
    assert job.isdigit(), made.stderr
    deadline = time.monotonic() + 60
    while on(HEAD, f"squeue -h -j {job} -o %T").stdout.strip() != "RUNNING":
        assert time.monotonic() < deadline, "the job does not start"
        time.sleep(1)
    yield node
    left = on(HEAD, f"squeue -h -j {job} -o %T").stdout.strip()
    on(HEAD, f"scancel {job}")
    time.sleep(3)
    assert left == "RUNNING", "the job was ended"


def test_quick_takes_less_than_a_minute_and_holds_none(nodes: list[str]) -> None:
    begun = time.monotonic()
    done = playbook("validate_nodes", "-e", json.dumps({"level": "quick"}))
    took = time.monotonic() - begun
    assert done.rc == 0, done.output
    assert took < 60
    assert "burn (level standard)" in done.output
    for node in nodes:
        assert layers(node) <= {"gpu", "storage"}


def test_standard_asks_all_parts_while_slurm_holds_the_nodes(nodes: list[str]) -> None:
    log = STATE / "test_levels.log"
    with log.open("wb") as stream:
        running = subprocess.Popen(
            command("validate_nodes", *asked(again=True)),
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )
        seen: set[str] = set()
        while running.poll() is None:
            seen |= set(holds())
            time.sleep(1)
    assert running.returncode == 0, log.read_text()[-4000:]
    assert seen == set(nodes)
    for node in nodes:
        assert {"gpu", "dcgm", "burn", "nccl"} <= layers(node)
        assert all(one["at"] for one in records(node)), "the gate asks how old each record is"


def test_a_burn_in_that_is_told_again_keeps_its_time(nodes: list[str]) -> None:
    def burnt(node: str) -> set[str]:
        return {one["at"] for one in records(node) if one["check"].startswith("burn.")}

    assert validate().rc == 0
    before = {node: burnt(node) for node in nodes}
    assert validate().rc == 0
    assert {node: burnt(node) for node in nodes} == before


@pytest.mark.parametrize("transport", ["auto", "ssh", "slurm"])
def test_a_node_with_a_job_is_not_loaded_and_the_others_are(
    nodes: list[str], busy: str, transport: str
) -> None:
    validation = {"transport": transport}
    inventory = json.loads(json.dumps(declared(nodes[0])))
    done = validate(cluster_validation={**inventory, **validation})
    assert done.rc != 0
    found = bad(busy)
    assert {"burn.run", "nccl.run", "dcgm.run"} <= set(found)
    assert "it has jobs: " in found["burn.run"]["text"]
    assert {one["status"] for one in found.values()} == {"not_measured"}
    for node in nodes[1:]:
        assert not bad(node)


def declared(node: str) -> dict[str, Any]:
    """Return cluster_validation as the inventory has it."""
    inventory = str(STATE / "inventory")
    shown = subprocess.run(
        ["ansible-inventory", "-i", inventory, "--host", node],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    return json.loads(shown.stdout).get("cluster_validation", {})


def test_a_drained_node_needs_no_job_and_its_reservation_goes(nodes: list[str]) -> None:
    node = nodes[0]
    on(HEAD, f"scontrol update NodeName={node} State=DRAIN Reason='test of levels'")
    try:
        done = playbook("validate_nodes", *asked(), "-e", f"target={node}")
    finally:
        on(HEAD, f"scontrol update NodeName={node} State=RESUME")
    assert done.rc == 0, done.output
    assert "burn" in layers(node)
    assert JOB not in on(HEAD, "scontrol show reservation -o").stdout


def test_what_was_killed_is_taken_over_by_the_next_run(nodes: list[str]) -> None:
    node = nodes[0]
    options = [*asked(again=True), "-e", f"target={node}"]
    running = subprocess.Popen(
        command("validate_nodes", *options),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 300
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert holds() == [node]
    os.killpg(running.pid, signal.SIGKILL)
    running.wait(30)
    # Its job outlives it, so that no job gets a node that still burns.
    assert holds() == [node]
    done = playbook("validate_nodes", *asked(), "-e", f"target={node}")
    assert done.rc == 0, done.output


def test_processors_and_memory_are_asked(nodes: list[str]) -> None:
    node = nodes[0]
    parts = {"cpu_memory": True, "burn": False, "nccl": False, "dcgm": False}
    done = playbook("validate_nodes", *asked(parts=parts), "-e", f"target={node}")
    # The profile is that of a DGX, which no host of a pod is.
    assert done.rc != 0
    found = {one["check"]: one["status"] for one in records(node)}
    assert found["cpu.count"] == "fail"
    assert found["cpu.known_answers"] == found["memory.patterns"] == "pass"


def test_fio(nodes: list[str]) -> None:
    node = nodes[0]
    there = on(node, "command -v fio || apt-get install -y --no-install-recommends fio", 300)
    on(node, "mkdir -p /var/tmp/scratch")
    fio = {"folder": "/var/tmp/scratch", "root_ok": True, "size_mib": 256, "seconds": 1}
    parts = {"fio": True, "burn": False, "nccl": False, "dcgm": False}
    inventory = {**declared(node), "fio": fio}
    options = asked(parts=parts, cluster_validation=inventory)
    playbook("validate_nodes", *options, "-e", f"target={node}")
    found = {one["check"]: one for one in records(node)}
    if there.returncode:
        assert found["fio.run"]["text"] == "fio is not installed"
    else:
        assert found["fio.data"]["status"] == "pass"
        assert found["fio.read"]["measured"]["value"] > 0
    assert not on(node, "ls -A /var/tmp/scratch").stdout.strip()


def test_groups_of_nodes_sum_in_one_job(nodes: list[str]) -> None:
    groups = {"transport": "slurm", "tool": "all_reduce_perf", "slurm_mpi": "none"}
    options = ["-e", json.dumps({"group_tests": groups})]
    done = playbook("validate_fabric", *options)
    assert done.rc == 0, done.output
    kept = json.loads((DATA / "fabric" / "groups" / "groups-records.json").read_text())
    assert {one["status"] for one in kept} == {"pass"}
    every = max((one["subject"] for one in kept), key=len)
    assert every == f"nodes:{','.join(nodes)}"
    assert not on(HEAD, "squeue -h -n fabric_pairs").stdout.strip()
