# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What configure_fabric gives to its roles, computed by Ansible from an example inventory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
NAMES = (
    "__fabric_is_planned", "__fabric_is_ethernet", "infiniband_link_layer", "infiniband_rails",
    "infiniband_ports", "infiniband_gpus", "infiniband_addresses", "roce_rails", "roce_hardware",
    "subnet_manager_hosts", "subnet_manager_root_guids", "subnet_manager_node_names_file",
)  # fmt: skip


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """`given(inventory, host, edit)` -> the values by name; `edit` may change cluster.yml."""

    def compute(
        example: str, host: str, edit: Callable[[dict[str, Any]], None] = lambda _data: None
    ) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("wiring")
        inventory = folder / "inventory"
        shutil.copytree(ROOT / "inventories" / example, inventory)
        cluster = inventory / "group_vars/all/cluster.yml"
        data = yaml.safe_load(cluster.read_text())
        edit(data)
        cluster.write_text(yaml.safe_dump(data))
        hosts = yaml.safe_load((inventory / "hosts.yml").read_text())
        hosts["cluster"]["children"]["subnet_managers"] = {
            "hosts": {"head-02": None, "head-01": None}
        }
        (inventory / "hosts.yml").write_text(yaml.safe_dump(hosts))
        plays = [
            {
                "hosts": host,
                "gather_facts": False,
                "connection": "local",
                "vars_files": [str(ROOT / "playbooks/vars/fabric.yml")],
                "tasks": [
                    {
                        "ansible.builtin.copy": {
                            "content": "{{ {%s} | to_json }}"
                            % ", ".join(f"'{name}': {name}" for name in NAMES),
                            "dest": str(folder / "out.json"),
                            "mode": "0600",
                        }
                    }
                ],
            }
        ]
        (folder / "play.yml").write_text(yaml.safe_dump(plays))
        for play in (ROOT / "playbooks/check_inventory.yml", folder / "play.yml"):
            done = subprocess.run(
                [
                    str(Path(sys.executable).with_name("ansible-playbook")),
                    f"--inventory={inventory}",
                    f"--extra-vars=ansible_python_interpreter={sys.executable}",
                    "--extra-vars=check_inventory_hosts=localhost",
                    str(play),
                ],
                env={
                    **os.environ,
                    "ANSIBLE_HOME": str(folder / "home"),
                    "ANSIBLE_NOCOLOR": "1",
                    "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache/collections"),
                },
                capture_output=True,
                text=True,
                cwd=folder,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
        return json.loads((folder / "out.json").read_text())  # type: ignore[no-any-return]

    return compute


def test_basepod(given: Callable[..., dict[str, Any]]) -> None:
    values = given("core_12", "dgx-07")
    assert values["__fabric_is_planned"] is True
    assert values["infiniband_link_layer"] == "InfiniBand"
    assert len(values["infiniband_rails"]) == 8
    assert values["infiniband_rails"][7] == {
        "rail": 7, "rate_gbps": 400, "pci": "0000:dc:00.0", "pcie_generation": 5, "pcie_width": 16,
    }  # fmt: skip
    assert values["infiniband_ports"] == [
        {"name": "storage0", "pci": "0000:29:00.0"},
        {"name": "storage1", "pci": "0000:aa:00.0"},
    ]
    assert values["infiniband_gpus"][0] == "0000:1b:00.0"
    assert values["infiniband_addresses"][1] == {
        "port": "rail1", "address": "10.1.17.107/24", "mtu": 4092,
    }  # fmt: skip
    assert values["subnet_manager_hosts"] == ["head-01", "head-02"]
    assert values["subnet_manager_root_guids"] == []


def test_ethernet_rails_are_told_by_their_networks(given: Callable[..., dict[str, Any]]) -> None:
    def edit(data: dict[str, Any]) -> None:
        for rail in range(8):
            data["cluster_networks"][f"rail{rail}"].update(kind="ethernet", mtu=9000)
        data["cluster_fabric"]["rails"] = 8
        data["cluster_fabric"]["rate_gbps"] = 200

    values = given("core_12", "dgx-01", edit)
    assert values["__fabric_is_ethernet"] is True
    assert values["infiniband_link_layer"] == "Ethernet"
    assert values["roce_rails"] == list(range(8))
    assert values["roce_hardware"] is True
    # the slower of switch and adapter
    assert {rail["rate_gbps"] for rail in values["infiniband_rails"]} == {200}


def test_superpod_roots_are_all_spines_or_none(given: Callable[..., dict[str, Any]]) -> None:
    guids = {f"spine-{at:02d}": f"0xfc6a1c03010000{at:02x}" for at in range(1, 17)}

    def edit(data: dict[str, Any]) -> None:
        data["cluster_fabric"]["switch_guids"] = {**guids, "su1-leaf-0": "0xfc6a1c0302000001"}

    values = given("superpod_127", "dgx-001", edit)
    assert sorted(values["subnet_manager_root_guids"]) == sorted(guids.values())
    # the network called storage is that of the first storage port
    assert {item["port"] for item in values["infiniband_addresses"]} == {
        "storage0", *(f"rail{rail}" for rail in range(8)),
    }  # fmt: skip
    del guids["spine-16"]
    values = given("superpod_127", "head-01", edit)
    assert values["subnet_manager_root_guids"] == []
    # no profile, no rails
    assert values["infiniband_rails"] == values["infiniband_addresses"] == []


def test_without_a_fabric_there_is_nothing(given: Callable[..., dict[str, Any]]) -> None:
    values = given("core_12", "dgx-01", lambda data: data.update(cluster_fabric={}))
    assert values["__fabric_is_planned"] is False
    assert values["infiniband_rails"] == []
