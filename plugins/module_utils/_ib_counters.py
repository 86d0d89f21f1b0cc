# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""How much a port's counters grew since an earlier reading. Pure.

A total says nothing: it may be of last year. What is judged is the growth over a known time, and
only where the counter was able to grow: one that stands at its largest value no longer counts, one
that fell was cleared, and a reboot begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from ansible_collections.baremetal.dgx.plugins.module_utils._ib_sysfs import COUNTER_BITS

VERSION = 1


@dataclass(frozen=True)
class Sample:
    """The counters of all ports at one time, by port GUID."""

    boot: str
    uptime_s: float
    ports: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Growth:
    """`count` within `seconds`; with `at_least` the counter is full and there may be more.

    Where nothing can be said `count` is None and `reason` says why.
    """

    count: int | None
    seconds: float
    at_least: bool = False
    reason: str = ""


def largest(counter: str) -> int:
    """Return the value at which a counter stays."""
    return int((1 << COUNTER_BITS[counter]) - 1)


def growth(before: Sample | None, now: Sample, port: str, counter: str) -> Growth:
    """Return how much a counter grew between two samples."""
    value = now.ports.get(port, {}).get(counter)
    if value is None:
        return Growth(None, 0, reason="sysfs does not show this counter")
    top = largest(counter)
    full = f"the counter stands at {top}, its largest value; clear it with perfquery -R"
    if before is None:
        why = full if value >= top else "this is the first reading; the next one has a window"
        return Growth(None, 0, reason=why)
    if before.boot != now.boot:
        return Growth(None, 0, reason="the node was rebooted since the last reading")
    seconds = now.uptime_s - before.uptime_s
    old = before.ports.get(port, {}).get(counter)
    if old is None:
        return Growth(None, seconds, reason="the last reading did not have this port")
    if value < old:
        return Growth(None, seconds, reason=f"the counter was cleared (from {old} to {value})")
    if old >= top:
        return Growth(None, seconds, reason=full)
    return Growth(value - old, seconds, at_least=value >= top)


def baseline(before: Sample | None, now: Sample, window_s: float) -> Sample:
    """Return the sample to keep for the next time.

    A reading soon after the last one does not replace it: a check each minute would otherwise
    never see a window that is long enough. What was cleared in between does.
    """
    if before is None or before.boot != now.boot or now.uptime_s - before.uptime_s >= window_s:
        return now
    kept = {}
    for port, counters in now.ports.items():
        old = before.ports.get(port)
        fell = old is None or any(counters.get(name, 0) < value for name, value in old.items())
        if fell or old is None:
            # Its window would begin before its counters do.
            return now
        kept[port] = old
    return Sample(before.boot, before.uptime_s, kept)


def sample_to_data(sample: Sample) -> dict[str, Any]:
    """Return mappings and scalars, for JSON."""
    return {
        "version": VERSION,
        "boot": sample.boot,
        "uptime_s": sample.uptime_s,
        "ports": {port: dict(counters) for port, counters in sample.ports.items()},
    }


def sample_from_data(data: Any) -> Sample | None:
    """Return the sample, None where the data is none of this version's."""
    try:
        if data["version"] != VERSION:
            return None
        ports = {
            str(port): {str(name): int(value) for name, value in counters.items()}
            for port, counters in data["ports"].items()
        }
        return Sample(str(data["boot"]), float(data["uptime_s"]), ports)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
