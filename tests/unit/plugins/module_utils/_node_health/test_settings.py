# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of a node's health program."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import PASS
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health.judge_local import (
    judge_mounted,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health.settings import (
    Settings,
    settings_from_data,
)

MOUNTINFO = """\
29 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
61 29 0:52 / /data/sets rw,relatime shared:99 - ceph 10.0.0.9:6789:/ rw
"""


def settings(**more: object) -> Settings:
    return settings_from_data({"version": 1, "node": "dgx-01", **more})


@pytest.mark.parametrize("path", ["/data/sets", "/data/sets/", "//data//sets", "/data/./sets//"])
def test_a_path_is_found_however_it_is_written(path: str) -> None:
    found = settings(mounts=[{"path": path, "fstype": "ceph"}], disks=[{"path": path}])
    assert found.mounts[0].path == found.disks[0].path == "/data/sets"
    assert judge_mounted("dgx-01", found.mounts[0], MOUNTINFO).status == PASS


@pytest.mark.parametrize("path", ["/", "//", "/./"])
def test_the_root_is_a_path(path: str) -> None:
    assert settings(mounts=[{"path": path}]).mounts[0].path == "/"


@pytest.mark.parametrize("name", ["mounts", "disks"])
@pytest.mark.parametrize("one", [{}, {"path": ""}, {"path": "data"}])
def test_a_path_is_absolute(name: str, one: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=rf"^{name}\.path: must be absolute$"):
        settings(**{name: [one]})
