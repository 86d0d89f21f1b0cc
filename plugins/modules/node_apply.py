#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_apply
short_description: Have nodes apply their own roles
description:
  - Sends each node ansible-core with this collection, and the finished values of its roles, both
    only where the node has another version of them, and has the node run its roles on itself. The
    control machine then only waits for one line of each node.
  - A node gets the inputs of the roles that it runs, for root alone. No inventory, no key and no
    password of another host is sent.
  - Refused for roles that need another host, which their tasks show, by O(roles) and node.
  - A node that is not reached, does not answer in time, answers in part, or is being worked on by
    another run, is V(not_measured), and the others go on.
  - Runs on the controller, as an action plugin, and uses ssh there.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: The nodes run their roles in check mode. What they lack is sent in any case.
  diff_mode:
    support: none
    details: Differences stay on the nodes.
  idempotent:
    support: full
options:
  hosts:
    description: A pattern of nodes, in the words of an inventory.
    type: str
    default: gpu_nodes:cpu_nodes
  plan_dir:
    description: The folder of the plan that check_inventory has made.
    type: path
    required: true
  roles:
    description: Only these of the roles that the plan has for a node; all when empty.
    type: list
    elements: str
    default: []
  state:
    description:
      - V(checked) fails for roles that need another host, and asks no node.
      - V(applied) does not fail for what it finds on nodes, so that what was locked for it can be
        unlocked; RV(unfinished) are nodes that are not as planned.
    type: str
    choices: [applied, checked]
    default: applied
  at_once:
    description: How many nodes are asked at the same time.
    type: int
    default: 100
  limit_s:
    description: Seconds that a node may take for its roles.
    type: float
    default: 1800
  total_s:
    description: Seconds that all of it may take. Nodes that were not asked by then are named.
    type: float
    default: 86400
seealso:
  - module: baremetal.dgx.cluster_plan
"""

EXAMPLES = r"""
- name: Have all GPU nodes apply their roles
  baremetal.dgx.node_apply:
    hosts: gpu_nodes
    plan_dir: "{{ inventory_dir }}/.dgx/plan"
  run_once: true
"""

RETURN = r"""
applied:
  description: The roles of each node that is meant.
  returned: always
  type: dict
nodes:
  description: By node, C(outcome) (V(done), V(failed) or V(not_measured)), C(why), how many tasks
    C(changed) something, and the names of these tasks in C(changes).
  returned: when nodes were asked
  type: dict
unfinished:
  description: Nodes that are not V(done).
  returned: when nodes were asked
  type: list
  elements: str
lines:
  description: How it ended, as lines for people.
  returned: when nodes were asked
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

ARGUMENTS: dict[str, Any] = {
    "hosts": {"type": "str", "default": "gpu_nodes:cpu_nodes"},
    "plan_dir": {"type": "path", "required": True},
    "roles": {"type": "list", "elements": "str", "default": []},
    "state": {"type": "str", "choices": ["applied", "checked"], "default": "applied"},
    "at_once": {"type": "int", "default": 100},
    "limit_s": {"type": "float", "default": 1800},
    "total_s": {"type": "float", "default": 86400},
}


def main() -> None:
    """Say that the work is not done here: the action plugin of this name never comes this far."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    module.fail_json(msg="node_apply asks nodes from the control machine and cannot run on a host")


if __name__ == "__main__":
    main()
