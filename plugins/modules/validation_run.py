#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: validation_run
short_description: Run the program of validate_nodes on many nodes at once
description:
  - Starts what M(baremetal.dgx.validation_program) has made on all nodes at once, as steps of
    Slurm jobs that hold them, or by ClusterShell, and takes what they answer.
  - To be run where C(srun) is, or on the control machine for ClusterShell.
  - What has come is in O(folder). When the module, or what it started, is killed, the next call
    starts all again. Nodes ask again what only asks, and repeat what loads they have answered
    since their boot.
  - A group that cannot be started, such as one whose job is gone, is tried a few times, and costs
    the others nothing.
  - A node from which nothing comes for O(silent_s) is given up; the others are waited for.
  - By ClusterShell, a node whose connection breaks is started again a few times while the others go
    on, and nodes beyond O(fanout) wait for their turn.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: Nothing is started.
  diff_mode:
    support: none
    details: Nothing is changed.
  idempotent:
    support: full
    details: No load is put on a node twice.
options:
  engine:
    description: What starts the program.
    type: str
    choices: [slurm, clustershell]
    required: true
  state:
    description: V(finished) runs the program, V(ready) only checks whether the engine's tools are
      there, and fails where one is not, unless they are not O(required).
    type: str
    choices: [ready, finished]
    default: finished
  required:
    description: Whether V(ready) fails without the tools.
    type: bool
    default: true
  run:
    description: Name of the run; a node keeps its answers by it.
    type: str
  program:
    description: The program, on this host.
    type: path
  asked:
    description: A JSON file on this host with the parts of each node.
    type: path
  folder:
    description: Where answers are kept; only this user may look into it.
    type: path
  groups:
    description: For Slurm, by the number of a job, the nodes of it that are asked. For
      ClusterShell, the nodes by any name; all of O(asked) without it.
    type: dict
    default: {}
  python:
    description: Python on the nodes, 3.8 or later.
    type: path
    default: /usr/bin/python3
  seconds:
    description: Seconds until all is given up.
    type: float
    default: 3600
  silent_s:
    description: Seconds without a line after which a node is given up. Nodes at work send one
      every 30 seconds.
    type: float
    default: 300
  ssh_script:
    description: For ClusterShell without a tree, the script that is run in the place of C(ssh), and
      knows the way to each node.
    type: path
  become_words:
    description: For ClusterShell in a tree, what is before a command to become root on the nodes.
      The nodes of a tree must agree.
    type: list
    elements: str
    default: []
  fanout:
    description: For ClusterShell, how many connections there are at a time.
    type: int
    default: 256
  topology:
    description: For ClusterShell, the file of its tree; without it, each node is reached directly.
    type: path
seealso:
  - module: baremetal.dgx.slurm_nodes_hold
"""

EXAMPLES = r"""
- name: Run the program in the jobs that hold the nodes
  baremetal.dgx.validation_run:
    engine: slurm
    run: 3fa1c2d4
    program: /var/lib/baremetal-dgx/validation_runs/3fa1c2d4/program
    asked: /var/lib/baremetal-dgx/validation_runs/3fa1c2d4/asked.json
    folder: /var/lib/baremetal-dgx/validation_runs/3fa1c2d4/spool
    groups: {"1234": [dgx-01, dgx-02]}
  delegate_to: head-01
"""

RETURN = r"""
ready:
  description: Whether the engine's tools are there.
  returned: always
  type: bool
files:
  description: Compressed files on this host with all that has come.
  returned: always
  type: list
  elements: str
missing:
  description: The nodes that have not answered all that they were asked.
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.engine import (
    bring_about,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "engine": {"type": "str", "choices": ["slurm", "clustershell"], "required": True},
    "state": {"type": "str", "choices": ["ready", "finished"], "default": "finished"},
    "required": {"type": "bool", "default": True},
    "run": {"type": "str"},
    "program": {"type": "path"},
    "asked": {"type": "path"},
    "folder": {"type": "path"},
    "groups": {"type": "dict", "default": {}},
    "python": {"type": "path", "default": "/usr/bin/python3"},
    "seconds": {"type": "float", "default": 3600},
    "silent_s": {"type": "float", "default": 300},
    "ssh_script": {"type": "path"},
    "become_words": {"type": "list", "elements": "str", "default": []},
    "fanout": {"type": "int", "default": 256},
    "topology": {"type": "path"},
}


def main() -> None:
    """Start, take, report."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
        required_if=[("state", "finished", ("run", "program", "asked", "folder"))],
    )
    with reported(module, None, ValueError):
        result = bring_about(module, ModuleRunner(module))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
