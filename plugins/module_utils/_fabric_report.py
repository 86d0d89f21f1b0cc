# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What fabric_verify hands over: records, files, and a plan that was learned. Pure."""

from __future__ import annotations

from typing import Mapping

from ansible_collections.baremetal.dgx.plugins.module_utils._cable_csv import cables_csv
from ansible_collections.baremetal.dgx.plugins.module_utils._cable_labels import Place
from ansible_collections.baremetal.dgx.plugins.module_utils._cable_learn import learn
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_collect import Answers
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_findings import several
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_judge import (
    Verdict,
    records_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_match import match
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_model import CablePlan
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_svg import fabric_svg
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_text import (
    findings_text,
    json_text,
    verdict_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    NOT_MEASURED,
    Record,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import ToolError


def fabric_records(
    plan: CablePlan, verdict: Verdict, answers: Answers, interval_s: float
) -> list[Record]:
    """Return all records: of cables, of findings, and of tools that measured nothing."""
    records = records_of(plan, verdict)
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
            "the counters were read once: a total does not tell of what time it is"
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


def learned_csv(
    devices: CablePlan, answers: Answers, places: Mapping[str, Place]
) -> tuple[str, list[str]]:
    """Return a list of the cables that a sweep found, and lines on it.

    ToolError where the sweep cannot be a reference.
    """
    sweep = answers.observation.sweep
    if answers.lost:
        raise ToolError(f"learn: {answers.lost[0][1]}")
    names = match(CablePlan(devices.hcas, devices.switches, ()), sweep).by_guid
    learned = learn(devices, sweep, names)
    if learned.plan is None:
        raise ToolError("learn: " + several(list(learned.problems)))
    count = len(learned.plan.cables)
    return cables_csv(learned.plan, places), [f"{count} cables were learned", *learned.notes]
