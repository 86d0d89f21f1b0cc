# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The brake over the fleet: how many nodes may drain themselves, agreed through slurmctld. Pure.

A cause that many nodes share (a leaf switch, a mount, Slurm itself) is found by all of them at
once, and nodes have no coordinator but slurmctld, which has no command that asks and changes at
once. So a node

1. looks at all nodes, and stops if as many are out, or claim to leave, as the share allows;
2. writes a claim into its own comment;
3. looks again, and drains itself only if all that are out or claim, itself included, are within
   the share; the drain and the end of the claim are one update;
4. otherwise waits if its name is among the first that fit, and withdraws its claim if not.

Why no more than the share are out, however many nodes ask at once: of all nodes that are out by
this rule, take the one whose claim was written last. It looked after that, when each of the others
had a claim or was drained, so it counted them all, and found them within the share. A kill leaves a
claim behind, which only takes room from others until it expires. An update whose answer was lost
may still arrive, as long as Slurm accepts its credential: until then the node begins nothing new.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable, Generator, Mapping, Union

from .._slurm.gate.reason import (
    FAILED,
    ITSELF,
    NODE_HEALTH,
    is_by_slurm,
    plain,
    read_reason,
    sign,
)
from .._slurm.nodes import DRAINED, Node, Wanted, is_owned, nodes_of_share, plan_nodes

# Slurm refuses a message whose credential is older than 300 s (munged --ttl). A claim outlives
# every drain that could still come of it.
EXPIRES_S = 900.0
# From its claim on, a node may start to drain itself for so long.
ENTER_S = 60.0
# How often a node with a claim looks again, and the seconds between.
_LOOKS = 4
_BETWEEN_S = 0.15
_TOKEN = re.compile(r"\s*\{node-health (claim (\d+)|left in service: [^{}]*)\}")


@dataclass(frozen=True)
class Read:
    """Ask for all nodes."""


@dataclass(frozen=True)
class Write:
    """Update the own node with these words."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Wait:
    """Let time pass."""

    seconds: float


@dataclass(frozen=True)
class Fleet:
    """The other nodes as one look shows them: `out` drained themselves, `claims` are about to.

    `most` may be out by themselves, of `size` in service; `by_others` are out by the gate or by
    Slurm itself.
    """

    size: int
    most: int
    out: frozenset[str]
    claims: frozenset[str]
    by_others: int

    @property
    def full(self) -> bool:
        """Whether there is no room for one more."""
        return len(self.out | self.claims) >= self.most


@dataclass(frozen=True)
class Outcome:
    """What became of a request to drain: `out` whether the node is out, `held` by the brake."""

    message: str
    reason: str = ""
    changed: bool = False
    out: bool = False
    held: bool = False


class PendingError(Exception):
    """An update of an earlier run was not answered and may still arrive, for `seconds` more."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"an earlier update was not answered, and may arrive for {seconds:.0f} s")
        self.seconds = seconds


# What is sent for a Read are the nodes, for anything else nothing.
Request = Union[Read, Write, Wait]
Steps = Generator[Request, Mapping[str, Node], Outcome]


def fleet_of(nodes: Mapping[str, Node], me: str, share: float, now: float) -> Fleet:
    """Return what a look at all nodes says to the node `me`; `now` is Unix time.

    At least one node may drain itself (unless the share is 0), however many others have taken out.
    """
    out, claims, others, size = set(), set(), 0, 0
    for name, node in nodes.items():
        ours = read_reason(name, node.reason) if node.has("DRAIN") else None
        never_in = ours is not None and ours.kind not in (ITSELF, FAILED)
        if never_in or node.has("FUTURE", "DYNAMIC_FUTURE"):
            continue
        size += 1
        if name == me:
            continue
        if ours is not None and ours.kind == ITSELF:
            out.add(name)
        elif ours is not None or _taken_by_slurm(node):
            others += 1
        elif claims_now(node, now):
            claims.add(name)
    whole = nodes_of_share(share, size)
    most = max(1, whole - others) if whole else 0
    return Fleet(size, most, frozenset(out), frozenset(claims), others)


def _taken_by_slurm(node: Node) -> bool:
    if not node.has("DOWN", "DRAIN", "FAIL", "NOT_RESPONDING"):
        return False
    # A node that a person has taken out is not part of what is happening now.
    return not node.reason or is_by_slurm(node.reason)


def claims_now(node: Node, now: float) -> bool:
    """Return whether the node's comment has a claim that has not expired."""
    found = _TOKEN.search(node.comment)
    return found is not None and bool(found[2]) and abs(now - int(found[2])) <= EXPIRES_S


def has_token(node: Node) -> bool:
    """Return whether the node's comment has anything of ours."""
    return _TOKEN.search(node.comment) is not None


def without_token(node: Node) -> tuple[str, ...]:
    """Return the words that leave the node the comment that others wrote."""
    return ("Comment=" + _TOKEN.sub("", node.comment).strip(),)


def _with_token(node: Node, token: str) -> tuple[str, ...]:
    foreign = _TOKEN.sub("", node.comment).strip()
    return ("Comment=" + f"{foreign} {{node-health {token}}}".strip(),)


def drain_steps(
    node: str,
    text: str,
    share: float,
    clock: Callable[[], float],
    unanswered: float | None = None,
) -> Steps:
    """Yield what must be asked and written for the node to drain itself within the share.

    `clock` is Unix time; `unanswered` is when an update was sent whose answer is not known. Ends
    with the outcome. KeyError if Slurm does not know the node, PendingError if the earlier update
    may still arrive.
    """
    wanted = Wanted(DRAINED, sign(node, ITSELF, text), NODE_HEALTH)
    nodes = yield Read()
    mine = nodes[node]
    settled = _settled(mine, wanted)
    if settled:
        return settled
    if unanswered is not None and 0 <= clock() - unanswered <= EXPIRES_S:
        raise PendingError(EXPIRES_S - (clock() - unanswered))
    fleet = fleet_of(nodes, node, share, clock())
    if fleet.full:
        return (yield from _hold(mine, fleet, share, text))
    claimed = int(clock())
    yield Write(_with_token(mine, f"claim {claimed}"))
    for look in range(_LOOKS):
        nodes = yield Read()
        mine = nodes[node]
        settled = _settled(mine, wanted)
        if settled:
            yield Write(without_token(mine))
            return settled
        fleet = fleet_of(nodes, node, share, clock())
        late = not 0 <= clock() - claimed <= ENTER_S
        if late or f"{{node-health claim {claimed}}}" not in mine.comment:
            # Without its own claim in what it saw, a node has not been counted by the others.
            break
        if not fleet.full:
            words = plan_nodes(wanted, [mine]).updates[0].words
            yield Write((*words, *without_token(mine)))
            return Outcome(f"drained: {wanted.reason}", wanted.reason, changed=True, out=True)
        ahead = sorted(fleet.claims | {node}).index(node)
        if ahead >= fleet.most - len(fleet.out):
            break
        if look < _LOOKS - 1:
            yield Wait(_BETWEEN_S * (look + 1))
    return (yield from _hold(mine, fleet, share, text))


def _settled(mine: Node, wanted: Wanted) -> Outcome | None:
    """Return the outcome for a node that is out already; None if there is something to do."""
    if mine.has("DRAIN") and is_owned(mine, NODE_HEALTH):
        # The first reason is the nearest to the cause.
        return Outcome(f"is drained already: {mine.reason}", mine.reason, out=True)
    if not plan_nodes(wanted, [mine]).updates:
        message = f"is {mine.state}, for another reason: {mine.reason or 'no reason'}"
        return Outcome(message, out=True)
    return None


def _hold(mine: Node, fleet: Fleet, share: float, text: str) -> Steps:
    """Leave the node in service, and write that into its comment, once."""
    count = len(fleet.out | fleet.claims)
    besides = f", {fleet.by_others} by the gate or Slurm" if fleet.by_others else ""
    why = (f"{count} of {fleet.size} nodes are out by themselves{besides}, "
           f"{fleet.most} may be (node_health_share {share:g})")  # fmt: skip
    found = _TOKEN.search(mine.comment)
    if not found or found[2]:
        note = plain(re.sub(r"[{}=]", " ", text))
        yield Write(_with_token(mine, f"left in service: {note}"))
    return Outcome(f"is not drained, brake: {why}: {text}", held=True)
