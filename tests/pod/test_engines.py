# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""validate_nodes by Slurm and by ClusterShell in a running pod, beside Ansible's own way.

GPUs, dcgmi and all_reduce_perf are simulated; Slurm, SSH and ClusterShell are real.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import CHECKOUT, POD, STATE, Run, command, environment, on, playbook

DATA = STATE / "inventory" / ".dgx"
HEAD, JOB = "head-01", "dgx-validate"
PARTS = {"cpu_memory": False, "dcgm": True, "nccl": True, "fio": False}
# What two validations of the same healthy node measure differently: how long, how hot, how fast.
_NUMBER = re.compile(r"\d+(\.\d+)?")


def asked(engine: str, level: str, **more: Any) -> list[str]:
    given: dict[str, Any] = {"engine": engine, "level": level, **more}
    if level == "standard":
        given.setdefault("parts", PARTS)
    return ["-e", json.dumps(given)]


def validate(engine: str, level: str = "quick", **more: Any) -> Run:
    return playbook("validate_nodes", *asked(engine, level, **more))


def records(node: str) -> list[dict[str, Any]]:
    return json.loads((DATA / "nodes" / f"{node}.json").read_text())["records"]


def meaning(node: str) -> list[dict[str, Any]]:
    """Return the records of a node without times, and without the numbers that load gives."""
    found = []
    for one in records(node):
        loaded = one["check"].split(".")[0] in ("burn", "nccl", "dcgm")
        kept = {key: one[key] for key in one if key not in ("at", "took_s")}
        if loaded:
            kept["text"] = _NUMBER.sub("N", kept["text"])
            kept["measured"] = sorted(kept["measured"] or {})
            kept["evidence"] = [_NUMBER.sub("N", line) for line in kept["evidence"]]
        found.append(kept)
    return found


def unmeasured(node: str) -> dict[str, str]:
    return {one["check"]: one["text"] for one in records(node) if one["status"] == "not_measured"}


def state_of(node: str) -> str:
    found = on(HEAD, f"scontrol show node {node} -o").stdout
    return found.partition(" State=")[2].split()[0]


@pytest.fixture(autouse=True)
def nothing_is_left(nodes: list[str]) -> Iterator[None]:
    """Each test leaves Slurm and the nodes as they were, and no run behind."""
    yield
    held = on(HEAD, "squeue -h -o %j").stdout
    reserved = on(HEAD, "scontrol show reservation -o").stdout
    on(HEAD, f"squeue -h -o '%A %j' | awk '$2 ~ /^{JOB}/ {{print $1}}' | xargs -r scancel")
    assert JOB not in held + reserved
    assert not on(HEAD, "ls /var/lib/baremetal-dgx/validation_runs").stdout
    assert not list((DATA / "validation").glob("*"))


@pytest.fixture
def busy(nodes: list[str]) -> Iterator[str]:
    """A node with a job of alice's."""
    node = nodes[0]
    words = f"cd /tmp; sbatch --parsable -o /dev/null -w {node} --wrap 'sleep 900'"
    job = on(HEAD, f'su alice -c "{words}"').stdout.strip()
    assert job.isdigit()
    deadline = time.monotonic() + 60
    while on(HEAD, f"squeue -h -j {job} -o %T").stdout.strip() != "RUNNING":
        assert time.monotonic() < deadline, "the job does not start"
        time.sleep(1)
    yield node
    left = on(HEAD, f"squeue -h -j {job} -o %T").stdout.strip()
    on(HEAD, f"scancel {job}")
    time.sleep(3)
    assert left == "RUNNING", "the job was ended"


def test_records_mean_the_same_whatever_started_the_checks(nodes: list[str]) -> None:
    found: dict[str, dict[str, Any]] = {}
    for engine in ("ansible", "slurm", "clustershell"):
        done = validate(engine, "standard", again=True)
        assert done.rc == 0, done.output
        found[engine] = {node: meaning(node) for node in nodes}
        assert (done.recap.keys() >= set(nodes)) == (engine == "ansible"), done.recap
    assert found["slurm"] == found["ansible"]
    assert found["clustershell"] == found["ansible"]
    assert len(found["ansible"][nodes[0]]) > 100


def test_findings_mean_the_same_too(nodes: list[str]) -> None:
    """A node that is broken is not loaded, and the lines say the same."""
    node, found = nodes[0], {}
    pod = [str(CHECKOUT / "virtual_pod" / "pod"), "gpus", "--name", POD]
    subprocess.run([*pod, "--fault", "ecc", "--node", node], check=True, env=environment())
    try:
        for engine in ("ansible", "slurm"):
            assert validate(engine, "standard").rc != 0
            found[engine] = meaning(node)
    finally:
        subprocess.run(pod, check=True, env=environment())
    assert found["slurm"] == found["ansible"]
    assert "fail" in {one["status"] for one in found["slurm"]}
    assert "gpu_health has findings" in unmeasured(node)["burn.run"]


@pytest.mark.parametrize("engine", ["slurm", "clustershell"])
def test_a_node_with_a_job_keeps_it_and_has_the_same_records(busy: str, engine: str) -> None:
    assert validate("ansible", "standard").rc != 0
    wanted = meaning(busy)
    assert validate(engine, "standard").rc != 0
    assert meaning(busy) == wanted
    assert "it has jobs: " in unmeasured(busy)["burn.run"]


@pytest.mark.parametrize("engine", ["slurm", "clustershell"])
def test_a_drained_node_stays_drained_and_is_validated(nodes: list[str], engine: str) -> None:
    node = nodes[0]
    on(HEAD, f"scontrol update NodeName={node} State=DRAIN Reason='test of engines'")
    try:
        done = validate(engine, "standard")
        after = on(HEAD, f"scontrol show node {node} -o").stdout
    finally:
        on(HEAD, f"scontrol update NodeName={node} State=RESUME")
    assert done.rc == 0, done.output
    assert "State=IDLE+DRAIN" in after
    assert "Reason=test of engines" in after
    assert not unmeasured(node)
    # ClusterShell starts it, with engine slurm too: nothing is left to Ansible.
    assert "Reset the answers" not in done.tasks("ok")


def test_nodes_before_their_first_admission_are_validated_at_once(nodes: list[str]) -> None:
    """All of them are drained, so that Slurm gives no job, and none of a user's starts there.

    Not even on one that an operator resumes meanwhile.
    """
    reason, unit = "new: no evidence yet", "systemctl is-active -q baremetal-dgx-burn"
    names = ",".join(nodes)
    on(HEAD, f"scontrol update NodeName={names} State=DRAIN Reason='{reason}'")
    before = [on(HEAD, f"scontrol show node {node} -o").stdout for node in nodes]
    words = f"cd /tmp; sbatch --parsable -o /dev/null -w {nodes[0]} --wrap 'sleep 900'"
    job = on(HEAD, f'su alice -c "{words}"').stdout.strip()
    log = STATE / "test_engines.log"
    try:
        with log.open("wb") as stream, subprocess.Popen(
            command("validate_nodes", *asked("slurm", "standard", again=True)),
            env=environment(), stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
        ) as running:  # fmt: skip
            deadline = time.monotonic() + 600
            while on(nodes[0], unit).returncode or on(nodes[1], unit).returncode:
                assert time.monotonic() < deadline, log.read_text()[-3000:]
                assert running.poll() is None, log.read_text()[-3000:]
                time.sleep(0.5)
            assert JOB in on(HEAD, "scontrol show reservation -o").stdout
            on(HEAD, f"scontrol update NodeName={nodes[0]} State=RESUME")
            while running.poll() is None:
                state = on(HEAD, f"squeue -h -j {job} -o %T").stdout.strip()
                burns = on(nodes[0], unit).returncode == 0
                assert state == "PENDING" or not burns
                time.sleep(1)
            assert running.returncode == 0, log.read_text()[-3000:]
        after = on(HEAD, f"scontrol show node {nodes[1]} -o").stdout
    finally:
        on(HEAD, f"scancel {job}; scontrol update NodeName={names} State=RESUME")
    assert "Reset the answers" not in log.read_text(), "nothing was left to Ansible"
    # Neither the state nor the reason, who wrote it and when, was touched.
    pattern = re.compile(r" (State=\S+|Reason=.*\]) ")
    assert pattern.findall(after) == pattern.findall(before[1])
    for node in nodes:
        assert not unmeasured(node)
        assert {one["check"].split(".")[0] for one in records(node)} >= {"gpu", "burn", "nccl"}


def test_a_node_whose_slurmd_is_dead_is_not_given_and_started_by_clustershell(
    nodes: list[str],
) -> None:
    """Slurm does not know yet that it is dead; the others are started without it."""
    node = nodes[-1]
    on(node, "systemctl kill -s KILL slurmd; systemctl stop slurmd")
    try:
        done = validate("slurm")
    finally:
        on(node, "systemctl reset-failed slurmd; systemctl start slurmd")
        deadline = time.monotonic() + 120
        while state_of(node) != "IDLE" and time.monotonic() < deadline:
            on(HEAD, f"scontrol update NodeName={node} State=RESUME")
            time.sleep(2)
    assert done.rc == 0, done.output
    assert "Slurm does not give it" in done.output
    assert "Reset the answers" not in done.tasks("ok")
    for other in nodes:
        assert not unmeasured(other), done.output


@pytest.mark.parametrize("engine", ["slurm", "clustershell"])
def test_a_run_that_is_killed_goes_on_where_it_ended(nodes: list[str], engine: str) -> None:
    log = STATE / "test_engines.log"
    kept = "/var/lib/baremetal-dgx/validation"
    for node in nodes:
        on(node, f"rm -rf {kept}")
    with log.open("wb") as stream:
        running = subprocess.Popen(
            command("validate_nodes", *asked(engine, "standard", again=True)),
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
        deadline = time.monotonic() + 300
        # Until the first parts are answered and the burn-in is under way.
        while not on(nodes[0], f"ls {kept}/*/dcgm.json").stdout:
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            assert running.poll() is None, log.read_text()[-3000:]
            time.sleep(0.5)
        os.killpg(running.pid, signal.SIGKILL)
        running.wait(30)
    held = on(HEAD, "squeue -h -o %j").stdout
    assert JOB in held, "the nodes are held, since they still burn"
    script = f"stat -c %Y {kept}/*/dcgm.json"
    before = [on(node, script).stdout for node in nodes]
    done = validate(engine, "standard", again=True)
    assert done.rc == 0, done.output
    # No load was put on them again, so that what is kept is what was kept.
    assert [on(node, script).stdout for node in nodes] == before
    for node in nodes:
        assert not unmeasured(node)
        assert {one["check"].split(".")[0] for one in records(node)} >= {"gpu", "burn", "nccl"}


def test_a_step_that_is_ended_stops_its_burn_in(nodes: list[str]) -> None:
    """Else a job would start beside it. What was answered before is not lost."""
    unit = "systemctl is-active -q baremetal-dgx-burn"
    with subprocess.Popen(
        command("validate_nodes", *asked("slurm", "standard", again=True)),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as running:
        deadline = time.monotonic() + 300
        while on(nodes[0], unit).returncode:
            assert time.monotonic() < deadline, "no burn-in begins"
            time.sleep(0.5)
        on(HEAD, f"squeue -h -o '%A %j' | awk '$2 ~ /^{JOB}/ {{print $1}}' | xargs -r scancel")
        time.sleep(10)
        assert [on(node, unit).returncode != 0 for node in nodes] == [True] * len(nodes)
        assert running.wait(300) != 0
    for node in nodes:
        assert {"burn.run", "nccl.run"} <= set(unmeasured(node))
        assert "gpu.run" not in unmeasured(node)


def test_a_node_in_slurm_and_in_no_group_is_named(nodes: list[str]) -> None:
    hosts = STATE / "inventory" / "hosts.yml"
    before = hosts.read_text()
    last = len(nodes)
    declared = f"dgx-[01:{last:02d}]"
    assert declared in before
    fewer = before.replace(declared, f"dgx-[01:{last - 1:02d}]")
    hosts.write_text(fewer.replace(f"dgx-{last:02d}:", "dgx-77:"))
    try:
        done = validate("slurm")
    finally:
        hosts.write_text(before)
    assert done.rc != 0
    assert f"Slurm has {nodes[-1]}, which is in no group of the inventory" in done.output


def test_a_partition_that_ends_too_soon_is_named() -> None:
    validation = {"engine": "slurm", "slurm_options": ["--partition=debug"]}
    shown = subprocess.run(
        ["ansible-inventory", "-i", str(STATE / "inventory"), "--host", "dgx-01"],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    declared = json.loads(shown.stdout)["cluster_validation"]
    given = {"level": "standard", "cluster_validation": {**declared, **validation}}
    done = playbook("validate_nodes", "-e", json.dumps(given))
    assert done.rc != 0
    assert "partition debug ends jobs after" in done.output
