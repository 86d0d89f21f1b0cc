# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fabrics without a plan: broken ones have findings, irregular ones have none."""

from __future__ import annotations

import pytest
from irregular import IRREGULAR
from library import CLEAN, FROZEN, Unplanned, build, healthy, learned

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import FAIL, NOT_MEASURED
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge import (
    EmptyPlanError,
    Observation,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import Sweep
from ansible_collections.baremetal.dgx.plugins.module_utils._inspection.judge import inspect
from ansible_collections.baremetal.dgx.plugins.module_utils._inspection.pattern import SURE

SIZES = ("basepod-12", "superpod-32-of-64")


def judged(fault, size="superpod-32-of-64", seed=0):
    case = build(size, (fault,), seed)
    return case, inspect(case.world.observe())


def test_most_clean_faults_are_found_and_nothing_is_invented():
    rates = Unplanned()
    for size in SIZES:
        for name in CLEAN:
            rates.take(size, name, 0)
    assert rates.false == 0
    assert rates.found >= 0.8 * rates.due
    assert rates.found + rates.guessed >= 0.9 * rates.due


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("condition", IRREGULAR)
def test_a_fabric_that_is_irregular_and_healthy_has_no_finding_and_no_guess(size, condition):
    assert not healthy(size, condition, 1)


def test_every_irregular_fabric_has_room_somewhere():
    assert all(healthy("superpod-32-of-64", name, 2) == [] for name in IRREGULAR)


@pytest.mark.parametrize("fault", FROZEN)
def test_a_fault_that_would_be_learned_is_told_with_what_it_rests_on(fault):
    case, verdict = judged(fault)
    assert {(one.kind, one.subject) for one in verdict.findings} == case.expected
    for finding in verdict.findings:
        assert float(finding.evidence[-1].rpartition(" ")[2]) >= SURE, finding.evidence


def test_a_hole_among_names_is_a_guess_and_no_failure():
    case, verdict = judged("node_absent")
    (guess,) = verdict.doubts
    assert (guess.kind, guess.subject) in case.expected
    assert (verdict.findings, guess.status) == ([], NOT_MEASURED)
    assert guess.text.startswith("a guess: ")


def test_a_pattern_that_few_follow_makes_a_guess():
    # Three of four spines are too few for a failure.
    _case, verdict = judged("rail_missing", "basepod-12")
    assert [one.status for one in verdict.findings] == [FAIL]
    _case, verdict = judged("two_spines_exchanged", "superpod-32")
    assert verdict.findings == []


def test_a_link_that_no_other_switches_have_is_a_guess():
    case, verdict = judged("cable_between_two_free_ports")
    assert {(one.kind, one.subject) for one in verdict.doubts} == case.expected
    assert verdict.findings == []


def test_a_silent_node_is_one_finding():
    case, verdict = judged("node_silent")
    assert {(one.kind, one.subject) for one in verdict.findings} == case.expected


def test_one_name_of_two_nodes_is_one_finding():
    _case, verdict = judged("node_with_the_name_of_another")
    (finding,) = [one for one in verdict.findings if one.kind == "description"]
    assert "16 adapters share their names" in finding.text


def test_a_sweep_that_was_cut_off_breaks_no_pattern():
    case = build("superpod-32-of-64", ("rails_of_a_node_swapped",), 0)
    case.world.share = 0.6
    verdict = inspect(case.world.observe())
    assert verdict.findings == []
    assert any("cut off" in complaint for complaint in verdict.complaints)


def test_a_sweep_without_a_link_has_nothing_to_judge():
    with pytest.raises(EmptyPlanError):
        inspect(Observation(Sweep()))


@pytest.mark.parametrize("fault", FROZEN)
def test_each_of_a_hundred_faulty_fabrics_is_named_before_it_is_learned(fault):
    fabrics = [("basepod-12", seed) for seed in range(9)] + [("superpod-32-of-64", 9)]
    if fault == "rail_in_a_free_port":
        # A BasePOD of 12 nodes has no port free.
        fabrics = [("superpod-32-of-64", seed) for seed in range(10)]
    assert [one for one in fabrics if learned(one[0], fault, one[1]) is not True] == []
