# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter node_address."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_address
short_description: Address of a node on one network of the cluster
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal)
description:
  - Takes a host name and returns the node's address as the inventory contract defines it.
  - The node's own address wins. Otherwise the address of node number 1 of its group is counted up
    to the node's number.
positional: first_address, addresses, network, number
options:
  _input:
    description: The host name, normally C(inventory_hostname).
    type: str
    required: true
  first_address:
    description: The value of C(node_first_address), the address of node number 1 by network name.
    type: dict
    default: {}
  addresses:
    description: The value of C(node_address), the node's own addresses by network name.
    type: dict
    default: {}
  network:
    description: Name of the network.
    type: str
    default: management
  number:
    description: The value of C(node_number). Without it, the number that the host name ends in.
    type: int
"""

EXAMPLES = r"""
# group_vars/all/node.yml: where SSH goes, for each node of the cluster
ansible_host: >-
  {{ inventory_hostname
     | baremetal.dgx.node_address(node_first_address | default({}), node_address | default({}),
                                  cluster_access_network | default('management'),
                                  node_number | default(none)) }}

# dgx-07 is 10.1.0.17 where the first node is 10.1.0.11
storage_address: >-
  {{ 'dgx-07' | baremetal.dgx.node_address({'storage': '10.1.0.11'}, network='storage') }}
"""

RETURN = r"""
_value:
  description: The address.
  type: str
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def node_address(
    name: str,
    first_address: Mapping[str, Any] | None = None,
    addresses: Mapping[str, Any] | None = None,
    network: str = "management",
    number: int | str | None = None,
) -> str:
    """Return the node's address on the network; AnsibleFilterError says which variable lacks."""
    from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory import (
        values as _inventory,
    )

    try:
        return _inventory.node_address(name, first_address, addresses, network, number)
    except ValueError as exc:
        raise AnsibleFilterError(f"node_address: {exc}") from exc


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"node_address": node_address}
