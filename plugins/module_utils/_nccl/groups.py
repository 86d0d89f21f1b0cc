# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""All groups run one after the other, the small ones first, with a result for each. Pure but run.

A node that a small group has shown to be the culprit takes no part in the larger ones: each of them
would fail for what is known already.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from .._core.question import Question
from .._core.record import FAIL, NOT_MEASURED, PASS, Record, Tally
from .._slurm.nodes import Node
from .halving import (
    CHECKER,
    CULPRIT,
    INTERACTION,
    LIMIT,
    SCALE,
    UNSEPARATED,
    WRONG,
    Finding,
    Group,
    search,
)
from .thresholds import BUSBW_OF_GROUP, CORRECT

_LOOK_NODE = (
    "look: validate_nodes of this node, and its cables and adapters with fabric_verify and "
    "fabric_pairs, which name the part"
)
_LOOK_BETWEEN = (
    "look: no node is at fault by itself; the links between the two sides (fabric_pairs names "
    "them), routing (two ways over one link), adaptive routing, congestion"
)
_LOOK_SCALE = (
    "look: only all of them together fail: uplinks and spine switches, routing, congestion "
    "control; fabric_pairs loads each link"
)
_LOOK_CHECKER = (
    "settings: nothing passes, so look at the checker first: threshold, program, MPI, container, "
    "NCCL's environment; run the smallest group by hand"
)
_TEXTS = {
    CULPRIT: "groups with {nodes} are not good, and those without are",
    INTERACTION: "{nodes} with {others} is not good, though each side is good by itself",
    SCALE: "{nodes} and {others} are each good, and no smaller part of both together is bad",
    UNSEPARATED: "{nodes} together are not good, and no run tells them apart",
    CHECKER: "no part of {nodes} is good",
    LIMIT: "the search in {nodes} ended with the last run that was allowed",
}
_REMEDIES = {
    CULPRIT: _LOOK_NODE,
    INTERACTION: _LOOK_BETWEEN,
    SCALE: _LOOK_SCALE,
    UNSEPARATED: "look: run it again with one more node, or fabric_pairs",
    CHECKER: _LOOK_CHECKER,
    LIMIT: "settings: allow more runs, or exclude the nodes that are known to be bad",
}


class Run(NamedTuple):
    """One run: who, over which rails, what it came to, and its records."""

    group: str
    nodes: tuple[str, ...]
    rails: tuple[int, ...]
    outcome: str
    records: tuple[Record, ...]

    @property
    def wrong(self) -> Record | None:
        """The record of its wrong sum, None without one."""
        return next(
            (one for one in self.records if one.check == CORRECT.check and one.status == FAIL), None
        )


Measure = Callable[[Group], "list[Record]"]


@dataclass
class Outcome:
    """Records about groups and nodes, and all runs in their order."""

    records: list[Record] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    # By node the widest group that was good with it, of nodes that none has shown to be culprits,
    # and that had no part in a wrong sum without one.
    good: dict[str, Group] = field(default_factory=dict)


class _LimitError(Exception):
    """No run is left."""


def question_of(rails: int, rate_gbps: float, share: float, source: str = "") -> Question:
    """Return the question of a group: the bus bandwidth that so many rails of Gb/s must reach."""
    least = round(rails * rate_gbps / 8 * share, 1)
    return BUSBW_OF_GROUP._replace(value=least, source=source or BUSBW_OF_GROUP.source)


def usable(nodes: Sequence[str], seen: Mapping[str, Node]) -> dict[str, str]:
    """Return by node why Slurm would not give it now, for those that it would not."""
    refused = {}
    for name in nodes:
        node = seen.get(name)
        if node is None:
            refused[name] = "Slurm does not know it"
        elif node.busy or not node.usable:
            refused[name] = f"it is {node.state}"
    return refused


def left_out(refused: Mapping[str, str]) -> list[Record]:
    """Return the records of nodes that take no part."""
    remedy = "look: wait for its jobs, or bring it back, and run it again"
    return [
        Record("groups.node", f"node:{name}", NOT_MEASURED, f"took no part: {why}", remedy=remedy)
        for name, why in sorted(refused.items())
    ]


def name_nodes(nodes: Sequence[str], most: int = 12) -> str:
    """Return names for people."""
    shown = ", ".join(nodes[:most])
    return shown + (f" and {len(nodes) - most} more" if len(nodes) > most else "")


def run_groups(groups: Sequence[Group], measure: Measure, most_runs: int) -> Outcome:
    """Run all groups and search those that are not good; `measure` makes the records of a run."""
    outcome = Outcome()
    culprits: dict[str, str] = {}
    good: dict[str, set[int]] = {}
    for group in groups:
        nodes = tuple(node for node in group.nodes if node not in culprits)
        without = [node for node in group.nodes if node in culprits]
        if len(nodes) < 2:
            text = f"{group.kind} {group.name}: fewer than two nodes are left"
            subject = f"nodes:{','.join(group.nodes)}"
            outcome.records.append(
                Record("groups.busbw", subject, NOT_MEASURED, text, remedy=_LOOK_NODE)
            )
            continue
        asked = Group(group.kind, group.name, nodes, group.rails)
        before = len(outcome.runs)
        # On other rails a node may be bad that was good on these.
        helpers = [one for one in good if one not in nodes and good[one] >= set(group.rails)]
        found = _search(asked, helpers, measure, most_runs, outcome)
        runs = outcome.runs[before:]
        outcome.records.append(_of_group(asked, found, runs, without))
        outcome.records += [_of_finding(asked, one, runs) for one in found]
        outcome.records += _of_wrong_sums(asked, runs)
        for one in found:
            if one.kind == CULPRIT:
                culprits.update(dict.fromkeys(one.nodes, one.status))
        if not found and not any(run.wrong for run in runs):
            for node in nodes:
                good.setdefault(node, set()).update(group.rails)
                widest = outcome.good.setdefault(node, asked)
                if len(asked.rails) > len(widest.rails):
                    outcome.good[node] = asked
    blamed = {node for node, status in culprits.items() if status == FAIL}
    unexplained = [run for run in outcome.runs if run.wrong and blamed.isdisjoint(run.nodes)]
    for node in (*culprits, *(node for run in unexplained for node in run.nodes)):
        outcome.good.pop(node, None)
    return outcome


def nothing_asked(divided: Sequence[str]) -> list[Record]:
    """Return the records of nodes that have nothing to be asked, as validate_nodes asks nothing."""
    text = "it is asked nothing: MIG divides GPUs of it, and only whole ones are loaded"
    return [Record("groups.node", f"node:{name}", PASS, text) for name in divided]


def cleared(good: Mapping[str, Group], planned: Sequence[Group]) -> list[Record]:
    """Return the records of nodes that were good in a group over as many rails as any has of them.

    A culprit of an earlier run passes by this alone: a group of fewer rails loads it less.
    """
    most: dict[str, int] = {}
    for group in planned:
        for node in group.nodes:
            most[node] = max(most.get(node, 0), len(group.rails))
    return [
        Record(
            f"groups.{CULPRIT}",
            f"node:{node}",
            PASS,
            f"{group.kind} {group.name} is good with it, over {len(group.rails)} rails",
        )
        for node, group in sorted(good.items())
        if len(group.rails) >= most.get(node, 0)
    ]


def _search(
    group: Group, good: Sequence[str], measure: Measure, most_runs: int, outcome: Outcome
) -> list[Finding]:
    """Drive the search of one group; a limit that is reached is a finding."""
    steps = search(group.nodes, good)
    try:
        nodes = next(steps)
        while True:
            if len(outcome.runs) >= most_runs:
                raise _LimitError
            records = tuple(measure(Group(group.kind, group.name, nodes, group.rails)))
            reported = Tally.of(records).verdict
            outcome.runs.append(Run(group.name, nodes, group.rails, reported, records))
            nodes = steps.send(WRONG if outcome.runs[-1].wrong else reported)
    except StopIteration as end:
        return list(end.value)
    except _LimitError:
        return [Finding(LIMIT, NOT_MEASURED, group.nodes)]


def _of_group(
    group: Group, found: Sequence[Finding], runs: Sequence[Run], without: Sequence[str]
) -> Record:
    """The record of a group as a whole: its own runs decide, and the findings say more."""
    whole = [run for run in runs if set(run.nodes) == set(group.nodes)]
    # What the search believed in: a pass where there is no finding, else the worst that was seen.
    wanted = PASS if not found else FAIL
    best = next((run for run in reversed(whole) if run.outcome == wanted), None)
    best = best or (whole[-1] if whole else None)
    given = _speed(best.records) if best else None
    status = PASS if not found else FAIL if best and best.outcome == FAIL else NOT_MEASURED
    text = f"all_reduce over {group.kind} {group.name}, {len(group.nodes)} nodes"
    if without:
        text += f", without {name_nodes(without)}, found before"
    if best and status != PASS:
        text += "; " + "; ".join(one.text for one in best.records if one.status != PASS)[:300]
    return Record(
        "groups.busbw",
        f"nodes:{','.join(group.nodes)}",
        status,
        text,
        measured=given.measured if given else None,
        threshold=given.threshold if given else None,
        evidence=given.evidence if given else (),
        remedy="" if status == PASS else "look: the findings about this group say who it is",
    )


def _speed(records: Sequence[Record]) -> Record | None:
    return next((one for one in records if one.check == "nccl.busbw"), None)


def _of_finding(group: Group, finding: Finding, runs: Sequence[Run]) -> Record:
    """The record of what a search came to. Only a culprit is a node's own."""
    every = (*finding.nodes, *finding.others)
    subject = f"nodes:{','.join(every)}"
    if finding.kind == CULPRIT:
        subject = f"node:{finding.nodes[0]}"
    text = _TEXTS[finding.kind].format(
        nodes=name_nodes(finding.nodes), others=name_nodes(finding.others)
    )
    if finding.status == NOT_MEASURED and finding.kind == CULPRIT:
        text = f"runs with {name_nodes(finding.nodes)} do not come to an end, and those without do"
    shown = [run for run in runs if set(finding.nodes) & set(run.nodes)][-6:]
    return Record(
        f"groups.{finding.kind}",
        subject,
        finding.status,
        f"{group.kind} {group.name}: {text}; {len(runs)} runs",
        evidence=tuple(f"{run.outcome}: {name_nodes(run.nodes, 6)}" for run in shown),
        remedy=_REMEDIES[finding.kind],
    )


def _of_wrong_sums(group: Group, runs: Sequence[Run]) -> list[Record]:
    """The record of the wrong sum that the fewest nodes had; none where all sums are right."""
    wrong = [run for run in runs if run.wrong]
    run = min(wrong, key=lambda one: len(one.nodes), default=None)
    if run is None or run.wrong is None:
        return []
    text = f"{group.kind} {group.name}: {run.wrong.text}"
    return [
        replace(
            run.wrong,
            check="groups.correct",
            subject=f"nodes:{','.join(run.nodes)}",
            text=f"{text}; {len(wrong)} of {len(runs)} runs have some",
        )
    ]


def run_data(run: Run) -> dict[str, Any]:
    """Return a run as raw evidence."""
    return {
        "group": run.group,
        "nodes": list(run.nodes),
        "rails": list(run.rails),
        "outcome": run.outcome,
        "records": [record.as_data() for record in run.records],
    }
