#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_gate
short_description: Let nodes into Slurm, and take them out, by their verdicts alone
description:
  - A node that the gate holds is let in when it passes, at the level that is asked for and on
    evidence that is not too old. A node that was taken out for a finding needs evidence from after
    that.
  - A node in service that fails is drained; its jobs end normally. No job is ever ended.
  - A node without a measured verdict is neither let in nor taken out.
  - What others drained is left alone, and so is a node whose reason was edited, and one that
    is down, unknown, rebooting or in maintenance. All of them are returned in RV(left) with why.
  - The gate keeps at most O(share) of the fleet drained at a time. When the drains of a run would
    exceed it, nothing of that run is done, and the task fails with one line. A finding all over the
    fleet is a question about the checker.
  - A spare that passes is let in when another node is out for a finding. It leaves service again
    only by O(return_spares).
  - The gate remembers nothing but which nodes are not new. What it did is in Slurm, in reasons
    it signs, which begin with C(dgx-gate) and end with a signature, so that an edited one is not
    taken for its own. Run it again after anything that interrupted it.
  - A drain by the gate stays one when Slurm appends words to the reason, as after a boot that is
    longer than C(SlurmdTimeout). Such a node that is down, and answers, is let in by
    C(State=RESUME).
  - Each node is read again right before it is changed, and passed over if it was touched in
    between.
  - Runs where C(scontrol) reaches the controller. Tried with Slurm 24.11.
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
  state:
    description:
      - V(admitted) compares the verdicts with the nodes, and acts.
      - V(remembered) notes, before Slurm is given new nodes, which it has already. Those are not
        new. Where the list exists, it is left alone.
      - V(introduced) drains those of O(nodes) that are new, until a verdict lets them in.
    type: str
    choices: [admitted, remembered, introduced]
    default: admitted
  verdicts:
    description: What is known of each node.
    type: list
    elements: dict
    default: []
    suboptions:
      node:
        description: The node.
        type: str
        required: true
      verdict:
        description: Its records folded into one.
        type: str
        choices: [pass, fail, not_measured]
        required: true
      at:
        description: When, as V(2026-01-31T23:59:59Z). Without it, the verdict shows nothing about
          now.
        type: str
        default: ""
      level:
        description: How much was asked of the node.
        type: str
        choices: [quick, standard, burn_in]
        default: quick
      first_failing:
        description: The record that the reason is made of; its C(check), C(subject), C(text) and
          C(remedy).
        type: dict
      fleet_share:
        description: Share of the fleet, 0 to 1, on which this check fails.
        type: float
  share:
    description: Share of the fleet, 0 to 1, that the gate may keep drained at a time. Spares are
      not counted in the fleet. It is one node at least, unless this is V(0).
    type: float
    default: 0.1
  level:
    description: Least level of the evidence that lets a node in.
    type: str
    choices: [quick, standard, burn_in]
    default: standard
  evidence_days:
    description: How old evidence may be. Older evidence lets no node in and takes none out, except
      with O(unmeasured=drain).
    type: float
    default: 14
  unmeasured:
    description: What becomes of a node in service that could not be measured, or whose verdict is
      too old, from the future or without a time. V(drain) counts it to the share.
    type: str
    choices: [leave, drain]
    default: leave
  spares:
    description: The pool of spares, in the order in which they are put in.
    type: list
    elements: str
    default: []
  spares_in_service:
    description: How many of them may be in service at once.
    type: int
    default: 0
  return_spares:
    description: Spares that leave service now. Where a node is still missing, the next run may put
      one in again.
    type: list
    elements: str
    default: []
  kept:
    description: Nodes that are not let in though they pass, as the lookup
      P(baremetal.dgx.repair_parts#lookup) gives them. None of them is drained for that.
    type: list
    elements: dict
    default: []
    suboptions:
      node:
        description: The node.
        type: str
        required: true
      why:
        description: What it waits for.
        type: str
        required: true
      part:
        description: The part that fails again and again.
        type: str
        default: ""
  repaired:
    description: By node C(kind), C(text) and C(boots) of its open incident, as the lookup
      P(baremetal.dgx.repair_parts#lookup) gives them. When such a node comes up with less than
      slurm.conf declares, Slurm replaces the reason; dated in one of these boots, the drain is
      the gate's all the same.
    type: dict
    default: {}
  nodes:
    description: With O(state=introduced), all nodes that Slurm is given.
    type: list
    elements: str
    default: []
  renewed:
    description: With O(state=introduced), nodes that count as new again, since their hardware was
      replaced. What was measured before that lets none in.
    type: list
    elements: str
    default: []
  known_file:
    description: The list of nodes that are not new.
    type: path
    default: /var/lib/baremetal-dgx/gate/known.json
  state_save_location:
    description: With O(state=remembered), where slurmctld keeps its state. It tells a controller
      that is down from one that has never run.
    type: path
    default: /var/lib/slurm/slurmctld
  journal:
    description: File that each step is appended to as one line of JSON; empty for none. At 4 MiB it
      becomes C(NAME.1), in the place of the one before.
    type: path
    default: /var/log/baremetal-dgx/gate.jsonl
  wait_s:
    description: Seconds to wait for slurmctld to answer, and for another run of the gate to end.
    type: int
    default: 30
  fail:
    description: Whether a refusal fails the task.
    type: bool
    default: true
seealso:
  - module: baremetal.dgx.slurm_node
"""

EXAMPLES = r"""
- name: Show what the gate would do
  baremetal.dgx.slurm_gate:
    verdicts: "{{ lookup('baremetal.dgx.node_verdicts', '/srv/cluster/.dgx') }}"
    share: 0.05
    spares: [dgx-31, dgx-32]
    spares_in_service: 1
  check_mode: true
  diff: true
"""

RETURN = r"""
actions:
  description: Steps that were taken, or would be in check mode, in their order.
  returned: always
  type: list
  elements: dict
  sample:
    - node: dgx-07
      action: drain
      why: "gpu3 ecc_volatile: uncorrected errors; replace the GPU"
      reason: "dgx-gate: gpu3 ecc_volatile: uncorrected errors; replace the GPU #f0c1d2e3f"
  contains:
    node:
      description: The node.
      type: str
    action:
      description: V(resume), V(drain), V(swap_in), or V(reword) where only the reason changes.
      type: str
    why:
      description: What it rests on.
      type: str
    reason:
      description: The reason that is written; empty when a node is let in.
      type: str
left:
  description: Nodes left alone, with C(node), C(state) and C(why).
  returned: always
  type: list
  elements: dict
passed_over:
  description: Steps that were not taken, since the node had been touched in between; like
    RV(actions).
  returned: always
  type: list
  elements: dict
withheld:
  description: Steps that a refusal keeps from being taken; like RV(actions).
  returned: always
  type: list
  elements: dict
refusal:
  description: Why nothing is done; empty where something may be.
  returned: always
  type: str
out:
  description: Nodes drained by the gate, before (C(before)), after (C(after)), and at most
    (C(most)).
  returned: when O(state=admitted)
  type: dict
  sample: {"before": 0, "after": 1, "most": 2}
known:
  description: Nodes that are not new.
  returned: when O(state) is V(remembered) or V(introduced)
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.apply import KEPT, report
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.policy import GatePlan
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.states import (
    bring_about,
)

_LEVELS = ["quick", "standard", "burn_in"]

ARGUMENT_SPEC: dict[str, Any] = {
    "state": {"choices": ["admitted", "remembered", "introduced"], "default": "admitted"},
    "verdicts": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "node": {"type": "str", "required": True},
            "verdict": {"choices": ["pass", "fail", "not_measured"], "required": True},
            "at": {"type": "str", "default": ""},
            "level": {"type": "str", "choices": _LEVELS, "default": "quick"},
            "first_failing": {"type": "dict"},
            "fleet_share": {"type": "float"},
        },
    },
    "share": {"type": "float", "default": 0.1},
    "level": {"type": "str", "choices": _LEVELS, "default": "standard"},
    "evidence_days": {"type": "float", "default": 14},
    "unmeasured": {"type": "str", "choices": ["leave", "drain"], "default": "leave"},
    "spares": {"type": "list", "elements": "str", "default": []},
    "spares_in_service": {"type": "int", "default": 0},
    "return_spares": {"type": "list", "elements": "str", "default": []},
    "kept": {"type": "list", "elements": "dict", "default": [], "options": KEPT},
    "repaired": {"type": "dict", "default": {}},
    "nodes": {"type": "list", "elements": "str", "default": []},
    "renewed": {"type": "list", "elements": "str", "default": []},
    "known_file": {"type": "path", "default": "/var/lib/baremetal-dgx/gate/known.json"},
    "state_save_location": {"type": "path", "default": "/var/lib/slurm/slurmctld"},
    "journal": {"type": "path", "default": "/var/log/baremetal-dgx/gate.jsonl"},
    "wait_s": {"type": "int", "default": 30},
    "fail": {"type": "bool", "default": True},
}


def main() -> None:
    """Bring the state about and report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    with reported(module, report(GatePlan((), ()), (), ()), ValueError):
        result = bring_about(module, ModuleRunner(module))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
