# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Which hosts make copies of Slurm's memory, and of what. Pure."""

from __future__ import annotations

from typing import Any

from .host import STATE, Host, Site

_KINDS = {"controller": "slurm_controllers", "database": "slurm_databases"}
_STATE_DIR = "slurm_controller_state_save_location"
# Input of the role -> that of the role slurm_database, where the inventory has it.
_OF_DATABASE = {
    "backup_database": "slurm_database_storage",
    "backup_database_password": "slurm_database_password",
}


def _kinds(host: Host) -> list[str]:
    """Return what the host copies: a database that a second slurmdbd shares is one database."""
    first = host.site.groups["slurm_databases"][:1]
    return [
        kind
        for kind, group in _KINDS.items()
        if group in host.groups and (kind == "controller" or host.name in first)
    ]


def asked_backup(host: Host) -> list[str]:
    """Return the role for copies, if the inventory names a repository."""
    return ["backup"] if host.says("backup_repository") and _kinds(host) else []


def _first(site: Site) -> str:
    """Return the host that creates the repository and forgets old copies: the first that copies."""
    names = [name for group in _KINDS.values() for name in site.groups[group]]
    return next(name for name in names if asked_backup(site.hosts[name]))


def backup_inputs(host: Host) -> dict[str, Any]:
    """Return the inputs of a host that makes copies."""
    if not asked_backup(host):
        return {}
    given: dict[str, Any] = {
        "backup_cluster_name": host.site.plan["cluster"]["name"],
        "backup_kinds": _kinds(host),
        "backup_tidies": host.name == _first(host.site),
        "backup_secrets_dir": STATE + "/secrets",
    }
    if "slurm_controllers" in host.groups:
        is_given = host.says(_STATE_DIR)
        given["backup_state_dir"] = (
            host.refer(_STATE_DIR) if is_given else host.site.defaults[_STATE_DIR]
        )
    given |= {name: host.refer(own) for name, own in _OF_DATABASE.items() if host.says(own)}
    return given
