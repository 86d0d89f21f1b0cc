# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What records of pair tests say: rates keep their digits, however small they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from pair_plans import small_plan

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Record,
    Threshold,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.verdict import place_of
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.failures import standing
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import End, rail_end
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.routes import computed_routes
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs import records as records_module
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.localise import Measurement
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.records import PART
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.schedule import make_schedule
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.session import (
    Localiser,
    Session,
    judge,
    make_records,
)

PLAN = small_plan(nodes=3, rails=1, units=1, spines=0)


@pytest.mark.parametrize(
    ("rate", "good", "slow", "flow"),
    [(400.0, 391.9, 97.97, "98 Gb/s"), (0.02, 0.01959, 0.004898, "0.0049 Gb/s")],
)
def test_rates_keep_four_digits(
    monkeypatch: pytest.MonkeyPatch, rate: float, good: float, slow: float, flow: str
) -> None:
    hcas = {key: replace(hca, rate_gbps=rate) for key, hca in PLAN.hcas.items()}
    plan = replace(PLAN, hcas=hcas)
    routes = computed_routes(plan)
    schedule = make_schedule(plan, routes)
    bad = rail_end("dgx-02", 0)
    values = [
        Measurement(n, half, a, b, rate * 0.97968 / (4 if a != b and bad in (a, b) else 1))
        for n, half, _unit, a, b in schedule.flows()
    ]
    thresholds = {rate: Threshold(">=", rate / 2, "Gb/s", "t")}
    session = Session(plan, routes, schedule, thresholds, False)
    found = Localiser(plan, routes)
    verdict, further = judge(session, found, values)
    # The kind of each flow is known since it was judged.
    monkeypatch.setattr(records_module, "kind_of", lambda *_of: pytest.fail("asked again"))
    records = make_records(plan, found.suspects, verdict, further, thresholds)
    assert records[0].measured == {"value": good, "unit": "Gb/s"}
    (failed,) = (record for record in records if record.status == FAIL)
    assert (failed.check, failed.subject) == (PART, "cable:dgx-02/rail0--leaf-10/2")
    assert failed.measured == {"value": slow, "unit": "Gb/s"}
    assert failed.evidence[0].endswith(flow)


@pytest.mark.parametrize(
    ("gbps", "cleared"),
    [
        (392.0, ["dgx-01", "dgx-02", "dgx-03", "dgx-04"]),
        (98.0, ["dgx-01", "dgx-03", "dgx-04"]),
        (None, ["dgx-01", "dgx-03", "dgx-04"]),
    ],
)
def test_a_node_passes_as_a_whole_when_all_of_its_parts_do(
    gbps: float | None, cleared: list[str]
) -> None:
    """It may have failed as a whole before."""
    plan = small_plan(nodes=4, rails=2, units=1, spines=0)
    routes = computed_routes(plan)
    bad = rail_end("dgx-02", 1)
    schedule = make_schedule(plan, routes)
    values = [
        Measurement(n, half, a, b, gbps if bad in (a, b) else 392.0)
        for n, half, _unit, a, b in schedule.flows()
    ]
    thresholds = {400.0: Threshold(">=", 360.0, "Gb/s", "t")}
    found = Localiser(plan, routes)
    verdict, further = judge(Session(plan, routes, schedule, thresholds, False), found, values)
    records = make_records(plan, found.suspects, verdict, further, thresholds)
    passed = [record.subject for record in records if record.status == "pass"]
    nodes = [subject for subject in passed if subject.startswith("node:")]
    assert nodes == [f"node:{name}" for name in cleared]


def records_of_cages(
    rails: int, per_cage: int, bad: set[tuple[str, int]], unmeasured: str = ""
) -> list[Record]:
    """Records where rails are slow; those of dgx-01 share a cage, as do `per_cage` ports."""
    plan = small_plan(nodes=8, rails=rails, units=1, spines=0)
    hcas = {key: replace(hca, cage="OSFP4") for key, hca in plan.hcas.items() if key[0] == "dgx-01"}
    switches = {name: replace(one, ports_per_cage=per_cage) for name, one in plan.switches.items()}
    plan = replace(plan, hcas={**plan.hcas, **hcas}, switches=switches)
    routes = computed_routes(plan)
    schedule = make_schedule(plan, routes)

    def rate(*ends: End) -> float | None:
        if unmeasured in {end.host for end in ends}:
            return None
        slow = ends[0] != ends[1] and any((end.host, end.rail) in bad for end in ends)
        return 98.0 if slow else 392.0

    values = [Measurement(n, half, a, b, rate(a, b)) for n, half, _unit, a, b in schedule.flows()]
    thresholds = {400.0: Threshold(">=", 360.0, "Gb/s", "t")}
    found = Localiser(plan, routes)
    verdict, further = judge(Session(plan, routes, schedule, thresholds, False), found, values)
    records = make_records(plan, found.suspects, verdict, further, thresholds)
    about = [record.subject for record in records]
    assert len(about) == len(set(about))
    return records


@pytest.mark.parametrize(
    ("per_cage", "bad", "unmeasured", "nodes"),
    [
        # The transceiver of a node, of two nodes at a leaf, and of four of which one is not asked.
        (1, {("dgx-01", 0), ("dgx-01", 1)}, "", ["dgx-01", "dgx-01"]),
        (2, {("dgx-03", 0), ("dgx-04", 0)}, "", ["dgx-03", "dgx-04"]),
        (4, {(f"dgx-0{n}", 0) for n in (5, 6, 7)}, "dgx-08", ["dgx-05", "dgx-06", "dgx-07"]),
    ],
)  # fmt: skip
def test_a_cage_fails_the_nodes_of_its_cables(
    per_cage: int, bad: set[tuple[str, int]], unmeasured: str, nodes: list[str]
) -> None:
    """It may be that of a node or of a switch, and fails none by itself."""
    records = records_of_cages(2, per_cage, bad, unmeasured)
    cage, *cables = (record for record in records if record.status == FAIL)
    assert cage.subject.startswith("cage:")
    assert place_of(cage.subject).gate_fails == ()
    assert [node for one in cables for node in place_of(one.subject).gate_fails] == nodes
    for one in cables:
        assert (one.check, one.measured, one.remedy) == (PART, cage.measured, cage.remedy)
        assert one.text.startswith(f"part of {cage.subject}, whose transceiver is slow: ")
        assert all(one.subject[6:].partition("--")[0] in line for line in one.evidence[:-1])
    (left,) = [one.status for one in records if one.subject == "cable:dgx-08/rail0--leaf-10/8"]
    assert (left == NOT_MEASURED) is bool(unmeasured)


@pytest.mark.parametrize(
    ("slow", "unmeasured", "failed"),
    [
        ((5, 6, 7), "", (5, 6, 7)),
        ((5, 6), "dgx-08", (5, 6)),
        ((1, 2, 3, 5), "", (1, 2, 3)),
    ],
)
def test_a_cable_of_a_slow_cage_fails_by_flows_that_cross_no_other_of_it(
    slow: tuple[int, ...], unmeasured: str, failed: tuple[int, ...]
) -> None:
    """A flow between two cables of the cage is slow by either: the healthy one stays."""
    records = records_of_cages(2, 4, {(f"dgx-0{n}", 0) for n in slow}, unmeasured)
    subjects = [one.subject for one in records if one.status == FAIL]
    cage = "cage:leaf-10/2" if 6 in slow else "cage:leaf-10/1"
    assert subjects[0] == cage
    cables = [f"cable:dgx-0{n}/rail0--leaf-10/{n}" for n in failed]
    assert [one for one in subjects if one in cables] == cables
    stays = {f"cable:dgx-0{n}/rail0--leaf-10/{n}" for n in range(1, 9) if n not in slow}
    assert stays.isdisjoint(subjects)


def test_a_cage_that_no_flow_tells_from_its_switch_fails_no_cable() -> None:
    records = records_of_cages(2, 8, {(f"dgx-0{n}", 0) for n in range(1, 9)})
    (cage,) = (one for one in records if one.status == FAIL)
    assert cage.subject == "cage:leaf-10/1"
    assert "from switch:leaf-10" in cage.text


def test_a_cable_between_two_cages_that_are_slow_has_one_record() -> None:
    bad = {*(("dgx-01", rail) for rail in range(4)), *((f"dgx-0{n}", 0) for n in range(2, 5))}
    failed = [one.subject for one in records_of_cages(4, 4, bad) if one.status == FAIL]
    assert [one for one in failed if "cage" in one] == ["cage:dgx-01/OSFP4", "cage:leaf-10/1"]


def records_of(rate: Callable[[End, End], float | None], nodes: int = 8) -> dict[str, Record]:
    """Records by subject of a fabric of two rails, two units and two spines."""
    plan = small_plan(nodes=nodes, rails=2, units=2, spines=2)
    routes = computed_routes(plan)
    schedule = make_schedule(plan, routes)
    values = [Measurement(n, half, a, b, rate(a, b)) for n, half, _unit, a, b in schedule.flows()]
    thresholds = {400.0: Threshold(">=", 360.0, "Gb/s", "t")}
    found = Localiser(plan, routes)
    verdict, further = judge(Session(plan, routes, schedule, thresholds, False), found, values)
    records = make_records(plan, found.suspects, verdict, further, thresholds)
    return {record.subject: record for record in records}


BAD = rail_end("dgx-02", 0)
CABLE_OF_BAD = "cable:dgx-02/rail0--leaf-10/2"


@pytest.mark.parametrize(
    ("is_slow", "failed", "states"),
    [
        (lambda a, b: BAD in (a, b), f"hca:{BAD}", {CABLE_OF_BAD: NOT_MEASURED}),
        (lambda a, b: BAD in (a, b) and a != b, CABLE_OF_BAD, {f"hca:{BAD}": PASS}),
        (lambda a, b: b == BAD != a, CABLE_OF_BAD, {f"hca:{BAD}": PASS}),
        (lambda a, b: a == BAD != b, CABLE_OF_BAD, {f"hca:{BAD}": PASS}),
    ],
    ids=["adapter", "cable", "receiver", "sender"],
)
def test_flows_that_another_part_slows_pass_none(
    is_slow: Callable[[End, End], bool], failed: str, states: dict[str, str]
) -> None:
    records = records_of(lambda a, b: 98.0 if is_slow(a, b) else 392.0)
    assert [one.subject for one in records.values() if one.status == FAIL] == [failed]
    for one in records.values():
        assert one.status != PASS or one.measured is None or one.measured["value"] >= 360.0, one
    assert {subject: records[subject].status for subject in states} == states
    if CABLE_OF_BAD in states:
        assert f"are slow, and {failed} says why" in records[CABLE_OF_BAD].text


def test_a_loopback_passes_no_adapter_that_no_flow_reached() -> None:
    records = records_of(lambda a, b: None if BAD in (a, b) and a != b else 392.0)
    assert records[f"hca:{BAD}"].status == NOT_MEASURED


def test_a_failure_stands_while_another_part_slows_all_flows_of_its_direction() -> None:
    """A slow receiver; then the pairs of its unit have no value, and an uplink is slow as well."""
    plan = small_plan(nodes=8, rails=2, units=2, spines=2)
    routes, by_end = computed_routes(plan), plan.by_end()
    uplink = "cable:leaf-10/10--spine-0/2"

    def later(a: End, b: End) -> float | None:
        if "dgx-02" in (a.host, b.host) and {a.host, b.host} & {"dgx-01", "dgx-03", "dgx-04"}:
            return None
        over = a != b and any(by_end[link].subject == uplink for link in routes.route(a, b))
        return 98.0 if over or b == BAD != a else 392.0

    first = records_of(lambda a, b: 98.0 if b == BAD != a else 392.0)
    stands, _left = standing({}, [one.as_data() for one in first.values()])
    assert list(stands) == [(PART, CABLE_OF_BAD)]
    second = records_of(later)
    assert [one.subject for one in second.values() if one.status == FAIL] == [uplink]
    stands, _left = standing(stands, [one.as_data() for one in second.values()])
    assert list(stands) == [(PART, CABLE_OF_BAD)]
