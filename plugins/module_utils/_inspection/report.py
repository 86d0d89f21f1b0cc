# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What fabric_inspect hands over: records, and the files of a fabric without a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Mapping

from .._core.hang import write_files
from .._core.record import Record
from .._core.run import CommandRunner, ToolError
from .._fabric.ask import Answers, observe, taken_at
from .._fabric.findings import ERRORS, NO_SM, TWO_MASTERS
from .._fabric.judge import EmptyPlanError, Verdict
from .._fabric.picture import fabric_svg
from .._fabric.report import fabric_records, result_of
from .._fabric.text import findings_text, json_text, verdict_data
from .judge import inspect
from .learn import ask_states

_PICTURE = "without a plan"
_RIGHT = "as most of it is cabled"
# What a sweep asks of each fabric: a doubt about it was not answered, and is never a guess.
_ASKED = {ERRORS, NO_SM, TWO_MASTERS}


def summary(verdict: Verdict) -> str:
    """Return the verdict as one line."""
    plan = verdict.wiring.plan
    hosts = len({host for host, _rail in plan.hcas})
    count, silent = len(verdict.findings), len(verdict.doubts) + len(verdict.complaints)
    return (
        f"{hosts} hosts, {len(plan.switches)} switches, {len(plan.cables)} cables without a plan: "
        f"{count} finding{'s' * (count != 1)}; {silent} not measured or guessed"
    )


def _complaints(verdict: Verdict, answers: Answers) -> list[str]:
    """Return what makes the sweep doubtful, and which answers were lost or are not whole."""
    seen = answers.observation
    lost = [f"{tool}: {why}" for tool, why in answers.lost if why not in verdict.complaints]
    counters = [
        one for reading in (seen.before, seen.after) if reading for one in reading.complaints
    ]
    return list(dict.fromkeys([*verdict.complaints, *lost, *counters]))


def inspect_fabric(
    run: CommandRunner, params: Mapping[str, Any], check: bool
) -> tuple[list[Record], dict[str, Any]]:
    """Return the records, and what else the module returns; ToolError.

    The files are written, unless it is a check only.
    """
    at = taken_at(params)
    answers = observe(run, params, ask_states)
    try:
        verdict = inspect(answers.observation)
    except EmptyPlanError:
        why = [f"{tool}: {trouble}" for tool, trouble in answers.lost] or ["nothing is linked"]
        raise ToolError(
            f"no fabric was seen ({why[0]}); look from a host that is attached to one, with "
            "infiniband-diags"
        ) from None
    records = fabric_records(verdict.wiring.plan, verdict, answers, params["interval_s"])
    complaints = _complaints(verdict, answers)
    if params["sweep_files"] is None and answers.observation.before and params["interval_s"] <= 0:
        # Of a saved sweep there may be no second reading; of this fabric there could be one.
        complaints += [record.text for record in records if record.check == "fabric.interval"]
    verdict = replace(verdict, complaints=complaints)
    line = summary(verdict)
    records = [replace(record, at=at) for record in records] if at else records
    text = "\n".join([line, *findings_text(verdict).split("\n")[1:]])
    data = verdict_data(verdict, records)
    data["summary"]["text"] = line
    files = []
    if params["output"] and not check:
        texts = {f"raw/{tool}.txt": output for tool, output in answers.raw.items()}
        texts["findings.txt"] = text
        name = f"{params['cluster_name']} {_PICTURE}".strip()
        texts["fabric.svg"] = fabric_svg(verdict, name, _RIGHT)
        texts["records.json"] = json_text(data)
        files = write_files(params["output"], texts)
    doubted = [doubt.text for doubt in verdict.doubts if doubt.kind in _ASKED]
    complaints = [*verdict.complaints, *doubted]
    result = {**result_of(verdict, {}), "text": text, "complaints": complaints, "files": files}
    result["summary"]["text"] = line
    return records, result
