# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What validate_nodes asks of the mounts of a host."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.host import Host, Site
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.storage import (
    homes_below_mounts,
    mounts,
    volumes,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import (
    Inventory,
    Value,
)


def host(**variables: Any) -> Host:
    """A host with these variables."""
    node = {"name": "dgx-01", "groups": ["gpu_nodes"], "profile": None}
    values = {name: Value(value, f"all.{name}") for name, value in variables.items()}
    plan = {"cluster": {}, "nodes": [node], "profiles": {}}
    return Site(plan, Inventory({}, (), {"dgx-01": values}), {}).hosts["dgx-01"]


HOME = {"name": "home", "fs": "cephfs", "path": "/home", "mountpoint": "/home", "client": "node"}


def test_a_mount_is_compared_with_what_the_inventory_declares() -> None:
    data = {**HOME, "path": None, "canary": "read"}
    asked = mounts(host(cephfs_mounts=[HOME, data, {**HOME, "canary": "none"}], cephfs_fsid="f"))
    assert [one["what"] for one in asked] == [
        "node@{{ cephfs_fsid }}.cephfs=/home",
        "node@{{ cephfs_fsid }}.cephfs=/",
    ]
    assert {one["fstype"] for one in asked} == {"ceph,fuse.ceph-fuse"}
    assert [one["write"] for one in asked] == [True, False]
    # Without it, what else is known is compared.
    assert mounts(host(cephfs_mounts=[HOME]))[0]["what"] == "node@.cephfs=/home"


def test_a_volume_is_compared_with_the_file_system_of_its_label() -> None:
    raid = {"name": "scratch", "mountpoint": "/raid", "pci": []}
    asked = volumes(host(local_storage_volumes=[raid, {**raid, "label": "fast"}]))
    assert [one["what"] for one in asked] == [
        "/dev/disk/by-label/dgx-scratch",
        "/dev/disk/by-label/fast",
    ]


@pytest.mark.parametrize("place", ["/home", "/home/", "/data/../home//", "/"])
def test_homes_are_made_on_a_mount_however_its_place_is_written(place: str) -> None:
    users = [{"name": "ann"}, {"name": "ben", "home": "/homes/ben"}]
    asked = host(cephfs_mounts=[{**HOME, "mountpoint": place}], node_base_users=users)
    below = [one["name"] for one in homes_below_mounts(asked)]
    both = ["{{ node_base_users[0]['name'] }}", "{{ node_base_users[1]['name'] }}"]
    assert below == (both if place == "/" else both[:1])
