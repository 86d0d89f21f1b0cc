# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs in images, the ways in which they silently are not, and the way back.

With stand-ins unless containers.py is given the real ones. The tests build on each other, in their
order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from .conftest import on, playbook
from .containers import (
    HEAD,
    IN_USE,
    LOGIN,
    NODE,
    REAL_PACKAGES,
    alice,
    in_image,
    in_place,
    in_use,
    verify,
)

STACK = "/run/slurm/conf/plugstack.conf"


def service() -> None:
    """Let the node take jobs again, with the files that the controller hands out."""
    on(HEAD, f"scontrol reconfigure; sleep 4; scontrol update nodename={NODE} state=resume")


@pytest.fixture(scope="module", autouse=True)
def containers(nodes: list[str]) -> Iterator[None]:
    """Give the pod containers for these tests."""
    with in_place(nodes):
        yield


def test_a_job_runs_in_the_image_that_it_asks_for() -> None:
    assert in_use()["proven"]
    assert in_image().stdout.strip() == f"in={in_use()['mark']}"
    # and one that asks for none does not
    assert alice(f"srun -t2 --chdir=/ -w {NODE} hostname").stdout.strip() == NODE
    folders = on(NODE, "stat -c '%U %a' /var/scratch/enroot/data/user-* /run/enroot/user-*").stdout
    assert "alice 700" in folders
    assert on(NODE, "ls /var/scratch/enroot/data/user-2001").stdout == ""


def test_no_user_can_put_a_folder_in_place_of_another_users() -> None:
    for parent in ("/run/enroot", "/var/scratch/enroot/data", "/var/scratch/enroot/cache"):
        squat = f"setpriv --reuid=65534 --clear-groups mkdir -m 0777 {parent}/user-2002"
        assert on(NODE, squat).returncode != 0
    # left from a time when any user could
    data = "/var/scratch/enroot/data"
    on(NODE, f"rm -rf {data}/user-2001; mkdir -m 0777 {data}/user-2001")
    on(NODE, f"chown 65534 {data}/user-2001")
    assert in_image().stdout.startswith("in=")
    assert on(NODE, f"stat -c '%U %a' {data}/user-2001").stdout.split() == ["alice", "700"]
    assert on(NODE, f"stat -c '%u' {data}/refused-user-2001-*").stdout.split() == ["65534"]
    assert "idle" in on(HEAD, f"sinfo -h -n {NODE} -o %t").stdout
    on(NODE, f"rm -rf {data}/refused-*")


@pytest.mark.skipif(bool(REAL_PACKAGES), reason="the real enroot imports from registries")
def test_declared_images_are_imported_once() -> None:
    assert "valid SQUASHFS" in on(LOGIN, "unsquashfs -s /srv/images/etc.sqsh").stdout
    assert on(LOGIN, "ls /srv/images").stdout == "etc.sqsh\n"


def test_folders_of_the_node_are_seen_inside() -> None:
    on(NODE, "mkdir -p /srv/mounted && echo seen > /srv/mounted/file")
    options = f"--container-image={in_use()['image']} --container-mounts=/srv/mounted:/mnt:ro"
    script = "sh -c 'read t < /mnt/file && echo \\$t'"
    assert alice(f"srun -t2 --chdir=/ -w {NODE} {options} {script}").stdout.strip() == "seen"


def test_second_run_changes_nothing_here_and_in_the_scheduler() -> None:
    for name in ("configure_containers", "configure_scheduler"):
        again = playbook(name, "--diff")
        assert again.rc == 0, again.output
        assert set(again.changed.values()) == {0}, again.output
    assert str(in_use()["line"]) in on(NODE, f"cat {STACK}").stdout


def test_compute_node_without_the_line_runs_jobs_on_the_bare_host() -> None:
    on(NODE, f"cp {STACK} /root/stack && : > {STACK}")
    try:
        job = in_image()
        # this is what makes it dangerous
        assert (job.returncode, job.stdout.strip()) == (0, "bare-host"), job.stderr
        result = verify()
        assert result.rc != 0
        assert f"{STACK} has no line of spank_pyxis: jobs with --container-image" in result.output
    finally:
        service()
    assert verify().rc == 0


def test_a_line_that_slurmd_refuses_is_named() -> None:
    on(NODE, f"sed -i 's/$/ no_such_option=1/' {STACK}")
    try:
        job = in_image()
        assert "in=" not in job.stdout, job.stdout
        result = verify()
        assert result.rc != 0
        assert "no job would start here, and srun may return 0" in result.output
    finally:
        service()
    assert verify().rc == 0


def test_a_client_without_the_plugin_can_run_nothing() -> None:
    plugin = str(in_use()["plugin"])
    on(LOGIN, f"mv {plugin} /root/plugin.so")
    assert alice(f"srun -t2 -w {NODE} hostname").returncode != 0
    result = verify()
    assert result.rc != 0
    assert f"{plugin} is missing, which plugstack.conf names: every srun" in result.output
    repaired = playbook("configure_containers")
    assert repaired.rc == 0, repaired.output
    assert in_image().stdout.startswith("in=")


def test_a_line_with_which_no_job_runs_in_its_image_is_taken_back() -> None:
    before = in_use()
    # without enroot the epilog of the job before would drain the node, and keep it from the trial
    on(HEAD, f'until test -z "$(squeue -h -w {NODE})"; do sleep 1; done')
    on(NODE, "chmod 700 /usr/bin/enroot")
    try:
        options = {"pyxis_options": {"runtime_path": "/run/pyxis", "container_scope": "global"}}
        refused = playbook("configure_containers", "--tags", "pyxis", "-e", json.dumps(options))
        assert refused.rc != 0
        assert "was taken back, since jobs did not run in their image" in refused.output
    finally:
        on(NODE, "chmod 755 /usr/bin/enroot")
    assert in_use() == before
    assert on(HEAD, "cat /etc/slurm/plugstack.conf").stdout.count(str(before["line"])) == 1
    service()
    assert in_image().stdout.startswith("in=")


def test_other_sources_are_built_again_while_jobs_go_on() -> None:
    before = in_use()
    job = alice("sbatch --parsable -t5 -o /dev/null --wrap 'sleep 300'").stdout.strip()
    on(HEAD, "echo >> /srv/containers/pyxis/Makefile")
    done = playbook("configure_containers")
    assert done.rc == 0, done.output
    after = in_use()
    assert after["mark"] != before["mark"]
    assert after["previous"] == before["plugin"]
    assert in_image().stdout.strip() == f"in={after['mark']}"
    assert on(HEAD, f"squeue -h -j {job} -o %T").stdout.strip() == "RUNNING"
    on(HEAD, f"scancel {job}")


def test_taken_away_without_a_trace() -> None:
    plugin = str(in_use()["plugin"])
    gone = playbook("configure_containers", "-e", "pyxis_state=absent")
    assert gone.rc == 0, gone.output
    assert "container-image" not in alice("srun --help").stdout
    assert alice(f"srun -t2 --chdir=/ -w {NODE} hostname").stdout.strip() == NODE
    for node in (HEAD, LOGIN, NODE):
        assert on(node, f"ls {plugin}").returncode != 0
    assert not IN_USE.exists()
    gone = playbook("configure_containers", "-e", "pyxis_state=absent", "-e", "enroot_state=absent")
    assert gone.rc == 0, gone.output
    assert on(NODE, "command -v enroot").returncode != 0
    assert on(NODE, "ls /etc/enroot/enroot.conf.d/*.conf").stdout == ""
    again = playbook(
        "configure_containers", "-e", "pyxis_state=absent", "-e", "enroot_state=absent"
    )
    assert set(again.changed.values()) == {0}, again.output
