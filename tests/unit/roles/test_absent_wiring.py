# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that is declared absent gets no part that the others would wait for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from wiring import Wiring, example, write

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.subject import fabric_host

ABSENT = {"node_state": "absent"}
IMAGES = [{"name": "a.sqsh", "uri": "docker://a"}]
CONTAINERS = {
    "enroot_source": "packages",
    "enroot_images": IMAGES,
    "enroot_images_dir": "/cephfs/images",
    "pyxis_source": "preinstalled",
}


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


@pytest.mark.parametrize(
    ("login", "importer"),
    [
        pytest.param({}, "login-01", id="the first login host"),
        pytest.param({"enroot_source": "none"}, "dgx-01", id="no enroot there"),
        pytest.param({"enroot_state": "absent"}, "dgx-01", id="enroot is removed there"),
        pytest.param({"enroot_images": []}, "dgx-01", id="no images there"),
        pytest.param({"enroot_images": IMAGES * 2}, "dgx-01", id="other images there"),
    ],
)
def test_images_are_imported_by_a_host_that_has_them(
    tmp_path: Path, login: dict[str, Any], importer: str
) -> None:
    hosts = {"login_nodes": {"login-01": login}, "gpu_nodes": {"dgx-01": None, "dgx-02": None}}
    found = wiring(tmp_path, hosts, CONTAINERS)
    assert found.of("dgx-02")["enroot_importer"] == importer
    if login.get("enroot_images"):
        assert found.of("login-01")["enroot_importer"] == "login-01"


@pytest.mark.parametrize(
    ("login", "image", "own", "importer"),
    [
        ({"enroot_source": "none"}, {}, {}, "dgx-01"),
        ({"enroot_images": []}, {}, {}, "dgx-01"),
        # The plan gives no input that the site writes.
        ({}, {}, {"enroot_importer": "dgx-01"}, None),
        ({}, {"arch": "aarch64"}, {}, "login-01"),
    ],
)
def test_a_node_with_arm_needs_no_architecture_where_it_imports(
    tmp_path: Path,
    login: dict[str, Any],
    image: dict[str, str],
    own: dict[str, str],
    importer: str | None,
) -> None:
    profile = {"inherit": "dgx_h100", "gpus": {"type": "gb200"}, "real_memory_mb": 900000}
    nodes = {"dgx-01": {"node_profile": "grace"}}
    variables = {**CONTAINERS, "cluster_profiles": {"grace": profile}, **own}
    variables["enroot_images"] = [{**IMAGES[0], **image}]
    found = wiring(tmp_path, {"login_nodes": {"login-01": login}, "gpu_nodes": nodes}, variables)
    assert found.of("dgx-01").get("enroot_importer") == importer


def test_a_list_of_images_may_stay_while_enroot_is_removed(tmp_path: Path) -> None:
    """As docs/slurm.md has it, on some hosts or on all."""
    gone = {"enroot_state": "absent", "pyxis_state": "absent"}
    images = {"enroot_images": IMAGES * 2}
    logins = {"login_nodes": {"login-01": {**gone, **images}}, "gpu_nodes": {"dgx-01": None}}
    for name, hosts, more in (
        ("all", {"gpu_nodes": {"dgx-01": None}}, gone),
        ("some", logins, {"pyxis_source": "none"}),
    ):
        found = wiring(tmp_path / name, hosts, {**CONTAINERS, **more})
        assert "enroot" in found.of("dgx-01")["__cluster_roles"]


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
