# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The gate's steps: carried out with scontrol, written to a journal, shown to Ansible.

scontrol changes a node whatever it has become since it was looked at. So each node is read again
right before its step, and passed over when it was touched by others; what is left is the time
between two calls of scontrol. A node is let in by UNDRAIN, which unlike RESUME brings back none
that has gone down, and a reason is changed alone, which does nothing to a node that was resumed.
One that was down already, and answers, needs RESUME.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Mapping, Sequence, Tuple

from ..._core.files import append_lines, set_aside, write_atomic
from ..._core.record import utc_text
from ..._core.run import MISSING, CommandRunner, ToolError, last_lines
from ..commands import NoAnswerError
from ..nodes import Node, parse_nodes
from .policy import DRAIN, RESUME, REWORD, SWAP_IN, Action, GatePlan, grounds

# The options of a node that is not let in though it passes.
KEPT: dict[str, Any] = {
    "node": {"type": "str", "required": True},
    "why": {"type": "str", "required": True},
    "part": {"type": "str", "default": ""},
}

_TIMEOUT_S = 60
# Reasons are dated in UTC, whatever the machine and the user prefer.
_ENVIRONMENT = {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
# Nodes of one call of scontrol, and calls between two plans: others work on the cluster, too.
_NODES_OF_A_CALL = 100
_CALLS_OF_A_PLAN = 50
_VERSION = 1
# Of the journal, and of the one before it: more than 10,000 steps each. The lock of the gate makes
# one run at a time its only writer.
_JOURNAL_BYTES = 4 * 1024 * 1024


# The nodes, and (node, what) of steps that were tried.
Decide = Callable[[Mapping[str, Node], Sequence[Tuple[str, str]]], GatePlan]


@dataclass(frozen=True)
class Slurm:
    """scontrol: reads nodes and changes them."""

    run: CommandRunner

    def nodes(self, names: Sequence[str] = ()) -> dict[str, Node]:
        """Return these nodes, or all; raises NoAnswerError with scontrol's output."""
        argv = ["scontrol", "show", "node", "-o", *([",".join(names)] if names else [])]
        result = self.run(argv, timeout_s=_TIMEOUT_S, env=_ENVIRONMENT)
        if result.outcome == MISSING:
            raise NoAnswerError("scontrol is not installed; install Slurm's client commands")
        found = parse_nodes(result.out)
        # Of a node that has left the configuration it prints an error, and gives the others. A
        # truncated answer is none: the share would be that of the nodes that were printed.
        if not result.ok and "not found" not in result.text:
            reported = last_lines(result.text, 3) or result.describe()
            raise NoAnswerError(f"`{' '.join(argv[:4])}` failed: {reported}")
        return found

    def update(self, names: Sequence[str], words: Sequence[str]) -> str:
        """Change nodes; returns what scontrol complained of, empty when it did not."""
        argv = ["scontrol", "update", f"NodeName={','.join(names)}", *words]
        result = self.run(argv, timeout_s=_TIMEOUT_S, env=_ENVIRONMENT)
        return "" if result.ok else last_lines(result.text, 3) or result.describe()


@dataclass(frozen=True)
class Step:
    """A step that was sent: the node as it was right before, and what scontrol complained of."""

    action: Action
    before: Node
    message: str = ""


@dataclass(frozen=True)
class Outcome:
    """What came of a plan: the first plan, steps sent, steps passed over, all nodes at the end."""

    plan: GatePlan
    steps: tuple[Step, ...]
    passed_over: tuple[Action, ...]
    nodes: Mapping[str, Node]
    refusal: str = ""

    @property
    def failed(self) -> tuple[Step, ...]:
        """Steps that scontrol complained of, and that did not take effect.

        On a node that has never registered it complains of what it does (22.05 and 24.11).
        """
        return tuple(
            step
            for step in self.steps
            if step.message and not in_effect(step.action, self.nodes.get(step.action.node))
        )


class StoppedError(ToolError):
    """Slurm stopped answering in the middle; `steps` are those that were sent."""

    def __init__(self, message: str, steps: Sequence[Step]) -> None:
        super().__init__(message)
        self.steps = tuple(steps)


def words_of(action: Action) -> list[str]:
    """Return the words that scontrol gets for a step."""
    is_down = action.seen is not None and action.seen.has("DOWN")
    let_in = ["State=RESUME" if is_down else "State=UNDRAIN"]
    return {
        RESUME: let_in,
        SWAP_IN: let_in,
        DRAIN: ["State=DRAIN", f"Reason={action.reason}"],
        REWORD: [f"Reason={action.reason}"],
    }[action.what]


def in_effect(action: Action, node: Node | None) -> bool:
    """Return whether the node is as the step wants it."""
    if node is None:
        return False
    if action.what in (RESUME, SWAP_IN):
        return not node.has("DRAIN")
    return node.has("DRAIN") and node.reason == action.reason


def carry_out(slurm: Slurm, decide: Decide, note: Callable[[Step], None]) -> Outcome:
    """Plan, take steps of one kind, and plan again until nothing is left to try.

    Drains come after resumes, and are planned on what the resumes have come to: one that failed
    makes no room in the share. `note` is called after every step. Raises StoppedError
    or NoAnswerError.
    """
    sent: list[Step] = []
    passed: list[Action] = []
    nodes = slurm.nodes()
    first = plan = decide(nodes, ())
    try:
        while plan.actions:
            kind = plan.actions[0].what
            for batch in _batches(plan.actions)[:_CALLS_OF_A_PLAN]:
                if kind == SWAP_IN:
                    # Whether a spare is wanted rests on all nodes, not on the spare alone.
                    present = slurm.nodes()
                    plan = decide(present, _tried(sent, passed))
                    if not plan.actions or plan.actions[0].what != SWAP_IN:
                        # Something else comes first now: the loop takes it.
                        break
                    wanted = {action.node for action in plan.actions}
                else:
                    present = slurm.nodes([action.node for action in batch])
                    wanted = {action.node for action in batch}
                fit = [a for a in batch if a.node in wanted and _untouched(a, present)]
                passed += [action for action in batch if action not in fit]
                if fit:
                    message = slurm.update([action.node for action in fit], words_of(fit[0]))
                    for action in fit:
                        sent.append(Step(action, present[action.node], message))
                        note(sent[-1])
            nodes = slurm.nodes()
            plan = decide(nodes, _tried(sent, passed))
    except NoAnswerError as error:
        raise StoppedError(str(error), sent) from error
    return Outcome(first, tuple(sent), tuple(passed), nodes, plan.refusal)


def _batches(actions: Sequence[Action]) -> list[list[Action]]:
    """Return the first kind of steps, those together that scontrol gets the same words for."""
    kind = actions[0].what
    alike: dict[tuple[str, ...], list[Action]] = {}
    for action in actions:
        if action.what == kind:
            alike.setdefault(tuple(words_of(action)), []).append(action)
    # A spare is put in for one node, so all of them are looked at again together.
    size = len(actions) if kind == SWAP_IN else _NODES_OF_A_CALL
    return [
        group[start : start + size]
        for group in alike.values()
        for start in range(0, len(group), size)
    ]


def _tried(sent: Sequence[Step], passed: Sequence[Action]) -> list[tuple[str, str]]:
    actions = [*(step.action for step in sent), *passed]
    return [(action.node, action.what) for action in actions]


def _untouched(action: Action, present: Mapping[str, Node]) -> bool:
    node = present.get(action.node)
    return node is not None and action.seen is not None and grounds(node) == grounds(action.seen)


def load_known(path: str) -> set[str] | None:
    """Return the nodes that are not new, None where no list was begun; raises ToolError."""
    try:
        with open(path, encoding="utf-8") as handle:
            data = json.load(handle)
        return {str(name) for name in data["nodes"]}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ToolError(
            f"{path} cannot be read ({error}); delete it, and what Slurm has then counts as known"
        ) from error


def store_known(path: str, names: Iterable[str]) -> None:
    """Replace the list of nodes that are not new; raises ToolError."""
    data: dict[str, Any] = {"version": _VERSION, "nodes": sorted(set(names))}
    try:
        write_atomic(path, json.dumps(data, indent=1) + "\n")
    except OSError as error:
        raise ToolError(f"{path} cannot be written: {error.strerror}") from error


def journal(path: str, warn: Callable[[str], None]) -> Callable[[Step], None]:
    """A function that appends a step as one line, in one write; a full file is set aside."""
    warned: list[str] = []

    def note(step: Step) -> None:
        line = {
            "at": utc_text(),
            **action_data(step.action),
            "before": {"state": step.before.state, "reason": step.before.reason},
            "said": step.message,
        }
        try:
            set_aside(path, _JOURNAL_BYTES)
            append_lines(path, [json.dumps(line)], sync=False)
        except OSError as error:
            if not warned:
                warn(f"journal: {path} cannot be written: {error.strerror}")
            warned.append(path)

    return note if path else lambda step: None


def action_data(action: Action) -> dict[str, str]:
    """A step as the module returns it."""
    return {
        "node": action.node,
        "action": action.what,
        "why": action.why,
        "reason": action.reason,
    }


def diff_of(actions: Iterable[Action]) -> list[dict[str, str]]:
    """Before and after of every node that changes, in Ansible's form."""
    shown = []
    for action in actions:
        node = action.seen or Node(action.node, ())
        base = [state for state in node.states if state != "DRAIN"]
        after = [*base, "DRAIN"] if action.reason else base
        shown.append(
            {
                "before_header": f"node {action.node}",
                "after_header": f"node {action.node}",
                "before": f"state: {node.state}\nreason: {node.reason or '-'}\n",
                "after": f"state: {'+'.join(after)}\nreason: {action.reason or '-'}\n",
            }
        )
    return shown


def report(plan: GatePlan, taken: Sequence[Action], passed: Sequence[Action]) -> dict[str, Any]:
    """What the module returns of a plan and of what came of it."""
    return {
        "changed": bool(taken),
        "actions": [action_data(action) for action in taken],
        "left": [
            {"node": left.node, "state": left.seen.state if left.seen else "", "why": left.why}
            for left in plan.left
        ],
        "passed_over": [action_data(action) for action in passed],
        "withheld": [action_data(action) for action in plan.withheld],
        "refusal": plan.refusal,
    }
