# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan gives to configure_health and configure_scheduler, from an example inventory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from wiring import Wiring, example, write

CHECK = "slurm_controller_health_check"
# That of core_12.
FSID = "3f1d8a52-8c4e-4b7a-9f46-0d5f6c2b7e19"


def wiring(folder: Path, settings: dict[str, Any] | None) -> Wiring:
    """core_12; `settings` takes the place of its node_health.yml."""
    inventory = example(folder, "core_12")
    if settings is not None:
        write(inventory, "group_vars/all/node_health.yml", settings)
    return Wiring(inventory)


def test_an_example_watches_its_nodes(tmp_path: Path) -> None:
    wired = wiring(tmp_path, None)
    program = "/usr/local/libexec/baremetal-dgx/node-health-slurm"
    assert wired.of("head-01")[CHECK] == {"program": program}
    values = wired.of("dgx-07")
    assert values["node_health_profile"]["gpus"]["count"] == 8
    assert len(values["node_health_rails"]) == 8
    assert values["node_health_rails"][7] == {
        "rail": 7, "rate_gbps": 400, "pci": "0000:dc:00.0", "pcie_generation": 5, "pcie_width": 16,
        "link_layer": "InfiniBand",
    }  # fmt: skip
    assert "node_health" in values["__cluster_verified"]


def test_the_switch_may_stand_where_the_nodes_are(tmp_path: Path) -> None:
    def check(name: str, group: str, **more: Any) -> Any:
        inventory = example(tmp_path / name, "core_12")
        (inventory / "group_vars/all/node_health.yml").unlink()
        settings = {"node_health_enabled": True, **more}
        write(inventory, f"group_vars/{group}/node_health.yml", settings)
        return Wiring(inventory).of("head-01")[CHECK]

    program = "/usr/local/libexec/baremetal-dgx/node-health-slurm"
    assert check("on", "gpu_nodes") == {"program": program}
    resumed = {"program": program, "node_state": ["IDLE", "CYCLE"]}
    assert check("resumed", "gpu_nodes", node_health_resume=True) == resumed


@pytest.mark.parametrize("everywhere", [{}, {"node_health_enabled": True}])
def test_the_share_is_asked_of_the_nodes_that_drain_themselves(
    tmp_path: Path, everywhere: dict[str, Any]
) -> None:
    inventory = example(tmp_path, "mixed")
    write(inventory, "group_vars/all/zz_own.yml", everywhere)
    own = {"node_health_enabled": not everywhere, "node_health_share": 0.2}
    write(inventory, "group_vars/gpu_nodes/zz_own.yml", own)
    assert Wiring(inventory).of("head-01")[CHECK]


def test_what_the_inventory_mounts_is_watched(tmp_path: Path) -> None:
    shared = ("/home", "/data", "/scratch", "/images", "/checkpoints")
    own = wiring(tmp_path / "a", None)
    sources = {path: f"node@{{{{ cephfs_fsid }}}}.cephfs={path}" for path in shared}
    # What the site mounts itself, and writes, has no source in the plan.
    assert json.loads(own.texts["dgx-07"])["node_health_mounts"] == [
        *({"path": path, "source": what} for path, what in sources.items()), {"path": "/raid"},
    ]  # fmt: skip
    inventory = example(tmp_path / "b", "core_12")
    write(inventory, "group_vars/all/node_health.yml", {"node_health_enabled": True})
    scratch = {"name": "scratch", "mountpoint": "/nvme", "pci": ["ab:00.0"]}
    write(inventory, "group_vars/gpu_nodes/storage.yml", {"local_storage_volumes": [scratch]})
    found = Wiring(inventory).of("dgx-07")["node_health_mounts"]
    live = {path: f"node@{FSID}.cephfs={path}" for path in shared}
    volume = {"path": "/nvme", "source": "/dev/disk/by-label/dgx-scratch"}
    assert found == [*({"path": path, "source": what} for path, what in live.items()), volume]


def test_a_source_of_the_inventory_wins_and_a_fact_is_left_to_the_host(tmp_path: Path) -> None:
    asked = [{"path": "/home/", "source": "nas:/home"}, {"path": "/data/", "fstype": "ceph"}]
    settings = {"node_health_enabled": True, "node_health_mounts": asked}
    own, data = wiring(tmp_path / "a", settings).of("dgx-07")["node_health_mounts"]
    assert own == asked[0]
    assert data["fstype"] == "ceph"
    assert data["source"].endswith(".cephfs=/data")
    fact = "{{ ansible_facts.site_mounts }}"
    for unknown in (fact, [{"path": "/home", "fstype": fact}]):
        settings["node_health_mounts"] = unknown
        texts = wiring(tmp_path / str(len(str(unknown))), settings).texts
        assert "node_health_mounts" not in json.loads(texts["dgx-07"])


@pytest.mark.parametrize("settings", [{"node_health_enabled": False}, {}])
def test_slurm_is_as_before_where_it_is_off(tmp_path: Path, settings: dict[str, Any]) -> None:
    wired = wiring(tmp_path, settings)
    assert wired.of("head-01")[CHECK] == {}
    # What was installed once is removed if the inventory says it, and not promised.
    assert ("node_health" in wired.of("dgx-07")["__cluster_roles"]) == bool(settings)
    assert "node_health" not in wired.of("dgx-07")["__cluster_verified"]


def test_a_program_of_the_site_wins(tmp_path: Path) -> None:
    own = {"program": "/usr/sbin/nhc", "interval_s": 600}
    settings = {"node_health_enabled": True, CHECK: own}
    assert wiring(tmp_path, settings).of("head-01")[CHECK] == own
