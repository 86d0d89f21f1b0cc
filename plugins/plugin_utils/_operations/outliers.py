# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Fleet outliers: what is slow though legal, and which part fails again and again. Pure.

Neither is a failure by itself. A site names the checks whose outliers are to fail.
"""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from ...module_utils._core.record import FAIL, PASS, Record
from ...module_utils._core.verdict import layer_of, place_of
from .thresholds import HIGH, LOW

# Fewer values have no middle worth the name.
LEAST_VALUES = 8
# How many spreads, and at least which share of the median, an outlier lies on the wrong side.
# 3 to 5 % below the median is where a GPU's GEMM rate stands out from binning and power
# limits.
SPREADS = 5.0
LEAST_SHARE = 0.03
# The standard deviation of a normal distribution is so many median absolute deviations.
_OF_MAD = 1.4826

# Days after which an incident counts half: the window in which Meta's RSC clusters look for repeat
# offenders.
HALF_LIFE_DAYS = 28.0
REPEAT_OFFENDER = 2.0

_LOW, _HIGH, _BOTH = "low", "high", "both"
_BAD_SIDE = {">=": _LOW, ">": _LOW, "<=": _HIGH, "<": _HIGH}


@dataclass(frozen=True)
class Outlier:
    """A value that is legal, and not what the others of its kind show."""

    check: str
    subject: str
    value: float
    unit: str
    median: float
    mad: float
    values: int

    @property
    def text(self) -> str:
        """One phrase, for people."""
        return (
            f"{self.value:g} {self.unit}, the median of {self.values} is {self.median:g} "
            f"(median absolute deviation {self.mad:g})"
        )


@dataclass
class _Group:
    values: array[float] = field(default_factory=lambda: array("d"))
    subjects: list[str] = field(default_factory=list)


@dataclass
class Fleet:
    """Takes the values of passing records one by one; compares when all are there."""

    groups: dict[tuple[str, ...], _Group] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Take a record; one that did not pass is left out."""
        if record.status == PASS:
            threshold, found = record.threshold, record.measured
            kind = place_of(record.subject).kind
            self.put(record.check, record.subject, kind, found, threshold.op if threshold else "")

    def put(
        self,
        check: str,
        subject: str,
        kind: str,
        found: Mapping[str, Any] | None,
        op: str,
        profiles: tuple[str, ...] = (),
    ) -> None:
        """Take a value that passes; one that is not a number, or has no bad side, is left out.

        It is compared with those of the same node profiles.
        """
        if found is None:
            return
        value = found["value"]
        side = _BAD_SIDE.get(op, "") if op else _BOTH
        if not side or isinstance(value, bool) or not isinstance(value, (int, float)):
            return
        if math.isfinite(value):
            group = self.groups.setdefault((check, found["unit"], kind, side, *profiles), _Group())
            group.values.append(value)
            group.subjects.append(subject)

    def outliers(self) -> list[Outlier]:
        """Return what stands out, by check and subject."""
        found: list[Outlier] = []
        for (check, unit, _kind, side, *_profiles), group in self.groups.items():
            if len(group.values) < LEAST_VALUES:
                continue
            median = statistics.median(group.values)
            mad = statistics.median([abs(value - median) for value in group.values])
            far = max(SPREADS * _OF_MAD * mad, LEAST_SHARE * abs(median))
            # Counters that are 0 nearly everywhere: any error stands out, and thresholds judge it.
            if not far:
                continue
            for value, subject in zip(group.values, group.subjects, strict=True):
                below, above = median - value > far, value - median > far
                if (below and side != _HIGH) or (above and side != _LOW):
                    found.append(
                        Outlier(check, subject, value, unit, median, mad, len(group.values))
                    )
        return sorted(found, key=lambda one: (one.check, one.subject))


def outlier_records(found: Iterable[Outlier], failing: Set[str]) -> list[Record]:
    """Return outliers as records of `fleet.CHECK` for the checks that a site lets them fail."""
    return [_record(one) for one in found if one.check in failing]


def _record(one: Outlier) -> Record:
    low = one.value < one.median
    question = (LOW if low else HIGH).filled(
        check=one.check, unit=one.unit, values=one.values, spreads=SPREADS
    )
    return Record(
        check=question.check,
        subject=one.subject,
        status=FAIL,
        text=one.text,
        measured={"value": one.value, "unit": one.unit},
        threshold=question.threshold(one.median - _far(one) if low else one.median + _far(one)),
        remedy=question.remedy,
    )


def _far(one: Outlier) -> float:
    return max(SPREADS * _OF_MAD * one.mad, LEAST_SHARE * abs(one.median))


@dataclass(frozen=True)
class RepeatOffender:
    """How often a part failed again: `score` by repeat_offender(), `incidents` at all times."""

    serial: str
    score: float
    incidents: int
    nodes: tuple[str, ...]
    checks: tuple[str, ...]
    # Seen in two nodes in one run: this name is not that of one part.
    ambiguous: bool = False

    @property
    def is_repeat_offender(self) -> bool:
        """Return whether it is to be returned rather than repaired once more."""
        return self.score >= REPEAT_OFFENDER and not self.ambiguous


def repeat_offender(serial: str, history: Sequence[Mapping[str, Any]], now: str) -> RepeatOffender:
    """Return the score of a part from its history, whose lines have at, status, node and checks.

    score = hosts * sum over incidents of 0.5 ** (age in days / 28)

    An incident is a failure where none was open: ten runs over a part that was not repaired are
    one. It is open until what failed passes; a run that did not measure that again, or measured
    nothing, ends none. A failure in another node is a new one. hosts is 2 where incidents were seen
    in more than one node, else 1: what fails in two machines is not the machine. At 2 it is a
    repeat offender: three incidents in five weeks, or one in each of two nodes.
    """
    today = _day(now)
    score, incidents = 0.0, 0
    open_layers: set[str] = set()
    nodes: dict[str, None] = {}
    checks: dict[str, None] = {}
    runs: dict[str, str] = {}
    ambiguous = False
    for line in sorted(history, key=lambda one: str(one.get("at", ""))):
        status, node = line.get("status"), str(line.get("node", ""))
        measured = set(line.get("layers") or open_layers)
        if "run" in line:
            ambiguous = ambiguous or runs.setdefault(line["run"], node) != node
        if status == FAIL:
            if not open_layers or node not in nodes:
                incidents += 1
                age = max(0.0, today - _day(str(line["at"])))
                score += 0.5 ** (age / HALF_LIFE_DAYS)
            failed = [str(check) for check in line.get("checks") or ()]
            open_layers = (open_layers - measured) | {layer_of(check) for check in failed}
            nodes[node] = None
            checks.update(dict.fromkeys(failed))
        elif status == PASS:
            open_layers -= measured
    hosts = 2 if len(nodes) > 1 else 1
    return RepeatOffender(
        serial, round(hosts * score, 3), incidents, tuple(nodes), tuple(checks), ambiguous
    )


def _day(at: str) -> float:
    """Return days since 1970; ValueError."""
    when = datetime.strptime(at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    return when.timestamp() / 86400
