# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup target_hosts."""

from __future__ import annotations

DOCUMENTATION = r"""
name: target_hosts
author:
  - The baremetal.dgx authors (@baremetal-dgx)
version_added: 1.0.0
short_description: The hosts that a pattern means, of those that the run is limited to
description:
  - Returns what a play with the pattern as its C(hosts) would work on. The lookup
    C(ansible.builtin.inventory_hostnames) knows nothing of C(--limit).
options:
  _terms:
    description: The pattern.
    required: true
  resumed:
    description:
      - Whether to return them in a run with C(--start-at-task), too. It passes the tasks by which a
        play leaves out hosts that its roles are not for.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Show what would be switched
  ansible.builtin.debug:
    msg: "{{ query('baremetal.dgx.target_hosts', 'gpu_nodes:!dgx-07') }}"
"""

RETURN = r"""
_raw:
  description: Names of hosts, in the inventory's order.
  type: list
  elements: str
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible import context
from ansible.inventory.manager import InventoryManager
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):
    """Asks an inventory with the groups of the running one."""

    def run(
        self, terms: Sequence[Any], variables: Mapping[str, Any] | None = None, **options: Any
    ) -> list[str]:
        """Return the names."""
        self.set_options(var_options=variables, direct=options)
        if context.CLIARGS.get("start_at_task") and not self.get_option("resumed"):
            return []
        known = variables or {}
        manager = InventoryManager(self._loader, parse=False)
        for group, hosts in known["groups"].items():
            manager.add_group(group)
            for host in hosts:
                manager.add_host(host, group=group)
        manager.subset(known.get("ansible_limit"))
        return [host.name for host in manager.get_hosts(pattern=list(terms))]
