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
  - What somebody else drained is left alone, and so is a node whose reason was edited, and one that
    is down, unknown, rebooting or in maintenance. All of them are returned in RV(left) with why.
  - At most O(share) of the fleet is out by the gate's hand at once. When the drains of a run would
    exceed it, nothing of that run is done, and the task fails with one line. A finding all over the
    fleet is a question about the checker.
  - A spare that passes is let in when another node is out for a finding. It leaves service again
    only by O(return_spares).
  - The gate remembers nothing but which nodes are not new. What it did stands in Slurm, in reasons
    it signs, which begin with C(dgx-gate) and end with a signature, so that an edited one is not
    taken for its own. Run it again after anything that interrupted it.
  - Each node is read again right before it is changed, and passed over when somebody touched it in
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
        description: When, as V(2026-01-31T23:59:59Z). Without it, the verdict says nothing of now.
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
    description: Share of the fleet, 0 to 1, that may be out at once by the gate's hand. Spares are
      not counted in the fleet. It is one node at least, unless this is V(0).
    type: float
    default: 0.1
  level:
    description: Least level of the evidence that lets a node in.
    type: str
    choices: [quick, standard, burn_in]
    default: standard
  evidence_days:
    description: How old evidence may be. Older evidence lets no node in and takes none out.
    type: float
    default: 14
  unmeasured:
    description: What becomes of a node in service that could not be measured. V(drain) counts it to
      the share.
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
  nodes:
    description: With O(state=introduced), all nodes that Slurm is given.
    type: list
    elements: str
    default: []
  renewed:
    description: With O(state=introduced), nodes that count as new again, since their hardware was
      replaced.
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
    description: File that each step is appended to as one line of JSON; empty for none.
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
  description: Steps that were not taken, since somebody had touched the node in between; like
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
  description: Nodes out by the gate's hand, before (C(before)), after (C(after)), and at most
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

import os
import pwd
import time
from typing import Any, Callable, Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._gate import (
    GatePlan,
    Policy,
    plan_gate,
    plan_introduction,
    verdict_from_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gate_apply import (
    Outcome,
    Slurm,
    Step,
    StoppedError,
    carry_out,
    load_known,
    store_known,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gate_report import (
    diff_of,
    journal,
    report,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._lock import BusyError, host_lock
from ansible_collections.baremetal.dgx.plugins.module_utils._run import ModuleRunner, ToolError
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_state import Node
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_tools import NoAnswerError

_LEVELS = ["quick", "standard", "burn_in"]
_POLL_S = 1

ARGUMENT_SPEC: dict[str, Any] = {
    "state": {"choices": ["admitted", "remembered", "introduced"], "default": "admitted"},
    "verdicts": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "node": {"type": "str", "required": True},
            "verdict": {
                "type": "str",
                "choices": ["pass", "fail", "not_measured"],
                "required": True,
            },
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
    "nodes": {"type": "list", "elements": "str", "default": []},
    "renewed": {"type": "list", "elements": "str", "default": []},
    "known_file": {"type": "path", "default": "/var/lib/baremetal-dgx/gate/known.json"},
    "state_save_location": {"type": "path", "default": "/var/lib/slurm/slurmctld"},
    "journal": {"type": "path", "default": "/var/log/baremetal-dgx/gate.jsonl"},
    "wait_s": {"type": "int", "default": 30},
    "fail": {"type": "bool", "default": True},
}


def policy_of(params: Mapping[str, Any], user: str) -> Policy:
    """What the site allows; raises ToolError that names the option."""
    if not 0 <= params["share"] <= 1:
        raise ToolError(f"share: is {params['share']:g}; write a number from 0 to 1")
    if params["evidence_days"] <= 0:
        raise ToolError(f"evidence_days: is {params['evidence_days']:g}; write more than 0")
    strange = sorted(set(params["return_spares"]) - set(params["spares"]))
    if strange:
        raise ToolError(f"return_spares: {', '.join(strange)} is not among the spares")
    return Policy(
        share=params["share"],
        level=params["level"],
        evidence_s=params["evidence_days"] * 86400,
        unmeasured=params["unmeasured"],
        spares=tuple(params["spares"]),
        spares_in_service=params["spares_in_service"],
        user=user,
    )


def who_am_i() -> str:
    """The user that Slurm will name beside a reason."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def wait_for(slurm: Slurm, names: Sequence[str], wait_s: float) -> dict[str, Node]:
    """All nodes, as soon as slurmctld answers and knows these; raises NoAnswerError at the end."""
    deadline = time.monotonic() + wait_s
    while True:
        late = time.monotonic() >= deadline
        try:
            nodes = slurm.nodes()
        except NoAnswerError:
            if late:
                raise
        else:
            if late or all(name in nodes for name in names):
                return nodes
        time.sleep(_POLL_S)


def remember(slurm: Slurm, params: Mapping[str, Any], pretend: bool) -> tuple[bool, list[str]]:
    """Begin the list of nodes that are not new; returns whether it was begun, and the list."""
    known = load_known(params["known_file"])
    if known is not None:
        return False, sorted(known)
    try:
        names = sorted(slurm.nodes())
    except NoAnswerError as error:
        # A controller that is only down now has nodes, and jobs on them.
        if os.path.exists(os.path.join(params["state_save_location"], "node_state")):
            raise ToolError(
                f"{error}; slurmctld has run here before: start it, so that the gate learns which "
                "nodes are not new"
            ) from error
        names = []
    if not pretend:
        store_known(params["known_file"], names)
    return True, names


def introduce(
    slurm: Slurm, params: Mapping[str, Any], policy: Policy, note: Callable[[Step], None]
) -> tuple[Outcome, list[str]]:
    """Drain what is new, then count it as known; raises NoAnswerError, StoppedError, ToolError."""
    names = params["nodes"]
    noted = load_known(params["known_file"])
    if noted is None:
        raise ToolError(
            f"{params['known_file']} is missing, so that nobody knows which nodes are new; call "
            "state: remembered before Slurm is given new nodes"
        )
    known = noted - set(params["renewed"])
    wait_for(slurm, names, params["wait_s"])

    def decide(nodes: Mapping[str, Node], spent: Sequence[tuple[str, str]] = ()) -> GatePlan:
        tried = {name for name, _what in spent}
        return GatePlan(plan_introduction(set(names) - known - tried, nodes, policy), ())

    outcome = carry_out(slurm, decide, note)
    if not outcome.failed:
        # A node that has left is forgotten: when it comes back, it is new.
        known = {name for name in names if name in outcome.nodes or name in known}
        if known != noted:
            store_known(params["known_file"], known)
    return outcome, sorted(known)


def finish(module: AnsibleModule, outcome: Outcome, **more: Any) -> None:
    """Report what was done, and end the module."""
    failed = outcome.failed
    taken = [step.action for step in outcome.steps if step not in failed]
    result = {**report(outcome.plan, taken, outcome.passed_over), **more}
    result["refusal"] = outcome.refusal
    if module._diff:
        result["diff"] = diff_of(taken)
    if failed:
        lines = [f"{step.action.node}: {step.action.what}: {step.said}" for step in failed]
        module.fail_json(msg="scontrol refused: " + "; ".join(lines), **result)
    if outcome.refusal and module.params["fail"]:
        module.fail_json(msg=outcome.refusal, **result)
    module.exit_json(**result)


def pretend(module: AnsibleModule, plan: GatePlan, **more: Any) -> None:
    """Report what would be done, and end the module."""
    result = {**report(plan, plan.actions, ()), **more}
    if module._diff:
        result["diff"] = diff_of(plan.actions)
    if plan.refusal and module.params["fail"]:
        module.fail_json(msg=plan.refusal, **result)
    module.exit_json(**result)


def admit(
    module: AnsibleModule, slurm: Slurm, policy: Policy, note: Callable[[Step], None]
) -> None:
    """Compare verdicts and nodes, act, report."""
    params = module.params
    verdicts = [verdict_from_data(data) for data in params["verdicts"]]

    def decide(nodes: Mapping[str, Node], spent: Sequence[tuple[str, str]] = ()) -> GatePlan:
        return plan_gate(verdicts, nodes, policy, time.time(), params["return_spares"], spent)

    if module.check_mode:
        plan = decide(slurm.nodes())
        out = {"before": plan.out, "after": plan.out_after, "most": plan.most_out}
        pretend(module, plan, out=out)
    outcome = carry_out(slurm, decide, note)
    last = decide(outcome.nodes)
    out = {"before": outcome.plan.out, "after": last.out, "most": last.most_out}
    finish(module, outcome, out=out)


def main() -> None:
    """Load, plan, apply, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, slurm = module.params, Slurm(ModuleRunner(module))
    note = journal(params["journal"], module.warn)
    nothing = report(GatePlan((), ()), (), ())
    try:
        policy = policy_of(params, who_am_i())
        with host_lock("slurm_gate", params["wait_s"]):
            if params["state"] == "remembered":
                begun, names = remember(slurm, params, module.check_mode)
                module.exit_json(**{**nothing, "changed": begun}, known=names)
            if params["state"] == "introduced" and module.check_mode:
                nodes = slurm.nodes()
                noted = load_known(params["known_file"])
                # Where the list is not begun yet, what Slurm has now would be on it.
                known = (set(nodes) if noted is None else noted) - set(params["renewed"])
                plan = GatePlan(plan_introduction(set(params["nodes"]) - known, nodes, policy), ())
                pretend(module, plan, known=sorted(known))
            if params["state"] == "introduced":
                outcome, here = introduce(slurm, params, policy, note)
                finish(module, outcome, known=here)
            admit(module, slurm, policy, note)
    except BusyError as error:
        module.fail_json(msg=f"another run of the gate goes on (process {error.holder})", **nothing)
    except NoAnswerError as error:
        if not module.check_mode:
            module.fail_json(msg=str(error), **nothing)
        module.warn(f"{error}: no node is known")
        module.exit_json(**nothing)
    except StoppedError as error:
        done = report(GatePlan((), ()), [step.action for step in error.steps], ())
        module.fail_json(msg=f"{error}; run it again to go on", **done)
    except (ToolError, ValueError) as error:
        module.fail_json(msg=str(error), **nothing)


if __name__ == "__main__":
    main()
