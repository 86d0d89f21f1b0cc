#!/usr/bin/env python3
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts the tests of a run, and refuses a skip that tests/allowed_skips.yml does not name.

.ci/run gives every stage $TEST_COUNTS (a folder) and $TEST_STAGE (its name), and tests/conftest.py
registers `Counter`: each pytest session writes one file, and ends red when it skipped what it must
not, or executed nothing.

  test_counts.py stage NAME FOLDER          ends with 1 when the stage must have tests and ran none
  test_counts.py sum FOLDER PASSED FAILED   the summary; PASSED and FAILED hold a stage a line
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ALLOWED = Path(__file__).resolve().parents[1] / "tests" / "allowed_skips.yml"
# Each is one check without tests inside, and counts as one; so is a soak without pytest. All other
# stages must execute tests.
ONE_CHECK = (
    "setup",
    "lint",
    "quicklint",
    "sanity",
    "build",
    "scale",
)
SOAKS = Path(__file__).resolve().parents[1] / "tests" / "soak"


def is_one_check(stage: str) -> bool:
    """Return whether a stage has no tests inside."""
    kind, _colon, name = stage.partition(":")
    if kind != "soak":
        return stage in ONE_CHECK
    return "pytest" not in (SOAKS / name).read_text(encoding="utf-8")


def matches(pattern: str, text: str) -> bool:
    """Return whether the text has this pattern; only * is special: test ids have brackets."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None


@dataclass(frozen=True)
class Skip:
    """A skipped test and why."""

    test: str
    reason: str


@dataclass(frozen=True)
class Allowed:
    """A line of allowed_skips.yml."""

    tests: str
    says: str
    stages: tuple[str, ...]
    reason: str

    def in_stage(self, stage: str) -> bool:
        """Return whether the entry is for this stage."""
        return any(matches(pattern, stage) for pattern in self.stages)

    def covers(self, stage: str, skip: Skip) -> bool:
        """Return whether the entry allows this skip."""
        return (
            self.in_stage(stage)
            and matches(self.tests, skip.test)
            and matches(self.says, skip.reason)
        )


@dataclass
class Session:
    """What one pytest session did."""

    stage: str
    passed: int = 0
    failed: int = 0
    skips: list[Skip] = field(default_factory=list)


def read_allowed(text: str) -> list[Allowed]:
    """Parse allowed_skips.yml; ValueError names an entry without tests, stages or reason."""
    import yaml

    found = []
    for entry in yaml.safe_load(text) or []:
        keys = set(entry) if isinstance(entry, dict) else set()
        if keys != {"tests", "says", "stages", "reason"} or not all(entry.values()):
            raise ValueError(f"{ALLOWED.name}: write tests, says, stages and reason: {entry}")
        found.append(Allowed(**{**entry, "stages": tuple(entry["stages"])}))
    return found


def refusals(session: Session, allowed: Sequence[Allowed]) -> list[str]:
    """Return why this session is red although no test failed."""
    reported = [
        f"skip not in tests/{ALLOWED.name}: {skip.test}: {skip.reason}"
        for skip in session.skips
        if not any(entry.covers(session.stage, skip) for entry in allowed)
    ]
    if not session.passed + session.failed:
        reported.append("no test was executed")
    return reported


def unused(
    sessions: Iterable[Session], stages: Iterable[str], allowed: Iterable[Allowed]
) -> list[str]:
    """Return the entries for a stage of this run that no skip needed."""
    seen = [(session.stage, skip) for session in sessions for skip in session.skips]
    ran = list(stages)
    return [
        f"allowed skip that matched nothing: {entry.tests}"
        for entry in allowed
        if any(entry.in_stage(stage) for stage in ran)
        and not any(entry.covers(*one) for one in seen)
    ]


def total(
    sessions: Sequence[Session], passed: Sequence[str], failed: Sequence[str]
) -> tuple[int, int, int]:
    """Return the tests that passed, failed and were skipped; a stage without tests counts as one.

    So does a stage that failed without a failed test: a red run never says 0 failed.
    """
    tested = {session.stage for session in sessions}
    broken = {session.stage for session in sessions if session.failed}
    return (
        sum(session.passed for session in sessions) + sum(stage not in tested for stage in passed),
        sum(session.failed for session in sessions) + sum(stage not in broken for stage in failed),
        sum(len(session.skips) for session in sessions),
    )


class Counter:
    """The pytest plugin; on the controller of pytest-xdist, which gets every test."""

    def __init__(self, folder: Path, stage: str, allowed: Sequence[Allowed]) -> None:
        self.folder = folder
        self.session = Session(stage)
        self.allowed = allowed
        self.outcomes: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self.reported: list[str] = []

    def note(self, test: str, report: Any) -> None:
        """Remember the worst outcome of a test; a test that was expected to fail was skipped."""
        rank = ("passed", "skipped", "failed")
        before = self.outcomes.get(test, "passed")
        self.outcomes[test] = max(before, report.outcome, key=rank.index)
        if report.outcome == "skipped":
            place = report.longrepr
            reason = place[2] if isinstance(place, tuple) else str(place)
            self.reasons[test] = getattr(report, "wasxfail", "") or reason.removeprefix("Skipped: ")

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count a test."""
        self.note(report.nodeid, report)

    def pytest_collectreport(self, report: Any) -> None:
        """Count a file that was skipped or could not be read: a file counts as one test."""
        if report.outcome != "passed":
            self.note(report.nodeid, report)

    def pytest_sessionfinish(self, session: Any) -> None:
        """Write the file, and end red if the list requires it."""
        found = self.session
        found.passed = sum(outcome == "passed" for outcome in self.outcomes.values())
        found.failed = sum(outcome == "failed" for outcome in self.outcomes.values())
        found.skips = [
            Skip(test, self.reasons[test])
            for test, outcome in self.outcomes.items()
            if outcome == "skipped"
        ]
        self.reported = refusals(found, self.allowed)
        if self.reported and session.exitstatus == 0:
            session.exitstatus = 1
        self.folder.mkdir(parents=True, exist_ok=True)
        data = {"stage": found.stage, "passed": found.passed, "failed": found.failed}
        data["skips"] = [[skip.test, skip.reason] for skip in found.skips]
        file = self.folder / f"{os.getpid()}-{len(list(self.folder.iterdir()))}.json"
        file.write_text(json.dumps(data), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name what made the session red."""
        for line in self.reported:
            terminalreporter.write_line(line, red=True)


def counter() -> Counter | None:
    """Return the plugin that $TEST_COUNTS asks for."""
    folder = os.environ.get("TEST_COUNTS")
    if not folder:
        return None
    allowed = read_allowed(ALLOWED.read_text(encoding="utf-8"))
    return Counter(Path(folder), os.environ.get("TEST_STAGE", ""), allowed)


def read_sessions(folder: Path) -> list[Session]:
    """Read what the sessions wrote."""
    found = []
    for file in sorted(folder.glob("*.json")):
        data = json.loads(file.read_text(encoding="utf-8"))
        data["skips"] = [Skip(*skip) for skip in data["skips"]]
        found.append(Session(**data))
    return found


def main(argv: Sequence[str]) -> int:
    """Run a command of the text above."""
    if argv[0] == "stage":
        stage, folder = argv[1], Path(argv[2])
        mine = [session for session in read_sessions(folder) if session.stage == stage]
        if is_one_check(stage) or any(session.passed + session.failed for session in mine):
            return 0
        print(f"stage {stage}: no test was executed")
        return 1
    sessions = read_sessions(Path(argv[1]))
    passed, failed = (Path(name).read_text(encoding="utf-8").split() for name in argv[2:4])
    allowed = read_allowed(ALLOWED.read_text(encoding="utf-8"))
    for stage, test, reason in sorted(
        {(s.stage, k.test, k.reason) for s in sessions for k in s.skips}
    ):
        print(f"SKIP  {stage}: {test}: {reason}")
    for line in unused(sessions, passed, allowed):
        print(line)
    print("tests: %d passed, %d failed, %d skipped" % total(sessions, passed, failed))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
