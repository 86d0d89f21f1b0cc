#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_upgrade_step
short_description: Which nodes a rolling upgrade takes next
description:
  - Reads all nodes of Slurm, and returns the next batch of an upgrade and those after it. Changes
    nothing.
  - Nodes that are out for this upgrade come first, and no other leaves before they are back.
  - So many nodes are in service at any moment as O(in_service) says.
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
  name:
    description: The name of the upgrade, which is in the reason of the nodes that are out for it.
    type: str
    required: true
  what:
    description: The playbooks that it runs.
    type: list
    elements: str
    required: true
  targets:
    description: The nodes to upgrade, in the order in which they are taken.
    type: list
    elements: str
    required: true
  progress:
    description: What the file of this upgrade holds; nothing for one that begins.
    type: dict
    default: {}
  batch:
    description: Nodes at once.
    type: int
    default: 1
  first:
    description: Nodes in the first batch.
    type: int
    default: 1
  in_service:
    description: Nodes of Slurm that must stay in service, or a share of them such as V(75%).
    type: str
    required: true
  skip:
    description: Nodes to go on without.
    type: list
    elements: str
    default: []
seealso:
  - module: baremetal.dgx.slurm_node
"""

EXAMPLES = r"""
- name: Choose the nodes
  baremetal.dgx.slurm_upgrade_step:
    name: driver
    what: [install_gpu_stack]
    targets: "{{ groups['gpu_nodes'] }}"
    batch: 4
    in_service: 75%
  register: step
"""

RETURN = r"""
batch:
  description: The nodes to change.
  returned: success
  type: list
  elements: str
fresh:
  description: Those of them that leave service for it.
  returned: success
  type: list
  elements: str
left:
  description: Nodes that are left alone, each with C(node) and C(why).
  returned: success
  type: list
  elements: dict
refusal:
  description: Why nothing may be done although there is something to do; empty if it may.
  returned: success
  type: str
remaining:
  description: How many nodes come after the batch.
  returned: success
  type: int
batches:
  description: All that is to come, if each batch passes and nothing else happens.
  returned: success
  type: list
  elements: list
done:
  description: The nodes that are done.
  returned: success
  type: list
  elements: str
held:
  description: The nodes that are out for this upgrade.
  returned: success
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import load
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.upgrade import next_step

ARGUMENT_SPEC: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "what": {"type": "list", "elements": "str", "required": True},
    "targets": {"type": "list", "elements": "str", "required": True},
    "progress": {"type": "dict", "default": {}},
    "batch": {"type": "int", "default": 1},
    "first": {"type": "int", "default": 1},
    "in_service": {"type": "str", "required": True},
    "skip": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    """Read, plan, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    with reported(module, None, ValueError):
        step = next_step(load(ModuleRunner(module)), module.params)
    module.exit_json(changed=False, **step)


if __name__ == "__main__":
    main()
