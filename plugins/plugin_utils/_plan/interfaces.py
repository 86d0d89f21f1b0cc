# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Interfaces of one host: bonds, VLANs, and the networks that they carry. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ...module_utils._core.schema import Problem, words
from .._inventory.values import Value
from .networks import Network, unknown_network

NAME = "node_interfaces"

# The other way for rails of Ethernet.
BY_SITE = ", or, where the site configures the rails, write infiniband_network_manager: none"


def check_interfaces(
    variables: Mapping[str, Value],
    known: Mapping[str, Any],
    networks: Mapping[str, Network],
    addressed: Collection[str],
    access: str,
    rails: Collection[str] = (),
) -> Iterator[Problem]:
    """Yield what no network of a host can be made of.

    known are all declared networks, networks the valid ones, addressed those on which the host has
    an address, access the one that SSH uses, rails those that the role infiniband configures.
    """
    value = variables.get(NAME)
    if value is None:
        return
    items = value.value
    yield from _check_names(value.path, items)
    names = [item["name"] for item in items]
    carried: dict[str, str] = {}
    for index, item in enumerate(items):
        where = f"{value.path}[{index}]"
        yield from _check_parent(where, item, names, networks)
        yield from _check_texts(where, item)
        network = item.get("network")
        if network is None:
            continue
        if network not in known:
            yield unknown_network(f"{where}.network", network, known)
            continue
        if network in carried:
            wrong = f"'{network}' is also the network of {carried[network]}"
            yield Problem(f"{where}.network", wrong, "write it once")
        carried.setdefault(network, item["name"])
        infiniband = network in networks and networks[network].kind == "infiniband"
        if infiniband or network in rails:
            wrong = f"'{network}' is a rail, whose port the role infiniband configures"
            if infiniband:
                wrong = (
                    f"'{network}' is InfiniBand, whose ports the role infiniband configures on "
                    "nodes with rails, and the site elsewhere"
                )
            yield Problem(f"{where}.network", wrong, "remove it" + ("" if infiniband else BY_SITE))
        elif network not in addressed and not item.get("dhcp"):
            wrong = f"this host has no address on '{network}'"
            yield Problem(f"{where}.network", wrong, "write it in node_address, or dhcp: true")
    # One that is misspelt has been named.
    spelt = all(item.get("network") in {None, *known} for item in items)
    if items and spelt and access in known and access not in carried:
        wrong = f"no interface has the network '{access}', which SSH uses"
        yield Problem(value.path, wrong, f"write network: {access} for one of them")


def _check_names(path: str, items: Any) -> Iterator[Problem]:
    """Yield interfaces that are written twice: as interface, as member, or as both."""
    seen: dict[str, str] = {}
    for index, item in enumerate(items):
        places = [(f"{path}[{index}].name", item["name"])]
        places += [
            (f"{path}[{index}].members[{number}]", member)
            for number, member in enumerate(item.get("members") or ())
        ]
        for where, name in places:
            if name in seen:
                yield Problem(where, f"'{name}' is also {seen[name]}", "write each once")
            seen.setdefault(name, where)


def _check_parent(
    where: str, item: Mapping[str, Any], names: Collection[str], networks: Mapping[str, Network]
) -> Iterator[Problem]:
    network = networks.get(item.get("network") or "")
    tag = item.get("vlan") or (network.vlan if network else None)
    parent = item.get("parent")
    if parent is None:
        if item.get("vlan"):
            yield Problem(f"{where}.vlan", "no interface carries the VLAN", "write parent")
        return
    if item.get("members"):
        yield Problem(
            f"{where}.parent",
            "a bond has no parent",
            "write the VLAN as a separate interface, with the bond as its parent",
        )
    if parent not in names or parent == item["name"]:
        others = [name for name in names if name != item["name"]]
        yield Problem(
            f"{where}.parent",
            f"'{parent}' is not an interface of this list",
            f"write {words(others)}" if others else "write the parent as an interface, too",
        )
    if not tag:
        yield Problem(f"{where}.vlan", "missing, and the network has none", "write the tag")


def _check_texts(where: str, item: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield invalid addresses and routes."""
    for index, text in enumerate(item.get("addresses") or ()):
        try:
            address = ipaddress.ip_interface(text)
        except ValueError:
            address = None
        # The scope of an IPv6 address may be any text.
        if address is None or "/" not in text or "%" in text:
            yield Problem(
                f"{where}.addresses[{index}]",
                f"'{text}' is not an address with its prefix length",
                "write one like 10.1.0.11/24",
            )
    for index, route in enumerate(item.get("routes") or ()):
        for key, parse, like in (
            ("to", ipaddress.ip_network, "a network like 10.8.0.0/16"),
            ("via", ipaddress.ip_address, "an address like 10.1.0.1"),
        ):
            try:
                parse(route[key].replace("%", " "))
            except ValueError:
                path = f"{where}.routes[{index}].{key}"
                yield Problem(path, f"'{route[key]}' cannot be read", f"write {like}")
