# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interfaces of a host: bonds, VLANs, and the networks that they carry."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import Value
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.interfaces import (
    check_interfaces,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.networks import parse_networks

KNOWN = {
    "management": {"cidr": "10.1.0.0/24"},
    "storage": {"cidr": "10.2.0.0/24", "vlan": 20},
    "rail0": {"cidr": "10.3.0.0/24", "kind": "infiniband"},
    # What is wrong with it has been found.
    "broken": {"cidr": "10.4.0/24"},
}
NETWORKS, _problems = parse_networks(KNOWN, "all.cluster_networks")
PATH = "gpu_nodes.node_interfaces"
ADDRESSED = ("management", "storage", "broken")


def lines(*items: dict[str, Any], access: str = "management") -> list[str]:
    """What is wrong with these interfaces, without the path of the list."""
    variables = {"node_interfaces": Value(list(items), PATH)}
    found = check_interfaces(variables, KNOWN, NETWORKS, ADDRESSED, access)
    return [str(problem).removeprefix(PATH) for problem in found]


SSH = {"name": "eno1", "network": "management"}
BOND = {"name": "bond0", "members": ["eno3", "eno4"]}


@pytest.mark.parametrize(
    "items",
    [
        [],
        [SSH],
        [BOND, {"name": "bond0.20", "parent": "bond0", "network": "storage"}, SSH],
        [BOND, {"name": "bond0.7", "parent": "bond0", "vlan": 7}, SSH],
        [SSH, {"name": "eno2", "addresses": ["10.8.0.1/24", "fd00::1/64"]}],
        [{**SSH, "routes": [{"to": "10.8.0.0/16", "via": "10.1.0.2"}]}],
        [SSH, {"name": "eno2", "network": "broken"}],
    ],
)
def test_interfaces_that_are_right(items: list[dict[str, Any]]) -> None:
    assert lines(*items) == []


def test_hosts_without_interfaces_are_left_alone() -> None:
    assert not list(check_interfaces({}, KNOWN, NETWORKS, ADDRESSED, "management"))


def test_what_is_wrong_with_one_interface_hides_no_other() -> None:
    assert lines(
        {"name": "eno1", "network": "managment"},
        {"name": "eno2"},
        {"name": "eno3", "network": "rail0"},
        {"name": "eno2", "network": "storage"},
        {"name": "eno5", "network": "storage"},
    ) == [
        "[3].name: 'eno2' is also gpu_nodes.node_interfaces[1].name; write each once",
        "[0].network: no network is called 'managment'; write management",
        (
            "[2].network: 'rail0' is InfiniBand, whose ports the role infiniband configures on "
            "nodes with rails, and the site elsewhere; remove it"
        ),
        "[4].network: 'storage' is also the network of eno2; write it once",
    ]


def test_the_rails_of_a_node_are_of_the_role_infiniband() -> None:
    known = {"management": KNOWN["management"], "rail0": {"cidr": "10.3.0.0/24"}}
    networks, _problems = parse_networks(known, "all.cluster_networks")
    variables = {"node_interfaces": Value([SSH, {"name": "rail0", "network": "rail0"}], PATH)}

    def found(rails: tuple[str, ...]) -> list[str]:
        problems = check_interfaces(variables, known, networks, list(known), "management", rails)
        return [str(problem) for problem in problems]

    (line,) = found(("rail0",))
    assert line == (
        f"{PATH}[1].network: 'rail0' is a rail, whose port the role infiniband configures; remove "
        "it, or, where the site configures the rails, write infiniband_network_manager: none"
    )
    # A host without rails, or with infiniband_network_manager none, may be on the network.
    assert found(()) == []


def test_an_address_is_the_nodes_or_of_dhcp() -> None:
    known = {**KNOWN, "lab": {"cidr": "10.5.0.0/24"}}
    networks, _problems = parse_networks(known, "all.cluster_networks")

    def found(**item: Any) -> list[str]:
        variables = {"node_interfaces": Value([SSH, {"name": "eno2", **item}], PATH)}
        problems = check_interfaces(variables, known, networks, ADDRESSED, "management")
        return [str(problem) for problem in problems]

    assert found(network="lab") == [
        (
            f"{PATH}[1].network: this host has no address on 'lab'; write it in node_address, or "
            "dhcp: true"
        )
    ]
    assert found(network="lab", dhcp=False) == found(network="lab")
    assert found(network="lab", dhcp=True) == []
    assert found(network="storage", dhcp=True) == []


def test_the_network_that_ssh_uses() -> None:
    line = ": no interface has the network 'management', which SSH uses; write network: "
    assert lines({"name": "eno1"}) == [line + "management for one of them"]
    # Neither without a list, nor for a network that is not declared, which has its line elsewhere.
    assert lines(BOND, access="managment") == []


def test_parents_of_vlans() -> None:
    def vlan(**more: Any) -> list[str]:
        return lines(SSH, {"name": "eno2.7", **more})

    no_parent = "is not an interface of this list; write eno1"
    assert vlan(vlan=7) == ["[1].vlan: no interface carries the VLAN; write parent"]
    assert vlan(parent="eno1", vlan=7) == []
    assert vlan(parent="eno9", vlan=7) == [f"[1].parent: 'eno9' {no_parent}"]
    assert vlan(parent="eno2.7", vlan=7) == [f"[1].parent: 'eno2.7' {no_parent}"]
    missing = "[1].vlan: missing, and the network has none; write the tag"
    assert vlan(parent="eno1") == [missing]
    assert vlan(parent="eno1", network="broken") == [missing]
    assert vlan(parent="eno1", vlan=7, members=["eno3"]) == [
        (
            "[1].parent: a bond has no parent; write the VLAN as a separate interface, with the "
            "bond as its parent"
        )
    ]
    assert lines({**SSH, "parent": "eno9", "vlan": 7}) == [
        "[0].parent: 'eno9' is not an interface of this list; write the parent as an interface, too"
    ]


def test_an_interface_is_written_once() -> None:
    assert lines(SSH, {"name": "bond0", "members": ["eno2", "eno1", "eno2"]}) == [
        "[1].members[1]: 'eno1' is also gpu_nodes.node_interfaces[0].name; write each once",
        "[1].members[2]: 'eno2' is also gpu_nodes.node_interfaces[1].members[0]; write each once",
    ]


def test_addresses_and_routes_that_cannot_be_read() -> None:
    routes = [{"to": "10.8.0.1/16", "via": "10.1.0.2"}, {"to": "10.9.0.0/16", "via": "router"}]
    assert lines({**SSH, "addresses": ["10.9.0.1", "x/24", "10.9.0.2/24"], "routes": routes}) == [
        (
            "[0].addresses[0]: '10.9.0.1' is not an address with its prefix length; write one like "
            "10.1.0.11/24"
        ),
        (
            "[0].addresses[1]: 'x/24' is not an address with its prefix length; write one like "
            "10.1.0.11/24"
        ),
        "[0].routes[0].to: '10.8.0.1/16' cannot be read; write a network like 10.8.0.0/16",
        "[0].routes[1].via: 'router' cannot be read; write an address like 10.1.0.1",
    ]
