# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A run of pair tests from its first to its last word: measure, judge, ask further, report.

Everything is kept in one folder: schedule, forwarding tables, results. A run that was killed
continues where it stopped, within a day; one that is older, complete, or of another schedule, is
set aside before a new one.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from typing import Any, Mapping, Sequence

from .._core.files import rename
from .._core.hang import write_files
from .._core.record import FAIL, NOT_MEASURED, Record, Threshold, lines_of, utc_text
from .._core.run import CommandRunner, ToolError
from .._fabric.model import CablePlan
from .._fabric.parse_counters import HARMLESS
from .._fabric.routes import (
    Routes,
    computed_routes,
    dumped_routes,
    read_tables,
    routes_within_switches,
)
from .follow_up import FollowUp, follow_up
from .localise import Localiser, Measurement, Verdict
from .records import make_records
from .remote import Transport
from .results_file import Results, ResultsFile, identity_of, read_results
from .run import Runner, Setup
from .schedule import HALVES, Schedule, all_pairs_rounds, schedule_from_data, schedule_to_data

SCHEDULE = "schedule.json"
TABLES = "tables.txt"
RESULTS = "pairs.jsonl"
FURTHER = "pairs.follow-up-{}.jsonl"
RECORDS = "pairs-records.json"
FINDINGS = "pairs-findings.txt"
# Single parts that could not be measured are counted, not listed one by one.
QUIET = ("fabric.pairs.part",)
# What a half of a round takes beside the test itself: connecting, starting, ending.
_OVERHEAD_S = 6
# A run that began before this is not continued: what was repaired since is in none of its values.
_A_DAY_S = 86400


@dataclass(frozen=True)
class Session:
    """What is tested, how, and what is good."""

    plan: CablePlan
    routes: Routes
    schedule: Schedule
    # By rate: what a flow of so many Gb/s must reach.
    thresholds: Mapping[float, Threshold]
    both_ways: bool


@dataclass
class Outcome:
    """What a session has come to."""

    measurements: list[Measurement]
    verdict: Verdict
    records: list[Record]
    follow_ups: int = 0


def ask_tables(
    run: CommandRunner, timeout_s: float, options: Sequence[str], environment: dict[str, str]
) -> tuple[str, str]:
    """Return the forwarding tables of all switches, or nothing and why not."""
    result = run(["dump_fts", *options], timeout_s=timeout_s, env=environment)
    if not result.ok:
        return "", result.describe(2)
    # Its return code is 0 even if a switch did not answer.
    messages = [
        line for line in result.err.splitlines() if line.strip() and not HARMLESS.match(line)
    ]
    return (result.out, "") if not messages else ("", f"dump_fts: {messages[0].strip()}")


def make_routes(plan: CablePlan, tables: str, one_switch: bool = False) -> tuple[Routes, list[str]]:
    """Return the routes of these tables, or computed ones without any, and what is wrong there.

    With one_switch only adapters of one switch meet. ToolError where the tables are not whole, or
    of another fabric.
    """
    if one_switch:
        return routes_within_switches(plan), []
    if not tables:
        return computed_routes(plan), []
    read = read_tables(tables)
    if read.complaints:
        raise ToolError(f"forwarding tables: {read.complaints[0]}; dump them again")
    routes = dumped_routes(plan, read)
    problems = list(routes.problems())
    if len(problems) * 2 > len(plan.hcas):
        raise ToolError(
            f"forwarding tables: {len(problems)} of {len(plan.hcas)} rails have no route: "
            f"{problems[0]}; they may be of another fabric, or the fabric is not cabled as planned "
            "(fabric_verify tells)"
        )
    return routes, problems


def describe(schedule: Schedule, nodes: int, duration_s: float) -> dict[str, Any]:
    """Return the schedule in short."""
    first = schedule.rounds[0] if schedule.rounds else ()
    return {
        "rounds": len(schedule.rounds),
        "loopback_rounds": int(bool(first) and all(unit.loopback for unit in first)),
        "all_pairs_rounds": all_pairs_rounds(nodes),
        "units": sum(len(units) for units in schedule.rounds),
        "seconds": round(len(schedule.rounds) * len(HALVES) * (duration_s + _OVERHEAD_S)),
        "routes": schedule.routes,
        "pairs_per_link": schedule.pairs_per_link,
        "unloaded": [str(end) for end in schedule.unloaded],
        "thin": {str(end): count for end, count in schedule.thin},
    }


def round_lines(schedule: Schedule) -> list[list[str]]:
    """Return each round as lines: two nodes, and what is not all rails with their like."""
    rounds = []
    for units in schedule.rounds:
        lines = []
        for unit in units:
            shift = f", rail r with r+{unit.shift}" if unit.shift else ""
            rails = "" if len(unit.rails) == unit.modulus else f", rails {list(unit.rails)}"
            who = f"{unit.a} alone" if unit.loopback else f"{unit.a} {unit.b}"
            lines.append(who + shift + rails)
        rounds.append(lines)
    return rounds


def judge(
    session: Session, localiser: Localiser, measurements: Sequence[Measurement]
) -> tuple[Verdict, FollowUp]:
    """Return what the measurements say, and what to ask further."""
    verdict = localiser.judge(measurements, session.thresholds)
    return verdict, follow_up(localiser.suspects, verdict, session.schedule)


def measure(
    session: Session, setup: Setup, transport: Transport, folder: str, follow_ups: int
) -> Outcome:
    """Run the schedule, then what tells apart what it left open, so many times at most."""
    # Follow-ups begin after all else, so those that are there are of a run that is not continued.
    _retire_follow_ups(folder)
    localiser = Localiser(session.plan, session.routes, session.both_ways)
    measurements = _run(session.schedule, setup, transport, os.path.join(folder, RESULTS), 0)
    verdict, further = judge(session, localiser, measurements)
    done, rounds = 0, len(session.schedule.rounds)
    while done < follow_ups and further.schedule.rounds:
        done += 1
        path = os.path.join(folder, FURTHER.format(done))
        measurements += _run(further.schedule, setup, transport, path, rounds)
        rounds += len(further.schedule.rounds)
        verdict, further = judge(session, localiser, measurements)
    return _outcome(session, localiser, measurements, verdict, further, done)


def judge_again(session: Session, folder: str) -> Outcome:
    """Judge what is in a folder, without measuring anything."""
    localiser = Localiser(session.plan, session.routes, session.both_ways)
    measurements = _moved(_read(os.path.join(folder, RESULTS)))
    done = 0
    while os.path.exists(os.path.join(folder, FURTHER.format(done + 1))):
        done += 1
        measurements += _moved(_read(os.path.join(folder, FURTHER.format(done))))
    verdict, further = judge(session, localiser, measurements)
    return _outcome(session, localiser, measurements, verdict, further, done)


def _outcome(
    session: Session,
    localiser: Localiser,
    measurements: list[Measurement],
    verdict: Verdict,
    further: FollowUp,
    done: int,
) -> Outcome:
    records = make_records(session.plan, localiser.suspects, verdict, further, session.thresholds)
    # As old as the oldest value that they rest on.
    at = min((flow.at for flow in verdict.counted or measurements), default=utc_text())
    records = [replace(record, at=at) for record in records]
    return Outcome(measurements, verdict, records, done)


def _run(
    schedule: Schedule, setup: Setup, transport: Transport, path: str, offset: int
) -> list[Measurement]:
    identity = identity_of(schedule, setup.recipe)
    halves = {(number, half) for number in range(len(schedule.rounds)) for half in HALVES}
    if os.path.exists(path):
        before = _read(path)
        fresh = utc_text(time.time() - _A_DAY_S) <= before.at <= utc_text()
        if before.identity != identity or before.done >= halves or not fresh:
            _retire(path)
    results = ResultsFile(path, identity, utc_text(), offset)
    try:
        Runner(schedule, setup, transport, results).run()
        return _moved(results.results)
    finally:
        results.close()


def _moved(results: Results) -> list[Measurement]:
    """Return the measurements with rounds counted from those of the files before."""
    return [replace(one, round=one.round + results.offset) for one in results.measurements()]


def _read(path: str) -> Results:
    try:
        with open(path, encoding="utf-8") as file:
            return read_results(file.read())
    except OSError as error:
        raise ToolError(f"{path} cannot be read: {error.strerror}") from error


def _retire(path: str) -> None:
    """Set a file aside under a name that is free."""
    number = 1
    while os.path.exists(f"{path}.{number}"):
        number += 1
    rename(path, f"{path}.{number}")


def _retire_follow_ups(folder: str) -> None:
    """Set aside follow-ups of an earlier run."""
    number = 1
    while os.path.exists(os.path.join(folder, FURTHER.format(number))):
        _retire(os.path.join(folder, FURTHER.format(number)))
        number += 1


def schedule_text(schedule: Schedule) -> str:
    """Return the schedule for a file."""
    return json.dumps(schedule_to_data(schedule), indent=1) + "\n"


def read_schedule(folder: str) -> Schedule:
    """Return the schedule of a folder; ToolError where there is none."""
    path = os.path.join(folder, SCHEDULE)
    try:
        with open(path, encoding="utf-8") as file:
            return schedule_from_data(json.load(file))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ToolError(f"{path} is not a schedule of a run: {error}") from error


def keep_plan(folder: str, schedule: Schedule, tables: str) -> None:
    """Keep what a run goes by, so that one that was killed goes on; ToolError."""
    write_files(folder, {SCHEDULE: schedule_text(schedule), TABLES: tables})


def keep_records(folder: str, records: Sequence[Record]) -> None:
    """Keep the records, and a line for each that did not pass; ToolError."""
    lines = lines_of(records, FAIL) + lines_of(records, NOT_MEASURED, QUIET)
    write_files(
        folder,
        {
            RECORDS: json.dumps([record.as_data() for record in records], indent=1) + "\n",
            FINDINGS: "".join(f"{line}\n" for line in lines),
        },
    )
