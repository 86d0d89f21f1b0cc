# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup repair_parts."""

from __future__ import annotations

DOCUMENTATION = r"""
name: repair_parts
short_description: Parts that fail again and again, and the nodes that are kept out because of them
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Reads the incidents and the histories of parts by their names for life, such as serial numbers,
    which a part takes along into another host.
options:
  _terms:
    description: Names of the nodes.
    type: list
    elements: str
    required: true
  folder:
    description: The folder C(.dgx) beside the inventory.
    type: path
    required: true
  verdicts:
    description: Verdicts as the lookup P(baremetal.dgx.node_verdicts#lookup) gives them; the parts
      that they are about are looked up.
    type: list
    elements: dict
    default: []
seealso:
  - module: baremetal.dgx.repair_step
  - module: baremetal.dgx.slurm_gate
"""

EXAMPLES = r"""
- name: Show the nodes that are kept out
  ansible.builtin.debug:
    msg: "{{ lookup('baremetal.dgx.repair_parts', groups['gpu_nodes'], folder='.dgx').kept }}"
"""

RETURN = r"""
_raw:
  description: A mapping. C(names) and C(serials) have the part of each subject, C(offenders) parts
    that fail again and again, each with why, C(kept) a list of C(node), C(part) and C(why), and
    C(repaired) by node C(kind), C(text) and C(boots) of its open incident, once a step has booted
    it.
  type: list
  elements: dict
"""

from collections.abc import Sequence
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.baremetal.dgx.plugins.plugin_utils._operations.repair_parts import (
    repair_parts,
)


class LookupModule(LookupBase):
    """Reads the book of incidents and the evidence."""

    def run(self, terms: Sequence[Any], variables: Any = None, **kwargs: Any) -> list[Any]:
        """Return what is known; AnsibleLookupError where a file cannot be read."""
        self.set_options(var_options=variables, direct=kwargs)
        nodes = [str(name) for name in self._flatten(terms)]
        try:
            return [repair_parts(self.get_option("folder"), nodes, self.get_option("verdicts"))]
        except (OSError, ValueError) as error:
            raise AnsibleLookupError(f"repair_parts: {error}") from error
