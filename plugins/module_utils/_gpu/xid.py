# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Xid and SXid lines of the kernel log, and what each asks for. Pure.

Lines may be raw records of /dev/kmsg or what dmesg, journalctl and syslog make of them. The message
must begin with "NVRM: Xid" or the name of the NVSwitch; later text is what others have written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, Iterator

from .._core.names import full_pci
from .._host.kernel_log import Message, message, messages
from .sxid_data import ENDS
from .xid_table import (
    ACTIONS,
    ALWAYS,
    CATALOGUE,
    CHECK,
    FATAL,
    FIRMWARE_EVENTS,
    IGNORE,
    LINK_DOWN,
    NONFATAL,
    NVLINK5_KNOWN_BITS,
    NVLINK5_NAMES,
    NVLINK5_RESET_BITS,
    NVLINK5_SOURCE,
    NVLINK_REGISTER,
    NVLINK_REGISTER_HARMLESS,
    REBOOT,
    RECOVERY,
    RECOVERY_CHANGED,
    RECOVERY_WORDS,
    REPLACE,
    RESET,
    SXID_SOURCE,
    SXIDS,
    XIDS,
)

_PCI = r"\((?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?[^)]*\)"
_XID = re.compile(rf"NVRM: Xid {_PCI}[^:]*: (?P<code>\d+)(?:, *(?P<text>.*))?")
_SXID = re.compile(rf"nvidia-nvswitch\d+: SXid {_PCI}: (?P<code>\d+), *(?P<text>.*)")
_SWITCH = re.compile(r"nvidia-nvswitch\d+: SXid")
_RECOVERY = re.compile(
    r"recovery action changed .* to (?P<number>0x[0-9a-fA-F]+) *\((?P<word>[^)]*)\)"
)
_NVLINK5 = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_]+) +(?P<severity>Fatal|Nonfatal)\b.*?\bLink +(?P<link>-?\d+) *"
    r"[(\[](?P<words>[^)\]]*)[)\]]"
)
_SEVERITY = re.compile(r"(?P<severity>Fatal|Non-fatal), *(?:Link (?P<link>\d+))?")
# The second line of an SXid repeats the severity as a number, and the third holds registers.
_DETAIL = re.compile(r"Severity (?P<severity>\d+)\b|Data \{")
_FATAL_NUMBER = 1
_CAUSE = re.compile(r"(?:caused by|due to) previous Xid (?P<code>\d+)")
_CLEANUP, _NOT_REMAPPED, _NVLINK = 45, 64, 74
_BANK_FULL = re.compile(r"all reserved rows for bank are remapped", re.IGNORECASE)
_REGISTERS = re.compile(r"link (?P<link>\d+) *\((?P<words>0x[0-9a-fA-F]+(?:, *0x[0-9a-fA-F]+)+)\)")


@dataclass(frozen=True)
class Event:
    """One line: `kind` is xid or sxid, `pci` as sysfs writes it, `uptime_s` None if unknown."""

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
    """Return the event of a line, None if it has none."""
    found = message(line)
    return None if found is None else event_of(found)


def event_of(kernel_message: Message) -> Event | None:
    """Return the event of a message of the kernel, None if it is about something else."""
    for kind, pattern in (("xid", _XID), ("sxid", _SXID)):
        found = pattern.match(kernel_message.text)
        if found is None:
            continue
        text = (found["text"] or "").strip()
        address = full_pci(found["pci"])
        return Event(kind, int(found["code"]), address, text, kernel_message.uptime_s)
    if _SWITCH.match(kernel_message.text):
        # It is about a switch, and not documented.
        return Event("sxid", 0, "", kernel_message.text, kernel_message.uptime_s)
    return None


def parse_log(text: str) -> list[Event]:
    """Return all events of a kernel log, in its order."""
    found = (event_of(one) for one in messages(text, ("Xid",)))
    return list(_whole(event for event in found if event is not None))


def _whole(events: Iterable[Event]) -> Iterator[Event]:
    """Yield events without further lines of them, which count only if the first line is lost."""
    begun: set[tuple[int, str]] = set()
    for event in events:
        key = (event.code, event.pci)
        if event.kind == "sxid" and _DETAIL.match(event.text) and key in begun:
            continue
        if event.kind == "sxid":
            begun.add(key)
        yield event


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
    summary = f"NVLink {unit} {found['severity'].lower()}, {link}, sub-code {sub_code}"
    more = f", status {status:#x}" + (f"; look at {look}" if look else "")
    return Meaning(action, summary + more, NVLINK5_SOURCE)


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
        return _switch(event)
    cause = _CAUSE.search(event.text)
    if event.code == _CLEANUP and cause is not None:
        return _cleanup(int(cause["code"]))
    if event.code == _NOT_REMAPPED and _BANK_FULL.search(event.text):
        source = "NVIDIA memory error guide: a bank without reserved rows is the RMA criterion"
        return Meaning(REPLACE, "all reserved rows of a bank are used", source)
    if event.code == _NVLINK:
        return _nvlink(event.text)
    if event.code == RECOVERY_CHANGED:
        return recovery(event.text)
    if event.code in NVLINK5_NAMES:
        return nvlink5(event.code, event.text)
    row = XIDS.get(event.code)
    if row is None:
        return Meaning(None, "not in the catalogue of October 2025")
    return Meaning(row.action, row.meaning, row.source)


def _cleanup(code: int) -> Meaning:
    """Return what Xid 45 asks for that names its cause, whose own line is gone."""
    text = f"clean-up after Xid {code}, whose line is gone"
    if code in NVLINK5_NAMES or code == RECOVERY_CHANGED:
        return Meaning(CHECK, f"{text} and would say more")
    row = XIDS.get(code)
    return Meaning(None, text) if row is None else Meaning(row.action, text, row.source)


def _nvlink(text: str) -> Meaning:
    """Return what Xid 74 asks for, by the first register of its line."""
    row = XIDS[_NVLINK]
    found = _REGISTERS.search(text)
    if found is None:
        return Meaning(row.action, row.meaning, row.source)
    first, *others = [int(word, 16) for word in found["words"].split(",")]
    if first and not any(others) and not first & ~NVLINK_REGISTER_HARMLESS:
        return Meaning(IGNORE, f"NVLink {found['link']}: safe to ignore ({first:#x})", row.source)
    looks = [look for bits, look in NVLINK_REGISTER if first & bits]
    summary = f"NVLink {found['link']}: {looks[0] if looks else 'bits that are not known'}"
    return Meaning(row.action, f"{summary} ({first:#x})", row.source)


def _switch(event: Event) -> Meaning:
    """Return what an SXid asks for: by its number, then by the driver's word, then by the guide."""
    row = SXIDS.get(event.code)
    meant, source = (row.meaning, row.source) if row else ("not in the guide", SXID_SOURCE)
    if row is not None and row.kind == ALWAYS:
        return Meaning(REBOOT, f"{meant}, fatal to the NVSwitch", source)
    word, detail = _SEVERITY.match(event.text), _DETAIL.match(event.text)
    kind = row.kind if row else ""
    if word is not None:
        kind = FATAL if word["severity"] == "Fatal" else NONFATAL
    elif detail is not None and detail["severity"] is not None:
        kind = FATAL if int(detail["severity"]) == _FATAL_NUMBER else NONFATAL
    if kind in (FATAL, NONFATAL):
        reported = "fatal" if kind == FATAL else "non-fatal"
        return Meaning(RESET if kind == FATAL else IGNORE, f"{meant}, {reported}", source)
    if kind:
        return Meaning(kind, meant, source)
    return Meaning(None, f"{meant}, and the driver prints no severity", source)


def open_events(events: Iterable[Event], since_s: float = 0.0) -> list[Event]:
    """Return the events that still count: later than `since_s`, and not settled by the driver.

    Xid 154 that ends in "None" says that what was asked for was done. Of the others of that kind
    only the last counts, since each replaces the one before. The end of a thermal event settles its
    beginning, and Xid 45 counts only if the Xid that it names is not there.
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
        if event.kind == "sxid" and event.code in ENDS:
            begun = ENDS[event.code]
            still = [one for one in still if (one.code, one.pci) != (begun, event.pci)]
        still.append(event)
    return [event for event in still if not _explained(event, still)]


def _explained(event: Event, events: Iterable[Event]) -> bool:
    """Return whether an Xid 45 names a cause that is there itself."""
    cause = _CAUSE.search(event.text) if event.code == _CLEANUP else None
    return cause is not None and any(
        (one.kind, one.code, one.pci) == ("xid", int(cause["code"]), event.pci) for one in events
    )


def rank(action: str | None) -> int:
    """Return how much an action asks for; what is not known stands with CHECK."""
    return ACTIONS.index(action if action is not None else CHECK)
