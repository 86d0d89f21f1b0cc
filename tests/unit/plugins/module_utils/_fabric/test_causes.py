# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which device is which, and what is absent: causes side by side, and each just below its count."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hand import name_all
from library import build, fresh
from small_fabric import UNPLANNED
from world import SWITCH, World, plan_of

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge import (
    OtherClusterError,
    Verdict,
    judge_fabric,
    records_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge_adapters import (
    OwnHca,
    identities,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge_places import judge_names
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.match import match
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    CA,
    Cable,
    FoundDevice,
    plan_from_data,
    plan_to_data,
    rail_end,
    switch_end,
)

BASEPOD = "basepod-12"
SUPERPOD = "superpod-32-of-64"
NO_NAME = "MT4129 ConnectX7   Mellanox Technologies"


def healthy(size: str = BASEPOD) -> World:
    world = fresh(size)
    world.start = world.key_of["dgx-0001", 0]
    return world


def own(world: World, host: str) -> list[Cable]:
    return sorted(world.of_device[host])


def ups(world: World, leaf: str) -> list[Cable]:
    return [c for c in own(world, leaf) if c.a.is_switch]


def call(world: World, key: tuple[str, int], description: str, system: str | None = None) -> None:
    device = world.fabric.devices[world.key_of[key]]
    device.description, device.system_guid = description, system or device.system_guid


def findings_of(verdict: Verdict, *without: str) -> set[tuple[str, str, str]]:
    every = verdict.findings + verdict.doubts
    return {(f.kind, f.subject, f.status) for f in every if f.kind not in without}


def remedy(verdict: Verdict, kind: str, subject: str) -> str:
    every = verdict.findings + verdict.doubts
    (found,) = [f for f in every if (f.kind, f.subject) == (kind, subject)]
    return f"{found.text} | {found.remedy}"


# adapters without names, whose nodes do not answer

NOT_KNOWN = ("identity", "description")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("node_cable_swapped_with_uplink", "swapped"),
        ("rail_in_a_free_port", "moved"),
        ("two_cables_moved_on", "moved"),
        ("node_at_another_place", "moved"),
        ("two_leaves_exchanged", "exchanged"),
    ],
)
def test_what_is_left_over_tells_a_fault_of_adapters_without_names(name: str, kind: str) -> None:
    case = build(SUPERPOD, (name,), 3)
    name_all(case.world, "none")
    verdict = case.world.judge()
    ((found, subject, status),) = findings_of(verdict, *NOT_KNOWN)
    assert (found, status) == (kind, "fail")
    assert {(found, subject)} == case.expected
    (finding,) = [one for one in verdict.findings if one.kind == kind]
    by_elimination = [line for line in finding.evidence if "known by elimination" in line]
    assert bool(by_elimination) == (kind != "exchanged")
    assert verdict.counts()["pass"] <= sum(c.a.is_switch for c in case.world.plan.cables)


@pytest.mark.parametrize(
    ("size", "form"),
    [("superpod-32", "shifted"), (SUPERPOD, "shifted"), (SUPERPOD, "renamed"), (SUPERPOD, "none")],
)
def test_exchanged_leaves_teach_no_names(size: str, form: str) -> None:
    case = build(size, ("two_leaves_exchanged",), 3)
    name_all(case.world, form)
    verdict = case.world.judge()
    assert {(one.kind, one.subject) for one in verdict.findings} - case.expected <= {
        ("renamed", "fabric"),
        ("description", "fabric"),
    }
    assert case.expected <= {(one.kind, one.subject) for one in verdict.findings}


def test_exchanged_spines_keep_no_leaf_from_teaching_names() -> None:
    # Of four spines two are exchanged and one is silent: no uplink is in its own port.
    world = healthy("superpod-32")
    for name, other in (("spine-002", "spine-004"), ("spine-004", "spine-002")):
        call(world, (name, -1), f"MF0;{other}:MQM9700/U1")
    world.silent.add(world.key_of["spine-001", -1])
    name_all(world, "shifted")
    verdict = world.judge()
    assert findings_of(verdict, "no_sm") == {
        ("exchanged", "switch:spine-002", "fail"),
        ("silent", "switch:spine-001", "fail"),
        ("renamed", "fabric", "fail"),
    }


def test_numbers_of_most_adapters_together_show_what_no_rail_shows_alone() -> None:
    world = healthy()
    nodes = sorted({node for node, _rail in world.plan.hcas})
    # Each rail has another name on five of twelve nodes.
    for index, node in enumerate(nodes):
        for rail in range(8):
            odd = index < 4
            call(world, (node, rail), f"{node} mlx5_{rail + (20 + index if odd else 2)}")
    verdict = world.judge()
    assert not [one for one in verdict.findings if one.kind in ("moved", "swapped", "exchanged")]
    assert verdict.counts()["fail"] == 0
    assert verdict.counts()["pass"] >= 8 * 8


def test_a_name_that_two_nodes_have_proves_no_cable_of_either() -> None:
    world = healthy()
    for rail in range(8):
        call(world, ("dgx-0005", rail), f"dgx-0006 mlx5_rail{rail}")
    verdict = world.judge()
    doubts = {one.subject: one for one in verdict.doubts if one.kind == "identity"}
    assert set(doubts) == {"node:dgx-0005", "node:dgx-0006"}
    assert "known by place alone" in doubts["node:dgx-0005"].text
    assert "a name that another device has, too" in doubts["node:dgx-0006"].text
    of_two = own(world, "dgx-0005") + own(world, "dgx-0006")
    assert {verdict.cables[cable][0] for cable in of_two} == {"not_measured"}
    assert verdict.counts() == {"pass": 112 - 16, "fail": 0, "not_measured": 16}
    # With their GUIDs they are known.
    world.ask_nodes()
    assert world.judge().counts()["pass"] == 112


def test_an_adapter_without_a_name_may_be_a_rail_that_is_lost() -> None:
    world = healthy(SUPERPOD)
    for cable in own(world, "leaf-001")[1:3]:
        world.remove(world.key_of[cable.a.host, cable.a.rail])
    leaves = [cable.b.host for cable in own(world, "dgx-0003")]
    for number, leaf in enumerate(leaves[1:3]):
        guid = f"060000000000000{number}"
        world.add(guid, CA, NO_NAME)
        world.link((guid, 1), world.place(world.free_ports(leaf)[0]))
    strays = ("unexpected", "device:unnamed")
    assert (*strays, "not_measured") in findings_of(world.judge())
    guid = "0600000000000009"
    world.add(guid, CA, NO_NAME)
    world.link((guid, 1), world.place(world.free_ports(leaves[4])[0]))
    # One of three must be another.
    assert (*strays, "fail") in findings_of(world.judge())


def test_a_lost_rail_may_be_in_the_place_of_another_without_a_name() -> None:
    world = healthy()
    world.remove(world.key_of["dgx-0005", 2])
    name_all(world, "none")
    for rail in range(8):
        world.remove(world.key_of["dgx-0007", rail])
    verdict = world.judge()
    texts = {one.kind: one.text for one in verdict.findings if one.kind not in NOT_KNOWN}
    assert sorted(texts) == ["missing", "node_absent"]
    assert all("one of 87 adapters" in text for text in texts.values())


# an upper switch that collects losses


@pytest.mark.parametrize(
    ("here", "leaves", "others", "found"),
    [
        # By chance all of four are at one of eight spines in one of 512 fabrics, five in 4,096.
        (4, 4, 0, False),
        (5, 5, 0, True),
        (5, 4, 0, True),
        (5, 3, 0, False),
        (5, 5, 2, False),
        (6, 6, 2, True),
        (6, 6, 9, False),
    ],
)
def test_a_spine_that_has_more_of_the_losses_than_chance_gives_it(
    here: int, leaves: int, others: int, found: bool
) -> None:
    world = healthy(SUPERPOD)
    spines = [f"spine-{number:03d}" for number in (3, 1, 2, 4, 5, 6, 7, 8)]
    # The cables of a trunk are two cages: one cable of each, from one leaf after another.
    of = {
        spine: sorted((c for c in own(world, spine) if c.a.port % 2), key=lambda c: (c.a.port, c.a))
        for spine in spines
    }
    names = sorted({cable.a.host for cable in of[spines[0]]})
    lost = [c for c in of[spines[0]] if c.a.host in names[:leaves]][:here]
    for number in range(others):
        lost.append(of[spines[1 + number % 7]][-1 - number // 7])
    for cable in lost:
        world.unplug(cable)
    verdict = world.judge()
    dark = {("dark", c.subject, "fail") for c in (lost[here:] if found else lost)}
    assert findings_of(verdict) == dark | (
        {("ports", "switch:spine-003", "fail")} if found else set()
    )
    for finding in verdict.findings:
        if finding.kind == "ports":
            assert set(finding.cables) == set(lost[:here])
            assert finding.cost.severity == "major"
            assert f"of {here + others} losses" in finding.text
            assert finding.measured < finding.threshold.value == 0.001
            assert f"as by chance one of {1 / finding.measured:.0f} fabrics would" in finding.text


def lose(world: World, spine: str, count: int, first: int) -> list[Cable]:
    """Take so many cables from a spine, of one leaf each, none in a cage with another."""
    cables = [c for c in own(world, spine) if c.a.port % 2]
    leaves = sorted({cable.a.host for cable in cables})
    lost = [next(c for c in cables if c.a.host == leaf) for leaf in leaves[first : first + count]]
    for cable in lost:
        world.unplug(cable)
    return lost


def collectors(world: World) -> set[str]:
    return {one.subject for one in world.judge().findings if one.kind == "ports"}


def test_two_spines_that_collect_losses_do_not_hide_each_other() -> None:
    world = healthy(SUPERPOD)
    # Alone: six of thirteen losses at one of eight spines, by chance in one of 52 fabrics.
    lost = lose(world, "spine-003", 6, 0) + lose(world, "spine-005", 6, 4)
    (other,) = lose(world, "spine-008", 1, 12)
    assert collectors(world) == {"switch:spine-003", "switch:spine-005"}
    verdict = world.judge()
    ports = [one for one in verdict.findings if one.kind == "ports"]
    assert {cable for one in ports for cable in one.cables} == {*lost}
    assert all("of 7 losses below its tier" in one.text for one in ports)
    assert all("it has 6" in one.text for one in ports)
    assert ("dark", other.subject, "fail") in findings_of(verdict)


def test_a_second_spine_needs_as_much_as_a_first() -> None:
    world = healthy(SUPERPOD)
    lose(world, "spine-003", 7, 0)
    # Of the three that the other leaves: all at one spine, from three leaves.
    lose(world, "spine-005", 3, 4)
    assert collectors(world) == {"switch:spine-003"}
    world = healthy(SUPERPOD)
    lose(world, "spine-003", 9, 0)
    lose(world, "spine-005", 4, 4)
    lose(world, "spine-006", 2, 9)
    assert collectors(world) == {"switch:spine-003"}


def test_a_cage_that_is_lost_whole_does_not_count_against_a_spine() -> None:
    world = healthy(SUPERPOD)
    lose(world, "spine-003", 6, 0)
    lose(world, "spine-008", 1, 12)
    lose(world, "spine-007", 1, 13)
    assert collectors(world) == {"switch:spine-003"}
    lose(world, "spine-006", 1, 14)
    assert not collectors(world)
    cage = own(world, "leaf-011")
    (first,) = [c for c in cage if c.a.is_switch and c.b.host == "spine-006"][:1]
    world = healthy(SUPERPOD)
    lose(world, "spine-003", 6, 0)
    lose(world, "spine-008", 1, 12)
    for cable in world.near[first]:
        world.unplug(cable)
    assert collectors(world) == {"switch:spine-003"}


@pytest.mark.parametrize(
    ("rails", "expected"),
    [
        # A node with rails 0 to 3 on the leaf that is gone: is it the node, or its last cage?
        (range(4, 8), "node_absent"),
        (range(4, 6), "cage"),
    ],
)
def test_what_a_leaf_does_not_explain_of_a_node_may_be_one_transceiver(
    rails: range, expected: str
) -> None:
    world = healthy()
    gone = {("dgx-0005", rail) for rail in range(8) if rail >= 4 and rail not in rails}
    world.plan = replace(
        world.plan,
        hcas={
            key: replace(hca, cage="OSFP0" if key[1] in (4, 5) else hca.cage)
            for key, hca in world.plan.hcas.items()
            if key not in gone
        },
        cables=tuple(c for c in world.plan.cables if (c.a.host, c.a.rail) not in gone),
    )
    for rail in range(4, 8):
        world.remove(world.key_of["dgx-0005", rail])
    world.silent.add(world.key_of["leaf-001", -1])
    world.start = world.key_of["dgx-0001", 5]
    kinds = {one.kind for one in world.judge().findings}
    assert kinds & {"node_absent", "cage", "missing"} == {expected}


# a director, whose chips all have its name


@pytest.mark.parametrize("name", ["uplink_dark", "uplinks_of_two_leaves_swapped", "spine_absent"])
def test_chips_of_a_director_are_known_by_their_neighbours(name: str) -> None:
    case = build(SUPERPOD, (name,), 2)
    for spine, switch in case.world.plan.switches.items():
        key = (spine, -1)
        if switch.tier == "spine" and case.world.key_of[key] in case.world.fabric.devices:
            call(case.world, key, "MF0;director-1:CS9500/U1", "0c42a103009f64b2")
    verdict = case.world.judge()
    assert {(one.kind, one.subject) for one in verdict.findings} == case.expected
    assert verdict.doubts == []
    # A single switch with another name has the wrong one, and so has one with a planned name.
    world = healthy(SUPERPOD)
    call(world, ("spine-002", -1), "MF0;director-1:CS9500/U1")
    call(world, ("spine-003", -1), "MF0;spine-004:CS9500/U1")
    assert findings_of(world.judge()) == {
        ("description", "switch:spine-002", "fail"), ("description", "switch:spine-003", "fail"),
    }  # fmt: skip
    # Two machines with one foreign name are not a director.
    world = healthy(SUPERPOD)
    for number, system in ((2, "0c42a103009f64b2"), (3, "0c42a103009f64d2")):
        call(world, (f"spine-00{number}", -1), "MF0;old-spine:MQM9700/U1", system)
    assert findings_of(world.judge()) == {
        ("description", "switch:spine-002", "fail"), ("description", "switch:spine-003", "fail"),
    }  # fmt: skip


# what is absent


def test_two_nodes_that_are_absent_are_two_findings_and_a_single_rail_is_none() -> None:
    world = healthy()
    for node in ("dgx-0004", "dgx-0006"):
        for cable in own(world, node):
            world.remove(world.key_of[cable.a.host, cable.a.rail])
    (lost, *_rest) = own(world, "dgx-0005")
    world.remove(world.key_of[lost.a.host, lost.a.rail])
    verdict = world.judge()
    assert findings_of(verdict) == {
        ("node_absent", "node:dgx-0004", "fail"),
        ("node_absent", "node:dgx-0006", "fail"),
        ("missing", lost.subject, "fail"),
    }
    assert "none of its 8 rails" in remedy(verdict, "node_absent", "node:dgx-0004")
    assert verdict.counts() == {"pass": 112 - 17, "fail": 1, "not_measured": 16}


def few_rails(world: World, node: str, rails: int) -> None:
    """Let the plan have only so many rails of a node, and the fabric none of them."""
    gone = {(node, rail) for rail in range(rails, 8)}
    world.plan = replace(
        world.plan,
        hcas={key: hca for key, hca in world.plan.hcas.items() if key not in gone},
        cables=tuple(c for c in world.plan.cables if (c.a.host, c.a.rail) not in gone),
    )
    for rail in range(8):
        world.remove(world.key_of[node, rail])


@pytest.mark.parametrize(
    ("rails", "expected"),
    [(2, {("node_absent", "node:dgx-0005")}), (1, {("missing", "cable:dgx-0005/rail0--{leaf}")})],
)
def test_a_node_is_absent_from_two_rails_on(rails: int, expected: set) -> None:
    world = healthy()
    leaf = world.by_end[rail_end("dgx-0005", 0)].b
    few_rails(world, "dgx-0005", rails)
    found = {(f.kind, f.subject) for f in world.judge().findings}
    assert found == {(kind, subject.format(leaf=leaf)) for kind, subject in expected}


def test_an_absent_node_is_told_by_what_the_node_itself_reports() -> None:
    world = healthy()
    nodes = ("dgx-0004", "dgx-0005", "dgx-0006", "dgx-0007")
    world.ask_nodes("dgx-0005")  # before its links went
    for node in nodes:
        for rail in range(8):
            world.unlink(world.place(rail_end(node, rail)))
    world.adapters["dgx-0006"] = []
    hcas = [{"device": "mlx5_0", "pci": "0000:ff:00.0", "guids": ["0xabc"]}]
    world.adapters["dgx-0007"] = hcas
    verdict = world.judge()
    assert {s for _k, s, _status in findings_of(verdict)} == {f"node:{node}" for node in nodes}
    result = {node: remedy(verdict, "node_absent", f"node:{node}") for node in nodes}
    assert "has power, has booted" in result["dgx-0004"]
    assert "itself answers" not in result["dgx-0004"]
    assert "reports all of these adapters" in result["dgx-0005"]
    for node in ("dgx-0006", "dgx-0007"):
        assert "sees none of their adapters" in result[node]
        assert f"on {node}: look for the adapters with lspci" in result[node]


@pytest.mark.parametrize("silent", [2, 7, 8])
def test_a_node_is_silent_as_a_whole_if_no_rail_answers(silent: int) -> None:
    world = healthy()
    world.silent = {world.key_of["dgx-0005", rail] for rail in range(silent)}
    other = own(world, "dgx-0007")[3]
    world.silent.add(world.key_of["dgx-0007", other.a.rail])
    rails = {("silent", f"hca:dgx-0005/rail{rail}", "fail") for rail in range(silent)}
    whole = {("silent", "node:dgx-0005", "fail")}
    last = {("silent", f"hca:dgx-0007/rail{other.a.rail}", "fail")}
    verdict = world.judge()
    assert findings_of(verdict) == (whole if silent == 8 else rails) | last
    assert verdict.counts()["not_measured"] == silent + 1


def test_silent_switches_and_what_follows_them() -> None:
    world = healthy(SUPERPOD)
    world.silent = {world.key_of["spine-001", -1], world.key_of["dgx-0004", 2]}
    verdict = world.judge()
    assert findings_of(verdict) == {
        ("silent", "switch:spine-001", "fail"),
        ("silent", "hca:dgx-0004/rail2", "fail"),
    }
    assert {verdict.cables[c][0] for c in own(world, "spine-001")} == {"not_measured"}


def test_half_of_the_switches_are_lost_one_by_one_and_more_are_the_fabric() -> None:
    world = healthy()
    world.remove(world.key_of["leaf-002", -1])
    assert findings_of(world.judge(), "no_sm", "standby_missing") == {
        ("switch_absent", "switch:leaf-002", "fail")
    }
    world = healthy(SUPERPOD)
    total = len(world.plan.switches)
    for name in [n for n in world.plan.switches if n.startswith("spine")]:
        world.remove(world.key_of[name, -1])
    world.sms = {"dgx-0001": "MASTER"}  # the standby is out of reach, too
    verdict = world.judge()
    assert findings_of(verdict, "standby_missing") == {("split", "fabric", "fail")}
    # Behind the spines every leaf is out of reach, too, but that of the sweep's own rail.
    assert f"{total - 1} of {total} switches" in remedy(verdict, "split", "fabric")


def test_an_absent_spine_leaves_its_cables_not_measured() -> None:
    world = healthy(SUPERPOD)
    for name in ("spine-002", "leaf-005"):
        world.remove(world.key_of[name, -1])
    verdict = world.judge()
    assert findings_of(verdict) == {
        ("switch_absent", "switch:spine-002", "fail"),
        ("switch_absent", "switch:leaf-005", "fail"),
    }
    result = remedy(verdict, "switch_absent", "switch:spine-002")
    assert result.startswith("spine spine-002 is not in the fabric; its ")
    gone = world.of_device["spine-002"] | world.of_device["leaf-005"]
    assert {verdict.cables[c][0] for c in gone} == {"not_measured"}
    assert verdict.counts()["pass"] == len(world.plan.cables) - len(gone)


# cages


def cage_of(world: World, node: str) -> list[Cable]:
    cage = world.plan.hcas[node, 0].cage
    return [c for c in own(world, node) if world.plan.hcas[node, c.a.rail].cage == cage]


def test_both_links_of_a_cage_are_one_finding_and_one_of_them_is_a_cable() -> None:
    world = healthy()
    both, (single, _kept) = cage_of(world, "dgx-0004"), cage_of(world, "dgx-0006")
    more = cage_of(world, "dgx-0008")
    for cable in (*both, *more, single):
        world.unplug(cable)
    verdict = world.judge()
    cages = {n: world.plan.hcas[n, 0].cage for n in ("dgx-0004", "dgx-0008")}
    assert findings_of(verdict) == {
        ("cage", f"cage:dgx-0004/{cages['dgx-0004']}", "fail"),
        ("cage", f"cage:dgx-0008/{cages['dgx-0008']}", "fail"),
        ("missing", single.subject, "fail"),
    }
    first = next(f for f in verdict.findings if f.subject.startswith("cage:dgx-0004"))
    assert set(first.cables) == set(both)


def test_without_a_known_cage_of_the_node_the_cage_of_the_switch_is_to_blame() -> None:
    world = healthy()
    both = cage_of(world, "dgx-0004")
    rails = {(c.a.host, c.a.rail) for c in both}
    for cable in both:
        world.unplug(cable)
    hcas = {k: replace(h, cage=None) if k in rails else h for k, h in world.plan.hcas.items()}
    world.plan = replace(world.plan, hcas=hcas)
    leaf = both[0].b
    cage = f"cage:{leaf.host}/{(leaf.port + 1) // 2}"
    assert findings_of(world.judge()) == {("cage", cage, "fail")}


def twins(world: World, leaf: str) -> list[tuple[Cable, Cable]]:
    """Pairs of uplinks in one cage of a leaf, that do not share a cage above."""
    found = []
    for cable in ups(world, leaf):
        if cable.a.port % 2:
            other = world.by_end.get(switch_end(leaf, cable.a.port + 1))
            if other is not None and other.a.is_switch:
                found.append((cable, other))
    return found


def test_a_cage_of_a_switch() -> None:
    world = healthy(SUPERPOD)
    one, two, three = twins(world, "leaf-003")[:3]
    for cable in (*one, *three, two[0]):
        world.unplug(cable)
    verdict = world.judge()
    expected = {("dark", two[0].subject, "fail")}
    for pair in (one, three):
        expected.add(("cage", f"cage:leaf-003/{(pair[0].a.port + 1) // 2}", "fail"))
    assert findings_of(verdict) == expected
    text = remedy(verdict, "cage", f"cage:leaf-003/{(one[0].a.port + 1) // 2}")
    assert f"(ports {one[0].a.port} and {one[0].a.port + 1}) are gone" in text


def test_the_only_planned_link_of_a_cage_is_a_cable() -> None:
    world = healthy(SUPERPOD)
    one = twins(world, "leaf-003")[0]
    world.unplug(one[0])
    world.unplug(one[1])
    world.plan = replace(world.plan, cables=tuple(c for c in world.plan.cables if c != one[1]))
    # What a broken cable explains is not reported for its leaf once more.
    assert findings_of(world.judge()) == {("dark", one[0].subject, "fail")}


def test_an_unlinked_cable_is_told_by_what_its_ports_and_its_node_say() -> None:
    world = healthy()
    disabled, plain, seen = (own(world, f"dgx-000{n}")[1] for n in (4, 5, 6))
    world.ask_nodes("dgx-0006")
    for cable in (disabled, plain, seen):
        world.unplug(cable)
    world.disabled.add(world.place(disabled.b))
    verdict = world.judge()
    assert findings_of(verdict) == {("missing", c.subject, "fail") for c in (disabled, plain, seen)}
    assert "is disabled | unless it was disabled" in remedy(verdict, "missing", disabled.subject)
    assert "it shows nowhere else" in remedy(verdict, "missing", plain.subject)
    assert "does ib_info show" in remedy(verdict, "missing", plain.subject)
    assert "itself sees this adapter (mlx5_7)" in remedy(verdict, "missing", seen.subject)


def test_a_dark_uplink_is_the_cable_whatever_the_nodes_report() -> None:
    world = healthy(SUPERPOD)
    cable = ups(world, "leaf-003")[0]
    world.unplug(cable)
    world.ask_nodes()
    text = remedy(world.judge(), "dark", cable.subject)
    assert "though both devices are in the fabric | plug in or reseat" in text


def test_ports_that_say_nothing_prove_no_absence_in_a_disturbed_sweep() -> None:
    for disturbed, state, status in (
        (False, None, "fail"), (True, None, "not_measured"), (True, "Down", "fail"),
    ):  # fmt: skip
        world = healthy()
        cable = own(world, "dgx-0005")[2]
        world.unplug(cable)
        observed = world.observe()
        if disturbed:
            observed.sweep.complaints.append("ibnetdiscover says: 'what?'")
        guid, number = world.place(cable.b)
        port = observed.sweep.devices[guid].ports[number]
        port.state = port.physical_state = state
        verdict = judge_fabric(world.plan, observed, world.wanted)
        assert findings_of(verdict) == {("missing", cable.subject, status)}


def test_a_port_that_is_disabled_has_nothing_silent_behind_it() -> None:
    for physical, kind in (("LinkUp", "silent"), ("Disabled", "missing")):
        world = healthy()
        cable = own(world, "dgx-0005")[2]
        world.unplug(cable)
        observed = world.observe()
        guid, number = world.place(cable.b)
        port = observed.sweep.devices[guid].ports[number]
        port.state, port.physical_state = "Init", physical
        verdict = judge_fabric(world.plan, observed, world.wanted)
        assert {item[0] for item in findings_of(verdict)} == {kind}


def test_two_adapters_that_are_gone_from_their_nodes() -> None:
    world = healthy()
    for node in ("dgx-0004", "dgx-0006"):
        world.remove(world.key_of[node, 3])
        world.gone.add((node, 3))
    world.unplug(own(world, "dgx-0007")[3])
    world.ask_nodes("dgx-0004", "dgx-0006")
    verdict = world.judge()
    assert findings_of(verdict) == {
        ("hca_absent", "hca:dgx-0004/rail3", "fail"),
        ("hca_absent", "hca:dgx-0006/rail3", "fail"),
        ("missing", own(world, "dgx-0007")[3].subject, "fail"),
    }
    assert "itself does not see the adapter of rail 3" in remedy(
        verdict, "hca_absent", "hca:dgx-0004/rail3"
    )


# who is who


def test_rails_without_names_are_known_by_place_and_not_proved() -> None:
    world = healthy()
    for rail in (1, 4):
        call(world, ("dgx-0004", rail), NO_NAME)
    verdict = world.judge()
    expected = set()
    for rail in (1, 4):
        expected.add(("description", f"hca:dgx-0004/rail{rail}", "fail"))
        expected.add(("identity", f"hca:dgx-0004/rail{rail}", "not_measured"))
    assert findings_of(verdict) == expected
    assert verdict.counts() == {"pass": 110, "fail": 0, "not_measured": 2}


@pytest.mark.parametrize("rails", [7, 8])
def test_a_node_without_names_is_one_finding_if_all_its_rails_are(rails: int) -> None:
    world = healthy()
    for rail in range(rails):
        call(world, ("dgx-0004", rail), NO_NAME)
    kinds = {(kind, subject) for kind, subject, _status in findings_of(world.judge())}
    if rails == 8:
        assert kinds == {("description", "node:dgx-0004"), ("identity", "node:dgx-0004")}
    else:
        assert len(kinds) == 14
        assert ("identity", "hca:dgx-0004/rail6") in kinds


@pytest.mark.parametrize(("rails", "subject"), [(1, "hca:dgx-0004/rail0"), (2, "node:dgx-0004")])
def test_a_node_has_no_name_as_a_whole_from_two_rails_on(rails: int, subject: str) -> None:
    world = healthy()
    for rail in range(rails, 8):
        world.remove(world.key_of["dgx-0004", rail])
    for rail in range(rails):
        call(world, ("dgx-0004", rail), NO_NAME)
    found = {s for kind, s, _status in findings_of(world.judge()) if kind == "description"}
    assert found == {subject}


def test_the_names_of_nodes_are_judged_also_if_they_sort_after_those_of_switches() -> None:
    text = json.dumps(plan_to_data(plan_of(BASEPOD))).replace("dgx-", "node-")
    world = World.of(plan_from_data(json.loads(text)))
    world.start = world.key_of["node-0001", 0]
    assert findings_of(world.judge()) == set()
    call(world, ("node-0004", 1), NO_NAME)
    assert findings_of(world.judge(), "identity") == {
        ("description", "hca:node-0004/rail1", "fail")
    }


@pytest.mark.parametrize("count", [2, 6, 7])
@pytest.mark.parametrize("form", ["nameless", "foreign device"])
def test_most_nodes_are_the_fabric(count: int, form: str) -> None:
    world = healthy()
    nodes = sorted({node for node, _rail in world.plan.hcas})[1 : count + 1]
    for node in nodes:
        for rail in range(8):
            call(world, (node, rail), NO_NAME if form == "nameless" else f"{node} ibp{rail}s0")
    verdict = world.judge()
    found = findings_of(verdict)
    kind = "description" if form == "nameless" else "renamed"
    if (form, count) == ("nameless", 7):
        text = remedy(verdict, "description", "fabric")
        assert text.startswith("7 of 12 nodes are not named as planned: ")
        assert f"{nodes[0]} shows nothing" in text
    subjects = {"fabric"} if count == 7 else {f"node:{node}" for node in nodes}
    assert found == {(kind, s, "fail") for s in subjects} | {
        ("identity", s, "not_measured") for s in subjects
    }


def test_most_of_two_nodes_are_not_the_fabric() -> None:
    world = healthy()
    kept = {"dgx-0001", "dgx-0002", "dgx-0003"}
    world.plan = replace(
        world.plan,
        hcas={key: hca for key, hca in world.plan.hcas.items() if key[0] in kept},
        cables=tuple(c for c in world.plan.cables if c.a.host in kept or c.a.is_switch),
    )
    for node, rail in list(world.key_of):
        if rail >= 0 and node not in kept:
            world.remove(world.key_of[node, rail])
    world.options, world.sms = {}, {}
    for count, subjects in ((2, {"node:dgx-0002", "node:dgx-0003"}), (3, {"fabric"})):
        for node in sorted(kept)[3 - count :]:
            for rail in range(8):
                call(world, (node, rail), NO_NAME)
        found = {s for kind, s, _status in findings_of(world.judge()) if kind == "description"}
        assert found == subjects
    for count, subjects in ((2, {"node:dgx-0002", "node:dgx-0003"}), (3, {"fabric"})):
        for number, node in enumerate(sorted(kept)):
            name = "mlx5_rail" if number < 3 - count else "ib"
            for rail in range(8):
                call(world, (node, rail), f"{node} {name}{rail}")
        found = {s for kind, s, _status in findings_of(world.judge()) if kind == "renamed"}
        assert found == subjects


def test_two_nodes_with_each_other_s_names_for_some_rails() -> None:
    world = healthy()
    for rail in range(8):
        call(world, ("dgx-0004", rail), f"rescue mlx5_rail{rail}")
    call(world, ("dgx-0006", 2), "stray mlx5_rail2")
    verdict = world.judge()
    assert ("description", "node:dgx-0004", "fail") in findings_of(verdict)
    text = remedy(verdict, "description", "node:dgx-0004")
    assert "dgx-0004 says that it is rescue" in text
    # An adapter that has the name of a host got it from the service, which therefore runs.
    assert "rdma-ndd" not in text


def test_a_node_that_does_not_say_its_name_may_lack_the_service_that_does() -> None:
    world = healthy()
    for rail in range(8):
        call(world, ("dgx-0004", rail), NO_NAME)
    text = remedy(world.judge(), "description", "node:dgx-0004")
    assert text == (
        "dgx-0004 does not say its name | set its name to dgx-0004 with hostnamectl, and see that "
        "rdma-ndd.service runs"
    )


def test_a_node_of_two_foreign_names_is_told_rail_by_rail() -> None:
    world = healthy()
    for rail in range(8):
        call(world, ("dgx-0004", rail), NO_NAME if rail % 2 else "localhost mlx5_0")
    call(world, ("dgx-0004", 0), "dgx-0004 mlx5_rail0")
    found = {s for kind, s, _status in findings_of(world.judge()) if kind == "description"}
    assert found == {f"hca:dgx-0004/rail{rail}" for rail in range(1, 8)}
    # Even if no rail has the right one.
    for rail in range(5):
        call(world, ("dgx-0004", rail), f"rescue mlx5_rail{rail}")
    found = {s for kind, s, _status in findings_of(world.judge()) if kind == "description"}
    assert found == {f"hca:dgx-0004/rail{rail}" for rail in range(8)}


@pytest.mark.parametrize(("count", "whole"), [(2, False), (3, True)])
def test_switches_with_other_names(count: int, whole: bool) -> None:
    world = healthy(SUPERPOD)
    spines = [n for n in world.plan.switches if n.startswith("spine")][:count]
    for name in spines:
        call(world, (name, -1), f"MF0;old-{name}:MQM9700/U1")
    verdict = world.judge()
    assert {item[:2] for item in findings_of(verdict)} == {
        ("description", f"switch:{n}") for n in spines
    }
    assert verdict.counts()["not_measured"] == 0


def test_switches_are_exchanged_and_others_stay_in_place() -> None:
    world = healthy(SUPERPOD)
    for name, other in (("spine-001", "spine-003"), ("spine-003", "spine-001")):
        call(world, (name, -1), f"MF0;{other}:MQM9700/U1")
    for name, other in zip(
        ("leaf-001", "leaf-002", "leaf-003"), ("leaf-002", "leaf-003", "leaf-001"), strict=True
    ):
        call(world, (name, -1), f"MF0;{other}:MQM9700/U1")
    verdict = world.judge()
    assert findings_of(verdict) == {
        ("exchanged", "switch:spine-001", "fail"),
        ("exchanged", "switch:leaf-001", "fail"),
    }
    text = remedy(verdict, "exchanged", "switch:leaf-001")
    assert text.startswith(
        "3 switches are exchanged in turn: leaf-001 is where leaf-003 belongs, "
        "leaf-003 is where leaf-002 belongs, leaf-002 is where leaf-001 belongs"
    )
    assert "give them their own names" in text
    assert "give them their own names" in remedy(verdict, "exchanged", "switch:spine-001")


@pytest.mark.parametrize(("moved", "whole"), [(5, False), (6, True), (7, True), (8, True)])
def test_a_node_is_exchanged_if_three_quarters_of_its_rails_are(moved: int, whole: bool) -> None:
    world = healthy()
    one, two = "dgx-0004", "dgx-0006"
    for rail in range(moved):
        call(world, (one, rail), f"{two} mlx5_rail{rail}")
        call(world, (two, rail), f"{one} mlx5_rail{rail}")
    kinds = {item[:2] for item in findings_of(world.judge())}
    assert (("exchanged", f"node:{one}") in kinds) == whole
    # Rails that did not move with the others are found beside it.
    assert (kinds == {("exchanged", f"node:{one}")}) == (moved == 8)
    if not whole:
        assert {kind for kind, _subject in kinds} == {"swapped"}


def test_two_pairs_of_exchanged_nodes_are_two_findings() -> None:
    world = healthy()
    for one, two in (("dgx-0003", "dgx-0004"), ("dgx-0006", "dgx-0007")):
        for rail in range(8):
            call(world, (one, rail), f"{two} mlx5_rail{rail}")
            call(world, (two, rail), f"{one} mlx5_rail{rail}")
    verdict = world.judge()
    assert findings_of(verdict) == {
        ("exchanged", "node:dgx-0003", "fail"),
        ("exchanged", "node:dgx-0006", "fail"),
    }
    text = remedy(verdict, "exchanged", "node:dgx-0003")
    assert "dgx-0003 and dgx-0004 are exchanged" in text
    assert "give them their own host names" in text


# kernel names that moved down


def renumber(world: World, node: str, gone: tuple[int, ...], functions: int = 1) -> None:
    """Name a node's adapters as its kernel does, with those of some rails gone."""
    numbers = {}
    for rail in range(8):
        names = world.plan.hcas[node, rail].devices
        numbers[rail] = next(int(n[5:]) for n in names if n[5:].isdigit())
    for rail in range(8):
        if rail in gone:
            world.remove(world.key_of[node, rail])
            continue
        less = functions * sum(numbers[other] < numbers[rail] for other in gone)
        call(world, (node, rail), f"{node} mlx5_{numbers[rail] - less}")


@pytest.mark.parametrize("gone", [(0,), (3,), (2, 5)])
def test_adapters_that_are_gone_and_the_later_ones_renumbered(gone: tuple[int, ...]) -> None:
    world = healthy()
    for node in ("dgx-0004", "dgx-0006"):
        renumber(world, node, gone)
    found = findings_of(world.judge(), "identity")
    assert found == {
        ("hca_absent", f"hca:{node}/rail{rail}", "fail")
        for node in ("dgx-0004", "dgx-0006")
        for rail in gone
    }


def kernel_numbers(world: World, node: str) -> dict[int, int]:
    """The rails of a node by the numbers that its kernel gives them."""
    return {
        next(int(name[5:]) for name in hca.devices if name[5:].isdigit()): rail
        for (host, rail), hca in world.plan.hcas.items()
        if host == node
    }


def test_an_adapter_after_the_last_that_moved_down_is_not_gone() -> None:
    world = healthy()
    by_number = kernel_numbers(world, "dgx-0004")
    low, *_others, last = (by_number[number] for number in sorted(by_number))
    renumber(world, "dgx-0004", (low,))
    cable = world.by_end[rail_end("dgx-0004", last)]
    world.unplug(cable)
    assert findings_of(world.judge(), "identity") == {
        ("hca_absent", f"hca:dgx-0004/rail{low}", "fail"),
        ("missing", cable.subject, "fail"),
    }


def spread_numbers(world: World) -> None:
    """Let the kernel's numbers of the rails be 0, 3, 6 and so on."""
    hcas = {
        (node, rail): replace(hca, devices=(f"mlx5_rail{rail}", f"mlx5_{3 * rail}"))
        for (node, rail), hca in world.plan.hcas.items()
    }
    world.plan = replace(world.plan, hcas=hcas)


def test_numbers_that_moved_down_by_more_than_two_functions_are_something_else() -> None:
    for functions, moved in ((1, True), (2, True), (3, False)):
        world = healthy()
        spread_numbers(world)
        renumber(world, "dgx-0004", (4,), functions)
        assert ("dgx-0004" in world.judge().matches.shifted) is moved


@pytest.mark.parametrize(
    ("less", "moved"),
    [
        ((0, 0, 2, 2, 2, 2), True),
        # Two have one number, then one comes before its neighbour, then numbers move up again.
        ((0, 0, 3, 3, 3, 3), False),
        ((0, 0, 4, 4, 4, 4), False),
        ((0, 2, 0, 2, 2, 2), False),
    ],
)
def test_numbers_move_down_in_order(less: tuple[int, ...], moved: bool) -> None:
    world = healthy()
    spread_numbers(world)
    # The first two are gone, so that every other may have moved down.
    for rail in (0, 1):
        world.remove(world.key_of["dgx-0004", rail])
    for rail, by in enumerate(less, 2):
        call(world, ("dgx-0004", rail), f"dgx-0004 mlx5_{3 * rail - by}")
    assert ("dgx-0004" in world.judge().matches.shifted) is moved


@pytest.mark.parametrize("functions", [1, 2])
def test_a_node_with_an_adapter_in_the_place_of_another_has_not_moved_down(functions: int) -> None:
    for stray in (False, True):
        world = healthy()
        spread_numbers(world)
        renumber(world, "dgx-0004", (3,), functions)
        if stray:
            here, there = (world.by_end[rail_end(n, 5)] for n in ("dgx-0004", "dgx-0006"))
            world.unplug(here)
            world.remove(world.key_of["dgx-0006", 5])
            world.plug(here.a, there.b)
        assert ("dgx-0004" in world.judge().matches.shifted) is not stray


def test_a_rail_without_a_kernel_number_is_gone_before_the_first_number() -> None:
    world = healthy()
    node = "dgx-0004"
    for rail in set(range(8)) - {1}:
        world.remove(world.key_of[node, rail])
    hcas = {key: hca for key, hca in world.plan.hcas.items() if key[0] != node or key[1] < 2}
    hcas[node, 0] = replace(hcas[node, 0], devices=("mlx5_rail0",))
    hcas[node, 1] = replace(hcas[node, 1], devices=("mlx5_rail1", "mlx5_1"))
    cables = (c for c in world.plan.cables if c.a.is_switch or (c.a.host, c.a.rail) in hcas)
    world.plan = replace(world.plan, hcas=hcas, cables=tuple(cables))
    call(world, (node, 1), f"{node} mlx5_0")
    verdict = world.judge()
    assert verdict.matches.shifted == {node: (0,)}
    assert findings_of(verdict, "identity") == {("hca_absent", f"hca:{node}/rail0", "fail")}


# devices beside the plan


def test_the_part_of_a_switch_that_works_for_sharp_is_not_unplanned() -> None:
    world = healthy(SUPERPOD)
    free = next(port for name in world.plan.switches for port in world.free_ports(name))
    world.add("0" * 15 + "9", CA, "Mellanox Technologies Aggregation Node")
    world.link(("0" * 15 + "9", 1), world.place(free))
    assert findings_of(world.judge()) == set()


def test_the_share_of_the_plan_in_what_was_found() -> None:
    world = healthy()
    for (node, rail), guid in world.key_of.items():
        if rail >= 0 and node != "dgx-0001":
            world.fabric.devices[guid].description = f"other-{node[4:]} mlx5_rail{rail}"
    observed = world.observe()
    found = 98
    world.plan = replace(
        world.plan,
        # Of three nodes one is there: less than half of the plan.
        hcas={key: hca for key, hca in world.plan.hcas.items() if key[0] <= "dgx-0003"},
        cables=tuple(c for c in world.plan.cables if c.a.is_switch or c.a.host == "dgx-0001"),
    )
    known = 8 + 2
    # The parts of switches that work for SHARP do not count, nor does what has no record.
    for number in range(10):
        guid = f"{number + 1:016x}"
        name = "Mellanox Technologies Aggregation Node"
        observed.sweep.devices[guid] = FoundDevice(guid, CA, name, 1)
    wanted = replace(world.wanted, least_share=known / found)
    assert judge_fabric(world.plan, observed, wanted).counts()["pass"] == len(world.plan.cables)
    with pytest.raises(OtherClusterError, match="of 98 devices that were found 10 are in the plan"):
        judge_fabric(world.plan, observed, replace(wanted, least_share=known / found + 0.001))


def test_a_switch_of_the_plan_is_known_by_three_neighbours() -> None:
    world = healthy(SUPERPOD)
    call(world, ("leaf-003", -1), "Quantum-2 Mellanox Technologies")
    assert findings_of(world.judge()) == set()
    kept = [c for c in own(world, "leaf-003") if c.a.is_switch]
    for cable in own(world, "leaf-003"):
        if cable not in kept[:2]:
            world.unplug(cable)
    verdict = world.judge()
    for cable in kept[:2]:
        assert verdict.cables[cable][0] == "not_measured"
    assert ("identity", "switch:leaf-003", "not_measured") in findings_of(verdict)


def test_a_declared_guid_is_not_overruled_by_a_place() -> None:
    world = healthy(SUPERPOD)
    call(world, ("leaf-003", -1), "Quantum-2 Mellanox Technologies")
    call(world, ("dgx-0004", 1), NO_NAME)
    other = "ab" * 8
    switches, hcas = dict(world.plan.switches), dict(world.plan.hcas)
    switches["leaf-003"] = replace(switches["leaf-003"], guid=other)
    hcas["dgx-0004", 1] = replace(hcas["dgx-0004", 1], guid=other[:-1] + "c")
    world.plan = replace(world.plan, switches=switches, hcas=hcas)
    verdict = world.judge()
    for key in (("leaf-003", -1), ("dgx-0004", 1)):
        assert world.key_of[key] not in verdict.matches.by_guid
    hurt = world.of_device["leaf-003"] | {world.by_end[rail_end("dgx-0004", 1)]}
    assert "pass" not in {verdict.cables[cable][0] for cable in hurt}


# statuses


def test_a_record_has_the_status_of_its_cable_and_a_finding_its_value() -> None:
    world = healthy()
    cable = own(world, "dgx-0005")[2]
    for end in (cable.a, cable.b):
        world.port(world.place(end)).width = "2x"
    verdict = world.judge()
    assert [(f.kind, f.subject, f.status) for f in verdict.findings] == [
        ("width", cable.subject, "fail")
    ]
    records = records_of(verdict)
    (finding,) = [record for record in records if record.check == "fabric.width"]
    assert finding.measured == {"value": 200, "unit": "Gb/s"}
    assert verdict.cables[cable] == ("fail", f"width {cable.subject}: {finding.text}")


def test_a_failure_says_more_of_a_cable_than_a_doubt() -> None:
    world = healthy()
    cable = own(world, "dgx-0005")[2]
    call(world, (cable.a.host, cable.a.rail), NO_NAME)
    for end in (cable.a, cable.b):
        world.port(world.place(end)).width = "2x"
    verdict = world.judge()
    status, why = verdict.cables[cable]
    assert (status, why.split(" ")[0]) == ("fail", "width")


def test_a_failure_says_more_of_a_cable_than_an_earlier_doubt() -> None:
    world = healthy(SUPERPOD)
    shared = next(c for c in ups(world, "leaf-005") if c.b.host == "spine-002")
    other = next(c for c in ups(world, "leaf-005") if c.b.host != "spine-002")
    for name in ("leaf-005", "spine-002"):
        world.remove(world.key_of[name, -1])
    observed = world.observe()
    observed.sweep.complaints.append("ibnetdiscover says: 'what?'")
    # One neighbour of the leaf does not report its port; all those of the spine report no link.
    guid, number = world.place(other.b)
    port = observed.sweep.devices[guid].ports[number]
    port.state = port.physical_state = None
    verdict = judge_fabric(world.plan, observed, world.wanted)
    assert findings_of(verdict) == {
        ("switch_absent", "switch:leaf-005", "not_measured"),
        ("switch_absent", "switch:spine-002", "fail"),
    }
    assert verdict.cables[shared][1].startswith("switch_absent switch:spine-002: ")


def test_of_two_failures_of_a_cable_the_first_says_what_it_has() -> None:
    world = healthy()
    one, two = "dgx-0004", "dgx-0006"
    for rail in range(8):
        call(world, (one, rail), f"{two} mlx5_rail{rail}")
        call(world, (two, rail), f"{one} mlx5_rail{rail}")
    slow = own(world, one)[2]
    for end in (slow.a, slow.b):
        world.port(world.place(end)).width = "2x"
    verdict = world.judge()
    kinds = {item[:2] for item in findings_of(verdict)}
    assert kinds == {("exchanged", f"node:{one}"), ("width", slow.subject)}
    assert verdict.cables[slow][1].startswith(f"exchanged node:{one}: ")


def test_names_of_the_role_are_enough_without_addresses() -> None:
    plan = plan_of(BASEPOD)
    hcas = {key: replace(hca, pci=None) for key, hca in plan.hcas.items()}
    plan = replace(plan, hcas=hcas)
    reported = [OwnHca(f"mlx5_rail{r}", "0000:1b:00.0", (f"{r + 1:016x}",)) for r in range(8)]
    found = identities(plan, {"dgx-0002": reported})
    assert found.key_of == {f"{rail + 1:016x}": ("dgx-0002", rail) for rail in range(8)}
    # The kernel's own names follow the order of discovery.
    reported = [OwnHca(f"mlx5_{r}", "0000:1b:00.0", (f"{r + 1:016x}",)) for r in range(8)]
    assert identities(plan, {"dgx-0002": reported}).key_of == {}


# neighbours and ports


def test_a_leaf_without_a_name_is_known_past_neighbours_that_are_not() -> None:
    world = healthy(SUPERPOD)
    call(world, ("leaf-003", -1), "Quantum-2 Mellanox Technologies")
    # The adapter in its first port has no name either: only the leaf tells which one it is.
    first = world.by_end[switch_end("leaf-003", 1)].a
    call(world, (first.host, first.rail), NO_NAME)
    verdict = world.judge()
    assert findings_of(verdict) == {
        ("description", f"hca:{first}", "fail"),
        ("identity", f"hca:{first}", "not_measured"),
    }
    assert verdict.matches.by_key["leaf-003", -1] == world.key_of["leaf-003", -1]


@pytest.mark.parametrize(("kept", "known"), [(4, False), (5, True)])
def test_a_leaf_without_a_name_is_known_if_most_cables_are_in_their_ports(
    kept: int, known: bool
) -> None:
    world = healthy(SUPERPOD)
    call(world, ("leaf-003", -1), "Quantum-2 Mellanox Technologies")
    one, two, *rest = ups(world, "leaf-003")
    for cable in own(world, "leaf-003"):
        if cable not in (one, two, *rest[: kept - 2]):
            world.unplug(cable)
    # Two of them have changed places at the leaf.
    world.unplug(one)
    world.unplug(two)
    world.plug(one.a, two.b)
    world.plug(two.a, one.b)
    verdict = world.judge()
    assert (("leaf-003", -1) in verdict.matches.by_key) is known
    assert "pass" not in {verdict.cables[cable][0] for cable in (one, two)}


@pytest.mark.parametrize("impostor", [0, -1])
def test_of_two_leaves_with_one_name_the_one_in_its_place_has_it(impostor: int) -> None:
    world = healthy(SUPERPOD)
    # Every second spine has the name of the one before it, too.
    spines = sorted(name for name in world.plan.switches if name.startswith("spine"))
    for name, other in zip(spines[1::2], spines[::2], strict=True):
        call(world, (name, -1), f"MF0;{other}:MQM9700/U1")
    # In the order of the GUIDs the impostor comes first, or last.
    leaves = sorted(("leaf-002", "leaf-003", "leaf-005"), key=lambda n: world.key_of[n, -1])
    call(world, (leaves[impostor], -1), f"MF0;{leaves[1]}:MQM9700/U1")
    matches = world.judge().matches
    for name in (*leaves, *spines):
        assert matches.by_key[name, -1] == world.key_of[name, -1]


def test_of_switches_that_share_each_name_those_in_place_are_known_by_each_other() -> None:
    world = healthy(SUPERPOD)
    for tier in ("leaf", "spine"):
        names = [name for name in world.plan.switches if name.startswith(tier)]
        names.sort(key=lambda name: world.key_of[name, -1])
        # In the order of the GUIDs each impostor comes first.
        for impostor, name in zip(names[::2], names[1::2], strict=True):
            call(world, (impostor, -1), f"MF0;{name}:MQM9700/U1")
    matches = world.judge().matches
    for name in world.plan.switches:
        assert matches.by_key[name, -1] == world.key_of[name, -1]


def test_links_to_unplanned_devices_in_free_ports_speak_for_no_name() -> None:
    world = healthy(SUPERPOD)
    free = world.free_ports("leaf-002")[:3]
    for cable in set(own(world, "leaf-003")) - set(ups(world, "leaf-003")[:2]):
        world.unplug(cable)
    for number, end in enumerate(free):
        guid = f"{number + 1:016x}"
        world.add(guid, CA, "storage-01 mlx5_0")
        world.link((guid, 1), world.place(end))
    call(world, ("leaf-002", -1), "MF0;leaf-003:MQM9700/U1")
    matches = world.judge().matches
    assert matches.by_key["leaf-003", -1] == world.key_of["leaf-003", -1]


def test_something_silent_in_a_free_port_is_found_where_it_is() -> None:
    world = healthy(SUPERPOD)
    free = next(port for name in world.plan.switches for port in world.free_ports(name))
    guid = "0" * 15 + "9"
    world.add(guid, CA, "storage-01 mlx5_0")
    world.link((guid, 1), world.place(free))
    world.silent = {guid}
    for rail in range(8):
        world.remove(world.key_of["dgx-0004", rail])
    verdict = world.judge()
    assert findings_of(verdict) == {
        ("silent", f"port:{free}", "fail"),
        ("node_absent", "node:dgx-0004", "fail"),
    }
    assert "take the cable out" in remedy(verdict, "silent", f"port:{free}")


def test_a_node_on_a_silent_leaf_is_absent_if_none_of_its_other_rails_shows() -> None:
    world = healthy(SUPERPOD)
    world.start = world.key_of["dgx-0004", 0]
    leaf = world.by_end[rail_end("dgx-0001", 3)].b.host
    world.silent = {world.key_of[leaf, -1]}
    for rail in set(range(8)) - {3}:
        world.remove(world.key_of["dgx-0001", rail])
    verdict = world.judge()
    assert findings_of(verdict, "no_sm", "standby_missing") == {
        ("silent", f"switch:{leaf}", "fail"),
        ("node_absent", "node:dgx-0001", "fail"),
    }


def test_an_unplanned_device_in_the_first_port_of_a_leaf_hides_no_neighbour() -> None:
    world = healthy(SUPERPOD)
    world.start = world.key_of["dgx-0004", 0]
    call(world, ("leaf-003", -1), "Quantum-2 Mellanox Technologies")
    for name in ("leaf-003", "leaf-001"):
        world.unplug(world.by_end[switch_end(name, 1)])
        guid = f"{name[5:]:0>16}"
        world.add(guid, CA, "storage-01 mlx5_0")
        world.link((guid, 1), world.place(switch_end(name, 1)))
    for name, other in (("leaf-001", "leaf-002"), ("leaf-002", "leaf-001")):
        call(world, (name, -1), f"MF0;{other}:MQM9700/U1")
    found = {item[:2] for item in findings_of(world.judge())}
    assert ("exchanged", "switch:leaf-001") in found
    assert ("identity", "switch:leaf-003") not in found


def test_the_part_of_a_switch_that_works_for_sharp_is_no_rail() -> None:
    world = healthy()
    cable = own(world, "dgx-0004")[1]
    world.unplug(cable)
    guid = "0" * 15 + "9"
    world.add(guid, CA, "Mellanox Technologies Aggregation Node")
    world.link((guid, 1), world.place(cable.b))
    verdict = world.judge()
    assert guid not in verdict.matches.by_guid
    assert verdict.cables[cable][0] != "pass"


def test_a_name_counts_although_another_guid_was_declared() -> None:
    world = healthy()
    key = ("dgx-0004", 1)
    hcas = {**world.plan.hcas, key: replace(world.plan.hcas[key], guid="ab" * 8)}
    world.plan = replace(world.plan, hcas=hcas)
    assert world.judge().matches.by_key[key] == world.key_of[key]


def test_a_switch_is_no_adapter_whatever_a_node_reports() -> None:
    world = healthy()
    world.ask_nodes("dgx-0004")
    world.adapters["dgx-0004"][1]["guids"] = [world.key_of["leaf-002", -1]]
    matches = world.judge().matches
    assert matches.by_key["leaf-002", -1] == world.key_of["leaf-002", -1]


def test_what_has_the_name_of_a_declared_device_is_an_impostor() -> None:
    world = healthy(SUPERPOD)
    key = ("leaf-003", -1)
    switches = dict(world.plan.switches)
    switches["leaf-003"] = replace(switches["leaf-003"], guid=world.key_of[key])
    world.plan = replace(world.plan, switches=switches)
    for name in ("leaf-001", "leaf-002"):
        call(world, (name, -1), "MF0;leaf-003:MQM9700/U1")
    matches = world.judge().matches
    for name in ("leaf-001", "leaf-002", "leaf-003"):
        assert matches.by_key[name, -1] == world.key_of[name, -1]


def test_a_name_of_the_map_is_the_name_of_a_switch() -> None:
    world = healthy()
    call(world, ("leaf-002", -1), "MF0;old:MQM9700/U1")
    sweep = world.observe().sweep
    for names, found in (({}, 1), ({world.key_of["leaf-002", -1]: "leaf-002"}, 0)):
        assert len(judge_names(world.plan, sweep, match(world.plan, sweep, names))) == found


def test_a_name_of_a_device_whose_guid_another_has_is_not_judged() -> None:
    world = healthy()
    one, two = ("dgx-0004", 1), ("dgx-0006", 2)
    # The plan has the GUID at dgx-0006, and the device that is seen with it is of dgx-0004.
    hcas = {**world.plan.hcas, two: replace(world.plan.hcas[two], guid=world.key_of[one])}
    world.plan = replace(world.plan, hcas=hcas)
    alone = findings_of(world.judge())
    assert ("description", "hca:dgx-0006/rail2", "fail") in alone
    world.doubled = [(world.key_of[one], world.key_of[two])]
    kinds = {kind for kind, _subject, _status in findings_of(world.judge())}
    assert "duplicate_guid" in kinds
    assert "description" not in kinds


def test_a_value_without_a_threshold_is_not_recorded_as_measured() -> None:
    world = healthy()
    cable = own(world, "dgx-0005")[2]
    for end in (cable.a, cable.b):
        world.port(world.place(end)).width = "2x"
    verdict = world.judge()
    (width,) = verdict.findings
    for changed in (replace(width, measured=None), replace(width, threshold=None)):
        verdict.findings = [changed]
        (record,) = [r for r in records_of(verdict) if r.check == "fabric.width"]
        assert record.measured is None


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_of_a_sweep_that_is_not_whole_what_is_known_by_place_fails_no_cable(
    named: bool, partial: bool
) -> None:
    world = healthy(SUPERPOD)
    if not named:
        call(world, ("leaf-003", -1), "Quantum-2 Mellanox Technologies")
    one, two = (c for c in own(world, "leaf-003")[:2])
    assert not one.a.is_switch
    world.unplug(one)
    world.unplug(two)
    world.plug(one.a, two.b)
    world.plug(two.a, one.b)
    observed = world.observe()
    observed.sweep.partial = partial
    verdict = judge_fabric(world.plan, observed, world.wanted)
    swapped = {status for kind, _subject, status in findings_of(verdict) if kind == "swapped"}
    assert swapped == {"not_measured" if partial and not named else "fail"}


# causes above the cable


def dark(world: World, name: str, ports: range | list[int]) -> list:
    """Pull the cables of these ports of a switch, by their place among its cables."""
    of = sorted(world.of_device[name], key=lambda c: c.a.port if c.a.host == name else c.b.port)
    for index in ports:
        world.unplug(of[index])
    return [of[index] for index in ports]


@pytest.mark.parametrize(
    ("ports", "blamed"),
    [
        (range(8), True),
        (range(7), False),
        # Not side by side, and fewer than half; but no other spine has lost any.
        (range(0, 60, 2), True),
        (range(0, 20, 5), False),
        (range(0, 64, 2), True),
        ([*range(4), *range(10, 14)], False),
    ],
)
def test_a_block_of_ports_of_a_spine_is_one_cause(ports, blamed: bool) -> None:
    case = build("superpod-32-of-64", ("old_totals",), 1)
    cables = dark(case.world, "spine-002", ports)
    found = case.world.judge().findings
    kinds = {finding.kind for finding in found}
    assert {cable for finding in found for cable in finding.cables} == set(cables)
    if blamed:
        (one,) = found
        assert (one.kind, one.subject) == ("ports", "switch:spine-002")
        assert re.match(rf"{len(cables)} (of 64 )?cables of spine-002 have no link", one.text)
    else:
        assert kinds <= {"dark", "cage"}


def test_a_part_of_a_trunk_is_told_cable_by_cable() -> None:
    case = build("superpod-32-of-64", ("two_trunks_exchanged",), 1)
    (found,) = case.world.judge().findings
    assert "are exchanged as a whole with those of" in found.text
    assert found.remedy.count("exchange the two plugs at") == len(found.cables) // 2 == 4
    # One pair of it is put right.
    one = found.cables[0]
    (two,) = (
        c
        for c in found.cables
        if case.world.port(case.world.place(c.b)).peer == case.world.place(one.a)
    )
    for cable in (one, two):
        case.world.unplug(cable)
    for cable in (one, two):
        case.world.plug(cable.a, cable.b)
    assert len(case.world.judge().findings) == 3


def test_a_node_at_another_place_is_told_with_how_far_it_is() -> None:
    case = build("superpod-32-of-64", ("node_at_another_place",), 1)
    world = case.world
    (found,) = world.judge().findings
    node = found.subject[5:]
    assert found.text.startswith(f"{node} is at another place: 8 of its cables are ")
    assert "correct its node_leaf_place; otherwise move the plug" in found.remedy
    # Half of its cables are where they belong: then it is the others.
    for cable in found.cables[:4]:
        world.unplug(cable)
        world.plug(cable.a, cable.b)
    assert [one.subject for one in world.judge().findings] == [
        cable.subject for cable in found.cables[4:]
    ]


# words


def test_a_node_that_calls_itself_localhost_says_so() -> None:
    case = build("superpod-32-of-64", ("old_totals",), 1)
    for cable in case.world.of_device["dgx-0005"]:
        guid = case.world.key_of["dgx-0005", cable.a.rail]
        case.world.fabric.devices[guid].description = f"localhost mlx5_rail{cable.a.rail}"
    (found,) = case.world.judge().findings
    assert found.text == "dgx-0005 says that it is localhost"


def test_another_port_of_a_node_on_a_leaf_is_not_an_unplanned_node() -> None:
    case = build("superpod-32-of-64", ("old_totals",), 1)
    world = case.world
    world.add(UNPLANNED, CA, "DGX-0005.site mlx5_77")
    world.link((UNPLANNED, 1), world.place(world.free_ports("leaf-001")[0]))
    (found,) = world.judge().findings
    assert found.kind == "unexpected"
    assert "is in the plan, but this adapter is not one of its rails" in found.text
    assert "reserve the port" in found.remedy


def test_another_fabric_that_is_joined_by_one_cable_is_one_finding() -> None:
    case = build("superpod-32-of-64", ("old_totals",), 1)
    world = case.world
    ports = [world.place(world.free_ports("leaf-001")[0])]
    for number in range(1000):
        guid = f"07{number:014x}"
        world.add(guid, SWITCH, f"MF0;other-{number}:MQM9700/U1", 64)
        world.link((guid, 1), ports[-1])
        ports.append((guid, 2))
    (found,) = world.judge().findings
    assert (found.kind, found.subject) == ("unexpected", "device:other-0")


@pytest.mark.parametrize("order", [1, -1])
def test_machines_that_answer_by_each_others_name_are_one_finding(order: int) -> None:
    """Their declared adapters are in place: none of the sixteen was replaced."""
    names = ("adapter_gone_and_all_nodes_answer", "names_of_declared_nodes_exchanged")
    case = build("basepod-12", names[::order], 1)
    found, unsure = case.run()
    assert {kind for kind, _subject in found} == {"exchanged", "hca_absent"}
    assert (found, unsure) == (case.expected, set())
