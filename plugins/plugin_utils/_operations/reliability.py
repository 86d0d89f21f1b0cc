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
moves it (the conjugate update; Gelman et al., Bayesian Data Analysis, section 2.6). Failures are
the incidents of the parts' own histories: ten runs over a GPU that was not repaired are one. The
hours of a part count from the first time that it was seen to the last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from ...module_utils._core.verdict import place_of
from .outliers import repeat_offender

# A year has 8760 hours, as MTTF figures are quoted.
HOURS_A_YEAR = 8760.0
HOURS_A_MONTH = HOURS_A_YEAR / 12
# A guess is worth one failure: the first few that are seen outweigh it.
PRIOR_FAILURES = 1.0

# What is assumed until the cluster has its own history, in years. Llama 3 (arXiv 2407.21783,
# table 5): 54 days of 16,384 H100, in which 256 GPUs (148 as such, 72 HBM3, 19
# SRAM, 17 system processors), 35 switches or cables, and 7 adapters failed.
_SEEN_HOURS = 16384 * 54 * 24.0
ASSUMED_HOURS = {
    "GPUs": _SEEN_HOURS / 256,
    "adapters": _SEEN_HOURS / 7,
    "links": _SEEN_HOURS / 35,
}
SOURCE = "assumed: Llama 3, arXiv 2407.21783, table 5; 16,384 H100 for 54 days"
_KINDS = {"gpu": "GPUs", "hca": "adapters", "cable": "links"}
_ISO = "%Y-%m-%dT%H:%M:%SZ"

History = tuple[str, Sequence[Mapping[str, Any]]]

# Above this the terms of a Poisson distribution no longer fit a float; the normal one is near.
_LARGE = 500.0


@dataclass(frozen=True)
class Parts:
    """A kind of part: how many, the MTTF of one in hours, and what was seen of them.

    `failures` were seen in `part_hours`. `prior_failures` is what the MTTF weighs against them.
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
        raise ValueError(f"expected failures: {expected:g} is not a mean")
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
    length of the job on all of the cluster whose chance is computed.
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


def counts_of(plan: Mapping[str, Any]) -> dict[str, int]:
    """Return how many parts the plan has: of nodes that are present, each rail with one link.

    Links between switches come with the cables of the plan, where it has them.
    """
    profiles = plan.get("profiles") or {}
    found = dict.fromkeys(ASSUMED_HOURS, 0)
    for node in plan.get("nodes") or ():
        profile = profiles.get(node.get("profile") or "") or {}
        if node.get("state", "present") != "present":
            continue
        found["GPUs"] += int((profile.get("gpus") or {}).get("count") or 0)
        found["adapters"] += len(profile.get("rails") or ())
    found["links"] = len(plan.get("cables") or ()) or found["adapters"]
    return found


def seen_in(histories: Iterable[History], now: str) -> dict[str, dict[str, float]]:
    """Return by kind how many failures were seen in how many part-hours.

    A name that two parts share shows nothing about either. ValueError for an invalid time.
    """
    found = {kind: {"failures": 0.0, "part_hours": 0.0} for kind in ASSUMED_HOURS}
    for serial, lines in histories:
        times = sorted(_hours(str(line["at"])) for line in lines if line.get("at"))
        if not times:
            continue
        kind = _KINDS.get(place_of(str(lines[-1].get("subject", ""))).kind)
        report = repeat_offender(serial, lines, now)
        if kind is None or report.ambiguous:
            continue
        found[kind]["failures"] += report.incidents
        found[kind]["part_hours"] += times[-1] - times[0]
    return found


def _hours(at: str) -> float:
    return datetime.strptime(at, _ISO).replace(tzinfo=timezone.utc).timestamp() / 3600


def parts_for(
    counts: Mapping[str, int],
    seen: Mapping[str, Mapping[str, float]],
    assumed_years: Mapping[str, Any],
) -> list[Parts]:
    """Return the parts; `assumed_years` are the site's. ValueError names an invalid one."""
    parts = []
    for kind, hours in ASSUMED_HOURS.items():
        if not counts.get(kind):
            continue
        own, had = assumed_years.get(kind), seen.get(kind) or {}
        mttf = hours if own is None else _years(kind, own) * HOURS_A_YEAR
        part_hours = had.get("part_hours", 0.0)
        failures = int(had["failures"]) if part_hours else 0
        parts.append(Parts(kind, counts[kind], mttf, failures, part_hours))
    return parts


def _years(kind: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number <= 0:
        raise ValueError(f"years.{kind}: is {value!r}; write a number above 0")
    return number


def table_of(figures: Mapping[str, Any], own: Iterable[str]) -> list[list[str]]:
    """Return the rows of the report, of the figures of reliability(); texts."""
    if not figures["parts"]:
        return []
    first = figures["first_failure_hours"]
    rows = [["part", "how many", "MTTF of one", "assumed", "failures seen", "a month"]]
    mine = set(own)
    for part in figures["parts"]:
        assumed = f"{part['assumed_mttf_hours'] / 8760:,.1f} years"
        rows.append([
            str(part["name"]), f"{part['count']:,}", f"{part['mttf_years']:,.1f} years",
            assumed + (" (the inventory)" if part["name"] in mine else ""),
            f"{part['failures_seen']:,}", f"{part['failures_a_month']:.2f}",
        ])  # fmt: skip
    rows += [
        ["first failure of any", "after " + _span(first) if first else "none"],
        ["failures a month", f"{figures['failures_a_month']:.2f}"],
        ["spares", f"{figures['spares']} suffice at {figures['confidence']:.0%}"],
        [
            f"a job of {figures['job_hours']:g} h on all of it",
            f"meets no failure with {figures['job_survives']:.1%}",
        ],
        ["source", SOURCE],
    ]
    return rows


def _span(hours: float) -> str:
    if hours < 2:
        return f"{hours * 60:.0f} minutes"
    return f"{hours:.0f} hours" if hours < 72 else f"{hours / 24:.0f} days"
