# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""One look at one end of a link: light, heat, bit errors, and how often it went down. Pure.

A line of a log is the values in the order of the fields, since there are millions of them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from typing import Any, Mapping

from .mlxlink import LinkReport, Optics, Reading

# Of a lane without light mlxlink reports -40: a twin module has lanes of its other port.
DARK_DBM = -30.0
_TEXT = re.compile(r"[\w .,:;()/+-]{0,80}\Z")
_MOST = 1e21
_MOST_VALUES = 64


@dataclass(frozen=True)
class LinkReading:
    """What was read of a port at one time; None is what was not reported.

    `at` is Unix time in seconds; `serial` and `part` are those of cable or transceiver, empty if it
    does not name itself. `boot` is the boot of the node, by which counters that began again are
    known. `minutes` is the time since the counters of the link were cleared, and `raw_errors` (bits
    before correction), `effective_errors` and `bins` (code words by the number of symbols that were
    corrected in them) count from then; `raw_ber` is the tool's own figure over that time, with one
    digit. `rx_dbm` has the lanes with light, `rx_low_dbm` and `hot_c` are the module's own limits.
    `downs` counts how often the link went down, `why` has reasons that firmware and kernel gave.
    """

    at: int
    rail: int
    serial: str = ""
    part: str = ""
    fec: str = ""
    gbps: float | None = None
    boot: str = ""
    minutes: float | None = None
    raw_errors: int | None = None
    raw_ber: float | None = None
    effective_errors: int | None = None
    bins: tuple[int, ...] = ()
    rx_dbm: tuple[float, ...] = ()
    rx_low_dbm: float | None = None
    celsius: float | None = None
    hot_c: float | None = None
    downs: int | None = None
    why: tuple[str, ...] = ()

    def as_line(self) -> list[Any]:
        """Return the values in the order of the fields, for JSON."""
        return [list(value) if isinstance(value, tuple) else value for value in vars(self).values()]


_NAMES = tuple(one.name for one in fields(LinkReading))
_TEXTS = frozenset(("serial", "part", "fec", "boot"))
_LISTS = frozenset(("bins", "rx_dbm"))


def reading_of(
    report: LinkReport, at: int, rail: int, gbps: float | None, boot: str, downs: int | None
) -> LinkReading:
    """Return the reading of a report; `downs` is the kernel's counter, else the report's is taken.

    Texts of the module are cut to what a line of a log may hold.
    """
    optics = report.optics
    rx = _real(optics, optics.rx_power_dbm) if optics else None
    heat = _real(optics, optics.temperature_c) if optics else None
    return LinkReading(
        at=at,
        rail=rail,
        serial=_tame(optics.serial if optics else None),
        part=_tame(optics.part if optics else None),
        fec=_tame(report.fec),
        gbps=gbps,
        boot=boot[:8],
        minutes=report.minutes,
        raw_errors=report.raw_errors,
        raw_ber=report.raw_ber,
        effective_errors=report.effective_errors,
        bins=report.bins,
        rx_dbm=tuple(value for value in rx.values if value > DARK_DBM) if rx else (),
        rx_low_dbm=rx.low if rx else None,
        celsius=heat.values[0] if heat else None,
        hot_c=heat.high if heat else None,
        downs=report.downs if downs is None else downs,
        why=(),
    )


def _real(optics: Optics, reading: Reading | None) -> Reading | None:
    """Return what a module measured: some copper cables report zeroes, with a range of nothing."""
    return None if reading is None or not (optics.optical or reading.high is not None) else reading


def reading_from_line(line: Any) -> LinkReading:
    """Return the reading of a line; ValueError for an invalid one: a node is not trusted."""
    if not isinstance(line, (list, tuple)) or len(line) != len(_NAMES):
        raise ValueError("a reading of a link has another number of values")
    given: Mapping[str, Any] = dict(zip(_NAMES, line))
    return LinkReading(**{name: _checked(name, value) for name, value in given.items()})


def reading_from_own_line(line: Any) -> LinkReading:
    """Return the reading of a line that was looked at before it was kept; ValueError.

    What the store holds has a checksum, and looking at each value again would take half a minute.
    """
    try:
        values: list[Any] = [tuple(one) if isinstance(one, list) else one for one in line]
        return LinkReading(*values)
    except TypeError as error:
        raise ValueError(f"a reading of a link: {error}") from error


def _checked(name: str, value: Any) -> Any:
    """Return the value of a field as it must be; ValueError."""
    if name in _TEXTS:
        if isinstance(value, str) and _TEXT.match(value):
            return value
    elif name == "why":
        if _short(value) and all(isinstance(one, str) and _TEXT.match(one) for one in value):
            return tuple(value)
    elif name in _LISTS:
        if _short(value) and all(map(_is_number, value)):
            return tuple(value)
    elif name in ("at", "rail"):
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40:
            return value
    elif value is None or (_is_number(value) and (name != "gbps" or value >= 1)):
        # A link that is slower than any transfers no bits, by which errors would be divided.
        return value
    raise ValueError(f"{name} of a reading of a link is {str(value)[:60]!r}")


def _short(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) <= _MOST_VALUES


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and abs(value) < _MOST
    )


def _tame(text: str | None) -> str:
    return "".join(each for each in (text or "") if _TEXT.match(each))[:80]
