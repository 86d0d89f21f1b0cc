# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup host_values."""

from __future__ import annotations

DOCUMENTATION = r"""
name: host_values
author:
  - The baremetal.dgx authors (@baremetal-dgx)
version_added: 1.0.0
short_description: What a task has registered on each of some hosts
description:
  - Returns a variable, or a part of it, of each host that has it.
options:
  _terms:
    description: Names of the hosts.
    type: list
    elements: str
    required: true
  name:
    description: The variable, and with points between them the keys below it.
    type: str
    required: true
  by_host:
    description: Whether to return one mapping by host instead of a list of values.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show the adapters of all nodes that were asked
  ansible.builtin.debug:
    msg: >-
      {{ lookup('baremetal.dgx.host_values', groups['gpu_nodes'], name='seen.adapters',
                by_host=true) }}
"""

RETURN = r"""
_raw:
  description: The values, or one mapping of them by host.
  type: list
  elements: raw
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.plugins.lookup import LookupBase


def value_at(variables: Mapping[str, Any], name: str) -> Any:
    """Return the part of the variables that the dotted name means, None where there is none."""
    found: Any = variables
    for key in name.split("."):
        if not isinstance(found, Mapping) or key not in found:
            return None
        found = found[key]
    return found


class LookupModule(LookupBase):
    """Reads the variables of other hosts."""

    def run(
        self, terms: Sequence[Any], variables: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> list[Any]:
        """Return the values."""
        self.set_options(var_options=variables, direct=kwargs)
        hosts = self._flatten(terms)
        known = (variables or {})["hostvars"]
        found = {host: value_at(known[host], self.get_option("name")) for host in hosts}
        found = {host: value for host, value in found.items() if value is not None}
        return [found] if self.get_option("by_host") else list(found.values())
