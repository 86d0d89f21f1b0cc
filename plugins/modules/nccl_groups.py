#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_groups
short_description: Sum over the GPUs of groups of nodes, and halve a bad group down to the culprit
description:
  - Runs C(all_reduce_perf_mpi) as steps of one Slurm job over the nodes of each leaf, unit and rail
    of the cable plan, and over all, the small groups first. To be run where C(salloc) and C(srun)
    are.
  - A group that is not good is run again; two of three runs count. Then it is halved. One node with
    which nothing is good is the culprit, and takes no part in later groups. Two sides that are good
    by themselves and bad together are reported as an interaction, and no node is blamed. A wrong
    sum fails in any case, and the nodes that had one are not known to be good.
  - Where no part of a group is good the checker is asked first. Runs that hang, or do not start,
    are C(not_measured), also when they are traced to one node.
  - Nodes that have jobs, are drained or down take no part, and are C(not_measured). Nodes whose
    GPUs MIG divides take no part either, and pass, since they are asked nothing. It loads GPUs and
    fabric.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.check
  - baremetal.dgx.check.timeout
attributes:
  check_mode:
    details: In check mode the groups are returned. Nothing is run.
options:
  plan:
    description: The cable plan, C(cables.json).
    type: dict
    required: true
  output:
    description: Folder for records, findings and all runs. Nothing is kept without it.
    type: path
  kinds:
    description: Which groups.
    type: list
    elements: str
    choices: [leaf, su, rail, all]
    default: [leaf, su, rail, all]
  exclude:
    description: Nodes that take no part.
    type: list
    elements: str
    default: []
  divided:
    description: Nodes whose GPUs MIG divides. They take no part.
    type: list
    elements: str
    default: []
  gpus_per_node:
    description: How many GPUs each node has.
    type: int
    default: 8
  gpus:
    description: How many GPUs a node has, by node, where it is not O(gpus_per_node).
    type: dict
    default: {}
  threshold_share:
    description: Share of the line rate of the rails in use that the bus bandwidth must reach.
    type: float
    default: 0.75
  threshold_source:
    description: Where O(threshold_share) comes from; it is kept in the records.
    type: str
  size_bytes:
    description: Size that is judged.
    type: int
    default: 8589934592
  iterations:
    description: How often it is measured in one run.
    type: int
    default: 20
  tool:
    description: Name or path of the program. By default C(all_reduce_perf_mpi).
    type: str
    default: ""
  container_image:
    description: Image for C(srun --container-image) (pyxis).
    type: str
    default: ""
  container_mounts:
    description: Mounts for C(srun --container-mounts).
    type: str
    default: ""
  slurm_mpi:
    description: What C(srun --mpi) gets.
    type: str
    default: pmix
  slurm_options:
    description: More arguments for C(salloc), for example a partition or a reservation.
    type: list
    elements: str
    default: []
  slurm_wait_s:
    description: Seconds to wait for the nodes.
    type: int
    default: 60
  environment:
    description: Environment variables. The rails are chosen with C(NCCL_IB_HCA).
    type: dict
    default: {NCCL_ALGO: Ring}
  timeout_s:
    description: Seconds until one run is ended.
    default: 300
  most_runs:
    description: Runs in all.
    type: int
    default: 200
seealso:
  - module: baremetal.dgx.nccl_all_reduce
  - module: baremetal.dgx.fabric_pairs
"""

EXAMPLES = r"""
- name: All groups of the plan
  baremetal.dgx.nccl_groups:
    plan: "{{ lookup('ansible.builtin.file', cluster_state_dir ~ '/plan/fabric/cables.json')
      | from_json }}"
    output: /var/lib/baremetal-dgx/groups
    container_image: /shared/images/pytorch.sqsh
"""

RETURN = r"""
records:
  description:
    - One record for each question; C(verdict) folds them into one, C(counts) has how many there are
      of each status, C(findings) and C(not_measured) a line for each that did not pass.
      C(docs/records.md) describes them all.
  returned: always
  type: list
  elements: dict
groups:
  description: The groups, with C(kind), C(name), C(nodes) and C(rails).
  returned: always
  type: list
  elements: dict
runs:
  description: How many runs there were.
  returned: always
  type: int
"""

import signal
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import look_in_time
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._nccl import session
from ansible_collections.baremetal.dgx.plugins.module_utils._nccl.halving import KINDS

ARGUMENT_SPEC: dict[str, Any] = {
    **check_options(timeout_s=300),
    "plan": {"type": "dict", "required": True},
    "output": {"type": "path"},
    "kinds": {"type": "list", "elements": "str", "choices": list(KINDS), "default": list(KINDS)},
    "exclude": {"type": "list", "elements": "str", "default": []},
    "divided": {"type": "list", "elements": "str", "default": []},
    "gpus_per_node": {"type": "int", "default": 8},
    "gpus": {"type": "dict", "default": {}},
    "threshold_share": {"type": "float", "default": 0.75},
    "threshold_source": {"type": "str"},
    "size_bytes": {"type": "int", "default": 8589934592},
    "iterations": {"type": "int", "default": 20},
    "tool": {"type": "str", "default": ""},
    "container_image": {"type": "str", "default": ""},
    "container_mounts": {"type": "str", "default": ""},
    "slurm_mpi": {"type": "str", "default": "pmix"},
    "slurm_options": {"type": "list", "elements": "str", "default": []},
    "slurm_wait_s": {"type": "int", "default": 60},
    "environment": {"type": "dict", "default": {"NCCL_ALGO": "Ring"}},
    "most_runs": {"type": "int", "default": 200},
}


def main() -> None:
    """Make groups, find free nodes, run, search, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    # Else the nodes stay held until the job's limit.
    signal.signal(signal.SIGTERM, lambda *_which: module.fail_json(msg="was interrupted (TERM)"))
    params, run = module.params, ModuleRunner(module)
    look_in_time(module, [params["output"]])
    result: dict[str, Any] = {"runs": 0}
    with reported(module, result):
        refused = {} if module.check_mode else session.ask_usable(run, session.nodes_of(params))
        groups = session.make_groups(params, refused)
        result["groups"] = [dict(vars(group)) for group in groups]
        problem = session.problem_with(params, groups)
        if problem:
            module.fail_json(msg=problem, **result)
        if module.check_mode:
            finish(module, [], **result)
        outcome = session.ask_groups(run, params, groups, refused)
        result["runs"] = len(outcome.runs)
        session.keep(params["output"], outcome)
    finish(module, outcome.records, **result)


if __name__ == "__main__":
    main()
