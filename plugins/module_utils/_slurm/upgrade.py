# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Rolling upgrades: which nodes are changed next, and when nothing may be. Pure.

What is out is in Slurm, in the reason `dgx-upgrade: NAME`; what is done is in a file. So a
run that was killed anywhere is continued by the next one: nodes that are out for this upgrade come
first, and no other is taken out before they are back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

from .gate.policy import hands_off
from .gate.reason import as_written, read_reason
from .nodes import Node

OWNER = "dgx-upgrade"
VERSION = 1


@dataclass(frozen=True)
class Policy:
    """At most `batch` nodes at once, `first` in the first batch, `in_service` never fewer."""

    batch: int
    in_service: int
    first: int = 1


@dataclass(frozen=True)
class Left:
    """A node that is not touched, and why."""

    node: str
    why: str


@dataclass(frozen=True)
class Step:
    """What comes next: the nodes to change, of which `fresh` leave service for it.

    `refusal` says why nothing may be done although there is something to do; then `batch` is empty.
    `remaining` counts the nodes that come after this batch.
    """

    batch: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    left: tuple[Left, ...] = ()
    refusal: str = ""
    remaining: int = 0


def reason_of(name: str) -> str:
    """Return the reason of nodes that are out for the upgrade of this name."""
    return f"{OWNER}: {name}"


def floor_of(given: Any, count: int) -> int:
    """Return how many of `count` nodes must stay: a number, or a share such as `75%`, rounded up.

    ValueError for anything else, and for more nodes than there are.
    """
    text = str(given).strip()
    try:
        share = text.endswith("%")
        number = int(text[:-1]) if share else int(text)
    except ValueError:
        raise ValueError(f"upgrade_in_service: {given!r}; write 24, or 75%") from None
    floor = -(-count * number // 100) if share else number
    if number < 0 or floor > count:
        raise ValueError(f"upgrade_in_service: {given!r} of {count} nodes cannot be")
    return floor


def plan_step(
    nodes: Mapping[str, Node],
    targets: Sequence[str],
    done: Iterable[str],
    skipped: Iterable[str],
    name: str,
    policy: Policy,
) -> Step:
    """Return what comes next; `nodes` are all that Slurm has, as they are now.

    A node that the gate or its own health program holds is changed where it stands, and stays
    theirs. One that others have drained, or that is down, is left alone.
    """
    over, passed = set(done), set(skipped)
    held: list[str] = []
    standing: list[str] = []
    waiting: list[str] = []
    left: list[Left] = []
    stuck: list[Left] = []
    for target in dict.fromkeys(targets):
        if target in over:
            continue
        node = nodes.get(target)
        if target in passed:
            left.append(Left(target, "skipped by the operator"))
        elif node is None:
            left.append(Left(target, "Slurm does not know it"))
        elif _is_ours(node, name):
            # With ReturnToService=1 a long boot leaves it DOWN, and its reason with Slurm's words.
            if hands_off(node, ("DOWN",)):
                why = f"is out for this upgrade, and {node.state}: bring it back first"
                stuck.append(Left(target, why))
            held.append(target)
        elif node.has("DRAIN") and node.reason.startswith(reason_of("")):
            other = as_written(node.reason)[len(reason_of("")) :]
            why = f"is out for the upgrade {other}: end that one first, by its command"
            stuck.append(Left(target, why))
        elif hands_off(node):
            left.append(Left(target, f"is {node.state}"))
        elif not node.has("DRAIN"):
            waiting.append(target)
        elif read_reason(target, node.reason):
            standing.append(target)
        else:
            left.append(Left(target, f"drained by {node.reason_by or 'unknown'}: {node.reason}"))
    after = len(standing) + len(waiting)
    if stuck:
        return Step((), (), tuple(left), _stuck_text(stuck), after + len(held))
    if held:
        # Those of a batch that failed, or of a run that was killed: before any other is risked.
        return Step(tuple(held), (), tuple(left), "", after)
    size = policy.batch if over else min(policy.first, policy.batch)
    serving = sum(not node.has("DRAIN") and node.usable for node in nodes.values())
    room = max(0, serving - policy.in_service)
    out = standing[:size]
    fresh = tuple(waiting[: min(size - len(out), room)])
    batch = (*out, *fresh)
    if waiting and not batch:
        text = f"{serving} nodes are in service, and {policy.in_service} must be: none may leave"
        return Step((), (), tuple(left), text, after)
    return Step(batch, fresh, tuple(left), "", after - len(batch))


def _is_ours(node: Node, name: str) -> bool:
    return node.has("DRAIN") and as_written(node.reason) == reason_of(name)


def _stuck_text(stuck: Sequence[Left]) -> str:
    report = "; ".join(f"{one.node} {one.why}" for one in stuck)
    names = ", ".join(f'"{one.node}"' for one in stuck)
    return f"{report}, or go on without it: -e '{{\"upgrade_skip\": [{names}]}}'"


def preview(
    nodes: Mapping[str, Node],
    targets: Sequence[str],
    done: Iterable[str],
    skipped: Iterable[str],
    name: str,
    policy: Policy,
) -> list[tuple[str, ...]]:
    """Return all batches to come, if each passes and nothing else happens."""
    over, world = set(done), dict(nodes)
    batches: list[tuple[str, ...]] = []
    while True:
        step = plan_step(world, targets, over, skipped, name, policy)
        if not step.batch:
            return batches
        batches.append(step.batch)
        over |= set(step.batch)
        for one in step.batch:
            if _is_ours(world[one], name):
                world[one] = Node(one, ("IDLE",))


def next_step(nodes: Mapping[str, Node], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what slurm_upgrade_step returns, from its options; ValueError names what is wrong."""
    if not nodes:
        raise ValueError("scontrol shows no node")
    name, what = params["name"], params["what"]
    floor = floor_of(params["in_service"], len(nodes))
    policy = Policy(params["batch"], floor, params["first"])
    if min(policy.batch, policy.first) < 1:
        raise ValueError("upgrade_batch and upgrade_first must be 1 or more")
    done = progress_from_data(params["progress"] or None, name, what).done
    targets = params["targets"]
    asked = (nodes, targets, done, params["skip"], name, policy)
    step = plan_step(*asked)
    return {
        "batch": list(step.batch),
        "fresh": list(step.fresh),
        "left": [{"node": one.node, "why": one.why} for one in step.left],
        "refusal": step.refusal,
        "remaining": step.remaining,
        "batches": [list(one) for one in preview(*asked)],
        "done": list(done),
        "held": [one for one in targets if one in nodes and _is_ours(nodes[one], name)],
    }


@dataclass(frozen=True)
class Progress:
    """What an upgrade has come to: its name, what it runs, and the nodes that passed after it."""

    name: str
    what: tuple[str, ...]
    done: tuple[str, ...] = ()


def progress_from_data(data: Any, name: str, what: Sequence[str]) -> Progress:
    """Return the progress of this upgrade, of what its file holds; None is one that begins.

    ValueError where the file is of something else: the same name must not mean two things.
    """
    if data is None:
        return Progress(name, tuple(what))
    try:
        version, before = data["version"], tuple(str(one) for one in data["what"])
        done = tuple(str(one) for one in data["done"])
    except (KeyError, TypeError):
        raise ValueError(
            f"the file of upgrade {name} is invalid; delete it to begin again"
        ) from None
    if version != VERSION:
        raise ValueError(f"the file of upgrade {name} is of version {version}")
    if before != tuple(what):
        raise ValueError(
            f"upgrade {name} was begun with {', '.join(before)}, not with {', '.join(what)}; "
            "give this one its own name: -e upgrade_name=..."
        )
    return Progress(name, tuple(what), done)
