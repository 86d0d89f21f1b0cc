# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that is declared absent gets no part that the others would wait for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from wiring import Wiring, example, write

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.subject import fabric_host

ABSENT = {"node_state": "absent"}
CONTAINERS = {"enroot_source": "packages", "pyxis_source": "preinstalled"}


def wiring(folder: Path, hosts: dict[str, Any], variables: dict[str, Any] | None = None) -> Wiring:
    """core_12 with these hosts in groups, and variables for all."""
    inventory = example(folder, "core_12")
    path = inventory / "hosts.yml"
    data = yaml.safe_load(path.read_text())
    for group, members in hosts.items():
        data["cluster"]["children"][group] = {"hosts": members}
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    write(inventory, "group_vars/all/zz_own.yml", variables or {})
    return Wiring(inventory)


def test_images_are_imported_and_jobs_tried_on_hosts_that_are_there(tmp_path: Path) -> None:
    two = {"login-01": ABSENT, "login-02": None}
    nodes = {"dgx-01": ABSENT, "dgx-02": None}
    given = wiring(tmp_path / "logins", {"login_nodes": two}, CONTAINERS).of("dgx-02")
    assert (given["enroot_importer"], given["pyxis_submit_host"]) == ("login-02", "login-02")
    none = {"login_nodes": {"login-01": ABSENT}, "gpu_nodes": nodes}
    given = wiring(tmp_path / "none", none, CONTAINERS).of("dgx-02")
    assert (given["enroot_importer"], given["pyxis_submit_host"]) == ("dgx-02", "head-01")


def test_one_host_that_is_there_sweeps_the_fabric(tmp_path: Path) -> None:
    """The same as validate_fabric asks, and no manager is expected that was retired."""
    here = {"node_address": {"management": "10.1.0.31"}}
    managers = {"sm-01": {**ABSENT, "subnet_manager_provider": "ufm"}, "sm-02": here}
    managers["sm-03"] = {"node_address": {"management": "10.1.0.32"}}
    wired = wiring(tmp_path, {"subnet_managers": managers}, {"fabric_exporter_enabled": True})
    present = [node["name"] for node in wired.plan["nodes"] if node["state"] == "present"]
    given = {host: wired.of(host) for host in present}
    sweeping = [host for host, values in given.items() if values["fabric_exporter_enabled"]]
    assert sweeping == [fabric_host(wired.plan, present)] == ["sm-02"]
    for name in ("subnet_managers", "other_hosts"):
        assert given["sm-02"][f"fabric_exporter_{name}"] == ["sm-02", "sm-03"]
    assert given["sm-02"]["subnet_manager_hosts"] == ["sm-02", "sm-03"]
    assert given["dgx-01"]["__fabric_subnet_managers"] == ["sm-02", "sm-03"]
    assert given["dgx-01"]["__fabric_sm_provider"] == "opensm"


def test_rails_are_those_of_the_nodes_that_are_there(tmp_path: Path) -> None:
    bare = {"rails": [], "gpus": {"count": 4, "type": "a6000", "memory_mib": 49140}}
    bare["cpu"] = {"sockets": 1, "cores_per_socket": 32, "threads_per_core": 2, "numa_nodes": 1}
    profiles = {"cluster_profiles": {"bare": {**bare, "real_memory_mb": 250000}}}
    own = {"node_profile": "bare", "node_number": 40}
    found = []
    for state in ("absent", "present"):
        nodes = {"dgx-01": None, "old-01": {**own, "node_state": state}}
        found.append(wiring(tmp_path / state, {"gpu_nodes": nodes}, profiles).of("dgx-01"))
    absent, present = found
    devices = ",".join(f"mlx5_rail{rail}:1" for rail in range(8))
    assert absent["login_environment_environment"]["UCX_NET_DEVICES"] == devices
    assert absent["login_environment_environment"]["NCCL_IB_HCA"] == f"={devices}"
    assert absent["__gate_without_rails"] == []
    assert "NCCL_IB_HCA" not in present["login_environment_environment"]
    assert present["__gate_without_rails"] == ["old-01"]
