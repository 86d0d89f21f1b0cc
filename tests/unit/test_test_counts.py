# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What .ci/run counts, and which skips make it red."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / ".ci").is_dir():
    pytest.skip("there is no .ci here", allow_module_level=True)

import test_counts as counts  # noqa: E402
from test_counts import Allowed, Session, Skip  # noqa: E402

LIST = [Allowed("tests/x.py::test_a[*]", "no GPU*", ("units", "core:*"), "needs a GPU")]


def session(stage: str, passed: int, *skips: str) -> Session:
    return Session(stage, passed, 0, [Skip(test, "no GPU") for test in skips])


@pytest.mark.parametrize(
    ("seen", "messages"),
    [
        (session("units", 1), []),
        (session("units", 1, "tests/x.py::test_a[1]"), []),
        (session("core:2.17:python3.10", 1, "tests/x.py::test_a[1]"), []),
        (
            session("units", 1, "tests/x.py::test_a"),
            ["skip not in tests/allowed_skips.yml: tests/x.py::test_a: no GPU"],
        ),
        # allowed elsewhere, not here
        (
            session("contracts", 1, "tests/x.py::test_a[1]"),
            ["skip not in tests/allowed_skips.yml: tests/x.py::test_a[1]: no GPU"],
        ),
        (session("units", 0, "tests/x.py::test_a[1]"), ["no test was executed"]),
        (session("units", 0), ["no test was executed"]),
        # for an unexpected reason
        (
            Session("units", 1, 0, [Skip("tests/x.py::test_a[1]", "no compiler")]),
            ["skip not in tests/allowed_skips.yml: tests/x.py::test_a[1]: no compiler"],
        ),
    ],
)
def test_skips_that_are_refused(seen: Session, messages: list[str]) -> None:
    assert counts.refusals(seen, LIST) == messages


def test_an_entry_that_no_skip_needed_is_named() -> None:
    used = [session("units", 1, "tests/x.py::test_a[1]")]
    messages = ["allowed skip that matched nothing: tests/x.py::test_a[*]"]
    assert counts.unused(used, ["units"], LIST) == []
    assert counts.unused([], ["units"], LIST) == messages
    assert counts.unused([], ["lint"], LIST) == []


def test_totals() -> None:
    sessions = [
        session("units", 5, "a"),
        session("demo", 2),
        Session("demo", 1, 1),
        session("x", 1),
    ]
    # lint has no tests and counts as one; x failed without a failed test
    assert counts.total(sessions, ["units", "lint"], ["demo", "x"]) == (10, 2, 1)
    assert counts.total([], [], ["setup"]) == (0, 1, 0)


@pytest.mark.parametrize(
    "text", ["- tests: a\n", "- {tests: a, says: b, stages: [], reason: c}", "- a"]
)
def test_an_entry_needs_its_reason(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"allowed_skips.yml: write tests, says, stages and reason"
    ):
        counts.read_allowed(text)


def test_the_list_is_short_and_names_tests_that_exist() -> None:
    allowed = counts.read_allowed(counts.ALLOWED.read_text())
    assert len(allowed) <= 12
    for entry in allowed:
        file, _colons, name = entry.tests.partition("::")
        if file.endswith("*"):
            continue
        text = (ROOT / file).read_text()
        assert f"def {name.partition('[')[0].rstrip('*')}" in text


BODY = """
import pytest
def test_good(): pass
def test_good_too(): pass
"""
ODD = """
@pytest.mark.skip(reason="no GPU")
def test_skipped(): pass
@pytest.mark.xfail(reason="known")
def test_known(): assert 0
"""
SKIPPED_FILE = "import pytest\npytest.importorskip('no_such')\n"
BAD = "def test_bad(): assert 0\n"
BROKEN_TEARDOWN = """
@pytest.fixture
def late():
    yield
    assert 0
def test_late(late): pass
"""


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "options", "rc", "numbers", "message"),
    [
        ({"a": BODY}, [], 0, (2, 0, 0), ""),
        ({"a": BODY + ODD}, [], 1, (2, 0, 2), "skip not in tests/allowed_skips.yml: test_a.py::"),
        ({"a": BODY, "b": SKIPPED_FILE}, [], 1, (2, 0, 1), "b.py"),
        ({"a": BODY + BAD}, [], 1, (2, 1, 0), ""),
        ({"a": BODY + BROKEN_TEARDOWN}, [], 1, (2, 1, 0), ""),
        ({"a": BODY, "b": "import no_such"}, [], (1, 2), None, ""),
        ({"a": "import pytest\n" + ODD}, [], 1, (0, 0, 2), "no test was executed"),
        ({"a": BODY}, ["-k", "nothing"], 5, (0, 0, 0), "no test was executed"),
    ],
)  # fmt: skip
def test_sessions(tmp_path, files, options, rc, numbers, message) -> None:
    for name, text in files.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    (tmp_path / "conftest.py").write_text(
        (ROOT / "tests" / "conftest.py").read_text().replace("str(collections_path())", "''")
    )
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT / '.ci'}\n")
    environment = {**os.environ, "TEST_COUNTS": str(tmp_path / "counts"), "TEST_STAGE": "units"}
    workers = "2" if "b" in files else "0"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", workers, "-p", "no:cacheprovider", *options],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (rc if isinstance(rc, tuple) else (rc,)), done.stdout + done.stderr
    assert message in done.stdout
    (seen,) = counts.read_sessions(tmp_path / "counts")
    if numbers is None:
        assert seen.failed == 1
    else:
        assert (seen.passed, seen.failed, len(seen.skips)) == numbers


@pytest.mark.parametrize(
    ("stage", "sessions", "rc"),
    [
        ("units", [("units", 1, 0)], 0),
        ("units", [("units", 0, 0)], 1),
        ("units", [("faults", 5, 0)], 1),
        ("fabric", [], 1),
        ("lint", [], 0),
        # A random walk is one check; what calls pytest has tests.
        ("soak:service_histories", [], 0),
        ("soak:two_databases", [], 1),
    ],
)
def test_a_stage_without_tests_is_red(tmp_path, capsys, stage, sessions, rc) -> None:
    for number, (name, passed, failed) in enumerate(sessions):
        data = {"stage": name, "passed": passed, "failed": failed, "skips": []}
        (tmp_path / f"{number}.json").write_text(json.dumps(data))
    assert counts.main(["stage", stage, str(tmp_path)]) == rc
    assert bool(capsys.readouterr().out) is bool(rc)


def test_the_last_line(tmp_path, capsys) -> None:
    data = {"stage": "units", "passed": 7, "failed": 0, "skips": [["t", "why"]]}
    (tmp_path / "1.json").write_text(json.dumps(data))
    for name, text in (("passed", "units\nlint\n"), ("failed", "demo\n")):
        (tmp_path / name).write_text(text)
    counts.main(["sum", *(str(tmp_path / name) for name in ("", "passed", "failed"))])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "SKIP  units: t: why"
    assert lines[-1] == "tests: 8 passed, 1 failed, 1 skipped"
