# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What configure_health and configure_scheduler give to their roles, from an example inventory."""

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
NAMES = ("slurm_controller_health_check", "node_health_profile", "node_health_rails")


def given(folder: Path, settings: dict[str, Any] | None) -> dict[str, Any]:
    """What a node of core_12 is told; `settings` takes the place of its node_health.yml."""
    inventory = folder / "inventory"
    shutil.copytree(ROOT / "inventories/core_12", inventory)
    if settings is not None:
        path = inventory / "group_vars/all/node_health.yml"
        path.write_text(yaml.safe_dump(settings))
    shown = ", ".join(f"'{name}': {name}" for name in NAMES)
    task = {
        "ansible.builtin.copy": {
            "content": "{{ {%s} | to_json }}" % shown,
            "dest": str(folder / "out.json"),
            "mode": "0600",
        }
    }
    play = {
        "hosts": "dgx-07",
        "gather_facts": False,
        "connection": "local",
        "vars_files": [
            str(ROOT / f"playbooks/vars/{name}.yml") for name in ("slurm", "fabric", "health")
        ],
        "tasks": [task],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    for book in (ROOT / "playbooks/check_inventory.yml", folder / "play.yml"):
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
            cwd=folder,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "out.json").read_text())  # type: ignore[no-any-return]


def test_an_example_watches_its_nodes(tmp_path: Path) -> None:
    values = given(tmp_path, None)
    program = "/usr/local/libexec/baremetal-dgx/node-health-slurm"
    assert values["slurm_controller_health_check"] == {"program": program}
    assert values["node_health_profile"]["gpus"]["count"] == 8
    assert len(values["node_health_rails"]) == 8
    assert values["node_health_rails"][7] == {
        "rail": 7, "rate_gbps": 400, "pci": "0000:dc:00.0", "pcie_generation": 5, "pcie_width": 16,
        "link_layer": "InfiniBand",
    }  # fmt: skip


@pytest.mark.parametrize("settings", [{"node_health_enabled": False}, {}])
def test_slurm_is_as_before_where_it_is_off(tmp_path: Path, settings: dict[str, Any]) -> None:
    assert given(tmp_path, settings)["slurm_controller_health_check"] == {}


def test_a_program_of_the_site_wins(tmp_path: Path) -> None:
    own = {"program": "/usr/sbin/nhc", "interval_s": 600}
    settings = {"node_health_enabled": True, "slurm_controller_health_check": own}
    assert given(tmp_path, settings)["slurm_controller_health_check"] == own
