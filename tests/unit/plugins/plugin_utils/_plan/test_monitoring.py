# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Switches of monitoring that are on where nothing could come of it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import (
    Inventory,
    Value,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.monitoring import (
    alert_warnings,
    check_fabric_exporter,
    check_monitoring,
    check_series_copies,
    check_watching,
)

Hosts = dict[str, dict[str, Value]]


def hosts(**given: dict[str, Any]) -> Hosts:
    return {
        host: {name: Value(value, f"of_{host}.{name}") for name, value in values.items()}
        for host, values in given.items()
    }


def inventory(valid: Hosts, *members: str) -> Inventory:
    return Inventory({"monitoring_nodes": members}, (), valid)


@pytest.mark.parametrize(
    "switch", ["prometheus_enabled", "alertmanager_enabled", "grafana_enabled"]
)
def test_a_switch_that_is_off_runs_nowhere(switch: str) -> None:
    valid = hosts(a={switch: False}, b={})
    assert not list(check_monitoring(inventory(valid), valid))
    valid = hosts(a={switch: False}, c={switch: True}, b={switch: True})
    (problem,) = check_monitoring(inventory(valid), valid)
    assert problem.path == f"of_b.{switch}"
    assert not list(check_monitoring(inventory(valid, "a", "c"), valid))
    # One that runs does not stand for the others.
    valid = hosts(a={"prometheus_enabled": True}, b={"grafana_enabled": True})
    (problem,) = check_monitoring(inventory(valid, "a"), valid)
    assert problem.path == "of_b.grafana_enabled"


def test_counters_of_a_fabric_that_hosts_read() -> None:
    name = "fabric_exporter_enabled"
    valid = hosts(c={name: True}, a={name: False}, b={name: True}, d={})

    def found(valid: Hosts, kind: str = "infiniband", **fabric: Any) -> list[str]:
        known = Inventory({"subnet_managers": ("gone", "d", "a", "b")}, (), valid)
        return [one.path for one in check_fabric_exporter(known, valid, fabric, kind)]

    assert found(valid, read_from="ufm") == [f"of_b.{name}"]
    assert not found(hosts(a={name: False}, d={}), read_from="ufm")
    # Of the subnet managers the first one sweeps, if no other host does.
    assert found(valid) == found(valid, read_from="host") == [f"of_b.{name}"]
    assert not found(valid, "ethernet")
    assert not found(valid, fabric_host="a")
    assert found(hosts(b={name: True}, other={}), fabric_host="other")
    assert not found(hosts(c={name: True}))


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("dcgm_exporter_enabled", "gpu_nodes"),
        ("slurm_exporter_enabled", "slurm_controllers"),
        ("node_health_enabled", "cpu_nodes"),
    ],
)
def test_what_watches_a_host_of_another_kind(name: str, group: str) -> None:
    def found(*members: str, **given: dict[str, Any]) -> list[str]:
        valid = hosts(mon={name: True}, **given)
        known = Inventory({group: members}, (), valid)
        return [str(one) for one in check_watching(known, valid)]

    (line,) = found("b", "c", b={}, c={})
    assert line.startswith(f"of_mon.{name}: true, and for no host of ")
    assert line.endswith(f"write it in group_vars/{group}, or write false")
    assert not found("b", "c", b={}, c={name: True})
    # Who has written false for the hosts in question has thought of them.
    assert not found("b", "c", b={}, c={name: False})
    # An inventory without the group, and one whose hosts are all absent.
    assert not found()
    assert not found("gone")


@pytest.mark.parametrize(("given", "count"), [([], 1), ({}, 1), ("/mnt/copies", 0)])
def test_copies_need_a_place(given: Any, count: int) -> None:
    on = {"prometheus_enabled": True, "backup_prometheus": True}
    valid = hosts(a={**on, "backup_repository": given})
    assert len(list(check_series_copies(inventory(valid, "a"), valid))) == count


def test_alerts_of_each_place() -> None:
    """Only what is on in the group counts, and what its hosts have."""
    on = {"prometheus_enabled": True}
    valid = hosts(
        a=on,
        b={**on, "prometheus_alertmanagers": {"targets": ["am:9093"]}},
        c={"prometheus_enabled": False},
        d={},
        elsewhere={**on, "alertmanager_enabled": True},
    )
    (warning,) = alert_warnings(inventory(valid, "a", "b", "c", "d", "absent"), valid)
    assert warning.startswith("of_a.prometheus_enabled: true, but no Alertmanager gets its alerts")
    valid = hosts(a=on, b={"alertmanager_enabled": True}, c={"alertmanager_enabled": False})
    (warning,) = alert_warnings(inventory(valid, "a", "b", "c"), valid)
    assert warning.startswith(
        "of_b.alertmanager_enabled: true, but alertmanager_receivers is empty"
    )
