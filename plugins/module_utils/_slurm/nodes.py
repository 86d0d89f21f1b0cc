# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""States of Slurm nodes and who owns the reason for them.

A reason that we write is `OWNER: text`. Only such a one is ever taken back by us: a node that an
administrator, Slurm itself or another tool took out stays out.
"""

from __future__ import annotations

import re
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, Sequence

from .._core.pool import ask_all
from .._core.run import CommandRunner, ToolError, last_lines
from .commands import Job, answer_or, ask, name_jobs
from .gate.reason import as_written

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

DRAINED, RESUMED, DOWN = "drained", "resumed", "down"

_TIMEOUT_S = 60
_PLAIN = re.compile(r"^[A-Za-z0-9_.-]+$")

_BUSY = ("ALLOCATED", "MIXED", "COMPLETING")
_OUT = ("DOWN", "DRAIN", "FAIL")
_BASE = ("IDLE", "ALLOCATED", "MIXED", "UNKNOWN", "DOWN")
# Slurm itself is switching or rebooting it, or knows nothing of it yet.
UNSETTLED = ("REBOOT_ISSUED", "REBOOT_REQUESTED", "REBOOT", "POWERED_DOWN", "POWERING_DOWN",
             "POWERING_UP", "POWER_DOWN", "POWER_UP", "UNKNOWN")  # fmt: skip
# Words of a state with which the next job could start: what node_state_base_string and
# node_state_flag_string of Slurm 22.05 to 26.05 print (src/common/slurm_protocol_defs.c), and the
# words of sinfo(1). COMPLETING and PLANNED nodes wait for nothing but jobs, a RESERVED one takes
# those of its reservation; one in the cloud, or added while Slurm ran, is like any other. Each
# other word is of a node that takes no job now, and an unknown word is of one that may take none.
USABLE = frozenset((
    "IDLE", "ALLOCATED", "ALLOC", "MIXED", "MIX", "COMPLETING", "COMP", "PLANNED", "PLND",
    "RESERVED", "RESV", "CLOUD", "DYNAMIC_NORM", "EXTERNAL",
))  # fmt: skip
UNUSABLE = frozenset((
    # down, drained, about to fail; "drained" and "draining" are sinfo's
    "DOWN", "DRAIN", "DRAINED", "DRAINING", "DRNG", "FAIL", "FAILING", "FAILG", "ERROR", "UNKNOWN",
    "UNK", "NOT_RESPONDING", "NO_RESPOND", "INVAL", "INVALID", "INVALID_REG", "BLOCKED", "BLOCK",
    # not there yet
    "FUTURE", "FUTR", "DYNAMIC_FUTURE",
))  # fmt: skip
# Nor these, but an operator or Slurm means it so: in a maintenance window, powered off or on the
# way there or back, before and during a reboot.
BY_PLAN = frozenset((
    "MAINT", "MAINTENANCE", "PERFCTRS", "NPC", "POWER_DOWN", "POW_DN", "POWERED_DOWN",
    "POWERING_DOWN", "POWER_DRAIN", "POWER_UP", "POW_UP", "POWERING_UP", "REBOOT",
    "REBOOT_REQUESTED", "REBOOT_ISSUED", "REBOOT_CANCEL", "CANCEL_REBOOT",
))  # fmt: skip
# Suffixes of a state, in short forms and in sinfo's (sinfo(1), NODE STATE CODES).
_STATE_MARKS = "*~#!%$@^-+"
_MARKED = {
    "*": "NOT_RESPONDING", "~": "POWERED_DOWN", "#": "POWERING_UP", "!": "POWER_DOWN",
    "%": "POWERING_DOWN", "$": "MAINTENANCE", "@": "REBOOT_REQUESTED", "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}  # fmt: skip
_REASON_SIGNED = re.compile(r"(?:^| )Reason=(.*?) ?\[([^\[\]@]*)@([^\[\]]*)\](?= |$)")
_REASON_BARE = re.compile(
    r"(?:^| )Reason=(.*?)(?= (?:Comment|Extra|InstanceId|InstanceType|ReservationName)=|$)"
)
_COMMENT = re.compile(
    r"(?:^| )Comment=(.*?)(?= (?:Extra|InstanceId|InstanceType|ReservationName)=|$)"
)
_BOOTED = re.compile(r" (?:BootTime|SlurmdStartTime)=(\d\S+)")
_ADDRESS = re.compile(r" NodeAddr=(\S+)")
# 0, or none at all, is that of the cluster
_PORT = re.compile(r" Port=(\d+)")
_CLUSTER_PORT = re.compile(r"(?m)^SlurmdPort\s*=\s*(\d+)")
_DEFAULT_PORT = 6818
_CONNECT_S = 5
# slurmd registers right after it listens, and Slurm calls a node DOWN that registers after a boot
# that Slurm did not order: what is resumed before that would be lost again.
_LOOKS = 2
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
    comment: str = ""
    # where its slurmd listens; 0 is the port of the cluster
    address: str = ""
    port: int = 0
    # when it, or its slurmd if that was later, has started, of the last registration
    booted_at: str = ""

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
        """True when the next job could start on it; False also for a word that is not known."""
        return bool(self.states) and USABLE.issuperset(self.states)

    @property
    def unknown_states(self) -> tuple[str, ...]:
        """Words of its state that no release up to 26.05 has."""
        return tuple(one for one in self.states if one not in USABLE | UNUSABLE | BY_PLAN)

    @property
    def unfit(self) -> bool:
        """True when it can take no job, and that is not by plan."""
        return not self.usable and not (USABLE | BY_PLAN).issuperset(self.states)


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

    def then(self, other: NodePlan) -> NodePlan:
        """Return the changes of both."""
        return NodePlan(
            self.updates + other.updates,
            {**self.after, **other.after},
            self.refused + other.refused,
        )


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
        comment = _COMMENT.search(line, signed.end() if signed else 0)
        address = _ADDRESS.search(line, 0, state.start())
        port = _PORT.search(line, 0, state.start())
        nodes[name.group(1)] = Node(
            name.group(1),
            parse_states(state.group(1)),
            reason.group(1).strip() if reason else "",
            signed.group(2) if signed else "",
            signed.group(3) if signed else "",
            comment.group(1).strip() if comment else "",
            address.group(1) if address else "",
            int(port.group(1)) if port else 0,
            max(_BOOTED.findall(line, state.end()), default=""),
        )
    return nodes


def nodes_of_share(share: float, fleet: int) -> int:
    """Return how many of a fleet a share is: rounded down, one at least, none of a share of 0."""
    return max(1, int(share * fleet + 1e-9)) if share > 0 and fleet else 0


def parse_states(text: str) -> tuple[str, ...]:
    """`IDLE*+DRAIN` as (IDLE, NOT_RESPONDING, DRAIN): suffixes are written out."""
    states = []
    for word in text.split("+"):
        bare = word.rstrip(_STATE_MARKS)
        if bare:
            states.append(bare.upper())
        states += [_MARKED[mark] for mark in word[len(bare) :] if mark in _MARKED]
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
    if there and (as_written(node.reason) == want.reason or not ours):
        return (), node, ours
    if there:
        return signed, Node(node.name, node.states, want.reason), True
    # a reason of others on a node that is not out is a leftover, and Slurm overwrites it;
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
        elif not node.has(*_OUT):
            lines.append(f"{node.name} is {node.state}: it was resumed")
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
    """Send the updates and read all nodes again. Raises ToolError with scontrol's output.

    Only what the nodes are afterwards counts: on a node that has never registered a resume takes
    effect and is called an error all the same (seen with 22.05 and 24.11).
    """
    complaints = []
    for update in plan.updates:
        words = [f"NodeName={','.join(update.nodes)}", *update.words]
        result = run(["scontrol", "update", *words], timeout_s=_TIMEOUT_S)
        if not result.ok:
            reported = last_lines(result.text, 3) or result.describe()
            complaints.append(f"`scontrol update {' '.join(words)}` failed: {reported}")
    present = load(run)
    changed = [present[name] for name in plan.changed_names if name in present]
    left = plan_nodes(want, changed).changed_names
    if left:
        reason = "; ".join(complaints) or "scontrol accepted every update"
        raise ToolError(f"{reason}; not changed: {', '.join(left)}", not_changed=left)
    return present


def wait(run: CommandRunner, want: Wanted, names: Sequence[str], limit_s: int, poll_s: int) -> None:
    """Wait until the nodes are where they should be. Raises ToolError that names what is not.

    The updates were read back before: a node that is in service now was resumed after that, and
    what it is wanted for must not happen, however long the wait may last.
    """
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
        resumed = want.state != RESUMED and not all(node.has(*_OUT) for node in nodes)
        if resumed or waited >= limit_s:
            raise ToolError(f"after {waited:.0f} s: {'; '.join(waiting)}", waiting=waiting)
        time.sleep(min(poll_s, max(limit_s - waited, 0.1)))


def in_turn(
    run: CommandRunner,
    names: Sequence[str],
    present: Mapping[str, Node],
    params: Mapping[str, Any],
    silent: dict[str, str],
) -> Iterator[tuple[Sequence[str], Mapping[str, Node]]]:
    """Yield the names that may be resumed by now, with all nodes; `silent` gets the others and why.

    Nodes of the owners `answering` that are out follow as they answer, so that none waits for
    another: what Slurm shows of one whose power was cycled is of its former life for minutes.
    Raises NoAnswerError.
    """
    out = [
        present[name] for name in names
        if name in present and present[name].has(*_OUT)
        and any(is_owned(present[name], owner) for owner in params["answering"])
    ]  # fmt: skip
    looks = {node.name: 0 for node in out}
    yield [name for name in names if name not in looks], present
    if not out:
        return
    found = _CLUSTER_PORT.search(ask(run, ["scontrol", "show", "config"]))
    port = int(found.group(1)) if found else _DEFAULT_PORT
    places = {node.name: (node.address or node.name, node.port or port) for node in out}
    limit_s: int = params["wait_timeout_s"]
    end = time.monotonic() + limit_s
    while looks:
        asked, most_s = {name: places[name] for name in looks}, 2 * _CONNECT_S
        _answers, lacking = ask_all(asked, _connect, len(asked), most_s, most_s)
        looks = {name: 0 if name in lacking else count + 1 for name, count in looks.items()}
        ready = [name for name, count in looks.items() if count == _LOOKS]
        if ready:
            # Minutes have passed, and the operator may have taken a node over.
            yield ready, load(run)
        over = time.monotonic() >= end
        for name in [name for name, count in looks.items() if over and not count]:
            silent[name] = (
                f"{name} stays out: its slurmd at {places[name][0]} port {places[name][1]} does "
                f"not answer within {limit_s:g} s ({lacking[name]})"
            )
        looks = {n: count for n, count in looks.items() if n not in silent and count < _LOOKS}
        if looks:
            time.sleep(params["poll_s"])


def _connect(_name: str, place: tuple[str, int]) -> None:
    socket.create_connection(place, _CONNECT_S).close()


def report(before: Mapping[str, Node], after: Mapping[str, Node]) -> dict[str, Any]:
    """Each node with its state and reason, before and after."""
    return {
        name: {
            "before": {"state": node.state, "reason": node.reason},
            "after": {"state": after[name].state, "reason": after[name].reason},
        }
        for name, node in before.items()
    }


def known(
    module: AnsibleModule, run: CommandRunner, nodes: Any
) -> tuple[list[str], dict[str, Node]]:
    """Return the names that are meant, and all nodes; in check mode none without an answer.

    Raises NoAnswerError, ToolError.
    """
    nothing: tuple[list[str], dict[str, Node]] = ([], {})
    return answer_or(nothing, module, "no node is known", lambda: (expand(run, nodes), load(run)))


def split_known(
    names: Sequence[str], present: Mapping[str, Node], absent_ok: bool
) -> tuple[dict[str, Node], list[str]]:
    """Return the named nodes, and the names that Slurm does not know. Raises ToolError for them."""
    unknown = [name for name in names if name not in present]
    if unknown and not absent_ok:
        raise ToolError(f"Slurm does not know {', '.join(unknown)}", unknown=unknown)
    return {name: present[name] for name in names if name in present}, unknown


def settled(
    run: CommandRunner,
    want: Wanted,
    plan: NodePlan,
    before: Mapping[str, Node],
    params: Mapping[str, Any],
) -> dict[str, Node]:
    """Wait if asked to; return the nodes as they are after the updates. ToolError."""
    refused = {node.name for node in plan.refused}
    if params["wait"]:
        waited_for = [name for name in before if want.state != RESUMED or name not in refused]
        wait(run, want, waited_for, params["wait_timeout_s"], params["poll_s"])
    present = load(run) if params["wait"] or plan.updates else before
    return {name: present.get(name, node) for name, node in before.items()}


@dataclass
class Turns:
    """Brings about what is wanted, of nodes that must answer first as they do.

    `silent` gets those that do not answer, and why; `unknown` what Slurm does not know.
    """

    run: CommandRunner
    want: Wanted
    params: Mapping[str, Any]
    check_mode: bool
    silent: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    def bring_about(
        self, names: Sequence[str], present: Mapping[str, Node], changed: list[str]
    ) -> tuple[NodePlan, dict[str, Node], Mapping[str, Node]]:
        """Return the plan, and the nodes before and after; `changed` grows with each turn."""
        turns: Iterable[tuple[Sequence[str], Mapping[str, Node]]] = [(names, present)]
        if self.params["answering"] and self.want.state == RESUMED and not self.check_mode:
            turns = in_turn(self.run, names, present, self.params, self.silent)
        plan = NodePlan()
        before: dict[str, Node] = {}
        for ready, shown in turns:
            absent_ok = self.params["absent_ok"] or self.check_mode
            found, unknown = split_known(ready, shown, absent_ok)
            step = plan_nodes(self.want, found.values())
            plan, before = plan.then(step), {**before, **found}
            self.unknown += unknown
            if step.updates and not self.check_mode:
                changed += step.changed_names
                apply(self.run, self.want, step)
        if self.check_mode:
            return plan, before, plan.after
        return plan, before, settled(self.run, self.want, plan, before, self.params)


def refusals(plan: NodePlan) -> list[dict[str, str]]:
    """Return the nodes that were left alone, and whose reason stands."""
    return [
        {"node": node.name, "state": node.state, "reason": node.reason, "by": node.reason_by}
        for node in plan.refused
    ]
