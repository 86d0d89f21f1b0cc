# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the inventory says, as plain values, and number and address of a node from it. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...module_utils._core.schema import Opaque, Problem, Unresolved

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_hidden(value: Any) -> bool:
    """Return whether the value, or a part of it, is not known here: a secret, or from a fact."""
    if isinstance(value, Mapping):
        return any(map(is_hidden, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(is_hidden, value))
    return isinstance(value, (Opaque, Unresolved))


@dataclass(frozen=True)
class Value:
    """The value of a variable for one host, and where it is written (`gpu_nodes.node_profile`)."""

    value: Any
    path: str


@dataclass(frozen=True)
class Inventory:
    """Groups and hosts, each host with those of its variables that concern the collection."""

    # The hosts of each group, those of groups below it included, in the inventory's order.
    groups: Mapping[str, tuple[str, ...]]
    # Groups below the group that all nodes are in, itself included.
    cluster_groups: tuple[str, ...]
    hosts: Mapping[str, Mapping[str, Value]]
    # Where variables that do not belong to the collection are written, by name.
    others: Mapping[str, str] = field(default_factory=dict)
    # The folder of the file that names the first of the hosts.
    directory: str | None = None
    # What is written for groups of the contract that have no host, and no host gets.
    unread: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # What was found wrong while it was read.
    problems: tuple[Problem, ...] = ()
    # Names that its templates refer to, directly or not.
    names: frozenset[str] = frozenset()
    # Why Ansible could not read hosts: what else would be found follows from that.
    unreadable: tuple[Problem, ...] = ()
    # Secrets that are written as they are, as warnings.
    clear_texts: tuple[str, ...] = ()
    # Hosts that SSH finds by their names alone.
    by_name: tuple[str, ...] = ()
    # What templates of ansible_host make, by host.
    addresses: Mapping[str, str] = field(default_factory=dict)
    # What ansible_host is elsewhere.
    reached: Mapping[str, str] = field(default_factory=dict)
    # As whom Ansible logs in over SSH, by host, where the inventory says it.
    logins: Mapping[str, Value] = field(default_factory=dict)
    # Addresses at which SSH finds one machine for several hosts, with those.
    shared: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @cached_property
    def memberships(self) -> dict[str, tuple[str, ...]]:
        """The groups that each host is in."""
        found: dict[str, tuple[str, ...]] = {}
        for group, hosts in self.groups.items():
            for host in hosts:
                found[host] = (*found.get(host, ()), group)
        return found


_TRAILING_DIGITS = re.compile(r"[0-9]+$")


def trailing_number(name: str) -> int | None:
    """Return the number that the short host name ends in, None when it ends in none."""
    found = _TRAILING_DIGITS.search(name.split(".")[0])
    return int(found.group()) if found else None


def parse_address(text: Any) -> Address:
    """Return the address that the text means; ValueError says in words that it means none."""
    # ip_address() takes integers too, and 10 would silently become 0.0.0.10.
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not an IP address")
    try:
        # The scope of an IPv6 address may be any text, a command of the shell for instance.
        return ipaddress.ip_address(text.strip().replace("%", " "))
    except ValueError:
        raise ValueError(f"'{text}' is not an IP address") from None


def node_address(
    name: str,
    first_address: Mapping[str, Any] | None = None,
    addresses: Mapping[str, Any] | None = None,
    network: str = "management",
    number: int | str | None = None,
) -> str:
    """Return the address of a node on one network.

    Its own address there wins; else the address of node number 1 is counted up to the node's
    number, which is the number the host name ends in unless one is given.
    ValueError names the variable to write when neither leads to an address.
    """
    # Up to ansible-core 2.18 a filter's other errors end the run, without its variable.
    for variable, given in (("node_address", addresses), ("node_first_address", first_address)):
        if given and not isinstance(given, Mapping):
            raise ValueError(f"{variable} of {name} is {given!r}; write an address for a network")
    own = (addresses or {}).get(network)
    if own is not None:
        return str(parse_address(own))
    first = (first_address or {}).get(network)
    if first is None:
        raise ValueError(
            f"{name} has no address on network '{network}'; write node_address.{network} for the "
            f"host, or node_first_address.{network} for its group"
        )
    counted = trailing_number(name) if number in (None, "") else int(str(number))
    if counted is None:
        raise ValueError(
            f"the host name '{name}' ends in no number to count its address on network '{network}' "
            f"with; write node_number or node_address.{network} for the host"
        )
    if counted < 1:
        raise ValueError(f"{name} has node number {counted}; numbers begin with 1")
    try:
        return str(parse_address(first) + (counted - 1))
    except ipaddress.AddressValueError:
        raise ValueError(
            f"node {counted} on network '{network}' is beyond the last address"
        ) from None
