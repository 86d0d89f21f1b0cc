# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A leaf switch restarts under every node of a live pod: the cluster stays usable, and says why.

Made for a pod of eight nodes (virtual_pod/pod up --nodes 8); it works with four or more. Adapters
are their own sysfs on each node, which the health program gets.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from .conftest import CHECKOUT, on, playbook
from .test_node_health import DISABLED, PROGRAM, STATE, pretend

SHARE = 0.25
CONFIG = "/etc/baremetal-dgx/node-health.json"
SYSFS = "/run/leaf-reboot"
TREE = CHECKOUT / "tests" / "models" / "ib_tree.py"
# Adapters in their own sysfs, before the first look; the GPUs are not the question here.
PREPARE = f"""
import json, shutil, socket, sys
from pathlib import Path
sys.path[:0] = ["/tmp"]
from ib_tree import RAILS, dgx
shutil.rmtree("{SYSFS}", ignore_errors=True)
dgx(Path("{SYSFS}"))
node = socket.gethostname().split(".")[0]
for name in Path("{SYSFS}").glob("class/infiniband/*/node_desc"):
    name.write_text(name.read_text().replace("dgx-01", node))
path = Path("{CONFIG}")
config = json.loads(path.read_text())
config["checks"] = ["ib"]
config["ib"] = {{"rails": [
    {{"rail": rail, "pci": bus + ":00.0", "rate_gbps": 400, "pcie_generation": 5, "pcie_width": 16}}
    for rail, bus in enumerate(RAILS)
], "window_s": 3600.0}}
config["roots"]["sysfs"] = "{SYSFS}"
path.write_text(json.dumps(config))
"""


def run_on(node: str, program: str) -> None:
    """Run a program in Python on a node."""
    text = base64.b64encode(program.encode()).decode()
    done = on(node, f"echo {text} | base64 -d | python3 -")
    assert done.returncode == 0, done.stderr


def shown(node: str) -> str:
    """What Slurm reports about a node."""
    return on("head-01", f"scontrol show node -o {node}").stdout


def everywhere(nodes: list[str], script: str) -> dict[str, tuple[int, str]]:
    """Run a script on all nodes at once; returns status and output of each."""
    with ThreadPoolExecutor(len(nodes)) as threads:
        done = list(threads.map(lambda node: on(node, script), nodes))
    return {node: (one.returncode, one.stdout) for node, one in zip(nodes, done, strict=True)}


@pytest.fixture(scope="module", autouse=True)
def watched(nodes: list[str]) -> Iterator[None]:
    """Install the program on all nodes, with adapters; remove both again."""
    assert len(nodes) >= 4, "a pod of four nodes or more is needed"
    pretend()
    given = {"node_health_enabled": True, "node_health_share": SHARE}
    done = playbook("configure_health", "-e", json.dumps(given))
    assert done.rc == 0, done.why
    tree = base64.b64encode(TREE.read_bytes()).decode()
    for node in nodes:
        on(node, f"echo {tree} | base64 -d > /tmp/ib_tree.py; rm -rf {STATE}/*.json")
        run_on(node, PREPARE)
    yield
    for node in nodes:
        on("head-01", f"scontrol update NodeName={node} State=UNDRAIN Comment=")
        on(node, f"rm -rf {SYSFS} /tmp/ib_tree.py {STATE}/*.json")
    done = playbook("configure_health", *DISABLED)
    assert done.rc == 0, done.why


def test_a_leaf_reboot_leaves_the_cluster_usable(nodes: list[str]) -> None:
    most = max(1, int(SHARE * len(nodes)))
    before = everywhere(nodes, f"{PROGRAM} --health")
    assert {status for status, _output in before.values()} == {0}, before

    # The leaf restarts: rail 3 of every node was down once, and is up again.
    counter = f"{SYSFS}/class/infiniband/mlx5_rail3/ports/1/counters/link_downed"
    for node in nodes:
        assert on(node, f"echo 1 > {counter}").returncode == 0
    begun = time.monotonic()
    after = everywhere(nodes, f"{PROGRAM} --health")
    print(f"{len(nodes)} nodes asked at once: {time.monotonic() - begun:.1f} s")
    states = {node: shown(node) for node in nodes}
    out = [node for node, text in states.items() if "+DRAIN" in text]
    held = [node for node in nodes if node not in out]
    # Never more than the share; where they met, the next round takes what is left of it.
    assert len(out) <= most, states
    for node in held:
        assert after[node][0] == 11, after[node]
    second = everywhere(held, f"{PROGRAM} --health")
    out = [node for node in nodes if "+DRAIN" in shown(node)]
    held = [node for node in nodes if node not in out]
    assert 1 <= len(out) <= most
    for node in out:
        assert f"Reason=node-health: hca:{node}/rail3 ib.link_downed" in shown(node)

    # What is left in service says why, in Slurm and once in its log.
    for node in held:
        assert f"{{node-health left in service: hca:{node}/rail3 ib.link_downed" in shown(node)
        assert "brake" in after[node][1] or "brake" in second[node][1]
    third = everywhere(held, f"{PROGRAM} --health")
    assert not [node for node, (_status, reported) in third.items() if "brake" in reported]
    assert [node for node in nodes if "+DRAIN" in shown(node)] == out

    # Prolog and epilog let jobs run there: one that failed would be a drain by Slurm itself.
    for script in ("prolog.d", "epilog.d"):
        found = everywhere(held, f"/etc/slurm/{script}/50-node-health")
        assert {status for status, _output in found.values()} == {0}, found
    job = on(
        "login-01",
        f"cd /tmp && su alice -c 'srun -N{len(held)} -w {','.join(held)} -t 1 hostname'",
        seconds=120,
    )
    assert job.returncode == 0, job.stderr
    assert sorted(job.stdout.split()) == held
    assert [node for node in nodes if "+DRAIN" in shown(node)] == out

    # The metric is there, and the operator's way back: room for the next one, or all is well.
    metrics = "/var/lib/prometheus/node-exporter/baremetal_dgx_node_health.prom"
    assert "baremetal_dgx_health_brake_held 1" in on(held[0], f"cat {metrics}").stdout
    for node in nodes:
        on(node, f"echo 0 > {counter}; rm -f {STATE}/ib.json")
    fit = everywhere(nodes, f"{PROGRAM} --health")
    assert {status for status, _output in fit.values()} == {0}, fit
    for node in nodes:
        assert "node-health left in service" not in shown(node)
