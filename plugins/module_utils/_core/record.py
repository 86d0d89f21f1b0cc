# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Records: the one answer that every check gives, and the threshold it is compared with. Pure.

There are three answers. A hang, a missing tool, a saturated counter or a truncated answer is "not
measured": never a pass, and never the fault of the thing that was asked about.
"""

from __future__ import annotations

import math
import operator
import re
import time
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Collection, Iterable, Mapping

VERSION = 1

PASS = "pass"
FAIL = "fail"
NOT_MEASURED = "not_measured"

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


# Beyond any count, size and rate: 64-bit counters end at 1.8e19.
_MOST = 1e21
_AT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)?")


@dataclass(frozen=True)
class Threshold:
    """What a measured value must be: `measured op value` in `unit`, by `source`."""

    op: str
    value: Any
    unit: str
    source: str

    def holds(self, measured: Any) -> bool:
        """Return whether the value is on the right side; KeyError for an unknown operator."""
        return _OPERATORS[self.op](measured, self.value)


@dataclass(frozen=True)
class Record:
    """The answer to one question about one subject.

    `check` is dotted, the layer first (fabric.wiring, gpu.ecc); `subject` begins with its kind
    (node:dgx-01, hca:dgx-01/rail3, cable:dgx-01/rail3--leaf-01/17, switch:leaf-01, fabric).
    `measured` is {value, unit} or None; `evidence` is a few lines of the tools' output, or where
    they lie; `remedy` is what a technician does next, empty for a pass.
    """

    check: str
    subject: str
    status: str
    text: str = ""
    measured: Mapping[str, Any] | None = None
    threshold: Threshold | None = None
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    at: str = ""
    took_s: float | None = None

    def as_data(self) -> dict[str, Any]:
        """Return mappings, lists and scalars, for JSON."""
        # By hand: asdict copies deeply, which takes seconds for the cables of a large fabric.
        data = dict(vars(self))
        data["measured"] = None if self.measured is None else dict(self.measured)
        data["threshold"] = None if self.threshold is None else dict(vars(self.threshold))
        data["evidence"] = list(self.evidence)
        data["version"] = VERSION
        return data


def judge(
    check: str,
    subject: str,
    measured: Any,
    threshold: Threshold,
    text: str = "",
    remedy: str = "",
    evidence: Iterable[str] = (),
) -> Record:
    """Return the record of a value against its threshold; None could not be read."""
    status = NOT_MEASURED
    if number_flaw(measured):
        text, measured = f"{text}: {number_flaw(measured)}" if text else number_flaw(measured), None
    if measured is not None:
        status = PASS if threshold.holds(measured) else FAIL
    return Record(
        check=check,
        subject=subject,
        status=status,
        text=text,
        measured=None if measured is None else {"value": measured, "unit": threshold.unit},
        threshold=threshold,
        evidence=tuple(evidence),
        remedy="" if status == PASS else remedy,
    )


def number_flaw(value: Any) -> str:
    """Why no figure can be made of a value that a tool or a node gave; empty when one can.

    A program that computes with "not a number", or with what no counter reaches, gets an error or
    nonsense, for all nodes at once.
    """
    if isinstance(value, (int, float)) and not -_MOST < value < _MOST:
        return (
            "it is not a number"
            if isinstance(value, float) and math.isnan(value)
            else "the number is too large to be true"
        )
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(number_flaw, value)), "")
    if isinstance(value, Mapping):
        return number_flaw(list(value.values()))
    return ""


def brief_of(record: Record) -> str:
    """Return a record in short: subject, check, what was found, what must be, text.

    Slurm keeps this of a failure as the reason of a node.
    """
    found, threshold = record.measured, record.threshold
    got = f" is {found['value']} {found['unit']}".rstrip() if found else ""
    want = f" (must be {threshold.op} {threshold.value})" if threshold and found else ""
    text = f": {record.text}" if record.text else ""
    return f"{record.subject} {record.check}{got}{want}{text}"


def line_of(record: Record) -> str:
    """Return a record as a line to act on: in short, whose threshold it is, what to do."""
    if record.status == NOT_MEASURED:
        message = f"{record.subject} {record.check} not measured"
        message += f": {record.text}" if record.text else ""
    else:
        message = brief_of(record)
        if record.measured and record.threshold:
            message += f"; threshold: {record.threshold.source}"
    return f"{message}; do: {record.remedy}" if record.remedy else message


def lines_of(records: Iterable[Record], status: str, counted: Collection[str] = ()) -> list[str]:
    """Return a line for each record of a status; those of a check in `counted` share one."""
    lines = []
    shared = dict.fromkeys(counted, 0)
    for record in records:
        if record.status == status:
            if record.check in shared:
                shared[record.check] += 1
            else:
                lines.append(line_of(record))
    word = status.replace("_", " ")
    lines += [f"{check}: {count} {word}" for check, count in shared.items() if count]
    return lines


def utc_text(seconds: float | None = None) -> str:
    """Return seconds since the epoch, by default now, as records write it: ISO 8601 UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def stamped(records: Iterable[Record], at: str, took_s: float | None = None) -> list[Record]:
    """Return the records with this time and duration if they have none."""
    took = None if took_s is None else round(took_s, 3)
    return [
        replace(
            record,
            at=record.at or at,
            took_s=took if record.took_s is None else record.took_s,
        )
        for record in records
    ]


def flaw(data: Mapping[str, Any]) -> str:
    """Why a record that came from elsewhere cannot be used, in words; empty when it can.

    KeyError, TypeError for what is not a record at all.
    """
    found, threshold = data.get("measured"), data.get("threshold")
    if found is not None:
        if not isinstance(found, Mapping) or not {"value", "unit"} <= set(found):
            return "measured has no value and unit"
        if number_flaw(found["value"]):
            return f"measured: {number_flaw(found['value'])}"
    if threshold is not None:
        if not isinstance(threshold, Mapping) or threshold.get("op") not in _OPERATORS:
            return "threshold has no operator"
        if number_flaw(threshold["value"]):
            return f"threshold: {number_flaw(threshold['value'])}"
    if number_flaw(data.get("took_s")):
        return f"took_s: {number_flaw(data['took_s'])}"
    for name in ("text", "remedy", "at"):
        if not isinstance(data.get(name) or "", str):
            return f"{name} is not a text"
    if not _AT.fullmatch(data.get("at") or ""):
        return "at is not like 2026-01-31T23:59:59Z"
    lines = data.get("evidence") or ()
    if not isinstance(lines, (list, tuple)) or not all(isinstance(line, str) for line in lines):
        return "evidence is not a list of lines"
    return ""


@dataclass
class Tally:
    """How many records of each status there are."""

    counts: dict[str, int] = field(default_factory=lambda: {PASS: 0, FAIL: 0, NOT_MEASURED: 0})

    @classmethod
    def of(cls, records: Iterable[Record]) -> Tally:
        """Count records."""
        tally = cls()
        for record in records:
            tally.counts[record.status] += 1
        return tally

    @property
    def verdict(self) -> str:
        """The records folded into one: a failure wins, then what was not measured.

        Nothing at all is not measured: no evidence is not a pass.
        """
        if self.counts[FAIL]:
            return FAIL
        if self.counts[NOT_MEASURED] or not self.counts[PASS]:
            return NOT_MEASURED
        return PASS
