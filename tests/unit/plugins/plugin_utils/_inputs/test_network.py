# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interfaces of a host, with what its networks say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.network import (
    asked_network,
    network_inputs,
)

NETWORKS = {
    "management": {"cidr": "10.1.0.0/24", "gateway": "10.1.0.1", "mtu": None, "vlan": None},
    "storage": {"cidr": "10.2.0.0/22", "gateway": "10.2.0.1", "mtu": 9000, "vlan": 20},
}


def host(*interfaces: dict[str, Any]) -> Any:
    return SimpleNamespace(
        site=SimpleNamespace(
            plan={"cluster": {"networks": NETWORKS, "access_network": "management"}}
        ),
        node={"addresses": {"management": "10.1.0.11", "storage": "10.2.0.11"}},
        says=lambda _name: bool(interfaces),
        value=lambda _name: list(interfaces),
    )


def test_a_bond_and_a_vlan_on_it() -> None:
    asked = host(
        {"name": "bond0", "members": ["eno1", "eno2"], "network": "management", "mtu": 9000},
        {"name": "bond0.20", "parent": "bond0", "network": "storage", "addresses": ["10.9.0.1/32"]},
    )
    assert asked_network(asked) == ["node_network"]
    bond, vlan = network_inputs(asked)["node_network_interfaces"]
    assert bond == {
        "name": "bond0", "members": ["eno1", "eno2"], "mode": "802.3ad",
        "hash_policy": "layer3+4", "lacp_rate": "fast", "dhcp": False, "routes": [], "parent": "",
        "vlan": 0, "mtu": 9000, "addresses": ["10.1.0.11/24"], "gateway": "10.1.0.1",
    }  # fmt: skip
    # Only the network of SSH has the default route.
    assert {key: vlan[key] for key in ("parent", "vlan", "mtu", "addresses", "gateway")} == {
        "parent": "bond0", "vlan": 20, "mtu": 9000, "addresses": ["10.2.0.11/22", "10.9.0.1/32"],
        "gateway": "",
    }  # fmt: skip


def test_a_network_without_tag_on_the_wire() -> None:
    """The switch may tag the frames: without a parent the interface is the port itself."""
    (port,) = network_inputs(host({"name": "eno2", "network": "storage"}))[
        "node_network_interfaces"
    ]
    assert (port["vlan"], port["mtu"]) == (0, 9000)


def test_addresses_are_spelt_as_the_host_shows_them() -> None:
    """The node compares them with what `ip` shows, and takes a change back that differs."""
    route = {"to": "2001:DB8:0009::/64", "via": "2001:DB8:0::1", "metric": 5}
    asked = host(
        {
            "name": "eno2",
            "addresses": ["2001:DB8:0::5/64", "10.9.0.5/255.255.255.0"],
            "routes": [route, {"to": "10.8.0.0/255.255.0.0", "via": "10.9.0.1"}],
        }
    )
    (port,) = network_inputs(asked)["node_network_interfaces"]
    assert port["addresses"] == ["2001:db8::5/64", "10.9.0.5/24"]
    assert port["routes"] == [
        {"to": "2001:db8:9::/64", "via": "2001:db8::1", "metric": 5},
        {"to": "10.8.0.0/16", "via": "10.9.0.1", "metric": 0},
    ]


def test_nothing_said_is_nothing_asked() -> None:
    assert asked_network(host()) == []
    assert network_inputs(host()) == {}
