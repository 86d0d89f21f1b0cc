# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A verdict on a fabric for people and for programs: lines to act on, and data for JSON. Pure."""

from __future__ import annotations

import json
import textwrap
from typing import Any, Iterator, Mapping

from .._core.record import FAIL, NOT_MEASURED, PASS, Record
from .findings import Finding
from .judge import Verdict
from .model import Place

VERSION = 1

_WIDTH = 118
# Machines of a finding whose racks are listed; more are a matter of the whole room.
_PLACES = 6
_UNSURE = 20


def summary(verdict: Verdict) -> str:
    """Return the verdict as one line."""
    counts = verdict.counts()
    plan = verdict.wiring.plan
    nodes = len({node for node, _rail in plan.hcas})
    message = f"{counts[PASS]} of {len(plan.cables)} cables are right"
    if counts[FAIL]:
        message += f", {counts[FAIL]} {'are' if counts[FAIL] > 1 else 'is'} not"
    if counts[NOT_MEASURED]:
        message += (
            f", {counts[NOT_MEASURED]} {'were' if counts[NOT_MEASURED] > 1 else 'was'} not measured"
        )
    count = len(verdict.findings)
    findings = "no finding" if not count else f"{count} finding" + ("s" if count > 1 else "")
    return f"{nodes} nodes, {len(plan.switches)} switches: {findings}; {message}"


def findings_text(verdict: Verdict, places: Mapping[str, Place] | None = None) -> str:
    """Return what a technician needs: what is wrong, where it stands, what to do."""
    return "\n".join(_lines(verdict, dict(places or {}))) + "\n"


def _lines(verdict: Verdict, places: dict[str, Place]) -> Iterator[str]:
    yield summary(verdict)
    for number, finding in enumerate(verdict.findings, 1):
        yield ""
        yield f"{number}. {finding.kind} {finding.subject}"
        yield from _wrapped("what", finding.text)
        where = where_of(finding, places)
        if where:
            yield from _wrapped("where", where)
        yield from _wrapped("cost", f"{finding.cost.severity}: {finding.cost.why}")
        yield from _wrapped("do", finding.remedy)
        for line in finding.evidence:
            yield from _wrapped("seen", line)
    if verdict.complaints or verdict.doubts:
        yield ""
        yield "Not measured:"
        for complaint in verdict.complaints:
            yield from _wrapped("-", complaint)
        for finding in verdict.doubts[:_UNSURE]:
            yield from _wrapped("-", f"{finding.kind} {finding.subject}: {finding.text}")
        if len(verdict.doubts) > _UNSURE:
            yield f"   - and {len(verdict.doubts) - _UNSURE} more"
    if verdict.information:
        yield ""
        yield "For information:"
        for line in verdict.information:
            yield from _wrapped("-", line)


def _wrapped(label: str, text: str) -> Iterator[str]:
    # Labels end in one column; a list has only its bullet.
    lead = f"   {label} " if label == "-" else f"   {label + ':':<7}"
    yield from textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_long_words=False,
        break_on_hyphens=False,
    )


def where_of(finding: Finding, places: Mapping[str, Place]) -> str:
    """Return racks and units of the machines of a finding, "" where no place is known."""
    hosts: dict[str, None] = {}
    subject = finding.subject.partition(":")[2].partition("/")[0].partition("--")[0]
    if subject in places:
        hosts[subject] = None
    for cable in finding.cables:
        for end in (cable.a, cable.b):
            hosts[end.host] = None
    for end in finding.ends:
        hosts[end.host] = None
    if finding.subject.startswith(("node:", "switch:")):
        # All cables of a machine lead to it.
        hosts = {subject: None} if subject in places else {}
    shown = []
    for host in hosts:
        place = places.get(host)
        if place is not None and place.rack is not None:
            unit = f" U{place.rack_unit}" if place.rack_unit is not None else ""
            shown.append(f"{host} in {place.rack}{unit}")
    if len(shown) > _PLACES:
        return "; ".join(shown[: _PLACES - 1]) + f"; and {len(shown) - _PLACES + 1} more"
    return "; ".join(shown)


def finding_data(finding: Finding, places: Mapping[str, Place]) -> dict[str, Any]:
    """Return a finding as mappings, lists and scalars."""
    threshold = finding.threshold
    measured = None
    if finding.measured is not None and threshold is not None:
        measured = {"value": finding.measured, "unit": threshold.unit}
    return {
        "kind": finding.kind,
        "subject": finding.subject,
        "status": finding.status,
        "severity": finding.cost.severity,
        "cost": finding.cost.why,
        "text": finding.text,
        "where": where_of(finding, places),
        "remedy": finding.remedy,
        "cables": [cable.subject for cable in finding.cables],
        "measured": measured,
        "threshold": None if threshold is None else dict(vars(threshold)),
        "evidence": list(finding.evidence),
    }


def bandwidth_data(verdict: Verdict) -> list[dict[str, Any]]:
    """Return what the fabric can carry, as planned and as found."""
    return [dict(vars(one)) for one in verdict.bandwidths]


def verdict_data(
    verdict: Verdict, records: list[Record], places: Mapping[str, Place] | None = None
) -> dict[str, Any]:
    """Return everything for records.json; docs/fabric.md describes it."""
    places = places or {}
    counts = verdict.counts()
    return {
        "version": VERSION,
        "summary": {
            "text": summary(verdict),
            "cables": {"planned": len(verdict.cables), **counts},
            "findings": len(verdict.findings),
        },
        "findings": [finding_data(finding, places) for finding in verdict.findings],
        "not_measured": [finding_data(finding, places) for finding in verdict.doubts],
        "complaints": list(verdict.complaints),
        "information": list(verdict.information),
        "bandwidth": bandwidth_data(verdict),
        "records": [record.as_data() for record in records],
    }


def json_text(data: Mapping[str, Any]) -> str:
    """Return the data with a line for each entry of its lists: json's own indent is slow."""
    parts = []
    for key, value in data.items():
        if isinstance(value, list) and value:
            text = "[\n" + ",\n".join(json.dumps(item) for item in value) + "\n]"
        else:
            text = json.dumps(value)
        parts.append(f"{json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
