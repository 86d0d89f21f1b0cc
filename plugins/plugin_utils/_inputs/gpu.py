# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Inputs of nvidia_driver, dcgm, node_health and local_storage: the node's own hardware. Pure."""

from __future__ import annotations

import posixpath
from typing import Any

from .fabric import HARDWARE, link_layer, rail_inputs, rails_of
from .host import Host, UnknownError
from .storage import asked_storage, mounts, volumes


def _judged(host: Host) -> Any:
    """Return the profile with the GPUs that MIG divides, and their instances."""
    layout = host.node["mig"]
    if not layout:
        return host.profile
    return {**host.profile, "gpus": {**host.profile["gpus"], "mig": layout}}


def _watched(host: Host) -> dict[str, Any]:
    """Return the mounts that node health asks for, with what the plan knows to be mounted there.

    A list of the inventory that is not known before the host is asked is left as it is.
    """
    name = "node_health_mounts"
    sources = {one["path"]: one["what"] for one in (*mounts(host), *volumes(host))}
    try:
        given = host.value(name) if host.says(name) else [{"path": path} for path in sources]
    except UnknownError:
        return {}
    known = {posixpath.normpath(path): {"source": what} for path, what in sources.items()}
    return {name: [{**known.get(posixpath.normpath(one["path"]), {}), **one} for one in given]}


def _worn(host: Host) -> dict[str, Any]:
    """Return what node health asks of the NVMe disks that local_storage judges, as that does.

    Nothing where that is not known before the host is asked.
    """
    names = {name: f"local_storage_{name}" for name in ("wear_percent", "media_errors")}
    try:
        if "local_storage" not in asked_storage(host) or not host.value("local_storage_smart"):
            return {}
        name = "local_storage_disks"
        count = host.value(name) if host.says(name) else _disks(host)
        return {"count": count, **{key: host.value(name) for key, name in names.items()}}
    except UnknownError:
        return {}


def _disks(host: Host) -> int:
    nvme = host.profile.get("nvme") or {}
    return (nvme.get("os_disks") or 0) + (nvme.get("data_disks") or 0)


def hardware_inputs(host: Host) -> dict[str, Any]:
    """Return the inputs of a host for its hardware."""
    profile = host.profile
    gpus = profile.get("gpus") or {}
    # Nodes whose adapters are simulated elsewhere have none.
    rails = rail_inputs(host) if host.value(HARDWARE) else []
    layer = link_layer(host.site)
    return {
        "nvidia_driver_gpu": gpus.get("type") or "",
        "nvidia_driver_nvswitches": (profile.get("nvlink") or {}).get("nvswitches") or 0,
        "nvidia_driver_gpudirect": host.value("infiniband_gpudirect") if rails_of(host) else "",
        "dcgm_gpus": gpus.get("count") or 0,
        "node_health_profile": _judged(host),
        "node_health_rails": [{**rail, "link_layer": layer} for rail in rails],
        **_watched(host),
        "node_health_nvme": _worn(host),
        "node_health_bmc": host.gives("node_bmc"),
        "local_storage_disks": _disks(host),
    }
