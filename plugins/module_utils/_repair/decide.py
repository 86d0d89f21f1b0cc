# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The next step of each incident, by Slurm's state, verdicts, ladder and what was done. Pure.

A step is taken only on a node that the gate, or its health program, has drained, and on which no
job is left. Nothing here lets a node in: that is the gate's, by evidence from after the last step.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from typing import Collection, Mapping

from .._core.record import FAIL, PASS
from .._core.verdict import place_of
from .._slurm.gate.policy import LEVELS, Verdict, hands_off, holder_of, ours, seconds_of
from .._slurm.gate.policy import Policy as GatePolicy
from .._slurm.gate.reason import AGAINST, DATED, ITSELF, Reason
from .._slurm.nodes import Node, nodes_of_share
from .incident import (
    ALLOWED,
    BEGUN,
    BY_OPERATOR,
    CLOSED,
    JUDGED,
    KEPT,
    OPENED,
    PERSON,
    REPLACED,
    RETURN,
    VALIDATE,
    Begun,
    Event,
    Incident,
    after_event,
    fold,
    kept_parts,
    open_of,
    repaired_of,
    with_events,
)
from .ladders import BY_BMC, RESTARTS, STEPS, Ladder, ladder_of
from .ladders import RETURN as TO_MAKER

# Incidents of no node: a cause that many share. No host can have this name.
FLEET = "fleet:"
# How often evidence is asked for after a step before a person is.
MOST_VALIDATIONS = 3
# An incident has at most the steps of so many ladders, whatever parts they are for.
_MOST_LADDERS = 2
_PLAIN = re.compile(r"[^0-9A-Za-z._-]+")
# No obstacle for a step on a node that is ours: one that hangs, that was silent for the time of a
# boot, or that came up with less than slurm.conf declares. No job runs there.
_BROKEN = ("DOWN", "NOT_RESPONDING", "INVAL", "INVALID_REG")
# Fewer nodes than this have no common cause by their number alone.
_FEWEST_ALIKE = 3


@dataclass(frozen=True)
class Policy:
    """What the site allows: `steps`, how many nodes at once, and how often in `window_s` seconds.

    Only nodes of `powered` have a BMC that can do steps of BY_BMC. Nodes of `serving` run services
    of the cluster, slurmctld for instance, so that no step of RESTARTS is taken on them.

    `ladders` are the site's own by check, `alike` the share of the fleet (0 to 1) above which nodes
    with one finding have one cause, `user` who the gate is in Slurm. Without `begins` none begins.
    `level` is the least that the gate lets a node in by.
    """

    steps: Collection[str] = ()
    at_once: int = 1
    times: int = 1
    window_s: float = 30 * 86400
    alike: float = 0.1
    user: str = "root"
    begins: bool = True
    powered: Collection[str] = ()
    serving: Collection[str] = ()
    level: str = LEVELS[0]
    ladders: Mapping[str, Ladder] = field(default_factory=dict)


@dataclass(frozen=True)
class Parts:
    """What is known of parts: names for life and serials by subject, and why some are offenders.

    `kept` has by node the part because of which it is not let in, and `allowed` the nodes for which
    the operator consents.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    serials: Mapping[str, str] = field(default_factory=dict)
    offenders: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
    allowed: Collection[str] = ()


@dataclass(frozen=True)
class Due:
    """A step that is due on a node, and the least level of the validation after it."""

    node: str
    incident: str
    step: str
    why: str
    level: str = LEVELS[0]


@dataclass(frozen=True)
class Plan:
    """Lines to add, steps to take (their begin is among the lines), and why others wait."""

    events: tuple[Event, ...] = ()
    due: tuple[Due, ...] = ()
    waits: Mapping[str, str] = field(default_factory=dict)


def obstacle(node: Node | None, gate: GatePolicy) -> str:
    """Return why no step may be taken on the node; empty where it may.

    A step is taken right after this is asked: what is drained gets no new job.
    """
    if node is None:
        return "Slurm has no such node"
    reason = ours(node, gate)
    if hands_off(node, _BROKEN if reason else ()):
        return f"the node is {node.state}: bring it back, or take it out"
    if reason is None or reason.kind not in AGAINST:
        return holder_of(node)
    if node.busy:
        return "its jobs end first"
    return ""


def gate_policy(user: str, incidents: Mapping[str, Incident]) -> GatePolicy:
    """Return by what the gate knows its nodes, by all incidents."""
    return GatePolicy(user=user, repaired=repaired_of(incidents))


def plan_repair(
    nodes: Mapping[str, Node],
    verdicts: Mapping[str, Verdict],
    incidents: Mapping[str, Incident],
    policy: Policy,
    now: float,
    targets: Collection[str],
    parts: Parts = Parts(),
) -> Plan:
    """Return what happens next to these nodes. `now` is epoch seconds.

    Steps are given to the oldest incidents first, `at_once` at most, and to targets alone; what
    many nodes share is judged by all of them.
    """
    now = float(int(now))
    consents = _consents(incidents, parts, now)
    incidents = with_events(incidents, consents)
    parts = replace(
        parts,
        kept={node: part for node, part in parts.kept.items() if node not in set(parts.allowed)},
    )
    before = open_of(incidents)
    gate = gate_policy(policy.user, incidents)
    shared = _shared(nodes, verdicts, policy)
    causes = {name: cause for cause, names in shared.items() for name in names}
    history = _Tried(incidents)
    events: list[Event] = [*consents, *_fleet_events(shared, before, now)]
    waits: dict[str, str] = {}
    asked: list[tuple[Incident, Due, list[Event], str]] = []
    # A node that left Slurm may have left the inventory, too.
    left = {name for name in before if name not in nodes and not name.startswith(FLEET)}
    for name in sorted(set(targets) | left):
        node, known = nodes.get(name), before.get(name)
        verdict = verdicts.get(name)
        reason = None if node is None else ours(node, gate)
        over = _over(node, reason, verdict, known, parts, now)
        if over:
            events.append(over)
            known = None
        if node is None or (known is None and (not reason or reason.kind not in AGAINST)):
            continue
        if name in causes:
            alike, cause = shared[causes[name]], causes[name]
            waits[name] = f"{len(alike)} nodes fail {cause}: one cause, and no node's own"
            continue
        if known is None:
            opened = _opened(node, reason, verdict, parts, now)
            events.append(opened)
            known = fold([opened])[opened.incident]
        why = obstacle(node, gate)
        if why:
            waits[name] = why
            continue
        due, lines, why = _next(node, reason, verdict, known, history, parts, policy, now)
        if due:
            asked.append((known, due, lines, reason.kind if reason else ""))
        else:
            events += lines
            waits[name] = why
    return _chosen(asked, events, waits, policy, now)


def unswept(
    nodes: Mapping[str, Node],
    own: Mapping[str, Verdict],
    whole: Mapping[str, Verdict],
    gate: GatePolicy,
) -> list[str]:
    """Return nodes that pass by what they were asked since their drain, and wait for a sweep.

    `own` are verdicts as old as what the node was asked, `whole` those that the gate lets in by.
    """
    waiting = []
    for name, node in sorted(nodes.items()):
        reason = ours(node, gate)
        since = seconds_of(node.reason_at)
        if reason is None or reason.kind not in DATED or since is None:
            continue
        if _passes_after(own.get(name), since) and not _passes_after(whole.get(name), since):
            waiting.append(name)
    return waiting


def _passes_after(verdict: Verdict | None, since: float) -> bool:
    return verdict is not None and verdict.verdict == PASS and (verdict.at or 0) > since


def _chosen(
    asked: list[tuple[Incident, Due, list[Event], str]],
    events: list[Event],
    waits: dict[str, str],
    policy: Policy,
    now: float,
) -> Plan:
    """Give the steps out; a request for evidence disturbs none but a node that is out.

    Of the levels deeper than the site's, one run validates at the least.
    """
    taken: list[Due] = []
    steps = 0
    places = {LEVELS.index(due.level) for _known, due, *_rest in asked}
    deepest = min(places - {LEVELS.index(policy.level)}, default=0)
    for _known, due, lines, kind in sorted(asked, key=lambda one: (one[0].opened, one[0].node)):
        if not policy.begins:
            waits[due.node] = f"{due.step} is next"
            continue
        if due.level != policy.level and LEVELS.index(due.level) > deepest:
            waits[due.node] = f"{due.step} is next, after the nodes at level {LEVELS[deepest]}"
            continue
        if due.step != VALIDATE and steps >= policy.at_once:
            waits[due.node] = f"{due.step} is next, when fewer nodes are at theirs"
            continue
        steps += due.step != VALIDATE
        events += lines
        begun = Event(now, due.incident, due.node, BEGUN, step=due.step, text=due.why, kind=kind)
        events.append(begun)
        taken.append(due)
    return Plan(tuple(events), tuple(taken), waits)


def _consents(incidents: Mapping[str, Incident], parts: Parts, now: float) -> list[Event]:
    """Return the lines of the operator's consent to nodes that are kept out."""
    found = []
    for name in sorted(set(parts.allowed) & set(parts.kept)):
        incident = kept_parts(incidents).get(parts.kept[name])
        if incident is not None:
            text = f"the operator consents to {name}"
            found.append(Event(now, incident.name, incident.node, ALLOWED, text=text))
    return found


def _opened(
    node: Node, reason: Reason | None, verdict: Verdict | None, parts: Parts, now: float
) -> Event:
    at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    failed = verdict if verdict and verdict.verdict == FAIL else None
    return Event(
        now,
        f"{node.name}-{at}",
        node.name,
        OPENED,
        check=failed.check if failed else "",
        subject=failed.subject if failed else "",
        text=failed.text if failed else (reason.text if reason else node.reason),
        part=parts.names.get(failed.subject, "") if failed else "",
        serial=parts.serials.get(failed.subject, "") if failed else "",
    )


def _over(
    node: Node | None,
    reason: Reason | None,
    verdict: Verdict | None,
    known: Incident | None,
    parts: Parts,
    now: float,
) -> Event | None:
    if known is None:
        return None
    how = ""
    if node is None:
        how = "the node left Slurm"
    elif not node.has("DRAIN") and not hands_off(node):
        passed = (
            verdict
            and verdict.verdict == PASS
            and verdict.at is not None
            and verdict.at >= known.since
        )
        how = "back" if passed else BY_OPERATOR
    elif verdict and verdict.verdict == FAIL and _is_fresh(verdict, node, reason, known):
        there = parts.names.get(known.subject, ""), parts.serials.get(known.subject, "")
        how = REPLACED if known.part and _is_another(known, *there) else ""
    return Event(now, known.name, known.node, CLOSED, text=how) if how else None


def _is_another(known: Incident | Begun, part: str, serial: str) -> bool:
    """Return whether a part is not the known one, by any name that it has, or had.

    One that is lost names itself no more; replace_node forgets its serial number, too.
    """
    if not part and not known.serial:
        return False
    names = {name.lower() for name in (part, serial) if name}
    return names.isdisjoint((known.part.lower(), known.serial.lower()))


def _shared(
    nodes: Mapping[str, Node], verdicts: Mapping[str, Verdict], policy: Policy
) -> dict[str, list[str]]:
    """Return the causes that many nodes share, with the nodes, be they targets or not.

    Nodes that fail at one switch or one mount share it, however few of the fleet they are; of one
    check alone, more than `alike` of the fleet.
    """
    found: dict[str, list[str]] = {}
    for name in sorted(set(verdicts) & set(nodes)):
        verdict = verdicts[name]
        if verdict.verdict == FAIL:
            found.setdefault(verdict.check, []).append(name)
            outside = _outside(verdict.subject, name)
            if outside:
                found.setdefault(f"{verdict.check} at {outside}", []).append(name)
    least = max(_FEWEST_ALIKE, nodes_of_share(policy.alike, len(nodes)) + 1)
    shared: dict[str, list[str]] = {}
    seen: set[str] = set()
    # What is all over the fleet says more than each of its places.
    for cause, names in sorted(found.items(), key=lambda one: (" at " in one[0], one[0])):
        fewest = _FEWEST_ALIKE if " at " in cause else least
        if len(names) >= fewest and not seen.issuperset(names):
            shared[cause] = names
            seen.update(names)
    return shared


def _outside(subject: str, node: str) -> str:
    """Return what a subject names outside of the node: a switch, or a mount; else nothing."""
    place = place_of(subject)
    if place.kind in ("cable", "port"):
        ends = [end.partition("/")[0] for end in place.name.split("--")]
        return next((end for end in ends if end and end != node), "")
    return place.name.partition("/")[2] if place.kind == "mount" else ""


def _fleet_events(
    shared: Mapping[str, list[str]], before: Mapping[str, Incident], now: float
) -> list[Event]:
    """Open an incident for each cause that many share, and close those that fewer have."""
    at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    events = []
    for cause, names in sorted(shared.items()):
        owner = FLEET + cause
        if owner not in before:
            check = cause.partition(" ")[0]
            name = f"{_PLAIN.sub('-', cause)}-{at}"
            text = f"{len(names)} nodes fail {cause}: {', '.join(names[:8])}" + (
                ", .." if len(names) > 8 else ""
            )
            events.append(Event(now, name, owner, OPENED, check=check, subject="fleet", text=text))
            events.append(Event(now, name, owner, PERSON, text="find what these nodes share"))
    for owner, known in sorted(before.items()):
        if owner.startswith(FLEET) and owner[len(FLEET) :] not in shared:
            events.append(Event(now, known.name, owner, CLOSED, text="few nodes have it now"))
    return events


class _Tried:
    """What began because of a part, wherever it was."""

    def __init__(self, incidents: Mapping[str, Incident]) -> None:
        self.of: dict[str, list[Begun]] = {}
        for one in (begun for incident in incidents.values() for begun in incident.begun):
            for key in (f"part {one.part}", f"subject {one.subject}"):
                self.of.setdefault(key, []).append(one)

    def on(self, subject: str, part: str, serial: str) -> set[Begun]:
        """Return the steps. A part without a name is known by its slot.

        What was done because of another part of the node, or of the former one in this slot, was
        not tried on this one.
        """
        begun = {one for one in self.of.get(f"part {part}", ()) if part}
        for one in self.of.get(f"subject {subject}", ()):
            if not (one.part and part and _is_another(one, part, serial)):
                begun.add(one)
        return begun


def _next(
    node: Node,
    reason: Reason | None,
    verdict: Verdict | None,
    known: Incident,
    history: _Tried,
    parts: Parts,
    policy: Policy,
    now: float,
) -> tuple[Due | None, list[Event], str]:
    """Return the step that is due with the lines before it, or lines and why it waits."""
    fresh = verdict is not None and _is_fresh(verdict, node, reason, known)
    evidence, found = "no evidence is new enough", "measured nothing"
    if verdict and fresh and verdict.verdict == PASS:
        if node.name in parts.kept:
            return None, [], known.kept or f"{parts.kept[node.name]} fails again and again"
        if LEVELS.index(verdict.level) >= LEVELS.index(policy.level):
            return None, [], f"it passes at level {verdict.level}: admit_nodes lets it in"
        found = f"passed at level {verdict.level} only"
        evidence = f"it {found}; {policy.level} is asked for"
    level = policy.level
    if verdict and verdict.verdict == FAIL:
        level = max(level, verdict.asked_by, key=LEVELS.index)
        if not fresh:
            what = f"{verdict.check} of {verdict.subject}"
            finding = "; ".join(filter(None, (verdict.text, verdict.remedy)))
            found = f"did not measure {what} ({finding})"
            evidence += f", and {what} failed before: {finding}"
    failed = verdict if verdict and fresh and verdict.verdict == FAIL else None
    # What a person was asked for may be there by now. A part that goes back stays one; one without
    # a name may be another one since there is a name.
    returns = known.returns and bool(known.part or not parts.names.get(known.subject))
    if known.waits and (returns or failed is None):
        return None, [], known.waits
    if failed is None:
        asked = _validations(known)
        if asked < MOST_VALIDATIONS:
            return Due(node.name, known.name, VALIDATE, evidence, level), [], ""
        why = f"{MOST_VALIDATIONS} validations in turn {found}; look at the node"
        return None, [Event(now, known.name, node.name, PERSON, text=why)], why
    due, lines, why = _after_failure(node, failed, known, history, parts, policy, now)
    return (replace(due, level=level) if due else None), lines, why


def _after_failure(
    node: Node,
    verdict: Verdict,
    known: Incident,
    history: _Tried,
    parts: Parts,
    policy: Policy,
    now: float,
) -> tuple[Due | None, list[Event], str]:
    """Return the same by new evidence that the node fails."""
    part = parts.names.get(verdict.subject, "")
    serial = parts.serials.get(verdict.subject, "")
    judged = Event(
        now,
        known.name,
        node.name,
        JUDGED,
        check=verdict.check,
        subject=verdict.subject,
        text=verdict.text,
        part=part,
        serial=serial,
    )
    # While a person is waited for, each run sees the same evidence.
    is_new = (known.steps and not known.waits) or after_event(known, judged) != known
    lines = [judged] if is_new else []
    if part in parts.offenders and not known.allowed:
        why = f"return the part: {verdict.subject} {parts.offenders[part]}; {verdict.remedy}"
        return None, [*lines, Event(now, known.name, node.name, KEPT, text=why, part=part)], why
    ladder = ladder_of(verdict.check, policy.ladders, verdict.subject)
    # A person is waited for as long as it takes: the end of the window gives no consent.
    since = known.waits_since if known.waits else now
    tried = history.on(verdict.subject, part, serial)
    step, what, why = _rung(ladder, known, tried, since, policy, verdict)
    if step:
        return Due(node.name, known.name, step, f"{verdict.check}: {verdict.text}"), lines, ""
    if why != known.waits:
        lines.append(Event(now, known.name, node.name, what, text=why))
    return None, lines, why


def _is_fresh(verdict: Verdict, node: Node, reason: Reason | None, known: Incident) -> bool:
    """Evidence counts from after the last step; before any, the evidence the node is out for.

    The health program of a node leaves none, so that only later evidence is about its drain.
    """
    at = verdict.at
    if at is None:
        return False
    if known.steps:
        return at > known.since
    if reason and reason.kind == ITSELF:
        since = seconds_of(node.reason_at)
        return since is not None and at >= since
    return True


def _validations(known: Incident) -> int:
    """How often evidence was asked for since the last step."""
    count = 0
    for step, _at in reversed(known.steps):
        if step != VALIDATE:
            break
        count += 1
    return count


def _rung(
    ladder: Ladder,
    known: Incident,
    tried: Collection[Begun],
    since: float,
    policy: Policy,
    verdict: Verdict,
) -> tuple[str, str, str]:
    """Return the next step; or that the part is returned or a person decides, and why.

    A step includes what costs less, so that no part goes down its ladder again in an incident. Part
    after part of a node could: it is a person's after twice as many steps as the ladder has.
    """
    begun = [one for one in known.begun if one.step in STEPS]
    here = [one.step for one in begun if one in tried]
    taken = [STEPS.index(step) for step in here]
    recent = [one.step for one in tried if since - one.at < policy.window_s]
    blocked, spent = "", ""
    for step in ladder.steps:
        if taken and STEPS.index(step) <= max(taken):
            continue
        if recent.count(step) >= policy.times:
            spent = step
        elif _need(step, known.node, policy):
            blocked = blocked or step
        elif len(begun) >= _MOST_LADDERS * len(ladder.steps):
            message = f"{len(begun)} steps did not help the node; {verdict.check} {verdict.subject}"
            return "", PERSON, f"{message}: {verdict.remedy}"
        else:
            return step, "", ""
    done = ", ".join(here)
    after = f"after {done}" if done else (f"{spent} was done before" if spent else "no step helps")
    message = f"{verdict.check} {verdict.subject} ({after})"
    if blocked:
        need = _need(blocked, known.node, policy)
        return "", PERSON, f"{blocked} is next and not done ({need}); {message}: {verdict.remedy}"
    if ladder.end == TO_MAKER:
        return "", RETURN, f"return the part: {message}: {verdict.remedy}"
    return "", PERSON, f"{message}: {verdict.remedy}"


def _need(step: str, node: str, policy: Policy) -> str:
    """Return why the step may not be taken on the node; empty where it may."""
    if step not in policy.steps:
        return "cluster_repair.steps lacks it"
    if step in RESTARTS and node in policy.serving:
        return "the node runs services of the cluster, too"
    if step in BY_BMC and node not in policy.powered:
        return "the node has no node_bmc"
    return ""
