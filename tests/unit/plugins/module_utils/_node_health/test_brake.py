# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The brake: many nodes at once, kills, late and lost answers: never more than the share out."""

from __future__ import annotations

import dataclasses
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._node_health import brake
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health.brake import (
    Outcome,
    Read,
    Wait,
    Write,
    drain_steps,
    fleet_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import (
    FAILED,
    ITSELF,
    SPARE,
    UNPROVEN,
    read_reason,
    write_reason,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import Node, nodes_of_share

FINDING = "hca:dgx-1/0 ib.link_downed is 1 (must be == 0)"


def name_of(number: int) -> str:
    return f"dgx-{number:04d}"


class TooManyError(AssertionError):
    """More nodes are out by themselves than the share allows."""


class Cluster:
    """slurmctld with its nodes, and a clock; each change is one step, as under its node lock."""

    def __init__(self, count: int, share: float) -> None:
        self.nodes = {name_of(one): Node(name_of(one), ("IDLE",)) for one in range(count)}
        self.share = share
        self.now = 1_800_000_000.0
        self.most = nodes_of_share(share, count)
        self.notes: Counter[str] = Counter()
        self.flying: list[tuple[float, str, tuple[str, ...]]] = []

    @property
    def out(self) -> set[str]:
        found = set()
        for name, node in self.nodes.items():
            ours = read_reason(name, node.reason) if node.has("DRAIN") else None
            if ours and ours.kind == ITSELF:
                found.add(name)
        return found

    def update(self, name: str, words: tuple[str, ...]) -> None:
        node = self.nodes[name]
        given = dict(word.split("=", 1) for word in words)
        if "Comment" in given:
            if "left in service" in given["Comment"] and "left in service" not in node.comment:
                self.notes[name] += 1
            node = dataclasses.replace(node, comment=given["Comment"])
        if given.get("State") == "DRAIN":
            states = (*node.states, *(() if node.has("DRAIN") else ("DRAIN",)))
            node = dataclasses.replace(
                node, states=states, reason=given["Reason"], reason_by="root"
            )
        self.nodes[name] = node
        if given.get("State") == "DRAIN" and len(self.out) > self.most:
            raise TooManyError(f"{len(self.out)} of {len(self.nodes)} are out, {self.most} may be")

    def resume(self, name: str) -> None:
        self.nodes[name] = dataclasses.replace(self.nodes[name], states=("IDLE",), reason="")

    def send(self, name: str, words: tuple[str, ...]) -> None:
        """An update whose credential holds for 300 s, and that arrives within that time."""
        self.flying.append((self.now + 300, name, words))

    def pass_time(self, seconds: float, dice: random.Random) -> None:
        self.now += seconds
        for one in list(self.flying):
            if one[0] < self.now:
                self.flying.remove(one)
            elif dice.random() < 0.3:
                self.flying.remove(one)
                self.update(*one[1:])


@dataclasses.dataclass
class Program:
    """The health program of a node: a run that is under way, and the file of what it has sent."""

    cluster: Cluster
    name: str
    sent: float | None = None
    run: Any = None
    answer: Mapping[str, Node] | None = None
    last: Outcome | None = None

    def begin(self) -> None:
        clock: Callable[[], float] = lambda: self.cluster.now  # noqa: E731
        self.run = drain_steps(self.name, FINDING, self.cluster.share, clock, self.sent)
        self.answer = None

    def step(self, dice: random.Random, trouble: float) -> None:
        """Do one request; `trouble` is how likely a kill or a lost answer is."""
        if self.run is None:
            self.begin()
        try:
            request = self.run.send(self.answer)
        except StopIteration as end:
            self.last, self.run = end.value, None
            return
        except brake.PendingError:
            self.run = None
            return
        self.answer = {}
        if dice.random() < trouble:
            self._trouble(request, dice)
        elif isinstance(request, Read):
            self.answer = dict(self.cluster.nodes)
        elif isinstance(request, Write):
            self.cluster.update(self.name, request.words)
            self.sent = None
        else:
            assert isinstance(request, Wait)

    def _trouble(self, request: Any, dice: random.Random) -> None:
        self.run = None
        if isinstance(request, Write):
            self.sent = self.cluster.now
            how = dice.choice(["never", "answer lost", "late"])
            if how == "answer lost":
                self.cluster.update(self.name, request.words)
            elif how == "late":
                self.cluster.send(self.name, request.words)


def play(
    count: int, share: float, seed: int, trouble: float, rounds: int, operators: bool = True
) -> tuple[Cluster, list[Program]]:
    """Let all nodes be unfit at once, in a random order of single steps."""
    dice = random.Random(seed)
    cluster = Cluster(count, share)
    programs = [Program(cluster, name) for name in cluster.nodes]
    for _round in range(rounds):
        todo = [*programs]
        for program in todo:
            program.run = None if dice.random() < 0.5 else program.run
        while todo:
            program = dice.choice(todo)
            for _step in range(dice.choice([1, 1, 2, 5])):
                program.step(dice, trouble)
                if program.run is None:
                    todo.remove(program)
                    break
            cluster.pass_time(dice.choice([0.0, 0.01, 0.2, 2.0 if count < 100 else 0.2]), dice)
        if operators:
            for name in sorted(cluster.out):
                if dice.random() < 0.2:
                    cluster.resume(name)
        cluster.pass_time(dice.choice([5, 60, 280, 1000]), dice)
    return cluster, programs


@pytest.mark.parametrize("seed", range(60))
def test_no_more_than_the_share_are_ever_out(seed: int) -> None:
    dice = random.Random(f"world {seed}")
    count, share = dice.choice([2, 3, 8, 8, 12, 40]), dice.choice([0.05, 0.1, 0.25, 0.5])
    play(count, share, seed, dice.choice([0.0, 0.05, 0.3]), rounds=8)


@pytest.mark.parametrize("seed", range(3))
def test_no_more_than_the_share_of_127_nodes_are_ever_out(seed: int) -> None:
    play(127, 0.05, seed, 0.1, rounds=4)


@pytest.mark.slow
def test_no_more_than_the_share_of_1024_nodes_are_ever_out() -> None:
    cluster, _programs = play(1024, 0.02, 1, 0.02, rounds=2)
    assert 1 <= len(cluster.out) <= 20


@pytest.mark.parametrize(("count", "share", "most"), [(8, 0.1, 1), (8, 0.25, 2), (127, 0.05, 6)])
def test_a_cause_of_all_takes_the_share_out_and_each_other_says_so_once(
    count: int, share: float, most: int
) -> None:
    cluster, programs = play(count, share, 7, 0.0, rounds=6, operators=False)
    assert len(cluster.out) == most
    held = [program for program in programs if program.last is not None and program.last.held]
    assert len(held) == count - most
    for program in held:
        assert cluster.notes[program.name] == 1
        node = cluster.nodes[program.name]
        assert node.states == ("IDLE",)
        assert re.fullmatch(r"\{node-health left in service: hca:dgx-1/0 .*\}", node.comment)
        assert program.last is not None
        assert f"{most} of {count} nodes are out by themselves" in program.last.message


@pytest.mark.parametrize("count", [1, 2, 8, 1024])
def test_one_that_is_broken_alone_is_drained(count: int) -> None:
    cluster = Cluster(count, 0.001)
    program = Program(cluster, name_of(0))
    while program.last is None:
        program.step(random.Random(1), 0.0)
    assert program.last.changed
    assert cluster.out == {name_of(0)}
    assert cluster.nodes[name_of(0)].comment == ""


def test_one_that_is_broken_alone_is_drained_whatever_slurm_has_taken_down() -> None:
    cluster = Cluster(8, 0.25)
    for number in range(1, 7):
        down = Node(name_of(number), ("DOWN", "NOT_RESPONDING"), "Not responding", "slurm")
        cluster.nodes[down.name] = down
    for number in (0, 7):
        program = Program(cluster, name_of(number))
        while program.last is None:
            program.step(random.Random(1), 0.0)
    # A second one is not: with those that are down it would be more than the share.
    assert cluster.out == {name_of(0)}


def test_a_share_of_nothing_drains_nothing_and_one_of_all_has_no_brake() -> None:
    assert not play(8, 0.0, 1, 0.0, rounds=3)[0].out
    assert len(play(8, 1.0, 1, 0.0, rounds=3, operators=False)[0].out) == 8


def _many_histories() -> None:
    for seed in range(400):
        play(random.Random(seed).choice([2, 3, 8]), 0.3, seed, 0.3, rounds=8)


# Each way to break the brake must be found.
@pytest.mark.parametrize("part", ["no second look", "claims are not counted"])
def test_the_walk_finds_a_broken_brake(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if part == "no second look":
        monkeypatch.setattr(brake.Fleet, "full", property(lambda self: len(self.out) >= self.most))
    else:
        monkeypatch.setattr(brake, "claims_now", lambda _node, _now: False)
    with pytest.raises(TooManyError):
        _many_histories()


def _until(program: Program, kind: type[Any], count: int = 1) -> Any:
    """Run a program up to the request of this kind that it makes next; returns that request."""
    program.begin()
    while True:
        request = program.run.send(program.answer)
        count -= isinstance(request, kind)
        if not count:
            return request
        program.answer = {}
        if isinstance(request, Read):
            program.answer = dict(program.cluster.nodes)
        else:
            program.cluster.update(program.name, request.words)


def _late_drain() -> None:
    cluster = Cluster(3, 0.3)
    first, second = Program(cluster, name_of(0)), Program(cluster, name_of(1))
    drain = _until(first, Write, 2)
    cluster.now += 290
    while second.last is None:
        second.step(random.Random(1), 0.0)
    cluster.update(first.name, drain.words)


def test_a_drain_that_arrives_late_is_counted_until_it_cannot_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _late_drain()
    monkeypatch.setattr(brake, "EXPIRES_S", 200.0)
    with pytest.raises(TooManyError):
        _late_drain()


def _late_note(remembers: bool) -> None:
    cluster = Cluster(3, 0.3)
    first, second, third = (Program(cluster, name_of(one)) for one in range(3))
    while third.last is None:
        third.step(random.Random(1), 0.0)
    note = _until(first, Write)
    first.sent = cluster.now if remembers else None
    cluster.resume(third.name)
    cluster.now += 30
    drain = _until(first, Write, 2)
    cluster.update(first.name, note.words)
    while second.last is None:
        second.step(random.Random(1), 0.0)
    cluster.update(first.name, drain.words)


def test_a_note_that_arrives_late_erases_no_claim() -> None:
    with pytest.raises(brake.PendingError):
        _late_note(remembers=True)
    with pytest.raises(TooManyError):
        _late_note(remembers=False)


def seen(name: str, states: str = "IDLE", reason: str = "", comment: str = "") -> Node:
    return Node(name, tuple(states.split("+")), reason, "root", "", comment)


NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("node", "size", "out", "claims", "others"),
    [
        (seen("b"), 2, 0, 0, 0),
        (seen("b", "IDLE+DRAIN", write_reason("b", ITSELF, "x")), 2, 1, 0, 0),
        # Edited by a person: it is the person's now, and makes room.
        (seen("b", "IDLE+DRAIN", write_reason("b", ITSELF, "x") + " RMA"), 2, 0, 0, 0),
        (seen("b", "IDLE", write_reason("b", ITSELF, "x")), 2, 0, 0, 0),
        (seen("b", "IDLE+DRAIN", write_reason("b", FAILED, "x")), 2, 0, 0, 1),
        (seen("b", "IDLE+DRAIN", write_reason("b", SPARE, "x")), 1, 0, 0, 0),
        (seen("b", "IDLE+DRAIN", write_reason("b", UNPROVEN, "x")), 1, 0, 0, 0),
        (seen("b", "IDLE+DRAIN", "fan, ask Ann"), 2, 0, 0, 0),
        (seen("b", "DOWN+NOT_RESPONDING", "Not responding"), 2, 0, 0, 1),
        (seen("b", "IDLE+DRAIN", "Prolog error"), 2, 0, 0, 1),
        (seen("b", "DOWN+DRAIN", write_reason("b", ITSELF, "x") + " : Not responding"), 2, 1, 0, 0),
        (seen("b", "DOWN+DRAIN", write_reason("b", FAILED, "x") + " : Not responding"), 2, 0, 0, 1),
        (seen("b", "DOWN+DRAIN", "Low CPUs : Not responding"), 2, 0, 0, 1),
        (seen("b", "DOWN+DRAIN", write_reason("b", ITSELF, "x") + " : ask Ann"), 2, 0, 0, 0),
        (seen("b", "FUTURE"), 1, 0, 0, 0),
        (seen("b", comment=f"{{node-health claim {NOW:.0f}}}"), 2, 0, 1, 0),
        (seen("b", comment=f"rack 7 {{node-health claim {NOW - 900:.0f}}}"), 2, 0, 1, 0),
        (seen("b", comment=f"{{node-health claim {NOW - 901:.0f}}}"), 2, 0, 0, 0),
        (seen("b", comment="{node-health left in service: x}"), 2, 0, 0, 0),
        (seen("b", comment="claim 7"), 2, 0, 0, 0),
    ],
)
def test_what_counts(node: Node, size: int, out: int, claims: int, others: int) -> None:
    fleet = fleet_of({"a": seen("a"), "b": node}, "a", 0.5, NOW)
    found = (fleet.size, len(fleet.out), len(fleet.claims), fleet.by_others)
    assert found == (size, out, claims, others)


def answers(*nodes: Node) -> tuple[Outcome, list[tuple[str, ...]]]:
    """Let dgx-1 ask alone; returns what came of it, and what it wrote."""
    world = {node.name: node for node in nodes}
    steps, sent, answer = drain_steps("dgx-1", FINDING, 0.5, lambda: NOW), [], None
    while True:
        try:
            request = steps.send(answer)  # type: ignore[arg-type]
        except StopIteration as end:
            return end.value, sent
        answer = dict(world)
        if isinstance(request, Write):
            sent.append(request.words)
            comment = [word[8:] for word in request.words if word.startswith("Comment=")]
            world["dgx-1"] = dataclasses.replace(world["dgx-1"], comment=comment[0])


def test_a_comment_of_another_owner_is_kept() -> None:
    outcome, sent = answers(seen("dgx-1", comment="rack 7, PDU b"), seen("dgx-2"))
    assert outcome.changed
    assert sent[0] == (f"Comment=rack 7, PDU b {{node-health claim {NOW:.0f}}}",)
    assert sent[1][0] == "State=DRAIN"
    assert sent[1][-1] == "Comment=rack 7, PDU b"
    full = seen("dgx-2", "IDLE+DRAIN", write_reason("dgx-2", ITSELF, "x"))
    outcome, sent = answers(seen("dgx-1", comment="rack 7"), full)
    assert outcome.held
    note = "hca:dgx-1/0 ib.link_downed is 1 (must be 0)"
    assert sent == [(f"Comment=rack 7 {{node-health left in service: {note}}}",)]


def test_a_node_that_is_out_writes_nothing() -> None:
    mine = write_reason("dgx-1", ITSELF, "first")
    outcome, sent = answers(seen("dgx-1", "IDLE+DRAIN", mine))
    assert (outcome.out, outcome.changed, outcome.reason, sent) == (True, False, mine, [])
    outcome, sent = answers(seen("dgx-1", "IDLE+DRAIN", "fan, ask Ann"))
    assert (outcome.out, outcome.changed, outcome.reason, sent) == (True, False, "", [])
