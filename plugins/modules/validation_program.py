#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: validation_program
short_description: Make the program by which many nodes validate themselves at once
description:
  - Makes one program with what each node is asked by C(validate_nodes), for
    M(baremetal.dgx.validation_run). The options of the checks are those of the tasks of
    C(validate_nodes), templated for each node.
  - A run that was killed is gone on with when the same is asked again; RV(run) is then its name.
  - Runs on the controller, as an action plugin.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: Nothing is written.
  diff_mode:
    support: none
    details: What is made is for one run.
  idempotent:
    support: full
    details: The same question leads to the same run until its records are saved.
options:
  hosts:
    description: The hosts of the play.
    type: list
    elements: str
    required: true
  level:
    description: The level of C(validate_nodes).
    type: str
    required: true
  parts:
    description: Parts that this run switches off or on.
    type: dict
    default: {}
  engine:
    description: What starts the program.
    type: str
    choices: [slurm, clustershell]
    required: true
  beside:
    description: Whether ClusterShell starts the program on the nodes that Slurm does not hold.
    type: bool
    default: false
  state_dir:
    description: The folder of the cluster's state.
    type: path
    required: true
  plan_dir:
    description: The plan.
    type: path
    required: true
  held:
    description: What M(baremetal.dgx.slurm_nodes_hold) returned; empty where there is no Slurm.
    type: dict
    default: {}
  hold:
    description: C(owner), C(former), C(transport) and C(job_name) of the hold, with which nodes
      ask before each load whether they may; empty where there is no Slurm.
    type: dict
    default: {}
  seconds:
    description: How long a run that was killed may be gone on with.
    type: float
    required: true
  since:
    description: A time since which answers count, for a caller that has changed the nodes. A run
      that was killed before is not gone on with.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Make the program
  baremetal.dgx.validation_program:
    hosts: "{{ ansible_play_hosts }}"
    level: standard
    engine: slurm
    state_dir: "{{ inventory_dir }}/.dgx"
    plan_dir: "{{ inventory_dir }}/.dgx/plan"
    held: "{{ held }}"
    seconds: 7200
  run_once: true
"""

RETURN = r"""
run:
  description: Name of the run.
  returned: always
  type: str
folder:
  description: Folder with C(program), C(asked.json), C(ways/) to the nodes and what they are asked.
  returned: always
  type: str
groups:
  description: By job, the nodes that Slurm starts the program on.
  returned: always
  type: dict
beside:
  description: The nodes that ClusterShell starts the program on, and why Slurm gave each no job.
  returned: always
  type: dict
nodes:
  description: The nodes that are asked.
  returned: always
  type: list
  elements: str
left:
  description: Nodes that this engine cannot start anything on, by why.
  returned: always
  type: dict
become:
  description: For ClusterShell, each of the ways in which the nodes' users become root.
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

# The action plugin, which does the work, takes the same.
ARGUMENTS: dict[str, Any] = {
    "hosts": {"type": "list", "elements": "str", "required": True},
    "level": {"type": "str", "required": True},
    "parts": {"type": "dict", "default": {}},
    "engine": {"type": "str", "choices": ["slurm", "clustershell"], "required": True},
    "beside": {"type": "bool", "default": False},
    "state_dir": {"type": "path", "required": True},
    "plan_dir": {"type": "path", "required": True},
    "held": {"type": "dict", "default": {}},
    "hold": {"type": "dict", "default": {}},
    "seconds": {"type": "float", "required": True},
    "since": {"type": "str", "default": ""},
}


def main() -> None:
    """Say that the work is not done here: the action plugin of this name never comes this far."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    module.fail_json(msg="validation_program reads the plan on the controller, and runs there only")


if __name__ == "__main__":
    main()
