# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup plan_folder."""

from __future__ import annotations

DOCUMENTATION = r"""
name: plan_folder
author:
  - The baremetal.dgx authors (@baremetal-dgx)
version_added: 1.0.0
short_description: The folder of the plan that this run works from
description:
  - Returns C(plan), the plan of the inventory's files, or C(extra_plans/DIGEST) in a run whose
    C(-e) values change the plan. Runs at once with different values do not read each other's.
options:
  _terms:
    description: The folder C(.dgx) beside the inventory.
    type: list
    elements: path
    required: true
seealso:
  - module: baremetal.dgx.cluster_plan
  - plugin: baremetal.dgx.plan_inputs
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Read the plan
  ansible.builtin.set_fact:
    plan: "{{ lookup('file', folder ~ '/plan.json') | from_json }}"
  vars:
    folder: "{{ lookup('baremetal.dgx.plan_folder', '/srv/cluster/.dgx') }}"
"""

RETURN = r"""
_raw:
  description: The path of the folder.
  type: list
  elements: path
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.plugins.lookup import LookupBase

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.run_plan import folder_of_run


class LookupModule(LookupBase):
    """Reads what the command line says."""

    def run(
        self, terms: Sequence[Any], variables: Mapping[str, Any] | None = None, **_options: Any
    ) -> list[str]:
        """Return the path."""
        return [folder_of_run(str(term), self._loader) for term in terms]
