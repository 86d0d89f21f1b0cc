# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""States of Slurm nodes and who owns the reason for them. Pure.

A reason that we write is `OWNER: text`. Only such a one is ever taken back by us: a node that an
administrator, Slurm itself or another tool took out stays out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Iterable, Mapping, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_tools import Job, name_jobs

DRAINED, RESUMED, DOWN = "drained", "resumed", "down"

_BUSY = ("ALLOCATED", "MIXED", "COMPLETING")
_OUT = ("DOWN", "DRAIN", "FAIL")
_BASE = ("IDLE", "ALLOCATED", "MIXED", "UNKNOWN", "DOWN")
_UNUSABLE = (*_OUT, "UNKNOWN", "NOT_RESPONDING", "INVAL", "INVALID_REG", "FUTURE", "ERROR")
# short forms of a state carry these for powering, rebooting, not answering
_STATE_MARKS = "*~#!%$@^-+"
_REASON_SIGNED = re.compile(r"(?:^| )Reason=(.*?) ?\[([^\[\]@]*)@([^\[\]]*)\](?= |$)")
_REASON_BARE = re.compile(
    r"(?:^| )Reason=(.*?)(?= (?:Comment|Extra|InstanceId|InstanceType|ReservationName)=|$)"
)
# scontrol takes a list of nodes in one command; a command line has its limits
_BATCH = 200


@dataclass(frozen=True)
class Node:
    """A node as Slurm sees it: base state and flags, and the reason with its author and time."""

    name: str
    states: tuple[str, ...]
    reason: str = ""
    reason_by: str = ""
    # as Slurm prints it, in the time zone that scontrol ran in
    reason_at: str = ""

    @property
    def state(self) -> str:
        """States as Slurm prints them: `IDLE+DRAIN`."""
        return "+".join(self.states)

    def has(self, *states: str) -> bool:
        """True when it is in any of these states."""
        return any(state in self.states for state in states)

    @property
    def busy(self) -> bool:
        """True while a job, or the end of one, is on it."""
        return self.has(*_BUSY)

    @property
    def usable(self) -> bool:
        """True when the next job could start on it."""
        return not self.has(*_UNUSABLE)


@dataclass(frozen=True)
class Wanted:
    """How the nodes must be."""

    state: str
    text: str
    owner: str
    force: bool = False

    @property
    def reason(self) -> str:
        """The reason as it is written."""
        return f"{self.owner}: {self.text}"


@dataclass(frozen=True)
class Update:
    """One change: the words for scontrol that all these nodes get."""

    nodes: tuple[str, ...]
    words: tuple[str, ...]


@dataclass(frozen=True)
class NodePlan:
    """Changes, the nodes as they will be, and those that are left to their owners."""

    updates: tuple[Update, ...] = ()
    after: Mapping[str, Node] = field(default_factory=dict)
    refused: tuple[Node, ...] = ()

    @property
    def changed_names(self) -> list[str]:
        """Nodes that change."""
        return [name for update in self.updates for name in update.nodes]


def parse_nodes(text: str) -> dict[str, Node]:
    """Nodes of `scontrol show node`, with or without `-o` (Slurm 22.05 to 25.11)."""
    nodes = {}
    for record in re.split(r"(?m)^(?=NodeName=)", text):
        line = " ".join(part.strip() for part in record.splitlines() if part.strip())
        name = re.match(r"NodeName=(\S+)", line)
        state = re.search(r" State=(\S+)", line)
        if not (name and state):
            continue
        signed = _REASON_SIGNED.search(line)
        bare = None if signed else _REASON_BARE.search(line)
        reason = signed or bare
        nodes[name.group(1)] = Node(
            name.group(1),
            parse_states(state.group(1)),
            reason.group(1).strip() if reason else "",
            signed.group(2) if signed else "",
            signed.group(3) if signed else "",
        )
    return nodes


def parse_states(text: str) -> tuple[str, ...]:
    """`IDLE*+DRAIN` as (IDLE, NOT_RESPONDING, DRAIN); other marks are dropped."""
    states = []
    for word in text.split("+"):
        bare = word.rstrip(_STATE_MARKS)
        if bare:
            states.append(bare.upper())
        if "*" in word[len(bare) :]:
            states.append("NOT_RESPONDING")
    return tuple(dict.fromkeys(states))


def is_owned(node: Node, owner: str) -> bool:
    """True when the node's reason was written by this owner."""
    return node.reason.startswith(f"{owner}: ")


def plan_nodes(want: Wanted, nodes: Iterable[Node]) -> NodePlan:
    """What must be done to bring these nodes to the wanted state."""
    changes: dict[tuple[str, ...], list[str]] = {}
    after: dict[str, Node] = {}
    refused = []
    for node in nodes:
        words, then, ours = _change(want, node)
        after[node.name] = then
        if not ours:
            refused.append(node)
        if words:
            changes.setdefault(words, []).append(node.name)
    updates = [
        Update(tuple(names[start : start + _BATCH]), words)
        for words, names in changes.items()
        for start in range(0, len(names), _BATCH)
    ]
    return NodePlan(tuple(updates), after, tuple(refused))


def _change(want: Wanted, node: Node) -> tuple[tuple[str, ...], Node, bool]:
    """Words for scontrol (none: leave it), the node afterwards, whether it is ours to change."""
    ours = want.force or is_owned(node, want.owner)
    if want.state == RESUMED:
        if not node.has(*_OUT):
            return (), node, True
        if not ours:
            return (), node, False
        return ("State=RESUME",), Node(node.name, _resumed(node.states)), True
    flag = "DRAIN" if want.state == DRAINED else "DOWN"
    signed = ("Reason=" + want.reason,)
    there = node.has(flag)
    if there and (node.reason == want.reason or not ours):
        return (), node, ours
    if there:
        return signed, Node(node.name, node.states, want.reason), True
    # a reason of somebody else on a node that is not out is a leftover, and Slurm overwrites it;
    # on one that is out in another way (drained, but not down) it must not be lost
    if node.has(*_OUT) and node.reason and not ours:
        return (), node, False
    kept = node.states if flag == "DRAIN" else _without(node.states, _BASE, otherwise=())
    states = (*kept, flag) if flag == "DRAIN" else (flag, *kept)
    return (f"State={flag}", *signed), Node(node.name, states, want.reason), True


def _resumed(states: Sequence[str]) -> tuple[str, ...]:
    left = _without(states, _OUT, otherwise=("IDLE",))
    return left if "DOWN" not in states else ("IDLE", *_without(left, ("IDLE",), otherwise=()))


def _without(
    states: Sequence[str], gone: Sequence[str], otherwise: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(state for state in states if state not in gone) or otherwise


def still_waiting(
    want: Wanted, nodes: Iterable[Node], jobs: Mapping[str, Sequence[Job]]
) -> list[str]:
    """One line for each node that is not there yet: what is still on it, or what state it is in."""
    lines = []
    for node in nodes:
        queued = jobs.get(node.name, ())
        if want.state == RESUMED:
            if not node.usable:
                lines.append(f"{node.name} is {node.state}")
        elif queued:
            lines.append(f"{node.name} still has jobs: {name_jobs(queued)}")
        elif node.busy:
            lines.append(f"{node.name} is {node.state}")
    return lines


def parse_jobs_on_nodes(text: str) -> list[tuple[Job, str]]:
    """Jobs and their node sets, of `squeue -h -o %A|%u|%a|%q|%T|%N`."""
    found = []
    for line in text.splitlines():
        cells = line.strip().split("|")
        if len(cells) == 6 and cells[5]:
            found.append((Job(*cells[:5]), cells[5]))
    return found


def diff_of(plan: NodePlan, before: Mapping[str, Node]) -> list[dict[str, str]]:
    """Before and after of every node that changes, in Ansible's form."""

    def text(node: Node) -> str:
        return f"state: {node.state}\nreason: {node.reason or '-'}\n"

    return [
        {
            "before_header": f"node {name}",
            "after_header": f"node {name}",
            "before": text(before[name]),
            "after": text(plan.after[name]),
        }
        for name in plan.changed_names
    ]
