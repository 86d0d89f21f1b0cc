# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Has many nodes apply their own roles, some at once, and returns how that ended on each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...module_utils._core.nodeset import fold
from ...module_utils._core.pool import ask_all
from ...module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
    ToolError,
    last_lines,
)
from .runtime import Runtime

DONE, FAILED, NOT_MEASURED = "done", "failed", "not_measured"
# ssh's own, and the shell's for a command that is not there.
_SSH, _NO_COMMAND = 255, 127
# What the node may take beside its roles, and the control machine beside the node.
_MARGIN_S = 30.0
_WAIT_S = 30.0

Run = Callable[..., CommandResult]


@dataclass(frozen=True)
class Node:
    """How a node is asked, and what it must have: its values."""

    question: tuple[str, ...]
    way: tuple[str, ...]
    values: bytes


@dataclass(frozen=True)
class Order:
    """What all nodes are asked alike."""

    runtime: Runtime
    # node-apply, made before: Python 3.11 cannot read sources in two threads.
    program: bytes
    check: bool = False
    limit_s: float = 1800.0


@dataclass(frozen=True)
class Outcome:
    """How it ended on a node: done, failed, or not measured, and why."""

    how: str
    why: str = ""
    changed: int = 0
    changes: tuple[str, ...] = ()


def _request(node: Node, order: Order, sent: Iterable[str]) -> list[bytes]:
    """Return the pieces of a request with these parts."""
    parts = {"runtime": order.runtime.data, "values": node.values}
    sent = [name for name in parts if name in sent]
    digests = {
        "runtime": order.runtime.digest,
        "values": hashlib.sha256(node.values).hexdigest(),
    }
    head = {
        "digests": digests,
        "sizes": {name: len(parts[name]) for name in sent},
        "check": order.check,
        "limit_s": order.limit_s,
        "wait_s": _WAIT_S,
    }
    start = b"%d\n" % len(order.program)
    line = json.dumps(head).encode() + b"\n"
    return [start, order.program, line, *(parts[name] for name in sent)]


def _apply(node: Node, order: Order, run: Run) -> Outcome:
    """Ask a node, and once more with what it lacks."""
    limit_s = order.limit_s + _WAIT_S + _MARGIN_S
    ended = run(node.question, limit_s, given=_request(node, order, ()))
    reported = _reported(ended, limit_s)
    if isinstance(reported, dict) and reported.get("lacks"):
        ended = run(node.way, limit_s, given=_request(node, order, reported["lacks"]))
        reported = _reported(ended, limit_s)
    return reported if isinstance(reported, Outcome) else _judged(reported)


def _reported(ended: CommandResult, limit_s: float) -> dict[str, Any] | Outcome:
    """Return the node's answer, or what its absence means."""
    if ended.outcome == MISSING:
        raise ToolError(f"engine local needs {ended.argv[0]} on the control machine; install it")
    if ended.outcome == TIMED_OUT:
        return Outcome(NOT_MEASURED, f"no answer within {limit_s:g} s")
    line = ended.out.strip().rpartition("\n")[2]
    try:
        reported = json.loads(line)
        if isinstance(reported, dict):
            return reported
    except ValueError:
        pass
    message = last_lines(ended.err, 1)
    if ended.rc == _SSH:
        return Outcome(NOT_MEASURED, f"not reached: {message or 'ssh gave no reason'}")
    if ended.rc == _NO_COMMAND:
        return Outcome(
            FAILED, f"{message}; Python 3 (or sudo) is missing: run bootstrap for the node"
        )
    if ended.rc != 0:
        return Outcome(FAILED, message or f"its Python ended with {ended.rc}")
    return Outcome(NOT_MEASURED, "its answer arrived in part")


def _judged(reported: Mapping[str, Any]) -> Outcome:
    """Return what an answer means."""
    if "busy" in reported:
        return Outcome(NOT_MEASURED, str(reported["busy"]))
    if "why" in reported:
        return Outcome(NOT_MEASURED if reported.get("unmeasured") else FAILED, str(reported["why"]))
    ran = reported.get("ran")
    if not isinstance(ran, dict):
        return Outcome(NOT_MEASURED, "its answer is of another release")
    failed = ran["failed"]
    why = "; ".join(f"{one['task']}: {one['msg']}" for one in failed)
    return Outcome(FAILED if failed else DONE, why, ran["changed"], tuple(ran["changes"]))


def apply_all(
    nodes: Mapping[str, Node], order: Order, at_once: int, total_s: float, run: Run
) -> dict[str, Outcome]:
    """Return how it ended on each node. ToolError if the control machine lacks ssh."""
    first = next(iter(nodes.values()), None)
    if first is not None:
        _refuse_without_tool(first, run)
    # A node may be asked twice.
    limit_s = 2 * (order.limit_s + _WAIT_S + _MARGIN_S) + _MARGIN_S
    found, lacking = ask_all(
        nodes, lambda _name, node: _apply(node, order, run), at_once, limit_s, total_s
    )
    missing = {name: Outcome(NOT_MEASURED, why) for name, why in lacking.items()}
    return {name: found.get(name) or missing[name] for name in nodes}


def _refuse_without_tool(node: Node, run: Run) -> None:
    """Raise ToolError where the first word of the way is not a command of the control machine."""
    tool = node.question[0]
    option = "-V" if tool.endswith("ssh") else "--version"
    if run([tool, option], 30.0).outcome != ENDED:
        raise ToolError(f"engine local needs {tool} on the control machine; install it")


def report_lines(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Return how it ended on all nodes, as lines: those with the same end in one."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, one in outcomes.items():
        if one.how != DONE:
            alike.setdefault((one.how, one.why), []).append(name)
    done = [name for name, one in outcomes.items() if one.how == DONE]
    changed = [name for name in done if outcomes[name].changed]
    lines = [f"{len(done)} of {len(outcomes)} nodes applied their roles, {len(changed)} changed"]
    return lines + [f"{how} on {fold(names)}: {why}" for (how, why), names in sorted(alike.items())]
