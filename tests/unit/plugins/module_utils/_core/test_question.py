# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a question of a table to the record of one value."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.question import (
    Question,
    by_check,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Threshold,
)

HEAT = Question("x.heat", "heat of {part}", "<", 85, "C", "data sheet", "look: fans of {part}")
RATE = Question("x.rate", "rate", ">=", None, "Gb/s", "profile", "replace: the cable")


@pytest.mark.parametrize(
    ("measured", "status"), [(84, PASS), (85, FAIL), (86, FAIL), (None, NOT_MEASURED)]
)
def test_a_value_is_judged_by_the_questions_own_threshold(measured, status) -> None:
    record = HEAT.judge("node:n", measured)
    assert record.status == status
    assert record.threshold == Threshold("<", 85, "C", "data sheet")
    assert (record.check, record.subject) == ("x.heat", "node:n")


def test_text_and_remedy_are_the_questions_own_unless_given() -> None:
    own = HEAT.judge("node:n", 90, evidence=["a line"])
    assert (own.text, own.remedy, own.evidence) == (HEAT.what, HEAT.remedy, ("a line",))
    given = HEAT.judge("node:n", 90, text="", remedy="look: here")
    assert (given.text, given.remedy) == ("", "look: here")
    assert HEAT.judge("node:n", 20).remedy == ""


def test_a_value_of_the_node_takes_the_place_of_the_tables() -> None:
    assert RATE.threshold(400) == Threshold(">=", 400, "Gb/s", "profile")
    assert RATE.threshold(0).value == 0
    assert HEAT.threshold(70, "inventory") == Threshold("<", 70, "C", "inventory")
    assert RATE.judge("cable:c", 200, 400).status == FAIL
    assert RATE.judge("cable:c", 200, 200, source="a sweep").threshold == Threshold(
        ">=", 200, "Gb/s", "a sweep"
    )


def test_fields_are_filled() -> None:
    filled = HEAT.filled(part="the {odd} part")
    assert (filled.what, filled.remedy) == (
        "heat of the {odd} part",
        "look: fans of the {odd} part",
    )
    with pytest.raises(KeyError, match="part"):
        HEAT.filled(other=1)


def test_a_table_has_each_check_once() -> None:
    assert by_check(HEAT, RATE) == {"x.heat": HEAT, "x.rate": RATE}
    with pytest.raises(ValueError, match=r"^x\.heat: two questions of one check$"):
        by_check(HEAT, RATE, HEAT)
