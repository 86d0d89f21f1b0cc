# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The readings of one cable at one place over time, as rates: by its serial number.

A counter that fell, or whose time since it was cleared does not agree with the clock, began again:
then it is taken from there on, and never gives a negative rate. A cable that was moved is judged
where it was read last, and its levels begin again, since the other end is another. Both ports of a
twin module show one serial number at the same time: each of them has its own history.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from ...module_utils._ib.link_reading import LinkReading
from .thresholds import BER, BINS, HEAT, RX

DAY_S = 86400.0
# Fewer minutes show too few bits to tell a rate.
_LEAST_MINUTES = 30.0
# How far the clock and the time since the counters were cleared may be apart.
_CLOCK_SHARE, _CLOCK_MINUTES = 0.1, 15.0
# A rate that no link is below, so that its logarithm exists: no error in a day at 1.6 Tb/s.
_LEAST_BER = 1e-17
_NONE: array[float] = array("d")


@dataclass(frozen=True)
class Place:
    """Where an end of a cable is plugged in: a rail of a node."""

    node: str
    rail: int

    def __str__(self) -> str:
        return f"{self.node}/rail{self.rail}"


@dataclass(frozen=True)
class Down:
    """A link that went down `count` times between two readings, days of Unix time, and why."""

    since: float
    until: float
    count: int
    why: tuple[str, ...] = ()


@dataclass
class Series:
    """The history of one cable at one place, until it left.

    `days` has the day of each reading in Unix time, `downs` what is known of flaps. Bit error
    ratios are decimal logarithms. `before` is the cable at the place that it came from.
    """

    serial: str
    part: str
    place: Place
    days: array[float] = field(default_factory=lambda: array("d"))
    downs: list[Down] = field(default_factory=list)
    fec: str = ""
    rx_low_dbm: float | None = None
    hot_c: float | None = None
    last: LinkReading | None = None
    before: Series | None = None
    # By quantity, as arrays: half a million readings must fit into memory.
    _of: dict[str, tuple[array[float], array[float]]] = field(default_factory=dict)

    @property
    def places(self) -> list[tuple[float, Place]]:
        """The places that the cable was at, with the day from which on, the first one first."""
        found: list[tuple[float, Place]] = []
        one: Series | None = self
        while one is not None:
            found.insert(0, (one.days[0], one.place))
            one = one.before
        return found

    def values(self, quantity: str, first: float, last: float) -> list[tuple[float, float]]:
        """Return day and value of a quantity in these days, the oldest first."""
        days, values = self._of.get(quantity, (_NONE, _NONE))
        some = slice(bisect_left(days, first), bisect_right(days, last))
        return list(zip(days[some], values[some], strict=True))

    def readings(self, last: float) -> int:
        """Return how many readings there are up to a day."""
        return bisect_right(self.days, last)

    def add(self, reading: LinkReading) -> None:
        """Take the next reading; one that is not later than the last is left out."""
        before, day = self.last, reading.at / DAY_S
        if before is not None and reading.at <= before.at:
            return
        self.fec = reading.fec or self.fec
        # Stores of earlier releases have zeroes of copper, with a limit of 0: no cable states one.
        self.rx_low_dbm = reading.rx_low_dbm or self.rx_low_dbm
        self.hot_c = reading.hot_c or self.hot_c
        ratio = bit_error_ratio(before, reading)
        if ratio is not None:
            self._put(BER, day, math.log10(max(ratio, _LEAST_BER)))
        if reading.rx_dbm and reading.rx_low_dbm != 0:
            self._put(RX, day, min(reading.rx_dbm))
        if reading.celsius is not None and reading.hot_c != 0:
            self._put(HEAT, day, reading.celsius)
        top = highest_bin(before, reading)
        if top is not None:
            self._put(BINS, day, top)
        count = _flaps(before, reading)
        if count and before is not None:
            self.downs.append(Down(before.at / DAY_S, day, count, reading.why))
        self.days.append(day)
        self.last = reading

    def _put(self, quantity: str, day: float, value: float) -> None:
        days, values = self._of.setdefault(quantity, (array("d"), array("d")))
        days.append(day)
        values.append(value)


def _goes_on(before: LinkReading | None, now: LinkReading) -> bool:
    """Return whether the counters of the link were not cleared between two readings."""
    if before is None or before.minutes is None or now.minutes is None:
        return False
    elapsed, counted = (now.at - before.at) / 60, now.minutes - before.minutes
    return abs(counted - elapsed) <= max(_CLOCK_MINUTES, _CLOCK_SHARE * elapsed)


def bit_error_ratio(before: LinkReading | None, now: LinkReading) -> float | None:
    """Return the ratio before correction since the last reading; None if too few bits were counted.

    The tool's own figure is a mean since the counters were cleared, months ago perhaps, in which a
    change of today does not show: it is taken only where errors are not counted.
    """
    # Stores of earlier releases have rates of 0.
    if now.raw_errors is None or not now.gbps or now.gbps < 0 or now.minutes is None:
        return now.raw_ber if (now.minutes or 0.0) >= _LEAST_MINUTES else None
    errors, minutes = now.raw_errors, now.minutes
    if _goes_on(before, now) and before is not None and before.raw_errors is not None:
        grown = now.raw_errors - before.raw_errors
        if grown >= 0:
            errors, minutes = grown, now.minutes - (before.minutes or 0.0)
    if minutes < _LEAST_MINUTES:
        return None
    bits = minutes * 60 * now.gbps * 1e9
    # Half an error is what none at all means at most.
    return max(errors, 0.5) / bits


def highest_bin(before: LinkReading | None, now: LinkReading) -> int | None:
    """Return the most symbols that were corrected in a code word since the last reading."""
    if not now.bins:
        return None
    old = before.bins if before is not None and _goes_on(before, now) else ()
    grown = [
        count - (old[symbols] if symbols < len(old) else 0)
        for symbols, count in enumerate(now.bins)
    ]
    if any(count < 0 for count in grown) or len(old) > len(now.bins):
        grown = list(now.bins)
    return max((symbols for symbols, count in enumerate(grown) if count > 0), default=0)


def _flaps(before: LinkReading | None, now: LinkReading) -> int | None:
    """Return how often the link went down in between; None if the counter began again."""
    if before is None or before.boot != now.boot or before.downs is None or now.downs is None:
        return None
    return now.downs - before.downs if now.downs >= before.downs else None


@dataclass
class Histories:
    """All cables: readings are handed in by node and time, and find their cable.

    `series` has all that was read, also of cables that have moved since. `nameless` has the places
    whose cable does not give a serial number, with the day when that was read last: they have no
    history.
    """

    series: list[Series] = field(default_factory=list)
    nameless: dict[Place, float] = field(default_factory=dict)
    _at: dict[Place, Series] = field(default_factory=dict)

    def add(self, node: str, readings: Iterable[LinkReading]) -> None:
        """Take what was read of a node at one time."""
        for reading in readings:
            place = Place(node, reading.rail)
            if not reading.serial:
                self.nameless[place] = reading.at / DAY_S
                continue
            self.nameless.pop(place, None)
            one = self._at.get(place)
            if one is None or one.serial != reading.serial:
                one = self._at[place] = Series(reading.serial, reading.part, place)
                self.series.append(one)
            one.add(reading)

    def where_they_are(self) -> list[Series]:
        """Return the series of each cable at the place where it was read last.

        A series is over if another one of its serial number begins after its last reading. That is
        known afterwards only: the other port of a twin module may not have been read for a while.
        One that returns to a port that was empty meanwhile continues its former series there.
        """
        of: dict[str, list[Series]] = {}
        for later in sorted(self.series, key=lambda one: one.days[0]):
            known = of.setdefault(later.serial, [])
            ended = [one for one in known if one.days[-1] < later.days[0]]
            later.before = max(ended, key=lambda one: one.days[-1], default=None)
            if later.before is not None:
                known.remove(later.before)
            known.append(later)
        return [one for some in of.values() for one in some]
