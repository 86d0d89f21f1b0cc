# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan gives to the roles of install_gpu_stack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from wiring import Wiring, example, trusted_tree, write

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
ROLES = ["nvidia_driver", "dcgm", "nvidia_container_toolkit"]
NAMES = ("nvidia_driver_gpu", "nvidia_driver_nvswitches", "nvidia_driver_gpudirect", "dcgm_gpus")
NONE = {f"{role}_source": "none" for role in ROLES}
HOSTS: dict[str, dict[str, Any]] = {
    "dgx-02": {},
    "dgx-03": {"infiniband_gpudirect": "peermem", "nvidia_driver_source": "none"},
    "dgx-04": NONE,
}


@pytest.mark.parametrize("fabric", [True, False])
def test_values_of_each_node(tmp_path: Path, fabric: bool) -> None:
    inventory = example(tmp_path, "core_12")
    (inventory / "group_vars/gpu_nodes/gpu.yml").unlink()
    for host, message in HOSTS.items():
        write(inventory, f"host_vars/{host}.yml", message)
    hosts = yaml.safe_load((inventory / "hosts.yml").read_text())
    hosts["cluster"]["children"]["cpu_nodes"] = {"hosts": {"cpu-01": None}}
    if not fabric:
        del hosts["cluster"]["children"]["subnet_managers"]
        manager = {"infiniband_network_manager": "none"}
        write(inventory, "group_vars/gpu_nodes/infiniband.yml", manager)
    (inventory / "hosts.yml").write_text(yaml.safe_dump(hosts, sort_keys=False))
    cpu = {"sockets": 2, "cores_per_socket": 32, "threads_per_core": 2, "numa_nodes": 2}
    cluster = yaml.safe_load((inventory / "group_vars/all/cluster.yml").read_text())
    cluster["cluster_profiles"] = {"plain": {"cpu": cpu, "real_memory_mb": 500000}}
    if not fabric:
        del cluster["cluster_fabric"]
    write(inventory, "group_vars/all/cluster.yml", cluster)
    node = {"node_profile": "plain", "node_address": {"management": "10.1.0.200"}}
    write(inventory, "host_vars/cpu-01.yml", node)
    wired = Wiring(inventory)
    found = {host: wired.of(host) for host in (*HOSTS, "cpu-01")}
    result = {
        host: [[role for role in values["__cluster_roles"] if role in ROLES]]
        + [values[name] for name in NAMES]
        for host, values in found.items()
    }
    assert result["dgx-02"] == [ROLES, "h100", 4, "auto" if fabric else "", 8]
    assert result["dgx-03"] == [ROLES[1:], "h100", 4, "peermem" if fabric else "", 8]
    assert result["dgx-04"][0] == []
    assert result["cpu-01"] == [[], "", 0, "", 0]


def test_the_driver_is_built_after_what_nvidia_peermem_is_built_against() -> None:
    """Of the two that bring kernel modules, the fabric's comes first (ib_core of DOCA-OFED)."""
    for name in ("site", "add_nodes"):
        plays = yaml.safe_load((PLAYBOOKS / f"{name}.yml").read_text())
        order = [play["ansible.builtin.import_playbook"] for play in plays]
        assert order.index("configure_fabric.yml") < order.index("install_gpu_stack.yml")


def test_groups_of_nodes_count_whole_gpus_and_leave_out_divided_nodes(tmp_path: Path) -> None:
    """In the example each A100 node has seven instances beside seven whole GPUs."""
    plan = Wiring(example(tmp_path, "mixed")).plan
    task = yaml.safe_load((PLAYBOOKS / "tasks/group_tests.yml").read_text())[0]
    asked = {name: task["baremetal.dgx.nccl_groups"][name] for name in ("divided", "gpus")}
    variables = {**trusted_tree(task["vars"]), "__group_tests_plan": plan}
    found = Templar(DataLoader(), variables).template(trusted_tree(asked))
    a100 = [node["name"] for node in plan["nodes"] if "a100" in (node["profile"] or "")]
    assert a100
    assert found["divided"] == a100
    whole = {name: count for name, count in found["gpus"].items() if name not in a100}
    profiles = {node["name"]: plan["profiles"].get(node["profile"]) for node in plan["nodes"]}
    assert whole
    assert whole == {name: profiles[name]["gpus"]["count"] for name in whole}
