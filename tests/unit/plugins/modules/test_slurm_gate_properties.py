# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gate among operators, jobs, crashes and restarts, over thousands of random steps.

gate_world.py has the watcher, which looks at every change the gate makes. Some tests break the gate
on purpose, and demand that the watcher sees it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from gate_world import World, WrongError
from slurmctld_model import Machine, Slurmctld

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate import apply as _gate_apply
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate import policy as _gate
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate import reason as _reason
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.policy import (
    LEVELS,
    Verdict,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import parse_nodes

pytestmark = pytest.mark.slow


def live(seed, steps=120):
    world = World(seed)
    for _step in range(steps):
        world.happen(world.random.randint(0, 6))
        if world.random.random() < 0.03 and len(world.slurm.nodes) < 20:
            world.add_node()
        world.gate()
    return world


@pytest.mark.parametrize("seed", [*range(80), 4957])
def test_whatever_happens_the_gate_keeps_its_rules(seed):
    world = live(seed)
    assert [who for _job, who in world.slurm.killed if who not in ("slurm",)] == []
    world.settle()
    first = world.gate()
    assert first is not None
    assert not first.failed
    assert not first.passed_over
    sent = world.sent
    second = world.gate()
    assert world.sent == sent, second.steps
    assert second.plan.actions == ()
    assert bool(second.refusal) == bool(first.refusal)
    if not first.refusal:
        held_although_good(world)


def held_although_good(world):
    """No node that should be in service is out by the gate, and none that fails is in."""
    now = world.slurm.now
    for name, node in world.slurm.nodes.items():
        verdict = world.verdicts.get(name)
        if verdict is None or verdict.at is None or not 0 <= now - verdict.at <= 14 * 86400:
            continue
        if verdict.verdict == "fail" and node.base != "DOWN":
            assert node.drained, (name, verdict)
        good = verdict.verdict == "pass" and LEVELS.index(verdict.level) >= LEVELS.index(
            world.policy.level
        )
        ours = world.hand.get(name) == "gate" and name not in world.policy.spares
        if good and ours and verdict.at > world.proven_after(name):
            assert node.usable, (name, verdict, node)


@pytest.mark.parametrize("seed", range(20))
def test_all_is_well_again_when_all_nodes_pass(seed):
    world = live(1000 + seed, 30)
    world.settle()
    world.slurm.now += 3600
    for name in world.slurm.nodes:
        world.verdicts[name] = Verdict(name, "pass", world.slurm.now, "burn_in")
    outcome = world.gate()
    assert outcome.refusal == ""
    out = {name for name, node in world.slurm.nodes.items() if node.drained}
    foreign = {name for name in out if world.hand[name] != "gate"}
    assert out - foreign <= set(world.policy.spares)


def test_these_runs_did_something():
    """The rules would be easy to keep for a gate that does nothing."""
    worlds = [live(seed) for seed in range(40)]
    steps = Counter(
        "reword" if state is None else state.lower()
        for world in worlds
        for _name, user, state, reason, _before, _after in world.slurm.changes
        if user == "root" and (state == "UNDRAIN" or "dgx-gate" in (reason or ""))
    )
    assert sum(world.runs for world in worlds) == 40 * 120
    assert min(steps[what] for what in ("drain", "undrain", "reword")) > 50
    assert sum(world.refused for world in worlds) > 50
    assert sum(len(world.slurm.killed) for world in worlds) > 20
    assert sum(world.lifted for world in worlds) > 20
    assert {world.slurm.appends for world in worlds} == {True, False}
    assert sum(world.replaced["gate"] for world in worlds) > 10
    assert sum(world.replaced["operator"] for world in worlds) > 20


# A gate that is broken in one place each; the watcher has to see every one of them.
def signature_not_compared(monkeypatch):
    def read(node, reason):
        found = _gate.read_reason.__globals__["_SIGNED"].match(reason)
        return _gate.Reason(found.group(2), found.group(1)) if found else None

    monkeypatch.setattr(_gate, "ours", lambda node, policy: (
        read(node.name, node.reason)
        if node.has("DRAIN") and node.reason_by == policy.user else None
    ))  # fmt: skip


def user_not_compared(monkeypatch):
    monkeypatch.setattr(_gate, "ours", lambda node, policy: (
        _gate.read_reason(node.name, node.reason) if node.has("DRAIN") else None
    ))  # fmt: skip


def old_evidence_taken(monkeypatch):
    monkeypatch.setattr(_gate, "_doubt", lambda verdict, now, policy: "" if verdict else "none")


def evidence_from_before_the_drain_taken(monkeypatch):
    monkeypatch.setattr(_gate, "seconds_of", lambda text: 0.0)


def any_level_taken(monkeypatch):
    real = _gate._not_enough
    easy = dataclasses.replace
    monkeypatch.setattr(_gate, "_not_enough", lambda node, mine, verdict, policy: real(
        node, mine, verdict, easy(policy, level="quick")
    ))  # fmt: skip


def no_limit(monkeypatch):
    monkeypatch.setattr(_gate, "_refusal", lambda *_args: "")


def not_read_again(monkeypatch):
    monkeypatch.setattr(_gate_apply, "_untouched", lambda action, present: True)


def touches_what_is_down(monkeypatch):
    monkeypatch.setattr(_gate, "hands_off", lambda node, but=(): False)


def lets_in_what_does_not_answer(monkeypatch):
    real = _gate.hands_off
    monkeypatch.setattr(_gate, "hands_off", lambda node, but=(): real(
        node, (*but, "NOT_RESPONDING") if but else but
    ))  # fmt: skip


def touches_what_is_down_by_others(monkeypatch):
    real = _gate.hands_off
    monkeypatch.setattr(_gate, "hands_off", lambda node, but=(): real(node, ("DOWN",)))


def undrains_what_is_down(monkeypatch):
    real = _gate_apply.words_of
    monkeypatch.setattr(_gate_apply, "words_of", lambda action: [
        word.replace("RESUME", "UNDRAIN") for word in real(action)
    ])  # fmt: skip


def takes_words_of_others_for_slurms(monkeypatch):
    monkeypatch.setattr(_reason, "as_written", lambda reason: reason.partition(" : ")[0])
    monkeypatch.setattr(_gate, "as_written", lambda reason: reason)


def takes_a_drain_of_slurm_for_its_own(monkeypatch):
    real, ever = _gate.ours, _gate.Repaired("f", "x", ((0.0, 4e9),))
    monkeypatch.setattr(_gate, "ours", lambda node, policy: real(
        node, dataclasses.replace(policy, repaired={node.name: ever})
    ))  # fmt: skip


def takes_any_drain_of_slurm_of_a_repaired_node(monkeypatch):
    real = _gate.ours
    monkeypatch.setattr(_gate, "ours", lambda node, policy: real(node, dataclasses.replace(
        policy,
        repaired={
            name: dataclasses.replace(one, boots=((0.0, 4e9),))
            for name, one in policy.repaired.items()
        },
    )))  # fmt: skip


def lets_in_by_evidence_from_before_the_boot(monkeypatch):
    real = _gate._not_enough
    monkeypatch.setattr(_gate, "_not_enough", lambda node, *rest: real(
        dataclasses.replace(node, booted_at="1970-01-01T00:00:00"), *rest
    ))  # fmt: skip


def downs_instead(monkeypatch):
    real = _gate_apply.words_of
    monkeypatch.setattr(_gate_apply, "words_of", lambda action: [
        word.replace("State=DRAIN", "State=DOWN") for word in real(action)
    ])  # fmt: skip


def all_spares_in(monkeypatch):
    real = _gate._put_spares_in
    monkeypatch.setattr(_gate, "_put_spares_in", lambda decided, nodes, by, policy, now, back: real(
        decided, nodes, by, dataclasses.replace(policy, spares_in_service=9), now, back
    ))  # fmt: skip


def not_measured_is_good_enough(monkeypatch):
    real = _gate.plan_gate
    monkeypatch.setattr(_gate, "plan_gate", lambda verdicts, *rest: real(
        [dataclasses.replace(v, verdict="pass") if v.verdict == "not_measured" else v
         for v in verdicts], *rest
    ))  # fmt: skip


def new_nodes_are_not_drained(monkeypatch):
    monkeypatch.setattr(_gate, "plan_introduction", lambda *_args: ())


@pytest.mark.parametrize(
    "damage",
    [
        signature_not_compared, user_not_compared, old_evidence_taken,
        evidence_from_before_the_drain_taken, any_level_taken, no_limit, not_read_again,
        touches_what_is_down, lets_in_what_does_not_answer, touches_what_is_down_by_others,
        undrains_what_is_down, takes_words_of_others_for_slurms,
        takes_a_drain_of_slurm_for_its_own, takes_any_drain_of_slurm_of_a_repaired_node,
        lets_in_by_evidence_from_before_the_boot, downs_instead, all_spares_in,
        not_measured_is_good_enough, new_nodes_are_not_drained,
    ],
)  # fmt: skip
def test_a_broken_gate_is_seen(damage, monkeypatch):
    damage(monkeypatch)

    def watch():
        for seed in range(60):
            live(seed)

    with pytest.raises(WrongError):
        watch()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["State=DRAIN"], "You must specify a reason"),
        (["State=DRAIN", "Reason="], "You must specify a reason"),
        (["State=RESUME"], "Invalid node state specified"),
        (["State=ASLEEP"], "Invalid node state specified"),
        (["NodeName=dgx-09", "State=UNDRAIN"], "Invalid node name specified"),
    ],
)
def test_the_model_refuses_what_scontrol_refuses(argv, message):
    slurm = Slurmctld(["dgx-01"])
    result = slurm(["scontrol", "update", "NodeName=dgx-01", *argv])
    assert result.rc == 1
    assert message in result.err
    assert slurm.nodes["dgx-01"] == Machine()


def test_the_model_changes_what_scontrol_changes():
    slurm = Slurmctld(["dgx-01"])
    env = {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}

    def after(*words):
        assert slurm(["scontrol", "update", "NodeName=dgx-01", *words]).ok
        node = parse_nodes(slurm(["scontrol", "show", "node", "-o"], env=env).out)["dgx-01"]
        return node.state, node.reason, node.reason_by

    job = slurm.start_job(["dgx-01"])
    assert after("State=DRAIN", "Reason=a: b") == ("ALLOCATED+DRAIN", "a: b", "root")
    assert slurm.start_job(["dgx-01"]) is None
    slurm.end_job(job)
    assert after("Reason=c") == ("IDLE+DRAIN", "c", "root")
    assert after("State=UNDRAIN") == ("IDLE", "", "")
    assert after("Reason=dropped") == ("IDLE", "", "")
    slurm.crash("dgx-01")
    assert after("State=UNDRAIN")[0] == "DOWN+NOT_RESPONDING"
    assert slurm.killed == []


@pytest.mark.parametrize(
    ("service", "reason", "booted", "there"),
    [
        (1, "", False, ("IDLE", "")),
        (1, "", True, ("DOWN", "Node unexpectedly rebooted")),
        (1, "ours", False, ("DOWN+DRAIN", "ours : Not responding")),
        (2, "ours", True, ("IDLE+DRAIN", "ours : Not responding")),
        (2, "", True, ("IDLE", "")),
    ],
)
def test_the_model_does_by_itself_what_slurmctld_does(service, reason, booted, there):
    slurm = Slurmctld(["dgx-01"], return_to_service=service)
    if reason:
        slurm.update({"NodeName": "dgx-01", "State": "DRAIN", "Reason": reason}, "root")
    slurm.crash("dgx-01")
    slurm.register("dgx-01", booted)
    env = {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
    node = parse_nodes(slurm(["scontrol", "show", "node", "-o"], env=env).out)["dgx-01"]
    assert (node.state, node.reason) == there
    slurm.register("dgx-01", lacks="Low CPUs")
    node = slurm.nodes["dgx-01"]
    assert ("INVALID_REG" in node.flags, node.reason, node.by) == (True, "Low CPUs", "slurm")
    assert slurm.update({"NodeName": "dgx-01", "State": "RESUME"}, "root")
