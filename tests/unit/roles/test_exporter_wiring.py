# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan gives to the roles of configure_exporters, from an example inventory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wiring import Wiring, example, write

ROLES = ("node_exporter", "dcgm_exporter", "slurm_exporter", "fabric_exporter")
SWITCHED_ON = {f"{role}_enabled": True for role in ROLES}


def wiring(folder: Path, settings: dict[str, Any]) -> Wiring:
    """core_12 with these group_vars."""
    inventory = example(folder, "core_12")
    for old in inventory.glob("group_vars/**/*export*.yml"):
        old.unlink()
    write(inventory, "group_vars/all/zz_exporters.yml", settings)
    return Wiring(inventory)


def roles_of(found: dict[str, Any]) -> list[str]:
    return [role for role in found["__cluster_roles"] if role in ROLES]


def test_addresses_are_those_of_the_plan(tmp_path: Path) -> None:
    head, other = "head-01", "head-02"
    settings = {**SWITCHED_ON, "dcgm_port": 5556, "subnet_manager_provider": "ufm"}
    wired = wiring(tmp_path, settings)
    found = {host: wired.of(host) for host in ("dgx-07", head, other)}
    (node,) = (node for node in wired.plan["nodes"] if node["name"] == "dgx-07")
    address = node["addresses"]["management"]
    assert roles_of(found["dgx-07"]) == ["node_exporter", "dcgm_exporter"]
    assert found["dgx-07"]["node_exporter_address"] == address
    assert found["dgx-07"]["dcgm_exporter_address"] == address
    assert found["dgx-07"]["dcgm_exporter_host_engine"] == "127.0.0.1:5556"
    assert found[head]["fabric_exporter_enabled"] is True
    assert "fabric_exporter" in roles_of(found[head])
    assert found[head]["fabric_exporter_plan_file"] == f"{wired.state}/plan/fabric/cables.json"
    assert found[head]["fabric_exporter_subnet_managers"] == [head, other]
    # Which are attached, and run none.
    assert found[head]["fabric_exporter_subnet_manager_provider"] == "ufm"
    # One host sweeps; the others lose what they may have had.
    assert found[other]["fabric_exporter_enabled"] is False


def test_jobs_get_no_gpu_where_slurm_numbers_instances(tmp_path: Path) -> None:
    """With MIG the number that Slurm gives a job is not that of a GPU."""
    inventory = example(tmp_path, "core_12")
    mig = {"nvidia_driver_mig": [{"gpus": [7], "profiles": ["3g.40gb", "3g.40gb"]}]}
    write(inventory, "host_vars/dgx-07/mig.yml", mig)
    wired = Wiring(inventory)
    assert wired.of("dgx-07")["dcgm_exporter_job_mapping"] is False
    assert "dcgm_exporter_job_mapping" not in wired.of("dgx-06")


def test_the_inventory_is_asked_first_and_silence_is_left_alone(tmp_path: Path) -> None:
    settings = {"dcgm_exporter_enabled": False, "node_exporter_address": "0.0.0.0"}
    found = wiring(tmp_path, settings).of("dgx-07")
    assert roles_of(found) == ["dcgm_exporter"]
    # The plan writes none, so that the inventory's own value is the role's.
    assert "node_exporter_address" not in found
