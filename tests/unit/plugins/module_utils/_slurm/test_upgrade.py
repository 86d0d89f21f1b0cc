# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rolling upgrade does next; and that it keeps its promises whatever happens beside it."""

from __future__ import annotations

import random

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import write_reason
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import Node
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.upgrade import (
    Policy,
    Progress,
    floor_of,
    plan_step,
    preview,
    progress_from_data,
    reason_of,
)

NAME = "driver-580"
NODES = [f"dgx-{number:02d}" for number in range(1, 9)]


def idle(name: str) -> Node:
    return Node(name, ("IDLE",))


def held(name: str, *states: str) -> Node:
    return Node(name, (*(states or ("IDLE",)), "DRAIN"), reason_of(NAME), "root")


def fleet(*others: Node) -> dict[str, Node]:
    return {**{name: idle(name) for name in NODES}, **{node.name: node for node in others}}


POLICY = Policy(3, 4, 1)


def step(nodes, done=(), skipped=(), policy=POLICY, targets=NODES):
    return plan_step(nodes, targets, done, skipped, NAME, policy)


def test_one_node_goes_first_then_whole_batches():
    assert step(fleet()).batch == ("dgx-01",)
    assert step(fleet()).remaining == 7
    second = step(fleet(), done=["dgx-01"])
    assert second.batch == second.fresh == ("dgx-02", "dgx-03", "dgx-04")
    assert step(fleet(), done=NODES).batch == ()
    assert preview(fleet(), NODES, (), (), NAME, Policy(3, 4, 2)) == [
        ("dgx-01", "dgx-02"), ("dgx-03", "dgx-04", "dgx-05"), ("dgx-06", "dgx-07", "dgx-08"),
    ]  # fmt: skip


def test_the_floor_makes_batches_small_and_then_refuses():
    assert step(fleet(), ["dgx-01"], policy=Policy(3, 6)).batch == ("dgx-02", "dgx-03")
    none = step(fleet(), policy=Policy(3, 8))
    assert none.batch == ()
    assert none.refusal == "8 nodes are in service, and 8 must be: none may leave"
    assert none.remaining == 8
    # A node that is down serves no job.
    down = [Node(name, ("DOWN", "NOT_RESPONDING")) for name in NODES[4:]]
    assert "4 nodes are in service" in step(fleet(*down)).refusal
    assert preview(fleet(*down), NODES, (), (), NAME, Policy(3, 4)) == []


def test_what_was_taken_out_for_it_comes_first_and_alone():
    found = step(fleet(held("dgx-05"), held("dgx-07", "ALLOCATED")), done=["dgx-01"])
    assert found.batch == ("dgx-05", "dgx-07")
    assert found.fresh == ()
    assert found.remaining == 5
    # Also where the floor is not kept meanwhile: they cost nothing more.
    assert step(fleet(held("dgx-05")), policy=Policy(3, 8)).batch == ("dgx-05",)


def test_a_node_that_did_not_come_back_stops_it():
    silent = held("dgx-02", "DOWN", "NOT_RESPONDING")
    lost = step(fleet(silent), done=["dgx-01"])
    assert lost.batch == ()
    assert "and DOWN+NOT_RESPONDING+DRAIN: bring it back first" in lost.refusal
    assert '-e \'{"upgrade_skip": ["dgx-02"]}\'' in lost.refusal
    passed = step(fleet(silent), done=["dgx-01"], skipped=["dgx-02"])
    assert passed.batch == ("dgx-03", "dgx-04", "dgx-05")
    assert [one.why for one in passed.left] == ["skipped by the operator"]


@pytest.mark.parametrize("states", [("DOWN",), ("IDLE",)])
@pytest.mark.parametrize("added", ["", " : Not responding", " : Not responding : Not responding"])
def test_a_node_that_booted_for_long_is_still_its_own(states, added):
    """Slurm has appended to its reason, and with ReturnToService=1 leaves it DOWN."""
    node = held("dgx-02", *states)
    late = Node("dgx-02", node.states, node.reason + added, "slurm")
    assert step(fleet(late), done=["dgx-01"]).batch == ("dgx-02",)
    other = Node("dgx-02", node.states, "dgx-upgrade: kernel" + added, "slurm")
    assert "out for the upgrade kernel: end" in step(fleet(other), done=["dgx-01"]).refusal


def test_others_drains_are_left_alone_and_those_of_the_gate_are_not():
    fan = Node("dgx-01", ("IDLE", "DRAIN"), "broken fan", "alice")
    other = Node("dgx-02", ("IDLE", "DRAIN"), "kernel", "root")
    gate = Node("dgx-03", ("IDLE", "DRAIN"), write_reason("dgx-03", "f", "gpu3 ecc"), "root")
    edited = Node("dgx-04", ("IDLE", "DRAIN"), gate.reason, "root")
    gone = {
        name: node for name, node in fleet(fan, other, gate, edited).items() if name != "dgx-08"
    }
    found = step(gone, done=["dgx-07"])
    assert found.batch == ("dgx-03",)
    assert found.fresh == ()
    left = {one.node: one.why for one in found.left}
    assert left["dgx-01"] == "drained by alice: broken fan"
    assert left["dgx-02"] == "drained by root: kernel"
    assert left["dgx-04"].startswith("drained by root: dgx-gate: gpu3 ecc")
    assert left["dgx-08"] == "Slurm does not know it"
    # It stands already, and takes no place of the floor.
    assert step(gone, done=["dgx-07"], policy=Policy(3, 2)).batch == ("dgx-03", "dgx-05")


def test_a_node_that_another_upgrade_has_out_is_not_forgotten():
    """As after a run whose name was wrong: no other run brings it back."""
    other = Node("dgx-02", ("IDLE", "DRAIN"), "dgx-upgrade: kernel", "root")
    found = step(fleet(other), done=["dgx-01"])
    assert (found.batch, found.remaining) == ((), 6)
    assert found.refusal == (
        "dgx-02 is out for the upgrade kernel: end that one first, by its command, or go on "
        'without it: -e \'{"upgrade_skip": ["dgx-02"]}\''
    )
    assert step(fleet(other), ["dgx-01"], ["dgx-02"]).batch == ("dgx-03", "dgx-04", "dgx-05")


@pytest.mark.parametrize(
    ("given", "count", "floor"),
    [(3, 8, 3), ("3", 8, 3), ("75%", 8, 6), ("75%", 9, 7), ("0%", 9, 0), (0, 4, 0), ("100%", 4, 4)],
)
def test_a_floor_is_a_number_or_a_share_rounded_up(given, count, floor):
    assert floor_of(given, count) == floor


@pytest.mark.parametrize("given", ["", "all", "-1", 9, "101%", "7.5", None])
def test_a_floor_that_is_none_is_refused(given):
    with pytest.raises(ValueError, match="upgrade_in_service"):
        floor_of(given, 8)


def progress_data(progress: Progress) -> dict[str, object]:
    """Return what tasks/upgrade_batch.yml writes into the file."""
    what, done = list(progress.what), list(progress.done)
    return {"version": 1, "name": progress.name, "what": what, "done": done}


def test_what_is_done_is_read_again_and_a_name_means_one_thing():
    progress = Progress(NAME, ("install_gpu_stack",), ("dgx-01",))
    assert progress_from_data(progress_data(progress), NAME, ["install_gpu_stack"]) == progress
    assert progress_from_data(None, NAME, ["a"]) == Progress(NAME, ("a",))
    with pytest.raises(ValueError, match="was begun with install_gpu_stack, not with kernel"):
        progress_from_data(progress_data(progress), NAME, ["kernel"])
    for torn in ({}, [], {"version": 1, "what": 3, "done": []}):
        with pytest.raises(ValueError, match="is invalid; delete it"):
            progress_from_data(torn, NAME, ["a"])
    with pytest.raises(ValueError, match="of version 9"):
        progress_from_data({"version": 9, "what": [], "done": []}, NAME, [])


@pytest.mark.parametrize("seed", range(300))
def test_whatever_happens_beside_it_it_keeps_its_promises(seed):
    """Operators, faults, kills and failing batches: the floor, others' drains, and an end."""
    dice = random.Random(seed)
    names = NODES[: dice.randint(1, 8)]
    policy = Policy(dice.randint(1, 4), dice.randint(0, len(names)), dice.randint(1, 4))
    nodes = {name: idle(name) for name in names}
    done: set[str] = set()
    for _turn in range(60):
        name = dice.choice(names)
        node = nodes[name]
        event = dice.random()
        if event < 0.06 and not node.has("DRAIN"):
            nodes[name] = Node(name, ("IDLE", "DRAIN"), "by hand", "alice")
        elif event < 0.10:
            down = ("DOWN", "NOT_RESPONDING", *node.states[1:])
            nodes[name] = Node(name, down, node.reason, node.reason_by)
        elif event < 0.15 and node.reason == reason_of(NAME):
            # A boot longer than SlurmdTimeout.
            nodes[name] = late = Node(
                name, ("DOWN", "DRAIN"), node.reason + " : Not responding", "slurm"
            )
            assert name in step(nodes, done, policy=policy, targets=names).batch or any(
                one.has("NOT_RESPONDING") and one.reason.startswith(reason_of(NAME))
                for one in nodes.values()
            ), late
        elif event < 0.25 and (node.reason == "by hand" or node.has("DOWN")):
            nodes[name] = held(name) if node.reason == reason_of(NAME) else idle(name)
        out = {one for one, node in nodes.items() if node.reason == reason_of(NAME)}
        foreign = {one: node for one, node in nodes.items() if node.reason == "by hand"}
        serving = sum(node.usable for node in nodes.values())
        found = step(nodes, done, policy=policy, targets=names)
        assert not set(found.batch) & (set(foreign) | done)
        assert not (found.batch and found.refusal)
        assert not (out and found.fresh), "others are risked while some are out"
        assert all(nodes[one].usable for one in found.fresh)
        assert not found.fresh or serving - len(found.fresh) >= policy.in_service
        assert len(found.fresh) <= policy.batch
        for one in found.fresh:
            nodes[one] = held(one)
        if dice.random() < 0.2:
            # Killed here, or the batch failed: nothing was noted.
            continue
        for one in found.batch:
            if nodes[one].reason == reason_of(NAME):
                nodes[one] = idle(one)
            done.add(one)
    # Left in peace it comes to an end, or says why not.
    for name, node in nodes.items():
        nodes[name] = held(name) if node.reason == reason_of(NAME) else idle(name)
    for _turn in range(20):
        found = step(nodes, done, policy=policy, targets=names)
        for one in found.batch:
            nodes[one] = idle(one)
        done |= set(found.batch)
        if not found.batch:
            break
    assert done == set(names) or found.refusal
    assert bool(found.refusal) == (done != set(names))
