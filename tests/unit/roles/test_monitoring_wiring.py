# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan gives to the roles of configure_monitoring, from an example inventory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from wiring import Wiring, example, write

ROLES = ("prometheus", "alertmanager", "grafana")
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


def wiring(folder: Path, everybody: dict[str, Any], monitoring: dict[str, Any]) -> Wiring:
    """core_12 with these variables, head-01 made a host of monitoring_nodes too."""
    inventory = example(folder, "core_12")
    hosts = yaml.safe_load((inventory / "hosts.yml").read_text())
    hosts["cluster"]["children"]["monitoring_nodes"] = {"hosts": {"head-01": None}}
    hosts["cluster"]["children"]["gpu_nodes"]["hosts"]["dgx-12"]["node_state"] = "absent"
    (inventory / "hosts.yml").write_text(yaml.safe_dump(hosts, sort_keys=False))
    (inventory / "group_vars/all/exporters.yml").unlink()
    write(inventory, "group_vars/all/monitoring.yml", everybody)
    write(inventory, "group_vars/monitoring_nodes/monitoring.yml", monitoring)
    return Wiring(inventory)


def roles_of(found: dict[str, Any]) -> list[str]:
    return [role for role in found["__cluster_roles"] if role in ROLES]


def test_targets_are_those_of_the_plan(tmp_path: Path) -> None:
    on = {"prometheus_enabled": True, "alertmanager_enabled": True}
    found = wiring(tmp_path, EVERYBODY, on).of("head-01")
    assert roles_of(found) == ["prometheus", "alertmanager"]
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


def test_collectors_of_a_host_that_had_another_part_are_switched_off(tmp_path: Path) -> None:
    """They would publish what they find by an old plan, and no newer answer would end an alert."""
    switches = ("slurm_exporter_enabled", "fabric_exporter_enabled")
    found = wiring(tmp_path, dict.fromkeys(switches, True), {})
    login, head, node = (found.of(name) for name in ("login-01", "head-01", "dgx-01"))
    roles = {"slurm_exporter", "fabric_exporter"}
    assert roles <= set(login["__cluster_roles"])
    assert [login[name] for name in switches] == [False, False]
    assert (head.get(switches[0]), head[switches[1]]) == (None, True)
    assert not roles & set(node["__cluster_roles"])


def test_a_password_goes_only_to_who_asks(tmp_path: Path) -> None:
    secured = {key: value for key, value in SECURED.items() if not key.startswith("prometheus_")}
    own = {key: value for key, value in SECURED.items() if key.startswith("prometheus_")}
    found = wiring(tmp_path, {**EVERYBODY, **secured}, {"prometheus_enabled": True, **own}).of(
        "head-01"
    )
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


def test_collectors_are_expected_where_the_plan_has_them(tmp_path: Path) -> None:
    """A file that is gone has no sample, and nothing else tells it from one that never was."""
    on = {"prometheus_enabled": True}
    everybody = {**EVERYBODY, "fabric_exporter_enabled": True, "backup_repository": "sftp:b@nas:/x"}
    found = wiring(tmp_path / "all", everybody, on)
    groups = found.plan["cluster"]["groups"]
    expected = {(one, "slurm") for one in groups["slurm_controllers"]}
    expected |= {
        (one, "backup") for one in (*groups["slurm_controllers"], groups["slurm_databases"][0])
    }
    expected.add((groups["subnet_managers"][0], "fabric"))
    assert len(expected) >= 4

    def collectors(found: Wiring) -> set[tuple[str, str]]:
        listed = found.of("head-01")["prometheus_collectors"]
        return {(one["instance"], one["collector"]) for one in listed}

    assert collectors(found) == expected
    assert "prometheus_collectors" not in found.of("head-02")
    off = {"slurm_exporter_enabled": False, "fabric_exporter_enabled": False}
    assert collectors(wiring(tmp_path / "off", {**EVERYBODY, **off}, on)) == set()


def test_the_certificates_of_a_host_are_watched(tmp_path: Path) -> None:
    tls = {"certificate": "C", "key": "K"}
    everybody = {
        **EVERYBODY,
        "node_exporter_tls": tls,
        "dcgm_exporter_tls": tls,
        "slurm_rest_enabled": True,
        "slurm_rest_tls": tls,
        "grafana_tls": tls,
    }
    own = {"grafana_enabled": True, "prometheus_enabled": True, "alertmanager_tls": tls}
    found = wiring(tmp_path, everybody, own)
    watched = {
        host: found.of(host).get("node_exporter_certificates")
        for host in ("head-01", "head-02", "login-01", "dgx-01")
    }
    assert watched == {
        "head-01": dict.fromkeys(("node_exporter", "grafana", "slurm_rest"), "C"),
        "head-02": dict.fromkeys(("node_exporter", "slurm_rest"), "C"),
        "login-01": {"node_exporter": "C"},
        "dgx-01": dict.fromkeys(("node_exporter", "dcgm_exporter"), "C"),
    }
    plain = wiring(tmp_path / "plain", EVERYBODY, own)
    assert "node_exporter_certificates" not in plain.of("login-01")


def test_of_what_nothing_is_said_is_left_alone(tmp_path: Path) -> None:
    assert roles_of(wiring(tmp_path, {}, {}).of("head-01")) == []


def test_the_inventory_is_asked_first(tmp_path: Path) -> None:
    result = {"prometheus_enabled": True, "prometheus_alertmanagers": {"targets": ["a:1"]}}
    assert "prometheus_alertmanagers" not in wiring(tmp_path, EVERYBODY, result).of("head-01")


def test_what_only_a_host_knows_is_a_mistake_where_the_plan_needs_it(tmp_path: Path) -> None:
    address = {"node_exporter_address": "{{ ansible_facts.default_ipv4.address }}"}
    found = wiring(tmp_path, {**EVERYBODY, **address}, {"prometheus_enabled": True})
    assert found.texts == {}
    (problem,) = found.problems
    assert problem.startswith("all.node_exporter_address: depends on the fact")
    assert problem.endswith("before the plan is made; write the value itself")
