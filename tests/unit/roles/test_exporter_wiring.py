# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What configure_exporters gives to its roles, from an example inventory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
ROLES = ("node_exporter", "dcgm_exporter", "slurm_exporter", "fabric_exporter")
SWITCHED_ON = {f"{role}_enabled": True for role in ROLES}


def ansible(folder: Path, inventory: Path, *books: Path) -> str:
    out = ""
    for book in books:
        done = subprocess.run(
            [
                str(Path(sys.executable).with_name("ansible-playbook")),
                f"--inventory={inventory}",
                f"--extra-vars=ansible_python_interpreter={sys.executable}",
                str(book),
            ],
            env={
                **os.environ,
                "ANSIBLE_HOME": str(folder / "home"),
                "ANSIBLE_NOCOLOR": "1",
                "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache/collections"),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        out = done.stdout + done.stderr
        assert done.returncode == 0, out
    return out


def given(
    folder: Path, hosts: dict[str, tuple[str, ...]], settings: dict[str, Any]
) -> dict[str, Any]:
    """Host -> what it is told of these names, on core_12 with these group_vars."""
    inventory = folder / "inventory"
    shutil.copytree(ROOT / "inventories/core_12", inventory)
    for old in inventory.glob("group_vars/**/*export*.yml"):
        old.unlink()
    (inventory / "group_vars/all/zz_exporters.yml").write_text(yaml.safe_dump(settings))
    plays = []
    for host, names in hosts.items():
        shown = ", ".join(f"'{name}': {name}" for name in names)
        plays.append(
            {
                "hosts": host,
                "gather_facts": False,
                "connection": "local",
                "vars_files": [str(ROOT / "playbooks/vars/exporters.yml")],
                # As in the playbook: defaults of its roles must not pass for the inventory.
                "roles": [f"baremetal.dgx.{role}" for role in ROLES],
                "pre_tasks": [
                    {
                        "ansible.builtin.copy": {
                            "content": "{{ {%s} | to_json }}" % shown,
                            "dest": str(folder / f"{host}.json"),
                            "mode": "0600",
                        }
                    },
                    {"ansible.builtin.meta": "end_host"},
                ],
            }
        )
    (folder / "play.yml").write_text(yaml.safe_dump(plays))
    ansible(folder, inventory, ROOT / "playbooks/check_inventory.yml", folder / "play.yml")
    return {host: json.loads((folder / f"{host}.json").read_text()) for host in hosts}


NODE = (
    "__exporters_roles",
    "node_exporter_address",
    "dcgm_exporter_address",
    "dcgm_exporter_host_engine",
)
HEAD = (
    "__exporters_roles", "node_exporter_address", "slurm_exporter_accounting",
    "fabric_exporter_plan_file", "fabric_exporter_subnet_managers",
)  # fmt: skip


@pytest.mark.slow
def test_addresses_are_those_of_the_plan(tmp_path: Path) -> None:
    head, other = "head-01", "head-02"
    found = given(
        tmp_path,
        {
            "dgx-07": NODE,
            head: (*HEAD, "fabric_exporter_enabled"),
            other: (*HEAD, "fabric_exporter_enabled"),
        },
        {**SWITCHED_ON, "dcgm_port": 5556},
    )
    plan = json.loads((tmp_path / "inventory/.dgx/plan/nodes/dgx-07.json").read_text())
    address = plan["addresses"]["management"]
    assert found["dgx-07"] == {
        "__exporters_roles": ["node_exporter", "dcgm_exporter"],
        "node_exporter_address": address,
        "dcgm_exporter_address": address,
        "dcgm_exporter_host_engine": "127.0.0.1:5556",
    }
    assert found[head]["fabric_exporter_enabled"] is True
    assert "fabric_exporter" in found[head]["__exporters_roles"]
    assert Path(found[head]["fabric_exporter_plan_file"]).is_file()
    assert found[head]["fabric_exporter_subnet_managers"] == [head, other]
    # One host sweeps; the others lose what they may have had.
    assert found[other]["fabric_exporter_enabled"] is False


@pytest.mark.slow
def test_the_inventory_is_asked_first_and_silence_is_left_alone(tmp_path: Path) -> None:
    settings = {"dcgm_exporter_enabled": False, "node_exporter_address": "0.0.0.0"}
    found = given(tmp_path, {"dgx-07": NODE}, settings)["dgx-07"]
    assert found["__exporters_roles"] == ["dcgm_exporter"]
    assert found["node_exporter_address"] == "0.0.0.0"
