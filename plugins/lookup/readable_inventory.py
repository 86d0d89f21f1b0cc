# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup readable_inventory."""

from __future__ import annotations

DOCUMENTATION = r"""
name: readable_inventory
short_description: The hosts of a play, once Ansible can read the variables of the inventory
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Returns what it is given. A file below C(group_vars) or C(host_vars) that is not YAML, that
    holds no variables, or that is encrypted while no password is given that opens it, is refused by
    its name; Ansible itself ends in an error that names no file.
  - It is for the O(ignore:hosts) of a play, which Ansible evaluates before it loads variables of
    hosts.
options:
  _terms:
    description: Patterns of hosts.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Check the inventory
  hosts: "{{ lookup('baremetal.dgx.readable_inventory', 'localhost:all') }}"
"""

RETURN = r"""
_raw:
  description: The patterns as they were given.
  type: list
  elements: str
"""

from collections.abc import Sequence
from typing import Any

from ansible import context
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.files import find_closed


class LookupModule(LookupBase):
    """Looks at the sources of the inventory on the command line, or those of ansible.cfg."""

    def run(
        self, terms: Sequence[str], variables: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[str]:
        """Return the patterns, or refuse the files."""
        self.set_options(var_options=variables, direct=kwargs)
        vault = getattr(self._loader, "_vault", None)
        groups = (variables or {}).get("groups", {})
        names = {*groups, *(host for hosts in groups.values() for host in hosts)}
        problems = find_closed(context.CLIARGS.get("inventory") or (), names, vault)
        lines = [str(problem) for problem in problems]
        if lines:
            raise AnsibleLookupError("; ".join(lines))
        return list(terms)
