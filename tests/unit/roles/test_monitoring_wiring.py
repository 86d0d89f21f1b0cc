# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What configure_monitoring gives to its roles, from an example inventory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
SHOWN = (
    "prometheus_jobs", "prometheus_alertmanagers", "prometheus_external_labels",
    "grafana_prometheus", "__monitoring_roles",
)  # fmt: skip
EVERYBODY = {
    "node_exporter_enabled": True,
    "dcgm_exporter_enabled": True,
    "slurm_exporter_enabled": True,
    "slurm_exporter_native": True,
}
SECURED = {
    "node_exporter_tls": {"certificate": "C", "key": "K"},
    "node_exporter_users": {"prometheus": "$2y$10$x"},
    "prometheus_tls": {"certificate": "C", "key": "K"},
    "prometheus_users": {"prometheus": "$2y$10$x"},
    "prometheus_address": "0.0.0.0",
    "monitoring_access": {"username": "prometheus", "password": "p", "ca": "CA"},
    "monitoring_ceph": ["stor-01:9283"],
    "monitoring_jobs": [{"name": "ipmi", "targets": [{"address": "bmc:9290"}]}],
    "node_exporter_port": 9101,
}


def run(folder: Path, inventory: Path, book: Path) -> None:
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-playbook")), f"--inventory={inventory}",
            f"--extra-vars=ansible_python_interpreter={sys.executable}", str(book),
        ],
        env={**os.environ, "ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_NOCOLOR": "1",
             "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache/collections")},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def given(folder: Path, everybody: dict[str, Any], monitoring: dict[str, Any]) -> dict[str, Any]:
    """What head-01 of core_12 is told, made a host of monitoring_nodes too."""
    inventory = folder / "inventory"
    shutil.copytree(ROOT / "inventories/core_12", inventory)
    hosts = yaml.safe_load((inventory / "hosts.yml").read_text())
    hosts["cluster"]["children"]["monitoring_nodes"] = {"hosts": {"head-01": None}}
    hosts["cluster"]["children"]["gpu_nodes"]["hosts"]["dgx-12"]["node_state"] = "absent"
    (inventory / "hosts.yml").write_text(yaml.safe_dump(hosts, sort_keys=False))
    (inventory / "group_vars/all/monitoring.yml").write_text(yaml.safe_dump(everybody))
    own = inventory / "group_vars/monitoring_nodes/monitoring.yml"
    own.parent.mkdir(exist_ok=True)
    own.write_text(yaml.safe_dump(monitoring))
    play = yaml.safe_load((ROOT / "playbooks/configure_monitoring.yml").read_text())[1]
    shown = ", ".join(f"'{name}': {name}" for name in SHOWN)
    content = "{{ {%s} | to_json }}" % shown
    task = {"content": content, "dest": str(folder / "out.json"), "mode": "0600"}
    play |= {
        "hosts": "head-01",
        "connection": "local",
        "roles": [],
        "vars_files": [str(ROOT / "playbooks/vars/monitoring.yml")],
        "tasks": [{"ansible.builtin.copy": task}],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    run(folder, inventory, ROOT / "playbooks/check_inventory.yml")
    run(folder, inventory, folder / "play.yml")
    out = folder / "out.json"
    found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    return found


def test_targets_are_those_of_the_plan(tmp_path: Path) -> None:
    on = {"prometheus_enabled": True, "alertmanager_enabled": True}
    found = given(tmp_path, EVERYBODY, on)
    assert found["__monitoring_roles"] == ["prometheus", "alertmanager"]
    jobs = {job["name"]: job for job in found["prometheus_jobs"]}
    names = {
        name: [one["labels"]["instance"] for one in job["targets"]] for name, job in jobs.items()
    }
    nodes = [f"dgx-{number:02}" for number in range(1, 12)]
    assert names["dcgm"] == nodes
    assert set(names["node"]) == {*nodes, "head-01", "head-02", "login-01", "login-02"}
    assert names["slurm-nodes"] == ["head-01", "head-02"]
    assert jobs["slurm-nodes"]["path"] == "/metrics/nodes"
    assert names["prometheus"] == names["alertmanager"] == ["head-01"]
    assert jobs["prometheus"]["targets"][0]["address"] == "127.0.0.1:9090"
    assert all("username" not in job for job in jobs.values())
    assert found["prometheus_alertmanagers"]["targets"] == ["127.0.0.1:9093"]
    assert found["grafana_prometheus"]["url"] == "http://127.0.0.1:9090"
    assert found["prometheus_external_labels"]["cluster"]


def test_a_password_goes_only_to_who_asks(tmp_path: Path) -> None:
    secured = {key: value for key, value in SECURED.items() if not key.startswith("prometheus_")}
    own = {key: value for key, value in SECURED.items() if key.startswith("prometheus_")}
    found = given(tmp_path, {**EVERYBODY, **secured}, {"prometheus_enabled": True, **own})
    jobs = {job["name"]: job for job in found["prometheus_jobs"]}
    assert jobs["node"]["password"] == "p"
    assert jobs["node"]["ca"] == "CA"
    assert {one["labels"]["__scheme__"] for one in jobs["node"]["targets"]} == {"https"}
    assert all(one["address"].endswith(":9101") for one in jobs["node"]["targets"])
    assert "password" not in jobs["dcgm"]
    assert "__scheme__" not in jobs["dcgm"]["targets"][0]["labels"]
    assert jobs["ceph"]["honor_labels"] is True
    assert jobs["ceph"]["targets"][0]["labels"]["instance"] == "stor-01"
    assert jobs["ipmi"]["targets"] == [{"address": "bmc:9290"}]
    assert found["grafana_prometheus"]["url"].startswith("https://")
    assert found["grafana_prometheus"]["username"] == "prometheus"
    assert found["prometheus_alertmanagers"]["targets"] == []


def test_of_what_nothing_is_said_is_left_alone(tmp_path: Path) -> None:
    assert given(tmp_path, {}, {}) == {}
