# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done next to a node that is out of service."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.decide import (
    FLEET,
    MOST_VALIDATIONS,
    Parts,
    Plan,
    Policy,
    gate_policy,
    obstacle,
    plan_repair,
    unswept,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.incident import (
    BEGUN,
    CLOSED,
    ENDED,
    JUDGED,
    KEPT,
    OPENED,
    PERSON,
    REPLACED,
    RETURN,
    VALIDATE,
    Event,
    fold,
    kept_parts,
    open_of,
    repaired_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.ladders import (
    STEPS,
    ladder_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.policy import (
    Policy as GatePolicy,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.policy import (
    Verdict,
    plan_gate,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import (
    FAILED,
    ITSELF,
    KEPT_OUT,
    SPARE,
    UNPROVEN,
    write_reason,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import (
    REPLACED as WAS_REPLACED,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import Node

NOW = 1_800_000_000.0
NAME = "dgx-01"
ALL = Policy(steps=STEPS)
GATE = GatePolicy()
NOTHING = Parts()
OUT = ("IDLE", "DRAIN")


def utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def node(
    states: tuple[str, ...] = OUT, kind: str = FAILED, name: str = NAME, at: float = NOW - 100
) -> Node:
    reason = write_reason(name, kind, "gpu3 xid: Xid 79")
    return Node(name, states, reason, "root", utc(at))


def verdict(
    status: str = FAIL, at: float = NOW - 200, check: str = "gpu.xid", name: str = NAME
) -> Verdict:
    if status != FAIL:
        return Verdict(name, status, at, "standard")
    return Verdict(name, FAIL, at, "standard", check, f"gpu:{name}/3", "Xid 79", "reset the GPU")


class Case:
    """A cluster of 19 healthy nodes and dgx-01, whose lines are kept from one plan to the next."""

    def __init__(self, policy: Policy = ALL) -> None:
        self.policy, self.events = policy, list[Event]()
        self.nodes = {name: Node(name, ("IDLE",)) for name in (f"dgx-{n:02}" for n in range(1, 21))}
        self.verdicts = {name: verdict(PASS, name=name) for name in self.nodes}
        self.now = NOW

    def plan(self, later: float = 60, parts: Parts = NOTHING, **changed: Any) -> Plan:
        self.now += later
        plan = plan_repair(
            self.nodes, self.verdicts, fold(self.events), replace(self.policy, **changed),
            self.now, list(self.nodes), parts,
        )  # fmt: skip
        self.events += plan.events
        return plan

    def end(self) -> None:
        self.now += 30
        open_ = next(iter(open_of(fold(self.events)).values()))
        step = open_.steps[-1][0]
        self.events.append(Event(self.now, open_.name, NAME, ENDED, step=step, text="done"))


@pytest.fixture
def broken() -> Case:
    case = Case()
    case.nodes[NAME] = node()
    case.verdicts[NAME] = verdict()
    return case


def steps(plan: Plan) -> list[tuple[str, str]]:
    return [(due.node, due.step) for due in plan.due]


def kinds(plan: Plan) -> list[str]:
    return [event.what for event in plan.events]


def test_nothing_happens_to_a_healthy_cluster() -> None:
    assert Case().plan() == Plan()


def test_a_pass_below_the_level_of_the_gate_asks_for_evidence(broken: Case) -> None:
    """admit_nodes lets no node in by it, so that waiting for that would have no end."""
    broken.verdicts[NAME] = Verdict(NAME, PASS, NOW - 10, "quick")
    plan = broken.plan(level="quick")
    assert (steps(plan), plan.waits[NAME]) == (
        [], "it passes at level quick: admit_nodes lets it in"
    )  # fmt: skip
    for _time in range(MOST_VALIDATIONS):
        plan = broken.plan(level="standard")
        assert steps(plan) == [(NAME, VALIDATE)]
        assert plan.due[0].why == "it passed at level quick only; standard is asked for"
        broken.end()
        broken.verdicts[NAME] = Verdict(NAME, PASS, broken.now + 10, "quick")
    plan = broken.plan(level="standard")
    why = "3 validations in turn passed at level quick only; look at the node"
    assert (kinds(plan), plan.waits[NAME]) == ([PERSON], why)
    broken.verdicts[NAME] = Verdict(NAME, PASS, broken.now + 10, "burn_in")
    plan = broken.plan(level="standard")
    assert plan.waits[NAME] == "it passes at level burn_in: admit_nodes lets it in"


def test_a_failure_that_validations_do_not_measure_is_named(broken: Case) -> None:
    """At quick no validation asks the burn-in, and nothing would say what to do."""
    stands = replace(verdict(check="burn.xid"), asked_by="standard")
    broken.verdicts[NAME] = stands
    plan = broken.plan(level="quick")
    assert [(due.step, due.level) for due in plan.due] == [("reset_gpu", "standard")]
    named = f"burn.xid of gpu:{NAME}/3"
    for _time in range(MOST_VALIDATIONS):
        broken.end()
        (due,) = broken.plan(level="quick").due
        assert (due.step, due.level) == (VALIDATE, "standard")
        assert due.why == (
            f"no evidence is new enough, and {named} failed before: Xid 79; reset the GPU"
        )
    plan = broken.plan(level="quick")
    why = f"3 validations in turn did not measure {named} (Xid 79; reset the GPU); look at the node"
    assert (kinds(plan), plan.waits[NAME]) == ([PERSON], why)
    assert [event.text for event in plan.events] == [why]


def test_a_validation_is_as_deep_as_the_gate_asks(broken: Case) -> None:
    (due,) = broken.plan(level="burn_in").due
    assert due.level == "burn_in"


def test_the_whole_ladder_and_back(broken: Case) -> None:
    first = broken.plan()
    assert (kinds(first), steps(first)) == ([OPENED, BEGUN], [(NAME, "reset_gpu")])
    assert first.events[0].check == "gpu.xid"
    broken.end()
    broken.verdicts[NAME] = verdict(FAIL, broken.now + 10, "gpu.access")
    second = broken.plan()
    assert (kinds(second), steps(second)) == ([JUDGED, BEGUN], [(NAME, "reboot")])
    broken.end()
    broken.verdicts[NAME] = verdict(PASS, broken.now + 10)
    waits = broken.plan()
    assert (steps(waits), kinds(waits)) == ([], [])
    assert waits.waits == {NAME: "it passes at level standard: admit_nodes lets it in"}
    broken.nodes[NAME] = Node(NAME, ("IDLE",))
    (closed,) = broken.plan().events
    assert (closed.what, closed.text) == (CLOSED, "back")
    assert broken.plan() == Plan()


def test_the_second_time_the_part_goes_back(broken: Case) -> None:
    broken.policy = Policy(steps=("reset_gpu",))
    broken.plan()
    broken.nodes[NAME] = Node(NAME, ("IDLE",))
    broken.plan()
    broken.nodes[NAME], broken.verdicts[NAME] = node(), verdict(at=broken.now)
    plan = broken.plan(86400)
    assert kinds(plan) == [OPENED, PERSON]
    assert plan.waits[NAME].startswith(
        "reboot is next and not done (cluster_repair.steps lacks it)"
    )
    broken.policy = ALL
    assert steps(broken.plan()) == [(NAME, "reboot")]


def test_after_the_last_step_the_part_goes_back(broken: Case) -> None:
    broken.verdicts[NAME] = verdict(check="gpu.remap_failed")
    plan = broken.plan()
    assert kinds(plan) == [OPENED, RETURN]
    assert plan.waits[NAME].startswith("return the part: gpu.remap_failed gpu:dgx-01/3")
    # New evidence of the same changes nothing, and nothing is noted twice.
    broken.verdicts[NAME] = verdict(check="gpu.remap_failed", at=broken.now + 5)
    again = broken.plan()
    assert (again.events, again.waits) == ((), plan.waits)


def test_a_part_that_goes_back_is_not_repaired_after_all(broken: Case) -> None:
    broken.verdicts[NAME] = verdict(check="gpu.remap_failed")
    before = broken.plan()
    broken.verdicts[NAME] = verdict(at=broken.now + 5)
    again = broken.plan(ladders={"gpu.remap_failed": ladder_of("gpu.xid")})
    assert (again.events, again.waits) == ((), before.waits)


@pytest.mark.parametrize(
    ("lacks", "step"),
    [
        # Consent to the first step of the ladder, and to the last but the BMC; a BMC; no services.
        (Policy(), "reset_gpu"),
        (Policy(steps=["reset_gpu"]), "reboot"),
        (Policy(steps=STEPS), "power_cycle"),
        (Policy(steps=STEPS, serving=(NAME,), powered=(NAME,)), "reboot"),
    ],
)
def test_what_a_person_was_asked_for_is_used_when_it_comes(
    broken: Case, lacks: Policy, step: str
) -> None:
    broken.policy = lacks
    plan = broken.plan()
    while plan.due:
        broken.end()
        broken.verdicts[NAME] = verdict(at=broken.now + 10)
        plan = broken.plan()
    assert plan.waits[NAME].startswith(f"{step} is next and not done")
    # Seen again, and found again: a person knows it.
    for at in (broken.verdicts[NAME].at, broken.now + 10):
        broken.verdicts[NAME] = verdict(at=at)
        again = broken.plan()
        assert (again.events, again.due, again.waits) == ((), (), plan.waits)
    broken.policy = Policy(steps=STEPS, powered=(NAME,))
    shown = broken.plan(begins=False)
    assert (shown.events, shown.waits) == ((), {NAME: f"{step} is next"})
    used = broken.plan()
    assert (kinds(used), steps(used)) == ([BEGUN], [(NAME, step)])
    assert not open_of(fold(broken.events))[NAME].waits


def test_the_end_of_the_window_gives_no_consent(broken: Case) -> None:
    """The step was taken in an earlier incident, 20 days before this one."""
    day, broken.policy = 86400.0, Policy(steps=("reset_gpu",))
    assert steps(broken.plan()) == [(NAME, "reset_gpu")]
    broken.nodes[NAME] = Node(NAME, ("IDLE",))
    assert kinds(broken.plan()) == [CLOSED]
    broken.now += 20 * day
    broken.nodes[NAME] = node(at=broken.now)
    broken.verdicts[NAME] = verdict(at=broken.now)
    plan = broken.plan()
    assert "reset_gpu was done before" in plan.waits[NAME]
    for _week in range(3):
        again = broken.plan(7 * day)
        assert (again.events, again.due, again.waits) == ((), (), plan.waits)
    assert steps(broken.plan(times=2)) == [(NAME, "reset_gpu")]


def test_evidence_that_changes_why_a_person_is_needed_is_one_line_more(broken: Case) -> None:
    broken.policy = Policy()
    broken.plan()
    broken.verdicts[NAME] = verdict(check="gpu.access", at=broken.now + 5)
    plan = broken.plan()
    assert kinds(plan) == [JUDGED, PERSON]
    assert plan.waits[NAME].startswith("reboot is next and not done")
    assert broken.plan().events == ()


def test_a_power_cycle_needs_a_bmc(broken: Case) -> None:
    for step in ("reset_gpu", "reboot"):
        assert steps(broken.plan()) == [(NAME, step)]
        broken.end()
        broken.verdicts[NAME] = verdict(at=broken.now + 10)
    plan = broken.plan()
    assert kinds(plan) == [JUDGED, PERSON]
    why = "power_cycle is next and not done (the node has no node_bmc)"
    assert plan.waits[NAME].startswith(why)


def test_a_dead_fabric_manager_sends_no_part_back(broken: Case) -> None:
    broken.policy = Policy(steps=STEPS, powered=(NAME,))
    of_node = {"check": "gpu.fabric", "subject": f"node:{NAME}"}
    for step in ("restart_driver", "reboot"):
        broken.verdicts[NAME] = replace(verdict(at=broken.now + 10), **of_node)
        assert steps(broken.plan()) == [(NAME, step)]
        broken.end()
    broken.verdicts[NAME] = replace(verdict(at=broken.now + 10), **of_node)
    assert kinds(broken.plan()) == [JUDGED, PERSON]


def test_a_node_with_a_bmc_goes_up_to_the_ac_power(broken: Case) -> None:
    broken.policy = Policy(steps=STEPS, powered=(NAME,))
    for step in ("reboot", "power_cycle", "ac_cycle"):
        broken.verdicts[NAME] = verdict(check="gpu.access", at=broken.now + 10)
        assert steps(broken.plan()) == [(NAME, step)]
        broken.end()
    broken.verdicts[NAME] = verdict(check="gpu.access", at=broken.now + 10)
    assert kinds(broken.plan()) == [JUDGED, RETURN]


def test_a_node_that_runs_services_of_the_cluster_is_never_restarted(broken: Case) -> None:
    """A power cycle of the controller would take the jobs of all nodes out of sight."""
    broken.policy = Policy(steps=STEPS, powered=(NAME,), serving=(NAME,))
    assert steps(broken.plan()) == [(NAME, "reset_gpu")]
    broken.end()
    broken.verdicts[NAME] = verdict(at=broken.now + 10)
    plan = broken.plan()
    assert kinds(plan) == [JUDGED, PERSON]
    why = "reboot is next and not done (the node runs services of the cluster, too)"
    assert plan.waits[NAME].startswith(why)


def test_no_step_without_consent(broken: Case) -> None:
    broken.policy = Policy()
    plan = broken.plan()
    assert plan.due == ()
    assert "reset_gpu is next and not done (cluster_repair.steps lacks it)" in plan.waits[NAME]


def test_consent_to_the_stronger_step_suffices(broken: Case) -> None:
    broken.policy = Policy(steps=("reboot",))
    assert steps(broken.plan()) == [(NAME, "reboot")]


def test_a_cause_outside_of_the_node_is_a_persons(broken: Case) -> None:
    broken.verdicts[NAME] = verdict(check="fabric.cable")
    assert kinds(broken.plan()) == [OPENED, PERSON]


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (node(("ALLOCATED", "DRAIN")), "its jobs end first"),
        (node(("MIXED", "DRAIN")), "its jobs end first"),
        (node(("IDLE", "COMPLETING", "DRAIN")), "its jobs end first"),
        (node(("DOWN",)), "the node is DOWN: bring it back, or take it out"),
        (node(("IDLE", "DRAIN", "REBOOT_ISSUED")), "the node is IDLE+DRAIN+REBOOT_ISSUED"),
        (node(("IDLE", "DRAIN", "MAINT", "INVAL")), "the node is IDLE+DRAIN+MAINT+INVAL"),
        (Node(NAME, ("DOWN", "DRAIN"), "fans : Not responding", "slurm"), "the node is DOWN+DRAIN"),
        (
            Node(NAME, OUT, "gres/gpu count reported lower than configured (7 < 8)", "slurm"),
            "slurm has it: gres/gpu",
        ),
        (Node(NAME, OUT, "fans", "ada"), "ada has it: fans"),
        (replace(node(), reason=node().reason.replace("79", "48")), "root has it: dgx-gate"),
        (replace(node(), reason_by="ada"), "ada has it: dgx-gate"),
        (node(kind=UNPROVEN), "root has it: dgx-gate: gpu3"),
        (node(kind=SPARE), "root has it"),
        (None, "Slurm has no such node"),
    ],
)
def test_no_step_is_taken(one: Node | None, why: str) -> None:
    assert obstacle(one, GATE).startswith(why)


@pytest.mark.parametrize(
    "states",
    [("DOWN",), ("DOWN", "NOT_RESPONDING"), ("IDLE", "NOT_RESPONDING"), ("IDLE", "INVAL"),
     ("DOWN", "INVALID_REG")],
)  # fmt: skip
@pytest.mark.parametrize("added", ["", " : Not responding", " : Low RealMemory (reported:1 < 2)"])
def test_a_node_that_is_broken_is_what_steps_are_for(states: tuple[str, ...], added: str) -> None:
    found = node((*states, "DRAIN"))
    by = "slurm" if added else "root"
    assert obstacle(replace(found, reason=found.reason + added, reason_by=by), GATE) == ""


@pytest.mark.parametrize("flag", ["INVAL", "INVALID_REG"])
def test_a_node_that_comes_up_with_less_gets_the_next_step(flag: str) -> None:
    """Slurm has replaced the reason by its words; back with all its parts, the gate lets it in."""
    case = Case(replace(ALL, powered=[NAME]))
    case.nodes[NAME], case.verdicts[NAME] = node(), verdict(check="gpu.count")
    assert steps(case.plan()) == [(NAME, "reboot")]
    case.end()
    words = "gres/gpu count reported lower than configured (7 < 8)"
    case.nodes[NAME] = Node(NAME, (*OUT, flag), words, "slurm", utc(case.now))
    case.verdicts[NAME] = verdict(at=case.now + 60, check="gpu.count")
    assert steps(case.plan(120)) == [(NAME, "power_cycle")]
    case.end()
    assert obstacle(case.nodes[NAME], gate_policy("root", fold(case.events))) == ""
    whole = replace(case.nodes[NAME], states=OUT)
    passed = verdict(PASS, case.now + 60)
    gate = replace(gate_policy("root", fold(case.events)), level="standard")
    assert [one.what for one in plan_gate([passed], {NAME: whole}, gate, case.now).actions] == [
        "resume"
    ]
    # Without an incident the drain is Slurm's.
    assert plan_gate([passed], {NAME: whole}, GATE, case.now).actions == ()


LESS = "Low RealMemory (reported:24105 < 100.00% of configured:999000)"


@pytest.mark.parametrize("step", [False, True])
@pytest.mark.parametrize("is_seen", [False, True])
def test_what_an_operator_took_over_stays_his_though_slurm_replaces_his_reason(
    step: bool, is_seen: bool
) -> None:
    """He opens the machine: it gets no step, and is not let in, whether his words were seen."""
    case = Case(replace(ALL, powered=[NAME]))
    case.nodes[NAME], case.verdicts[NAME] = node(), verdict(check="gpu.count")
    if step:
        assert steps(case.plan()) == [(NAME, "reboot")]
        case.end()
    else:
        case.nodes[NAME] = node(("ALLOCATED", "DRAIN"))
        assert steps(case.plan()) == []
    case.nodes[NAME] = Node(NAME, OUT, "RMA 5: do not touch", "alice", utc(case.now + 10))
    if is_seen:
        assert case.plan(30).waits[NAME] == "alice has it: RMA 5: do not touch"
    case.now += 900
    for state, outcome in ((("INVALID_REG",), FAIL), ((), FAIL), ((), PASS)):
        case.nodes[NAME] = Node(NAME, (*OUT, *state), LESS, "slurm", utc(case.now))
        case.verdicts[NAME] = verdict(outcome, case.now + 30, check="gpu.count")
        made = case.plan(60)
        assert steps(made) == []
        assert made.waits[NAME].startswith(("slurm has it: Low RealMemory", "the node is IDLE"))
        gate = replace(gate_policy("root", fold(case.events)), level="standard")
        assert plan_gate([case.verdicts[NAME]], case.nodes, gate, case.now).actions == ()
    assert "who drained it before is not known" in made.waits[NAME]


@pytest.mark.parametrize("later", [90, 630, 632])
def test_a_boot_of_a_killed_run_counts_for_the_time_of_a_boot(later: int) -> None:
    case = Case()
    case.nodes[NAME], case.verdicts[NAME] = node(), verdict(check="gpu.count")
    assert steps(case.plan()) == [(NAME, "reboot")]
    is_ended = later == 630
    if is_ended:
        case.end()
    began = case.now - 30 if is_ended else case.now
    case.nodes[NAME] = Node(NAME, OUT, LESS, "slurm", utc(began + later))
    why = obstacle(case.nodes[NAME], gate_policy("root", fold(case.events)))
    assert bool(why) == (later == 632)


def test_a_node_keeps_the_kind_of_its_drain() -> None:
    case = Case()
    case.nodes[NAME] = node(kind=ITSELF)
    case.verdicts[NAME] = verdict(at=NOW + 30, check="gpu.count")
    assert steps(case.plan()) == [(NAME, "reboot")]
    case.end()
    assert repaired_of(fold(case.events))[NAME].kind == ITSELF


def test_where_others_have_taken_over_the_incident_waits(broken: Case) -> None:
    broken.plan()
    broken.end()
    broken.verdicts[NAME] = verdict(at=broken.now + 10)
    broken.nodes[NAME] = Node(NAME, OUT, "fans", "ada")
    plan = broken.plan()
    assert (plan.events, plan.due, plan.waits) == ((), (), {NAME: "ada has it: fans"})


def test_new_nodes_and_spares_have_no_incident() -> None:
    case = Case()
    case.nodes[NAME], case.verdicts[NAME] = node(kind=UNPROVEN), verdict()
    case.nodes["dgx-02"] = node(kind=SPARE, name="dgx-02")
    assert case.plan() == Plan()


def test_a_node_that_drained_itself_is_validated_first() -> None:
    """Its health program leaves no evidence, and what there is says that it was well."""
    case = Case()
    case.nodes[NAME] = node(kind=ITSELF)
    first = case.plan()
    assert (kinds(first), steps(first)) == ([OPENED, BEGUN], [(NAME, VALIDATE)])
    assert "Xid 79" in first.events[0].text
    case.verdicts[NAME] = verdict(at=case.now + 5)
    second = case.plan()
    assert (kinds(second), steps(second)) == ([JUDGED, BEGUN], [(NAME, "reset_gpu")])


def test_what_cannot_be_measured_is_a_persons_in_the_end(broken: Case) -> None:
    broken.plan()
    for _number in range(MOST_VALIDATIONS):
        broken.verdicts[NAME] = verdict(NOT_MEASURED, broken.now + 5)
        assert steps(broken.plan()) == [(NAME, VALIDATE)]
    plan = broken.plan()
    assert (kinds(plan), plan.due) == ([PERSON], ())
    assert broken.plan().events == ()
    # The person has looked, and validates it.
    broken.verdicts[NAME] = verdict(at=broken.now + 5)
    assert steps(broken.plan()) == [(NAME, "reboot")]


def test_evidence_from_before_a_step_counts_for_nothing(broken: Case) -> None:
    broken.plan()
    broken.verdicts[NAME] = verdict(at=broken.now)
    assert steps(broken.plan()) == [(NAME, VALIDATE)]
    broken.verdicts[NAME] = verdict(PASS, at=broken.now)
    assert steps(broken.plan()) == [(NAME, VALIDATE)]


def test_a_killed_step_is_not_taken_again(broken: Case) -> None:
    """Its begin is the last line; what the node says decides."""
    broken.plan()
    broken.verdicts[NAME] = verdict(at=broken.now + 5)
    assert steps(broken.plan()) == [(NAME, "reboot")]


def test_the_operator_ends_an_incident(broken: Case) -> None:
    broken.plan()
    broken.nodes[NAME] = Node(NAME, ("IDLE",))
    (event,) = broken.plan().events
    assert (event.what, event.text) == (CLOSED, "let in by the operator")


def test_a_node_that_left_and_one_that_is_down(broken: Case) -> None:
    broken.plan()
    broken.nodes[NAME] = Node(NAME, ("DOWN",))
    assert broken.plan().events == ()
    del broken.nodes[NAME]
    (event,) = broken.plan().events
    assert (event.what, event.text) == (CLOSED, "the node left Slurm")


def test_so_many_at_once_and_the_oldest_first() -> None:
    case = Case(Policy(steps=STEPS, at_once=2, alike=0.9))
    case.plan()
    for number in (3, 2, 1):
        name = f"dgx-{number:02}"
        case.nodes[name], case.verdicts[name] = node(name=name), verdict(name=name)
        case.plan(at_once=0)
    plan = case.plan()
    assert steps(plan) == [("dgx-03", "reset_gpu"), ("dgx-02", "reset_gpu")]
    assert plan.waits == {"dgx-01": "reset_gpu is next, when fewer nodes are at theirs"}


def test_one_cause_of_many_is_one_incident_without_a_ladder() -> None:
    case = Case()
    for number in (1, 2, 3):
        name = f"dgx-{number:02}"
        case.nodes[name] = node(name=name)
        case.verdicts[name] = verdict(check="gpu.driver_version", name=name)
    plan = case.plan()
    assert (kinds(plan), plan.due) == ([OPENED, PERSON], ())
    assert plan.events[0].node == FLEET + "gpu.driver_version"
    assert plan.events[0].text == "3 nodes fail gpu.driver_version: dgx-01, dgx-02, dgx-03"
    assert set(plan.waits) == {"dgx-01", "dgx-02", "dgx-03"}
    assert case.plan().events == ()
    # Two of 20 have no common cause by their number: then each has its incident.
    case.verdicts["dgx-03"] = verdict(PASS, name="dgx-03")
    case.nodes["dgx-03"] = Node("dgx-03", ("IDLE",))
    left = case.plan()
    assert sorted(kinds(left)) == [CLOSED, OPENED, OPENED, PERSON, PERSON]


def test_a_cause_of_many_is_judged_by_all_of_them_whatever_the_target() -> None:
    """One target alone is few: the incident of the fleet would end, and its node be reset."""
    case = Case()
    for number in range(1, 11):
        name = f"dgx-{number:02}"
        case.nodes[name] = node(name=name)
        case.verdicts[name] = verdict(name=name)
    assert kinds(case.plan()) == [OPENED, PERSON]
    plan = plan_repair(
        case.nodes, case.verdicts, fold(case.events), case.policy, case.now + 60, ["dgx-02"]
    )
    assert (plan.events, plan.due) == ((), ())
    assert plan.waits == {"dgx-02": "10 nodes fail gpu.xid: one cause, and no node's own"}


def test_nothing_begins_where_it_is_only_judged(broken: Case) -> None:
    plan = broken.plan(begins=False)
    assert (kinds(plan), plan.due) == ([OPENED], ())
    assert plan.waits == {NAME: "reset_gpu is next"}
    again = broken.plan(begins=False)
    assert again.events == ()


@pytest.mark.parametrize(
    ("check", "subject", "count", "cause"),
    [
        ("fabric.missing", "cable:{node}/rail3--leaf-07/{number}", 4, "fabric.missing at leaf-07"),
        ("mount.answers", "mount:{node}/data", 3, "mount.answers at data"),
        ("gpu.driver_version", "node:{node}", 9, "gpu.driver_version"),
    ],
)
def test_a_dead_leaf_a_ceph_that_hangs_and_a_wrong_driver_are_one_incident_each(
    check: str, subject: str, count: int, cause: str
) -> None:
    """However few of a large fleet they are: what they fail at is not theirs."""
    case = Case(replace(ALL, ladders={check: ladder_of("gpu.xid")}, alike=0.4))
    hit = [f"dgx-{number:02}" for number in range(1, count + 1)]
    for number, name in enumerate(hit):
        where = subject.format(node=name, number=number)
        case.nodes[name] = node(name=name)
        case.verdicts[name] = replace(verdict(check=check, name=name), subject=where)
    plan = case.plan()
    assert (kinds(plan), plan.due) == ([OPENED, PERSON], ())
    assert plan.events[0].node == FLEET + cause
    assert set(plan.waits) == set(hit)
    # Two have no common cause, and walk their ladders.
    for name in hit[2:]:
        case.nodes[name], case.verdicts[name] = Node(name, ("IDLE",)), verdict(PASS, name=name)
    later = case.plan(at_once=9)
    assert sorted(kinds(later)) == [BEGUN, BEGUN, CLOSED, OPENED, OPENED]


def test_a_part_takes_what_was_tried_to_another_host() -> None:
    case = Case()
    for name in (NAME, "dgx-02", "dgx-03"):
        case.nodes[name] = node(name=name, at=case.now - 100)
        case.verdicts[name] = verdict(name=name, at=case.now - 50)
        part = Parts(names={f"gpu:{name}/3": "GPU-7" if name != "dgx-03" else "GPU-8"})
        plan = case.plan(parts=part)
        if name == NAME:
            assert steps(plan) == [(NAME, "reset_gpu")]
            # The part leaves this host, which passes without it.
            case.nodes[name], case.verdicts[name] = Node(name, ("IDLE",)), verdict(PASS, case.now)
        elif name == "dgx-02":
            assert steps(plan) == [(name, "reboot")]
            assert plan.events[-1].what == BEGUN
            case.nodes[name] = Node(name, ("IDLE",))
        else:
            assert steps(plan) == [(name, "reset_gpu")]


def of_gpu(part: str, serial: str, subject: str = f"gpu:{NAME}/3") -> Parts:
    return Parts(names={subject: part} if part else {}, serials={subject: serial} if serial else {})


@pytest.mark.parametrize(
    ("slot", "part", "serial", "step"),
    [
        (5, "GPU-5", "S5", "reset_gpu"),
        (5, "", "", "reset_gpu"),
        # The GPU, or the whole machine, was replaced.
        (3, "GPU-new", "S-new", "reset_gpu"),
        (3, "GPU-3", "S3", "reboot"),
        # Without its UUID it is named by its serial number.
        (3, "S3", "S3", "reboot"),
        (3, "", "", "reboot"),
    ],
)
def test_steps_because_of_another_part_do_not_count(
    broken: Case, slot: int, part: str, serial: str, step: str
) -> None:
    """Else a GPU goes back to its maker for the month's repair of another."""
    assert steps(broken.plan(parts=of_gpu("GPU-3", "S3"))) == [(NAME, "reset_gpu")]
    broken.nodes[NAME] = Node(NAME, ("IDLE",))
    assert kinds(broken.plan()) == [CLOSED]
    subject = f"gpu:{NAME}/{slot}"
    broken.nodes[NAME] = node(at=broken.now)
    broken.verdicts[NAME] = replace(verdict(at=broken.now), subject=subject)
    assert steps(broken.plan(86400, of_gpu(part, serial, subject))) == [(NAME, step)]


def test_a_step_counts_for_what_it_began_for_whatever_fails_after_it(broken: Case) -> None:
    """Else a GPU that fails each day is reset each day, as long as another one fails after it."""
    slots = {number: f"gpu:{NAME}/{number}" for number in range(8)}
    parts = Parts(
        names={slot: f"GPU-{number}" for number, slot in slots.items()},
        serials={slot: f"S{number}" for number, slot in slots.items()},
    )
    taken: list[list[str]] = []
    for other in (5, 6, 7, 0, 1):
        broken.now += 86400
        broken.nodes[NAME] = node(at=broken.now - 10)
        broken.verdicts[NAME] = verdict(at=broken.now - 20)
        plan = broken.plan(parts=parts)
        taken.append([step for _node, step in steps(plan)])
        if plan.due:
            broken.end()
        broken.verdicts[NAME] = replace(verdict(at=broken.now + 5), subject=slots[other])
        if broken.plan(parts=parts).due:
            broken.end()
        broken.verdicts[NAME] = verdict(PASS, at=broken.now + 10)
        broken.plan(parts=parts)
        broken.nodes[NAME] = Node(NAME, ("IDLE",))
        assert kinds(broken.plan(parts=parts)) == [CLOSED]
    assert taken == [["reset_gpu"], ["reboot"], [], [], []]
    # Nor does a step count for what failed after it: GPU 5 had its reset, GPU 2 none.
    broken.nodes[NAME] = node(at=broken.now)
    for slot, step in ((5, "reboot"), (2, "reset_gpu")):
        broken.verdicts[NAME] = replace(verdict(at=broken.now), subject=slots[slot])
        assert steps(broken.plan(parts=parts, begins=False)) == []
        assert broken.plan(parts=parts, begins=False).waits == {NAME: f"{step} is next"}


def test_what_fails_after_the_steps_for_another_part_has_its_ladder_yet(broken: Case) -> None:
    """Within one incident, too, a GPU goes back for what was tried on it alone."""
    broken.policy = replace(ALL, powered=(NAME,))
    taken: list[str] = []
    for slot in (3, 3, 5, 3, 5, 5):
        broken.verdicts[NAME] = replace(verdict(at=broken.now + 5), subject=f"gpu:{NAME}/{slot}")
        ((_node, step),) = steps(broken.plan())
        taken.append(f"{slot} {step}")
        broken.end()
    assert taken == [
        "3 reset_gpu", "3 reboot", "5 reset_gpu", "3 power_cycle", "5 reboot", "5 power_cycle"
    ]  # fmt: skip
    broken.verdicts[NAME] = replace(verdict(at=broken.now + 5), subject=f"gpu:{NAME}/5")
    plan = broken.plan()
    assert kinds(plan) == [JUDGED, RETURN]
    assert "(after reset_gpu, reboot, power_cycle)" in plan.waits[NAME]


def test_a_node_whose_parts_fail_one_after_the_other_is_a_persons(broken: Case) -> None:
    """A ladder for each of eight GPUs would be 24 steps, and days."""
    broken.policy = replace(ALL, powered=(NAME,))
    taken = 0
    for slot in range(8):
        for _step in range(3):
            failed = replace(verdict(at=broken.now + 5), subject=f"gpu:{NAME}/{slot}")
            broken.verdicts[NAME] = failed
            plan = broken.plan()
            taken += len(steps(plan))
            if plan.due:
                broken.end()
    assert taken == 6
    assert plan.waits[NAME].startswith("6 steps did not help the node; ")
    (person,) = [one for one in broken.events if one.what == PERSON and "gpu:dgx-01/2" in one.text]
    assert person.text.startswith("6 steps did not help the node; ")


@pytest.mark.parametrize(
    ("before", "after", "is_another"),
    [
        # Lost, so that it names itself no more; its identity is there, or none was known.
        (("GPU-3", "S3"), ("", "S3"), False),
        (("GPU-3", ""), ("", ""), False),
        # Forgotten by replace_node.
        (("GPU-3", "S3"), ("", ""), True),
        # Named by its serial number while its UUID cannot be read, in other letters.
        (("GPU-3", "s3"), ("S3", ""), False),
        (("s3", ""), ("GPU-3", "S3"), False),
        (("GPU-3", "S3"), ("gpu-3", ""), False),
        (("GPU-3", "S3"), ("GPU-4", "S4"), True),
    ],
)
def test_a_part_is_another_by_its_names(
    broken: Case, before: tuple[str, str], after: tuple[str, str], is_another: bool
) -> None:
    broken.verdicts[NAME] = verdict(check="gpu.remap_failed")
    assert kinds(broken.plan(parts=of_gpu(*before))) == [OPENED, RETURN]
    broken.verdicts[NAME] = verdict(check="gpu.remap_failed", at=broken.now + 5)
    plan = broken.plan(parts=of_gpu(*after))
    assert kinds(plan) == ([CLOSED, OPENED, RETURN] if is_another else [])


@pytest.mark.parametrize(("before", "policy"), [("gpu.remap_failed", ALL), ("gpu.xid", Policy())])
def test_a_part_that_was_replaced_has_an_incident_of_its_own(
    broken: Case, before: str, policy: Policy
) -> None:
    """Else the ticket has the former serial number, and what fails now gets no step."""
    broken.policy = policy
    broken.verdicts[NAME] = verdict(check=before)
    plan = broken.plan(parts=of_gpu("GPU-old", "S-old"))
    assert kinds(plan)[-1] in (RETURN, PERSON)
    # Forgotten by replace_node, and not validated yet.
    broken.nodes[NAME], broken.verdicts[NAME] = node(kind=WAS_REPLACED), verdict(NOT_MEASURED)
    assert broken.plan().events == ()
    broken.policy = ALL
    broken.nodes[NAME] = node(kind=KEPT_OUT, at=broken.now)
    broken.verdicts[NAME] = verdict(at=broken.now + 5)
    plan = broken.plan(parts=of_gpu("GPU-new", "S-new"))
    assert (kinds(plan), steps(plan)) == ([CLOSED, OPENED, BEGUN], [(NAME, "reset_gpu")])
    assert plan.events[0].text == REPLACED
    assert open_of(fold(broken.events))[NAME].serial == "S-new"


def test_evidence_from_before_a_step_is_not_about_the_part_that_came_since(broken: Case) -> None:
    assert steps(broken.plan(parts=of_gpu("GPU-old", "S-old"))) == [(NAME, "reset_gpu")]
    plan = broken.plan(parts=of_gpu("GPU-new", "S-new"))
    assert (kinds(plan), steps(plan)) == ([BEGUN], [(NAME, VALIDATE)])


@pytest.mark.parametrize("part", ["GPU-3", "S3"])
def test_a_part_that_is_still_there_goes_back_whatever_else_fails(broken: Case, part: str) -> None:
    broken.verdicts[NAME] = verdict(check="gpu.remap_failed")
    before = broken.plan(parts=of_gpu("GPU-3", "S3"))
    broken.verdicts[NAME] = verdict(at=broken.now + 5)
    again = broken.plan(parts=of_gpu(part, "S3"))
    assert (again.events, again.waits) == ((), before.waits)


def test_a_part_that_goes_back_without_a_name_is_judged_again_by_its_name(broken: Case) -> None:
    """It may be there again, or another one in its slot."""
    broken.verdicts[NAME] = verdict(check="gpu.remap_failed")
    assert kinds(broken.plan()) == [OPENED, RETURN]
    broken.verdicts[NAME] = verdict(at=broken.now + 5)
    plan = broken.plan(parts=of_gpu("GPU-3", "S3"))
    assert (kinds(plan), steps(plan)) == ([JUDGED, BEGUN], [(NAME, "reset_gpu")])
    assert open_of(fold(broken.events))[NAME].serial == "S3"


def test_a_repeat_offender_that_passes_waits_for_consent_in_any_host(broken: Case) -> None:
    part = Parts(names={f"gpu:{NAME}/3": "GPU-7"}, offenders={"GPU-7": "failed 3 times"})
    assert kinds(broken.plan(parts=part)) == [OPENED, KEPT]
    kept = kept_parts(fold(broken.events))
    assert list(kept) == ["GPU-7"]
    # The node leaves; the part comes back from repair in another host, and passes.
    del broken.nodes[NAME]
    assert kinds(broken.plan()) == [CLOSED]
    assert list(kept_parts(fold(broken.events))) == ["GPU-7"]
    broken.nodes["dgx-02"] = node(name="dgx-02")
    broken.verdicts["dgx-02"] = verdict(PASS, broken.now + 5, name="dgx-02")
    there = Parts(kept={"dgx-02": "GPU-7"})
    assert broken.plan(parts=there).waits == {"dgx-02": "GPU-7 fails again and again"}
    plan = broken.plan(parts=replace(there, allowed=["dgx-02"]))
    assert plan.waits == {"dgx-02": "it passes at level standard: admit_nodes lets it in"}
    assert kept_parts(fold(broken.events)) == {}


@pytest.mark.parametrize("kind", [FAILED, WAS_REPLACED])
@pytest.mark.parametrize(
    ("own", "whole", "waits"),
    [
        # Validated since the drain, and the cables were swept before it, or never.
        (verdict(PASS, NOW - 50), verdict(PASS, NOW - 500), True),
        (verdict(PASS, NOW - 50), verdict(NOT_MEASURED, NOW - 50), True),
        (verdict(PASS, NOW - 50), None, True),
        # Swept since: the gate has what it asks for.
        (verdict(PASS, NOW - 50), verdict(PASS, NOW - 50), False),
        # A sweep would not let it in.
        (verdict(PASS, NOW - 500), verdict(PASS, NOW - 500), False),
        (verdict(FAIL, NOW - 50), verdict(FAIL, NOW - 50), False),
        (None, None, False),
    ],
)
def test_only_a_node_that_passes_waits_for_a_sweep(
    own: Verdict | None, whole: Verdict | None, waits: bool, kind: str
) -> None:
    judged = [{NAME: one} if one else {} for one in (own, whole)]
    assert unswept({NAME: node(kind=kind)}, judged[0], judged[1], GATE) == ([NAME] if waits else [])


def test_a_node_that_others_hold_waits_for_no_sweep() -> None:
    own, whole = {NAME: verdict(PASS, NOW - 50)}, {NAME: verdict(PASS, NOW - 500)}
    by_operator = replace(node(), reason="fans", reason_by="alice")
    # Of a new node, and of a spare, the gate asks nothing newer than what there is.
    for held in (by_operator, node(kind=SPARE), node(kind=UNPROVEN), node(("IDLE",))):
        assert unswept({NAME: held}, own, whole, GATE) == []


def test_a_run_validates_at_one_level_beside_that_of_the_site() -> None:
    """validate_nodes has one level a run."""
    case = Case(Policy(steps=STEPS, at_once=9, alike=0.9))
    for name, level in (("dgx-01", "burn_in"), ("dgx-02", "standard"), ("dgx-03", "quick")):
        case.nodes[name] = node(name=name)
        case.verdicts[name] = replace(verdict(name=name), asked_by=level)
    plan = case.plan()
    assert {(due.node, due.level) for due in plan.due} == {
        ("dgx-02", "standard"), ("dgx-03", "quick")
    }  # fmt: skip
    assert plan.waits["dgx-01"] == "reset_gpu is next, after the nodes at level standard"
    assert not [one for one in plan.events if one.node == "dgx-01" and one.what == BEGUN]
    case.nodes["dgx-02"] = Node("dgx-02", ("IDLE",))
    case.verdicts["dgx-02"] = verdict(PASS, name="dgx-02")
    assert ("dgx-01", "burn_in") in {(due.node, due.level) for due in case.plan().due}
