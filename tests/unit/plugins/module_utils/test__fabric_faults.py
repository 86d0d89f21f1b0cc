# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The library of faults (tests/fabric), without a simulator: each is found, and told once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "tests" / "fabric"))

from library import FAULTS, HARMLESS, SIZES, NoRoomError, build, fresh, pairs

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


def test_a_sweep_that_is_cut_off_condemns_nothing() -> None:
    world = fresh("superpod-32")
    world.start = next(iter(world.key_of.values()))
    # In the midst of the switches: what they see of each other and of the nodes is lost in part.
    world.share = 0.25
    world.wanted = type(world.wanted)()
    world.sms = {}
    verdict = world.judge()
    assert any("cut off" in complaint for complaint in verdict.complaints)
    assert [finding.kind for finding in verdict.findings] == ["no_sm"]
    assert verdict.counts()["fail"] == 0
    assert verdict.counts()["not_measured"] > 100
