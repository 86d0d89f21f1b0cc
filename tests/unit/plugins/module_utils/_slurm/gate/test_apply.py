# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate's steps: what is in effect, what was touched in between, and what scontrol says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.commands import NoAnswerError
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.apply import (
    Outcome,
    Slurm,
    Step,
    carry_out,
    diff_of,
    in_effect,
    load_known,
    report,
    store_known,
    words_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.policy import (
    Action,
    GatePlan,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import Node

SERVES = Node("n1", ("IDLE",))
OUT = Node("n1", ("IDLE", "DRAIN"), "why", "root")
OTHER = replace(OUT, reason="another")
KEPT = replace(SERVES, reason="why")


@pytest.mark.parametrize(
    ("what", "node", "there"),
    [
        *((what, SERVES, True) for what in ("resume", "swap_in")),
        *((what, OUT, False) for what in ("resume", "swap_in")),
        *((what, OUT, True) for what in ("drain", "reword")),
        *((what, OTHER, False) for what in ("drain", "reword")),
        # Slurm keeps the reason of a node that was resumed: that is not a drain.
        *((what, KEPT, False) for what in ("drain", "reword")),
        *((what, SERVES, False) for what in ("drain", "reword")),
        *((what, None, False) for what in ("resume", "swap_in", "drain", "reword")),
    ],
)
def test_a_step_is_in_effect_when_the_node_is_as_it_wants_it(
    what: str, node: Node | None, there: bool
) -> None:
    assert in_effect(Action("n1", what, "", "why"), node) is there


def test_a_node_is_let_in_by_undrain_and_a_reason_is_changed_alone() -> None:
    assert words_of(Action("n1", "resume", "")) == ["State=UNDRAIN"]
    assert words_of(Action("n1", "swap_in", "")) == ["State=UNDRAIN"]
    # What is down already stays so by UNDRAIN.
    down = replace(OUT, states=("DOWN", "DRAIN"))
    assert words_of(Action("n1", "resume", "", seen=down)) == ["State=RESUME"]
    assert words_of(Action("n1", "swap_in", "", seen=down)) == ["State=RESUME"]
    assert words_of(Action("n1", "drain", "", "why")) == ["State=DRAIN", "Reason=why"]
    assert words_of(Action("n1", "reword", "", "why")) == ["Reason=why"]


class Cluster(Slurm):
    """A Slurm whose nodes change between two readings."""

    def __init__(self, nodes: Sequence[Node], between: Mapping[str, Node | None]) -> None:
        object.__setattr__(self, "here", {node.name: node for node in nodes})
        object.__setattr__(self, "between", between)
        object.__setattr__(self, "updates", [])

    def nodes(self, names: Sequence[str] = ()) -> dict[str, Node]:
        found = dict(self.here)
        if names:
            found.update(self.between)
        return {name: node for name, node in found.items() if node and (not names or name in names)}

    def update(self, names: Sequence[str], words: Sequence[str]) -> str:
        self.updates.append((list(names), list(words)))
        for name in names:
            drained = any(word == "State=DRAIN" for word in words)
            state = ("IDLE", "DRAIN") if drained else ("IDLE",)
            self.here[name] = replace(self.here[name], states=state)
        return ""


def asks(plan: Sequence[Action], calls: list[int] | None = None):
    def decide(_nodes: Mapping[str, Node], tried: Sequence[tuple[str, str]]) -> GatePlan:
        if calls is not None:
            calls.append(len(tried))
        return GatePlan(tuple(one for one in plan if (one.node, one.what) not in tried), ())

    return decide


TWO = replace(SERVES, name="n2")


@pytest.mark.parametrize(
    ("between", "sent"),
    [
        ({}, ["n1", "n2"]),
        # Gone, drained by an operator, or down: not what the plan was made for.
        ({"n1": None}, ["n2"]),
        ({"n1": replace(OUT, reason_by="bob")}, ["n2"]),
        ({"n1": replace(SERVES, states=("DOWN",))}, ["n2"]),
        # A job that has begun changes nothing.
        ({"n1": replace(SERVES, states=("ALLOCATED",))}, ["n1", "n2"]),
    ],
)
def test_a_node_that_was_touched_in_between_is_passed_over(
    between: Mapping[str, Node | None], sent: list[str]
) -> None:
    plan = [Action(node.name, "drain", "", "why", node) for node in (SERVES, TWO)]
    noted = []
    cluster = Cluster([SERVES, TWO], between)
    outcome = carry_out(cluster, asks(plan), lambda step: noted.append(step.action.node))
    assert noted == [step.action.node for step in outcome.steps] == sent
    assert {action.node for action in outcome.passed_over} == {"n1", "n2"} - set(sent)
    assert [names for names, _words in cluster.updates] == [sent]


@pytest.mark.parametrize(
    "states",
    [("DOWN", "NOT_RESPONDING", "DRAIN"), ("IDLE", "DRAIN"), ("DOWN", "DRAIN", "INVALID_REG")],
)
def test_a_node_that_is_down_is_let_in_as_it_was_seen(states: tuple[str, ...]) -> None:
    down = replace(OUT, states=("DOWN", "DRAIN"))
    for present, sent in ((down, [(["n1"], ["State=RESUME"])]), (replace(down, states=states), [])):
        cluster = Cluster([down], {"n1": present})
        carry_out(cluster, asks([Action("n1", "resume", "", seen=down)]), lambda step: None)
        assert cluster.updates == sent


def test_a_step_on_a_node_that_was_never_seen_is_passed_over() -> None:
    outcome = carry_out(Cluster([SERVES], {}), asks([Action("n1", "drain", "", "why")]), print)
    assert (outcome.steps, len(outcome.passed_over)) == ((), 1)


def test_many_drains_are_planned_again_after_fifty_calls() -> None:
    nodes = [replace(SERVES, name=f"n{number}") for number in range(120)]
    calls: list[int] = []
    plan = [Action(node.name, "drain", "", f"why {node.name}", node) for node in nodes]
    outcome = carry_out(Cluster(nodes, {}), asks(plan, calls), lambda _step: None)
    assert len(outcome.steps) == 120
    assert calls == [0, 50, 100, 120]


@pytest.mark.parametrize(("what", "before"), [("resume", OUT), ("drain", SERVES)])
def test_a_hundred_nodes_are_changed_by_one_call(what: str, before: Node) -> None:
    nodes = [replace(before, name=f"n{number:03d}") for number in range(245)]
    cluster = Cluster(nodes, {})
    reason = "why" if what == "drain" else ""
    plan = [Action(node.name, what, "", reason, node) for node in nodes]
    outcome = carry_out(cluster, asks(plan), lambda _step: None)
    assert [len(names) for names, _words in cluster.updates] == [100, 100, 45]
    assert [step.action.node for step in outcome.steps] == [node.name for node in nodes]


def test_nodes_get_their_own_reason() -> None:
    nodes = [replace(SERVES, name=f"n{number}") for number in range(4)]
    cluster = Cluster(nodes, {})
    plan = [Action(one.name, "drain", "", f"why {int(one.name[1]) % 2}", one) for one in nodes]
    carry_out(cluster, asks(plan), lambda _step: None)
    assert cluster.updates == [
        (["n0", "n2"], ["State=DRAIN", "Reason=why 0"]),
        (["n1", "n3"], ["State=DRAIN", "Reason=why 1"]),
    ]


def test_a_spare_that_is_no_longer_wanted_stays_out() -> None:
    cluster = Cluster([OUT, TWO], {})
    first = [GatePlan((Action("n1", "swap_in", "", "", OUT),), ())]

    def decide(*_seen: object) -> GatePlan:
        return first.pop() if first else GatePlan((), ())

    outcome = carry_out(cluster, decide, lambda _step: None)
    assert (outcome.steps, outcome.passed_over, cluster.updates) == ((), (), [])


def test_of_several_spares_only_those_still_wanted_come_in() -> None:
    spares = [replace(OUT, name=name) for name in ("n1", "n2")]
    one, two = (Action(node.name, "swap_in", "", "", node) for node in spares)
    calls = 0

    def decide(_nodes: Mapping[str, Node], tried: Sequence[tuple[str, str]]) -> GatePlan:
        nonlocal calls
        calls += 1
        wanted = (one, two) if calls == 1 else (two,)
        return GatePlan(tuple(a for a in wanted if (a.node, a.what) not in tried), ())

    cluster = Cluster(spares, {})
    outcome = carry_out(cluster, decide, lambda _step: None)
    assert [names for names, _words in cluster.updates] == [["n2"]]
    assert outcome.passed_over == (one,)


def test_a_step_failed_if_scontrol_complained_and_it_is_not_in_effect() -> None:
    drain = Action("n1", "drain", "", "why")
    for message, after, failed in (
        ("no contact", SERVES, True),
        # Complained of, and done all the same; taken back by an operator since.
        ("no contact", OUT, False),
        ("", SERVES, False),
    ):
        step = Step(drain, SERVES, message)
        outcome = Outcome(GatePlan((), ()), (step,), (), {"n1": after})
        assert outcome.failed == ((step,) if failed else ())


def test_a_drain_that_became_due_comes_before_the_spare() -> None:
    drain = Action("n2", "drain", "", "why", TWO)
    calls = 0

    def decide(_nodes: Mapping[str, Node], tried: Sequence[tuple[str, str]]) -> GatePlan:
        nonlocal calls
        calls += 1
        due = [drain] if calls > 1 else []
        every = (*due, Action("n1", "swap_in", "", "", OUT))
        return GatePlan(tuple(one for one in every if (one.node, one.what) not in tried), ())

    outcome = carry_out(Cluster([OUT, TWO], {}), decide, lambda _step: None)
    assert [step.action.what for step in outcome.steps] == ["drain", "swap_in"]
    assert outcome.passed_over == ()


def answers(result: CommandResult) -> Slurm:
    return Slurm(lambda argv, timeout_s=30, env=None: replace(result, argv=tuple(argv)))


def test_a_node_that_slurm_no_longer_has_is_an_answer_and_no_error() -> None:
    gone = CommandResult((), ENDED, 1, "", "Node n9 not found")
    assert answers(gone).nodes(["n9"]) == {}
    some = replace(gone, out="NodeName=n1 State=IDLE\n")
    assert list(answers(some).nodes(["n1", "n9"])) == ["n1"]
    # A Slurm without nodes is not an error either.
    assert answers(CommandResult((), ENDED, 0, "No nodes in the system\n", "")).nodes() == {}


def test_the_names_of_nodes_are_not_repeated_in_what_failed() -> None:
    with pytest.raises(NoAnswerError, match=r"^`scontrol show node -o` failed: no answer$"):
        answers(CommandResult((), ENDED, 1, "", "no answer")).nodes(["n1", "n2"])


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (CommandResult((), ENDED, 1, "", "a\nb\nc\nd"), "failed: b"),
        (CommandResult((), ENDED, 1), "ended with 1"),
        (CommandResult((), TIMED_OUT, took_s=60), "did not end within 60 s"),
        (CommandResult((), MISSING), "scontrol is not installed"),
        # What was printed before it failed is not the fleet.
        (CommandResult((), ENDED, 1, "NodeName=n1 State=IDLE\n", "no contact"), "no contact"),
        (CommandResult((), TIMED_OUT, 0, "NodeName=n1 State=IDLE\n"), "failed"),
    ],
)
def test_a_slurm_without_an_answer(result: CommandResult, message: str) -> None:
    with pytest.raises(NoAnswerError, match=message) as raised:
        answers(result).nodes()
    assert "a\n" not in str(raised.value)


def test_what_scontrol_complains_of() -> None:
    words = ["State=DRAIN"]
    assert answers(CommandResult((), ENDED, 0, "", "a warning")).update(["n1"], words) == ""
    result = answers(CommandResult((), ENDED, 1, "", "a\nb\nc\nd")).update(["n1"], words)
    assert "d" in result
    assert "ended" not in result
    assert "b" in result
    assert "a" not in result
    silent = answers(CommandResult((), ENDED, 1)).update(["n1"], words)
    assert silent.endswith("ended with 1")


def test_known_nodes_are_a_list_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    assert load_known(str(path)) is None
    store_known(str(path), ["n2", "n1", "n2"])
    assert load_known(str(path)) == {"n1", "n2"}
    assert json.loads(path.read_text()) == {"version": 1, "nodes": ["n1", "n2"]}


def test_before_and_after_of_each_node() -> None:
    drained, resumed, unseen = diff_of([
        Action("n2", "drain", "", "gpu3", Node("n2", ("MIXED",))),
        Action("n1", "resume", "", "", OUT),
        Action("n3", "drain", "", "gpu4"),
    ])  # fmt: skip
    assert drained == {
        "before_header": "node n2", "after_header": "node n2",
        "before": "state: MIXED\nreason: -\n", "after": "state: MIXED+DRAIN\nreason: gpu3\n",
    }  # fmt: skip
    assert resumed["before"] == "state: IDLE+DRAIN\nreason: why\n"
    assert resumed["after"] == "state: IDLE\nreason: -\n"
    assert unseen["after"] == "state: DRAIN\nreason: gpu4\n"


def test_what_is_left_alone_has_the_state_that_was_seen() -> None:
    left = (Action("n1", "leave", "no evidence", seen=OUT), Action("n9", "leave", "not there"))
    step = Action("n2", "drain", "fails", "gpu3")
    found = report(GatePlan((), left, "too many", (step,)), (), (step,))
    assert found["left"] == [
        {"node": "n1", "state": "IDLE+DRAIN", "why": "no evidence"},
        {"node": "n9", "state": "", "why": "not there"},
    ]
    data = [{"node": "n2", "action": "drain", "why": "fails", "reason": "gpu3"}]
    assert (found["changed"], found["actions"]) == (False, [])
    assert found["withheld"] == found["passed_over"] == data
    assert found["refusal"] == "too many"
