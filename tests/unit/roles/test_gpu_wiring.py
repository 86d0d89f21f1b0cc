# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What install_gpu_stack gives to its roles, computed by Ansible from a node's plan."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.baremetal.dgx.plugins.module_utils._profiles_built_in import BUILT_IN

ROOT = Path(__file__).resolve().parents[3]
NAMES = (
    "__gpu_roles", "nvidia_driver_gpu", "nvidia_driver_nvswitches", "nvidia_driver_gpudirect",
    "dcgm_gpus",
)  # fmt: skip
FABRIC = {"cluster_fabric": {"topology": "basepod"}}
NONE = {
    "nvidia_driver_source": "none", "dcgm_source": "none", "nvidia_container_toolkit_source": "none"
}  # fmt: skip
HOSTS: dict[str, dict[str, Any]] = {
    "dgx-01": FABRIC,
    "dgx-02": {},
    "dgx-03": {**FABRIC, "infiniband_gpudirect": "peermem", "nvidia_driver_source": "none"},
    "dgx-04": NONE,
    "cpu-01": FABRIC,
}


def test_values_of_each_node(tmp_path: Path) -> None:
    nodes = tmp_path / ".dgx/plan/nodes"
    nodes.mkdir(parents=True)
    for host in HOSTS:
        profile = BUILT_IN["dgx_h100"] if host.startswith("dgx") else {"cpu": {}}
        text = json.dumps({"profile": "x", "profile_data": profile})
        (nodes / f"{host}.json").write_text(text)
    group = {name: values for name, values in HOSTS.items() if name.startswith("dgx")}
    other = {name: values for name, values in HOSTS.items() if name not in group}
    inventory = {"gpu_nodes": {"hosts": group}, "cpu_nodes": {"hosts": other}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
    play = {
        "hosts": "all",
        "gather_facts": False,
        "connection": "local",
        "vars_files": [str(ROOT / "playbooks/vars/gpu.yml")],
        "tasks": [
            {
                "ansible.builtin.copy": {
                    "content": "{{ {%s} | to_json }}" % ", ".join(f"'{n}': {n}" for n in NAMES),
                    "dest": f"{tmp_path}/{{{{ inventory_hostname }}}}.out",
                    "mode": "0600",
                }
            }
        ],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        f"--inventory={tmp_path / 'hosts.yml'}",
        f"--extra-vars=ansible_python_interpreter={sys.executable}",
        str(tmp_path / "play.yml"),
    ]
    environment = {**os.environ, "ANSIBLE_HOME": str(tmp_path / "home"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {host: json.loads((tmp_path / f"{host}.out").read_text()) for host in HOSTS}
    roles = ["nvidia_driver", "dcgm", "nvidia_container_toolkit"]
    assert [found["dgx-01"][name] for name in NAMES] == [roles, "h100", 4, "dmabuf", 8]
    assert [found["dgx-02"][name] for name in NAMES] == [roles, "h100", 4, "", 8]
    assert [found["dgx-03"][name] for name in NAMES] == [roles[1:], "h100", 4, "", 8]
    assert found["dgx-04"]["__gpu_roles"] == []
    assert [found["cpu-01"][name] for name in NAMES] == [[], "", 0, "dmabuf", 0]
