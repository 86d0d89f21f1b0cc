# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Inputs of Slurm's roles. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._core.nodeset import fold
from ...module_utils._slurm.releases import is_since
from .host import STATE, Host, Site

# Login hosts run sackd from this release on.
_SACKD = "23.11"
_PORTS = {"SlurmctldPort": 6817, "SlurmdPort": 6818}
# The program that role node_health installs, where the inventory has no other.
_HEALTH_CHECK = "/usr/local/libexec/baremetal-dgx/node-health-slurm"
_GROUPS = frozenset(
    {"slurm_controllers", "slurm_databases", "login_nodes", "gpu_nodes", "cpu_nodes"}
)


# What slurmd -C finds is compared with this, of all that slurm.conf has about a node.
_HARDWARE = ("sockets", "cores_per_socket", "threads_per_core", "real_memory_mb")


def _hardware(nodes: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Return what slurmd must find at least; nothing of a host that Slurm does not have."""
    return {key: value for key, value in nodes.get(name, {}).items() if key in _HARDWARE}


def is_of_slurm(host: Host) -> bool:
    """Return whether the host has a part in Slurm."""
    return not host.groups.isdisjoint(_GROUPS)


def login_is_configless(host: Host) -> bool:
    """Return whether a login host gets its configuration from the controller."""
    primary = host.site.primary
    return bool(primary.value("slurm_controller_configless")) and is_since(
        str(host.value("slurm_base_version")), _SACKD
    )


def _of_primary(host: Host, name: str, default: Any) -> Any:
    primary = host.site.primary
    return primary.refer(name) if primary.says(name) else default


def _port(host: Host, options: str, key: str) -> int:
    """Return the port in these options of a daemon, the first of several; 0 for Slurm's own."""
    found = re.match(r"\d+", str(host.entry(options, key)))
    return int(found[0]) if found else 0


def slurmctld_port(controller: Host, key: str = "SlurmctldPort") -> int:
    """Return the port of slurmctld, or of slurmd, in the inventory; 0 for Slurm's own."""
    port = _port(controller, "slurm_controller_options", key)
    # Written or not, it is the same, and slurmd would restart for other words.
    return 0 if port == _PORTS[key] else port


def _database_port(site: Site) -> int:
    hosts = [site.hosts[name] for name in site.groups["slurm_databases"][:1]]
    ports = [_port(host, "slurm_database_options", "DbdPort") for host in hosts]
    return next(filter(None, ports), site.defaults["slurm_controller_database_port"])


def _health_check(host: Host) -> Any:
    switch = "node_health_enabled"
    nodes = [one for one in host.site.present if one.runs_jobs]
    watched = any(one.says(switch) and one.value(switch) for one in nodes)
    default: dict[str, Any] = {"program": _HEALTH_CHECK} if watched else {}
    if watched and any(one.value("node_health_resume") for one in nodes):
        # Drained nodes, too: the program is to take back its own drain.
        default["node_state"] = ["IDLE", "CYCLE"]
    return _of_primary(host, "slurm_controller_health_check", default)


def asked_rest(host: Host) -> list[str]:
    """Return the role for slurmrestd, if the host is a controller whose inventory names it."""
    mentioned = "slurm_controllers" in host.groups and host.says("slurm_rest_enabled")
    return ["slurm_rest"] if mentioned else []


def _takes_tokens(site: Site) -> bool:
    """Return whether any controller has slurmrestd."""
    controllers = (site.hosts[name] for name in site.groups["slurm_controllers"])
    return any(asked_rest(host) and host.value("slurm_rest_enabled") for host in controllers)


def _alike(nodes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry for all nodes that do not differ: thousands cost each task of the role."""
    kinds: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
    for node in nodes:
        other = {key: value for key, value in node.items() if key != "name"}
        kinds.setdefault(json.dumps(other), (other, []))[1].append(node["name"])
    return [{"name": fold(names), **other} for other, names in kinds.values()]


def slurm_inputs(host: Host) -> dict[str, Any]:
    """Return the inputs of a host for Slurm."""
    site = host.site
    if not is_of_slurm(host):
        return {}
    primary = site.primary
    controllers, databases = site.groups["slurm_controllers"], site.groups["slurm_databases"]
    port = slurmctld_port(primary)
    # Without their configuration they would ask at Slurm's own port.
    asked = [f"{one}:{port}" if port else one for one in controllers]
    name = site.plan["cluster"]["name"]
    secrets, build = STATE + "/secrets", STATE + "/plan/slurm"
    state: Any = ""
    if "slurm_controllers" in host.groups:
        state = "slurm_controller_state_save_location"
        state = host.refer(state) if host.says(state) else site.defaults[state]
    given: dict[str, Any] = {
        "slurm_base_secrets_dir": secrets,
        "slurm_base_state_dir": state,
        "slurm_base_cluster_name": name,
        "slurm_base_controllers": controllers,
        "slurm_base_slurmd_port": slurmctld_port(primary, "SlurmdPort"),
        # Keys of tokens lie where daemons check them, and nowhere else.
        "slurm_base_jwt": _takes_tokens(site)
        and not host.groups.isdisjoint({"slurm_controllers", "slurm_databases"}),
        # What the inventory has for the controllers decides for the nodes as well.
        "__slurm_plugstack": _of_primary(host, "slurm_controller_plugstack", []),
    }
    if asked_rest(host):
        given["slurm_rest_address"] = host.address
    if "slurm_databases" in host.groups:
        given |= {
            "slurm_database_secrets_dir": secrets,
            "slurm_database_cluster_name": name,
            "slurm_database_hosts": databases,
        }
    if "slurm_controllers" in host.groups:
        given |= {
            "slurm_controller_cluster_name": name,
            "slurm_controller_hosts": controllers,
            "slurm_controller_databases": databases,
            "slurm_controller_database_port": _database_port(site),
            "slurm_controller_nodes": _alike(site.plan["slurm"]["nodes"]),
            "slurm_controller_topology": site.plan["slurm"]["topology"],
            "slurm_controller_build_dir": build,
            "slurm_controller_new_nodes_drained": site.cluster("cluster_gate")["enabled"],
            "slurm_controller_health_check": _health_check(host),
        }
    if host.runs_jobs:
        pretended = primary.value("slurm_controller_pretended_hardware")
        given |= {
            "slurm_compute_controllers": asked,
            # Configless, slurmd needs /etc/slurm without the files of slurmctld.
            "slurm_compute_configless": bool(primary.value("slurm_controller_configless"))
            and "slurm_controllers" not in host.groups,
            "slurm_compute_config_dir": build,
            "slurm_compute_hardware": {} if pretended else _hardware(site.slurm_nodes, host.name),
        }
    if "login_nodes" in host.groups:
        if host.runs_jobs:
            # Who logs in to submit a job has none yet.
            given["slurm_compute_pam_adopt"] = False
        given |= {
            "slurm_login_controllers": asked,
            "slurm_login_manage_config": "slurm_controllers" not in host.groups
            and not host.runs_jobs,
            "slurm_login_configless": login_is_configless(host),
            "slurm_login_config_dir": build,
        }
    return given
