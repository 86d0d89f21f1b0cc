# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Xid and SXid lines of the kernel log, and what each asks for. Pure.

Lines may be raw records of /dev/kmsg or what dmesg, journalctl and syslog make of them: only the
part from "NVRM: Xid" or "SXid" on is looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable

from ansible_collections.baremetal.dgx.plugins.module_utils._xid_table import (
    ACTIONS,
    CATALOGUE,
    CHECK,
    FIRMWARE_EVENTS,
    IGNORE,
    LINK_DOWN,
    NVLINK5_KNOWN_BITS,
    NVLINK5_NAMES,
    NVLINK5_RESET_BITS,
    NVLINK5_SOURCE,
    REBOOT,
    RECOVERY,
    RECOVERY_CHANGED,
    RECOVERY_WORDS,
    RESET,
    SXID_ALWAYS_FATAL,
    SXID_SOURCE,
    XIDS,
)

_PCI = r"\((?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?[^)]*\)"
_XID = re.compile(rf"NVRM: Xid {_PCI}[^:]*: (?P<code>\d+)(?:, *(?P<text>.*))?")
_SXID = re.compile(rf"nvidia-nvswitch\d+: SXid {_PCI}: (?P<code>\d+), *(?P<text>.*)")
_KMSG = re.compile(r"\d+,\d+,(\d+),[^;]*;")
_DMESG = re.compile(r"\[ *(\d+\.\d+)\]")
_RECOVERY = re.compile(
    r"recovery action changed .* to (?P<number>0x[0-9a-fA-F]+) *\((?P<word>[^)]*)\)"
)
_NVLINK5 = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_]+) +(?P<severity>Fatal|Nonfatal)\b.*?\bLink +(?P<link>-?\d+) *"
    r"[(\[](?P<words>[^)\]]*)[)\]]"
)
_SEVERITY = re.compile(r"(?P<severity>Fatal|Non-fatal), *(?:Link (?P<link>\d+))?")


@dataclass(frozen=True)
class Event:
    """One line: `kind` is xid or sxid, `pci` as sysfs writes it, `uptime_s` None if not told."""

    kind: str
    code: int
    pci: str
    text: str
    uptime_s: float | None = None

    def __str__(self) -> str:
        return f"{'Xid' if self.kind == 'xid' else 'SXid'} {self.code}: {self.text[:160]}"


@dataclass(frozen=True)
class Meaning:
    """What an event asks for; `action` is None for what no table has."""

    action: str | None
    text: str
    source: str = CATALOGUE


def parse_line(line: str) -> Event | None:
    """Return the event of a line, None where it has none."""
    for kind, pattern in (("xid", _XID), ("sxid", _SXID)):
        found = pattern.search(line)
        if found is None:
            continue
        text = (found["text"] or "").strip()
        if kind == "sxid" and not _SEVERITY.match(text):
            # Registers and engine numbers of the line before.
            return None
        return Event(kind, int(found["code"]), full_address(found["pci"]), text, uptime(line))
    return None


def parse_log(text: str) -> list[Event]:
    """Return all events of a kernel log, in its order."""
    return [
        event
        for line in text.splitlines()
        # Most lines of a log are neither; asking this first makes a long one quick.
        if "Xid" in line
        for event in [parse_line(line)]
        if event is not None
    ]


def full_address(address: str) -> str:
    """Return 0000:1b:00.0 for 0000:1b:00, or for a domain of eight digits."""
    domain, bus, device = address.lower().split(":")
    return f"{domain[-4:]}:{bus}:{device}.0"


def uptime(line: str) -> float | None:
    """Return the seconds since boot that a line begins with."""
    raw = _KMSG.match(line)
    if raw:
        return int(raw.group(1)) / 1e6
    stamp = _DMESG.search(line)
    return float(stamp.group(1)) if stamp else None


def recovery(text: str) -> Meaning:
    """Return what the text of Xid 154 asks for: the driver's own word, so it decides."""
    found = _RECOVERY.search(text)
    if found is None:
        return Meaning(None, f"a recovery action that is not known: {text[:80]}")
    number = RECOVERY_WORDS.get(found["word"].strip().lower(), int(found["number"], 16))
    row = RECOVERY.get(number)
    if row is None:
        return Meaning(None, f"recovery action {found['number']} ({found['word']}) is not known")
    return Meaning(row.action, f"the driver asks for: {row.meaning}", row.source)


def nvlink5(code: int, text: str) -> Meaning:
    """Return what a line of Xids 144 to 150 asks for, by unit, sub-code and error status."""
    name = NVLINK5_NAMES[code]
    found = _NVLINK5.search(text)
    if found is None:
        return Meaning(None, f"NVLink {name}: the line has no unit and status to decode")
    try:
        words = [int(word, 16) for word in found["words"].split()]
    except ValueError:
        words = []
    unit, link = found["unit"], f"link {int(found['link'])}"
    if not words or len(words) < 2:
        # Drivers before R575 print no status; their word is all there is.
        action = RESET if found["severity"] == "Fatal" else IGNORE
        return Meaning(action, f"NVLink {unit} {found['severity'].lower()}, {link}", NVLINK5_SOURCE)
    sub_code, status = words[0] >> 20 & 0x3F, words[1]
    action, look = _nvlink5_action(unit, sub_code, status, found["severity"])
    said = f"NVLink {unit} {found['severity'].lower()}, {link}, sub-code {sub_code}"
    more = f", status {status:#x}" + (f"; look at {look}" if look else "")
    return Meaning(action, said + more, NVLINK5_SOURCE)


def _nvlink5_action(unit: str, sub_code: int, status: int, severity: str) -> tuple[str, str]:
    printed = RESET if severity == "Fatal" else IGNORE
    if unit in ("NETIR_LINK_EVT", "NETIR_LINK_DOWN"):
        return LINK_DOWN.get(sub_code, (printed, ""))
    if unit == "NETIR_BER_EVENT":
        return IGNORE, "signal integrity and cables of this link when it repeats"
    if unit == "NETIR_MFDE_EVENT":
        return FIRMWARE_EVENTS.get(status, printed), ""
    if unit in ("NETIR", "NETIR_INT", "MSE_WATCHDOG"):
        return RESET, ""
    short = re.sub(r"_PIPE\d\Z", "", unit)
    known = NVLINK5_KNOWN_BITS.get(short)
    if known is None or status & ~known or not status or sub_code:
        return printed, ""
    return (RESET if status & NVLINK5_RESET_BITS[short] else IGNORE), ""


def meaning(event: Event) -> Meaning:
    """Return what an event asks for."""
    if event.kind == "sxid":
        found = _SEVERITY.match(event.text)
        fatal = found is not None and found["severity"] == "Fatal"
        if event.code in SXID_ALWAYS_FATAL:
            return Meaning(REBOOT, "fatal to the NVSwitch", SXID_SOURCE)
        return Meaning(RESET if fatal else IGNORE, "fatal" if fatal else "non-fatal", SXID_SOURCE)
    if event.code == RECOVERY_CHANGED:
        return recovery(event.text)
    if event.code in NVLINK5_NAMES:
        return nvlink5(event.code, event.text)
    row = XIDS.get(event.code)
    if row is None:
        return Meaning(None, "not in the catalogue of October 2025")
    return Meaning(row.action, row.meaning, row.source)


def open_events(events: Iterable[Event], since_s: float = 0.0) -> list[Event]:
    """Return the events that still count: later than `since_s`, and not settled by the driver.

    Xid 154 that ends in "None" says that what was asked for was done. Of the others of that kind
    only the last counts, since each replaces the one before.
    """
    still: list[Event] = []
    for event in events:
        if event.uptime_s is not None and event.uptime_s < since_s:
            continue
        if event.kind == "xid" and event.code == RECOVERY_CHANGED:
            still = [other for other in still if other.pci != event.pci or other.code != event.code]
            if recovery(event.text).action == IGNORE:
                still = [other for other in still if other.pci != event.pci]
                continue
        still.append(event)
    return still


def rank(action: str | None) -> int:
    """Return how much an action asks for; what is not known stands with CHECK."""
    return ACTIONS.index(action if action is not None else CHECK)
