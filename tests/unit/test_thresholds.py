# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every threshold of the collection: a row of a table, with unit, source and remedy, and tested.

docs/thresholds.md is made from the same tables.
"""

from __future__ import annotations

import ast
import re
import string
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "plugins"
if not (ROOT / ".ci").exists():
    pytest.skip("there is no .ci here", allow_module_level=True)
import threshold_table  # noqa: E402

from ansible_collections.baremetal.dgx.plugins.module_utils._core.question import (  # noqa: E402
    Question,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (  # noqa: E402
    FAIL,
    NOT_MEASURED,
    PASS,
)

QUESTIONS = [
    pytest.param(one, id=f"{package}-{one.check}-{number}")
    for package, questions in threshold_table.packages().items()
    for number, one in enumerate(questions)
]
# Where a Threshold may be made: from a question, and from a record that was written before.
MAKERS = {
    "module_utils/_core/question.py",
    "module_utils/_core/verdict.py",
    "plugin_utils/_report/html.py",
}
ORDER = ("<=", ">=", "<", ">")
# Shares of 1, which have no unit.
SHARES = {"memory.balance"}


def calls_of(name: str, text: str) -> list[int]:
    """Return the lines in which a name is called."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) == name
    ]


def test_a_threshold_beside_the_tables_is_found() -> None:
    text = "mark = Threshold('==', 0, '', '')\nother = record.Threshold('==', 0, '', '')\n"
    assert calls_of("Threshold", text) == [1, 2]
    assert calls_of("Threshold", "def f(one: Threshold) -> None: ...\n") == []


def test_thresholds_are_made_from_questions_of_tables_only() -> None:
    made, asked = set(), set()
    for path in PLUGINS.rglob("*.py"):
        name, text = str(path.relative_to(PLUGINS)), path.read_text(encoding="utf-8")
        if calls_of("Threshold", text):
            made.add(name)
        elif calls_of("Question", text):
            asked.add(path.name)
    assert made == MAKERS
    assert asked == {"thresholds.py"}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_says_what_it_asks_and_whose_threshold_it_is(question: Question) -> None:
    assert re.fullmatch(r"[a-z]+(\.[a-z0-9_{}-]+)+", question.check), question.check
    for text in (question.what, question.source, question.remedy):
        assert text == text.strip() != ""
    assert question.op in ("==", *ORDER)
    number = isinstance(question.value, (int, float)) and not isinstance(question.value, bool)
    # A name or a state needs no unit, a number does.
    if number or question.op in ORDER:
        assert question.unit or question.check in SHARES


def sample(question: Question) -> Question:
    """Return the question with its fields filled, and a value where the node's is asked for."""
    texts = (question.check, question.what, question.unit, question.source, question.remedy)
    fields = {
        field
        for text in texts
        for _text, field, _spec, _conversion in string.Formatter().parse(text)
    }
    filled = question.filled(**dict.fromkeys(fields - {None}, 7))
    if question.value is None:
        filled = filled._replace(value=100 if question.op in ORDER else "as declared")
    return filled


def sides(op: str, value: Any) -> tuple[Any, Any]:
    """Return the values nearest to a threshold: one that passes, and one that fails."""
    if op == "==":
        if isinstance(value, bool):
            return value, not value
        return value, value + 1 if isinstance(value, (int, float)) else f"not {value}"
    step = 1 if isinstance(value, int) else abs(value) / 1000
    below, above = value - step, value + step
    return {
        "<=": (value, above),
        ">=": (value, below),
        "<": (below, value),
        ">": (above, value),
    }[op]


def test_the_nearest_values_are_on_both_sides() -> None:
    assert sides("<=", 8) == (8, 9)
    assert sides(">=", 715.0) == (715.0, 714.285)
    assert sides("<", 85) == (84, 85)
    assert sides(">", 0) == (1, 0)
    assert sides("==", True) == (True, False)
    assert sides("==", 0) == (0, 1)
    assert sides("==", "good") == ("good", "not good")


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_value_just_inside_passes_and_one_just_outside_fails(question: Question) -> None:
    filled = sample(question)
    assert "{" not in "".join((filled.check, filled.unit, filled.source, filled.remedy))
    inside, outside = sides(filled.op, filled.value)
    passed, failed = (filled.judge("node:n", value) for value in (inside, outside))
    assert (passed.status, passed.remedy) == (PASS, "")
    assert (failed.status, failed.remedy) == (FAIL, filled.remedy)
    assert filled.judge("node:n", None).status == NOT_MEASURED
    for record in (passed, failed):
        assert record.check == filled.check
        assert record.threshold == filled.threshold()
        assert record.measured is not None
        assert (
            record.measured["unit"] == question.unit.replace("{unit}", "7") or "{" in question.unit
        )


@cache
def words_of_tests() -> frozenset[str]:
    """Return the words with dots and underscores of all tests but this one."""
    paths = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "tests").rglob("*.yml")]
    text = "\n".join(
        path.read_text(encoding="utf-8") for path in paths if path != Path(__file__).resolve()
    )
    return frozenset(re.findall(r"[a-z][a-z0-9_]*(?:\.[a-z0-9_-]+)*", text))


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_tests_of_its_package_ask_it(question: Question) -> None:
    """Tests name a check, or what comes after its first dot where they speak of one layer."""
    pattern = re.sub(r"\\\{\w+\\\}", r"[a-z0-9_-]+", re.escape(question.check))
    names = (pattern, pattern.partition(r"\.")[2])
    assert any(re.fullmatch(name, word) for word in words_of_tests() for name in names)


def test_the_page_is_that_of_the_tables() -> None:
    page = threshold_table.PAGE.read_text(encoding="utf-8")
    assert page == threshold_table.page(), "run .ci/threshold_table.py"
    rows = re.findall(r"^\| `", page, re.MULTILINE)
    assert len(rows) == len(QUESTIONS) > 190
