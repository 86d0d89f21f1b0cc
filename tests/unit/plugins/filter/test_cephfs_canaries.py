# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What mount_check asks of a mount follows from how it is declared, and from the node's client."""

from __future__ import annotations

from ansible_collections.baremetal.dgx.plugins.filter import cephfs_canaries
from ansible_collections.baremetal.dgx.plugins.modules.mount_check import MOUNT

made = cephfs_canaries.FilterModule().filters()["cephfs_canaries"]
HOME = {"name": "home", "mountpoint": "/home", "client": "node", "fs": "cephfs", "path": "/home"}
READ = {"name": "data", "mountpoint": "/data", "client": "node", "fs": "d", "read_only": True}
PEERS = {"home": ["dgx-02"], "data": ["dgx-02"]}


def test_what_a_mount_is_asked() -> None:
    home, data = made([HOME, READ], "f", {"home": "kernel", "data": "fuse"}, PEERS)
    assert home == {
        "name": "home",
        "path": "/home",
        "what": "node@f.cephfs=/home",
        "fstype": "ceph",
        "write": True,
        "peers": ["dgx-02"],
    }
    # No peer writes to what is read only, and it has the root of its file system.
    assert (data["fstype"], data["write"], data["peers"]) == ("fuse.ceph-fuse", False, [])
    assert data["what"] == "node@f.d=/"
    assert set(home) <= set(MOUNT)


def test_how_it_is_declared_wins() -> None:
    (home,) = made([{**HOME, "canary": "read"}, {**READ, "canary": "none"}], "f", {}, PEERS)
    assert (home["write"], home["peers"]) == (False, [])
    # Nothing is known of the client: it may be either.
    assert home["fstype"] == "ceph,fuse.ceph-fuse"
    assert made([{**READ, "canary": "write"}], "f")[0]["write"]
