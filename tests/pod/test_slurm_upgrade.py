# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A release that cannot take over the state that is there is refused, with every daemon running."""

from __future__ import annotations

from .conftest import on, playbook, services

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
    # and no other host went on alone
    assert set(refused.changed.values()) == {0}
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
    assert "but slurmctld keeps its jobs in /var/lib/slurm/slurmctld" in refused.output
    renamed = playbook("configure_scheduler", "-e", "cluster_name=other")
    assert renamed.rc != 0
    assert "cluster_name: other is declared, but the jobs and the accounting" in renamed.output
    assert {node: services(node) for node in before} == before
