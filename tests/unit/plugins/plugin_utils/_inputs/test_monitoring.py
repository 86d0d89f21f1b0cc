# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which exporters Prometheus asks, and at which addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import EXTRA
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.host import Site
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.monitoring import (
    asked_exporters,
    asked_monitoring,
    exporters,
    monitoring_inputs,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import (
    Inventory,
    Value,
)

PORT = "slurm_exporter_controller_port"
NODES = {"head-01": "fd00::11", "dgx-01": "fd00::21", "dgx-02": "fd00::22"}


def site(own: Mapping[str, Mapping[str, Any]] | None = None, **variables: Any) -> Site:
    """Three hosts on a network of IPv6, all with these variables; head-01 has Prometheus.

    `own` is what single hosts have besides.
    """
    groups = {"head-01": ["slurm_controllers", "monitoring_nodes"]}
    nodes = [
        {
            "name": name,
            "state": "present",
            "profile": None,
            "groups": groups.get(name, ["gpu_nodes"]),
            "addresses": {"management": address},
        }
        for name, address in NODES.items()
    ]
    cluster = {"access_network": "management", "name": "core"}
    values = {
        host: {
            name: Value(value, f"{host}.{name}")
            for name, value in {**variables, **(own or {}).get(host, {})}.items()
        }
        for host in NODES
    }
    plan = {"cluster": cluster, "nodes": nodes, "profiles": {}}
    return Site(plan, Inventory({}, (), values), {})


@pytest.mark.parametrize("on", [True, False])
def test_what_has_left_monitoring_nodes_is_switched_off(on: bool) -> None:
    """With its old plan it would go on alerting. Nodes, of which there are many, have no tasks."""
    names = [f"{name}_enabled" for name in ("prometheus", "alertmanager", "grafana")]
    hosts = site({"dgx-01": dict.fromkeys(names[1:], on)}, **{names[0]: on})
    hosts.hosts["dgx-01"].groups = frozenset({"login_nodes"})
    assert monitoring_inputs(hosts.hosts["dgx-01"]) == dict.fromkeys(names, False)
    assert monitoring_inputs(hosts.hosts["dgx-02"]) == {}
    hosts = site({"dgx-01": {}})
    hosts.hosts["dgx-01"].groups = frozenset({"login_nodes"})
    assert monitoring_inputs(hosts.hosts["dgx-01"]) == {}


def test_a_switch_of_the_command_line_reaches_no_host_of_another_group() -> None:
    """No input replaces it, so the role would install there what it is to switch off."""
    names = ("prometheus_enabled", "slurm_exporter_enabled", "fabric_exporter_enabled")
    for prefix, roles in (("", ["prometheus"]), (EXTRA, [])):
        given = {name: Value(True, f"{prefix or 'all.'}{name}") for name in names}
        plan = site().plan
        plan["cluster"] |= {
            "fabric_kind": "infiniband", "fabric": {"fabric_host": None},
            "groups": {"subnet_managers": ()},
        }  # fmt: skip
        hosts = Site(plan, Inventory({}, (), dict.fromkeys(NODES, given)), {})
        login, head = hosts.hosts["dgx-01"], hosts.hosts["head-01"]
        login.groups = frozenset({"login_nodes"})
        assert asked_monitoring(login) == roles
        assert ("slurm_exporter" in asked_exporters(login)) is bool(roles)
        assert ("fabric_exporter" in asked_exporters(login)) is bool(roles)
        assert asked_monitoring(head) == ["prometheus"]
        assert "slurm_exporter" in asked_exporters(head)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "::1", "0:0:0:0:0:0:0:1"])
def test_a_host_is_not_asked_where_only_it_can_ask(address: str) -> None:
    hosts = site(node_exporter_enabled=True, node_exporter_address=address, node_exporter_port=1)
    assert [one.host for one in exporters(hosts.hosts["head-01"])] == ["head-01"]


@pytest.mark.parametrize("address", ["fd00::5", "::", "10.0.0.5"])
def test_every_other_address_is_asked(address: str) -> None:
    hosts = site(node_exporter_enabled=True, node_exporter_address=address, node_exporter_port=1)
    assert [one.host for one in exporters(hosts.hosts["head-01"])] == list(NODES)


USERS = {"prometheus": "$2y$10$x"}
ACCESS = {"username": "prometheus", "password": "p", "ca": "CA"}


def test_a_password_is_for_those_who_ask() -> None:
    secured = {
        "node_exporter_users": USERS,
        "node_exporter_tls": {"certificate": "C", "key": "K"},
    }
    hosts = site(
        {"dgx-01": secured},
        node_exporter_enabled=True,
        node_exporter_port=9100,
        monitoring_access=ACCESS,
    )
    found = monitoring_inputs(hosts.hosts["head-01"])["prometheus_jobs"]
    shown = {job["name"]: [one["labels"] for one in job["targets"]] for job in found}
    assert shown == {
        "node": [{"instance": name, "job": "node"} for name in ("head-01", "dgx-02")],
        "node-users": [{"instance": "dgx-01", "job": "node", "__scheme__": "https"}],
    }
    plain, asking = found
    assert not ACCESS.keys() & plain.keys()
    assert ACCESS.keys() <= asking.keys()


def alertmanagers(of_hosts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what Prometheus of head-01 gets to know of the Alertmanagers of both hosts."""
    hosts = site(
        of_hosts,
        alertmanager_enabled=True,
        alertmanager_address="::",
        alertmanager_port=9093,
        monitoring_access=ACCESS,
    )
    hosts.hosts["dgx-01"].groups = frozenset({"monitoring_nodes"})
    return monitoring_inputs(hosts.hosts["head-01"])["prometheus_alertmanagers"]


@pytest.mark.parametrize(
    ("asking", "targets", "others"),
    [
        ([], ["[fd00::11]:9093", "[fd00::21]:9093"], None),
        (["dgx-01"], ["[fd00::21]:9093"], ["[fd00::11]:9093"]),
        (["head-01", "dgx-01"], ["[fd00::11]:9093", "[fd00::21]:9093"], None),
    ],
)
def test_each_alertmanager_gets_alerts_and_a_password_if_it_asks(
    asking: list[str], targets: list[str], others: list[str] | None
) -> None:
    found = alertmanagers({name: {"alertmanager_users": USERS} for name in asking})
    assert (found["targets"], found.get("open_targets")) == (targets, others)
    assert ("password" in found) == bool(asking)


def test_each_alertmanager_is_asked_by_what_it_speaks() -> None:
    tls = {"certificate": "C", "key": "K"}
    found = alertmanagers({"dgx-01": {"alertmanager_tls": tls}})
    assert found["scheme"] == "https"
    assert found["targets"] == ["http://[fd00::11]:9093", "[fd00::21]:9093"]


def test_an_address_of_ipv6_has_brackets_before_a_port() -> None:
    hosts = site(
        node_exporter_enabled=True,
        node_exporter_port=9100,
        slurm_exporter_enabled=True,
        slurm_exporter_native=True,
    )
    found = monitoring_inputs(hosts.hosts["head-01"])
    jobs = {job["name"]: job["targets"] for job in found["prometheus_jobs"]}
    assert jobs["node"][1]["address"] == "[fd00::21]:9100"
    assert [one["address"] for one in jobs["slurm-nodes"]] == ["[fd00::11]:6817"]


@pytest.mark.parametrize(
    ("variables", "port"),
    [
        ({"slurm_controller_options": {"slurmctldPort": 7000}}, 7000),
        ({"slurm_controller_options": {"SlurmctldPort": "7010-7013"}}, 7010),
        ({"slurm_controller_options": {"SlurmctldPort": 7000}, PORT: 7020}, 7020),
    ],
)
def test_metrics_of_slurmctld_are_at_its_port(variables: dict[str, Any], port: int) -> None:
    hosts = site(
        node_exporter_enabled=False,
        slurm_exporter_enabled=True,
        slurm_exporter_native=True,
        **variables,
    )
    found = monitoring_inputs(hosts.hosts["head-01"])["prometheus_jobs"]
    assert [one["targets"][0]["address"] for one in found] == [f"[fd00::11]:{port}"] * 4
