# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which exporters Prometheus asks, and at which addresses."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.host import Site
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.monitoring import (
    exporters,
    monitoring_inputs,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import (
    Inventory,
    Value,
)

NODES = {"head-01": "fd00::11", "dgx-01": "fd00::21", "dgx-02": "fd00::22"}


def site(**variables: Any) -> Site:
    """Three hosts on a network of IPv6, all with these variables; head-01 has Prometheus."""
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
    values = {name: Value(value, f"all.{name}") for name, value in variables.items()}
    plan = {"cluster": cluster, "nodes": nodes, "profiles": {}}
    return Site(plan, Inventory({}, (), dict.fromkeys(NODES, values)), {})


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "::1", "0:0:0:0:0:0:0:1"])
def test_a_host_is_not_asked_where_only_it_can_ask(address: str) -> None:
    hosts = site(node_exporter_enabled=True, node_exporter_address=address, node_exporter_port=1)
    assert [one.host for one in exporters(hosts.hosts["head-01"])] == ["head-01"]


@pytest.mark.parametrize("address", ["fd00::5", "::", "10.0.0.5"])
def test_every_other_address_is_asked(address: str) -> None:
    hosts = site(node_exporter_enabled=True, node_exporter_address=address, node_exporter_port=1)
    assert [one.host for one in exporters(hosts.hosts["head-01"])] == list(NODES)


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
