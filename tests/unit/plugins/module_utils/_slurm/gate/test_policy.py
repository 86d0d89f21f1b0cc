# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the gate decides about one node, and about a fleet."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ToolError
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate import policy as gate
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.policy import (
    Policy,
    Repaired,
    Verdict,
    plan_gate,
    plan_introduction,
    seconds_of,
    verdict_from_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import (
    Reason,
    heading,
    read_reason,
    write_reason,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.states import policy_of
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import Node

NOW = float(seconds_of("2026-11-21T12:00:00Z") or 0)
TEN = "2026-11-21T10:00:00"
POLICY = Policy(share=0.25, level="standard", evidence_s=86400)


def held(kind: str, text: str = "x", *, name: str = "n1", by: str = "root", **more: object) -> Node:
    """A node that the gate drained at ten o'clock."""
    states = more.pop("states", ("IDLE", "DRAIN"))
    return Node(name, states, write_reason(name, kind, text), by, TEN)  # type: ignore[arg-type]


def down(kind: str, added: str = " : Not responding", **more: object) -> Node:
    """The same after a long boot, with what Slurm has added."""
    given = {"by": "slurm", "states": ("DOWN", "DRAIN"), **more}
    found = held(kind, **given)  # type: ignore[arg-type]
    return replace(found, reason=found.reason + added, booted_at=TEN)


def says(verdict: str, name: str = "n1", hours: float = 1, **more: object) -> Verdict:
    """A verdict of that many hours ago."""
    known = {"level": "standard", "check": "gpu.ecc_volatile", "subject": f"gpu:{name}/3"}
    fields = {**known, "text": "12 uncorrected errors", "remedy": "replace the GPU", **more}
    return Verdict(name, verdict, NOW - hours * 3600, **fields)  # type: ignore[arg-type]


def plan(
    nodes: list[Node], verdicts: list[Verdict], policy: Policy = POLICY, back: tuple[str, ...] = ()
) -> gate.GatePlan:
    return plan_gate(verdicts, {node.name: node for node in nodes}, policy, NOW, back)


def steps(made: gate.GatePlan) -> list[tuple[str, str]]:
    return [(step.node, step.what) for step in made.actions]


IN_SERVICE = Node("n1", ("IDLE",))


@pytest.mark.parametrize(
    ("node", "verdict", "what", "why"),
    [
        (IN_SERVICE, says("fail"), "drain", "gpu3 ecc_volatile: 12 uncorrected errors"),
        (Node("n1", ("MIXED",)), says("fail"), "drain", "gpu3 ecc_volatile"),
        (IN_SERVICE, says("pass"), "leave", "in service, and passes"),
        (IN_SERVICE, says("not_measured"), "leave", "gpu3 ecc_volatile not measured; stays in"),
        (IN_SERVICE, None, "leave", "no evidence; stays in service"),
        (IN_SERVICE, says("fail", hours=25), "leave", "evidence is 1 days old; stays in service"),
        (IN_SERVICE, says("fail", hours=36), "leave", "evidence is 2 days old; stays in service"),
        (IN_SERVICE, says("fail", hours=-1), "leave", "evidence from the future"),
        (IN_SERVICE, replace(says("fail"), at=None), "leave", "evidence without a time"),
        (IN_SERVICE, replace(says("not_measured"), at=None), "leave", "not measured: 12 uncorr"),
        (held("n"), says("pass"), "resume", "passes at level standard"),
        (held("n"), says("pass", level="burn_in"), "resume", "passes at level burn_in"),
        (held("n"), says("pass", level="quick"), "leave", "at level quick only; standard is asked"),
        (held("n"), says("pass", hours=3), "resume", "passes"),
        (held("n"), says("pass", hours=25), "leave", "evidence is 1 days old; stays out"),
        (held("n"), None, "leave", "no evidence; stays out"),
        (held("n"), says("not_measured"), "leave", "not measured; stays out"),
        (held("n"), says("fail"), "reword", "gpu3 ecc_volatile"),
        # A part was replaced: what was measured before is of another one.
        (held("r"), says("pass"), "resume", "passes"),
        (held("r"), says("pass", hours=2), "leave", "evidence from before it was taken out; run v"),
        (held("r"), says("fail"), "reword", "gpu3 ecc_volatile"),
        (held("r"), says("not_measured"), "leave", "not measured; stays out"),
        (held("f"), says("pass"), "resume", "passes"),
        (held("f"), says("pass", hours=2), "leave",
         "it was taken out; run validate_fabric, and validate_nodes -e again=true"),
        (held("b"), says("pass", hours=3), "leave", "evidence from before it was taken out"),
        (replace(held("f"), reason_at="Unknown"), says("pass"), "leave", "evidence from before"),
        (held("f", "gpu3 ecc_volatile: 11 errors"), says("fail"), "leave", "still fails: gpu3 ecc"),
        (held("f", "gpu3 ecc_volatile"), says("fail"), "leave",
         "still fails: gpu3 ecc_volatile; replace the GPU"),
        (held("f"), says("fail", hours=25), "leave",
         "evidence is 1 days old; stays out, and failed: gpu3 ecc_volatile; replace the GPU"),
        (held("f", "gpu4 clock: slow"), says("fail"), "reword", "gpu3 ecc_volatile"),
        # What a node was held for while it was new is not a finding, whatever its words are.
        (held("n", "gpu3 ecc_volatile: 11 errors"), says("fail"), "reword", "gpu3 ecc_volatile"),
        (held("f", by="bob"), says("pass"), "leave", "the reason was changed (by bob)"),
        (replace(held("f"), reason=held("f").reason + " "), says("pass"), "leave", "was changed"),
        (held("f", name="n2"), None, "leave", "no evidence; stays out"),
        (Node("n1", ("IDLE", "DRAIN"), "fan", "bob"), says("pass"), "leave", "drained by bob: fan"),
        (Node("n1", ("IDLE", "DRAIN")), says("fail"), "leave", "by unknown: no reason"),
        (Node("n1", ("DOWN",), "Not responding"), says("fail"), "leave", "is DOWN"),
        # After a boot longer than SlurmdTimeout: it is the gate's until the words are another's.
        (down("f"), says("pass"), "resume", "passes"),
        (down("n"), says("pass"), "resume", "passes"),
        (down("r"), says("pass"), "resume", "passes"),
        (down("f", " : gres/gpu count reported lower than configured (7 < 8) : Not responding"),
         says("pass"), "resume", "passes"),
        (down("f"), says("fail"), "reword", "gpu3 ecc_volatile"),
        (down("f"), says("pass", hours=3), "leave", "evidence from before it was taken out"),
        (down("n"), says("pass", hours=3), "leave", "evidence from before it was taken out"),
        (replace(down("f"), states=("IDLE", "DRAIN")), says("pass"), "resume", "passes"),
        (down("f", "", by="root"), says("pass"), "resume", "passes"),
        # Slurm 22.05 appends nothing: the reason has the date from before the fall.
        (replace(down("f", "", by="root"), booted_at="2026-11-21T11:00:01"), says("pass"), "leave",
         "evidence from before its boot; run validate_fabric"),
        (replace(down("n", "", by="root"), booted_at="2026-11-21T11:00:01"), says("pass"), "leave",
         "evidence from before its boot"),
        (replace(down("n", "", by="root"), reason_at=""), says("pass"), "resume", "passes"),
        (replace(down("f"), booted_at="2026-11-21T11:00:01"), says("pass"), "leave",
         "evidence from before its boot"),
        (replace(down("f", "", by="root"), booted_at=""), says("pass"), "leave", "its boot"),
        (down("f", states=("DOWN", "NOT_RESPONDING", "DRAIN")), says("pass"), "leave", "is DOWN+N"),
        (down("f", states=("DOWN", "DRAIN", "INVALID_REG")), says("pass"), "leave", "is DOWN+D"),
        (down("f", states=("DOWN",)), says("pass"), "leave", "is DOWN"),
        (down("f", by="root"), says("pass"), "leave", "is DOWN+DRAIN"),
        (down("f", " : Not responding, ask Ann"), says("pass"), "leave", "is DOWN+DRAIN"),
        (down("f", " : seen"), says("pass"), "leave", "is DOWN+DRAIN"),
        (down("f", " : seen : Not responding"), says("pass"), "leave", "is DOWN+DRAIN"),
        (Node("n1", ("DOWN", "DRAIN"), "fan : Not responding", "slurm"), says("pass"), "leave",
         "is DOWN+DRAIN"),
        (held("n", states=("UNKNOWN", "DRAIN")), says("pass"), "leave", "is UNKNOWN+DRAIN"),
        (held("n", states=("IDLE", "DRAIN", "REBOOT_ISSUED")), says("pass"), "leave", "is IDLE"),
        (Node("n1", ("IDLE", "MAINT")), says("fail"), "leave", "is IDLE+MAINT"),
    ],
)  # fmt: skip
def test_one_node(node: Node, verdict: Verdict | None, what: str, why: str) -> None:
    made = plan([node], [verdict] if verdict else [])
    found = [*made.actions, *made.left]
    assert [(step.node, step.what) for step in found] == [(node.name, what)]
    assert why in found[0].why
    assert bool(found[0].reason) == (what in ("drain", "reword"))


def itself(text: str = "gpu:n1/3 gpu.xid 79", *, name: str = "n1", by: str = "root") -> Node:
    """A node whose own program drained it at ten o'clock."""
    return Node(name, ("IDLE", "DRAIN"), write_reason(name, "h", text), by, TEN)


@pytest.mark.parametrize(
    ("node", "verdict", "what", "why"),
    [
        (itself(), says("pass"), "resume", "passes at level standard"),
        (itself(), says("pass", hours=2), "leave", "from before it was taken out"),
        (itself(), says("pass", level="quick"), "leave", "at level quick only"),
        (itself(), says("pass", hours=25), "leave", "1 days old; stays out"),
        (itself(), says("fail"), "leave", "out by its own checks (gpu:n1/3 gpu.xid 79), and fails"),
        (itself(), says("not_measured"), "leave", "stays out"),
        (itself(), None, "leave", "no evidence; stays out"),
        (itself(by="alice"), says("pass"), "leave", "the reason was changed (by alice)"),
        (
            replace(itself(), reason=itself().reason + " seen"),
            says("pass"),
            "leave",
            "the reason was changed (by root)",
        ),
        (
            replace(itself(), states=("DOWN", "DRAIN"), booted_at=TEN),
            says("pass"),
            "resume",
            "passes",
        ),
        (
            replace(itself(), states=("DOWN", "NOT_RESPONDING", "DRAIN")),
            says("pass"),
            "leave",
            "is DOWN",
        ),
    ],
)
def test_a_node_that_drained_itself(
    node: Node, verdict: Verdict | None, what: str, why: str
) -> None:
    made = plan([node], [verdict] if verdict else [])
    (step,) = made.actions + made.left
    assert (step.what, why in step.why) == (what, True), step


def repaired(kind: str = "f", since_s: float = -60, until_s: float = 60) -> Repaired:
    """A node that was booted around TEN."""
    ten = seconds_of(TEN) or 0
    return Repaired(kind, "7 of 8", ((0, 1), (ten + since_s, ten + until_s), (NOW, NOW)))


_PARAMS = {
    "share": 0.1, "level": "quick", "evidence_days": 1, "unmeasured": "leave", "spares": [],
    "spares_in_service": 0, "return_spares": [], "kept": [],
}  # fmt: skip
LESS = "gres/gpu count reported lower than configured (7 < 8)"


@pytest.mark.parametrize(
    ("reason", "by", "boots", "what"),
    [
        (LESS, "slurm", repaired(), "resume"),
        ("Low RealMemory (reported:1 < 95.00% of configured:2) : Not responding", "slurm",
         repaired(), "resume"),
        ("Reported active features (a) are not a superset", "slurm", repaired(), "resume"),
        (LESS, "slurm", None, "leave"),
        # Replaced at another time it may have been an operator's.
        (LESS, "slurm", repaired(until_s=-1), "leave"),
        (LESS, "slurm", repaired(since_s=1), "leave"),
        (LESS, "ann", repaired(), "leave"),
        ("fan", "slurm", repaired(), "leave"),
        # These drain a node that is in service, and replace nothing.
        ("Prolog error", "slurm", repaired(), "leave"),
        ("batch job complete failure", "slurm", repaired(), "leave"),
        ("Kill task failed : Not responding", "slurm", repaired(), "leave"),
        ("Not responding", "slurm", repaired(), "leave"),
    ],
)  # fmt: skip
def test_a_reason_that_slurm_has_replaced_is_the_gates_if_a_repair_booted_the_node(
    reason: str, by: str, boots: Repaired | None, what: str
) -> None:
    node = Node("n1", ("IDLE", "DRAIN"), reason, by, TEN)
    policy = replace(POLICY, repaired={"n1": boots} if boots else {})
    made = plan([node], [says("pass")], policy)
    assert [step.what for step in (*made.actions, *made.left)] == [what]
    assert (made.out, made.out_after) == (1 if what == "resume" else 0, 0)
    is_shown = "who drained it before is not known" in "".join(step.why for step in made.left)
    assert is_shown == (what == "leave" and reason == LESS and by == "slurm")


@pytest.mark.parametrize(
    "given",
    [
        {"n1": "7 of 8"},
        {"n1": {"kind": "f", "text": "x"}},
        {"n1": {**vars(repaired()), "boots": 1}},
    ],
)
def test_what_was_repaired_is_as_the_lookup_gives_it(given: dict[str, object]) -> None:
    known = {**_PARAMS, "repaired": {"n1": vars(repaired("h"))}}
    assert policy_of(json.loads(json.dumps(known)), "root").repaired == {"n1": repaired("h")}
    with pytest.raises(ToolError, match=r"^repaired: give what the lookup repair_parts returns"):
        policy_of({**_PARAMS, "repaired": given}, "root")


@pytest.mark.parametrize(("kind", "out"), [("f", 1), ("b", 0), ("h", 0)])
def test_what_was_never_in_service_costs_the_share_nothing(kind: str, out: int) -> None:
    node = Node("n1", ("IDLE", "DRAIN", "INVALID_REG"), LESS, "slurm", TEN)
    policy = replace(POLICY, repaired={"n1": repaired(kind)})
    assert plan([node], [says("fail")], policy).out == out


def test_a_spare_that_drained_itself_is_held_again_and_no_longer_missed() -> None:
    policy = replace(POLICY, spares=("n1",), spares_in_service=1)
    assert steps(plan([itself()], [says("pass")], policy)) == [("n1", "reword")]
    policy = replace(POLICY, spares=("n2",), spares_in_service=1)
    nodes = [itself(), held("s", name="n2")]
    assert ("n2", "swap_in") in steps(plan(nodes, [says("fail"), says("pass", "n2")], policy))
    assert steps(plan(nodes, [says("pass"), says("pass", "n2")], policy)) == [("n1", "resume")]


def test_a_reason_that_was_moved_to_another_node_is_nobodys() -> None:
    node = replace(held("f"), name="n2")
    assert plan([node], [says("pass", "n2")]).left[0].why.startswith("drained, and the reason")


def test_a_node_that_slurm_does_not_know() -> None:
    made = plan([], [says("pass")])
    assert (made.actions, made.left[0].why) == ((), "Slurm does not know it")


def test_the_kind_of_a_reason_follows_what_the_node_was() -> None:
    failing = says("fail")
    for kind, then in (("n", "b"), ("r", "b"), ("s", "b"), ("b", "b"), ("f", "f")):
        reason = read_reason("n1", plan([held(kind)], [failing]).actions[0].reason)
        assert reason is not None
        assert reason.kind == then
    drained = read_reason("n1", plan([IN_SERVICE], [failing]).actions[0].reason)
    assert drained == Reason("f", "gpu3 ecc_volatile: 12 uncorrected errors; replace the GPU")


def test_unmeasured_nodes_are_drained_where_the_site_wants_it() -> None:
    policy = replace(POLICY, unmeasured="drain")
    made = plan([IN_SERVICE], [says("not_measured")], policy)
    assert steps(made) == [("n1", "drain")]
    assert made.actions[0].why.startswith("not measured: gpu3 ecc_volatile")
    again = replace(IN_SERVICE, states=("IDLE", "DRAIN"), reason=made.actions[0].reason,
                    reason_by="root", reason_at=TEN)  # fmt: skip
    assert steps(plan([again], [says("not_measured")], policy)) == []
    # Of one that is out already for something else that stays the reason.
    for kind in ("f", "n"):
        assert steps(plan([held(kind, "gpu4 clock: slow")], [says("not_measured")], policy)) == []


GONE = replace(says("not_measured", check="node.records", subject="node:n1", text="x"), at=None)


@pytest.mark.parametrize(
    ("verdict", "why"),
    [
        (says("pass", hours=48), "node.records: evidence is 2 days old; run validate_fabric and"),
        (says("fail", hours=48), "node.records: evidence is 2 days old; run validate_fabric and"),
        (replace(says("pass"), at=None), "node.records: evidence without a time; run"),
        (says("pass", hours=-2), "node.records: evidence from the future; look at the clocks; run"),
        # What the lookup has of a node without a file, and of one with a file that is torn.
        (replace(GONE, text="there are no records"), "node.records: there are no records; replace"),
        (replace(GONE, text="n1.json cannot be read"), "node.records: n1.json cannot be read; rep"),
    ],
)
def test_evidence_that_shows_nothing_about_now_is_not_measured(verdict: Verdict, why: str) -> None:
    policy = replace(POLICY, unmeasured="drain")
    (step,) = plan([IN_SERVICE], [verdict], policy).actions
    assert (step.what, step.why[:14]) == ("drain", "not measured: ")
    assert step.why[14:].startswith(why)
    assert steps(plan([IN_SERVICE], [verdict])) == []
    # One that is out, an operator holds, or is in maintenance stays as it is.
    others = [held(kind) for kind in "fbnrs"]
    others += [Node("n1", ("IDLE", "DRAIN"), "fan", "bob"), Node("n1", ("IDLE", "MAINT")), itself()]
    for node in others:
        made = [plan([node], [verdict], one) for one in (policy, POLICY)]
        assert made[0] == made[1]
        assert steps(made[0]) == []
    # Of a node that is not the gate's to ask about, as one without GPUs, there is none.
    assert steps(plan([IN_SERVICE], [], policy)) == []


def test_the_share_holds_for_evidence_that_shows_nothing() -> None:
    policy = replace(POLICY, unmeasured="drain")
    old = [says("pass", f"n{number}", hours=48) for number in range(1, 9)]
    made = plan([*fleet(8), held("n", name="n9")], [*old, says("pass", "n9")], policy)
    assert made.actions == ()
    assert "8 nodes would be drained (8 for node.records) and 0 are drained" in made.refusal
    assert len(plan(fleet(8), old[:2], policy).actions) == 2


def fleet(size: int) -> list[Node]:
    return [Node(f"n{number}", ("IDLE",)) for number in range(1, size + 1)]


@pytest.mark.parametrize(
    ("share", "size", "most"),
    [(0.25, 8, 2), (0.25, 7, 1), (0.1, 3, 1), (0.0, 8, 0), (1.0, 8, 8), (0.1, 1030, 103),
     (0.29, 100, 29)],
)  # fmt: skip
def test_how_many_may_be_out(share: float, size: int, most: int) -> None:
    policy = replace(POLICY, share=share)
    assert gate.may_be_out(policy, size) == most
    nodes = fleet(size)
    bad = [says("fail", f"n{number}") for number in range(1, most + 1)]
    made = plan(nodes, bad, policy)
    assert (made.refusal, len(made.actions), made.out_after) == ("", most, most)
    one_more = plan(nodes, [*bad, says("fail", f"n{most + 1}")], policy)
    if most < size:
        assert one_more.actions == ()
        assert len(one_more.withheld) == most + 1
        assert f"{most} of {size} may be (share {share:g})" in one_more.refusal
        assert "\n" not in one_more.refusal


def test_a_refusal_stops_everything_of_the_run() -> None:
    nodes = [*fleet(4), held("n", name="n5")]
    verdicts = [says("fail", "n1"), says("fail", "n2"), says("pass", "n5")]
    made = plan(nodes, verdicts)
    assert made.actions == ()
    assert [(s.node, s.what) for s in made.withheld] == [
        ("n5", "resume"), ("n1", "drain"), ("n2", "drain"),
    ]  # fmt: skip
    assert "2 nodes would be drained (2 for gpu.ecc_volatile) and 0 are drained" in made.refusal


def test_what_is_resumed_makes_room() -> None:
    nodes = [*fleet(3), held("f", name="n4")]
    both = plan(nodes, [says("fail", "n1"), says("pass", "n4")])
    assert steps(both) == [("n4", "resume"), ("n1", "drain")]
    assert (both.out, both.out_after, both.most_out) == (1, 1, 1)
    still = plan(nodes, [says("fail", "n1"), says("fail", "n4")])
    assert still.refusal


def test_new_nodes_and_held_spares_take_no_share() -> None:
    nodes = [*fleet(3), held("n", name="n4"), held("b", name="n5"), held("s", name="n6")]
    assert steps(plan(nodes, [says("fail", "n1")])) == [("n1", "drain")]


def test_what_the_whole_fleet_has_is_a_question_about_the_checker() -> None:
    wide = replace(says("fail"), fleet_share=0.5)
    rest = [says("pass", f"n{number}") for number in range(2, 9)]
    made = plan(fleet(8), [wide, *rest])
    assert made.refusal.startswith(
        "gpu.ecc_volatile fails on 4 of 8 nodes with a verdict, and 2 of 8 may be out"
    )
    assert plan(fleet(8), [replace(wide, fleet_share=0.25), *rest]).refusal == ""


def test_nodes_of_slurm_without_a_verdict_make_a_failure_no_wider() -> None:
    """One of 4 GPU nodes fails, beside 60 without GPUs: the share is that of the 4."""
    nodes = [*fleet(4), *(Node(f"cpu-{number}", ("IDLE",)) for number in range(60))]
    verdicts = [
        replace(says("fail"), fleet_share=0.25),
        *(says("pass", f"n{n}") for n in (2, 3, 4)),
    ]
    made = plan(nodes, verdicts, replace(POLICY, share=0.1))
    assert (made.refusal, steps(made), made.most_out) == ("", [("n1", "drain")], 6)


SPARES = replace(POLICY, spares=("s1", "s2", "s3"), spares_in_service=2, share=1.0)


def spare(name: str) -> Node:
    return held("s", "spare, ready", name=name)


def test_a_spare_comes_in_for_a_node_that_fails() -> None:
    nodes = [*fleet(4), spare("s1"), spare("s2"), spare("s3")]
    good = [says("pass", name) for name in ("s2", "s3")]
    made = plan(nodes, [says("fail", "n2"), says("fail", "s1"), *good], SPARES)
    assert steps(made) == [("s1", "reword"), ("n2", "drain"), ("s2", "swap_in")]
    assert made.actions[2].why == "passes, and n2 is out"
    many = [says("fail", f"n{number}") for number in (1, 2, 3)]
    made = plan(nodes, [*many, *good, says("pass", "s1")], SPARES)
    assert [step for step in steps(made) if step[1] == "swap_in"] == [
        ("s1", "swap_in"), ("s2", "swap_in"),
    ]  # fmt: skip


def test_no_spare_comes_in_for_nothing_or_for_another_spare() -> None:
    nodes = [*fleet(4), spare("s1"), Node("s2", ("IDLE",))]
    good = says("pass", "s1")
    assert steps(plan(nodes, [good], SPARES)) == []
    assert steps(plan(nodes, [good, says("fail", "s2")], SPARES)) == [("s2", "drain")]
    # s2 serves for n1 already
    out = [held("f", name="n1"), *nodes[1:]]
    assert steps(plan(out, [good, says("fail", "n1")], SPARES)) == [("n1", "reword")]


def test_a_spare_comes_in_for_a_node_that_took_itself_out() -> None:
    gone = itself()
    other = replace(gone, reason="ticket 7")
    good = says("pass", "s1")
    assert steps(plan([gone, spare("s1")], [good], SPARES)) == [("s1", "swap_in")]
    assert steps(plan([other, spare("s1")], [good], SPARES)) == []


def test_a_spare_goes_back_only_by_the_operator() -> None:
    nodes = [*fleet(4), Node("s1", ("MIXED",)), Node("s2", ("IDLE",))]
    good = [says("pass", "s1"), says("pass", "s2")]
    assert steps(plan(nodes, good, SPARES)) == []
    back = plan(nodes, good, SPARES, ("s1", "n2"))
    assert steps(back) == [("s1", "drain")]
    reason = read_reason("s1", back.actions[0].reason)
    assert reason == Reason("s", "spare, ready")
    down = plan([*nodes[:-2], Node("s1", ("DOWN",)), nodes[-1]], good, SPARES, ("s1",))
    assert steps(down) == []
    # One that Slurm no longer has is not there to be drained.
    gone = plan(nodes[:-1], good, SPARES, ("s1", "s2"))
    assert steps(gone) == [("s1", "drain")]
    assert ("s2", "Slurm does not know it") in [(step.node, step.why) for step in gone.left]


@pytest.mark.parametrize(
    ("first", "verdict", "expected"),
    [
        (("IDLE",), "pass", []),
        (("IDLE",), "fail", [("s1", "drain"), ("s2", "swap_in")]),
        (("DOWN",), "pass", [("s2", "swap_in")]),
    ],
)
def test_a_spare_that_no_longer_serves_is_followed_by_the_next(
    first: tuple[str, ...], verdict: str, expected: list[tuple[str, str]]
) -> None:
    out = held("f", "gpu3 ecc_volatile: 12 errors", name="n1")
    nodes = [out, *fleet(8)[1:], Node("s1", first), spare("s2")]
    messages = [says("fail", "n1"), says(verdict, "s1"), says("pass", "s2")]
    assert steps(plan(nodes, messages, replace(SPARES, spares_in_service=1))) == expected


def test_a_new_spare_that_passes_is_held_and_not_let_in() -> None:
    nodes = [*fleet(2), held("n", name="s1"), held("f", name="s2")]
    made = plan(nodes, [says("pass", "s1"), says("pass", "s2")], SPARES)
    assert steps(made) == [("s1", "reword"), ("s2", "reword")]
    assert {step.why for step in made.actions} == {"passes; held as a spare"}


def test_new_nodes_are_drained_before_they_register() -> None:
    nodes = {node.name: node for node in (
        Node("n1", ("UNKNOWN",)), Node("n2", ("IDLE", "DRAIN"), "fan", "bob"),
        Node("n3", ("IDLE",)),
    )}  # fmt: skip
    made = plan_introduction(["n1", "n2", "n9"], nodes, Policy())
    assert [(step.node, step.what) for step in made] == [("n1", "drain")]
    assert read_reason("n1", made[0].reason) == Reason("n", "unproven, run validate_nodes")


@pytest.mark.parametrize("kind", ["n", "s", "f", "r"])
def test_a_renewed_node_that_the_gate_holds_is_not_let_in_by_old_evidence(kind: str) -> None:
    there, bobs = held(kind), Node("n2", ("IDLE", "DRAIN"), "fan", "bob")
    nodes = {"n1": there, "n2": bobs}
    assert plan_introduction(["n1", "n2"], nodes, Policy()) == ()
    made = plan_introduction(["n1", "n2"], nodes, Policy(), ["n1", "n2"])
    if kind == "r":
        assert made == ()
        return
    assert [(step.node, step.what) for step in made] == [("n1", "reword")]
    assert read_reason("n1", made[0].reason) == Reason("r", "replaced node, run validate_nodes")


@pytest.mark.parametrize(
    ("check", "subject", "text"),
    [
        ("gpu.ecc_volatile", "gpu:dgx-01/3", "gpu3 ecc_volatile"),
        ("ib.rate", "hca:dgx-01/rail2", "rail2 rate"),
        ("fabric.wiring", "cable:dgx-01/rail0--ib-leaf-01/1", "rail0 cable wiring"),
        ("fabric.wiring", "cable:ib-leaf-01/1--dgx-01/rail0", "rail0 cable wiring"),
        ("fabric.cable", "cable:dgx-01/rail1--ib-leaf-01/1", "rail1 cable"),
        ("gpu.count", "node:dgx-01", "gpu.count"),
        ("nvlink.errors", "nvlink:dgx-01/3/17", "nvlink3/17 errors"),
        ("storage.mount", "mount:dgx-01//scratch", "mount/scratch mount"),
        ("verdict", "", "verdict"),
        ("fabric.sm", "switch:ib-leaf-01", "ib-leaf-01 sm"),
        ("net.carrier", "nic:dgx-01/p1", "p1 carrier"),
    ],
)
def test_a_reason_begins_with_its_subject(check: str, subject: str, text: str) -> None:
    assert heading("dgx-01", check, subject) == text


def test_the_first_twenty_characters_say_most() -> None:
    result = says("fail", text="12 uncorrected errors", remedy="replace the GPU")
    reason = plan([IN_SERVICE], [result]).actions[0].reason
    assert reason[:20] == "dgx-gate: gpu3 ecc_v"
    assert write_reason("n1", "n", "unproven, run validate_nodes")[:20] == "dgx-gate: unproven, "
    assert write_reason("n1", "s", "spare, ready")[:20] == "dgx-gate: spare, rea"


def test_reasons_are_plain_and_short() -> None:
    text = 'é "quoted" [x]\n' + "long " * 90
    reason = write_reason("n1", "f", text)
    assert reason.startswith("dgx-gate: e quoted x long long")
    assert len(reason) < 205
    assert reason.isascii()
    assert read_reason("n1", reason) is not None
    with pytest.raises(KeyError):
        write_reason("n1", "q", "x")


def test_every_single_edit_of_a_reason_is_seen() -> None:
    reason = write_reason("n1", "f", "gpu3 ecc: 12 errors")
    for place in range(len(reason)):
        for edited in (reason[:place] + reason[place + 1 :], reason[:place] + "~" + reason[place:]):
            assert read_reason("n1", edited) is None
    for kind in "bns":
        assert read_reason("n1", reason.replace("#f", "#" + kind)) is None


def test_verdicts_of_plain_data() -> None:
    data = {
        "node": "n1", "verdict": "fail", "at": "2026-11-21T12:00:00Z", "level": "burn_in",
        "first_failing": {"check": "a.b", "subject": "gpu:n1/0", "text": "t", "remedy": "r"},
        "fleet_share": 0.5, "asked_by": "standard",
    }  # fmt: skip
    assert verdict_from_data(data) == Verdict(
        "n1", "fail", NOW, "burn_in", "a.b", "gpu:n1/0", "t", "r", 0.5, "standard"
    )
    with pytest.raises(ValueError, match="n1: asked_by is 'deep'; write quick"):
        verdict_from_data({**data, "asked_by": "deep"})
    assert verdict_from_data({"node": "n1", "verdict": "pass"}).at is None
    assert verdict_from_data({"node": "n1", "verdict": "not_measured"}).verdict == "not_measured"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"verdict": "pass"}, "a verdict has no node"),
        ({"node": "", "verdict": "pass"}, "a verdict has no node"),
        ({"node": 3, "verdict": "pass"}, "a verdict has no node"),
        ({"node": "n1", "verdict": "good"}, "n1: the verdict is 'good'"),
        ({"node": "n1", "verdict": "pass", "level": "3"}, "n1: the level is '3'"),
    ],
)
def test_what_is_no_verdict(data: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        verdict_from_data(data)


@pytest.mark.parametrize(
    "text", ["2026-11-21T12:00:00Z", "2026-11-21T12:00:00", "2026-11-21T12:00:00.25+00:00"]
)
def test_times(text: str) -> None:
    assert seconds_of(text) == 1795262400.0


@pytest.mark.parametrize("text", ["", "Unknown", "21 Nov 12:00", "2026-11-21T12:00:00+01:00"])
def test_what_is_no_time(text: str) -> None:
    assert seconds_of(text) is None


def test_a_thousand_nodes_are_planned_at_once() -> None:
    nodes = [held("n", name=f"n{number}") for number in range(1024)]
    made = plan(nodes, [says("pass", node.name) for node in nodes])
    assert len(made.actions) == 1024


def test_evidence_counts_up_to_its_age_and_a_clock_may_differ_by_five_minutes() -> None:
    def what(at: float) -> list[tuple[str, str]]:
        return steps(plan([IN_SERVICE], [replace(says("fail"), at=at)]))

    drained = [("n1", "drain")]
    assert what(NOW - POLICY.evidence_s) == drained
    assert what(NOW - POLICY.evidence_s - 1) == []
    assert what(NOW + 300) == drained
    assert what(NOW + 301) == []


def test_a_reason_that_slurm_kept_of_a_resumed_node_holds_nothing() -> None:
    resumed = replace(held("f", "gpu3 ecc_volatile: 12 errors"), states=("IDLE",))
    assert plan([resumed], [says("pass")]).left[0].why == "in service, and passes"
    assert steps(plan([resumed], [says("fail")])) == [("n1", "drain")]


def test_a_spare_that_is_out_is_not_taken_back_again() -> None:
    made = plan([spare("s1")], [says("pass", "s1")], SPARES, ("s1",))
    assert (steps(made), made.left[0].why) == ([], "a spare, and ready")
    down = plan([Node("s1", ("DOWN",))], [says("pass", "s1")], SPARES, ("s1",))
    assert steps(down) == []


def test_a_node_that_stays_out_makes_no_room() -> None:
    nodes = [*fleet(3), held("f", name="n4")]
    made = plan(nodes, [says("fail", "n1")])
    assert "1 nodes would be drained" in made.refusal
    assert (made.out, made.out_after) == (1, 1)


def test_a_failed_spare_that_passes_makes_room() -> None:
    policy = replace(POLICY, spares=("s1",))
    nodes = [*fleet(4), held("f", name="s1")]
    made = plan(nodes, [says("fail", "n1"), says("pass", "s1")], policy)
    assert steps(made) == [("s1", "reword"), ("n1", "drain")]
    assert (made.refusal, made.out, made.out_after) == ("", 1, 1)


def test_a_failure_without_words_is_one() -> None:
    result = says("fail", text="", remedy="")
    assert plan([IN_SERVICE], [result]).actions[0].why == "gpu3 ecc_volatile: fails"
    nameless = [says("fail", f"n{number}", check="", subject="", text="") for number in (1, 2)]
    many = plan(fleet(4), nameless)
    assert "(2 for verdict)" in many.refusal
    assert "look at verdict on n1 by hand" in many.refusal
    assert many.withheld[0].why == "verdict: fails; replace the GPU"


@pytest.mark.parametrize("verdict", ["pass", "fail", "not_measured"])
def test_evidence_without_a_time_counts_for_nothing(verdict: str) -> None:
    result = replace(says(verdict, text=""), at=None)
    for node in (IN_SERVICE, held("f")):
        made = plan([node], [result])
        assert steps(made) == []
        assert made.left[0].why.startswith("evidence without a time")


def test_who_changed_a_reason_may_be_unknown() -> None:
    node = replace(held("f"), reason=held("f").reason + " ", reason_by="")
    assert plan([node], [says("pass")]).left[0].why.endswith("was changed (by unknown)")


@pytest.mark.parametrize("kind", ["n", "s", "b"])
def test_only_a_node_that_failed_in_service_is_missed(kind: str) -> None:
    nodes = [held(kind), spare("s1")]
    assert steps(plan(nodes, [says("pass", "s1")], SPARES)) == []


@pytest.mark.parametrize(
    ("node", "verdict", "back"),
    [
        (Node("s1", ("IDLE", "DRAIN"), "fan", "bob"), says("pass", "s1"), ()),
        (held("f", name="s1"), says("pass", "s1"), ()),
        (held("b", name="s1"), says("pass", "s1"), ()),
        (replace(itself(), name="s1", reason=itself(name="s1").reason), says("pass", "s1"), ()),
        (spare("s1"), says("pass", "s1"), ("s1",)),
        (spare("s1"), None, ()),
        (spare("s1"), says("fail", "s1"), ()),
        (spare("s1"), says("not_measured", "s1"), ()),
        (spare("s1"), says("pass", "s1", hours=25), ()),
        (spare("s1"), says("pass", "s1", level="quick"), ()),
        (held("s", name="s1", states=("DOWN", "NOT_RESPONDING", "DRAIN")), says("pass", "s1"), ()),
        (held("s", name="s1", states=("IDLE", "DRAIN", "MAINT")), says("pass", "s1"), ()),
    ],
)
def test_a_spare_that_is_not_ready_is_not_put_in(
    node: Node, verdict: Verdict | None, back: tuple[str, ...]
) -> None:
    nodes = [held("f", name="n1"), node]
    made = plan(nodes, [verdict] if verdict else [], SPARES, back)
    assert "swap_in" not in [what for _name, what in steps(made)]
    # The same with a ready one beside it, which is taken instead.
    second = plan([*nodes, spare("s2")], [*([verdict] if verdict else []), says("pass", "s2")],
                  SPARES, back)  # fmt: skip
    assert [one for one in steps(second) if one[1] == "swap_in"] == [("s2", "swap_in")]


def test_without_a_word_of_the_site_evidence_counts_for_two_weeks() -> None:
    for hours, expected in ((14 * 24, [("n1", "drain")]), (14 * 24 + 1 / 3600, [])):
        assert steps(plan([IN_SERVICE], [says("fail", hours=hours)], Policy())) == expected


def test_without_a_word_of_the_site_one_in_ten_may_be_out_and_no_spare_comes_in() -> None:
    bad = [says("fail", "n1"), says("fail", "n2")]
    assert steps(plan(fleet(10), bad[:1], Policy())) == [("n1", "drain")]
    assert plan(fleet(10), bad, Policy()).refusal
    pool = Policy(spares=("s1",), share=1.0)
    assert steps(plan([*fleet(2), spare("s1")], [bad[0], says("pass", "s1")], pool)) == [
        ("n1", "drain")
    ]


def test_a_verdict_of_the_least_data() -> None:
    found = verdict_from_data({"node": "n1", "verdict": "fail"})
    assert (found.check, found.subject, found.text, found.remedy) == ("", "", "", "")
    assert (found.level, found.fleet_share) == ("quick", None)
    found = verdict_from_data({"node": "n1", "verdict": "fail", "first_failing": {"check": "a.b"}})
    assert (found.check, found.subject, found.text, found.remedy) == ("a.b", "", "", "")
    (step,) = plan([IN_SERVICE], [replace(found, at=NOW, level="standard")]).actions
    assert step.why == "a.b: fails"
    assert Verdict("n1", "pass", NOW).level == "quick"
    assert (gate.GatePlan((), ()).out, gate.GatePlan((), ()).out_after) == (0, 0)
    assert gate.GatePlan((), ()).most_out == 0


def test_a_long_reason_ends_with_two_dots() -> None:
    whole, long = "x" * 180, "x" * 181
    for text, kept in ((whole, whole), (long, "x" * 178 + "..")):
        reason = read_reason("n1", write_reason("n1", "f", text))
        assert reason == Reason("f", kept)


def test_a_check_of_one_word_is_its_own_question() -> None:
    assert heading("dgx-01", "wiring", "gpu:dgx-01/3") == "gpu3 wiring"
