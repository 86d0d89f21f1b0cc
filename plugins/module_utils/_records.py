# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Records: the one answer that every check gives, and the marks it is measured against. Pure.

There are three answers. A hang, a missing tool, a saturated counter or an answer cut short is "not
measured": never a pass, and never the fault of the thing that was asked about.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Mapping

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


@dataclass(frozen=True)
class Threshold:
    """What a measured value must be: `measured op value` in `unit`; `source` says who says so."""

    op: str
    value: Any
    unit: str
    source: str

    def holds(self, measured: Any) -> bool:
        """Tell whether the value is on the right side; KeyError for an unknown operator."""
        return _OPERATORS[self.op](measured, self.value)


@dataclass(frozen=True)
class Record:
    """The answer to one question about one subject.

    `check` is dotted, the layer first (fabric.wiring, gpu.ecc); `subject` begins with its kind
    (node:dgx-01, hca:dgx-01/rail3, cable:dgx-01/rail3--leaf-01/17, switch:leaf-01, fabric).
    `measured` is {value, unit} or None; `evidence` is a few lines of what the tools said, or where
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
    """Return the record of a value against its mark; None is a value that could not be read."""
    status = NOT_MEASURED
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

        Nothing at all is not measured: no evidence is no pass.
        """
        if self.counts[FAIL]:
            return FAIL
        if self.counts[NOT_MEASURED] or not self.counts[PASS]:
            return NOT_MEASURED
        return PASS
