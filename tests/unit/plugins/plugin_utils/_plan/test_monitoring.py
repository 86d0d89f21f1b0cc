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
    (problem,) = check_fabric_exporter(valid, "ufm")
    assert problem.path == f"of_b.{name}"
    assert not list(check_fabric_exporter(valid, "host"))
    assert not list(check_fabric_exporter(valid, None))
    assert not list(check_fabric_exporter(hosts(a={name: False}, d={}), "ufm"))


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
