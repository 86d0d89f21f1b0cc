# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The book of incidents on disk, and what the module repair_step brings about with it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from .._core.files import append_lines, make_folder, open_append, text_if_there, write_atomic
from .._core.record import utc_text
from .._core.run import ToolError
from .._slurm.gate.policy import verdict_from_data
from .._slurm.nodes import Node, parse_nodes
from .decide import Due, Plan, Policy, obstacle, plan_repair
from .incident import ENDED, Event, Incident, as_data, fold, line_of, read_line

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

_BOOK, _SHOWN = "incidents.jsonl", "incidents.json"


class Book:
    """The incidents of a cluster: lines that are only ever added, and the state they come to."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = os.path.join(folder, _BOOK)

    def events(self) -> tuple[list[Event], int]:
        """Return all events, and how many lines could not be read. Raises OSError."""
        text = text_if_there(self.path)
        found = [read_line(line) for line in (text or "").splitlines() if line.strip()]
        return [event for event in found if event], found.count(None)

    def add(self, events: Sequence[Event]) -> None:
        """Append these lines, which are on disk on return. Raises OSError."""
        if events:
            text = text_if_there(self.path)
            # What a killed run has cut gets its end, so that the next line is read.
            torn = [""] if text and not text.endswith("\n") else []
            append_lines(self.path, [*torn, *(line_of(event) for event in events)])

    def show(self, incidents: Mapping[str, Incident]) -> None:
        """Write what the lines come to, for people and programs. Raises OSError."""
        data = {
            "version": 1,
            "at": utc_text(),
            "incidents": [as_data(incident) for incident in incidents.values()],
        }
        write_atomic(os.path.join(self.folder, _SHOWN), json.dumps(data, indent=1) + "\n", 0o640)


def policy_of(params: Mapping[str, Any]) -> Policy:
    """What the site allows."""
    return Policy(
        steps=tuple(params["steps"]),
        at_once=params["at_once"],
        times=params["times"],
        window_s=params["days"] * 86400,
        alike=params["alike"],
        user=params["user"],
        begins=params["state"] == "due",
        powered=params["powered"],
    )


def _read_nodes(text: str) -> dict[str, Node]:
    nodes = parse_nodes(text)
    if not nodes:
        raise ToolError("nodes: holds no node; give what `scontrol show node -o` prints")
    return nodes


def _due_data(due: Due) -> dict[str, str]:
    return {"node": due.node, "incident": due.incident, "step": due.step, "why": due.why}


def _result(plan: Plan, incidents: Mapping[str, Incident], unread: int) -> dict[str, Any]:
    return {
        "changed": bool(plan.events),
        "due": [_due_data(due) for due in plan.due],
        "waits": [{"node": node, "why": why} for node, why in sorted(plan.waits.items())],
        "events": [dict(vars(event)) for event in plan.events],
        "open": [as_data(one) for one in incidents.values() if not one.closed],
        "unread": unread,
    }


def _work(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    book = Book(params["folder"])
    events, unread = book.events()
    incidents = fold(events)
    if params["state"] == "confirmed":
        node = _read_nodes(params["nodes"]).get(params["node"])
        why = obstacle(node, params["user"])
        if why:
            raise ToolError(f"{params['node']}: {params['step']} is not done: {why}")
        return _result(Plan(), incidents, unread)
    if params["state"] == "ended":
        plan = Plan(
            (
                Event(
                    float(int(time.time())),
                    params["incident"],
                    params["node"],
                    ENDED,
                    step=params["step"],
                    text=params["outcome"],
                ),
            )
        )
    else:
        found = [verdict_from_data(data) for data in params["verdicts"]]
        plan = plan_repair(
            _read_nodes(params["nodes"]),
            {verdict.node: verdict for verdict in found},
            incidents,
            policy_of(params),
            time.time(),
            params["targets"],
        )
    after = fold([*events, *plan.events])
    if not check_mode:
        book.add(plan.events)
        book.show(after)
    return _result(plan, after, unread)


def bring_about(module: AnsibleModule) -> dict[str, Any]:
    """Return what the module returns. Raises ToolError, OSError, ValueError."""
    folder = module.params["folder"]
    if module.check_mode:
        return _work(module.params, True)
    make_folder(folder, 0o750)
    with open_append(os.path.join(folder, ".lock")) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        return _work(module.params, False)
