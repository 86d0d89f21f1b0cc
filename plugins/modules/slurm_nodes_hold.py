#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_nodes_hold
short_description: Keep many nodes free of jobs while something else loads them
description:
  - Decides about each node as M(baremetal.dgx.slurm_node_hold) does, with few commands for all of
    them. To be run where C(scontrol) and C(salloc) are.
  - Nodes that Slurm can give share jobs, nodes that are out of service share one reservation. What
    Slurm refuses is asked for again in parts. Jobs and reservations end by their own limit.
  - It fails before it holds anything where Slurm has a node that O(known) lacks, and where no
    partition of a node lets a job last for O(seconds).
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
    details: Jobs that an earlier run has left are taken over.
options:
  nodes:
    description: The nodes, by their names in Slurm.
    type: list
    elements: str
    required: true
  state:
    description: V(held) before the load, V(released) after it.
    type: str
    choices: [held, released]
    default: held
  reserved:
    description: With O(state=released), more nodes, of which only a reservation of one node is
      deleted, and no job is ended.
    type: list
    elements: str
    default: []
  transport:
    description:
      - V(slurm) holds the nodes, and refuses those that Slurm does not know.
      - V(auto) holds those that Slurm knows.
      - V(ssh) holds nothing, and refuses only nodes with jobs.
    type: str
    choices: [auto, ssh, slurm]
    default: auto
  starts:
    description: Whether Slurm also starts what loads the nodes. Those that are out of service are
      then not reserved, since Slurm starts nothing there.
    type: bool
    default: false
  known:
    description: All hosts of the inventory; empty to accept any node of Slurm's.
    type: list
    elements: str
    default: []
  most:
    description: Most nodes of one job.
    type: int
    default: 128
  seconds:
    description: Seconds until the jobs end by themselves. Choose more than the load takes.
    type: float
    default: 3600
  wait_s:
    description: Seconds to wait for a job.
    type: int
    default: 15
  job_name:
    description: Name of the jobs, before the one of O(owner).
    type: str
    default: dgx-validate
  owner:
    description: Name of the run; see M(baremetal.dgx.slurm_node_hold).
    type: str
    default: ""
  former:
    description: Names of runs that are over, whose jobs and reservations this one takes over.
    type: list
    elements: str
    default: []
  slurm_options:
    description: More arguments for C(salloc), for example an account or a partition. Without a
      partition those of the nodes are tried, up to three, before a job is asked for in parts.
    type: list
    elements: str
    default: []
seealso:
  - module: baremetal.dgx.slurm_node_hold
"""

EXAMPLES = r"""
- name: Hold the nodes for half an hour
  baremetal.dgx.slurm_nodes_hold:
    nodes: "{{ ansible_play_hosts }}"
    seconds: 1800
  delegate_to: head-01
  run_once: true
  register: held

- name: Give them back
  baremetal.dgx.slurm_nodes_hold:
    nodes: "{{ ansible_play_hosts }}"
    state: released
  delegate_to: head-01
  run_once: true
"""

RETURN = r"""
nodes:
  description: By node, C(action), C(may_load), C(why) and C(busy), as
    M(baremetal.dgx.slurm_node_hold) returns them.
  returned: always
  type: dict
jobs:
  description: By the number of a job, the nodes that it holds.
  returned: always
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.hold_many import bring_about

ARGUMENT_SPEC: dict[str, Any] = {
    "nodes": {"type": "list", "elements": "str", "required": True},
    "state": {"type": "str", "choices": ["held", "released"], "default": "held"},
    "reserved": {"type": "list", "elements": "str", "default": []},
    "transport": {"type": "str", "choices": ["auto", "ssh", "slurm"], "default": "auto"},
    "starts": {"type": "bool", "default": False},
    "known": {"type": "list", "elements": "str", "default": []},
    "most": {"type": "int", "default": 128},
    "seconds": {"type": "float", "default": 3600},
    "wait_s": {"type": "int", "default": 15},
    "job_name": {"type": "str", "default": "dgx-validate"},
    "owner": {"type": "str", "default": ""},
    "former": {"type": "list", "elements": "str", "default": []},
    "slurm_options": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    """Hold the nodes, or give them back, and report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    with reported(module):
        result = bring_about(module, ModuleRunner(module))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
