# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What mlxlink and mstlink say of a port: its transceiver and its bit errors. Pure.

Both print the same fields, as JSON (`--json`) or as "name : value" lines (older releases). A field
that is missing or N/A is None.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Mapping

_NUMBER = r"[-+]?\d+(?:\.\d+)?"
_RANGED = re.compile(rf"({_NUMBER}(?:,\s*{_NUMBER})*)\s*\[({_NUMBER})\.\.({_NUMBER})\]\s*\Z")
_BARE = re.compile(rf"({_NUMBER}(?:,\s*{_NUMBER})*)\s*\Z")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_LINE = re.compile(r"(\S.*?)\s*:\s(.*\S)?\s*\Z")
_COPPER = re.compile(r"copper|DAC|ACC\b|twinax", re.I)
# A wavelength, "1310 nm EML", is light.
_OPTICAL = re.compile(r"optic|AOC|laser|VCSEL|fib(er|re)|\d nm\b", re.I)
# Part of a Cable Type that is one of both; the Cable Technology tells which.
_EITHER = "(active copper / optics)"
# Identifiers of modules without CMIS (mlxlink_utils.cpp, getCableIdentifier and isCMISCable).
_BEFORE_CMIS = re.compile(r"QSFP28|QSFP\+|SFP28|QSA\b")
_BIN = re.compile(r"Bin \d+\Z")
_BIN_LINE = re.compile(r"(Bin \d+)\s*:?\s+(\[[\d:]+\]\s+\d+)\Z")
_SYMBOLS = re.compile(r"\[(?:\d+:)?(\d+)\]\Z")
_MOST_SYMBOLS = 63
# A report without any of these is an error message, or the answer to another question.
_KNOWN = {"State", "Physical state", "Effective Physical BER", "Temperature [C]", "Identifier"}


@dataclass(frozen=True)
class Reading:
    """Values of one quantity, one for each lane, and the module's own alarm range."""

    values: tuple[float, ...]
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Optics:
    """The transceiver; `optical` is None where the tool does not say what kind of cable it is."""

    optical: bool | None
    temperature_c: Reading | None
    rx_power_dbm: Reading | None
    tx_power_dbm: Reading | None
    vendor: str | None
    part: str | None
    serial: str | None
    firmware: str | None
    # Passive copper, without a laser or clock recovery; other copper may have the latter.
    passive: bool = False
    # Without CMIS alarms of firmware do not exist, and others and the power sent are optional.
    cmis: bool = True


# Alarms of the module, with 0 for none, for the module or for each lane (CMIS, page 00h and 11h).
FIRMWARE_FAULTS = ("Module FW Fault", "DataPath FW Fault")
MODULE_FAULTS = (
    *FIRMWARE_FAULTS,
    "Tx Fault",
    "Tx LOS",
    "Rx LOS",
    "Tx CDR LOL",
    "Rx CDR LOL",
)


@dataclass(frozen=True)
class LinkReport:
    """One port as mlxlink tells it."""

    state: str | None
    width: str | None
    optics: Optics | None
    effective_ber: float | None
    effective_errors: int | None
    raw_ber: float | None
    minutes: float | None  # since the counters were cleared
    recommendation: str | None
    # Status Opcode of the troubleshooting: 0 is "No issue was observed"
    opcode: int | None = None
    # name of each of MODULE_FAULTS that is reported -> its value for each lane, or the module
    faults: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    fec: str | None = None
    # Bits before correction, of all lanes, since the counters were cleared.
    raw_errors: int | None = None
    downs: int | None = None
    # Code words by the number of symbols that were corrected in them, up to the last that is not 0.
    bins: tuple[int, ...] = ()


def _flat(data: Any) -> dict[str, Any]:
    """Return all fields of all sections by name."""
    fields: dict[str, Any] = {}
    for section in data.values() if isinstance(data, Mapping) else ():
        if isinstance(section, Mapping):
            for name, value in section.items():
                fields.setdefault(name.strip(), value)
    return fields


def _fields_of_json(text: str) -> dict[str, Any]:
    data = json.loads(text)
    status = data.get("status", {})
    if status.get("code", 0) != 0:
        raise ValueError(f"mlxlink says: {status.get('message', 'no message')}")
    output = data.get("result", {}).get("output")
    if not isinstance(output, Mapping) or not output:
        raise ValueError("mlxlink's answer has no output in it")
    return _flat(output)


def _fields_of_text(text: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for line in _ESCAPES.sub("", text).splitlines():
        # The histogram is a table, with and without colons by release.
        found = _BIN_LINE.match(line.rstrip()) or _LINE.match(line.rstrip())
        if found and found.group(2):
            fields.setdefault(found.group(1), found.group(2))
    return fields


def _plain(value: Any) -> str | None:
    text = str(value).strip() if isinstance(value, (str, int, float)) else ""
    return None if text in ("", "N/A") else text


def parse_reading(value: Any) -> Reading | None:
    """Return the reading "3.583,3.253 [-9.914..6.999]" is; None for N/A and other text.

    A range of nothing, "[0..0]", is that of a module without one.
    """
    text = _plain(value) or ""
    found = _RANGED.match(text)
    if found:
        low, high = float(found.group(2)), float(found.group(3))
    else:
        found, low, high = _BARE.match(text), None, None
    if not found:
        return None
    if low is not None and high is not None and low >= high:
        low, high = None, None
    return Reading(tuple(float(part) for part in found.group(1).split(",")), low, high)


def _float(value: Any) -> float | None:
    try:
        return float(_plain(value) or "")
    except ValueError:
        return None


def _alarm(fields: Mapping[str, Any], name: str) -> tuple[int, ...] | None:
    """Return the values of an alarm; None if it is not reported, or not as numbers."""
    value = fields.get(name, fields.get(f"{name} [per lane]"))
    if isinstance(value, Mapping):
        value = value.get("values")
    parts = value if isinstance(value, list) else (_plain(value) or "").split(",")
    words = [str(part).strip() for part in parts]
    return tuple(map(int, words)) if words and all(word.isdigit() for word in words) else None


def _whole_numbers(value: Any) -> list[int] | None:
    """Return the numbers of a field with one for each lane; None if one of them is none."""
    if isinstance(value, Mapping):
        value = value.get("values")
    parts = value if isinstance(value, list) else (_plain(value) or "").split(",")
    words = [str(part).strip() for part in parts]
    return [int(word) for word in words] if all(word.isdigit() for word in words) else None


def _bins(fields: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the histogram of --rx_fec_histogram --show_histogram; empty where there is none.

    A bin of several numbers of symbols, "[4:7]", counts for the largest of them.
    """
    found: dict[int, int] = {}
    for name, value in fields.items():
        bin_ = _BIN.match(name)
        if bin_ is None:
            continue
        words = value.get("values") if isinstance(value, Mapping) else (_plain(value) or "").split()
        words = [str(word).strip() for word in words or ()]
        symbols = _SYMBOLS.match(words[0]) if len(words) == 2 else None
        if symbols is None or not words[1].isdigit():
            return ()
        found[int(symbols.group(1))] = int(words[1])
    last = max((symbols for symbols, count in found.items() if count), default=-1)
    return tuple(found.get(symbols, 0) for symbols in range(min(last, _MOST_SYMBOLS) + 1))


def _optics(fields: Mapping[str, Any]) -> Optics | None:
    if not {"Identifier", "Cable Type", "Temperature [C]"} & set(fields):
        return None
    kind = " ".join(_plain(fields.get(name)) or "" for name in ("Cable Type", "Cable Technology"))
    kind = kind.replace(_EITHER, "")
    optical = False if _COPPER.search(kind) else True if _OPTICAL.search(kind) else None
    return Optics(
        optical=optical,
        temperature_c=parse_reading(fields.get("Temperature [C]")),
        rx_power_dbm=parse_reading(fields.get("Rx Power Current [dBm]")),
        tx_power_dbm=parse_reading(fields.get("Tx Power Current [dBm]")),
        vendor=_plain(fields.get("Vendor Name")),
        part=_plain(fields.get("Vendor Part Number")),
        serial=_plain(fields.get("Vendor Serial Number")),
        firmware=_plain(fields.get("FW Version")),
        passive=optical is False and "passive" in kind.lower(),
        cmis=not _BEFORE_CMIS.match(_plain(fields.get("Identifier")) or ""),
    )


def parse_mlxlink(text: str) -> LinkReport:
    """Return the report; ValueError where the text is truncated, empty, or an error of the tool."""
    begin = text.find("{")
    fields = _fields_of_json(text[begin:]) if begin >= 0 else _fields_of_text(text)
    if not fields.keys() & _KNOWN:
        raise ValueError("mlxlink's answer speaks neither of a link nor of a module")
    alarms = {name: _alarm(fields, name) for name in MODULE_FAULTS}
    opcode = _plain(fields.get("Status Opcode"))
    errors = _float(fields.get("Effective Physical Errors"))
    raw = _whole_numbers(fields.get("Raw Physical Errors Per Lane"))
    downs = _plain(fields.get("Link Down Counter"))
    return LinkReport(
        state=_plain(fields.get("State")),
        width=_plain(fields.get("Width")),
        optics=_optics(fields),
        effective_ber=_float(fields.get("Effective Physical BER")),
        effective_errors=None if errors is None else int(errors),
        raw_ber=_float(fields.get("Raw Physical BER")),
        minutes=_float(fields.get("Time Since Last Clear [Min]")),
        recommendation=_plain(fields.get("Recommendation")),
        opcode=int(opcode) if opcode and opcode.isdigit() else None,
        faults={name: value for name, value in alarms.items() if value is not None},
        fec=_plain(fields.get("FEC")),
        raw_errors=None if raw is None else sum(raw),
        downs=int(downs) if downs and downs.isdigit() else None,
        bins=_bins(fields),
    )
