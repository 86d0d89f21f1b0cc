# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm of Debian 13 becomes Slurm of Debian testing, under a job that runs in an image.

For its own pod (tests/soak/slurm_upgrade): there is no way back. The tests build on each
other, in their order.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from .conftest import INVENTORY, Run, on, playbook, services
from .containers import HEAD, LOGIN, alice, in_image, in_place, in_use, verify
from .copies import ask, lose, repository

OLD, NEW = "24.11", "26.05"
# after pod.yml there, which names the release that the suite has
VALUES = INVENTORY / "group_vars/cluster/release.yml"
FABRIC = INVENTORY / "group_vars/all/topology.yml"
COPIES = "/var/backups/baremetal-dgx"
FIND = "pgrep -fx '(/usr/bin/)?sleep 3600'"
ASSOCIATIONS = "sacctmgr -nP show assoc format=cluster,account,user,qos,fairshare | sort"


@dataclass(frozen=True)
class Job:
    """A job that runs in an image, its node and its process there; what had ended before it."""

    number: str
    node: str
    process: str
    ended_before: frozenset[str]

    def now(self) -> tuple[str, str]:
        """Return its state and its process."""
        state = on(HEAD, f"squeue -h -j {self.number} -o %T").stdout.strip()
        return state, on(self.node, FIND).stdout.strip()


def releases(hosts: list[str]) -> dict[str, str]:
    """Return host → release of its client or daemon."""
    result = {host: on(host, "sinfo --version || slurmd -V").stdout.split()[-1] for host in hosts}
    return {host: version.rpartition(".")[0] for host, version in result.items()}


def accounting() -> set[str]:
    """Return the jobs that the database knows, with their states."""
    return set(alice("sacct -X -n -P -o jobid,state").stdout.split())


@pytest.fixture(scope="module")
def hosts(nodes: list[str]) -> list[str]:
    """Return every host that has Slurm."""
    return [HEAD, LOGIN, *nodes]


@pytest.fixture(scope="module", autouse=True)
def job(nodes: list[str]) -> Iterator[Job]:
    """Start a job in an image, which goes on until the last test is over."""
    with in_place(nodes):
        # the image holds a shell and nothing else
        options = f"--container-image={in_use()['image']} --container-mounts=/usr/bin:/usr/bin:ro"
        script = f"srun {options} sleep 3600"
        result = alice(f"sbatch --parsable -N1 --gres=gpu:1 -t 120 -o /dev/null --wrap '{script}'")
        number = result.stdout.strip()
        waits = f"until squeue -h -j {number} -t RUNNING -o %N | grep dgx; do sleep 1; done"
        node = on(HEAD, waits).stdout.strip()
        process = on(node, f"until {FIND}; do sleep 1; done").stdout.strip()
        # the trial of the plug-in among them
        ended = frozenset(line for line in accounting() if line.endswith("|COMPLETED"))
        assert ended
        yield Job(number, node, process, ended)
        on(HEAD, f"scancel {number}")


@pytest.fixture(scope="module")
def copied(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Copy the cluster of the old release, on which the job runs; return the time of the copy."""
    with repository(LOGIN, tmp_path_factory.mktemp("backup")):
        for name in ("configure_backup", "back_up"):
            done = playbook(name)
            assert done.rc == 0, done.why
        now = time.gmtime()
        # Copies have the time to the second.
        time.sleep(2)
        yield time.strftime("%Y-%m-%dT%H:%M:%SZ", now)


@pytest.fixture(scope="module")
def upgraded(job: Job) -> tuple[Run, Run]:
    """Declare the new release, run until slurmdbd is of it, as a killed run does, and run again."""
    values = yaml.safe_load(VALUES.read_text(encoding="utf-8"))
    VALUES.write_text(yaml.safe_dump({**values, "slurm_base_version": NEW}), encoding="utf-8")
    begun = playbook("configure_scheduler", "--tags", "slurm_base,slurm_database")
    return begun, playbook("configure_scheduler")


def test_a_repository_that_is_declared_upgrades_nothing(hosts: list[str]) -> None:
    archive = on(HEAD, r"sed -n 's/^deb \(\S*\) trixie main$/\1/p' /etc/apt/sources.list").stdout
    assert archive.startswith("http"), archive
    testing = {
        "name": "testing",
        "uris": [archive.strip()],
        "suites": ["testing"],
        "components": ["main"],
        "signed_by": "/usr/share/keyrings/debian-archive-keyring.gpg",
    }
    VALUES.write_text(yaml.safe_dump({"node_base_repositories": [testing]}), encoding="utf-8")
    declared = playbook("prepare_nodes")
    assert declared.rc == 0, declared.why
    for host in hosts:
        on(host, "apt-get -q update", 300)
    again = playbook("configure_scheduler")
    assert again.rc == 0, again.why
    assert set(again.changed.values()) == {0}, again.output
    assert releases(hosts) == dict.fromkeys(hosts, OLD)


def test_check_mode_tells_of_the_upgrade_and_does_nothing(hosts: list[str], job: Job) -> None:
    before = {host: services(host) for host in hosts}
    reported = playbook("configure_scheduler", "--check", "-e", f"slurm_base_version={NEW}")
    assert reported.rc == 0, reported.why
    assert all(reported.changed[host] for host in hosts), reported.output
    assert releases(hosts) == dict.fromkeys(hosts, OLD)
    assert {host: services(host) for host in hosts} == before
    assert on(HEAD, f"ls {COPIES}").stdout == ""
    assert job.now() == ("RUNNING", job.process)


def test_no_host_is_upgraded_before_the_daemon_that_it_reports_to(
    hosts: list[str], nodes: list[str], job: Job
) -> None:
    text = VALUES.read_text(encoding="utf-8")
    before = {host: services(host) for host in hosts}
    # pyxis needs other hosts.
    alone = json.dumps({"apply_roles": ["slurm_base", "slurm_compute"]})
    runs = (
        ("configure_scheduler", "--limit", nodes[0]),
        ("configure_scheduler", "--limit", LOGIN),
        ("apply_nodes", "-e", f"target={nodes[0]}", "-e", alone),
        ("apply_nodes", "-e", f"target={nodes[0]}", "-e", alone, "-e", "engine=local"),
    )
    VALUES.write_text(yaml.safe_dump({**yaml.safe_load(text), "slurm_base_version": NEW}))
    try:
        for run in runs:
            refused = playbook(*run)
            assert refused.rc != 0, run
            assert f"but slurmctld that this host asks is of release {OLD}" in refused.output, run
    finally:
        VALUES.write_text(text, encoding="utf-8")
    assert releases(hosts) == dict.fromkeys(hosts, OLD)
    assert {host: services(host) for host in hosts} == before
    assert job.now() == ("RUNNING", job.process)


def test_upgrade_goes_from_the_database_to_the_clients(
    copied: str, upgraded: tuple[Run, Run], hosts: list[str]
) -> None:
    tasks = []
    for run in upgraded:
        assert run.rc == 0, run.why
        tasks += run.output.split("\nTASK ")
    message = "\n".join(task for task in tasks if "Install the Debian packages" in task)
    order = re.findall(r"^changed: \[(\S+)\]$", message, re.MULTILINE)
    assert (order[0], order[-1]) == (HEAD, LOGIN)
    assert releases(hosts) == dict.fromkeys(hosts, NEW)


@pytest.mark.usefixtures("upgraded")
def test_copies_of_before_are_kept() -> None:
    copies = on(HEAD, f"ls {COPIES}").stdout.split()
    assert sorted(copies) == [f"slurm_acct_db-{OLD}.sql.gz", f"slurmctld-{OLD}"]
    # and they hold what they are for
    dump = on(HEAD, f"zcat {COPIES}/*.sql.gz | grep 'CREATE TABLE.*_job_table'")
    assert dump.returncode == 0
    assert on(HEAD, f"test -s {COPIES}/slurmctld-{OLD}/job_state").returncode == 0


@pytest.mark.usefixtures("upgraded")
def test_job_goes_on_in_its_process_and_the_accounting_is_kept(job: Job) -> None:
    assert job.now() == ("RUNNING", job.process)
    assert job.ended_before | {f"{job.number}|RUNNING"} <= accounting()


@pytest.mark.usefixtures("upgraded")
def test_images_are_refused_until_the_plugin_is_of_this_release(nodes: list[str]) -> None:
    assert str(in_use()["release"]) == OLD
    refused = in_image()
    assert refused.returncode != 0
    assert "unrecognized option" in refused.stderr, refused.stderr
    assert "bare-host" not in refused.stdout
    # all else runs
    names = alice(f"srun -N{len(nodes)} --gres=gpu:1 --chdir=/ hostname").stdout.split()
    assert sorted(names) == nodes


@pytest.mark.usefixtures("upgraded")
def test_plugin_is_built_again_while_the_job_goes_on(job: Job) -> None:
    before = in_use()
    built = playbook("configure_containers")
    assert built.rc == 0, built.why
    after = in_use()
    assert str(after["release"]) == NEW
    assert after["plugin"] != before["plugin"]
    assert in_image().stdout.strip() == f"in={after['mark']}"
    assert verify().rc == 0
    assert job.now() == ("RUNNING", job.process)


@pytest.mark.usefixtures("upgraded")
def test_second_run_changes_nothing() -> None:
    for name in ("configure_scheduler", "configure_containers"):
        again = playbook(name)
        assert again.rc == 0, again.why
        assert set(again.changed.values()) == {0}, again.output


@pytest.mark.usefixtures("upgraded")
def test_the_topology_in_its_newer_form(nodes: list[str]) -> None:
    """A partition with its own topology, beside the cluster's, which is the plan's."""
    partitions = [
        {"name": "batch", "nodes": ["ALL"], "default": True},
        {"name": "anywhere", "nodes": ["ALL"], "topology": "flat"},
    ]
    plan = {"leaf_switches": ["leaf-[0:7]"], "spine_switches": ["spine-[1:4]"]}
    FABRIC.write_text(yaml.safe_dump({"cluster_fabric": {"topology": "superpod", **plan}}))
    given = ("-e", json.dumps({"slurm_controller_partitions": partitions}))
    try:
        done = playbook("configure_scheduler", *given)
        assert done.rc == 0, done.why
        again = playbook("configure_scheduler", *given)
        assert (again.rc, set(again.changed.values())) == (0, {0}), again.why
        shown = ask("scontrol show topology; ls /etc/slurm")
        assert re.search(r"SwitchName=su1 Level=0 .*Nodes=dgx-\[01-02\]", shown), shown
        assert "topology.yaml" in shown.split()
        assert "topology.conf" not in shown.split()
        assert "Topology=flat" in ask("scontrol show partition anywhere")
        for partition in ("batch", "anywhere"):
            names = alice(f"srun -p {partition} -N{len(nodes)} -t2 --chdir=/ hostname").stdout
            assert sorted(names.split()) == nodes
    finally:
        FABRIC.unlink()
        back = playbook("configure_scheduler")
        assert back.rc == 0, back.why


@pytest.mark.usefixtures("upgraded")
def test_the_way_back_is_refused(hosts: list[str]) -> None:
    back = playbook("configure_scheduler", "-e", f"slurm_base_version={OLD}")
    assert back.rc != 0
    assert f"goes from {NEW} back to {OLD}" in back.output
    assert releases(hosts) == dict.fromkeys(hosts, NEW)


@pytest.mark.usefixtures("upgraded")
def test_a_copy_of_the_old_release_comes_back_in_the_new_one(
    copied: str, hosts: list[str], job: Job
) -> None:
    associations = ask(ASSOCIATIONS)
    lose(HEAD)
    restored = playbook("restore_cluster", "-e", f"restore_until={copied}", seconds=1800)
    assert restored.rc == 0, restored.why
    assert f"jobs that go on: {job.number}" in restored.output
    assert releases(hosts) == dict.fromkeys(hosts, NEW)
    assert job.now() == ("RUNNING", job.process)
    assert job.ended_before | {f"{job.number}|RUNNING"} <= accounting()
    assert ask(ASSOCIATIONS) == associations
    again = playbook("restore_cluster", "-e", f"restore_until={copied}", seconds=1800)
    assert (again.rc, set(again.changed.values())) == (0, {0}), again.tasks("changed") or again.why
