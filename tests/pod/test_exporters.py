# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The exporters of a live pod: each answers at its address, costs little, and is not fooled."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from exposition_text import Samples, read, value

from .conftest import CHECKOUT, INVENTORY, POD, on, playbook

TEXTFILES = "/var/lib/prometheus/node-exporter"
NODE, GPU = "prometheus-node-exporter.service", "nvidia-dcgm-exporter.service"
SETTINGS = {
    "node_exporter_enabled": True,
    "dcgm_exporter_enabled": True,
    "dcgm_exporter_source": "binary",
    "dcgm_exporter_binary": {"path": "/usr/local/lib/simulated-hardware/dcgm-exporter"},
    "slurm_exporter_enabled": True,
    "slurm_exporter_interval_s": 20,
    "fabric_exporter_enabled": True,
    "fabric_exporter_interval_s": 60,
}
ENABLED = ("-e", json.dumps(SETTINGS))
DISABLED = ("-e", json.dumps({name: False for name in SETTINGS if name.endswith("_enabled")}))
SCRAPES, INTERVAL_S = 8, 15
# The issue's own thresholds, for all exporters of a GPU node together.
MOST_SHARE, MOST_BYTES = 0.01, 150e6


def pod(*words: str) -> None:
    """Run a command of the pod."""
    subprocess.run(
        [str(CHECKOUT / "virtual_pod" / "pod"), *words, "--name", POD],
        check=True,
        stdin=subprocess.DEVNULL,
    )


def address(node: str) -> str:
    """The address that the plan gives a node."""
    plan = json.loads((INVENTORY / ".dgx/plan/nodes" / f"{node}.json").read_text())
    found: str = plan["addresses"]["management"]
    return found


def scrape(node: str, port: int) -> Samples:
    """What a scraper on another machine of the pod gets."""
    url = f"http://{address(node)}:{port}/metrics"
    script = (
        "import sys, urllib.request as r; "
        f"sys.stdout.write(r.urlopen('{url}', timeout=10).read().decode())"
    )
    done = on("login-01", f'python3 -c "{script}"')
    assert done.returncode == 0, done.stderr
    return read(done.stdout)


def until(what: Callable[[], bool], seconds: float) -> float:
    """Return after how many seconds it came true."""
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < seconds, "did not come true"
        time.sleep(1)
    return time.monotonic() - began


@pytest.fixture(scope="module", autouse=True)
def installed(nodes: list[str]) -> Iterator[None]:
    """Install the exporters, and see that nothing is left of them at the end."""
    pod("gpus")
    pod("fabric")
    done = playbook("configure_exporters", *ENABLED)
    assert done.rc == 0, done.why
    yield
    pod("gpus")
    pod("fabric")
    done = playbook("configure_exporters", *DISABLED)
    assert done.rc == 0, done.why
    for node in (*nodes, "head-01"):
        units = f"systemctl is-active {NODE} {GPU} 'baremetal-dgx-*-metrics.timer'"
        assert "active" not in on(node, units).stdout.split()
        listens = on(node, "ss -Hltn 'sport = :9100 or sport = :9400'").stdout
        assert listens == ""
        files = on(
            node, f"ls {TEXTFILES}/baremetal_dgx_slurm.prom {TEXTFILES}/baremetal_dgx_fabric.prom"
        )
        assert files.stdout == ""


def test_a_second_run_changes_nothing() -> None:
    done = playbook("configure_exporters", *ENABLED)
    assert done.rc == 0, done.why
    assert set(done.changed.values()) == {0}, done.why


def test_every_exporter_of_a_gpu_node_answers(nodes: list[str]) -> None:
    for node in nodes:
        found = scrape(node, 9100)
        assert value(found, "node_scrape_collector_success", collector="textfile") == 1
        assert value(found, "node_scrape_collector_success", collector="infiniband") is not None
        assert value(found, "node_load1") is not None
        gpus = [
            dict(labels) for name, labels in scrape(node, 9400) if name == "DCGM_FI_DEV_GPU_TEMP"
        ]
        assert sorted(gpu["gpu"] for gpu in gpus) == [str(number) for number in range(8)]
        assert {gpu["simulated"] for gpu in gpus} == {"true"}


def test_nothing_listens_wider_than_declared(nodes: list[str]) -> None:
    for node in (*nodes, "head-01", "login-01"):
        listens = on(node, "ss -Hltn 'sport = :9100 or sport = :9400'").stdout
        found = set(re.findall(r"(\S+):(?:9100|9400)\s", listens))
        assert found == {address(node)}, f"{node}: {listens}"


def test_slurm_and_the_fabric_are_published_by_their_hosts() -> None:
    until(
        lambda: on("head-01", f"test -e {TEXTFILES}/baremetal_dgx_fabric.prom").returncode == 0, 120
    )
    for part in ("slurm", "fabric"):
        done = on("head-01", f"cat {TEXTFILES}/baremetal_dgx_{part}.prom")
        own = read(done.stdout)
        stamp = value(own, f"baremetal_dgx_{part}_run_timestamp_seconds")
        assert stamp is not None
        assert time.time() - stamp < 150
        assert value(own, f"baremetal_dgx_{part}_collector_ok") == 1
    found = scrape("head-01", 9100)
    assert value(found, "node_textfile_scrape_error") == 0
    assert value(found, "slurm_nodes") is not None
    assert value(found, "baremetal_dgx_slurm_database_up") == 1
    planned = value(found, "baremetal_dgx_fabric_devices", device="node", source="planned")
    assert planned == value(found, "baremetal_dgx_fabric_devices", device="node", source="found")


def test_a_drained_node_a_job_and_a_fault_are_told(nodes: list[str]) -> None:
    node = nodes[-1]
    on("head-01", f"scontrol update NodeName={node} State=DRAIN Reason='fan \"3\", ask Ann'")
    try:
        labels = {
            "node": node,
            "state": "drained",
            "owner": "operator",
            "reason": 'fan "3", ask Ann',
        }
        name = "baremetal_dgx_slurm_node_unfit"
        took = until(lambda: value(scrape("head-01", 9100), name, **labels) == 1, 60)
        print(f"a drained node was reported {took:.0f} s after it was drained")
    finally:
        on("head-01", f"scontrol update NodeName={node} State=RESUME")
    sent = on(
        "login-01",
        f"cd /tmp && su alice -c 'sbatch --parsable -w {nodes[0]} -N1 --gres=gpu:2 "
        '--wrap "sleep 300"\'',
    )
    job = sent.stdout.strip()
    assert job.isdigit(), sent.stderr
    try:
        until(lambda: len(jobs_of(nodes[0], job)) == 2, 90)
        labels = {
            "node": nodes[0],
            "slurm_job": job,
            "user": "alice",
            "account": "research",
            "partition": "batch",
        }
        name = "baremetal_dgx_slurm_node_job_gpus"
        until(lambda: value(scrape("head-01", 9100), name, **labels) == 2, 60)
    finally:
        on("head-01", f"scancel {job}")
    until(lambda: not jobs_of(nodes[0], job), 90)
    pod("gpus", "--fault", "hot", "--node", nodes[0])
    try:
        until(lambda: 90.0 in temperatures(nodes[0]), 60)
    finally:
        pod("gpus")


def jobs_of(node: str, job: str) -> list[str]:
    """GPUs of a node that the exporter says the job has."""
    return [
        dict(labels)["gpu"]
        for name, labels in scrape(node, 9400)
        if name == "DCGM_FI_DEV_GPU_TEMP" and ("hpc_job", job) in labels
    ]


def temperatures(node: str) -> set[float]:
    """Temperatures of the GPUs of a node."""
    return {
        v for (name, _labels), v in scrape(node, 9400).items() if name == "DCGM_FI_DEV_GPU_TEMP"
    }


def test_a_fault_of_the_fabric_becomes_a_finding() -> None:
    pod("fabric", "--fault", "dead_cable")
    try:

        def is_reported() -> bool:
            on("head-01", "systemctl start baremetal-dgx-fabric-metrics.service", 120)
            kinds = [
                dict(labels)
                for name, labels in scrape("head-01", 9100)
                if name == "baremetal_dgx_fabric_finding"
            ]
            return any(one["status"] == "fail" and one["node"] == "dgx-01" for one in kinds)

        until(is_reported, 180)
    finally:
        pod("fabric")


def test_a_silent_collector_is_noticed() -> None:
    name = "baremetal_dgx_slurm_run_timestamp_seconds"
    first = value(scrape("head-01", 9100), name)
    assert first is not None
    until(lambda: (value(scrape("head-01", 9100), name) or 0) > first, 60)
    on(
        "head-01",
        "systemctl stop baremetal-dgx-slurm-metrics.timer baremetal-dgx-slurm-metrics.service",
    )
    try:
        stopped = value(scrape("head-01", 9100), name)
        time.sleep(30)
        # Everything else looks as it did; only the time tells.
        assert value(scrape("head-01", 9100), name) == stopped
        assert value(scrape("head-01", 9100), "baremetal_dgx_slurm_collector_ok") == 1
    finally:
        on("head-01", "systemctl start baremetal-dgx-slurm-metrics.timer")


def test_slurm_that_is_down_is_told_and_not_guessed() -> None:
    on("head-01", "systemctl stop slurmctld")
    try:

        def is_reported() -> bool:
            found = scrape("head-01", 9100)
            return (
                value(
                    found, "baremetal_dgx_slurm_controller_up", controller="head-01", role="primary"
                )
                == 0
            )

        until(is_reported, 120)
        assert value(scrape("head-01", 9100), "slurm_jobs_running") is None
    finally:
        on("head-01", "systemctl start slurmctld")
    until(lambda: value(scrape("head-01", 9100), "slurm_nodes") is not None, 120)


USED = """
for unit in %s; do
  group=$(systemctl show -p ControlGroup --value $unit)
  for top in /sys/fs/cgroup /sys/fs/cgroup/unified; do
    [ -e $top$group/cpu.stat ] && cpu=$(sed -n 's/^usage_usec //p' $top$group/cpu.stat)
    [ -e $top$group/memory.current ] && memory=$(cat $top$group/memory.current)
  done
  for process in $(systemctl show -p MainPID --value $unit); do
    ticks=$(cut -d' ' -f14,15 /proc/$process/stat | tr ' ' '+')
    resident=$(sed -n 's/^VmRSS:[^0-9]*\\([0-9]*\\) kB/\\1/p' /proc/$process/status)
  done
  echo "$unit ${cpu:-$((($ticks) * 10000))} ${memory:-$((resident * 1024))} $((resident * 1024))"
  unset cpu memory
done
"""


def used(node: str, units: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """Unit -> microseconds of processor time, and bytes: of its cgroup, or of its process."""
    out = on(node, USED % " ".join(units)).stdout
    found = {}
    for line in out.splitlines():
        unit, cpu, memory, resident = line.split()
        # The cgroup counts pages of files, too; what is resident is what the process needs.
        found[unit] = (int(cpu), max(int(memory), int(resident)))
    assert set(found) == set(units), out
    return found


def test_all_exporters_of_a_gpu_node_cost_less_than_a_hundredth_of_a_core(nodes: list[str]) -> None:
    node = nodes[0]
    before, began = used(node, (NODE, GPU)), time.monotonic()
    for number in range(SCRAPES):
        time.sleep(max(0.0, began + number * INTERVAL_S - time.monotonic()))
        scrape(node, 9100)
        scrape(node, 9400)
    time.sleep(max(0.0, began + SCRAPES * INTERVAL_S - time.monotonic()))
    seconds = time.monotonic() - began
    after = used(node, (NODE, GPU))
    shares = {unit: (after[unit][0] - before[unit][0]) / 1e6 / seconds for unit in after}
    sizes = {unit: after[unit][1] for unit in after}
    for unit, share in shares.items():
        print(f"{unit}: {share:.2%} of a core, {sizes[unit] / 1e6:.0f} MB")
    assert sum(shares.values()) < MOST_SHARE
    assert sum(sizes.values()) < MOST_BYTES


def test_check_mode_on_hosts_that_have_nothing() -> None:
    done = playbook("configure_exporters", *DISABLED)
    assert done.rc == 0, done.why
    done = playbook("configure_exporters", *ENABLED, "--check", "--diff")
    assert done.rc == 0, done.why
    for node in ("head-01", "dgx-01"):
        assert on(node, f"systemctl cat {NODE}").stdout.count("Managed by Ansible") == 0
    done = playbook("configure_exporters", *ENABLED)
    assert done.rc == 0, done.why
