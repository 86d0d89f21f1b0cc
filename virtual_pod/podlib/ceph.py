# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pod's storage: a real Ceph of one node, from Debian's packages, with one CephFS.

Nothing is simulated here but its size: one monitor, manager, object store and metadata server, and
a single copy of all data on a sparse file. Which clients may mount it is the collection's to do.
"""

from __future__ import annotations

import time
import uuid

from podlib import host
from podlib.layout import STORAGE, Pod, PodError
from podlib.progress import Progress

FILE_SYSTEM = "cephfs"
_BOOT = host.CHECKOUT / "virtual_pod" / "ceph-boot.sh"
# Packages for the first time, on a slow network.
_LIMIT_S = 900
_SPACE = uuid.UUID("a7a0f0c6-6f0e-4d4e-8f5c-2f3a6f7f5d11")


def has_storage(pod: Pod) -> bool:
    """Return whether the pod has the node that Ceph runs on."""
    return any(node.name == STORAGE for node in pod.nodes)


def fsid(pod: Pod) -> str:
    """Return the cluster's id: the inventory can name it before the cluster is there."""
    return str(uuid.uuid5(_SPACE, f"{pod.name} {pod.subnet}"))


def monitor(pod: Pod) -> str:
    """Return the address of the monitor."""
    return next(node.ip for node in pod.nodes if node.name == STORAGE)


def start(progress: Progress, pod: Pod) -> None:
    """Make the cluster and its file system; what is there goes on."""
    if not has_storage(pod):
        raise PodError(f"pod {pod.name} has no {STORAGE}: pod up --storage adds it")
    begun = time.monotonic()
    arguments = [monitor(pod), pod.subnet, fsid(pod), FILE_SYSTEM]
    with progress.during(lambda: f"Ceph on {STORAGE}: at work"):
        done = host.podman(
            *("exec", "-i", pod.container(STORAGE), "sh", "-s", *arguments),
            data=_BOOT.read_text(),
            check=False,
            timeout=_LIMIT_S,
        )
    if done.returncode:
        raise PodError(f"Ceph did not start on {STORAGE}: {done.stderr.strip()[-1500:]}")
    what = "made" if "made" in done.stdout else "goes on"
    took = time.monotonic() - begun
    progress.say(f"Ceph on {STORAGE} {what}: file system {FILE_SYSTEM}, all clean ({took:.0f} s)")
