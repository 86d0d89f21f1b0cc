# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judgement of a fabric, where the fault library does not look: words, records, limits, doubts."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from cable_plans import plan_data
from fabric_texts import counted
from library import build, fresh
from small_fabric import (
    L0,
    L1,
    NO_NAME,
    NO_SWITCH_NAME,
    NODES,
    S1,
    S2,
    UNPLANNED,
    A,
    B,
    Small,
)
from world import World, plan_of, rail_end, switch_end

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.findings import (
    COSTS,
    DARK,
    SAME_SWITCHES,
    UNEVEN,
    Cost,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge import (
    EmptyPlanError,
    Expectation,
    Observation,
    OtherClusterError,
    first_look,
    judge_fabric,
    records_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge_counters import (
    SYMBOLS,
    grown_between,
    growth_threshold,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge_subnet_managers import (
    Managers,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.match import (
    match,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    CA,
    LEAF_LEAF,
    NODE_LEAF,
    Cable,
    CablePlan,
    Place,
    Sweep,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.parse_counters import (
    FoundSm,
    FoundSms,
    Reading,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.picture import fabric_svg
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.text import (
    findings_text,
    json_text,
    summary,
    verdict_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.wiring import (
    _cost_of,
    judge_unknown,
    unread_links,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.counters import Growth
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.descriptions import (
    host_and_device,
    switch_name,
    unnamed,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cables import plan_cables

BASEPOD = "basepod-12"


def healthy(size: str = BASEPOD) -> World:
    world = fresh(size)
    world.start = world.key_of["dgx-0001", 0]
    return world


# names


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("MF0;leaf-01:MQM9700/U1", "leaf-01"),
        ("MF0;sat11-0101-0903-01ib1-A:MCS8500/L16/U2", "sat11-0101-0903-01ib1-A"),
        ("leaf-01", "leaf-01"),
        (" 5FB0406-spine-IB02 ", "5FB0406-spine-IB02"),
        ("Quantum-2 Mellanox Technologies", "Quantum-2 Mellanox Technologies"),
    ],
)
def test_names_of_switches(description: str, name: str) -> None:
    assert switch_name(description) == name


def test_names_of_adapters() -> None:
    result = host_and_device("dgx-01.cluster.example mlx5_0 ")
    assert (result.host, result.device) == ("dgx-01", "mlx5_0")
    assert host_and_device("  ").host == ""
    for words in ("", "MT4129 ConnectX7   Mellanox Technologies", "localhost mlx5_0", "HCA-1"):
        assert unnamed(words)
    assert not unnamed("dgx-01 HCA-1")


def test_domains_make_no_difference() -> None:
    world = healthy()
    plan = world.plan
    hcas = {
        (f"{node}.site.example", rail): replace(hca, node=f"{node}.site.example")
        for (node, rail), hca in plan.hcas.items()
    }
    cables = tuple(
        replace(c, a=rail_end(f"{c.a.host}.site.example", c.a.rail)) if not c.a.is_switch else c
        for c in plan.cables
    )
    plan = CablePlan(hcas, plan.switches, cables)
    wanted = Expectation(subnet_managers=Managers(["dgx-0001.site.example", "dgx-0012"]))
    verdict = judge_fabric(plan, world.observe(), wanted)
    assert (verdict.findings, verdict.doubts) == ([], [])


def test_parts_of_a_director_are_planned_by_their_full_names() -> None:
    world = healthy()
    plan = world.plan
    names = {"leaf-001": "MF0;big:MCS8500/L01/U1", "leaf-002": "MF0;big:MCS8500/L02/U1"}
    for name, full in names.items():
        world.fabric.devices[world.key_of[name, -1]].description = full
    cables = tuple(
        replace(c, **{
            side: replace(end, host=names.get(end.host, end.host))
            for side, end in (("a", c.a), ("b", c.b))
        })
        for c in plan.cables
    )  # fmt: skip
    switches = {names[n]: replace(s, name=names[n]) for n, s in plan.switches.items()}
    verdict = judge_fabric(CablePlan(plan.hcas, switches, cables), world.observe(), world.wanted)
    assert (verdict.findings, verdict.counts()["pass"]) == ([], 112)


def test_each_match_says_why() -> None:
    world = healthy("superpod-32-of-64")
    plan = world.plan
    spine = world.key_of["spine-001", -1]
    world.fabric.devices[spine].description = "Quantum-2 Mellanox Technologies"
    sweep = world.observe().sweep
    found = match(plan, sweep)
    assert found.reasons[spine] == "its place in the fabric"
    assert found.reasons[world.key_of["leaf-001", -1]] == "its description"
    named = match(plan, sweep, {spine: "spine-001"})
    assert named.reasons[spine] == "its description"


# what cannot be judged


def test_a_plan_with_nothing_in_it_is_refused() -> None:
    with pytest.raises(EmptyPlanError, match="no cables"):
        judge_fabric(CablePlan({}, {}, ()), healthy().observe())


def test_another_cluster_is_refused() -> None:
    world = healthy()
    for device in world.fabric.devices.values():
        device.description = device.description.replace("dgx-", "gpu-").replace("leaf", "edge")
    with pytest.raises(OtherClusterError, match="of 98 devices that were found 0 are in the plan"):
        world.judge()


def test_nothing_seen_fails_nothing() -> None:
    plan = plan_of(BASEPOD)
    seen = Observation(Sweep(complaints=["ibnetdiscover is not installed"]))
    verdict = judge_fabric(plan, seen)
    assert verdict.findings == []
    assert verdict.counts() == {"pass": 0, "fail": 0, "not_measured": len(plan.cables)}
    statuses = {record.status for record in records_of(verdict)}
    assert statuses == {"not_measured"}


def test_words_on_standard_error_make_absence_doubtful_unless_the_port_is_down() -> None:
    case = build(BASEPOD, ("uplink_dark",), 1)
    case.world.errors = ["ibwarn: something new"]
    found, unsure = case.run()
    # iblinkinfo says that the port is down: that is proof.
    assert (found, unsure) == (case.expected, set())
    observed = case.world.observe()
    for device in observed.sweep.devices.values():
        for port in device.ports.values():
            port.state = port.physical_state = None
    verdict = judge_fabric(case.world.plan, observed, case.world.wanted)
    assert verdict.findings == []
    assert {(doubt.kind, doubt.subject) for doubt in verdict.doubts} == case.expected


def test_a_node_is_not_absent_because_a_sweep_was_disturbed() -> None:
    case = build(BASEPOD, ("node_absent",), 1)
    observed = case.world.observe()
    observed.sweep.complaints.append("ibnetdiscover says: 'what?'")
    for device in observed.sweep.devices.values():
        for port in device.ports.values():
            port.state = port.physical_state = None
    verdict = judge_fabric(case.world.plan, observed, case.world.wanted)
    assert verdict.findings == []
    assert [doubt.kind for doubt in verdict.doubts] == ["node_absent"]


def test_what_is_around_a_cable_that_could_not_be_reached() -> None:
    small = Small()
    # Of l0 nothing is known, since all that it is linked to is gone.
    small.remove(L0, S1, S2, *((node, 0) for node in NODES))
    verdict = judge_fabric(small.plan, Observation(small.sweep))
    reported = {verdict.cables[c] for c in small.plan.cables if c.a.host in NODES and c.a.rail == 0}
    assert reported == {("not_measured", "what is around it could not be reached")}


def test_a_cable_of_a_device_without_a_record_is_not_measured() -> None:
    small = Small()
    small.device(L0).port_count = 0
    verdict = judge_fabric(small.plan, Observation(small.sweep))
    text = "the sweep has no record of a device at its end: look again"
    own = {c for c in small.plan.cables if "l0" in (c.a.host, c.b.host)}
    assert {verdict.cables[cable] for cable in own} == {("not_measured", text)}
    rest = {cable for cable in small.plan.cables if cable not in own}
    assert text not in {verdict.cables[cable][1] for cable in rest}


def test_an_unplanned_device_with_a_record_is_no_device_without_one() -> None:
    small = Small()
    small.device(L0).port_count = 0
    small.add(UNPLANNED, CA, "other mlx5_0", switch_end("l1", 20))
    unread = unread_links(first_look(small.plan, small.sweep).wiring)
    assert switch_end("l1", 20) not in unread.ends
    assert {end for end in unread.ends if end.is_switch and end.host != "l0"} == {
        switch_end("s1", 1), switch_end("s2", 1),
    }  # fmt: skip


def test_a_device_that_only_its_link_names_is_not_unplanned() -> None:
    small = Small()
    small.add(UNPLANNED, CA, "other mlx5_0", switch_end("l1", 20))
    small.sweep.devices[UNPLANNED].port_count = 0
    unread = unread_links(first_look(small.plan, small.sweep).wiring)
    assert sorted(end.port for end in unread.ends) == [1, 20]
    assert switch_end("l1", 20) in unread.ends
    assert unread.cables == set()


def test_what_is_linked_and_in_no_plan() -> None:
    small = Small()
    small.plan = replace(small.plan, reserved=(switch_end("l0", 20),))
    devices = {
        "a" * 16: ("ufm mlx5_0", 20),
        "b" * 16: ("n2 mlx5_9", 21),
        "c" * 16: ("x mlx5_0", 22),
    }
    for guid, (name, port) in devices.items():
        small.add(guid, CA, name)
        small.link((guid, 1), small.at(switch_end("l0", port)))
    wiring = first_look(small.plan, small.sweep).wiring
    unknown = sorted((one, two) for one, two in wiring.far.items() if one.host == "l0")
    unknown = [(one, two) for one, two in unknown if one.port >= 20]
    found = {one.subject: one for one in judge_unknown(wiring, unknown, set())}
    assert set(found) == {"device:n2", "device:x"}
    own, other = found["device:n2"], found["device:x"]
    assert own.text.startswith("n2 is in the plan, but this adapter is not one of its rails: ")
    assert own.remedy == "take the cable out, or reserve the port (reserved_ports)"
    assert other.text.startswith("x is not in the plan, but is linked: ")
    assert other.remedy.endswith("or add the device to the inventory or to the hosts that are "
                                 "known to be there")  # fmt: skip


def in_repair(cabled: int, lines: int, absent: list[int]) -> World:
    """A BasePOD that was cabled for so many nodes, planned with lines for as many or more."""

    def planned(nodes: int, gone: list[int]) -> CablePlan:
        data = plan_data(nodes)
        for number, node in enumerate(data["nodes"], 1):
            node |= {"hca_guids": {}, "state": "absent" if number in gone else "present"}
        return plan_cables(data)

    world = World.of(planned(cabled, []))
    world.start = world.device(switch_end("leaf-001", 1)).guid
    for cable in world.plan.cables:
        if cable.kind == NODE_LEAF and int(cable.a.host[-2:]) in absent:
            world.remove(world.device(cable.a).guid)
    world.plan = planned(lines, absent)
    return world


@pytest.mark.parametrize(
    ("cabled", "lines", "absent", "trunk"),
    [
        # One that is in repair.
        (12, 12, [5], 16),
        (12, 12, [11], 16),
        (8, 8, [5], 28),
        # Lines that stay, of nodes that left, and cables as without these.
        (12, 12, [8, 9, 10, 11], 16),
        (8, 12, [9, 10, 11, 12], 16),
        (6, 8, [7, 8], 24),
    ],
)
def test_cables_between_the_switches_stay_while_nodes_are_absent(
    cabled: int, lines: int, absent: list[int], trunk: int
) -> None:
    world = in_repair(cabled, lines, absent)
    joined = [cable for cable in world.plan.cables if cable.kind == LEAF_LEAF]
    assert len(joined) == trunk
    verdict = world.judge()
    assert (verdict.findings, verdict.doubts) == ([], [])
    world.unplug(joined[0])
    assert len(world.judge().findings) == 1


def test_the_links_of_a_cage_of_ndr200_are_one_finding() -> None:
    """Four ports of a QM9700 share a cage there, and these two cages are joined."""
    plan = plan_cables(plan_data(12, radix=128, rate_gbps=200))
    world = World.of(replace(plan, hcas={k: replace(h, guid=None) for k, h in plan.hcas.items()}))
    world.start = world.key_of["dgx-0001", 0]
    trunk = [cable for cable in world.plan.cables if cable.a.port > 124]
    for cable in trunk[1:]:
        world.unplug(cable)
    assert [one.kind for one in world.judge().findings] == ["dark"] * 3
    world.unplug(trunk[0])
    (found,) = world.judge().findings
    assert (found.kind, found.subject) == ("cage", "cage:leaf-001/32")
    assert found.text.startswith(
        "all 4 links of cage 32 of leaf-001 (ports 125, 126, 127 and 128) are gone: they should be "
        "at leaf-002 port 125 (1/32/1/1) and "
    )
    assert set(found.cables) == set(trunk)


# More than the present nodes need, and at the ports of nodes that left.
@pytest.mark.parametrize(("cabled", "lines", "absent"), [(8, 8, [5]), (8, 12, [9, 10, 11, 12])])
@pytest.mark.parametrize("change", ["width", "speed", "errors"])
def test_cables_that_may_be_absent_are_judged_where_they_are_there(
    cabled: int, lines: int, absent: list[int], change: str
) -> None:
    world = in_repair(cabled, lines, absent)
    there = sorted(cable for cable in world.plan.spare if world.in_place(cable))
    assert len(there) >= 4
    first, second = there[:2]
    world.unplug(there[-1])
    # Each of two has the other's port.
    world.unplug(first)
    world.unplug(second)
    world.plug(first.a, second.b)
    world.plug(second.a, first.b)
    assert world.judge().findings == []
    for cable in (replace(first, b=second.b), there[2]):
        place = world.place(cable.a)
        if change == "errors":
            world.after.setdefault(place, {})["LinkDownedCounter"] = 40
        else:
            for one in (place, world.place(cable.b)):
                setattr(world.port(one), change, {"width": "2x", "speed": "HDR"}[change])
        (finding,) = world.judge().findings
        assert (finding.kind, finding.subject, finding.status) == (change, cable.subject, "fail")
        world.after.clear()
        world.unplug(cable)
        assert world.judge().findings == []


def test_ports_that_the_site_reserves_are_not_judged_beside_those_of_absent_nodes() -> None:
    data = plan_data(8, reserved_ports={"leaf-001": [17]})
    data["nodes"][4]["state"] = "absent"
    spare = plan_cables(data).spare
    assert {cable.a.port for cable in spare} > {18, 19, 20}
    assert 17 not in {cable.a.port for cable in spare}


def test_the_first_look_is_not_taken_again() -> None:
    small = Small()
    look = first_look(small.plan, small.sweep)
    assert judge_fabric(small.plan, Observation(small.sweep), look=look).matches is look.matches


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("recorded", [False, True])
def test_only_devices_with_a_record_of_a_whole_sweep_tell_another_cluster(
    partial: bool, recorded: bool
) -> None:
    small = Small()
    small.remove(*(key for key in small.guid if key[0] not in ("n1", "l0")))
    for number in range(20):
        guid = f"{0xE0 + number:016x}"
        small.add(guid, CA, f"other-{number} mlx5_0")
        small.sweep.devices[guid].port_count = int(recorded)
    small.sweep.partial = partial
    # 5 of 25 are of the plan, or 5 of 5.
    if recorded and not partial:
        with pytest.raises(OtherClusterError, match="of 25 devices that were found 5 are in the"):
            judge_fabric(small.plan, Observation(small.sweep))
    else:
        judge_fabric(small.plan, Observation(small.sweep))


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("unsure", ["nothing", "far end", "own end", "unplanned"])
def test_of_a_sweep_that_is_not_whole_a_link_is_as_sure_as_all_its_ends(
    partial: bool, unsure: str
) -> None:
    small = Small()
    # The plug of a rail, or of something unplanned, is in a free port of l1.
    if unsure == "unplanned":
        small.add(UNPLANNED, CA, "ufm mlx5_0")
        small.link((UNPLANNED, 1), small.at(switch_end("l1", 30)))
    else:
        small.link(small.at(rail_end("n1", 0)), small.at(switch_end("l1", 30)))
    if unsure == "far end":
        small.call(NO_SWITCH_NAME, L1)
    if unsure == "own end":
        small.call(NO_SWITCH_NAME, L0)
    small.sweep.partial = partial
    verdict = judge_fabric(small.plan, Observation(small.sweep))
    found = {
        f.status for f in verdict.findings + verdict.doubts if f.kind in ("moved", "unexpected")
    }
    assert found == {"not_measured" if partial and unsure != "nothing" else "fail"}


@pytest.mark.parametrize("of", ["adapter", "port"])
def test_what_shares_a_guid_is_not_judged_by_its_name(of: str) -> None:
    small = Small()
    small.call("n9 mlx5_0", A, B)
    for key in (A, B):
        small.declare(key, small.guid[key])
    guid = small.guid[A] if of == "adapter" else str(small.port((small.guid[A], 1)).guid)
    small.sweep.duplicate_guids = [guid]
    verdict = judge_fabric(small.plan, Observation(small.sweep))
    reported = {f.subject for f in verdict.findings if f.kind == "description"}
    assert reported == {"hca:n2/rail0"}


def test_links_at_a_doubled_guid_are_not_judged_a_second_time() -> None:
    small = Small()
    # One of the two is in an unplanned port.
    small.link(small.at(rail_end("n1", 0)), small.at(switch_end("l1", 30)))
    small.sweep.duplicate_guids = [small.guid[A]]
    verdict = judge_fabric(small.plan, Observation(small.sweep))
    assert [f.kind for f in verdict.findings] == ["duplicate_guid"]


def test_of_two_doubts_of_a_cable_the_first_says_what_it_has() -> None:
    small = Small()
    small.call(NO_NAME, A)
    end = rail_end("n1", 0)
    readings = [Reading(at, unread={small.at(end)}) for at in (0.0, 60.0)]
    verdict = judge_fabric(small.plan, Observation(small.sweep, *readings))
    kinds = [doubt.kind for doubt in verdict.doubts]
    assert kinds == ["errors", "identity"]
    assert verdict.cables[small.plan.by_end()[end]][1].startswith("errors cable:n1/rail0--l0/1: ")


# counters


@pytest.mark.parametrize(
    ("counter", "before", "now", "expected"),
    [
        ("SymbolErrorCounter", 0, 7, Growth(7)),
        ("SymbolErrorCounter", 65000, 65535, Growth(535, at_least=True)),
        ("LinkDownedCounter", 200, 255, Growth(55, at_least=True)),
        ("LocalLinkIntegrityErrors", 3, 15, Growth(12, at_least=True)),
        ("PortXmitWait", 4294967290, 4294967295, Growth(5, at_least=True)),
        # Wide counters of newer hardware go on beyond the old end.
        ("SymbolErrorCounter", 65535, 65540, Growth(5)),
    ],
)
def test_growth(counter: str, before: int, now: int, expected: Growth) -> None:
    assert grown_between(before, now, counter) == expected


@pytest.mark.parametrize(
    ("counter", "before", "now", "why"),
    [
        ("LinkDownedCounter", 255, 255, "its largest value"),
        ("SymbolErrorCounter", 65535, 65535, "its largest value"),
        ("PortXmitWait", 4294967295, 4294967295, "its largest value"),
        ("SymbolErrorCounter", 9, 8, "cleared in between"),
        ("SymbolErrorCounter", None, 8, "did not answer"),
        ("SymbolErrorCounter", 8, None, "did not answer"),
    ],
)
def test_growth_that_cannot_be_said(counter: str, before: int, now: int, why: str) -> None:
    found = grown_between(before, now, counter)
    assert found.count is None
    assert why in found.reason


def test_growth_of_a_device_that_was_not_asked_before() -> None:
    assert grown_between(None, 0, "SymbolErrorCounter", new=True) == Growth(0)
    found = grown_between(None, 8, "SymbolErrorCounter", new=True)
    assert (found.count, found.reason) == (None, "the reading before does not have this port")
    assert "did not answer" in grown_between(None, None, "SymbolErrorCounter", new=True).reason


@pytest.mark.parametrize(
    ("rate", "speed", "seconds", "allowed"),
    [
        (400, "NDR", 720, 2.88),  # UFM: 2.88 symbol errors in 12 min of NDR
        (400, "NDR", 7500, 3.0),  # UFM: 3 in 125 min
        (800, "XDR", 720, 5.76),
        (200, "HDR", 3600, 7.2),
        (100, "HDR", 3600, 3.6),
        (400, "NDR", 10, 2),  # fewer than three may be chance
        (100, "EDR", 60, 6.0),  # EDR and below: the limit of a link without correction
        (10, "SDR", 3600, 36.0),
    ],
)
def test_symbol_errors_allowed(rate: float, speed: str, seconds: float, allowed: float) -> None:
    threshold = growth_threshold(SYMBOLS, rate, speed, seconds)
    assert threshold.value == allowed
    assert threshold.holds(int(allowed))
    assert not threshold.holds(allowed + 0.5)


def test_one_reading_finds_nothing() -> None:
    case = build(BASEPOD, ("symbol_errors_at_a_rail", "link_went_down"), 1)
    observed = case.world.observe()
    observed.after = None
    verdict = judge_fabric(case.world.plan, observed, case.world.wanted)
    assert verdict.findings == []
    assert any("is 10 since it was cleared" in line for line in verdict.information)


def test_what_tells_of_load_is_told_and_not_judged() -> None:
    verdict = build(BASEPOD, ("congestion",), 1).world.judge()
    reported = [line for line in verdict.information if line.startswith("PortXmitDiscards")]
    # The four ports with most of them, and how many more there are.
    assert len(reported) == 5
    assert reported[0].startswith("PortXmitDiscards grew by 65535 at ")
    assert reported[4] == "PortXmitDiscards at 36 more ports"


def test_a_reading_without_its_end_leaves_all_cables_in_doubt() -> None:
    observed = healthy().observe()
    observed.after = Reading(720.0, whole=False)
    world = healthy()
    verdict = judge_fabric(world.plan, observed, world.wanted)
    assert verdict.findings == []
    assert [(doubt.kind, doubt.subject) for doubt in verdict.doubts] == [("errors", "fabric")]


# subnet managers


def test_a_manager_that_does_not_say_what_it_is() -> None:
    world = healthy()
    observed = world.observe()
    observed.sms.sms = [FoundSm(sm.lid, sm.guid, 0, "MASTER") for sm in observed.sms.sms[:1]]
    lid = world.fabric.devices[world.key_of["dgx-0012", 0]].lid
    observed.sms.sms.append(FoundSm(lid or 0, None, None, None))
    verdict = judge_fabric(world.plan, observed, world.wanted)
    assert verdict.findings == []
    assert [doubt.kind for doubt in verdict.doubts] == ["two_masters"]


def test_tools_that_hang_leave_the_managers_unknown() -> None:
    world = healthy()
    observed = world.observe()
    observed.sms = FoundSms(asked=True, complaints=["`sminfo` did not end within 30 s"])
    verdict = judge_fabric(world.plan, observed, world.wanted)
    assert verdict.findings == []
    assert [(doubt.kind, doubt.status) for doubt in verdict.doubts] == [("no_sm", "not_measured")]
    observed.sms = FoundSms()
    assert judge_fabric(world.plan, observed, world.wanted).doubts == []


# uplinks


def test_a_leaf_that_the_plan_leaves_short_is_found() -> None:
    world = healthy("superpod-32-of-64")
    lost = [c for c in world.plan.cables if c.a.host == "leaf-003" and c.a.is_switch][:5]
    # As if the plan had been learned from a fabric that lacks them.
    for cable in lost:
        world.unplug(cable)
    left = tuple(cable for cable in world.plan.cables if cable not in lost)
    plan = CablePlan(world.plan.hcas, world.plan.switches, left)
    verdict = judge_fabric(plan, world.observe(), world.wanted)
    assert [(f.kind, f.subject) for f in verdict.findings] == [("uplinks", "switch:leaf-003")]
    assert verdict.findings[0].measured == 27
    assert verdict.findings[0].threshold
    assert verdict.findings[0].threshold.value == 32


def test_a_fabric_that_is_slow_as_a_whole_is_one_finding() -> None:
    world = healthy("superpod-32")
    for device in world.fabric.devices.values():
        for port in device.ports.values():
            port.speed = "HDR"
    found = world.judge().findings
    assert [(f.kind, f.subject) for f in found] == [("speed", "fabric")]


def test_load_above_the_given_limit_is_found() -> None:
    world = healthy()
    wanted = Expectation(oversubscription_max=2.0)
    found = judge_fabric(world.plan, world.observe(), wanted).findings
    assert [(f.kind, f.subject) for f in found] == [
        ("uplinks", "switch:leaf-001"),
        ("uplinks", "switch:leaf-002"),
    ]
    assert found[0].measured == 3.0
    assert judge_fabric(world.plan, world.observe(), Expectation()).findings == []


def test_lost_uplinks_are_told_for_information() -> None:
    verdict = build("superpod-32", ("uplink_dark",), 2).world.judge()
    assert any("has 31 of 32 uplinks" in line for line in verdict.information)


# records, text, JSON, picture


def test_every_cable_has_its_record() -> None:
    case = build("superpod-32-of-64", ("leaf_absent", "rails_of_a_node_swapped"), 4)
    verdict = case.world.judge()
    records = records_of(verdict)
    cables = {record.subject: record for record in records if record.check == "fabric.cable"}
    right = {c for c, (status, _text) in verdict.cables.items() if status == "pass"}
    assert {name for name in cables if name.startswith("cable:")} == {
        cable.subject for cable in case.world.plan.cables if cable not in right
    }
    folded = [record for name, record in cables.items() if name.startswith("cables:")]
    listed = [line for record in folded for line in record.evidence]
    assert sorted(listed) == sorted(f"{cable.a}--{cable.b}" for cable in right)
    assert {record.status for record in folded} == {"pass"}
    assert {record.text for record in folded if len(record.evidence) == 8} == {"8 cables are right"}
    swapped = next(f for f in verdict.findings if f.kind == "swapped")
    assert {cables[c.subject].status for c in swapped.cables} == {"fail"}
    absent = next(f for f in verdict.findings if f.kind == "switch_absent")
    assert {cables[c.subject].status for c in absent.cables} == {"not_measured"}
    assert folded[0].measured == {"value": 400, "unit": "Gb/s"}
    assert folded[0].threshold
    assert (folded[0].threshold.op, folded[0].threshold.value) == (">=", 400)
    assert "fabric.swapped" in {record.check for record in records}


def test_the_text_says_what_where_and_what_to_do() -> None:
    case = build(BASEPOD, ("rails_of_a_node_swapped",), 3)
    verdict = case.world.judge()
    cable = verdict.findings[0].cables[0]
    places = {cable.a.host: Place("r07", 11), cable.b.host: Place("r02", None)}
    text = findings_text(verdict, places)
    assert text.startswith(
        "12 nodes, 2 switches: 1 finding; 110 of 112 cables are right, 2 are not"
    )
    assert f"{cable.a.host} in r07 U11" in text
    assert f"{cable.b.host} in r02" in text
    message = " ".join(text.split())
    assert "exchange the two plugs at" in message
    # What is printed at the cage, and the number that the fabric knows.
    assert f"port {cable.b.port} (1/{(cable.b.port + 1) // 2}/{2 - cable.b.port % 2})" in message
    assert f"rail {cable.a.rail} (OSFP{cable.a.rail // 2} P{cable.a.rail % 2 + 1})" in message
    assert max(len(line) for line in text.splitlines()) <= 120


def test_swapped_plugs_are_those_whose_exchange_repairs_it() -> None:
    case = build("superpod-32", ("uplinks_of_two_leaves_swapped",), 3)
    world = case.world
    finding = world.judge().findings[0]
    one, two = finding.cables
    # Both ways repair it; the plugs that are named are on one side.
    sides = [(one.a, two.a), (one.b, two.b)]
    named = [
        pair for pair in sides if all(f"{e.host} port {e.port} " in finding.remedy for e in pair)
    ]
    assert len(named) == 1
    ends = [world.place(end) for end in named[0]]
    peers = [world.port(end).peer for end in ends]
    for end in ends:
        world.unlink(end)
    world.link(ends[0], peers[1])
    world.link(ends[1], peers[0])
    assert world.judge().findings == []


@pytest.mark.parametrize(
    "name", ["three_rails_in_turn", "two_cables_moved_on", "rail_in_a_free_port"]
)
def test_the_moves_that_are_told_repair_it(name: str) -> None:
    case = build("superpod-32-of-64", (name,), 5)
    world = case.world
    finding = world.judge().findings[0]
    sep = " -> " if name == "three_rails_in_turn" else " to "
    steps = finding.remedy.replace("take out these plugs, then move each: ", "")
    steps = steps.replace("move the plug from ", "").replace(", then ", "; ").split("; ")
    moves = [tuple(_end(text) for text in step.split(sep)) for step in steps]
    peers = [world.port(world.place(here)).peer for here, _there in moves]
    for here, _there in moves:
        world.unlink(world.place(here))
    for (_here, there), peer in zip(moves, peers, strict=True):
        world.link(world.place(there), peer)
    assert world.judge().findings == []


def _end(text: str):
    words = text.split()
    assert words[1] == "port", text
    return switch_end(words[0], int(words[2]))


def test_json_is_whole() -> None:
    case = build(BASEPOD, ("rail_at_one_lane", "counter_that_was_cleared"), 2)
    verdict = case.world.judge()
    records = records_of(verdict)
    data = json.loads(json_text(verdict_data(verdict, records)))
    assert data["version"] == 1
    assert data["summary"]["cables"] == {
        "planned": 112, "pass": 110, "fail": 1, "not_measured": 1,
    }  # fmt: skip
    finding = data["findings"][0]
    assert finding["kind"] == "width"
    assert finding["measured"] == {"value": 100.0, "unit": "Gb/s"}
    assert finding["threshold"]["value"] == 400
    assert data["not_measured"][0]["status"] == "not_measured"
    assert len(data["records"]) == len(records)
    assert all(record["version"] == 1 for record in data["records"])


@pytest.mark.parametrize("size", ["basepod-12", "superpod-127"])
def test_the_picture_shows_each_cable_that_is_wrong(size: str) -> None:
    case = build(size, ("rails_of_a_node_swapped", "node_absent", "node_renamed"), 2)
    verdict = case.world.judge()
    svg = fabric_svg(verdict, "pod <1>")
    ET.fromstring(svg)
    assert "Fabric pod &lt;1&gt;" in svg
    assert "http://" not in svg.replace("http://www.w3.org/2000/svg", "")
    cells = counted(svg)
    # One of each kind is in the legend.
    assert cells["fail"] == 2 + 1
    # The rails of the renamed node are known by their place alone.
    assert cells["not_measured"] == 8 + 8 + 1
    for number, finding in enumerate(verdict.findings, 1):
        assert f">{number}. {finding.kind} {finding.subject}" in svg


def test_a_large_fabric_is_drawn_by_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible_collections.baremetal.dgx.plugins.module_utils._fabric import (
        picture as _fabric_svg,
    )

    monkeypatch.setattr(_fabric_svg, "_NODES_ONE_BY_ONE", 100)
    case = build("superpod-127", ("cage_of_a_node_dead", "uplink_dark"), 2)
    svg = fabric_svg(case.world.judge())
    ET.fromstring(svg)
    cells = counted(svg)
    # Two rails of a unit, the uplinks of a leaf, and the spine of these.
    assert cells["fail"] == 2 + 1 + 1 + 1
    assert ">1/32<" in svg or ">1/31<" in svg


def test_a_healthy_fabric_is_told_in_one_line() -> None:
    verdict = healthy().judge()
    assert summary(verdict) == "12 nodes, 2 switches: no finding; 112 of 112 cables are right"
    assert counted(fabric_svg(verdict))["fail"] == 1


# plugs in wrong ports


def uplink(small: Small) -> Cable:
    (cable,) = (c for c in small.plan.cables if (c.a, c.b.host) == (switch_end("l0", 11), "s1"))
    return cable


def test_what_a_plug_in_a_wrong_port_costs() -> None:
    small = Small()
    cable = uplink(small)

    def cost() -> Cost:
        return _cost_of(first_look(small.plan, small.sweep).wiring, cable)

    assert cost() == SAME_SWITCHES
    small.link(small.at(cable.a), (small.guid["s2", -1], 30))
    assert cost() == UNEVEN
    small.link(small.at(cable.b), (small.guid["l1", -1], 30))
    assert cost() == UNEVEN
    small.unlink(small.at(cable.a))
    assert cost() == UNEVEN
    small.unlink(small.at(cable.b))
    assert cost() == COSTS[DARK]


@pytest.mark.parametrize(("one", "two"), [("l0", "l1"), ("l0", "s1"), ("l3", "l1")])
def test_of_a_chain_with_a_link_too_many_an_adapter_keeps_its_plug(one: str, two: str) -> None:
    """The plug of n1 is in a free port, that of n2 in the port of n1, a switch in that of n2."""
    small = Small()
    rail = int(one[1])
    small.link(small.at(rail_end("n1", rail)), (small.guid[one, -1], 20))
    small.link(small.at(rail_end("n2", rail)), (small.guid[one, -1], 1))
    small.link((small.guid[one, -1], 2), (small.guid[two, -1], 20))
    verdict = judge_fabric(small.plan, Observation(small.sweep))
    found = {(one.kind, one.subject) for one in verdict.findings + verdict.doubts}
    assert {kind for kind, _subject in found} == {"moved", "unexpected"}
    (subject,) = (subject for kind, subject in found if kind == "unexpected")
    assert subject in (f"port:{one}/2", f"port:{two}/20")
