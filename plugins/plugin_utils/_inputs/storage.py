# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What mount_storage and validate_nodes know of a host's mounts and homes. Pure."""

from __future__ import annotations

import posixpath
from typing import Any

from .canary import canaries
from .host import Host

_ROLES = {"local_storage": "local_storage_volumes", "cephfs": "cephfs_mounts"}
_USERS = "node_base_users"


def mounts(host: Host) -> list[dict[str, Any]]:
    """Return the mounts of cephfs_mounts as mount_check takes them."""
    fsid = host.refer("cephfs_fsid") if host.says("cephfs_fsid") else ""
    keys = ("name", "mountpoint", "canary", "read_only", "client", "fs", "path")
    return canaries(host.fields("cephfs_mounts", *keys), fsid, {})


def volumes(host: Host) -> list[dict[str, Any]]:
    """Return the volumes of local scratch as mount_check takes them."""
    return [
        {
            "name": one["name"],
            "path": one["mountpoint"],
            "what": "/dev/disk/by-label/" + (one.get("label") or f"dgx-{one['name']}"),
        }
        for one in host.fields("local_storage_volumes", "name", "mountpoint", "label")
    ]


def asked_storage(host: Host) -> list[str]:
    """Return the roles for storage of which the inventory says something."""
    return [role for role, name in _ROLES.items() if host.says(name)]


def lets_clients_in(host: Host) -> bool:
    """Return whether the host administrates the cluster of storage for its clients."""
    return "storage_nodes" in host.groups and bool(host.value("cephfs_admin"))


def homes_below_mounts(host: Host) -> list[dict[str, Any]]:
    """Return users whose home is below a mount, where one that was made before it is hidden."""
    places = tuple(
        posixpath.normpath(one["mountpoint"]).rstrip("/") + "/"
        for one in host.fields("cephfs_mounts", "mountpoint")
    )
    if not places:
        return []
    users = host.fields(_USERS, "name", "home", "state", "create_home")
    return [
        {
            key: host.refer(_USERS, index, key)
            for key in host.outline(_USERS)[index]
            if key != "sudo"
        }
        for index, user in enumerate(users)
        if posixpath.normpath(user.get("home", "/home/" + user["name"])).startswith(places)
        and user.get("state", "present") == "present"
        and user.get("create_home", True)
    ]


def storage_inputs(host: Host) -> dict[str, Any]:
    """Return the inputs of a host for its storage."""
    return {"__storage_users": homes_below_mounts(host)}
