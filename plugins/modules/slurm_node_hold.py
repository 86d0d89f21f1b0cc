#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node_hold
short_description: Keep a node free of jobs while something else loads it
description:
  - Asks Slurm whether a node may be loaded, and holds it with its own job that does nothing
    and has the node to itself. To be run where C(scontrol) and C(salloc) are.
  - A node with a job of another user is refused, and so is one that another run of this module
    holds, from whatever machine. One that is drained or down gets a reservation instead, so that no
    job starts when it is resumed meanwhile. When the node is not given back, the time limit
    of the job or the reservation does.
  - Nothing is failed for a node that is refused; RV(may_load) and RV(why) tell.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: In check mode it tells what it would do.
  diff_mode:
    support: none
    details: A job has no former text.
  idempotent:
    support: full
    details: A job that an earlier run has left is taken over.
options:
  node:
    description: The node, by its name in Slurm.
    type: str
    required: true
  state:
    description:
      - V(held) before the load, V(released) after it.
      - V(checked) before each part of the load; it changes nothing, and RV(may_load) tells whether
        the node is still held and has no job of another user.
    type: str
    choices: [held, checked, released]
    default: held
  transport:
    description:
      - V(slurm) holds the node, and refuses one that Slurm does not know.
      - V(auto) holds it where Slurm is there and knows it.
      - V(ssh) holds nothing, and refuses only a node with jobs. A job may start meanwhile.
    type: str
    choices: [auto, ssh, slurm]
    default: auto
  seconds:
    description: Seconds until the job ends by itself. Choose more than the load takes.
    type: float
    default: 3600
  wait_s:
    description: Seconds to wait for the node.
    type: int
    default: 60
  job_name:
    description: Name of the job, before the one of O(owner).
    type: str
    default: dgx-validate
  owner:
    description:
      - Name of the run. Only a job or a reservation of this name is taken for an own one; those of
        other runs are refused, by name.
      - Without it, all runs of the same user are one.
    type: str
    default: ""
  former:
    description: Names of runs that are over, whose job or reservation this one takes over.
    type: list
    elements: str
    default: []
  slurm_options:
    description:
      - More arguments for C(salloc), for example an account, a partition or a reservation. Without
        a partition those of the node are tried.
    type: list
    elements: str
    default: []
seealso:
  - module: baremetal.dgx.slurm_node
"""

EXAMPLES = r"""
- name: Hold the node for half an hour
  baremetal.dgx.slurm_node_hold:
    node: "{{ inventory_hostname }}"
    seconds: 1800
  delegate_to: head-01
  register: hold

- name: Give it back
  baremetal.dgx.slurm_node_hold:
    node: "{{ inventory_hostname }}"
    state: released
  delegate_to: head-01
"""

RETURN = r"""
action:
  description: V(free), V(hold), V(adopt), V(reserve), V(refuse), V(release) or V(none).
  returned: always
  type: str
may_load:
  description: Whether the node may be loaded now.
  returned: always
  type: bool
why:
  description: The reason.
  returned: always
  type: str
busy:
  description: Whether jobs of others are on the node, or may be, since Slurm gives no answer.
  returned: always
  type: bool
job:
  description: Number of the job that holds the node; empty where there is none.
  returned: always
  type: str
reservation:
  description: Name of the reservation that keeps jobs away; empty where there is none.
  returned: always
  type: str
command:
  description: What holds the node, or would in check mode.
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.hold import bring_about

ARGUMENT_SPEC: dict[str, Any] = {
    "node": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["held", "checked", "released"], "default": "held"},
    "transport": {"type": "str", "choices": ["auto", "ssh", "slurm"], "default": "auto"},
    "seconds": {"type": "float", "default": 3600},
    "wait_s": {"type": "int", "default": 60},
    "job_name": {"type": "str", "default": "dgx-validate"},
    "owner": {"type": "str", "default": ""},
    "former": {"type": "list", "elements": "str", "default": []},
    "slurm_options": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    """Hold the node, or give it back, and report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.exit_json(**bring_about(module, ModuleRunner(module)))


if __name__ == "__main__":
    main()
