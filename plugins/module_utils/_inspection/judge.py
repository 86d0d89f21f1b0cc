# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The judgement of a fabric without a plan: against the one that it seems to follow. Pure.

What is wrong by itself (silence, a GUID twice, errors) and what breaks the pattern of most is a
finding. What may as well be meant is a guess: not measured, and never a failure.
"""

from __future__ import annotations

from dataclasses import replace

from .._core.record import NOT_MEASURED
from .._fabric.findings import (
    DESCRIPTION,
    EXCHANGED,
    IDENTITY,
    RENAMED,
    SILENT,
    SPEED,
    UNEXPECTED,
    UPLINKS,
    WIDTH,
    Finding,
    by_cost,
)
from .._fabric.judge import Observation, Verdict, judge_fabric
from .infer import Inferred, infer, rests_on
from .pattern import SURE, Support

# What only a plan can say.
_OF_PLANS = {UPLINKS, DESCRIPTION, RENAMED, IDENTITY}
_ODD = (
    "a guess: no other two switches of their tiers are joined like this; if it is not meant, take "
    "the cable out"
)


def inspect(seen: Observation) -> Verdict:
    """Return the verdict on a fabric; EmptyPlanError where no two devices are linked."""
    inferred = infer(seen.sweep)
    verdict = judge_fabric(inferred.plan, seen)
    reported = [item for item in verdict.findings + verdict.doubts if item.kind not in _OF_PLANS]
    reported = [item for item in reported if not _explained(inferred, item)]
    reported = [_with_support(inferred, _as_sure(inferred, item)) for item in reported]
    reported += inferred.findings + inferred.guesses
    return replace(
        verdict,
        findings=by_cost(item for item in reported if item.status != NOT_MEASURED),
        doubts=by_cost(item for item in reported if item.status == NOT_MEASURED),
    )


def _explained(inferred: Inferred, finding: Finding) -> bool:
    """Return whether a silent port is one of a machine that is reported as a whole."""
    ports = {f"port:{end}" for end in inferred.explained}
    return finding.kind == SILENT and finding.subject in ports


def _as_sure(inferred: Inferred, finding: Finding) -> Finding:
    """Make a guess of what only seems odd."""
    if finding.kind == UNEXPECTED and finding.ends and set(finding.ends) <= inferred.odd:
        return replace(finding, status=NOT_MEASURED, text=f"{finding.text}: {_ODD}")
    return finding


def _with_support(inferred: Inferred, finding: Finding) -> Finding:
    """Add what the finding rests on."""
    supports: list[Support] = []
    by_cable = inferred.rates if finding.kind in (WIDTH, SPEED) else inferred.rests
    if finding.kind == EXCHANGED:
        supports = list(inferred.exchanged.values())
    else:
        supports = [by_cable[cable] for cable in finding.cables if cable in by_cable]
    if not supports:
        line = "it was seen itself: confidence 1.00"
        return replace(finding, evidence=(*finding.evidence, line))
    least = min(supports, key=lambda one: one.confidence)
    report = replace(finding, evidence=(*finding.evidence, rests_on(least)))
    if least.confidence < SURE:
        return replace(
            report, status=NOT_MEASURED, text=f"a guess, since too few are alike: {report.text}"
        )
    return report
