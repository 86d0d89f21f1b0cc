#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node
short_description: Take nodes out of Slurm and put them back, with an owned reason
description:
  - Drains, resumes or downs nodes with C(scontrol), and waits for their jobs to end.
  - A reason is written as C(OWNER:) and the text. A node is only resumed when its present reason
    has this
    owner; what an administrator, Slurm itself or another tool took out stays out and is returned in
    RV(refused).
  - A node that is out already for another reason keeps that reason. It is out, as was asked
    for.
  - Tools cut reasons at 20 characters, so let the text start with its subject.
  - Runs on any host where C(scontrol) reaches the controller. Tried with Slurm 22.05 and 24.11.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: Where the controller cannot be asked, because earlier tasks have only pretended, no
      node is known.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  nodes:
    description: Names or node sets such as V(dgx-[01-04,07]), as a list or a string.
    type: raw
    required: true
  state:
    description:
      - V(drained) gets no new jobs; those that run go on.
      - V(resumed) gets jobs again. A node that is not out is left alone.
      - V(down) is out at once; B(jobs on it are killed).
    type: str
    choices: [drained, resumed, down]
    required: true
  reason:
    description: Why, beginning with the subject. Required unless O(state=resumed).
    type: str
  owner:
    description: Who owns the reason.
    type: str
    default: dgx
  force:
    description: Also change nodes whose reason belongs to others.
    type: bool
    default: false
  absent_ok:
    description: Whether nodes that Slurm does not know are passed over, and returned in
      RV(unknown).
    type: bool
    default: false
  answering:
    description:
      - With O(state=resumed), owners of reasons. A node that is out with a reason of one of them
        must take connections at the port of its slurmd first, within O(wait_timeout_s), and is
        resumed as soon as it does, whatever the others do. One that does not stays out, and is in
        RV(silent); what Slurm shows of a node in its power-on self test is of before.
      - The connections are made from the host that the module runs on.
    type: list
    elements: str
    default: []
  wait:
    description: Wait until drained or downed nodes have no job left, or until resumed nodes can
      take one.
    type: bool
    default: false
  wait_timeout_s:
    description: Seconds to wait; then the task fails and names the jobs.
    type: int
    default: 3600
  poll_s:
    description: Seconds between two looks.
    type: int
    default: 5
seealso:
  - module: baremetal.dgx.slurm_account
"""

EXAMPLES = r"""
- name: Empty two nodes before their firmware is changed
  baremetal.dgx.slurm_node:
    nodes: dgx-[03-04]
    state: drained
    reason: firmware update
    wait: true
    wait_timeout_s: 7200

- name: Put them back, unless others have taken them out in the meantime
  baremetal.dgx.slurm_node:
    nodes: [dgx-03, dgx-04]
    state: resumed
"""

RETURN = r"""
nodes:
  description: Each node with its state and reason before and after.
  returned: success
  type: dict
  sample:
    dgx-03:
      before: {state: IDLE, reason: ""}
      after: {state: IDLE+DRAIN, reason: "dgx: firmware update"}
changed_nodes:
  description: Names of the nodes that were changed, or would be in check mode.
  returned: success
  type: list
  elements: str
refused:
  description: Nodes that are out for another reason, with C(node), C(state), C(reason) and C(by).
  returned: success
  type: list
  elements: dict
  sample: [{"node": "dgx-07", "state": "IDLE+DRAIN", "reason": "broken fan", "by": "root"}]
silent:
  description: Nodes of O(answering) that do not answer, with C(node) and C(why).
  returned: success
  type: list
  elements: dict
unknown:
  description: Nodes that Slurm does not know.
  returned: success
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm import nodes as slurm

ARGUMENT_SPEC: dict[str, Any] = {
    "nodes": {"type": "raw", "required": True},
    "state": {"choices": ["drained", "resumed", "down"], "required": True},
    "reason": {"type": "str"},
    "owner": {"type": "str", "default": "dgx"},
    "force": {"type": "bool", "default": False},
    "absent_ok": {"type": "bool", "default": False},
    "answering": {"type": "list", "elements": "str", "default": []},
    "wait": {"type": "bool", "default": False},
    "wait_timeout_s": {"type": "int", "default": 3600},
    "poll_s": {"type": "int", "default": 5},
}


def main() -> None:
    """Load, plan, apply, wait, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, run = module.params, ModuleRunner(module)
    changed: list[str] = []
    with reported(module, lambda: {"changed": bool(changed), "changed_nodes": changed}):
        want = slurm.desired(params)
        names, present = slurm.known(module, run, params["nodes"])
        turns = slurm.Turns(run, want, params, module.check_mode)
        plan, before, after = turns.bring_about(names, present, changed)
    result: dict[str, Any] = {
        "changed": bool(plan.updates),
        "nodes": slurm.report(before, after),
        "changed_nodes": plan.changed_names,
        "refused": slurm.refusals(plan),
        "silent": [{"node": name, "why": why} for name, why in turns.silent.items()],
        "unknown": turns.unknown,
    }
    if module._diff:
        result["diff"] = slurm.diff_of(plan, before)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
