# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Inputs of node_network: the host's interfaces with what its networks say. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from .._contract.contract import NODE_VARIABLES
from .._contract.settings import filled
from .host import Host

_VARIABLE = "node_interfaces"
# What the role takes as it is written.
_SAME = ("name", "members", "mode", "hash_policy", "lacp_rate", "dhcp")


def asked_network(host: Host) -> list[str]:
    """Return the role for the host's network, if the inventory says something of it."""
    return ["node_network"] if host.says(_VARIABLE) else []


def network_inputs(host: Host) -> dict[str, Any]:
    """Return the inputs of a host for its own network."""
    if not host.says(_VARIABLE):
        return {}
    items = filled(NODE_VARIABLES[_VARIABLE], host.value(_VARIABLE))
    return {"node_network_interfaces": [_interface(host, item) for item in items]}


def _interface(host: Host, item: Mapping[str, Any]) -> dict[str, Any]:
    cluster = host.site.plan["cluster"]
    name = item.get("network")
    network = cluster["networks"].get(name) or {}
    address = host.node["addresses"].get(name)
    own = [] if address is None else ["{}/{}".format(address, network["cidr"].split("/")[1])]
    made = {key: item[key] for key in _SAME}
    made["parent"] = item.get("parent") or ""
    made["vlan"] = (item.get("vlan") or network.get("vlan") or 0) if made["parent"] else 0
    made["mtu"] = item.get("mtu") or network.get("mtu") or 0
    # As `ip` shows them: the node compares the texts. Not each backend reads a mask with dots.
    made["addresses"] = own + [str(ipaddress.ip_interface(one)) for one in item["addresses"]]
    made["routes"] = [
        {
            **route,
            "to": str(ipaddress.ip_network(route["to"])),
            "via": str(ipaddress.ip_address(route["via"])),
        }
        for route in item["routes"]
    ]
    is_access = name == cluster["access_network"]
    made["gateway"] = (network.get("gateway") or "") if is_access else ""
    return made
