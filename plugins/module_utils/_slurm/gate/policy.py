# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The gate: which nodes enter service and leave it, by verdicts, states and policy. Pure.

It remembers nothing. What it has done is in Slurm, in reasons that it signs, so that a run that
was killed anywhere is finished by the next one. It only ever drains: no job is ended by it.
"""

from __future__ import annotations

import calendar
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Collection, Iterable, Mapping, Sequence

from ..._core.record import FAIL, NOT_MEASURED, PASS
from ..nodes import Node, nodes_of_share
from .reason import (
    AGAINST,
    DATED,
    FAILED,
    ITSELF,
    KEPT_OUT,
    REPLACED,
    SLURM_USER,
    SPARE,
    UNPROVEN,
    Reason,
    as_written,
    claims_ours,
    heading,
    is_in_place,
    plain,
    read_reason,
    write_reason,
)

LEVELS = ("quick", "standard", "burn_in")

RESUME, REWORD, DRAIN, SWAP_IN, LEAVE = "resume", "reword", "drain", "swap_in", "leave"

# Slurm or an operator is at work on such a node, or it is not known what it does.
_HANDS_OFF = (
    "DOWN", "UNKNOWN", "NOT_RESPONDING", "FAIL", "INVAL", "INVALID_REG", "FUTURE", "ERROR", "MAINT",
    "MAINTENANCE", "BLOCKED", "REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED", "POWERED_DOWN",
    "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP", "POWER_DRAIN", "DYNAMIC_FUTURE",
)  # fmt: skip
# Clocks of a cluster agree better than this, and a record is stamped before it is judged here.
_CLOCK_S = 300
_READY = "spare, ready"
_NEW = "unproven, run validate_nodes"
_RENEWED = "replaced node, run validate_nodes"


@dataclass(frozen=True)
class Repaired:
    """A node that a repair has booted: kind and text of its drain, and when the boots were.

    When it comes up with less than it should, Slurm replaces its reason, and only the date of that
    tells it from an operator's that was replaced. A boot is (from, until) in epoch seconds.
    """

    kind: str
    text: str
    boots: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Policy:
    """What the site allows: `share` of the fleet out at once (0 to 1), least `level` of evidence.

    `evidence_s` is how old evidence may be, in seconds. `unmeasured` says what becomes of a node in
    service that could not be measured, or whose evidence shows nothing about now: leave or drain.
    `spares` are the pool; at most `spares_in_service` of them are put in. `user` is who the gate is
    in Slurm. `kept` nodes are not let in, though they pass, for the reason given. `repaired` are
    nodes that a repair has booted.
    """

    share: float = 0.1
    level: str = "standard"
    evidence_s: float = 14 * 86400
    unmeasured: str = LEAVE
    spares: tuple[str, ...] = ()
    spares_in_service: int = 0
    user: str = "root"
    kept: Mapping[str, str] = field(default_factory=dict)
    repaired: Mapping[str, Repaired] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """The verdict on a node: pass, fail or not_measured, since when (epoch seconds), at a level.

    `asked_by` is the least level of a run that asks all that fails.
    """

    node: str
    verdict: str
    at: float | None
    level: str = LEVELS[0]
    check: str = ""
    subject: str = ""
    text: str = ""
    remedy: str = ""
    fleet_share: float | None = None
    asked_by: str = LEVELS[0]


@dataclass(frozen=True)
class Action:
    """One step on one node: what, why, the reason to write, and the node as it was seen."""

    node: str
    what: str
    why: str
    reason: str = ""
    seen: Node | None = None


@dataclass(frozen=True)
class GatePlan:
    """Steps in their order, the nodes left alone with why, and why nothing is done, if so.

    `out` nodes are drained by the gate now and `out_after` would be, `most_out` may be. With a
    refusal, `actions` is empty and `withheld` has what would have been done.
    """

    actions: tuple[Action, ...]
    left: tuple[Action, ...]
    refusal: str = ""
    withheld: tuple[Action, ...] = ()
    out: int = 0
    out_after: int = 0
    most_out: int = 0


def verdict_from_data(data: Mapping[str, Any]) -> Verdict:
    """Return the verdict of a plain mapping; ValueError names what is wrong with it."""
    node = data.get("node")
    if not isinstance(node, str) or not node:
        raise ValueError("a verdict has no node")
    verdict, level = data.get("verdict"), data.get("level") or LEVELS[0]
    if verdict not in (PASS, FAIL, NOT_MEASURED):
        raise ValueError(f"{node}: the verdict is {verdict!r}; write pass, fail or not_measured")
    if level not in LEVELS:
        raise ValueError(f"{node}: the level is {level!r}; write {', '.join(LEVELS)}")
    asked_by = data.get("asked_by") or LEVELS[0]
    if asked_by not in LEVELS:
        raise ValueError(f"{node}: asked_by is {asked_by!r}; write {', '.join(LEVELS)}")
    first = data.get("first_failing") or {}
    share = data.get("fleet_share")
    return Verdict(
        node=node,
        verdict=verdict,
        at=seconds_of(str(data.get("at"))),
        level=level,
        check=str(first.get("check") or ""),
        subject=str(first.get("subject") or ""),
        text=str(first.get("text") or ""),
        remedy=str(first.get("remedy") or ""),
        fleet_share=None if share is None else float(share),
        asked_by=asked_by,
    )


def seconds_of(text: str) -> float | None:
    """Return epoch seconds of a UTC time as records and scontrol write it, None of anything else.

    scontrol writes no zone: run it with TZ=UTC and SLURM_TIME_FORMAT=standard.
    """
    whole = text.rstrip("Z").partition(".")[0].replace("+00:00", "")
    try:
        return float(calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return None


def may_be_out(policy: Policy, fleet: int) -> int:
    """Return how many nodes of a fleet may be out at once; one at least, unless the share is 0."""
    return nodes_of_share(policy.share, fleet)


def ours(node: Node, policy: Policy) -> Reason | None:
    """Return the gate's reason that the node is drained with; None where it is not the gate's."""
    if not node.has("DRAIN"):
        return None
    repaired, at = policy.repaired.get(node.name), seconds_of(node.reason_at)
    if repaired and at is not None and _is_replaced(node):
        boots = [boot for boot in repaired.boots if boot[0] <= at <= boot[1]]
        return Reason(repaired.kind, repaired.text) if boots else None
    # Who appends becomes the author.
    author = policy.user if as_written(node.reason) == node.reason else SLURM_USER
    return read_reason(node.name, node.reason) if node.reason_by == author else None


def _is_replaced(node: Node) -> bool:
    return node.reason_by == SLURM_USER and is_in_place(node.reason)


def holder_of(node: Node) -> str:
    """Return who has drained a node that is not ours, and why."""
    text = f"{node.reason_by or 'the operator'} has it: {node.reason or node.state}"
    if node.has("DRAIN") and _is_replaced(node):
        return f"{text}; who drained it before is not known, so resume it by hand when it is whole"
    return text


def hands_off(node: Node, but: Collection[str] = ()) -> bool:
    """Return whether the node is down, unknown, rebooting or in maintenance; `but` is allowed."""
    return node.has(*(state for state in _HANDS_OFF if state not in but))


def _untouchable(node: Node, mine: Reason | None) -> bool:
    """Return whether the gate leaves the node alone.

    With ReturnToService=1 Slurm leaves a drained node DOWN that was silent for SlurmdTimeout, as in
    each long boot, though its slurmd answers again.
    """
    return hands_off(node, ("DOWN",) if mine else ())


def grounds(node: Node) -> tuple[Any, ...]:
    """Return what an action rests on; jobs that start and end are not among it."""
    states = tuple(state for state in ("DRAIN", *_HANDS_OFF) if node.has(state))
    booted_at = node.booted_at if node.has("DOWN") else ""
    return states, node.reason, node.reason_by, node.reason_at, booted_at


def plan_gate(
    verdicts: Iterable[Verdict],
    nodes: Mapping[str, Node],
    policy: Policy,
    now: float,
    returned: Iterable[str] = (),
    spent: Iterable[tuple[str, str]] = (),
) -> GatePlan:
    """Return what to do, resumes first, so that the share holds after every single step.

    `nodes` are all that Slurm has; `now` is epoch seconds; `returned` names spares that the
    operator wants out of service again; `spent` has (node, what) of steps that were tried already.
    """
    by_node = {one.node: _of_now(one, nodes.get(one.node), policy, now) for one in verdicts}
    back = set(returned) & set(policy.spares)
    decided = {}
    for name in sorted(set(by_node) | set(nodes)):
        node = nodes.get(name)
        if node is not None and name in back and not node.has("DRAIN") and not hands_off(node):
            reason = write_reason(name, SPARE, _READY)
            decided[name] = Action(name, DRAIN, "the operator takes the spare back", reason, node)
        else:
            decided[name] = _decide(name, node, by_node.get(name), policy, now)
    tried = set(spent)
    _set_aside(decided, tried)
    _put_spares_in(decided, nodes, by_node, policy, now, back)
    _set_aside(decided, tried)
    steps = tuple(
        step
        for what in (RESUME, REWORD, DRAIN, SWAP_IN)
        for step in decided.values()
        if step.what == what
    )
    left = tuple(step for step in decided.values() if step.what == LEAVE)
    fleet = len(set(nodes) - set(policy.spares))
    most = may_be_out(policy, fleet)
    out = _taken_out(nodes, policy)
    # A spare is put in after the drains, and makes no room for them.
    resumed = {step.node for step in steps if step.what in (RESUME, REWORD)} & out
    resumed -= {name for name in resumed if _stays_taken_out(decided[name])}
    drains = [step for step in steps if step.what == DRAIN and step.node not in back]
    after = len(out - resumed) + len(drains)
    refusal = _refusal(drains, by_node, policy, fleet, len(out - resumed), most)
    if refusal:
        return GatePlan((), left, refusal, steps, len(out), len(out), most)
    return GatePlan(steps, left, "", (), len(out), after, most)


def plan_introduction(
    fresh: Iterable[str], nodes: Mapping[str, Node], policy: Policy, renewed: Iterable[str] = ()
) -> tuple[Action, ...]:
    """Return the drains of nodes that are new; what is drained already is left to who did it.

    Of those that are `renewed` only newer evidence counts, if the gate holds them already, too.
    A new node is unknown to Slurm until its slurmd registers. Here that keeps no job off it: it
    must be drained before it can take a job.
    """
    again = set(renewed)
    steps: list[Action] = []
    for name in sorted(set(fresh) & set(nodes)):
        node, why = nodes[name], "new, and without evidence"
        mine = ours(node, policy)
        kind, text = (REPLACED, _RENEWED) if name in again else (UNPROVEN, _NEW)
        if not node.has("DRAIN"):
            steps.append(Action(name, DRAIN, why, write_reason(name, kind, text), node))
        elif name in again and mine and mine.kind != REPLACED:
            steps.append(Action(name, REWORD, why, write_reason(name, kind, text), node))
    return tuple(steps)


def _set_aside(decided: dict[str, Action], tried: set[tuple[str, str]]) -> None:
    """Leave alone what was tried already: it was done, or did not work; changes `decided`."""
    for name, step in list(decided.items()):
        if (name, step.what) in tried:
            decided[name] = Action(
                name, LEAVE, f"{step.what} was tried in this run", seen=step.seen
            )


def _decide(
    name: str, node: Node | None, verdict: Verdict | None, policy: Policy, now: float
) -> Action:
    def leave(why: str) -> Action:
        return Action(name, LEAVE, why, seen=node)

    if node is None:
        return leave("Slurm does not know it")
    mine = ours(node, policy)
    if _untouchable(node, mine):
        return leave(f"is {node.state}, which is not the gate's to change")
    if node.has("DRAIN") and mine is None:
        return leave(_whose(node))
    doubt = _doubt(verdict, now, policy)
    if verdict is None or doubt:
        why = f"{doubt}; {'stays out' if mine else 'stays in service'}"
        if mine and verdict and verdict.verdict == FAIL:
            why += f", and failed: {finding(verdict)[0]}{_do(verdict)}"
        return leave(why)
    if verdict.verdict == PASS:
        if mine is None:
            return leave("in service, and passes")
        return _let_in(node, mine, verdict, policy)
    if verdict.verdict == NOT_MEASURED and (mine or policy.unmeasured != DRAIN):
        return leave(
            f"{_first(verdict)}not measured; {'stays out' if mine else 'stays in service'}"
        )
    head, text = finding(verdict)
    if mine is None:
        return Action(name, DRAIN, text, write_reason(name, FAILED, text), node)
    if mine.kind == ITSELF:
        return leave(f"out by its own checks ({mine.text}), and fails: {head}{_do(verdict)}")
    if mine.kind in AGAINST and _same_finding(mine.text, head):
        return leave(f"out, and still fails: {head}{_do(verdict)}")
    kind = mine.kind if mine.kind in AGAINST else KEPT_OUT
    return Action(name, REWORD, text, write_reason(name, kind, text), node)


def finding(verdict: Verdict) -> tuple[str, str]:
    """Return the heading of what failed, and the whole text of the reason."""
    head = heading(verdict.node, verdict.check or "verdict", verdict.subject)
    if verdict.verdict == NOT_MEASURED:
        head = f"not measured: {head}"
    return head, plain(f"{head}: {verdict.text or 'fails'}{_do(verdict)}")


def _do(verdict: Verdict) -> str:
    return f"; {verdict.remedy}" if verdict.remedy else ""


def _let_in(node: Node, mine: Reason, verdict: Verdict, policy: Policy) -> Action:
    """What becomes of a node that the gate holds, and that passes."""
    refused = _not_enough(node, mine, verdict, policy)
    if refused:
        return Action(node.name, LEAVE, refused, seen=node)
    if node.name not in policy.spares:
        why = f"passes at level {verdict.level}"
        return Action(node.name, RESUME, why, seen=node)
    if mine.kind == SPARE:
        return Action(node.name, LEAVE, "a spare, and ready", seen=node)
    reason = write_reason(node.name, SPARE, _READY)
    return Action(node.name, REWORD, "passes; held as a spare", reason, node)


def _not_enough(node: Node, mine: Reason, verdict: Verdict, policy: Policy) -> str:
    """Why a passing verdict does not suffice; empty when it does."""
    if node.name in policy.kept:
        return f"passes, and is kept out: {policy.kept[node.name]}"
    if LEVELS.index(verdict.level) < LEVELS.index(policy.level):
        return f"passes at level {verdict.level} only; {policy.level} is asked for"
    appended = as_written(node.reason) != node.reason
    dates = [node.reason_at] if mine.kind in DATED or appended else []
    # Slurm 22.05 appends nothing, and the reason has the date from before the fall.
    dates += [node.booted_at] if node.has("DOWN") else []
    for date in dates:
        since = seconds_of(date)
        if since is None or verdict.at is None or verdict.at <= since:
            before = "it was taken out" if date == node.reason_at else "its boot"
            again = "run validate_fabric, and validate_nodes -e again=true"
            return f"passes, on evidence from before {before}; {again}"
    return ""


def _doubt(verdict: Verdict | None, now: float, policy: Policy) -> str:
    """Why a verdict shows nothing about the present; empty when it does."""
    if verdict is None:
        return "no evidence"
    if verdict.at is None:
        nothing = verdict.verdict == NOT_MEASURED and verdict.text
        return f"not measured: {verdict.text}" if nothing else "evidence without a time"
    if verdict.at > now + _CLOCK_S:
        return "evidence from the future; look at the clocks"
    if now - verdict.at > policy.evidence_s:
        return f"evidence is {(now - verdict.at) / 86400:.0f} days old"
    return ""


def _of_now(verdict: Verdict, node: Node | None, policy: Policy, now: float) -> Verdict:
    """Return a verdict; if it shows nothing, and the site drains for that, as not measured now."""
    doubt = _doubt(verdict, now, policy)
    if not doubt or policy.unmeasured != DRAIN or node is None or node.has("DRAIN"):
        return verdict
    if verdict.verdict == NOT_MEASURED and verdict.at is None and verdict.text:
        return replace(verdict, at=now)
    return Verdict(
        verdict.node,
        NOT_MEASURED,
        now,
        check="node.records",
        subject=f"node:{verdict.node}",
        text=doubt,
        remedy="run validate_fabric and validate_nodes",
    )


def _whose(node: Node) -> str:
    if claims_ours(node.reason):
        return f"drained, and the reason was changed (by {node.reason_by or 'unknown'})"
    if _is_replaced(node):
        return holder_of(node)
    return f"drained by {node.reason_by or 'unknown'}: {node.reason or 'no reason'}"


def _first(verdict: Verdict) -> str:
    return f"{heading(verdict.node, verdict.check, verdict.subject)} " if verdict.check else ""


def _same_finding(text: str, head: str) -> bool:
    return text == head or text.startswith(head + ":")


def _taken_out(nodes: Mapping[str, Node], policy: Policy) -> set[str]:
    """Nodes that are drained by the gate: they were in service, and it drained them."""
    kinds = {name: ours(node, policy) for name, node in nodes.items()}
    return {name for name, mine in kinds.items() if mine and mine.kind == FAILED}


def _stays_taken_out(step: Action) -> bool:
    mine = read_reason(step.node, step.reason) if step.what == REWORD else None
    return mine is not None and mine.kind == FAILED


def _put_spares_in(
    decided: dict[str, Action],
    nodes: Mapping[str, Node],
    by_node: Mapping[str, Verdict],
    policy: Policy,
    now: float,
    back: set[str],
) -> None:
    """Turn as many ready spares into swaps as nodes are missing; changes `decided`."""
    pool = [name for name in dict.fromkeys(policy.spares) if name in nodes]
    missing = []
    for name in sorted(set(nodes) - set(pool)):
        mine, step = ours(nodes[name], policy), decided[name]
        failed = mine is not None and mine.kind in (FAILED, ITSELF) and step.what != RESUME
        if step.what == DRAIN or failed:
            missing.append(name)
    serving = [name for name in pool if _serves(nodes[name], decided[name])]
    room = min(len(missing), policy.spares_in_service) - len(serving)
    for name in pool:
        if room <= 0:
            return
        mine, verdict = ours(nodes[name], policy), by_node.get(name)
        ready = (
            mine is not None
            and mine.kind not in AGAINST
            and name not in back
            and verdict is not None
            and verdict.verdict == PASS
            and not _untouchable(nodes[name], mine)
            and not _doubt(verdict, now, policy)
            and not _not_enough(nodes[name], mine, verdict, policy)
        )
        if ready:
            lost = missing[len(serving)]
            decided[name] = Action(name, SWAP_IN, f"passes, and {lost} is out", seen=nodes[name])
            serving.append(name)
            room -= 1


def _serves(node: Node, step: Action) -> bool:
    return not node.has("DRAIN") and not hands_off(node) and step.what != DRAIN


def _refusal(
    drains: Sequence[Action],
    by_node: Mapping[str, Verdict],
    policy: Policy,
    fleet: int,
    out: int,
    most: int,
) -> str:
    """Return the line that says why nothing is done; empty when the drains stay in the share."""
    if not drains:
        return ""
    found = [by_node[step.node] for step in drains]
    counts = Counter(verdict.check or "verdict" for verdict in found)
    often, times = counts.most_common(1)[0]
    tail = (
        "nothing of this run is done. A finding all over the fleet is a question about the checker:"
        f" look at {often} on {found[0].node} by hand, then raise the share for one run if it holds"
    )
    if out + len(drains) > most:
        return (
            f"{len(drains)} nodes would be drained ({times} for {often}) and {out} are drained "
            "by the "
            f"gate; {most} of {fleet} may be (share {policy.share:g}): {tail}"
        )
    for verdict in found:
        # The share is one of the nodes that have a verdict; Slurm has others, too.
        wide = round((verdict.fleet_share or 0.0) * len(by_node))
        if wide > most:
            return (
                f"{verdict.check} fails on {wide} of {len(by_node)} nodes with a verdict, and "
                f"{most} of {fleet} may be out (share {policy.share:g}): {tail}"
            )
    return ""
