# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many nodes at once: what each end means, and that a bad one holds up no other."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from apply_walk import DEAD, TORN, walk

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
    ToolError,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._apply.nodes import (
    Node,
    Order,
    Outcome,
    apply_all,
    report_lines,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._apply.runtime import Runtime

DONE = {"ran": {"ok": 9, "changed": 0, "skipped": 1, "changes": [], "failed": []}}
ORDER = Order(Runtime("d", b"RUNTIME"), b"PROGRAM", check=True, limit_s=5.0)


def ended(out: str = "", rc: int = 0, err: str = "", outcome: str = ENDED) -> CommandResult:
    return CommandResult(("ssh",), outcome, rc, out, err, 12.0)


class Nodes:
    """Answers as nodes do, one text or more for each, and keeps what they were sent."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {
            name: list(one) if isinstance(one, tuple) else [one] for name, one in answers.items()
        }
        self.sent: list[tuple[str, str, list[bytes]]] = []
        self.most = self._now = 0
        self._lock = threading.Lock()

    def __call__(
        self, argv: Sequence[str], _limit: float = 0, given: Sequence[bytes] = ()
    ) -> CommandResult:
        if not given:
            return ended()
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(0.01)
        with self._lock:
            self._now -= 1
        self.sent.append((argv[1], argv[2], list(given)))
        one = self.answers[argv[2]].pop(0)
        return one if isinstance(one, CommandResult) else ended(json.dumps(one) + "\n")

    def ask(self, at_once: int = 10) -> dict[str, Outcome]:
        nodes = {
            name: Node(("ssh", "question", name), ("ssh", "way", name), name.encode())
            for name in self.answers
        }
        return apply_all(nodes, ORDER, at_once, 60.0, self)


def test_a_converged_node_is_asked_once_and_sent_no_secret() -> None:
    nodes = Nodes(a=DONE)
    assert nodes.ask() == {"a": Outcome("done")}
    ((how, _name, given),) = nodes.sent
    assert how == "question"
    assert given[:2] == [b"7\n", b"PROGRAM"]
    assert json.loads(given[2])["check"] is True
    assert given[3:] == []


def test_what_a_node_lacks_is_sent_by_the_other_way() -> None:
    nodes = Nodes(a=({"lacks": ["values"]}, DONE), b=({"lacks": ["runtime", "values"]}, DONE))
    assert nodes.ask() == {"a": Outcome("done"), "b": Outcome("done")}
    sent = {(how, name): given[3:] for how, name, given in nodes.sent}
    assert sent["way", "a"] == [b"a"]
    assert sent["way", "b"] == [b"RUNTIME", b"b"]


FAILED = {**DONE["ran"], "failed": [{"task": "Start x", "msg": "dead"}]}


@pytest.mark.parametrize(
    ("answer", "how", "why"),
    [
        ({"ran": {**DONE["ran"], "changed": 2, "changes": ["x", "y"]}}, "done", ""),
        ({"ran": FAILED}, "failed", "Start x: dead"),
        ({"why": "Python 3.9 is on the node"}, "failed", "Python 3.9 is on the node"),
        ({"why": "it did not end", "unmeasured": True}, "not_measured", "it did not end"),
        ({"busy": "process 7 holds the lock"}, "not_measured", "process 7 holds the lock"),
        ({"unheard": 1}, "not_measured", "its answer is of another release"),
        (ended('{"ran": {"ok": 1'), "not_measured", "its answer arrived in part"),
        (ended(""), "not_measured", "its answer arrived in part"),
        (ended("17"), "not_measured", "its answer arrived in part"),
        (ended(rc=255, err="x: no route"), "not_measured", "not reached: x: no route"),
        (ended(outcome=TIMED_OUT, rc=-1), "not_measured", "no answer within 65 s"),
        (ended(rc=1, err="OSError: full"), "failed", "OSError: full"),
        (
            ended(rc=127, err="bash: line 1: python3: command not found"),
            "failed",
            (
                "bash: line 1: python3: command not found; Python 3 (or sudo) is missing: "
                "run bootstrap for the node"
            ),
        ),
    ],
)
def test_each_end_has_its_meaning(answer: Any, how: str, why: str) -> None:
    found = Nodes(a=answer, b=DONE).ask()
    assert (found["a"].how, found["a"].why) == (how, why)
    assert found["b"] == Outcome("done")


def test_as_many_as_are_allowed_are_asked_at_once() -> None:
    nodes = Nodes(**{f"n{number}": DONE for number in range(12)})
    assert len(nodes.ask(at_once=3)) == 12
    assert nodes.most <= 3


def test_an_engine_without_its_tool_is_refused() -> None:
    missing = CommandResult(("ssh",), MISSING)
    with pytest.raises(ToolError, match="engine local needs ssh on the control machine"):
        apply_all({"a": Node(("ssh",), ("ssh",), b"")}, ORDER, 1, 9.0, lambda *_a, **_k: missing)


def test_nodes_with_the_same_end_are_one_line() -> None:
    outcomes = {
        "dgx-01": Outcome("done", changed=1),
        "dgx-02": Outcome("not_measured", "x"),
        "dgx-03": Outcome("not_measured", "x"),
        "dgx-04": Outcome("failed", "y"),
    }
    assert report_lines(outcomes) == [
        "1 of 4 nodes applied their roles, 1 changed",
        "failed on dgx-04: y",
        "not_measured on dgx-[02-03]: x",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_control_machine_that_is_killed_goes_on(tmp_path: Path, seed: int) -> None:
    """tests/soak/apply_kills does the same with more of them."""
    result = walk(tmp_path, 4, 3, seed, {"dgx-02": DEAD, "dgx-03": TORN})
    assert result.sent >= 2
