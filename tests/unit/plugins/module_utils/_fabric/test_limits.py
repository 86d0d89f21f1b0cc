# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judges of a fabric at their limits: the last value that passes, the first that does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from library import fresh
from small_fabric import Small
from world import INTERVAL_S, World, plan_of

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.ask import read_files
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.findings import several
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge import (
    Verdict,
    first_look,
    judge_fabric,
    records_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge_adapters import (
    Identities,
    OwnHca,
    _moved,
    adapters_from_data,
    identities,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge_counters import (
    counter_lines,
    judge_counters,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge_rates import (
    Bandwidth,
    Load,
    bandwidth_lines,
    found_rate,
    judge_rates,
    judge_uplinks,
    load_lines,
    loads,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge_subnet_managers import (
    Managers,
    judge_sms,
    plain_guid,
    sm_line,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.match import Matches
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    CA,
    SWITCH,
    Cable,
    FoundDevice,
    FoundPort,
    Sweep,
    rail_end,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.parse_counters import (
    FoundSm,
    FoundSms,
    Reading,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.wiring import Wiring

BASEPOD = "basepod-12"
SUPERPOD = "superpod-32-of-64"


def healthy(size: str = BASEPOD) -> World:
    world = fresh(size)
    world.start = next(iter(world.key_of.values()))
    return world


def wiring_of(world: World) -> Wiring:
    return first_look(world.plan, world.observe().sweep).wiring


def rails(world: World, count: int) -> list[Cable]:
    """Cables of different nodes, and none of the node that the sweep begins at."""
    nodes = sorted({node for node, _rail in world.plan.hcas})[1:]
    by_end = world.by_end
    own = [[c for c in by_end.values() if c.a.host == node and not c.a.is_switch] for node in nodes]
    return [sorted(own[n % len(nodes)])[n // len(nodes)] for n in range(count)]


def findings_of(verdict: Verdict) -> list[tuple[str, str, str]]:
    return [(f.kind, f.subject, f.status) for f in verdict.findings + verdict.doubts]


# counters


def counted(
    cables: int, counter: str, grown: int, *, before: int = 0, seconds: float = 720.0
) -> list:
    world = healthy()
    wiring = wiring_of(world)
    chosen = rails(world, cables)
    places = [world.place(cable.b) for cable in chosen]
    first = Reading(100.0, {place: {counter: before} for place in places})
    now = Reading(100.0 + seconds, {place: {counter: before + grown} for place in places})
    return list(judge_counters(wiring, set(wiring.good), first, now))


@pytest.mark.parametrize(
    ("counter", "most"),
    [
        ("LinkDownedCounter", 0),
        ("LinkErrorRecoveryCounter", 0),
        ("PortRcvErrors", 10),
        ("LocalLinkIntegrityErrors", 10),
        ("ExcessiveBufferOverrunErrors", 10),
    ],
)
def test_a_counter_may_grow_up_to_its_limit(counter: str, most: int) -> None:
    assert counted(1, counter, most) == []
    (finding,) = counted(1, counter, most + 1)
    assert (finding.kind, finding.status, finding.measured) == ("errors", "fail", most + 1)
    assert f"{counter} grew by {most + 1} at leaf-" in finding.text
    assert "or more" not in finding.text
    again = "replace it when it happens again" in finding.remedy
    assert again == (counter == "LinkDownedCounter")


def test_the_worst_counter_of_a_cable_gives_value_and_remedy() -> None:
    world = healthy()
    wiring, (cable,) = wiring_of(world), rails(world, 1)
    place = world.place(cable.b)
    grown = {"PortRcvErrors": 4000, "LinkDownedCounter": 2}
    (finding,) = judge_counters(wiring, wiring.good, Reading(0.0), Reading(60.0, {place: grown}))
    assert finding.measured == 2
    assert "reseat the cable at both ends, replace it when" in finding.remedy
    assert "LinkDownedCounter grew by 2 " in finding.text
    assert "PortRcvErrors grew by 4000 " in finding.text


def test_the_bit_error_ratio_is_of_the_rate_and_the_time() -> None:
    (finding,) = counted(1, "SymbolErrorCounter", 2880, seconds=720.0)
    assert "(bit error ratio 1.0e-11)" in finding.text
    assert "in 720 s: " in finding.text
    (other,) = counted(1, "PortRcvErrors", 2880)
    assert "ratio" not in other.text


def test_a_slow_link_is_judged_at_the_rate_that_it_has() -> None:
    world = healthy()
    (cable,) = rails(world, 1)
    world.port(world.place(cable.a)).speed = world.port(world.place(cable.b)).speed = "HDR"
    wiring = wiring_of(world)
    now = Reading(720.0, {world.place(cable.b): {"SymbolErrorCounter": 2880}})
    (finding,) = judge_counters(wiring, wiring.good, Reading(0.0), now)
    assert "(bit error ratio 2.0e-11)" in finding.text


def test_a_link_whose_rate_was_not_told_is_judged_at_the_planned_one() -> None:
    world = healthy()
    (cable,) = rails(world, 1)
    for end in (cable.a, cable.b):
        world.port(world.place(end)).speed = None
    sweep = world.observe().sweep
    for end in (cable.a, cable.b):
        guid, number = world.place(end)
        sweep.devices[guid].ports[number].speed = None
    wiring = first_look(world.plan, sweep).wiring
    now = Reading(720.0, {world.place(cable.b): {"SymbolErrorCounter": 2880}})
    (finding,) = judge_counters(wiring, wiring.good, Reading(0.0), now)
    assert "(bit error ratio 1.0e-11)" in finding.text


def test_counters_of_what_is_not_in_the_plan_are_not_told() -> None:
    world = healthy()
    wiring, (cable,) = wiring_of(world), rails(world, 1)
    # In the order of the places what is unknown comes first.
    one = Reading(0.0, {("0" * 16, 1): {"LinkDownedCounter": 9}})
    one.ports["0" * 16, 0] = {"VL15Dropped": 1}
    one.ports[world.place(cable.b)] = {"LinkDownedCounter": 3}
    (line,) = counter_lines(wiring, None, one)
    assert line.startswith("LinkDownedCounter is 3 since it was cleared at leaf-")
    (found,) = judge_counters(wiring, wiring.good, Reading(-60.0), one)
    assert found.measured == 3


@pytest.mark.parametrize("seconds", [0.0, -5.0])
def test_readings_of_one_moment_find_nothing(seconds: float) -> None:
    assert counted(1, "LinkDownedCounter", 9, seconds=seconds) == []


def test_readings_are_judged_from_the_first_second() -> None:
    assert len(counted(1, "LinkDownedCounter", 9, seconds=1.0)) == 1


def test_a_counter_at_its_end_is_found_or_in_doubt() -> None:
    (doubt,) = counted(1, "PortRcvErrors", 5, before=65530)
    assert (doubt.status, "came to its largest value" in doubt.text) == ("not_measured", True)
    (finding,) = counted(1, "PortRcvErrors", 35, before=65500)
    assert finding.status == "fail"
    assert "grew by 35 or more at" in finding.text


def test_a_cable_that_is_not_healthy_is_not_judged_by_its_counters() -> None:
    world = healthy()
    wiring = wiring_of(world)
    one, two = rails(world, 2)
    now = Reading(720.0, {world.place(c.b): {"LinkDownedCounter": 4} for c in (one, two)})
    found = list(judge_counters(wiring, wiring.good - {one}, Reading(0.0), now))
    assert [finding.subject for finding in found] == [two.subject]


@pytest.mark.parametrize(("silent", "one_by_one"), [(1, True), (10, True), (11, False)])
def test_many_ports_without_counters_are_one_cause(silent: int, one_by_one: bool) -> None:
    world = healthy()
    wiring, cables = wiring_of(world), rails(world, silent)
    unread = {world.place(cable.b) for cable in cables}
    for first, now in (
        (Reading(0.0, unread=unread), Reading(720.0)),
        (Reading(0.0), Reading(720.0, unread=unread)),
    ):
        found = list(judge_counters(wiring, wiring.good, first, now))
        assert {finding.status for finding in found} == {"not_measured"}
        wanted = sorted(cable.subject for cable in cables) if one_by_one else ["fabric"]
        assert sorted(finding.subject for finding in found) == wanted
        assert {cable for finding in found for cable in finding.cables} == set(cables)


def test_a_switch_that_gives_no_counters_leaves_all_its_cables_in_doubt() -> None:
    world = healthy()
    wiring = wiring_of(world)
    leaf = world.key_of["leaf-001", -1]
    (found,) = judge_counters(wiring, wiring.good, Reading(0.0), Reading(720.0, unread={(leaf, 0)}))
    assert (found.subject, found.status) == ("fabric", "not_measured")
    assert set(found.cables) == world.of_device["leaf-001"]


@pytest.mark.parametrize("first_is_whole", [True, False])
def test_a_reading_that_is_not_whole_proves_no_cable(first_is_whole: bool) -> None:
    world = healthy()
    wiring = wiring_of(world)
    first, now = Reading(0.0, whole=first_is_whole), Reading(720.0, whole=not first_is_whole)
    (found,) = judge_counters(wiring, wiring.good, first, now)
    assert (found.subject, len(found.cables)) == ("fabric", len(world.plan.cables))


def test_a_row_of_another_counter_proves_nothing_under_thresholds() -> None:
    world = healthy()
    (cable,) = rails(world, 1)
    world.before = {world.place(end): {"PortXmitWait": 5} for end in (cable.a, cable.b)}
    world.after = {world.place(end): {"PortXmitWait": 9} for end in (cable.a, cable.b)}
    texts = world.saved()
    for name in ("ibqueryerrors", "ibqueryerrors-2"):
        texts[name] = texts[name].replace("Thresholds: ", "Thresholds: [LinkDownedCounter = 10]")
    verdict = world.judge_seen(read_files(texts, INTERVAL_S).observation)
    assert verdict.findings == []
    (doubt,) = verdict.doubts
    assert (doubt.kind, doubt.subject) == ("errors", "fabric")
    assert cable in doubt.cables


def test_one_reading_is_not_judged_and_its_totals_are_told() -> None:
    world = healthy()
    wiring, (cable,) = wiring_of(world), rails(world, 1)
    one = Reading(0.0, {world.place(cable.b): {"LinkDownedCounter": 3, "PortXmitWait": 0}})
    for pair in ((one, None), (None, one)):
        assert list(judge_counters(wiring, wiring.good, *pair)) == []
        (line,) = counter_lines(wiring, *pair)
        assert line.startswith("LinkDownedCounter is 3 since it was cleared at leaf-")
    assert list(counter_lines(wiring, None, None)) == []


@pytest.mark.parametrize(("ports", "lines", "more"), [(4, 4, ""), (5, 5, "1"), (7, 5, "3")])
def test_the_ports_with_most_load_are_told(ports: int, lines: int, more: str) -> None:
    world = healthy()
    wiring, cables = wiring_of(world), rails(world, ports)
    now = Reading(720.0, {world.place(c.b): {"PortXmitWait": 10 + n} for n, c in enumerate(cables)})
    messages = list(counter_lines(wiring, Reading(0.0), now))
    assert len(messages) == lines
    assert messages[0].startswith(f"PortXmitWait grew by {9 + ports} at ")
    assert messages[3].startswith(f"PortXmitWait grew by {6 + ports} at ")
    if more:
        assert messages[4] == f"PortXmitWait at {more} more ports"


# rates


def slow(world: World, cables: list[Cable], width: str = "4x", speed: str = "HDR") -> Wiring:
    for cable in cables:
        for end in (cable.a, cable.b):
            port = world.port(world.place(end))
            port.width, port.speed = width, speed
    return wiring_of(world)


@pytest.mark.parametrize(
    ("bad", "valid", "whole"), [(3, 3, False), (4, 8, False), (4, 7, True), (5, 8, True)]
)
def test_most_links_that_are_slow_are_the_fabric(bad: int, valid: int, whole: bool) -> None:
    world = healthy()
    cables = sorted(rails(world, valid), reverse=True)
    wiring = slow(world, cables[:bad])
    found = list(judge_rates(wiring, set(cables)))
    if whole:
        assert [(f.kind, f.subject) for f in found] == [("speed", "fabric")]
        assert set(found[0].cables) == set(cables[:bad])
        assert (found[0].measured, found[0].threshold.value) == (200, 400)
        assert f"{bad} of {valid} links" in found[0].text
        assert "runs at 4x HDR, 200 of 400 Gb/s" in found[0].text
    else:
        assert {f.subject for f in found} == {c.subject for c in cables[:bad]}


@pytest.mark.parametrize(
    ("per_cage", "width", "kind"),
    [(4, "2x", "speed"), (4, "1x", "width"), (4, "4x", "speed"), (2, "2x", "width")],
)
def test_a_port_of_ndr200_has_two_lanes(per_cage: int, width: str, kind: str) -> None:
    small = Small()
    switches = {n: replace(s, ports_per_cage=per_cage) for n, s in small.plan.switches.items()}
    small.plan = replace(small.plan, switches=switches)
    cable = small.plan.cables[0]
    for end in (cable.a, cable.b):
        port = small.port(small.at(end))
        port.width, port.speed = width, "HDR" if width != "4x" else "FDR"
    wiring = first_look(small.plan, small.sweep).wiring
    assert [finding.kind for finding in judge_rates(wiring, wiring.good)] == [kind]


def test_a_device_whose_slow_links_are_those_of_another_hides_no_third_one() -> None:
    small = Small(("n1", "n2", "n3", "n4", "n5", "n6"))
    of = [c for c in small.plan.cables if "l0" in (c.a.host, c.b.host) or c.a.host == "n1"]
    third = [c for c in small.plan.cables if c.b.host == "l3" and c.a.host in ("n2", "n3", "n4")]
    third += [c for c in small.plan.cables if c.a.host == "l3"]
    for cable in small.plan.cables:
        for end in (cable.a, cable.b):
            port = small.port(small.at(end))
            port.width, port.speed = "4x", "HDR" if cable in of + third else "NDR"
    wiring = first_look(small.plan, small.sweep).wiring
    found = [f.subject for f in judge_rates(wiring, wiring.good)]
    assert found == ["switch:l0", "switch:l3", "cable:n1/rail1--l1/1", "cable:n1/rail2--l2/1"]


@pytest.mark.parametrize(("others", "whole"), [(0, False), (5, False), (23, False), (24, True)])
def test_a_switch_with_most_links_of_the_fabric_is_not_the_fabric(others: int, whole: bool) -> None:
    world = healthy()
    of = [c for c in world.plan.cables if c.b.host == "leaf-001" or c.a.host == "leaf-001"]
    rest = sorted((c for c in world.plan.cables if c not in of), key=lambda c: (c.a.rail, c.a))
    assert (len(of), len(rest)) == (64, 48)
    wiring = slow(world, of + rest[:others])
    found = [f.subject for f in judge_rates(wiring, set(world.plan.cables))]
    if whole:
        assert found == ["fabric"]
    else:
        assert found == ["switch:leaf-001", *(c.subject for c in sorted(rest[:others]))]


@pytest.mark.parametrize(
    ("width", "speed", "kind", "rate", "remedy"),
    [
        ("4x", "HDR", "speed", 200, "look at the enabled speeds of both ports"),
        ("2x", "NDR", "width", 200, "lanes are lost: clean and reseat"),
        ("1x", "HDR", "width", 50, "lanes are lost: clean and reseat"),
    ],
)
def test_one_slow_cable(width: str, speed: str, kind: str, rate: int, remedy: str) -> None:
    world = healthy()
    (cable,) = rails(world, 1)
    wiring = slow(world, [cable], width, speed)
    (found,) = judge_rates(wiring, wiring.good)
    assert (found.kind, found.subject, found.measured) == (kind, cable.subject, rate)
    assert found.remedy.startswith(remedy)
    assert f"runs at {width} {speed}, {rate} of 400 Gb/s" in found.text


def test_a_speed_of_an_unknown_name_is_a_matter_of_what_both_ports_are_set_to() -> None:
    world = healthy()
    (cable,) = rails(world, 1)
    wiring = slow(world, [cable], "4x", "HDR")
    wiring.port(cable.a).speed = "Extended"
    (found,) = judge_rates(wiring, wiring.good)
    assert (found.kind, found.measured) == ("speed", 200)
    assert found.remedy.startswith("look at the enabled speeds of both ports")
    assert "runs at 4x Extended, 200 of 400 Gb/s" in found.text


@pytest.mark.parametrize(("left", "text"), [(1, "a cable is right"), (2, "2 cables are right")])
def test_the_right_cables_of_a_node_are_counted(left: int, text: str) -> None:
    world = healthy()
    (cable,) = rails(world, 1)
    for other in sorted(world.of_device[cable.a.host])[left:]:
        world.unplug(other)
    found = {one.subject: one.text for one in records_of(world.judge())}
    assert found[f"cables:{cable.a.host}"] == text


def test_lost_bandwidth_is_a_share_of_what_was_planned() -> None:
    parts = [Bandwidth("rail 0", 1000, 250), Bandwidth("rail 1", 1000, 1000)]
    assert list(bandwidth_lines(parts)) == ["rail 0: 250 of 1000 Gb/s are left, 75 % are lost"]


@pytest.mark.parametrize(
    ("names", "moved"),
    [
        ({0: "mlx5_1", 1: "mlx5_2", 2: "mlx5_3"}, 1),
        ({0: "mlx5_1", 1: "mlx5_2"}, None),
        ({0: "mlx5_1", 1: "mlx5_2", 2: "mlx5_4"}, None),
        ({0: "mlx5_1", 1: "mlx5_2", 2: "ibp3"}, None),
    ],
)
def test_numbers_of_three_rails_that_moved_alike(names: dict[int, str], moved: int | None) -> None:
    planned = {rail: (f"mlx5_rail{rail}", f"mlx5_{rail}") for rail in range(4)}
    assert _moved(planned, names) == moved
    assert _moved({**planned, 3: ("mlx5_rail3",)}, names) is None


def test_a_link_below_a_faster_plan_is_not_a_matter_of_enabled_speeds_if_it_is_narrow() -> None:
    world = healthy()
    (cable,) = rails(world, 1)
    wiring = slow(world, [cable], "2x", "XDR")
    assert list(judge_rates(wiring, wiring.good)) == []
    (found,) = judge_rates(slow(world, [cable], "1x", "XDR"), wiring.good)
    assert (found.kind, found.measured) == ("width", 200)
    assert found.remedy.startswith("lanes are lost")


def test_a_node_whose_links_are_all_slow_is_one_finding() -> None:
    world = healthy()
    own = sorted(world.of_device["dgx-0005"])
    wiring = slow(world, own)
    (found,) = judge_rates(wiring, wiring.good)
    assert (found.kind, found.subject, set(found.cables)) == ("speed", "node:dgx-0005", set(own))
    assert (found.measured, found.threshold.value) == (200, 400)
    # Of three links it is not the device.
    found = list(judge_rates(wiring, set(own[:3]) | wiring.good - set(own)))
    assert {f.subject for f in found} == {c.subject for c in own[:3]}
    # One or two of eight may be right; of more it is the cables.
    wiring = slow(world, own[:2], "4x", "NDR")
    (found,) = judge_rates(wiring, wiring.good)
    assert (found.subject, set(found.cables)) == ("node:dgx-0005", set(own[2:]))
    assert found.text.startswith("6 of 8 links of dgx-0005 run at 4x HDR")
    wiring = slow(world, own[2:3], "4x", "NDR")
    assert {f.subject for f in judge_rates(wiring, wiring.good)} == {c.subject for c in own[3:]}


@pytest.mark.parametrize("place", [0, 1])
def test_of_a_slow_device_the_first_cable_is_measured_at_its_own_rate(place: int) -> None:
    world = healthy()
    own = sorted(world.of_device["dgx-0005"])
    cables = (replace(c, rate_gbps=800) if c == own[place] else c for c in world.plan.cables)
    world.plan = replace(world.plan, cables=tuple(cables))
    wiring = slow(world, own)
    (found,) = judge_rates(wiring, wiring.good)
    planned = (800, 400)[place]
    assert (found.measured, found.threshold.value) == (200, planned)
    assert f"200 of {planned} Gb/s" in found.text
    assert [cable.subject for cable in found.cables] == [cable.subject for cable in own]


def test_four_links_of_a_device_are_enough_and_have_one_form() -> None:
    world = healthy()
    own = sorted(world.of_device["dgx-0005"])
    wiring = slow(world, own, "2x", "NDR")
    others = wiring.good - set(own)
    (found,) = judge_rates(wiring, others | set(own[:4]))
    assert (found.kind, found.subject) == ("width", "node:dgx-0005")
    wiring = slow(world, own[:1], "4x", "HDR")
    found = list(judge_rates(wiring, others | set(own[:4])))
    assert {f.subject for f in found} == {c.subject for c in own[:4]}


def test_a_slow_switch_is_called_a_switch() -> None:
    world = healthy(SUPERPOD)
    own = sorted(world.of_device["leaf-003"])
    wiring = slow(world, own)
    (found,) = judge_rates(wiring, wiring.good)
    assert (found.kind, found.subject, set(found.cables)) == ("speed", "switch:leaf-003", set(own))


def test_a_rate_that_was_not_told_is_not_slow() -> None:
    world = healthy()
    (cable,) = rails(world, 1)
    observed = world.observe()
    for end in (cable.a, cable.b):
        guid, number = world.place(end)
        observed.sweep.devices[guid].ports[number].speed = None
    verdict = judge_fabric(world.plan, observed)
    assert (verdict.findings, verdict.doubts) == ([], [])
    assert verdict.cables[cable][0] == "not_measured"
    assert verdict.counts() == {"pass": 111, "fail": 0, "not_measured": 1}


@pytest.mark.parametrize(
    ("one", "two", "rate"),
    [
        (("4x", "HDR"), ("4x", "HDR"), 200),
        (("4x", None), ("4x", "HDR"), 200),
        ((None, "NDR"), ("4x", "HDR"), 200),
        (("4x", "HDR"), (None, None), 200),
        # Two ends that differ: the first one counts.
        (("4x", "HDR"), ("2x", "HDR"), 200),
        (("2x", "HDR"), ("4x", "HDR"), 100),
        (None, ("4x", "HDR"), 200),
        (("4x", "HDR"), None, 200),
        (("4x", "NDR"), ("4x", "HDR"), None),
        (("4x", None), ("4x", None), None),
        (None, None, None),
    ],
)
def test_the_rate_of_a_cable_is_that_of_the_first_end_that_tells_it(
    one: tuple | None, two: tuple | None, rate: float | None
) -> None:
    small = Small()
    (cable,) = (c for c in small.plan.cables if c.a == rail_end("n1", 0))
    for end, form in ((cable.a, one), (cable.b, two)):
        if form is None:
            small.remove((end.host, end.rail))
        else:
            port = small.port(small.at(end))
            port.width, port.speed = form
    wiring = first_look(small.plan, small.sweep).wiring
    assert (found_rate(wiring, cable) or 400) == (rate or 400)
    found = list(judge_rates(wiring, {cable}))
    assert len(found) == (rate is not None)
    if rate is not None:
        width = one[0] if one and one[0] and one[1] else "4x"
        assert f"runs at {width} HDR, {rate} of 400 Gb/s" in found[0].text


# load


def load(up: int, down: float = 0.0, rate: float = 400.0) -> Load:
    return Load(up_planned=up, up_found=up, down_gbps=down, up_gbps=up * rate)


def test_a_leaf_with_fewer_uplinks_than_most() -> None:
    found = {"a": load(32), "b": load(32), "c": load(31)}
    (short,) = judge_uplinks(found, set(), None)
    assert (short.subject, short.measured, short.threshold.value) == ("switch:c", 31, 32)
    # Half of them is not most; more than the others is not too few.
    assert list(judge_uplinks({"a": load(32), "c": load(31)}, set(), None)) == []
    assert list(judge_uplinks({**found, "c": load(33)}, set(), None)) == []
    assert list(judge_uplinks({}, set(), None)) == []


def test_a_leaf_whose_cables_are_found_otherwise_is_left_alone_and_the_next_is_not() -> None:
    world = healthy(SUPERPOD)
    broken = next(c for c in world.plan.cables if c.a.host == "leaf-001")
    found = {"leaf-001": load(30), "leaf-002": load(31), "leaf-003": load(32), "leaf-004": load(32)}
    found["leaf-005"] = load(32)
    (short,) = judge_uplinks(found, {broken}, None)
    assert short.subject == "switch:leaf-002"


def test_load_at_its_limit_passes() -> None:
    found = {"a": load(10, 8000.0)}
    assert list(judge_uplinks(found, set(), 2.0)) == []
    (above,) = judge_uplinks(found, set(), 1.99)
    assert (above.subject, above.measured, above.threshold.value) == ("switch:a", 2.0, 1.99)
    (above,) = judge_uplinks({"a": load(3, 4000.0)}, set(), 3.0)
    assert above.measured == 3.33
    # Without uplinks that lead on there is no ratio.
    assert list(judge_uplinks({"a": Load(up_planned=2, down_gbps=400.0)}, set(), 0.5)) == []


def test_loads_count_what_is_planned_found_and_how_fast() -> None:
    world = healthy(SUPERPOD)
    ups = sorted(c for c in world.of_device["leaf-003"] if c.a.is_switch)
    downs = sorted(c for c in world.of_device["leaf-003"] if not c.a.is_switch)
    world.unplug(ups[0])
    world.unplug(downs[0])
    wiring = slow(world, [ups[1], downs[1]])
    of = loads(wiring)
    assert set(of) == {n for n, s in world.plan.switches.items() if s.tier == "leaf"}
    here = of["leaf-003"]
    assert (here.up_planned, here.up_found) == (len(ups), len(ups) - 1)
    assert here.up_gbps == 400 * (len(ups) - 1) - 200
    assert here.down_gbps == 400 * (len(downs) - 1) - 200
    assert here.oversubscription == here.down_gbps / here.up_gbps
    assert Load() == Load(0, 0, 0, 0)
    assert Load().oversubscription == 0


def test_a_node_with_the_name_of_a_leaf_is_no_load_of_it() -> None:
    world = healthy(SUPERPOD)
    before = loads(wiring_of(world))["leaf-003"]

    def key(host: str, rail: int) -> tuple[str, int]:
        return ("leaf-003" if host == "dgx-0005" else host, rail)

    world.plan = replace(
        world.plan,
        hcas={key(*one): hca for one, hca in world.plan.hcas.items()},
        cables=tuple(
            replace(c, a=c.a if c.a.is_switch else rail_end(*key(c.a.host, c.a.rail)))
            for c in world.plan.cables
        ),
    )
    after = loads(wiring_of(world))["leaf-003"]
    assert (after.down_planned_gbps, after.up_planned) == (
        before.down_planned_gbps,
        before.up_planned,
    )


def test_the_line_on_lost_uplinks_names_the_spines() -> None:
    world = healthy(SUPERPOD)
    ups = sorted(c for c in world.of_device["leaf-003"] if c.a.is_switch)
    spine = ups[0].b.host
    each = sum(c.b.host == spine for c in ups)
    assert list(load_lines(wiring_of(world), loads(wiring_of(world)))) == []
    world.unplug(ups[0])
    wiring = wiring_of(world)
    (line,) = load_lines(wiring, loads(wiring))
    assert line.startswith(f"leaf-003 has {len(ups) - 1} of {len(ups)} uplinks")
    assert line.endswith(f"short: {spine} {each - 1} of {each}")
    # What hangs on it is none of them, and where there is nothing, there is no ratio.
    world.unplug(next(c for c in sorted(world.of_device["leaf-003"]) if not c.a.is_switch))
    wiring = wiring_of(world)
    (other,) = load_lines(wiring, loads(wiring))
    assert other.endswith(f" to 1 of what hangs on it; short: {spine} {each - 1} of {each}")
    (bare,) = load_lines(wiring, {"leaf-003": Load(up_planned=2, up_found=1)})
    assert bare.startswith("leaf-003 has 1 of 2 uplinks; short: ")


def test_a_leaf_that_is_absent_has_no_line_on_its_uplinks() -> None:
    world = healthy(SUPERPOD)
    (lost, *_rest) = (c for c in sorted(world.of_device["leaf-004"]) if c.a.is_switch)
    world.unplug(lost)
    world.remove(world.key_of["leaf-003", -1])
    wiring = wiring_of(world)
    (line,) = load_lines(wiring, loads(wiring))
    assert line.startswith("leaf-004 has ")


# subnet managers


def managed(*lines: tuple[int, str | None]) -> tuple[Sweep, Matches, FoundSms]:
    """Hosts h1, h2, ... with a manager each: (number, state)."""
    sweep, matches = Sweep(), Matches()
    for number in range(1, 10):
        guid = f"{number:016x}"
        port = FoundPort(1, guid=f"{number + 100:016x}", lid=number)
        sweep.devices[guid] = FoundDevice(guid, CA, f"h{number} mlx5_0", 1, {1: port})
    sms = [FoundSm(number, f"{number:016x}", 0, state) for number, state in lines]
    return sweep, matches, FoundSms(asked=True, sms=sms)


def sm_findings(*lines: tuple[int, str | None], **wanted) -> list[tuple[str, str, str]]:
    nodes = wanted.pop("nodes", ())
    found = judge_sms(*managed(*lines), Managers(**wanted), nodes)
    return [(f.kind, f.subject, f.status) for f in found]


M, S = "MASTER", "STANDBY"


@pytest.mark.parametrize(
    ("lines", "wanted", "expected"),
    [
        ([(1, M), (2, S)], {"hosts": ["h1", "h2"]}, []),
        ([(1, M)], {"hosts": ["h1", "h2"]}, [("standby_missing", "sm:h2", "fail")]),
        ([(1, M), (3, S)], {"hosts": ["h1"]}, [("sm_unexpected", "sm:h3", "fail")]),
        ([(1, S)], {"hosts": ["h1", "h2"]}, [("no_sm", "fabric", "fail")]),
        # Of two masters, the one that is too many is not reported a second time; a standby is.
        ([(1, M), (3, M)], {"hosts": ["h1"]}, [("two_masters", "fabric", "fail")]),
        ([(1, M), (3, M), (4, S)], {"hosts": ["h1"]},
         [("two_masters", "fabric", "fail"), ("sm_unexpected", "sm:h4", "fail")]),
        ([(3, M)], {"hosts": ["h3"]}, []),
        ([(3, M)], {"hosts": ["h1"]},
         [("standby_missing", "sm:h1", "fail"), ("sm_unexpected", "sm:h3", "fail")]),
        ([(1, M), (2, None)], {}, [("two_masters", "fabric", "not_measured")]),
        ([(1, M), (2, M), (3, None)], {}, [("two_masters", "fabric", "fail")]),
        ([(1, None)], {}, [("no_sm", "fabric", "fail")]),
        # With GUIDs.
        ([(1, M), (2, S)], {"guids": ["0x1", "0x2"], "provider": "ufm"}, []),
        ([(1, M)], {"guids": ["0x1", "0x2"], "provider": "ufm"},
         [("standby_missing", "sm:0x0000000000000002", "fail")]),
        ([(1, M), (3, S)], {"guids": ["0x1"], "provider": "ufm"},
         [("sm_unexpected", "sm:h3", "fail")]),
        ([(1, M), (3, M)], {"guids": ["0x1"], "provider": "ufm"},
         [("two_masters", "fabric", "fail")]),
        ([(1, M), (3, M), (4, S)], {"guids": ["0x1"], "provider": "ufm"},
         [("two_masters", "fabric", "fail"), ("sm_unexpected", "sm:h4", "fail")]),
        # The only master is not a second one: that it is not declared is reported.
        ([(3, M)], {"guids": ["0x1"], "provider": "ufm"},
         [("standby_missing", "sm:0x0000000000000001", "fail"),
          ("sm_unexpected", "sm:h3", "fail")]),
        ([(1, S)], {"guids": ["0x1", "0x2"], "provider": "ufm"}, [("no_sm", "fabric", "fail")]),
        # Without GUIDs a manager outside is taken as it is, one on a node is not.
        ([(1, M)], {"provider": "ufm", "nodes": ["h2"]}, []),
        ([(1, M), (2, S)], {"provider": "ufm", "nodes": ["h2"]},
         [("sm_unexpected", "sm:h2", "fail")]),
    ],
)  # fmt: skip
def test_managers(lines: list, wanted: dict, expected: list) -> None:
    assert sm_findings(*lines, **wanted) == expected


@pytest.mark.parametrize(
    ("wanted", "remedy"),
    [
        (Managers(["h1", "h2"]), "start the subnet manager on h1, h2"),
        (Managers(), "start the subnet manager on one host of the fabric"),
        (Managers((), "ufm"), "see that UFM runs and is attached to the fabric"),
        (Managers((), "switch"), "see that the managed switch runs and is attached to the fabric"),
    ],
)
def test_who_is_to_start_without_a_master(wanted: Managers, remedy: str) -> None:
    (found,) = judge_sms(*managed((1, S)), wanted)
    assert (found.kind, found.remedy) == ("no_sm", remedy)


@pytest.mark.parametrize(("partial", "status"), [(False, "fail"), (True, "not_measured")])
def test_of_a_sweep_that_is_not_whole_no_manager_is_missing(partial: bool, status: str) -> None:
    sweep, matches, found = managed((1, M), (3, S))
    sweep.partial = partial
    every = list(judge_sms(sweep, matches, found, Managers(["h1", "h2"])))
    assert [(f.kind, f.status) for f in every] == [
        ("standby_missing", status), ("sm_unexpected", status),
    ]  # fmt: skip


def test_a_manager_without_a_guid_is_not_a_port_without_one() -> None:
    sweep, matches, found = managed()
    sweep.devices[f"{1:016x}"].ports[1].guid = None
    found.sms = [FoundSm(5, None, None, M)]
    assert sm_line(sweep, matches, found) == "subnet managers: h5 master"


def test_of_two_masters_both_are_named_and_no_standby() -> None:
    (found,) = judge_sms(*managed((1, M), (2, S), (3, M)), Managers(["h1", "h2"]))
    assert found.text == "2 subnet managers say that they are master: h1, h3"


def test_a_manager_whose_guid_was_not_read_is_not_unexpected() -> None:
    sweep, matches, found = managed((1, M))
    found.sms.append(FoundSm(3, None, 0, S))
    assert list(judge_sms(sweep, matches, found, Managers((), "ufm", ["0x1"]))) == []


def test_what_was_not_asked_is_not_judged_and_said() -> None:
    sweep, matches, found = managed()
    found.asked = False
    assert list(judge_sms(sweep, matches, found, Managers(["h1"]))) == []
    assert sm_line(sweep, matches, found) == "the subnet managers were not looked for"


def test_the_state_that_a_manager_has_is_said() -> None:
    for wanted in (Managers(["h1"]), Managers((), "ufm", ["0x1"]), Managers((), "ufm")):
        for state, word in ((S, "(STANDBY)"), (None, "(state not known)")):
            found = judge_sms(*managed((1, M), (3, state)), wanted, ["h3"])
            (extra,) = [f for f in found if f.kind == "sm_unexpected"]
            assert f"runs on h3 {word}" in extra.text


def test_the_line_on_the_managers() -> None:
    sweep, matches, found = managed((1, M), (2, None))
    message = "subnet managers: h1 master (priority 0), h2 not known (priority 0)"
    assert sm_line(sweep, matches, found) == message
    assert sm_line(sweep, matches, found, Managers(["h1"])) == message
    assert sm_line(sweep, matches, found, Managers((), "ufm", ["0x1"])) == message
    assert "was not compared" in sm_line(sweep, matches, found, Managers((), "ufm"))
    assert sm_line(sweep, matches, FoundSms(asked=True)) == "subnet managers: none"


def test_a_manager_is_known_by_its_guid_and_only_without_one_by_its_lid() -> None:
    sweep, matches, found = managed()
    sweep.devices["f" * 16] = FoundDevice("f" * 16, SWITCH, "MF0;sw-1:MQM9700/U1", 64, lid=77)
    cases = {
        (5, f"{3:016x}"): "h3",  # of the adapter
        (5, f"{103:016x}"): "h3",  # of its port
        (5, None): "h5",
        (77, None): "sw-1",
        (5, "e" * 16): "LID 5",
        (99, None): "LID 99",
    }
    for (lid, guid), name in cases.items():
        found.sms = [FoundSm(lid, guid, None, M)]
        assert sm_line(sweep, matches, found) == f"subnet managers: {name} master"


def test_guids_are_compared_in_full() -> None:
    assert plain_guid("0xA:b") == "00000000000000ab"
    assert plain_guid("1122:3344:5566:7788") == "1122334455667788"


# what the nodes report


def own(plan, node: str = "dgx-0002") -> list[OwnHca]:
    return [
        OwnHca(f"mlx5_{rail}", hca.pci, (f"{rail + 1:016x}",))
        for (host, rail), hca in plan.hcas.items()
        if host == node
    ]


def test_adapters_are_known_by_their_address() -> None:
    plan = plan_of(BASEPOD)
    found = identities(plan, {"dgx-0002": own(plan), "elsewhere": own(plan)})
    assert found.key_of == {f"{rail + 1:016x}": ("dgx-0002", rail) for rail in range(8)}
    assert (found.absent, found.others, found.counts) == (set(), {}, {"dgx-0002": 8})
    assert found.own == {("dgx-0002", rail): hca for rail, hca in enumerate(own(plan))}
    # What is not of the plan counts for nothing, wherever it stands.
    assert identities(plan, {"elsewhere": own(plan), "dgx-0002": own(plan)}) == found


def test_an_adapter_that_is_no_rail_is_another() -> None:
    plan = plan_of(BASEPOD)
    more = [OwnHca("mlx5_8", "0000:ff:00.0", ("f" * 16,)), OwnHca("mlx5_9", None, ("e" * 16,))]
    found = identities(plan, {"dgx-0002": own(plan) + more})
    # Without an address it may be one of the rails after all.
    assert found.others == {"f" * 16: "dgx-0002 mlx5_8"}


def test_a_rail_is_absent_if_all_addresses_are_known_and_its_own_is_not_among_them() -> None:
    plan = plan_of(BASEPOD)
    rest = own(plan)[1:]
    assert identities(plan, {"dgx-0002": rest}).absent == {("dgx-0002", 0)}
    # An adapter without an address may be it; a node without adapters proves nothing of one.
    unsure = [*rest, OwnHca("mlx5_0", None, ("a" * 16,))]
    assert identities(plan, {"dgx-0002": unsure}).absent == set()
    assert identities(plan, {"dgx-0002": []}).absent == set()


def test_names_of_the_role_prove_an_absent_rail_if_no_adapter_has_a_name_of_the_kernel() -> None:
    plan = plan_of(BASEPOD)
    named = [OwnHca(f"mlx5_rail{rail}", None, (f"{rail + 1:016x}",)) for rail in range(1, 8)]
    assert identities(plan, {"dgx-0002": named}).absent == {("dgx-0002", 0)}
    mixed = [*named, OwnHca("mlx5_0", None, ("a" * 16,))]
    assert identities(plan, {"dgx-0002": mixed}).absent == set()
    foreign = [OwnHca("ibp1", None, ("a" * 16,))]
    assert identities(plan, {"dgx-0002": foreign}).absent == set()


def test_a_guid_of_two_adapters_tells_neither() -> None:
    plan = plan_of(BASEPOD)
    two = own(plan)
    two[1] = OwnHca("mlx5_1", two[1].pci, two[0].guids)
    found = identities(plan, {"dgx-0002": two})
    assert ("dgx-0002", 0) not in found.key_of.values()
    assert ("dgx-0002", 0) not in found.own
    assert len(found.key_of) == 6


def test_a_guid_of_a_rail_and_of_an_adapter_that_is_none_tells_neither() -> None:
    plan = plan_of(BASEPOD)
    (first, *_rest) = own(plan)
    unplanned = OwnHca("mlx5_9", "0000:ff:00.0", first.guids)
    found = identities(
        plan, {"dgx-0002": [first], "dgx-0003": [unplanned, *own(plan, "dgx-0003")[1:]]}
    )
    assert found.key_of.get(first.guids[0]) is None
    assert found.others == {}
    assert ("dgx-0002", 0) not in found.own


def test_an_adapter_whose_guids_were_not_read_is_there() -> None:
    plan = plan_of(BASEPOD)
    silent = OwnHca("mlx5_0", own(plan)[0].pci)
    found = identities(plan, {"dgx-0002": [silent, *own(plan)[1:]]})
    assert found.own["dgx-0002", 0] == silent
    assert found.absent == set()


def test_an_address_decides_before_a_name() -> None:
    plan = plan_of(BASEPOD)
    named = OwnHca("mlx5_rail0", "0000:ff:00.0", ("a" * 16,))
    found = identities(plan, {"dgx-0002": [named, *own(plan)[1:]]})
    assert ("dgx-0002", 0) not in found.own
    assert found.absent == {("dgx-0002", 0)}
    assert found.others == {"a" * 16: "dgx-0002 mlx5_rail0"}


def test_without_a_planned_address_the_names_of_the_kernel_prove_no_absence() -> None:
    plan = plan_of(BASEPOD)
    plan = replace(plan, hcas={key: replace(hca, pci=None) for key, hca in plan.hcas.items()})
    reported = own(plan_of(BASEPOD))[1:]
    assert identities(plan, {"dgx-0002": reported}).absent == set()


def test_what_contradicts_a_rail() -> None:
    key, other = ("n", 0), ("n", 1)
    known = Identities(
        key_of={"a": key, "b": other},
        others={"x": "n mlx5_9"},
        absent={("n", 2)},
        own={key: OwnHca("mlx5_0", guids=("a",)), ("n", 3): OwnHca("mlx5_3")},
    )
    assert not known.contradicts(key, ["a", "zz"])
    assert known.contradicts(key, ["b"])
    assert known.contradicts(key, ["a", "x"])
    assert known.contradicts(("n", 2), ["zz"])
    # A rail of which nothing is known may be what no other rail is.
    for unknown in (("m", 0), ("n", 3)):
        assert not known.contradicts(unknown, ["zz"])
        assert known.contradicts(unknown, ["b"])
        assert known.contradicts(unknown, ["x"])


@pytest.mark.parametrize("data", [None, 5, "mlx5_0", ["mlx5_0"], [{"guids": "0x1"}], [{}], [[]]])
def test_reports_that_are_no_adapters_are_refused(data: object) -> None:
    with pytest.raises(ValueError, match=r"adapters\.n: is not a list of adapters"):
        adapters_from_data({"n": data})


def test_reports_are_read() -> None:
    hcas = [
        {"device": "mlx5_0", "pci": "1B:00.0", "guids": ["0x00A1", "0x0", None, "a1"]},
    ]
    hcas.append({"guids": []})
    assert adapters_from_data({"n": hcas}) == {
        "n": (OwnHca("mlx5_0", "0000:1b:00.0", (f"{0xA1:016x}",)), OwnHca("?", None, ()))
    }


# words


def test_the_fifth_name_is_counted() -> None:
    assert several(["a", "b", "c", "d"]) == "a, b, c, d"
    assert several(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert several([]) == ""
