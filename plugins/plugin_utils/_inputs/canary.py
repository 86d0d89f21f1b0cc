# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""How a mount is tried, and which nodes try it together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

# By the kernel's client and by ceph-fuse.
_TYPES = {"kernel": "ceph", "fuse": "fuse.ceph-fuse"}
# Enough to see that a mount is shared, and no more work for a thousand nodes than for ten.
_MOST = 3


def canary_of(mount: Mapping[str, Any]) -> str:
    """Return how a mount of cephfs_mounts is tried: write, read or none."""
    return str(mount.get("canary") or ("read" if mount.get("read_only") else "write"))


def canaries(
    mounts: Iterable[Mapping[str, Any]], fsid: str, drivers: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the mounts of cephfs_mounts as mount_check takes them.

    drivers are those of cephfs_client by name of the mount: which one a node takes is known on the
    node alone.
    """
    return [
        {
            "name": mount["name"],
            "path": mount["mountpoint"],
            "what": f"{mount['client']}@{fsid}.{mount['fs']}={mount.get('path') or '/'}",
            "fstype": _TYPES.get(drivers.get(mount["name"], ""), ",".join(_TYPES.values())),
            "write": canary_of(mount) == "write",
        }
        for mount in mounts
        if canary_of(mount) != "none"
    ]


def canary_peers(
    host: str,
    hosts: Sequence[str],
    mounts: Iterable[Mapping[str, Any]],
    mounts_of: Callable[[str], Iterable[Mapping[str, Any]]],
) -> dict[str, list[str]]:
    """Return for each mount by name which of the next hosts of the run write to it, too.

    hosts are all of the run, the host itself included; mounts_of gives the mounts of another.
    """
    place = hosts.index(host)
    most = min(_MOST, len(hosts) - 1)
    following = [*hosts[place + 1 :], *hosts[:place]][:most]
    writing = {
        peer: {mount["name"] for mount in mounts_of(peer) if canary_of(mount) == "write"}
        for peer in following
    }
    return {
        mount["name"]: [peer for peer in following if mount["name"] in writing[peer]]
        for mount in mounts
    }
