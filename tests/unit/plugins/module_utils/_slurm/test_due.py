# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which idle nodes are due."""

from __future__ import annotations

import time

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.due import DAY_S, due
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import Node
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.node_verdicts import (
    gate_verdicts,
)

NOW = 1_800_000_000.0
NODES = {name: Node(name, ("IDLE",)) for name in ("a", "b", "c", "d")}


def seen(node, days, level="standard"):
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW - days * DAY_S))
    return {"node": node, "at": at, "level": level}


def test_the_longest_unseen_first_and_no_more_than_so_many():
    verdicts = [seen("a", 8), seen("b", 6.9), seen("c", 30), {"node": "d", "at": "", "level": ""}]
    assert due(NODES, verdicts, NOW, "standard", 7, 9) == ["d", "c", "a"]
    assert due(NODES, verdicts, NOW, "standard", 7, 2) == ["d", "c"]
    assert due(NODES, verdicts, NOW, "standard", 7, 0) == []


def test_a_lesser_look_and_one_of_tomorrow_count_for_nothing():
    verdicts = [seen("a", 1, "quick"), seen("b", 1, "burn_in"), seen("c", -2)]
    assert due(NODES, verdicts, NOW, "standard", 7, 9) == ["a", "c"]


def test_a_lesser_look_of_each_day_hides_no_deeper_one():
    """Else the first nodes of the list would be loaded each day, and no other."""
    verdicts = [
        {**seen(name, 0.1, "quick"), "looks": {"standard": seen(name, days)["at"]}}
        for name, days in (("a", 3), ("b", 30), ("c", -2))
    ]
    assert due(NODES, verdicts, NOW, "standard", 7, 9) == ["c", "b"]
    verdicts = [{**seen("a", 9), "looks": {"burn_in": seen("a", 20)["at"]}}]
    assert due(NODES, verdicts, NOW, "standard", 10, 9) == []
    assert due(NODES, verdicts, NOW, "burn_in", 10, 9) == ["a"]


def test_a_node_that_was_tried_in_vain_stays_due_and_leaves_the_others_their_turn():
    """Else a node that ssh does not reach would be the one of each call."""
    in_vain = {**seen("a", 0.04), "verdict": "not_measured", "tried": seen("a", 0.04)["at"]}
    for looks in ({}, {"standard": seen("a", 30)["at"]}):
        verdicts = [{**in_vain, "looks": looks}, seen("b", 8), seen("c", 1)]
        assert due(NODES, verdicts, NOW, "standard", 7, 9) == ["b", "a"]
        assert due(NODES, verdicts, NOW, "standard", 7, 1) == ["b"]
    # What stands from before fails the node, and is as old.
    failed = {**in_vain, "verdict": "fail", "at": seen("a", 1)["at"]}
    assert due(NODES, [failed], NOW, "standard", 7, 9) == ["a"]
    # It was looked at before, and for long enough.
    recent = {**in_vain, "looks": {"standard": seen("a", 2)["at"]}}
    assert due(NODES, [recent], NOW, "standard", 7, 9) == []


def test_what_measured_nothing_counts_only_as_a_look():
    nothing = {**seen("a", 1), "verdict": "not_measured"}
    assert due(NODES, [nothing], NOW, "standard", 7, 9) == ["a"]
    looked = {**nothing, "looks": {"standard": nothing["at"]}}
    assert due(NODES, [looked], NOW, "standard", 7, 9) == []


def test_a_burn_in_that_was_reported_again_leaves_its_node_due():
    """So each call of the timer would take it, and come to no other: it asks for a new one."""
    records = [
        {"check": check, "subject": "node:a", "status": "pass", "at": seen("a", days)["at"]}
        for check, days in (("gpu.count", 0.1), ("burn.run", 8))
    ]
    for given, wanted in ((records, ["a"]), (records[:1], [])):
        data = {"version": 1, "node": "a", "level": "standard", "records": given}
        verdicts = gate_verdicts([("a", data)], None, [], False, own_age=True)
        assert due(NODES, verdicts, NOW, "standard", 7, 9) == wanted


def test_a_look_counts_that_has_not_measured_what_stands():
    """So each call of the timer would take this node: its failure is weeks old."""
    hour, weeks = seen("a", 0.04)["at"], seen("a", 30)["at"]
    records = [{"check": "gpu.ecc", "subject": "gpu:a/0", "status": "pass", "at": hour}]
    stands = [{"check": "burn.gemm", "subject": "gpu:a/3", "status": "fail", "at": weeks}]
    swept = [{"check": "fabric.cable", "subject": "cable:a/rail0--leaf/1", "status": "pass",
              "at": weeks}]  # fmt: skip
    data = {"version": 1, "node": "a", "level": "standard", "records": records, "standing": stands}
    verdicts = gate_verdicts([("a", data)], swept, [], True)
    assert (verdicts[0]["verdict"], verdicts[0]["at"]) == ("fail", weeks)
    assert due(NODES, verdicts, NOW, "standard", 7, 9) == []
    assert due(NODES, verdicts, NOW, "burn_in", 7, 9) == ["a"]


@pytest.mark.parametrize(
    "states",
    [("ALLOCATED",), ("MIXED",), ("IDLE", "DRAIN"), ("IDLE", "RESERVED"), ("IDLE", "PLANNED"),
     ("DOWN",), ("IDLE", "NOT_RESPONDING"), ("IDLE", "COMPLETING"), ("IDLE", "MAINTENANCE")],
)  # fmt: skip
def test_only_what_is_idle_and_nothing_else(states):
    nodes = {**NODES, "a": Node("a", states)}
    assert due(nodes, [seen("a", 99), seen("b", 99)], NOW, "standard", 7, 9) == ["b"]
    assert due(nodes, [seen("z", 99)], NOW, "standard", 7, 9) == []


def test_a_level_that_there_is_not_is_named():
    with pytest.raises(ValueError, match="there is no 'deep'; write quick"):
        due(NODES, [], NOW, "deep", 7, 9)
