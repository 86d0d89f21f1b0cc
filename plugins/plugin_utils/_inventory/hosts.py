# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Hosts and variables of an inventory by the contract: which are its own, and their path. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from .._contract.contract import CLUSTER_GROUP, GROUPS
from .given import READ
from .values import Inventory

# Groups that say nothing about what a host is for.
EVERYBODY = ("all", "ungrouped", CLUSTER_GROUP)


def type_of(inventory: Inventory, host: str) -> str:
    """Return the group that errors name the host by: its first in the contract's order."""
    groups = inventory.memberships.get(host, ())
    for group in GROUPS:
        if group in groups:
            return group
    own = [group for group in groups if group not in EVERYBODY]
    return own[0] if own else "all"


def host_path(inventory: Inventory, host: str, *rest: str) -> str:
    """Return the path of a host, or of one of its variables."""
    return ".".join((type_of(inventory, host), host, *rest))


def known_hosts(inventory: Inventory) -> list[str]:
    """Return the hosts that are in one of the contract's groups, in the inventory's order."""
    members: set[str] = set()
    for group in GROUPS:
        members.update(inventory.groups.get(group, ()))
    return [host for host in inventory.memberships if host in members]


def prefix_owner(name: str, roles: Iterable[str]) -> str | None:
    """Return the prefix that makes the variable one of the collection's, the longest that fits.

    roles are the names of the collection's roles.
    """
    fitting = [prefix for prefix in (*roles, "cluster", "node") if name.startswith(prefix + "_")]
    return max(fitting, key=len) if fitting else None


def concerned(name: str, roles: Iterable[str]) -> bool:
    """Return whether a variable of this name is the collection's to judge."""
    return name in READ or prefix_owner(name, roles) is not None
