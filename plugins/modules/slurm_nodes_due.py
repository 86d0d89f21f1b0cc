#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_nodes_due
short_description: Idle nodes that have not been tested under load for some days
description:
  - Reads all nodes of Slurm, and returns those to test now, the longest untested first. Changes
    nothing.
  - A node that is drained, reserved, planned for a job, or not answering is never among them.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: Nothing is changed.
  idempotent:
    support: full
options:
  verdicts:
    description: Verdicts as the lookup P(baremetal.dgx.node_verdicts#lookup) gives them. With its
      option C(looks) a test counts beside a later one of a lesser level, and one that measured
      only some parts counts, too. Nodes that were C(tried) in vain come after those that were
      untested for longer than that.
    type: list
    elements: dict
    required: true
  level:
    description: How deeply a node must have been tested for it to count.
    type: str
    choices: [quick, standard, burn_in]
    default: standard
  days:
    description: For how long a test counts.
    type: float
    default: 7
  most:
    description: Nodes at once.
    type: int
    default: 1
seealso:
  - plugin: baremetal.dgx.node_verdicts
    plugin_type: lookup
  - module: baremetal.dgx.slurm_node_hold
"""

EXAMPLES = r"""
- name: Choose idle nodes
  baremetal.dgx.slurm_nodes_due:
    verdicts: "{{ query('baremetal.dgx.node_verdicts', groups['gpu_nodes'], folder='.dgx',
                        looks=true) }}"
    most: 4
  register: due
"""

RETURN = r"""
nodes:
  description: Their names.
  returned: success
  type: list
  elements: str
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.due import due
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import load

ARGUMENT_SPEC: dict[str, Any] = {
    "verdicts": {"type": "list", "elements": "dict", "required": True},
    "level": {"choices": ["quick", "standard", "burn_in"], "default": "standard"},
    "days": {"type": "float", "default": 7},
    "most": {"type": "int", "default": 1},
}


def main() -> None:
    """Read, choose, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    with reported(module):
        nodes = load(ModuleRunner(module))
    found = due(
        nodes, params["verdicts"], time.time(), params["level"], params["days"], params["most"]
    )
    module.exit_json(changed=False, nodes=found)


if __name__ == "__main__":
    main()
