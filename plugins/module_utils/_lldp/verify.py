# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The judgement of an Ethernet fabric by what its nodes hear: records and the module's result."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Mapping

from .._core.files import text_of_option
from .._core.hang import write_files
from .._core.record import FAIL, NOT_MEASURED, PASS, Record, utc_text
from .._core.run import ToolError
from .._fabric.ask import Answers, load_places
from .._fabric.findings import by_cost
from .._fabric.judge import Expectation, Observation, Verdict, judge_fabric, records_of
from .._fabric.model import NODE_LEAF, CablePlan
from .._fabric.report import report_files, result_of
from .sweep import hear, parse_neighbours


def judge(plan: CablePlan, params: Mapping[str, Any]) -> tuple[Answers, Verdict]:
    """Judge what was received; ToolError if nothing was, OtherClusterError for another plan."""
    saved = {
        name: text_of_option(str(path), f"switch_neighbor_files.{name}")
        for name, path in params["switch_neighbor_files"].items()
    }
    try:
        switches = {name: parse_neighbours(text) for name, text in saved.items()}
    except ValueError as error:
        raise ToolError(f"switch_neighbor_files: {error}") from error
    received = hear(plan, params["neighbors"], switches, params["ports_per_cage"])
    if not received.plan.cables:
        why = "; ".join(doubt.text for doubt in received.doubts) or "the plan has no cables"
        raise ToolError(f"neighbors: nothing was received: {why}")
    wanted = Expectation(other_hosts=params["other_hosts"], least_share=params["least_share"])
    verdict = judge_fabric(received.plan, Observation(received.sweep), wanted)
    verdict.wiring = replace(verdict.wiring, plan=plan)
    verdict.doubts = by_cost([*verdict.doubts, *received.doubts])
    why_not = {cable: (NOT_MEASURED, why) for cable, why in received.unheard.items()}
    # In the order of the plan.
    cables = {**verdict.cables, **why_not}
    verdict.cables = {cable: cables[cable] for cable in plan.cables}
    verdict.information, verdict.bandwidths = [], []
    raw = {"neighbors": json.dumps(params["neighbors"], indent=1), **saved}
    return Answers(Observation(received.sweep), raw), verdict


def verify(
    plan: CablePlan, params: Mapping[str, Any], check: bool
) -> tuple[list[Record], dict[str, Any]]:
    """Return the records, and what else the module returns; the files are written."""
    answers, verdict = judge(plan, params)
    at = utc_text()
    records = [replace(record, at=at) for record in records_of(verdict)]
    places, files = load_places(params["places"]), []
    if params["output"] and not check:
        texts = report_files(verdict, records, answers.raw, places, params["cluster_name"])
        files = write_files(params["output"], texts)
    result = result_of(verdict, places)
    of_nodes = [verdict.cables[cable][0] for cable in plan.cables if cable.kind == NODE_LEAF]
    counts = {status: of_nodes.count(status) for status in (PASS, FAIL, NOT_MEASURED)}
    result["summary"]["node_cables"] = counts
    return records, {**result, "files": files}
