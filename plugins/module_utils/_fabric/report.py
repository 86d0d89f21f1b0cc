# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What fabric_verify hands over: records and files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Mapping

from .._core.hang import write_files
from .._core.record import FAIL, NOT_MEASURED, Record
from .._core.run import CommandRunner
from .ask import Answers, environment_of, load_places, observe, taken_at
from .judge import (
    EmptyPlanError,
    Expectation,
    FirstLook,
    Verdict,
    first_look,
    judge_fabric,
    records_of,
)
from .judge_switches import add_findings, ask_switches
from .model import CablePlan, Place, Sweep
from .picture import fabric_svg
from .text import bandwidth_data, finding_data, findings_text, json_text, summary, verdict_data
from .thresholds import SUPPLIES

_CABLE = "fabric.cable"
# The findings say what is wrong with the cables.
COUNTED = {FAIL: (_CABLE,), NOT_MEASURED: (_CABLE,)}


def fabric_records(
    plan: CablePlan, verdict: Verdict, answers: Answers, interval_s: float
) -> list[Record]:
    """Return all records: of cables, of findings, and of tools that measured nothing."""
    records = records_of(verdict)
    records += [
        Record("fabric.tool", f"tool:{tool}", NOT_MEASURED, why, remedy=f"look at {tool} here")
        for tool, why in answers.lost
    ]
    seen = answers.observation
    for reading in (seen.before, seen.after):
        if reading is not None:
            records += [
                Record("fabric.counters", "fabric", NOT_MEASURED, complaint)
                for complaint in reading.complaints
            ]
    if seen.before is None or seen.after is None:
        text = (
            "the counters were read once: a total does not show of what time it is"
            if interval_s == 0 or seen.before is not None
            else "the counters were not read"
        )
        remedy = "read them twice, with interval_s: 720"
        records.append(Record("fabric.interval", "fabric", NOT_MEASURED, text, remedy=remedy))
    return records


def report_files(
    verdict: Verdict,
    records: list[Record],
    raw: Mapping[str, str],
    places: Mapping[str, Place],
    name: str,
) -> dict[str, str]:
    """Return the text of each file of the report by its path in the folder; records.json last."""
    files = {f"raw/{tool}.txt": text for tool, text in raw.items()}
    files["findings.txt"] = findings_text(verdict, places)
    files["fabric.svg"] = fabric_svg(verdict, name)
    files["records.json"] = json_text(verdict_data(verdict, records, places))
    return files


def verify(
    run: CommandRunner,
    plan: CablePlan,
    wanted: Expectation,
    params: Mapping[str, Any],
    check: bool,
) -> tuple[list[Record], dict[str, Any]]:
    """Return the records, and what else the module returns; ToolError, OtherClusterError.

    The files are written, unless it is a check only.
    """
    if not plan.cables:
        raise EmptyPlanError("the plan has no cables: nothing can be compared with it")
    looks: list[FirstLook] = []

    def states_matter(sweep: Sweep) -> bool:
        looks.append(first_look(plan, sweep, wanted))
        return not looks[-1].wiring.whole

    at = taken_at(params)
    answers = observe(run, params, states_matter)
    look = looks[-1] if looks else None
    verdict = judge_fabric(plan, answers.observation, wanted, look)
    records: list[Record] = []
    if params["switch_health"]:
        asked, raw = _ask_switches(run, look, params)
        answers.raw.update(raw)
        records = add_findings(verdict, asked)
    records = [*fabric_records(plan, verdict, answers, params["interval_s"]), *records]
    records = [replace(record, at=at) for record in records] if at else records
    places, files = load_places(params["places"]), []
    if params["output"] and not check:
        texts = report_files(verdict, records, answers.raw, places, params["cluster_name"])
        files = write_files(params["output"], texts)
    complaints = [*verdict.complaints, *(f"{tool}: {why}" for tool, why in answers.lost)]
    return records, {**result_of(verdict, places), "complaints": complaints, "files": files}


def _ask_switches(
    run: CommandRunner, look: FirstLook | None, params: Mapping[str, Any]
) -> tuple[list[Record], dict[str, str]]:
    if look is not None:
        return ask_switches(run, look, params["timeout_s"], environment_of(params))
    why = "the sweep was not made" if params["sweep_files"] is None else "the sweep is a saved one"
    text, remedy = f"no switch was asked: {why}", "ask on a host of the fabric, without sweep_files"
    return [Record(SUPPLIES.check, "fabric", NOT_MEASURED, text, remedy=remedy)], {}


def result_of(verdict: Verdict, places: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a module that judges a fabric returns beside the records."""
    return {
        "causes": [finding_data(finding, places) for finding in verdict.findings],
        "doubts": [finding_data(finding, places) for finding in verdict.doubts],
        "information": verdict.information,
        "bandwidth": bandwidth_data(verdict),
        "summary": {"text": summary(verdict), "cables": verdict.counts()},
        "text": findings_text(verdict, places),
    }
