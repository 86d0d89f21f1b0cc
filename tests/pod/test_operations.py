# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Life with a running cluster: run again, change, break, and hear the truth from verify."""

from __future__ import annotations

import re
import time

import pytest
import yaml

from .conftest import INVENTORY, assert_no_secret, on, playbook, services

HEAD = "head-01"


def job_of_alice(script: str, *options: str) -> str:
    """Submit a batch job as alice and return its number."""
    line = " ".join(("sbatch --parsable -o /dev/null", *options, f"--wrap '{script}'"))
    done = on("login-01", f'su - alice -c "{line}"')
    assert done.stdout.strip().isdigit(), done.stderr
    return done.stdout.strip()


def state_of(job: str) -> str:
    """Return the state of a job as the accounting database has it."""
    return on(HEAD, f"sacct -nXP -j {job} -o State").stdout.strip()


def wait_for(job: str, state: str, seconds: float = 60) -> None:
    """Wait until the job is in this state."""
    deadline = time.monotonic() + seconds
    while state_of(job) != state:
        assert time.monotonic() < deadline, f"job {job} is {state_of(job)}, not {state}"
        time.sleep(1)


def test_second_run_changes_nothing_and_leaves_jobs_alone(nodes: list[str]) -> None:
    job = job_of_alice("sleep 600", "--gres=gpu:1", "-N1")
    wait_for(job, "RUNNING")
    before = {node: services(node) for node in (HEAD, "login-01", *nodes)}
    again = playbook("site", "--diff")
    assert again.rc == 0, again.output
    assert set(again.changed.values()) == {0}, again.output
    assert {node: services(node) for node in before} == before
    assert state_of(job) == "RUNNING"
    on(HEAD, f"scancel {job}")


def test_changed_partition_is_taken_without_a_restart(nodes: list[str]) -> None:
    job = job_of_alice("sleep 600", "--gres=gpu:1", "-N1")
    wait_for(job, "RUNNING")
    before = services(nodes[0])
    path = INVENTORY / "group_vars" / "all" / "slurm_controller.yml"
    text = path.read_text(encoding="utf-8")
    values = yaml.safe_load(text)
    values["slurm_controller_partitions"][0]["max_time"] = "2-00:00:00"
    try:
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
        changed = playbook("configure_scheduler", "--diff")
        assert changed.rc == 0, changed.output
        assert "-PartitionName=batch" in changed.output
        assert "MaxTime=2-00:00:00" in on(HEAD, "scontrol show partition batch").stdout
        assert services(nodes[0])["slurmd.service"] == before["slurmd.service"]
        assert state_of(job) == "RUNNING"
    finally:
        path.write_text(text, encoding="utf-8")
        assert playbook("configure_scheduler").rc == 0
        on(HEAD, f"scancel {job}")


def test_wrong_configuration_never_reaches_the_daemon() -> None:
    before = on(HEAD, "cat /etc/slurm/slurm.conf").stdout
    refused = playbook(
        "configure_scheduler", "-e", '{"slurm_controller_options": {"SlurmctldTimeout": "soon"}}'
    )
    assert refused.rc != 0
    assert on(HEAD, "cat /etc/slurm/slurm.conf").stdout == before
    assert "is UP" in on(HEAD, "scontrol ping").stdout
    assert playbook("configure_scheduler").rc == 0


@pytest.mark.parametrize(
    "dead",
    [
        [(HEAD, "slurmctld"), ("dgx-01", "munge")],
        [(HEAD, "slurmdbd"), ("dgx-01", "slurmd")],
        [(HEAD, "mariadb")],
    ],
    ids=str,
)
def test_verify_names_dead_daemons_and_the_next_run_revives_them(
    dead: list[tuple[str, str]],
) -> None:
    for node, unit in dead:
        on(node, f"systemctl kill -s KILL {unit}; sleep 1; systemctl stop {unit}", seconds=120)
    red = playbook("verify")
    assert red.rc != 0
    for node, unit in dead:
        assert re.search(rf"\[{node}\].*{unit}\.service is", red.output), red.output
    assert playbook("configure_scheduler").rc == 0
    green = playbook("verify")
    assert green.rc == 0, green.output


def test_unreachable_host_is_named_and_the_others_finish(nodes: list[str]) -> None:
    lost = nodes[-1]
    # Not sshd alone: Ansible's connections of a minute ago would outlive it.
    on(lost, "ip link set eth0 down")
    try:
        done = playbook("site")
        assert done.rc != 0
        assert f"Not reached or failed: {lost}" in done.output
        assert done.recap[lost]["unreachable"] == 1
        others = {host: counts for host, counts in done.recap.items() if host != lost}
        assert all(
            counts["failed"] == 0 and counts["unreachable"] == 0 for counts in others.values()
        ), done.output
    finally:
        on(lost, "ip link set eth0 up")


def test_no_secret_in_the_output() -> None:
    loud = playbook("configure_scheduler", "--diff", "-vvv")
    assert loud.rc == 0, loud.output
    assert_no_secret(loud.output)
