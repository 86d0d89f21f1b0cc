# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Inputs of infiniband, roce and subnet_manager. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from ...module_utils._core.names import RAIL_NETWORK
from .host import PLAN, Host, Site

# The routing table of a rail and the priority of its rule: this and the number of the rail.
FIRST_TABLE = 1000
# Where an adapter is not simulated elsewhere.
HARDWARE = "infiniband_hardware"
# Only a simulated fabric needs its own environment.
ENVIRONMENT = "subnet_manager_environment"
_GID_INDEX = "roce_gid_index"
_SETTINGS = (
    "topology",
    "cabling",
    "counter_interval_s",
    "subnet_manager_guids",
    "oversubscription_max",
    "read_from",
    "switch_health",
    "ports_per_cage",
    "pair_tests",
    "group_tests",
)


def rails_of(host: Host) -> list[Mapping[str, Any]]:
    """Return the rails of the host's profile that the fabric has."""
    if host.site.fabric_kind == "none":
        return []
    rails = host.profile.get("rails") or []
    return [rail for rail in rails if rail["rail"] < host.site.fabric["rails"]]


def rail_inputs(host: Host) -> list[dict[str, Any]]:
    """Return the rails as the roles take them."""
    fastest = host.site.fabric["rate_gbps"]
    rate = min(host.profile.get("link_rate_gbps") or fastest, fastest)
    pcie = host.profile.get("rail_pcie") or {}
    return [
        {
            "rail": rail["rail"],
            "rate_gbps": rate,
            "pci": rail["hca_pci"]
            or "rail {} of profile {}".format(rail["rail"], host.node["profile"]),
            "pcie_generation": pcie.get("generation", 0),
            "pcie_width": pcie.get("width", 0),
        }
        for rail in rails_of(host)
    ]


def link_layer(site: Site) -> str:
    """Return what the rails run, as adapters call it."""
    return "Ethernet" if site.fabric_kind == "ethernet" else "InfiniBand"


def subnet_manager_provider(host: Host) -> str:
    """Return who manages the subnet, by the hosts that the inventory says it of.

    A host of the sweep may be outside of their group.
    """
    managers = [host.site.hosts[name] for name in host.site.present_groups["subnet_managers"]]
    for one in (host, *managers):
        if one.says("subnet_manager_provider") and one.value("subnet_manager_provider"):
            return str(one.value("subnet_manager_provider"))
    return str(host.site.defaults["subnet_manager_provider"])


def environment(host: Host) -> Any:
    """Return the environment of programs that ask the fabric."""
    return host.refer(ENVIRONMENT) if host.says(ENVIRONMENT) else {}


def _storage_ports(host: Host) -> list[str]:
    """Return the PCI addresses of storage ports that are InfiniBand as delivered."""
    if host.site.fabric_kind == "ethernet" or not rails_of(host):
        return []
    ports = host.profile.get("storage_ports") or []
    return [port["pci"] for port in ports if port["link_layer"] == "infiniband"]


def _addresses(host: Host, storage: list[str]) -> list[dict[str, Any]]:
    """Return the addresses of the ports. A network called rail0 is that of rail 0."""
    networks = host.site.cluster("cluster_networks")
    ports = {name: name for name in networks if RAIL_NETWORK.fullmatch(name)}
    # A network called storage is that of the first storage port, where both are InfiniBand.
    if storage and networks.get("storage", {}).get("kind") == "infiniband":
        ports["storage"] = "storage0"
    plan = host.site.plan["cluster"]["networks"]
    return [
        {
            "port": ports[name],
            "address": address + "/" + _prefix(plan[name]),
            "mtu": networks[name].get("mtu", 0),
            **_routes(name, address, plan[name]),
        }
        for name, address in host.node["addresses"].items()
        if name in ports
    ]


def _prefix(network: Mapping[str, Any]) -> str:
    return "31" if network["point_to_point"] else str(network["cidr"]).split("/")[1]


def _routes(name: str, address: str, network: Mapping[str, Any]) -> dict[str, Any]:
    """Return the routes of a rail that has a router, and nothing for any other.

    A node has as many ways out as rails. What is sent from the address of a rail leaves by that
    rail, wherever it goes to: each rail has a table, and a rule by the source leads to it.
    """
    own = ipaddress.ip_address(address)
    if not RAIL_NETWORK.fullmatch(name) or network["kind"] != "ethernet" or own.version != 4:
        return {}
    table = FIRST_TABLE + int(name[4:])
    if network["point_to_point"]:
        gateway = str(own - 1 if int(own) % 2 else own + 1)
        near = {"to": network["cidr"], "via": gateway}
    elif network["gateway"]:
        gateway = network["gateway"]
        near = {"to": network["cidr"], "table": table}
    else:
        return {}
    return {
        "source": address,
        "gateway": gateway,
        "table": table,
        "routes": [near, {"to": "0.0.0.0/0", "via": gateway, "table": table}],
    }


def _root_guids(fabric: Mapping[str, Any]) -> list[str]:
    """Return the GUIDs of the topmost switches: of all of them or of none.

    A list that lacks some would misguide the routing.
    """
    top = fabric["core_switches"] or fabric["spine_switches"]
    guids = [guid for name, guid in fabric["switch_guids"].items() if name in top]
    return guids if len(guids) == len(top) else []


def _pair_arguments(site: Site) -> list[str]:
    """Return what ib_write_bw needs on Ethernet: the GID that the roles give the GPU nodes.

    Where they differ, or leave the choice to NCCL, perftest takes one by itself.
    """
    if site.fabric_kind != "ethernet":
        return []
    indexes = {
        one.value(_GID_INDEX) if one.says(_GID_INDEX) else site.defaults[_GID_INDEX]
        for one in site.present
        if "gpu_nodes" in one.groups
    }
    index = indexes.pop() if len(indexes) == 1 else -1
    return ["-x", str(index)] if index >= 0 else []


def fabric_inputs(host: Host) -> dict[str, Any]:
    """Return the inputs of a host for the fabric."""
    site = host.site
    storage = _storage_ports(host)
    settings = site.settings("cluster_fabric")
    hardware = host.refer(HARDWARE) if host.says(HARDWARE) else site.defaults[HARDWARE]
    given: dict[str, Any] = {
        "__fabric": {name: settings[name] for name in _SETTINGS if name in settings},
        "__fabric_kind": site.fabric_kind,
        "__fabric_pair_arguments": _pair_arguments(site),
        "__fabric_sm_provider": subnet_manager_provider(host),
        "__fabric_subnet_managers": site.present_groups["subnet_managers"],
        "__fabric_simulated": (
            "switches and adapters of the fabric" if host.gives(ENVIRONMENT) else ""
        ),
        "infiniband_link_layer": link_layer(site),
        "infiniband_rails": rail_inputs(host),
        "infiniband_ports": [
            {"name": f"storage{index}", "pci": pci} for index, pci in enumerate(storage)
        ],
        "infiniband_gpus": (host.profile.get("gpus") or {}).get("pci") or [],
        "infiniband_addresses": _addresses(host, storage),
        # A node with a bad rail becomes one that its health checks drain, not one without Slurm.
        "infiniband_health_required": not (host.runs_jobs and host.value("node_health_enabled")),
        "roce_hardware": hardware,
        "roce_rails": [rail["rail"] for rail in rails_of(host)],
    }
    if "subnet_managers" in host.groups:
        names = PLAN + "/fabric/node-name-map"
        given |= {
            "subnet_manager_hosts": site.present_groups["subnet_managers"],
            "subnet_manager_topology": site.fabric["topology"],
            "subnet_manager_root_guids": _root_guids(site.plan["cluster"]["fabric"]),
            "subnet_manager_node_names_file": (
                names if "node-name-map" in site.fabric_files else ""
            ),
        }
    return given
