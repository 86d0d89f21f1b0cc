# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A release that cannot take over the state that is there is refused, with every daemon running."""

from __future__ import annotations

import json

from .conftest import INVENTORY, on, playbook, services
from .containers import alice

HEAD = "head-01"
# The beginning of a job_state of 22.05, whose protocol is 9728.
OLD = r"\000\000\000\021PROTOCOL_VERSION\000&\000"


def test_unsupported_jump_stops_no_daemon(nodes: list[str]) -> None:
    on(HEAD, f"mkdir -p /root/old && printf '{OLD}' > /root/old/job_state")
    before = {node: services(node) for node in (HEAD, "login-01", *nodes)}
    try:
        refused = playbook("configure_scheduler", "-e", '{"slurm_base_state_dir": "/root/old"}')
    finally:
        on(HEAD, "rm -r /root/old")
    assert refused.rc != 0
    assert "job_state is of Slurm 22.05: Slurm 24.11 takes over only from" in refused.output
    # and no other host went on alone; localhost writes the plan of these values
    changed = {host: count for host, count in refused.changed.items() if host != "localhost"}
    assert changed == dict.fromkeys(before, 0)
    assert "TASK [baremetal.dgx.slurm_database" not in refused.output
    assert {node: services(node) for node in before} == before


def test_the_state_of_this_release_is_taken() -> None:
    state = "/var/lib/slurm/slurmctld/job_state"
    # the protocol of 24.11 is 10752, in the two bytes behind the text
    on(HEAD, f"test -s {state} || scontrol reconfigure")
    result = playbook("configure_scheduler", "--tags", "slurm_base_preflight", "--limit", HEAD)
    assert result.rc == 0, result.output


def test_a_state_that_is_elsewhere_is_not_left_behind(nodes: list[str]) -> None:
    before = {node: services(node) for node in (HEAD, "login-01", *nodes)}
    refused = playbook(
        "configure_scheduler", "-e", "slurm_controller_state_save_location=/var/lib/slurm/other"
    )
    assert refused.rc != 0
    assert "but slurmctld keeps its jobs in " in refused.output
    note = INVENTORY / ".dgx/cluster_name"
    note.unlink()
    renamed = playbook("configure_scheduler", "-e", "cluster_name=other")
    note.unlink()
    assert renamed.rc != 0
    assert "cluster_name: other is declared, but the jobs and the accounting" in renamed.output
    assert {node: services(node) for node in before} == before


def test_a_partition_with_a_job_does_not_leave(nodes: list[str]) -> None:
    """Slurm would end it."""
    number = alice("sbatch --parsable -p debug -t 5 -o /dev/null --wrap 'sleep 250'").stdout.strip()
    assert number.isdigit()
    only = {"slurm_controller_partitions": [{"name": "batch", "nodes": ["ALL"], "default": True}]}
    try:
        refused = playbook("configure_scheduler", "-e", json.dumps(only))
        assert refused.rc != 0
        assert "slurm_controller_partitions: debug would leave the configuration" in refused.output
        state = on(HEAD, f"squeue -h -j {number} -o %T").stdout.strip()
        assert state in ("PENDING", "RUNNING")
    finally:
        on(HEAD, f'scancel {number}; until test -z "$(squeue -h -j {number})"; do sleep 1; done')
    gone = playbook("configure_scheduler", "-e", json.dumps(only))
    assert gone.rc == 0, gone.why
    back = playbook("configure_scheduler")
    assert back.rc == 0, back.why
