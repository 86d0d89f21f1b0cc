# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs in images, the ways in which they silently are not, and the way back.

Without BAREMETAL_DGX_ENROOT_PACKAGES (a directory of enroot's packages) and
BAREMETAL_DGX_PYXIS_SOURCES (pyxis' sources) the stand-ins of virtual_pod/containers are used: they
prove the wiring, not enroot and pyxis. The tests build on each other, in their order.
"""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from .conftest import CHECKOUT, INVENTORY, POD, Run, on, playbook

HEAD, LOGIN, NODE = "head-01", "login-01", "dgx-01"
VALUES = INVENTORY / "group_vars/all/containers.yml"
IN_USE = INVENTORY / ".dgx/pyxis/in-use.json"
STAND_INS = CHECKOUT / "virtual_pod" / "containers"
REAL_PACKAGES = os.environ.get("BAREMETAL_DGX_ENROOT_PACKAGES", "")
REAL_SOURCES = os.environ.get("BAREMETAL_DGX_PYXIS_SOURCES", "")
STACK = "/run/slurm/conf/plugstack.conf"


def lay(node: str, source: Path, target: str) -> None:
    """Copy a directory of this machine to a node."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.add(source, arcname=".")
    script = f"rm -rf {target} && mkdir -p {target} && base64 -d | tar -C {target} -xf -"
    subprocess.run(
        [str(CHECKOUT / "virtual_pod/pod"), "exec", "--name", POD, node, "sh", "-c", script],
        input=base64.b64encode(data.getvalue()),
        check=True,
        timeout=300,
    )


def in_use() -> dict[str, object]:
    """Return what the control machine has noted as in use."""
    noted = json.loads(IN_USE.read_text(encoding="utf-8"))
    assert isinstance(noted, dict)
    return noted


def alice(words: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a command as alice on the login host."""
    return on(LOGIN, f'cd / && su alice -c "{words}"', seconds)


def in_image(node: str = NODE) -> subprocess.CompletedProcess[str]:
    """Run a job of alice's on the node that prints the image's marker, or that there is none."""
    image = in_use()["image"]
    script = "sh -c 'read t < /etc/baremetal-dgx-image && echo in=\\$t || echo bare-host'"
    return alice(f"srun -t2 --chdir=/ -w {node} --container-image={image} {script}")


def verify() -> Run:
    """Read back what the roles promise, and change nothing."""
    return playbook("configure_containers", "--tags", "enroot_verify,pyxis_verify")


def service() -> None:
    """Let the node take jobs again, with the files that the controller hands out."""
    on(HEAD, f"scontrol reconfigure; sleep 4; scontrol update nodename={NODE} state=resume")


@pytest.fixture(scope="module", autouse=True)
def containers(nodes: list[str]) -> Iterator[Run]:
    """Give the pod containers, from the stand-ins or the real ones, and take them away again."""
    sums = []
    for node in (HEAD, LOGIN, *nodes):
        lay(node, STAND_INS, "/srv/containers")
        if REAL_PACKAGES:
            lay(node, Path(REAL_PACKAGES), "/srv/enroot")
            made = on(
                node,
                "cd /srv/enroot && find . -type f ! -name SHA256SUMS | sort | xargs sha256sum "
                "> SHA256SUMS && sha256sum SHA256SUMS | cut -d' ' -f1",
            )
        else:
            made = on(node, "sh /srv/containers/packages.sh /srv/enroot")
        sums.append(made.stdout.split()[-1])
        on(node, "mkdir -p /var/scratch")
    if REAL_SOURCES:
        lay(HEAD, Path(REAL_SOURCES), "/srv/containers/pyxis")
    assert len(set(sums)) == 1, sums
    values = {
        "enroot_source": "directory",
        "enroot_directory": {"path": "/srv/enroot", "sha256": sums[0]},
        "enroot_scratch_dir": "/var/scratch/enroot",
        "enroot_images_dir": "/srv/images",
        # a registry is out of reach; the stand-in imports a folder
        "enroot_images": []
        if REAL_PACKAGES
        else [{"name": "etc.sqsh", "uri": "dir:///etc/security"}],
        # a container does not set its host's kernel
        "enroot_sysctl_required": False,
        "pyxis_source": "directory",
        "pyxis_directory": "/srv/containers/pyxis",
    }
    VALUES.write_text(yaml.safe_dump(values), encoding="utf-8")
    try:
        done = playbook("configure_containers")
        assert done.rc == 0, done.output
        yield done
    finally:
        playbook("configure_containers", "-e", "pyxis_state=absent", "-e", "enroot_state=absent")
        VALUES.unlink()


def test_a_job_runs_in_the_image_that_it_asks_for() -> None:
    assert in_use()["proven"]
    assert in_image().stdout.strip() == f"in={in_use()['mark']}"
    # and one that asks for none does not
    assert alice(f"srun -t2 --chdir=/ -w {NODE} hostname").stdout.strip() == NODE
    folders = on(NODE, "stat -c '%U %a' /var/scratch/enroot/data/user-* /run/enroot/user-*").stdout
    assert "alice 700" in folders
    assert on(NODE, "ls /var/scratch/enroot/data/user-2001").stdout == ""


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
        said = verify()
        assert said.rc != 0
        assert f"{STACK} has no line of spank_pyxis: jobs with --container-image" in said.output
    finally:
        service()
    assert verify().rc == 0


def test_a_line_that_slurmd_refuses_is_named() -> None:
    on(NODE, f"sed -i 's/$/ no_such_option=1/' {STACK}")
    try:
        job = in_image()
        assert "in=" not in job.stdout, job.stdout
        said = verify()
        assert said.rc != 0
        assert "no job would start here, and srun may return 0" in said.output
    finally:
        service()
    assert verify().rc == 0


def test_a_client_without_the_plugin_can_run_nothing() -> None:
    plugin = str(in_use()["plugin"])
    on(LOGIN, f"mv {plugin} /root/plugin.so")
    assert alice(f"srun -t2 -w {NODE} hostname").returncode != 0
    said = verify()
    assert said.rc != 0
    assert f"{plugin} is missing, which plugstack.conf names: every srun" in said.output
    mended = playbook("configure_containers")
    assert mended.rc == 0, mended.output
    assert in_image().stdout.startswith("in=")


def test_a_line_with_which_no_job_runs_in_its_image_is_taken_back() -> None:
    before = in_use()
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


def test_other_sources_are_built_anew_while_jobs_go_on() -> None:
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
    assert on(NODE, "ls /etc/enroot/enroot.conf.d").stdout == ""
    again = playbook(
        "configure_containers", "-e", "pyxis_state=absent", "-e", "enroot_state=absent"
    )
    assert set(again.changed.values()) == {0}, again.output
