# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One more line in the inventory is one more node, and the other way round."""

from __future__ import annotations

import subprocess

from .conftest import CHECKOUT, INVENTORY, POD, on, playbook, services
from .test_operations import HEAD, job_of_alice, state_of, wait_for


def pod(*arguments: str) -> None:
    """Run virtual_pod/pod."""
    subprocess.run(
        [str(CHECKOUT / "virtual_pod" / "pod"), *arguments], check=True, stdin=subprocess.DEVNULL
    )


def test_a_node_joins_and_leaves(nodes: list[str]) -> None:
    new = f"dgx-{len(nodes) + 1:02d}"
    hosts = INVENTORY / "hosts.yml"
    text = hosts.read_text(encoding="utf-8")
    declared = f"dgx-[01:{len(nodes):02d}]"
    assert declared in text
    pod("up", "--name", POD, "--nodes", str(len(nodes) + 1))
    pod("gpus", "--name", POD)
    running = job_of_alice("sleep 600", "--gres=gpu:1", "-N1", "-w", nodes[0])
    wait_for(running, "RUNNING")
    before = {node: services(node) for node in (*nodes, "login-01")}

    try:
        hosts.write_text(text.replace(declared, f"dgx-[01:{len(nodes) + 1:02d}]"), encoding="utf-8")
        added = playbook("add_nodes", "-e", f"target={new}")
        assert added.rc == 0, added.output
        assert on(HEAD, f"sinfo -hN -n {new} -o %T").stdout.split() == ["idle"] * 2, added.output
        assert {node: services(node) for node in before} == before
        assert state_of(running) == "RUNNING"
        assert (
            on("login-01", f'su - alice -c "srun -w {new} --gres=gpu:8 hostname"').stdout.strip()
            == new
        )
        assert new in on(nodes[0], "cat /etc/hosts").stdout

        last = job_of_alice("sleep 20", "--gres=gpu:8", "-N1", "-w", new)
        wait_for(last, "RUNNING")
        leaving = f"{declared}:\n        {new}: {{node_state: absent}}"
        hosts.write_text(text.replace(f"{declared}:", leaving), encoding="utf-8")
        removed = playbook("remove_nodes")
        assert removed.rc == 0, removed.output
        wait_for(last, "COMPLETED")
        assert new not in on(HEAD, "sinfo -hN -o %N; cat /etc/slurm/slurm.conf").stdout
        assert on(new, "systemctl is-active slurmd").stdout.strip() == "inactive"
        assert {node: services(node) for node in before} == before
        assert state_of(running) == "RUNNING"
    finally:
        hosts.write_text(text, encoding="utf-8")
        # As at a shutdown: Ceph waits for a client that died, and the others' writes with it.
        on(new, "findmnt -rno TARGET -t fuse.ceph-fuse | xargs -r umount")
        pod("down", "--name", POD, new)
    try:
        again = playbook("site")
    finally:
        on(HEAD, f"scancel {running}")
    assert again.rc == 0, again.why
    changed = [line for line in again.tasks("changed").splitlines() if line.startswith("TASK [")]
    assert changed == [
        "TASK [Compute the plan of the cluster]",
        # The line of an absent node keeps its ports of the switches reserved.
        "TASK [baremetal.dgx.fabric_exporter : install | Write and test the collector]",
    ]
