# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes of a live pod watch themselves: what breaks is drained by its own node."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import CHECKOUT, POD, on, playbook
from .test_gate import Cluster

PROGRAM = "/usr/local/libexec/baremetal-dgx/node-health"
HEALTH_CHECK = "slurm_controller_health_check"
STATE = "/var/lib/baremetal-dgx/node-health"
ENABLED = ("-e", json.dumps({"node_health_enabled": True}))
DISABLED = ("-e", json.dumps({"node_health_enabled": False}))
LOST = "[9.5] NVRM: Xid (PCI:0000:9d:00): 79, pid=1, GPU has fallen off the bus."


def pretend(*arguments: str) -> None:
    """Run `pod gpus`."""
    subprocess.run(
        [str(CHECKOUT / "virtual_pod" / "pod"), "gpus", "--name", POD, *arguments],
        check=True,
        stdin=subprocess.DEVNULL,
    )


def in_slurm(node: str) -> str:
    """State and reason of a node."""
    return on("head-01", f"sinfo -h -N -n {node} -o '%T|%E' | sort -u").stdout.strip()


def wait_for(what: Callable[[], bool], seconds: float) -> float:
    """Return after how many seconds it came true."""
    begun = time.monotonic()
    while not what():
        assert time.monotonic() - begun < seconds, "did not come true"
        time.sleep(0.5)
    return time.monotonic() - begun


def records(node: str, mode: str) -> list[dict[str, str]]:
    """Records of the last run of a mode on a node."""
    found: list[dict[str, str]] = json.loads(on(node, f"cat {STATE}/{mode}.json").stdout)["records"]
    assert found
    return found


@pytest.fixture(scope="module", autouse=True)
def installed(nodes: list[str]) -> Iterator[None]:
    """Install the program, and remove it again."""
    pretend()
    done = playbook("configure_health", *ENABLED)
    assert done.rc == 0, done.why
    yield
    done = playbook("configure_health", *DISABLED)
    assert done.rc == 0, done.why
    for node in nodes:
        assert on(node, f"ls {PROGRAM} /etc/slurm/prolog.d/50-node-health").returncode != 0


@pytest.fixture
def broken(nodes: list[str]) -> Iterator[str]:
    """Yield the name of the node that a test breaks; it is well and in service afterwards."""
    name = nodes[-1]
    yield name
    pretend()
    on("head-01", f"scontrol update NodeName={name} State=RESUME")
    on(name, f"rm -rf {STATE}/state.json {STATE}/events.json")
    on(name, "systemctl restart baremetal-dgx-node-health-events")


def test_a_second_run_changes_nothing(nodes: list[str]) -> None:
    done = playbook("configure_health", *ENABLED)
    assert done.rc == 0
    assert {done.changed[node] for node in nodes} == {0}


def test_healthy_nodes_pass_in_every_mode(nodes: list[str]) -> None:
    for node in nodes:
        for mode in ("health", "prolog", "epilog", "timer"):
            done = on(node, f"{PROGRAM} --{mode}")
            assert done.returncode == 0, done.stdout
            assert {one["status"] for one in records(node, mode)} == {"pass"}, done.stdout
        metrics = "/var/lib/prometheus/node-exporter/baremetal_dgx_node_health.prom"
        assert "baremetal_dgx_health_checker_ok 1" in on(node, f"cat {metrics}").stdout


def test_a_broken_gpu_drains_its_own_node(nodes: list[str], broken: str) -> None:
    pretend("--fault", "nvlink_down", "--node", broken)
    done = on(broken, f"{PROGRAM}-slurm")
    assert done.returncode == 10, done.stdout
    state, _bar, reason = in_slurm(broken).partition("|")
    assert state in ("drained", "draining")
    assert reason.startswith(f"node-health: gpu:{broken}/6 gpu.nvlink_active")
    for node in nodes[:-1]:
        assert "node-health" not in in_slurm(node)


def test_what_an_operator_drained_keeps_its_reason(broken: str) -> None:
    on("head-01", f"scontrol update NodeName={broken} State=DRAIN Reason='fan, ask Ann'")
    pretend("--fault", "nvlink_down", "--node", broken)
    assert on(broken, f"{PROGRAM} --health").returncode == 10
    assert in_slurm(broken).endswith("|fan, ask Ann")


def test_an_xid_drains_at_once(broken: str) -> None:
    wait_for(lambda: on(broken, f"test -e {STATE}/events.json").returncode == 0, 60)
    on(broken, f"echo '{LOST}' >> /run/simulated-hardware/kernel.log")
    took = wait_for(lambda: "node-health" in in_slurm(broken), 20)
    print(f"drained {took:.1f} s after the Xid")
    assert f"node-health: gpu:{broken}/4 gpu.xid" in in_slurm(broken)


def test_a_job_does_not_start_on_a_broken_node(broken: str) -> None:
    pretend("--fault", "nvlink_down", "--node", broken)
    sent = on(
        "login-01",
        f"cd /tmp && su alice -c 'sbatch --parsable -w {broken} -N1 --requeue "
        '--wrap "touch /tmp/ran"\'',
    )
    job = sent.stdout.strip().split(";")[0]
    assert job.isdigit(), sent.stderr
    wait_for(lambda: "drain" in in_slurm(broken), 60)
    assert on(broken, "test -e /tmp/ran").returncode != 0
    assert "node-health" in in_slurm(broken)
    on("head-01", f"scancel {job}")


def test_a_torn_program_lets_jobs_run(broken: str) -> None:
    pretend("--fault", "nvlink_down", "--node", broken)
    on(broken, f"cp {PROGRAM} /tmp/whole; truncate -s 4000 {PROGRAM}")
    try:
        assert on(broken, "/etc/slurm/prolog.d/50-node-health").returncode == 0
        assert "node-health" not in in_slurm(broken)
    finally:
        on(broken, f"cp /tmp/whole {PROGRAM}")


def test_slurmd_asks_by_itself_and_the_gate_lets_the_node_back_in(
    broken: str, tmp_path: Path
) -> None:
    # as often as is allowed: slurmd gives one run 60 s
    every = {"program": f"{PROGRAM}-slurm", "interval_s": 61, "node_state": ["ANY"]}
    try:
        done = playbook("configure_scheduler", "-e", json.dumps({HEALTH_CHECK: every}))
        assert done.rc == 0, done.why
        gate = Cluster(tmp_path)
        gate.judge(broken, "pass")
        time.sleep(1.1)
        pretend("--fault", "nvlink_down", "--node", broken)
        took = wait_for(lambda: "node-health" in in_slurm(broken), 180)
        print(f"drained {took:.1f} s after the link went down")
        pretend()
        time.sleep(1.1)
        assert "from before it was taken out" in gate.gate().output
        gate.judge(broken, "pass")
        back = gate.gate()
        assert back.rc == 0, back.output
        assert "drain" not in in_slurm(broken)
    finally:
        assert playbook("configure_scheduler").rc == 0
    assert "HealthCheckProgram=/" not in on("head-01", "scontrol show config").stdout
