# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.canary import (
    canary_of,
    canary_peers,
)

HOME = {"name": "home", "mountpoint": "/home"}
READ = {"name": "data", "mountpoint": "/data", "read_only": True}


def test_how_a_mount_is_tried() -> None:
    assert canary_of(HOME) == "write"
    assert canary_of(READ) == "read"
    assert canary_of({**READ, "canary": "none"}) == "none"


def test_the_next_three_of_the_run_that_write() -> None:
    hosts = [f"dgx-0{number}" for number in range(1, 7)]
    mounts = {host: [HOME, READ] for host in hosts} | {"dgx-01": [READ]}
    peers = canary_peers("dgx-05", hosts, mounts["dgx-05"], lambda host: mounts[host])
    assert peers == {"home": ["dgx-06", "dgx-02"], "data": []}


def test_one_host_alone_has_no_peers() -> None:
    assert canary_peers("dgx-01", ["dgx-01"], [HOME], lambda _host: [HOME]) == {"home": []}
