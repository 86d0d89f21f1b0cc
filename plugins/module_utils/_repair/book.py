# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The book of incidents on disk, and what the module repair_step brings about with it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Sequence

from .._core.files import append_lines, make_folder, open_append, remove_tree, text_if_there
from .._core.run import ToolError
from .._slurm.gate.policy import verdict_from_data
from .._slurm.nodes import Node, parse_nodes
from .decide import Parts, Plan, Policy, gate_policy, obstacle, plan_repair, unswept
from .incident import ENDED, Event, Incident, as_data, fold, line_of, read_line, with_events
from .ladders import own_ladder

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

_BOOK = "incidents.jsonl"


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
            # What a killed run has cut gets its end, so that the next line is read.
            append_lines(self.path, [line_of(event) for event in events])

    def evidence_of(self, name: str) -> str:
        """Return the folder with what a node reported in this incident."""
        return os.path.join(self.folder, name)

    def tidy(self, incidents: Mapping[str, Incident], before: float) -> list[str]:
        """Remove the evidence of incidents that ended before this time; returns their names."""
        gone = []
        for name, incident in incidents.items():
            folder = self.evidence_of(name)
            if 0 < incident.closed < before and os.path.isdir(folder):
                remove_tree(folder)
                gone.append(name)
        return gone

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs from adding lines meanwhile. Raises OSError."""
        make_folder(self.folder, 0o750)
        with open_append(os.path.join(self.folder, ".lock")) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


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
        serving=params["serving"],
        level=params["level"],
        ladders={check: own_ladder(words) for check, words in params["ladders"].items()},
    )


def _read_nodes(text: str) -> dict[str, Node]:
    nodes = parse_nodes(text)
    if not nodes:
        raise ToolError("nodes: holds no node; give what `scontrol show node -o` prints")
    return nodes


def _unswept(book: Book, params: Mapping[str, Any]) -> dict[str, Any]:
    own, whole = (
        {found.node: found for found in map(verdict_from_data, params[key])}
        for key in ("verdicts", "gate_verdicts")
    )
    gate = gate_policy(params["user"], fold(book.events()[0]))
    names = unswept(_read_nodes(params["nodes"]), own, whole, gate)
    return {**_result(Plan(), {}, 0), "unswept": names}


def _now(params: Mapping[str, Any]) -> float:
    """Return the time by the clock that evidence is dated by, whole seconds."""
    given = params["now"]
    return float(int(time.time() if given is None else given))


def _result(plan: Plan, incidents: Mapping[str, Incident], unread: int) -> dict[str, Any]:
    return {
        "changed": bool(plan.events),
        "due": [dict(vars(due)) for due in plan.due],
        "waits": [{"node": node, "why": why} for node, why in sorted(plan.waits.items())],
        "events": [dict(vars(event)) for event in plan.events],
        "open": [as_data(one) for one in incidents.values() if not one.closed],
        "unread": unread,
    }


def _confirm(book: Book, params: Mapping[str, Any]) -> dict[str, Any]:
    node = _read_nodes(params["nodes"]).get(params["node"])
    why = obstacle(node, gate_policy(params["user"], fold(book.events()[0])))
    if why:
        raise ToolError(f"{params['node']}: {params['step']} is not done: {why}")
    return _result(Plan(), {}, 0)


def _end(book: Book, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Note the end of a step. The lines before it are not read: a long history has many."""
    event = Event(
        _now(params),
        params["incident"],
        params["node"],
        ENDED,
        step=params["step"],
        text=params["outcome"],
    )
    if not check_mode:
        with book.locked():
            book.add([event])
    return _result(Plan((event,)), {}, 0)


def _choose(book: Book, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    events, unread = book.events()
    incidents = fold(events)
    found = [verdict_from_data(data) for data in params["verdicts"]]
    given = params["parts"]
    now = _now(params)
    plan = plan_repair(
        _read_nodes(params["nodes"]),
        {verdict.node: verdict for verdict in found},
        incidents,
        policy_of(params),
        now,
        params["targets"],
        Parts(
            given.get("names") or {},
            given.get("serials") or {},
            given.get("offenders") or {},
            {one["node"]: one["part"] for one in given.get("kept") or ()},
            params["allowed"],
        ),
    )
    after = with_events(incidents, plan.events)
    if not check_mode:
        book.add(plan.events)
        if params["state"] == "judged":
            book.tidy(after, now - params["keep_days"] * 86400)
    return _result(plan, after, unread)


def bring_about(module: AnsibleModule) -> dict[str, Any]:
    """Return what the module returns. Raises ToolError, OSError, ValueError."""
    book, params = Book(module.params["folder"]), module.params
    if params["state"] == "confirmed":
        return _confirm(book, params)
    if params["state"] == "ended":
        return _end(book, params, module.check_mode)
    if params["state"] == "unswept":
        return _unswept(book, params)
    if module.check_mode:
        return _choose(book, params, True)
    with book.locked():
        return _choose(book, params, False)
