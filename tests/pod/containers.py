# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Give a pod containers as jobs, and take them away again.

Without BAREMETAL_DGX_ENROOT_PACKAGES (a directory of enroot's packages) and
BAREMETAL_DGX_PYXIS_SOURCES (pyxis' sources) the stand-ins of virtual_pod/containers are used: they
prove the wiring, not enroot and pyxis.
"""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from .conftest import CHECKOUT, INVENTORY, POD, Run, on, playbook

HEAD, LOGIN, NODE = "head-01", "login-01", "dgx-01"
VALUES = INVENTORY / "group_vars/all/containers.yml"
IN_USE = INVENTORY / ".dgx/pyxis/in-use.json"
STAND_INS = CHECKOUT / "virtual_pod" / "containers"
REAL_PACKAGES = os.environ.get("BAREMETAL_DGX_ENROOT_PACKAGES", "")
REAL_SOURCES = os.environ.get("BAREMETAL_DGX_PYXIS_SOURCES", "")


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


@contextmanager
def in_place(nodes: Sequence[str], **given: object) -> Iterator[None]:
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
        **given,
    }
    VALUES.write_text(yaml.safe_dump(values), encoding="utf-8")
    try:
        done = playbook("configure_containers")
        assert done.rc == 0, done.why
        yield
    finally:
        playbook("configure_containers", "-e", "pyxis_state=absent", "-e", "enroot_state=absent")
        VALUES.unlink()
