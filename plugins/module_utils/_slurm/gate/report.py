# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the gate tells of its steps: to Ansible, and to a journal on the controller."""

from __future__ import annotations

import json
from typing import Any, Callable, Iterable, Sequence

from ..._core.files import append_lines
from ..._core.record import utc_text
from ..nodes import Node
from .apply import Step
from .policy import Action, GatePlan


def journal(path: str, warn: Callable[[str], None]) -> Callable[[Step], None]:
    """A function that appends a step as one line, in one write."""
    warned: list[str] = []

    def note(step: Step) -> None:
        line = {
            "at": utc_text(),
            **action_data(step.action),
            "before": {"state": step.before.state, "reason": step.before.reason},
            "said": step.said,
        }
        try:
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
