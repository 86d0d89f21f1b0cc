# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU stack as seen from outside, after the molecule scenario `gpu` has converged.

What the role must refuse is run as a user would run it, and must leave every package as it was.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from .conftest import node

NAME = "gpu-trixie"
WORK = Path(os.environ.get("MOLECULE_EPHEMERAL_DIRECTORY", "/nonexistent"))
DRIVER = ("nvidia-open", "nvidia-persistenced", "nvidia-fabricmanager", "libnvidia-nscq")
HOLDS = "/var/lib/baremetal-dgx/held/nvidia_driver"
NEWER = "580.173.01"

pytestmark = pytest.mark.skipif(
    not (WORK / "sha256").is_file(), reason="needs the molecule scenario gpu"
)


@pytest.fixture
def host() -> Host:
    return node(NAME)


def run(**variables: Any) -> tuple[bool, int, str]:
    """Run the playbook: whether it failed, what it changed, and its output with folded lines."""
    done = subprocess.run(
        [
            "ansible-playbook",
            f"--inventory={WORK / 'inventory'}",
            f"--extra-vars={json.dumps(variables)}",
            "baremetal.dgx.install_gpu_stack",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    recap = re.search(rf"^{NAME} +:.* changed=(\d+) ", done.stdout, re.M)
    text = " ".join((done.stdout + done.stderr).split())
    # What the inventory shows to be wrong is refused before any host is asked.
    assert recap or "no host was touched" in text, text
    return done.returncode != 0, int(recap[1]) if recap else 0, text


def state(host: Host) -> str:
    """Every package, its version and whether it is held."""
    query = "dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\\n'"
    return str(host.check_output(query))


@contextmanager
def nothing_changes(host: Host) -> Iterator[None]:
    before = state(host)
    yield
    assert state(host) == before


def test_all_parts_have_one_version_and_are_held(host: Host) -> None:
    held = host.check_output("apt-mark showhold").split()
    for name in DRIVER:
        assert host.package(name).version == "580.126.20-1"
        assert name in held
    assert host.package("libcuda1").version == "580.126.20-1"
    assert host.package("libnccl2").version == "2.30.4-1+cuda13.0"
    assert host.package("datacenter-gpu-manager-4-cuda13").version == "1:4.6.0-1"
    assert host.package("nvidia-container-toolkit-base").version == "1.20.0-1"
    # A declared NCCL version is held, too.
    assert host.file(HOLDS).content_string.split() == [*DRIVER, "libnccl2"]
    assert "libnccl2" in held


def test_an_upgrade_leaves_the_driver_alone(host: Host) -> None:
    """The newer version is in the repository, and libcuda1 is not held: the pin keeps it."""
    assert NEWER in host.check_output("apt-cache madison libcuda1")
    assert not re.search(
        "(nvidia|libcuda1)", host.check_output("apt-get dist-upgrade --simulate | grep ^Inst || :")
    )


def test_files(host: Host) -> None:
    modprobe = host.file("/etc/modprobe.d/baremetal-dgx-nvidia.conf").content_string
    assert "blacklist nouveau\n" in modprobe
    assert "options nvidia NVreg_RestrictProfilingToAdminUsers=0\n" in modprobe
    drop_in = host.file("/etc/systemd/system/nvidia-dcgm.service.d/50-baremetal-dgx.conf")
    assert "until /usr/bin/dcgmi health -s pm; do " in drop_in.content_string
    assert host.file("/var/lib/baremetal-dgx/packages/nvidia_driver/Packages").mode == 0o644


def test_a_wrong_checksum(host: Host) -> None:
    """The list is the declared one, and one file is not what it says."""
    name = "nvidia-open_580.173.01-1_all.deb"
    folder = "/var/lib/baremetal-dgx/packages/nvidia_driver"
    host.check_output(f"cp /srv/packages/{name} /tmp/ && echo x >> /srv/packages/{name}")
    # an earlier run has taken the list over, so that a new node is played
    host.check_output(f"mv {folder} {folder}.aside")
    try:
        with nothing_changes(host):
            failed, changed, text = run()
        assert failed
        assert changed == 0
        assert f"{name} has the wrong checksum" in text
        assert not host.file(folder).exists
        failed, _changed, text = run(
            nvidia_driver_directory={"path": "/srv/packages", "sha256": "0" * 64}
        )
        assert failed
        assert "SHA256SUMS has the wrong checksum" in text
    finally:
        host.check_output(f"cp /tmp/{name} /srv/packages/ && rm -rf {folder}")
        host.check_output(f"mv {folder}.aside {folder}")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"branch": "581", "version": ""}, "driver branch 581 is not known"),
        ({"branch": "570"}, "driver version 580.126.20 is not of branch 570"),
        ({"version": "580.105.08"}, "newer than the declared 580.105.08"),
        ({"version": "580.200.01"}, "no source has nvidia-open 580.200.01; they have 580.173.01"),
        ({"kernel_modules": "proprietary"}, "no source has cuda-drivers"),
    ],
)
def test_what_cannot_be_had(host: Host, variables: dict[str, str], message: str) -> None:
    with nothing_changes(host):
        failed, changed, text = run(
            **{f"nvidia_driver_{key}": value for key, value in variables.items()}
        )
    assert failed
    assert changed == 0
    assert message in text


def test_what_another_one_holds(host: Host) -> None:
    """Without its own list of holds, the role takes them for foreign ones."""
    host.check_output(f"mv {HOLDS} {HOLDS}.aside")
    try:
        with nothing_changes(host):
            failed, _changed, text = run(nvidia_driver_version=NEWER)
        assert failed
        for name in DRIVER:
            assert f"{name} is held at 580.126.20-1 and blocks {NEWER}" in text
    finally:
        host.check_output(f"mv {HOLDS}.aside {HOLDS}")


def test_headers_that_are_missing(host: Host) -> None:
    file = f"/lib/modules/{host.check_output('uname -r')}/build/Makefile"
    host.check_output(f"mv {file} {file}.aside")
    try:
        with nothing_changes(host):
            failed, changed, text = run(nvidia_driver_version=NEWER)
        assert failed
        assert changed == 0
        assert "kernel headers are missing and no source has linux-headers-" in text
    finally:
        host.check_output(f"mv {file}.aside {file}")


def test_a_job_on_the_node(host: Host) -> None:
    title = "slurmstepd: [4711.batch]"
    host.check_output("ln -sf /bin/sleep /run/slurmstepd")
    start = f"bash -c 'exec -a \"{title}\" /run/slurmstepd 120' > /dev/null 2>&1 & echo $!"
    pid = host.check_output(start)
    try:
        with nothing_changes(host):
            failed, changed, text = run(nvidia_driver_version=NEWER)
        assert failed
        assert changed == 0
        assert "job steps run here (4711.batch); drain this node" in text
        # where nothing is to be done, the job does not matter
        assert run()[:2] == (False, 0)
    finally:
        host.run(f"kill {pid}")


def test_the_next_version_comes_as_a_whole(host: Host) -> None:
    failed, changed, text = run(nvidia_driver_version=NEWER)
    assert not failed, text
    assert changed > 0
    held = host.check_output("apt-mark showhold").split()
    for name in DRIVER:
        assert host.package(name).version == f"{NEWER}-1"
        assert name in held
    assert host.package("libcuda1").version == f"{NEWER}-1"
    assert run(nvidia_driver_version=NEWER)[:2] == (False, 0)
