# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The library of faults (tests/fabric), without a simulator: each is found, and reported once."""

from __future__ import annotations

import pytest
from library import FAULTS, FORMS, HARMLESS, SIZES, Known, NoRoomError, build, fresh, pairs
from world import INTERVAL_S

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.ask import read_files

# Faults that leave a planned cable without its link.
WIRED = (
    "rail_missing", "uplink_dark", "rails_of_a_node_swapped", "nodes_on_a_leaf_swapped",
    "three_rails_in_turn", "node_plugged_as_an_absent_one", "node_absent", "rail_silent",
    "adapter_gone_and_all_nodes_answer",
)  # fmt: skip
NAMES = [*FAULTS, *HARMLESS]
# Each fault on two fabrics, and some on the full and on the large one; tests/soak has the rest.
SINGLES = [(size, name) for size in ("basepod-12", "superpod-32-of-64") for name in NAMES]
SINGLES += [("superpod-32", name) for name in NAMES[::3]]
SINGLES += [("superpod-127", name) for name in NAMES[::8]]


def run(size: str, names: tuple[str, ...], seed: int) -> None:
    try:
        case = build(size, names, seed)
    except NoRoomError:
        return
    assert case.run() == (case.expected, case.doubts), str(case)


def test_the_library_is_large_enough() -> None:
    assert len(FAULTS) >= 40
    assert not set(FAULTS) & set(HARMLESS)


@pytest.mark.parametrize(("size", "name"), SINGLES)
def test_one_fault(size: str, name: str) -> None:
    run(size, (name,), 7)


def test_every_fault_has_room_somewhere() -> None:
    for name in NAMES:
        assert build("superpod-32-of-64", (name,), 7)


@pytest.mark.parametrize(("size", "names", "seed"), pairs(5, seed=3))
def test_two_faults(size: str, names: tuple[str, ...], seed: int) -> None:
    run(size, names, seed)


@pytest.mark.parametrize("size", SIZES)
def test_a_healthy_fabric_has_no_finding(size: str) -> None:
    world = fresh(size)
    world.start = next(iter(world.key_of.values()))
    verdict = world.judge()
    assert (verdict.findings, verdict.doubts, verdict.complaints) == ([], [], [])
    assert set(verdict.counts().values()) == {0, len(world.plan.cables)}


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("form", ["planned", *FORMS])
def test_whatever_is_known_no_broken_cable_passes_and_no_healthy_one_fails(
    form: str, asked: bool
) -> None:
    known = Known()
    for name in WIRED:
        for share in (1.0, 0.6, 0.3):
            known.take("basepod-12", name, 5, form, asked, share)
    assert known.fabrics == 3 * len(WIRED)
    assert (known.broken_passed, known.healthy_failed) == (0, 0)
    assert known.broken > 50


@pytest.mark.parametrize("whole", [False, True])
def test_a_lost_answer_about_a_port_fails_no_cable(whole: bool) -> None:
    world = fresh("basepod-12")
    leaf = "leaf-001"
    near, cable, *_rest = sorted(c for c in world.of_device[leaf] if not c.a.is_switch)
    world.start = world.key_of[near.a.host, near.a.rail]
    world.options, world.sms = {}, {}
    if whole:
        # Without port 0 no other one is asked for: what hangs there is known from elsewhere alone.
        lost = [c for c in world.of_device[leaf] if c != near and not c.a.is_switch]
    else:
        lost = [cable]
    for one in lost:
        world.remove(world.key_of[one.a.host, one.a.rail])
    texts = world.saved()
    number = 0 if whole else cable.b.port
    texts["ibnetdiscover.stderr"] = (
        f"./libibnetdisc/query_smp.c:186; umad (DR path slid 0; dlid 0; 0,1 Attr 0x15:{number}) "
        "bad status 110; Connection timed out\n"
    )
    # The cache has no record of these ports.
    guid = world.key_of[leaf, -1]
    gone = tuple(f" {c.b.port:4d}[  ]" for c in lost)
    texts["iblinkinfo"] = "".join(
        line
        for line in texts["iblinkinfo"].splitlines(keepends=True)
        if not (line.startswith(f"0x{guid}") and any(one in line for one in gone))
    )
    verdict = world.judge_seen(read_files(texts, INTERVAL_S).observation)
    assert [one for one in verdict.complaints if "Attr 0x15" in one]
    assert verdict.counts()["fail"] == 0
    assert {verdict.cables[one][0] for one in lost} == {"not_measured"}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("asked", [False, True])
def test_a_lost_description_fails_no_adapter(whole: bool, asked: bool) -> None:
    world = fresh("basepod-12")
    world.start = next(iter(world.key_of.values()))
    if asked:
        world.ask_nodes()
    node = sorted({node for node, _rail in world.plan.hcas})[1]
    rails = [key for key in world.plan.hcas if key[0] == node]
    for key in rails if whole else rails[:1]:
        world.fabric.devices[world.key_of[key]].description = ""
    subject = f"node:{node}" if whole else f"hca:{node}/rail{rails[0][1]}"
    # No answer was lost: it has no name.
    assert [one.subject for one in world.judge().findings] == [subject]
    world.errors.append(
        "./libibnetdisc/query_smp.c:186; umad (DR path slid 0; dlid 0; 0,1,3 Attr 0x10:0) "
        "bad status 110; Connection timed out"
    )
    verdict = world.judge()
    assert verdict.findings == []
    (found,) = [one for one in verdict.doubts if one.kind == "description"]
    assert (found.subject, found.status) == (subject, "not_measured")
    assert "look again" in found.remedy


def test_a_sweep_that_is_cut_off_fails_nothing() -> None:
    world = fresh("superpod-32")
    world.start = next(iter(world.key_of.values()))
    # In the midst of the switches: what they see of each other and of the nodes is lost in part.
    world.share = 0.25
    world.options = {}
    world.sms = {}
    verdict = world.judge()
    assert any("cut off" in complaint for complaint in verdict.complaints)
    assert [finding.kind for finding in verdict.findings] == ["no_sm"]
    assert verdict.counts()["fail"] == 0
    assert verdict.counts()["not_measured"] > 100
