# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the playbooks give to each host's roles: the plan in the words of their inputs. Pure."""

from __future__ import annotations

import json
from typing import Any

from .._inventory.given import YIELDING
from .backup import asked_backup, backup_inputs
from .collectors import collector_inputs
from .containers import asked_containers, container_inputs
from .fabric import fabric_inputs, rails_of
from .gpu import hardware_inputs
from .host import Host, Site, UnknownError
from .identity import asked_identity, identity_inputs
from .logins import login_inputs
from .monitoring import asked_exporters, asked_monitoring, exporter_inputs, monitoring_inputs
from .network import asked_network, network_inputs
from .slurm import asked_rest, is_of_slurm, slurm_inputs
from .storage import asked_storage, lets_clients_in, storage_inputs
from .validation import gate_inputs, report_inputs, validation_inputs

_DOMAINS = (
    network_inputs,
    identity_inputs,
    fabric_inputs,
    hardware_inputs,
    slurm_inputs,
    container_inputs,
    storage_inputs,
    login_inputs,
    backup_inputs,
    exporter_inputs,
    monitoring_inputs,
    collector_inputs,
    gate_inputs,
    validation_inputs,
    report_inputs,
)
_ENCODE = json.JSONEncoder(ensure_ascii=False).encode
_GPU = ("nvidia_driver", "dcgm", "nvidia_container_toolkit")


def roles_of(host: Host) -> list[str]:
    """Return the roles that have something to do on the host, in the order of their phases."""
    kind = host.site.fabric_kind
    rails = bool(rails_of(host))
    gpu = "gpu_nodes" in host.groups
    shells = host.runs_jobs or "login_nodes" in host.groups
    return [
        *asked_network(host),
        "node_base",
        *asked_identity(host),
        *(["subnet_manager"] if "subnet_managers" in host.groups and kind == "infiniband" else []),
        *(["infiniband"] if rails else []),
        *(["roce"] if rails and kind == "ethernet" else []),
        *(role for role in _GPU if gpu and host.value(f"{role}_source") != "none"),
        *(["slurm_base"] if is_of_slurm(host) else []),
        *(["slurm_database"] if "slurm_databases" in host.groups else []),
        *(["slurm_controller"] if "slurm_controllers" in host.groups else []),
        *asked_rest(host),
        *(["slurm_compute"] if host.runs_jobs else []),
        *(["node_health"] if host.runs_jobs and host.says("node_health_enabled") else []),
        *(["slurm_login"] if "login_nodes" in host.groups else []),
        *asked_storage(host),
        *asked_containers(host),
        *(["login_environment"] if shells else []),
        *asked_backup(host),
        *asked_exporters(host),
        *asked_monitoring(host),
    ]


def inputs_of(host: Host) -> dict[str, Any]:
    """Return the inputs of the host's roles, without those that its inventory says; UnknownError.

    Beside them is what the playbooks themselves decide by, which begins with two underscores.
    """
    roles = roles_of(host)
    off = {"node_health"} if not host.value("node_health_enabled") else set()
    found: dict[str, Any] = {
        "__cluster_roles": roles + (["cephfs_admin"] if lets_clients_in(host) else []),
        "__cluster_verified": [role for role in roles if role not in off],
    }
    # Ansible would make it of the inventory's template again for every task, skipped or not.
    if host.name in host.site.inventory.addresses:
        found["ansible_host"] = host.site.inventory.addresses[host.name]
    for domain in _DOMAINS:
        found |= domain(host)
    return {
        name: value for name, value in found.items() if not (name in YIELDING and host.says(name))
    }


def _text(inputs: dict[str, Any]) -> str:
    """Return the inputs with a line for each: json's own indent is slow."""
    lines = [f"{_ENCODE(key)}: {_ENCODE(value)}" for key, value in inputs.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def role_inputs(site: Site) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the text of inputs/NAME.json by host name, or none and all that is wrong."""
    texts: dict[str, str] = {}
    problems: set[str] = set()
    for name, host in site.hosts.items():
        try:
            inputs = inputs_of(host)
        except UnknownError as error:
            problems.add(str(error))
            continue
        texts[name] = _text(inputs)
    return ({}, tuple(sorted(problems))) if problems else (texts, ())
