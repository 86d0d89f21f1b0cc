# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The three states that the module slurm_gate brings about: remembered, introduced, admitted."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

from ..._core.hang import in_time
from ..._core.lock import host_lock
from ..._core.run import CommandRunner, ToolError
from ..._core.wait import attempts
from ..commands import NoAnswerError, user_name
from ..nodes import Node
from .apply import (
    Outcome,
    Slurm,
    Step,
    StoppedError,
    carry_out,
    diff_of,
    journal,
    load_known,
    report,
    store_known,
)
from .policy import GatePlan, Policy, Repaired, plan_gate, plan_introduction, verdict_from_data

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

_POLL_S = 1


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
        kept={str(one["node"]): str(one["why"]) for one in params["kept"]},
        repaired=_repaired(params["repaired"]),
    )


def _repaired(given: Mapping[str, Any]) -> dict[str, Repaired]:
    try:
        return {
            str(node): Repaired(
                str(one["kind"]),
                str(one["text"]),
                tuple((float(since), float(until)) for since, until in one["boots"]),
            )
            for node, one in given.items()
        }
    except (KeyError, TypeError, ValueError):
        raise ToolError("repaired: give what the lookup repair_parts returns") from None


def wait_for(slurm: Slurm, names: Sequence[str], wait_s: float) -> dict[str, Node]:
    """All nodes, as soon as slurmctld answers and knows these; raises NoAnswerError at the end."""
    nodes: dict[str, Node] = {}
    for left in attempts(wait_s, _POLL_S):
        try:
            nodes = slurm.nodes()
        except NoAnswerError:
            if not left:
                raise
        else:
            if all(name in nodes for name in names):
                break
    return nodes


def has_run_here(state_folder: str) -> bool:
    """Return whether slurmctld has left its state there; raises ToolError if the mount hangs."""
    path = os.path.join(state_folder, "node_state")
    return bool(in_time(path, lambda _send: os.path.exists(path)))


def remember(slurm: Slurm, params: Mapping[str, Any], pretend: bool) -> tuple[bool, list[str]]:
    """Begin the list of nodes that are not new; returns whether it was begun, and the list."""
    known = load_known(params["known_file"])
    if known is not None:
        return False, sorted(known)
    try:
        names = sorted(slurm.nodes())
    except NoAnswerError as error:
        # A controller that is only down now has nodes, and jobs on them.
        if has_run_here(params["state_save_location"]):
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
            f"{params['known_file']} is missing, so that it is not known which nodes are new; call "
            "state: remembered before Slurm is given new nodes"
        )
    known = noted - set(params["renewed"])
    wait_for(slurm, names, params["wait_s"])

    def decide(nodes: Mapping[str, Node], spent: Sequence[tuple[str, str]] = ()) -> GatePlan:
        tried = {name for name, _what in spent}
        fresh = set(names) - known - tried
        return GatePlan(plan_introduction(fresh, nodes, policy, params["renewed"]), ())

    outcome = carry_out(slurm, decide, note)
    if not outcome.failed:
        # A node that has left is forgotten: when it comes back, it is new.
        known = {name for name in names if name in outcome.nodes or name in known}
        if known != noted:
            store_known(params["known_file"], known)
    return outcome, sorted(known)


def finish(module: AnsibleModule, outcome: Outcome, **more: Any) -> dict[str, Any]:
    """Return what was done; ToolError with it for what was refused."""
    failed = outcome.failed
    taken = [step.action for step in outcome.steps if step not in failed]
    result = {**report(outcome.plan, taken, outcome.passed_over), **more}
    result["refusal"] = outcome.refusal
    if module._diff:
        result["diff"] = diff_of(taken)
    if failed:
        lines = [f"{step.action.node}: {step.action.what}: {step.message}" for step in failed]
        raise ToolError("scontrol refused: " + "; ".join(lines), **result)
    if outcome.refusal and module.params["fail"]:
        raise ToolError(outcome.refusal, **result)
    return result


def pretend(module: AnsibleModule, plan: GatePlan, **more: Any) -> dict[str, Any]:
    """Return what would be done; ToolError with it for what would be refused."""
    result = {**report(plan, plan.actions, ()), **more}
    if module._diff:
        result["diff"] = diff_of(plan.actions)
    if plan.refusal and module.params["fail"]:
        raise ToolError(plan.refusal, **result)
    return result


def admit(
    module: AnsibleModule, slurm: Slurm, policy: Policy, note: Callable[[Step], None]
) -> dict[str, Any]:
    """Compare verdicts and nodes, and act; returns what the module returns."""
    params = module.params
    verdicts = [verdict_from_data(data) for data in params["verdicts"]]

    def decide(nodes: Mapping[str, Node], spent: Sequence[tuple[str, str]] = ()) -> GatePlan:
        return plan_gate(verdicts, nodes, policy, time.time(), params["return_spares"], spent)

    if module.check_mode:
        plan = decide(slurm.nodes())
        out = {"before": plan.out, "after": plan.out_after, "most": plan.most_out}
        return pretend(module, plan, out=out)
    outcome = carry_out(slurm, decide, note)
    last = decide(outcome.nodes)
    out = {"before": outcome.plan.out, "after": last.out, "most": last.most_out}
    return finish(module, outcome, out=out)


def bring_about(module: AnsibleModule, run: CommandRunner) -> dict[str, Any]:
    """Return what the module returns. Raises ToolError, OSError, ValueError."""
    params, slurm = module.params, Slurm(run)
    note = journal(params["journal"], module.warn)
    nothing = report(GatePlan((), ()), (), ())
    policy = policy_of(params, user_name())
    try:
        with host_lock("slurm_gate", params["wait_s"]):
            if params["state"] == "remembered":
                begun, names = remember(slurm, params, module.check_mode)
                return {**nothing, "changed": begun, "known": names}
            if params["state"] == "introduced" and module.check_mode:
                nodes = slurm.nodes()
                noted = load_known(params["known_file"])
                # Where the list is not begun yet, what Slurm has now would be on it.
                known = (set(nodes) if noted is None else noted) - set(params["renewed"])
                fresh = set(params["nodes"]) - known
                plan = GatePlan(plan_introduction(fresh, nodes, policy, params["renewed"]), ())
                return pretend(module, plan, known=sorted(known))
            if params["state"] == "introduced":
                outcome, here = introduce(slurm, params, policy, note)
                return finish(module, outcome, known=here)
            return admit(module, slurm, policy, note)
    except NoAnswerError as error:
        if not module.check_mode:
            raise
        module.warn(f"{error}: no node is known")
        return nothing
    except StoppedError as error:
        done = report(GatePlan((), ()), [step.action for step in error.steps], ())
        raise ToolError(f"{error}; run it again to go on", **done) from error
