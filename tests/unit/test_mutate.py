# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mutations of tests/mutants: what is changed, and what is left alone."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "mutants"
sys.path[:0] = [str(FOLDER)]
if not FOLDER.is_dir():
    pytest.skip("the artefact has no mutants", allow_module_level=True)

from mutate import candidates, mutated  # noqa: E402
from run import Mutant, lines_of, read_areas  # noqa: E402


def made(text: str) -> set[str]:
    """Every mutant of a text, as code."""
    return {ast.unparse(mutated(text, mutation)) for mutation in candidates(text)}


@pytest.mark.parametrize(
    ("text", "mutants"),
    [
        ("a < b", {"a <= b", "a >= b"}),
        ("a == b is c", {"a != b is c", "a == b is not c"}),
        ("x = a and b or c", {"x = (a and b) and c", "x = (a or b) or c", "x = a or c",
                              "x = b or c", "x = c", "x = a and b"}),
        ("x = not a", {"x = a"}),
        ("LIMIT = 3", {"LIMIT = 4"}),
        ("a += b", {"a -= b"}),
        ("x = a + b", {"x = a - b"}),
        ("f(True)", {"f(False)"}),
        ("x = FAIL if a else 0", {"x = NOT_MEASURED if a else 0", "x = FAIL if not a else 0",
                                  "x = FAIL if a else 1"}),
        ("for x in y:\n    continue", {"for x in y:\n    break"}),
        # left alone
        ("@dataclass(frozen=True)\nclass A:\n    x: Literal[1]", set()),
        ("def f(x: Literal[1]) -> Literal[2]:\n    'text 3'", set()),
        ("x = 'a' + b", set()),
        ("x = 'PASS'", set()),
    ],
)  # fmt: skip
def test_each_kind(text: str, mutants: set[str]) -> None:
    assert made(text) == {ast.unparse(ast.parse(one)) for one in mutants}


def test_places() -> None:
    text = (
        "A = 1\n\nclass C:\n    @property\n    def f(self):\n"
        "        def g():\n            return 2\n        return g\n"
    )
    assert [(one.line, one.function, one.function_line) for one in candidates(text)] == [
        (1, "", 0),
        (7, "C.f", 4),
    ]


def test_a_default_belongs_to_where_the_function_is_made() -> None:
    (one,) = candidates("def f(x=1):\n    pass\n")
    assert one.function == ""


def _in_a_fork() -> None:
    child = os.fork()
    if not child:
        try:
            len("here")
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_line_that_a_fork_reaches_is_reached(tmp_path: Path) -> None:
    """Modules work in forks with a time limit: their mutants would survive untried."""
    seen: set[tuple[str, int]] = set()
    with lines_of({__file__}, seen, tmp_path):
        _in_a_fork()
    (here,) = [
        number
        for number, line in enumerate(Path(__file__).read_text().splitlines(), 1)
        if line.strip() == 'len("here")'
    ]
    assert (__file__, here) in seen


@pytest.mark.slow
def test_one_area(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / "run.py", "verdict", "--count", "4", "--least", "0"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "verdict: " in done.stdout
    assert " of 4 killed" in done.stdout
    wrong = subprocess.run(
        [sys.executable, FOLDER / "run.py", "verdikt"], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert "no such area: verdikt; write one of gate, records, " in wrong.stderr


@pytest.mark.slow
@pytest.mark.parametrize("area", read_areas().values(), ids=lambda area: area.name)
def test_what_is_accepted_is_a_mutant(area) -> None:
    """A survivor is accepted by its source, so that it is found again when lines move."""
    texts = [
        Mutant(file, found).text for file in area.code for found in candidates(file.read_text())
    ]
    gone = [part for part in area.accepted if not any(part in text for text in texts)]
    assert not gone, f"areas.yml: {area.name}: no mutant is {gone}"
