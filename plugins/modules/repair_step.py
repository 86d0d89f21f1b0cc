#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: repair_step
short_description: The next step of repair of each node that is out of service
description:
  - Keeps the incidents of a cluster as lines in a file, one for each node that the gate or its
    health program has drained, and says which step of repair is due. The least step comes first;
    each is taken once in an incident, and O(times) times in O(days) days because of one part.
  - A step that is due has been noted as begun when the module returns, so that a run that is killed
    does not repeat it.
  - A node with a job on it, one that others drained, and one that is down get no step. Where many
    nodes fail one check, none of them does, since the cause is not theirs.
  - Lets no node in. An incident is over when the gate, or the operator, has let its node in.
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
    details: The events are returned.
  idempotent:
    support: none
    details: A step that is due begins.
options:
  folder:
    description: Folder of the incidents, on the host that the module runs on.
    type: path
    required: true
  state:
    description:
      - V(due) compares nodes and verdicts with the incidents, and begins what is due.
      - V(judged) is the same without a new step.
      - V(confirmed) fails where no step may be taken on O(node) any more.
      - V(unswept) names the nodes that the gate would let in if the fabric had been swept since it
        drained them.
      - V(ended) notes that O(step) of O(incident) is over.
    type: str
    choices: [due, judged, confirmed, ended, unswept]
    default: due
  nodes:
    description: What C(scontrol show node -o) prints, with the environment C(TZ=UTC) and
      C(SLURM_TIME_FORMAT=standard).
    type: str
    default: ""
  verdicts:
    description: Verdicts as the lookup P(baremetal.dgx.node_verdicts#lookup) gives them.
    type: list
    elements: dict
    default: []
  gate_verdicts:
    description: With O(state=unswept), the verdicts that the gate lets nodes in by, while
      O(verdicts) are as old as what the nodes themselves were asked.
    type: list
    elements: dict
    default: []
  now:
    description: The time, in seconds since the epoch, by the clock of the cluster, which its nodes
      date evidence by. By default that of the host that the module runs on.
    type: float
  targets:
    description: The nodes that this is about. Incidents of others stay as they are.
    type: list
    elements: str
    default: []
  steps:
    description: Steps that may be taken.
    type: list
    elements: str
    choices: [reset_gpu, restart_driver, reboot, power_cycle, ac_cycle]
    default: []
  powered:
    description: Nodes with a BMC; others get neither V(power_cycle) nor V(ac_cycle).
    type: list
    elements: str
    default: []
  serving:
    description: Nodes that run services of the cluster, too; they get none of V(reboot),
      V(power_cycle) and V(ac_cycle).
    type: list
    elements: str
    default: []
  level:
    description: Least level of the evidence that lets a node in, as M(baremetal.dgx.slurm_gate) has
      it. A pass at a lesser one asks for evidence again.
    type: str
    choices: [quick, standard, burn_in]
    default: quick
  at_once:
    description: Nodes that get a step in one run.
    type: int
    default: 1
  times:
    description: How often a step is taken because of one part, wherever it is, within O(days).
    type: int
    default: 1
  days:
    description: Days that O(times) is about.
    type: int
    default: 30
  alike:
    description: Share of the nodes, 0 to 1, above which nodes that fail one check have one cause.
      Two nodes never have.
    type: float
    default: 0.1
  ladders:
    description: Ladders of the site by check, each a list of steps that ends with V(return) or
      V(person).
    type: dict
    default: {}
  parts:
    description: What the lookup P(baremetal.dgx.repair_parts#lookup) gives. A part that fails again
      and again gets no step, and its node is not let in without consent.
    type: dict
    default: {}
  allowed:
    description: Nodes for which the operator consents to such a part.
    type: list
    elements: str
    default: []
  keep_days:
    description: With O(state=judged), the evidence of incidents that ended longer ago is removed.
    type: int
    default: 365
  user:
    description: Who the gate is in Slurm.
    type: str
    default: root
  node:
    description: With O(state=confirmed) and O(state=ended), the node.
    type: str
  incident:
    description: With O(state=ended), the incident.
    type: str
  step:
    description: With O(state=confirmed) and O(state=ended), the step.
    type: str
  outcome:
    description: With O(state=ended), what is known of the step. Evidence alone says whether it
      helped.
    type: str
    choices: [done, failed, not_measured]
    default: not_measured
seealso:
  - module: baremetal.dgx.slurm_gate
"""

EXAMPLES = r"""
- name: Choose the steps
  baremetal.dgx.repair_step:
    folder: /srv/cluster/.dgx/incidents
    nodes: "{{ shown.stdout }}"
    verdicts: "{{ query('baremetal.dgx.node_verdicts', groups['gpu_nodes'], folder='.dgx') }}"
    targets: "{{ groups['gpu_nodes'] }}"
    steps: [reset_gpu, reboot]
  delegate_to: localhost
"""

RETURN = r"""
due:
  description: Steps that have begun, or would in check mode. V(validate) asks for new evidence.
  returned: success
  type: list
  elements: dict
  contains:
    node:
      description: The node.
      type: str
    incident:
      description: The name of the incident.
      type: str
    step:
      description: What is due.
      type: str
    why:
      description: What it rests on.
      type: str
    level:
      description: Least level of the validation after it, O(level) or the deeper one that asks what
        the node fails.
      type: str
waits:
  description: Nodes that are out and get no step now, each with C(node) and C(why).
  returned: success
  type: list
  elements: dict
events:
  description: The lines that were added.
  returned: success
  type: list
  elements: dict
open:
  description: The incidents that are not over.
  returned: success
  type: list
  elements: dict
unswept:
  description: The nodes that wait for a sweep of the fabric and nothing else.
  returned: with O(state=unswept)
  type: list
  elements: str
unread:
  description: How many lines of the file could not be read, such as one that a killed run has cut.
  returned: success
  type: int
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.book import bring_about

ARGUMENT_SPEC: dict[str, Any] = {
    "folder": {"type": "path", "required": True},
    "state": {"choices": ["due", "judged", "confirmed", "ended", "unswept"], "default": "due"},
    "nodes": {"type": "str", "default": ""},
    "verdicts": {"type": "list", "elements": "dict", "default": []},
    "gate_verdicts": {"type": "list", "elements": "dict", "default": []},
    "now": {"type": "float"},
    "targets": {"type": "list", "elements": "str", "default": []},
    "steps": {
        "type": "list",
        "elements": "str",
        "choices": ["reset_gpu", "restart_driver", "reboot", "power_cycle", "ac_cycle"],
        "default": [],
    },
    "powered": {"type": "list", "elements": "str", "default": []},
    "serving": {"type": "list", "elements": "str", "default": []},
    "level": {"choices": ["quick", "standard", "burn_in"], "default": "quick"},
    "at_once": {"type": "int", "default": 1},
    "times": {"type": "int", "default": 1},
    "days": {"type": "int", "default": 30},
    "alike": {"type": "float", "default": 0.1},
    "ladders": {"type": "dict", "default": {}},
    "parts": {"type": "dict", "default": {}},
    "allowed": {"type": "list", "elements": "str", "default": []},
    "keep_days": {"type": "int", "default": 365},
    "user": {"type": "str", "default": "root"},
    "node": {"type": "str"},
    "incident": {"type": "str"},
    "step": {"type": "str"},
    "outcome": {"choices": ["done", "failed", "not_measured"], "default": "not_measured"},
}


def main() -> None:
    """Load, plan, note, report."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
        required_if=[
            ("state", "confirmed", ["node", "step"]),
            ("state", "ended", ["node", "incident", "step"]),
        ],
    )
    with reported(module, None, ValueError):
        result = bring_about(module)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
