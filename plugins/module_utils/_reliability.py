# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""How often something of a cluster fails, and how many spares that takes. Pure.

Parts fail independently, at a constant rate: after burn-in and before wear. Then the failures of
all parts are one Poisson process, whose rate is the sum of count / MTTF. A switch or a batch of bad
cables fails many parts at once; for such days these figures are too good.

An assumed MTTF is a guess that the cluster itself corrects. It is taken as a Gamma prior on the
rate that weighs as much as `prior_failures` failures, and every failure seen in so many part-hours
moves it (the conjugate update; Gelman et al., Bayesian Data Analysis, section 2.6).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

# A year has 8760 hours, as MTTF figures are quoted.
HOURS_A_YEAR = 8760.0
HOURS_A_MONTH = HOURS_A_YEAR / 12
# A guess is worth one failure: the first few that are seen outweigh it.
PRIOR_FAILURES = 1.0

# Above this the terms of a Poisson distribution no longer fit a float; the normal one is near.
_LARGE = 500.0


@dataclass(frozen=True)
class Parts:
    """A kind of part: how many, the MTTF of one in hours, and what was seen of them.

    `failures` were seen in `hours` of this many parts, together `count * hours` part-hours, or in
    `part_hours`. `prior_failures` is what the MTTF weighs against them.
    """

    name: str
    count: int
    mttf_hours: float
    failures: int = 0
    part_hours: float = 0.0
    prior_failures: float = PRIOR_FAILURES

    @property
    def rate(self) -> float:
        """Failures an hour of one part: prior and history together."""
        prior_hours = self.prior_failures * self.mttf_hours
        return (self.prior_failures + self.failures) / (prior_hours + self.part_hours)

    @property
    def mttf_now_hours(self) -> float:
        """The MTTF of one part, as the history has moved it."""
        return 1 / self.rate

    @property
    def failures_an_hour(self) -> float:
        """Failures an hour of all of them."""
        return self.count * self.rate


def parts_from_data(data: Mapping[str, Any]) -> list[Parts]:
    """Return the parts of name → {count, mttf_hours or mttf_years, failures, hours, ...}.

    ValueError names what is wrong.
    """
    known = {
        "count", "mttf_hours", "mttf_years", "failures", "hours", "part_hours", "prior_failures",
    }  # fmt: skip
    found = []
    for name, given in data.items():
        if not isinstance(given, Mapping):
            raise ValueError(f"{name}: write count and mttf_years or mttf_hours below it")
        strange = sorted(str(key) for key in set(given) - known)
        if strange:
            raise ValueError(
                f"{name}.{strange[0]}: unknown; write one of {', '.join(sorted(known))}"
            )
        if ("mttf_hours" in given) == ("mttf_years" in given):
            raise ValueError(f"{name}: write one of mttf_years and mttf_hours")
        if "hours" in given and "part_hours" in given:
            raise ValueError(f"{name}: write one of hours and part_hours")
        values = {key: _number(name, key, value) for key, value in given.items()}
        count = values.get("count", 0.0)
        if count != int(count):
            raise ValueError(f"{name}.count: is {count:g}; write a whole number")
        mttf = values.get("mttf_hours", values.get("mttf_years", 0.0) * HOURS_A_YEAR)
        prior = values.get("prior_failures", PRIOR_FAILURES)
        if mttf <= 0 or prior <= 0:
            raise ValueError(f"{name}: an MTTF and prior_failures must be more than 0")
        part_hours = values.get("part_hours", values.get("hours", 0.0) * count)
        failures = values.get("failures", 0.0)
        if failures and not part_hours:
            raise ValueError(f"{name}.failures: in how many hours? write hours or part_hours")
        found.append(Parts(str(name), int(count), mttf, int(failures), part_hours, prior))
    return found


def _number(name: str, key: str, value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError(f"{name}.{key}: is {value!r}; write a number")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name}.{key}: is {value!r}; write a number") from None
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{name}.{key}: is {value!r}; write a number, 0 or more")
    return number


def first_failure_hours(parts: Sequence[Parts]) -> float | None:
    """Return the mean time to the first failure of any part, in hours; None where none can fail."""
    rate = sum(part.failures_an_hour for part in parts)
    return 1 / rate if rate > 0 else None


def expected_failures(parts: Sequence[Parts], hours: float) -> float:
    """Return how many failures are to be expected in so many hours."""
    return hours * sum(part.failures_an_hour for part in parts)


def survives(parts: Sequence[Parts], hours: float) -> float:
    """Return the probability, 0 to 1, that nothing fails for so many hours."""
    return math.exp(-expected_failures(parts, hours))


def spares_needed(expected: float, confidence: float) -> int:
    """Return the least number that a Poisson count of this mean does not exceed, so surely.

    `expected` is the mean number of parts that are out at once or, without repair, that fail until
    the next delivery; `confidence` is above 0 and below 1. ValueError for others.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: is {confidence:g}; write a number between 0 and 1")
    if not 0 <= expected < math.inf:
        raise ValueError(f"expected failures: {expected:g} is no mean")
    if expected > _LARGE:
        return _large(expected, confidence)
    term = total = math.exp(-expected)
    number = 0
    # Rounding keeps the sum below a confidence next to 1: there the terms themselves say enough.
    while total < confidence and (term > 0 or number < expected):
        number += 1
        term *= expected / number
        total += term
    return number


def _large(expected: float, confidence: float) -> int:
    """The quantile of a normal distribution, by halving, half a step up."""
    low, high = -9.0, 9.0
    for _step in range(80):
        middle = (low + high) / 2
        if 0.5 * math.erfc(-middle / math.sqrt(2)) < confidence:
            low = middle
        else:
            high = middle
    return max(0, math.ceil(expected + high * math.sqrt(expected) - 0.5))


def reliability(
    parts: Sequence[Parts],
    repair_hours: float,
    confidence: float,
    job_hours: float,
) -> dict[str, Any]:
    """Return the figures of a cluster, plain, for reports.

    A failed part is out for `repair_hours` on average; as many are out at once as fail in that time
    (Palm's theorem: however long each repair takes, the count is Poisson). `job_hours` is the
    length of the job on all of the cluster whose luck is told.
    """
    month, first = expected_failures(parts, HOURS_A_MONTH), first_failure_hours(parts)
    out = expected_failures(parts, repair_hours)
    return {
        "first_failure_hours": first,
        "first_failure_minutes": None if first is None else first * 60,
        "failures_a_month": month,
        "out_at_once": out,
        "spares": spares_needed(out, confidence),
        "confidence": confidence,
        "job_hours": job_hours,
        "job_survives": survives(parts, job_hours),
        "parts": [
            {
                "name": part.name,
                "count": part.count,
                "mttf_hours": part.mttf_now_hours,
                "mttf_years": part.mttf_now_hours / HOURS_A_YEAR,
                "assumed_mttf_hours": part.mttf_hours,
                "failures_seen": part.failures,
                "failures_a_month": expected_failures([part], HOURS_A_MONTH),
                "share": expected_failures([part], HOURS_A_MONTH) / month if month else 0.0,
            }
            for part in parts
        ],
    }
