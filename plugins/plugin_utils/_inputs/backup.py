# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Which hosts make copies of Slurm's memory and of time series, and of what. Pure."""

from __future__ import annotations

from typing import Any

from .host import STATE, Host, Site
from .monitoring import switched_on

_KINDS = {"controller": "slurm_controllers", "database": "slurm_databases"}
_METRICS = "metrics"
# Input of the role -> that of another role, whose default it has without the inventory's value.
_FOLDERS = {
    "controller": ("backup_state_dir", "slurm_controller_state_save_location"),
    _METRICS: ("backup_prometheus_dir", "prometheus_data_dir"),
}
# Input of the role -> that of the role slurm_database, where the inventory has it.
_OF_DATABASE = {
    "backup_database": "slurm_database_storage",
    "backup_database_password": "slurm_database_password",
}


def _kinds(host: Host) -> list[str]:
    """Return what the host copies: a database that a second slurmdbd shares is one database."""
    first = host.site.groups["slurm_databases"][:1]
    kinds = [
        kind
        for kind, group in _KINDS.items()
        if group in host.groups and (kind == "controller" or host.name in first)
    ]
    return kinds + ([_METRICS] if _copies_metrics(host) else [])


def _copies_metrics(host: Host) -> bool:
    """Return whether the host copies its time series: a second Prometheus has the same."""
    site = host.site
    members = site.present_groups["monitoring_nodes"]
    running = [name for name in members if switched_on(site.hosts[name], "prometheus")]
    return running[:1] == [host.name] and bool(host.value("backup_prometheus"))


def asked_backup(host: Host) -> list[str]:
    """Return the role for copies, if the inventory names a repository."""
    return ["backup"] if host.says("backup_repository") and _kinds(host) else []


def _first(site: Site) -> str:
    """Return the host that creates the repository and forgets old copies: the first that copies."""
    groups = (*_KINDS.values(), "monitoring_nodes")
    names = [name for group in groups for name in site.groups[group]]
    return next(name for name in names if asked_backup(site.hosts[name]))


def backup_inputs(host: Host) -> dict[str, Any]:
    """Return the inputs of a host that makes copies."""
    if not asked_backup(host):
        return {}
    kinds = _kinds(host)
    given: dict[str, Any] = {
        "backup_cluster_name": host.site.plan["cluster"]["name"],
        "backup_kinds": kinds,
        "backup_tidies": host.name == _first(host.site),
        "backup_secrets_dir": STATE + "/secrets",
    }
    for kind, (name, own) in _FOLDERS.items():
        if kind not in kinds:
            continue
        given[name] = host.refer(own) if host.says(own) else host.site.defaults[own]
    given |= {name: host.refer(own) for name, own in _OF_DATABASE.items() if host.says(own)}
    return given
