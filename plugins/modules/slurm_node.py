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
  - A node that is out already with somebody else's reason keeps that reason. It is out, so the wish
    is fulfilled.
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
    description: Also change nodes whose reason belongs to somebody else.
    type: bool
    default: false
  absent_ok:
    description: Whether nodes that Slurm does not know are passed over, and returned in
      RV(unknown).
    type: bool
    default: false
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

- name: Put them back, if nobody else has taken them out in the meantime
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
  description: Nodes that belong to somebody else, with C(node), C(state), C(reason) and C(by).
  returned: success
  type: list
  elements: dict
  sample: [{"node": "dgx-07", "state": "IDLE+DRAIN", "reason": "broken fan", "by": "root"}]
unknown:
  description: Nodes that Slurm does not know.
  returned: success
  type: list
  elements: str
"""

import re
import time
from typing import Any, Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    MISSING,
    CommandRunner,
    ModuleRunner,
    ToolError,
    last_lines,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_state import (
    RESUMED,
    Node,
    NodePlan,
    Wanted,
    diff_of,
    parse_jobs_on_nodes,
    parse_nodes,
    plan_nodes,
    still_waiting,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_tools import Job, NoAnswerError

_TIMEOUT_S = 60
_PLAIN = re.compile(r"^[A-Za-z0-9_.-]+$")

ARGUMENT_SPEC: dict[str, Any] = {
    "nodes": {"type": "raw", "required": True},
    "state": {"choices": ["drained", "resumed", "down"], "required": True},
    "reason": {"type": "str"},
    "owner": {"type": "str", "default": "dgx"},
    "force": {"type": "bool", "default": False},
    "absent_ok": {"type": "bool", "default": False},
    "wait": {"type": "bool", "default": False},
    "wait_timeout_s": {"type": "int", "default": 3600},
    "poll_s": {"type": "int", "default": 5},
}


def desired(params: Mapping[str, Any]) -> Wanted:
    """The wanted state; raises ToolError for texts that Slurm or we could not read again."""
    owner, text = params["owner"], (params["reason"] or "").strip()
    if not _PLAIN.match(owner):
        raise ToolError(f"owner: {owner!r} must be one word")
    if not text and params["state"] != RESUMED:
        raise ToolError("reason: is required, and must not be empty")
    if re.search(r"[\n\"\[\]]", text):
        raise ToolError("reason: must not contain quotes, brackets or line ends")
    return Wanted(params["state"], text, owner, params["force"])


def ask(run: CommandRunner, argv: Sequence[str]) -> str:
    """Output of a Slurm command. Raises NoAnswerError with what it said."""
    result = run(argv, timeout_s=_TIMEOUT_S)
    if result.outcome == MISSING:
        raise NoAnswerError(f"{argv[0]} is not installed; install Slurm's client commands")
    if not result.ok:
        said = last_lines(result.text, 3) or result.describe()
        raise NoAnswerError(f"`{' '.join(argv)}` failed: {said}")
    return result.out


def expand(run: CommandRunner, nodes: Any) -> list[str]:
    """Node names of a list or a string of names and node sets. Raises ToolError."""
    words = [nodes] if isinstance(nodes, str) else nodes
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        raise ToolError("nodes: must be a node set or a list of them")
    if all(_PLAIN.match(word) for word in words):
        names = list(words)
    else:
        # to half a node set 22.05 answers half a name, 24.11 nothing, both with return code 0
        names = ask(run, ["scontrol", "show", "hostnames", ",".join(words)]).split()
        wrong = [name for name in names if not _PLAIN.match(name)]
        if wrong or not names:
            raise ToolError(f"nodes: {','.join(words)} is not a node set")
    return list(dict.fromkeys(names))


def load(run: CommandRunner) -> dict[str, Node]:
    """All nodes that Slurm knows. Raises NoAnswerError."""
    return parse_nodes(ask(run, ["scontrol", "show", "node", "-o"]))


def load_jobs(
    run: CommandRunner, names: Sequence[str], expanded: dict[str, list[str]]
) -> dict[str, list[Job]]:
    """Jobs on each of these nodes; expanded remembers node sets. Raises NoAnswerError."""
    argv = ["squeue", "-h", "-a", "-w", ",".join(names), "-o", "%A|%u|%a|%q|%T|%N"]
    jobs: dict[str, list[Job]] = {}
    for job, node_set in parse_jobs_on_nodes(ask(run, argv)):
        if node_set not in expanded:
            expanded[node_set] = expand(run, node_set)
        for name in expanded[node_set]:
            jobs.setdefault(name, []).append(job)
    return jobs


def apply(run: CommandRunner, want: Wanted, plan: NodePlan) -> dict[str, Node]:
    """Send the updates and read all nodes again. Raises ToolError with what scontrol said.

    Only what the nodes are afterwards counts: on a node that has never registered a resume takes
    effect and is called an error all the same (seen with 22.05 and 24.11).
    """
    complaints = []
    for update in plan.updates:
        words = [f"NodeName={','.join(update.nodes)}", *update.words]
        result = run(["scontrol", "update", *words], timeout_s=_TIMEOUT_S)
        if not result.ok:
            said = last_lines(result.text, 3) or result.describe()
            complaints.append(f"`scontrol update {' '.join(words)}` failed: {said}")
    present = load(run)
    changed = [present[name] for name in plan.changed_names if name in present]
    left = plan_nodes(want, changed).changed_names
    if left:
        reason = "; ".join(complaints) or "scontrol accepted every update"
        raise ToolError(f"{reason}; not changed: {', '.join(left)}", not_changed=left)
    return present


def wait(run: CommandRunner, want: Wanted, names: Sequence[str], limit_s: int, poll_s: int) -> None:
    """Wait until the nodes are where they should be. Raises ToolError that names what is not."""
    started = time.monotonic()
    expanded: dict[str, list[str]] = {}
    while names:
        present = load(run)
        nodes = [present[name] for name in names if name in present]
        jobs = load_jobs(run, [node.name for node in nodes], expanded) if nodes else {}
        waiting = still_waiting(want, nodes, jobs)
        if not waiting:
            return
        waited = time.monotonic() - started
        if waited >= limit_s:
            raise ToolError(f"after {waited:.0f} s: {'; '.join(waiting)}", waiting=waiting)
        time.sleep(min(poll_s, max(limit_s - waited, 0.1)))


def report(before: Mapping[str, Node], after: Mapping[str, Node]) -> dict[str, Any]:
    """Each node with its state and reason, before and after."""
    return {
        name: {
            "before": {"state": node.state, "reason": node.reason},
            "after": {"state": after[name].state, "reason": after[name].reason},
        }
        for name, node in before.items()
    }


def main() -> None:
    """Load, plan, apply, wait, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, run = module.params, ModuleRunner(module)
    changed: list[str] = []
    try:
        want = desired(params)
        try:
            names = expand(run, params["nodes"])
            present = load(run)
        except NoAnswerError as error:
            if not module.check_mode:
                raise
            module.warn(f"{error}: no node is known")
            names, present = [], {}
        unknown = [name for name in names if name not in present]
        if unknown and not params["absent_ok"] and not module.check_mode:
            raise ToolError(f"Slurm does not know {', '.join(unknown)}", unknown=unknown)
        before = {name: present[name] for name in names if name in present}
        plan = plan_nodes(want, before.values())
        after: Mapping[str, Node] = plan.after
        if not module.check_mode:
            changed = plan.changed_names
            present = apply(run, want, plan) if changed else present
            refused = {node.name for node in plan.refused}
            if params["wait"]:
                waited_for = [n for n in before if want.state != RESUMED or n not in refused]
                wait(run, want, waited_for, params["wait_timeout_s"], params["poll_s"])
                present = load(run)
            after = {name: present.get(name, node) for name, node in before.items()}
    except ToolError as error:
        module.fail_json(
            msg=str(error), changed=bool(changed), changed_nodes=changed, **error.details
        )
    result: dict[str, Any] = {
        "changed": bool(plan.updates),
        "nodes": report(before, after),
        "changed_nodes": plan.changed_names,
        "refused": [
            {"node": n.name, "state": n.state, "reason": n.reason, "by": n.reason_by}
            for n in plan.refused
        ],
        "unknown": unknown,
    }
    if module._diff:
        result["diff"] = diff_of(plan, before)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
