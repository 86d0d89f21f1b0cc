# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Monitoring that no host could run, and alerts that no one would get. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...module_utils._core.schema import Problem, words
from .._contract.contract import COMPUTE_GROUPS
from .._inventory.values import Inventory, Value

_GROUP = "monitoring_nodes"
_SWITCHES = ("prometheus_enabled", "alertmanager_enabled", "grafana_enabled")
# Switches that do nothing for hosts of other groups.
_WATCHING: Mapping[str, Sequence[str]] = {
    "dcgm_exporter_enabled": ("gpu_nodes",),
    "slurm_exporter_enabled": ("slurm_controllers",),
    "node_health_enabled": COMPUTE_GROUPS,
}


def check_monitoring(
    inventory: Inventory, valid: Mapping[str, Mapping[str, Value]]
) -> Iterator[Problem]:
    """Yield the first switch that is on although no host of the group has it.

    A group without hosts gives its variables to none: what is written for it is looked at as well.
    """
    members = inventory.groups.get(_GROUP, ())
    for name in _SWITCHES:
        if any(_is_on(valid.get(host, {}).get(name)) for host in members):
            continue
        paths = _places(valid, name)
        if inventory.unread.get(_GROUP, {}).get(name) is True:
            paths.append(f"{_GROUP}.{name}")
        if not paths:
            continue
        if members:
            wrong = f"true, and no host of {_GROUP} has it"
            remedy = f"write it in group_vars/{_GROUP}, or write false"
        else:
            wrong = f"true, and no host is in {_GROUP}"
            remedy = f"write {_GROUP}: {{hosts: {{NAME: }}}} below cluster, or write false"
        yield Problem(paths[0], wrong, remedy)
        # The others are there for the same reason.
        return


def check_watching(
    inventory: Inventory, valid: Mapping[str, Mapping[str, Value]]
) -> Iterator[Problem]:
    """Yield switches that are on, and only where nothing comes of them."""
    for name, groups in _WATCHING.items():
        able = {group: inventory.groups.get(group, ()) for group in groups}
        members = [host for hosts in able.values() for host in hosts if host in valid]
        paths = _places(valid, name)
        if paths and _is_forgotten(inventory, name, members):
            (group, *_others) = [group for group, hosts in able.items() if members[0] in hosts]
            wrong = f"true, and for no host of {words(groups)}"
            remedy = f"write it in group_vars/{group}, or write false"
            yield Problem(paths[0], wrong, remedy)


def check_fabric_exporter(
    inventory: Inventory,
    valid: Mapping[str, Mapping[str, Value]],
    fabric: Mapping[str, Any],
    kind: str,
) -> Iterator[Problem]:
    """Yield that counters of the fabric are wanted where no host is attached to it.

    fabric is what the site describes, kind what its rails run.
    """
    name = "fabric_exporter_enabled"
    paths = _places(valid, name)
    managers = [host for host in inventory.groups.get("subnet_managers", ()) if host in valid]
    sweeper = [fabric["fabric_host"]] if fabric.get("fabric_host") in valid else managers[:1]
    if paths and fabric.get("read_from") == "ufm":
        yield Problem(
            paths[0],
            "true, but cluster_fabric.read_from is ufm: no host asks the fabric itself, and its "
            "counters are UFM's",
            "write false, and collect them from UFM's telemetry (monitoring_jobs)",
        )
    elif paths and kind == "infiniband" and _is_forgotten(inventory, name, sweeper):
        yield Problem(
            paths[0],
            f"true, and not for {sweeper[0]}, which sweeps the fabric",
            "write it in group_vars/all, or write false",
        )


def check_series_copies(
    inventory: Inventory, valid: Mapping[str, Mapping[str, Value]]
) -> Iterator[Problem]:
    """Yield that time series are to be copied where no Prometheus has them, or to no place."""
    name = "backup_prometheus"
    wanted = {host: own[name] for host, own in valid.items() if _is_on(own.get(name))}
    if not wanted:
        return
    path = min(value.path for value in wanted.values())
    members = inventory.groups.get(_GROUP, ())
    running = [host for host in members if _is_on(valid.get(host, {}).get("prometheus_enabled"))]
    if not running:
        yield Problem(
            path,
            f"true, and no host of {_GROUP} runs Prometheus",
            f"write prometheus_enabled: true in group_vars/{_GROUP}, or write false",
        )
    elif running[0] not in wanted:
        yield Problem(
            path,
            f"true, and not for {running[0]}, whose Prometheus would be copied",
            f"write it in group_vars/{_GROUP}, or write false",
        )
    elif not _is_given(inventory, running[0], "backup_repository"):
        yield Problem(
            path,
            f"true, and {running[0]} has no backup_repository",
            "write the repository in group_vars/all, or write false",
        )


def alert_warnings(inventory: Inventory, valid: Mapping[str, Mapping[str, Value]]) -> Iterator[str]:
    """Yield, for each place where monitoring is switched on, that no one is notified of alerts."""
    members = inventory.groups.get(_GROUP, ())
    on = {
        name: [host for host in members if _is_on(valid.get(host, {}).get(name))]
        for name in _SWITCHES
    }
    for host in on["alertmanager_enabled"]:
        if not _is_given(inventory, host, "alertmanager_receivers"):
            yield (
                f"{valid[host]['alertmanager_enabled'].path}: true, but alertmanager_receivers is "
                "empty, so that no one is notified; write [{name: team, email_configs: [{to: "
                "ops@example.org}]}] for instance, or [{name: shown}] if alerts are only looked at"
            )
    for host in on["prometheus_enabled"]:
        if not on["alertmanager_enabled"] and not _is_given(
            inventory, host, "prometheus_alertmanagers"
        ):
            yield (
                f"{valid[host]['prometheus_enabled'].path}: true, but no Alertmanager gets its "
                f"alerts; write alertmanager_enabled: true in group_vars/{_GROUP}, or "
                "prometheus_alertmanagers: {targets: ['HOST:9093']} for one of the site's own"
            )


def _is_forgotten(inventory: Inventory, name: str, members: Sequence[str]) -> bool:
    """Return whether none of these hosts has the variable; false is an answer, too."""
    return bool(members) and all(name not in inventory.hosts[host] for host in members)


def _is_given(inventory: Inventory, host: str, name: str) -> bool:
    """Return whether a value is written; one that is wrong is, and reported as that."""
    value = inventory.hosts[host].get(name)
    return value is not None and value.value not in ([], {})


def _places(valid: Mapping[str, Mapping[str, Value]], name: str) -> list[str]:
    """Return where a switch that is on is written."""
    return sorted({own[name].path for own in valid.values() if _is_on(own.get(name))})


def _is_on(value: Value | None) -> bool:
    return value is not None and value.value is True
