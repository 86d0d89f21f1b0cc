# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the gate shows of its steps."""

from __future__ import annotations

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.policy import (
    Action,
    GatePlan,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.report import (
    diff_of,
    report,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import Node

OUT = Node("n1", ("IDLE", "DRAIN"), "why", "root")


def test_before_and_after_of_each_node() -> None:
    drained, resumed, unseen = diff_of([
        Action("n2", "drain", "", "gpu3", Node("n2", ("MIXED",))),
        Action("n1", "resume", "", "", OUT),
        Action("n3", "drain", "", "gpu4"),
    ])  # fmt: skip
    assert drained == {
        "before_header": "node n2", "after_header": "node n2",
        "before": "state: MIXED\nreason: -\n", "after": "state: MIXED+DRAIN\nreason: gpu3\n",
    }  # fmt: skip
    assert resumed["before"] == "state: IDLE+DRAIN\nreason: why\n"
    assert resumed["after"] == "state: IDLE\nreason: -\n"
    assert unseen["after"] == "state: DRAIN\nreason: gpu4\n"


def test_what_is_left_alone_has_the_state_that_was_seen() -> None:
    left = (Action("n1", "leave", "no evidence", seen=OUT), Action("n9", "leave", "not there"))
    step = Action("n2", "drain", "fails", "gpu3")
    found = report(GatePlan((), left, "too many", (step,)), (), (step,))
    assert found["left"] == [
        {"node": "n1", "state": "IDLE+DRAIN", "why": "no evidence"},
        {"node": "n9", "state": "", "why": "not there"},
    ]
    data = [{"node": "n2", "action": "drain", "why": "fails", "reason": "gpu3"}]
    assert (found["changed"], found["actions"]) == (False, [])
    assert found["withheld"] == found["passed_over"] == data
    assert found["refusal"] == "too many"
