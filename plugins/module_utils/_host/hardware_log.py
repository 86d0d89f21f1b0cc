# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the kernel reports about PCIe errors (AER), memory errors (EDAC) and machine checks. Pure.

The message must begin with the form of the kernel's own drivers. A GPU's PCIe errors are counted at
the GPU and at every bridge above it, since each end of a link reports what it sees.

A non-fatal error whose status has only Unsupported Request or ACS Violation is a request that was
refused: boards report them when something asks for a function, address or route that is not there,
at boot or by probing. The link and the device work (Linux, Documentation/PCI/pcieaer-howto.rst and
drivers/pci/pcie/aer.c), so such an error is evidence and no finding.

Where the firmware reads PCIe errors first (APEI), the kernel prints its record, then status and
mask of the device, and for an error that was not corrected also which errors are fatal to it
(pci_print_aer of drivers/pci/pcie/aer.c).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Collection, Iterable, Sequence

from .kernel_log import Message, messages

AER, EDAC, MACHINE_CHECK = "aer", "edac", "machine check"
# A line that holds none of these is none of them.
WORDS = (
    "PCIe Bus Error",
    "error status/mask=",
    "error received",
    "error message received",
    "aer_status:",
    "aer_uncor_severity:",
    "EDAC MC",
    "Machine Check",
    "[Hardware Error]: CPU:",
)

MINUTE_S = 60.0

_ADDRESS = r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
# Corrected and Uncorrected up to Linux 6.9, Correctable and Uncorrectable after that.
_SEVERITY = r"(?P<severity>Correct(?:ed|able)|Uncorrect(?:ed|able) \((?:Non-Fatal|Fatal)\))"
_AER = re.compile(
    rf"(?P<driver>[\w.-]+) (?P<pci>{_ADDRESS}): (?:AER: )?PCIe Bus Error: severity={_SEVERITY}, "
    r"type=(?P<what>[\w ]+)"
)
# What the root port says; the device says more, if it still answers.
_ROOT = re.compile(
    rf"(?P<driver>[\w.-]+) {_ADDRESS}: AER: (?:Multiple )?{_SEVERITY} error (?:message )?received"
    rf"(?: from|:) (?P<pci>{_ADDRESS})"
)
# What the firmware has read: the status first, the severity of uncorrected errors alone.
_FIRMWARE = re.compile(
    rf"[\w.-]+ (?P<pci>{_ADDRESS}): (?:AER: )?aer_(?P<what>status|uncor_severity): "
    r"0x(?P<bits>[0-9a-f]{8})\b"
)
# Which errors, and which of them it is configured not to report; the line after a device's message.
_STATUS = re.compile(
    rf"[\w.-]+ (?P<pci>{_ADDRESS}): (?:AER: )? *(?:device \[[0-9a-f]{{4}}:[0-9a-f]{{4}}\] "
    r"error status/mask=|aer_status: 0x)(?P<status>[0-9a-f]{8})(?:/|, aer_mask: 0x)"
    r"(?P<mask>[0-9a-f]{8})"
)
_NON_FATAL = "(Non-Fatal)"
# PCI_ERR_UNC_UNSUP (UnsupReq) and PCI_ERR_UNC_ACSV (ACSViol) of uapi/linux/pci_regs.h.
_REFUSALS = 1 << 20 | 1 << 21
# "%d UE %s%son %s (" of drivers/edac/edac_mc.c: the message may be empty, the label of some words.
_EDAC = re.compile(
    r"EDAC MC(?P<controller>\d+): (?P<count>\d+) (?P<kind>UE|CE) (?:[\w ,()-]+? )?on "
    r"(?P<where>[^(]+?) \("
)
_MCE = re.compile(
    r"mce: \[Hardware Error\]: CPU (?P<cpu>\d+): Machine Check(?: Exception)?: [0-9a-f]+ "
    r"Bank (?P<bank>\d+): (?P<status>[0-9a-f]{16})\b"
)
# drivers/edac/mce_amd.c.
_MCE_AMD = re.compile(
    r"\[Hardware Error\]: CPU:(?P<cpu>\d+) \([0-9a-f]+:[0-9a-f]+:[0-9a-f]+\) "
    r"MC(?P<bank>\d+)_STATUS\[[^\]]*\]: 0x(?P<status>[0-9a-f]{16})\b"
)
# Bit 61 of IA32_MCi_STATUS: the error was not corrected (Intel SDM, volume 3, chapter 16).
_UNCORRECTED = 1 << 61
# Deferred of AMD (MCI_STATUS_DEFERRED of asm/mce.h): bad data that no one has used yet. Intel
# counts corrected errors in this bit.
_DEFERRED = 1 << 44


@dataclass(frozen=True)
class Fault:
    """One message: where it was, and whether the hardware corrected it.

    `refused`: a PCIe request that was refused, which is not a fault of the hardware.
    """

    kind: str
    where: str
    corrected: bool
    text: str
    uptime_s: float | None = None
    count: int = 1
    refused: bool = False

    @property
    def hard(self) -> bool:
        """Whether the hardware failed and did not correct it."""
        return not self.corrected and not self.refused


@dataclass(frozen=True)
class Status:
    """Which errors a PCIe device reports with the message before: the bits that are not masked."""

    where: str
    bits: int

    def refused(self, fatal: int = 0) -> bool:
        """Whether requests were refused and no more, and none of it is fatal to the device."""
        return bool(self.bits) and not self.bits & (~_REFUSALS | fatal)


def status_of(message: Message) -> Status | None:
    """Return the status of an AER message, None if the message is something else."""
    found = _STATUS.match(message.text)
    if not found:
        return None
    return Status(found["pci"], int(found["status"], 16) & ~int(found["mask"], 16))


def fault_of(message: Message) -> Fault | None:
    """Return the fault of a message, None if it is about something else."""
    for pattern in (_AER, _ROOT):
        found = pattern.match(message.text)
        if found:
            corrected = found["severity"].startswith("Correct")
            return Fault(AER, found["pci"], corrected, message.text[:160], message.uptime_s)
    found = _FIRMWARE.match(message.text)
    if found:
        corrected = found["what"] == "status"
        return Fault(AER, found["pci"], corrected, message.text[:160], message.uptime_s)
    found = _EDAC.match(message.text)
    if found:
        where, count = f"MC{found['controller']} {found['where']}", int(found["count"])
        return Fault(
            EDAC, where, found["kind"] == "CE", message.text[:160], message.uptime_s, count
        )
    for pattern, bad in ((_MCE, _UNCORRECTED), (_MCE_AMD, _UNCORRECTED | _DEFERRED)):
        found = pattern.match(message.text)
        if found:
            where = f"CPU {found['cpu']} bank {found['bank']}"
            corrected = not int(found["status"], 16) & bad
            return Fault(MACHINE_CHECK, where, corrected, message.text[:160], message.uptime_s)
    return None


def _completed(fault: Fault, message: Message) -> Fault | None:
    """Return what the firmware has read as the uncorrected error that this message makes of it."""
    severity, status = _FIRMWARE.match(message.text), status_of(Message(fault.text))
    if not severity or not status:
        return None
    return replace(fault, corrected=False, refused=status.refused(int(severity["bits"], 16)))


def parse_faults(text: str, since_s: float = 0.0) -> list[Fault]:
    """Return the faults of a log that are later than `since_s`, each once.

    What a root port reports about a device counts only if the device itself has reported nothing.
    """
    found: list[tuple[Fault, bool]] = []
    # The message of each device whose status, or severity, has yet to come.
    waiting: dict[str, int] = {}
    for message in messages(text, WORDS):
        if message.uptime_s is not None and message.uptime_s < since_s:
            continue
        fault, status = fault_of(message), status_of(message)
        if fault is None:
            place = waiting.pop(status.where, None) if status else None
            if place is not None and status and status.refused():
                found[place] = replace(found[place][0], refused=True), False
            continue
        root = _ROOT.match(message.text) is not None
        if fault.kind == AER and not root:
            place = waiting.pop(fault.where, None)
            if status or _NON_FATAL in fault.text:
                waiting[fault.where] = len(found)
            elif place is not None:
                done = _completed(found[place][0], message)
                if done:
                    found[place] = done, False
                    continue
        found.append((fault, root))
    reported = {
        (fault.where, fault.corrected) for fault, root in found if fault.kind == AER and not root
    }
    return [
        fault for fault, root in found if not root or (fault.where, fault.corrected) not in reported
    ]


def at(faults: Iterable[Fault], addresses: Collection[str]) -> list[Fault]:
    """Return the PCIe errors at these addresses."""
    return [fault for fault in faults if fault.kind == AER and fault.where in addresses]


def refusals(faults: Sequence[Fault]) -> tuple[str, ...]:
    """Return one line of evidence of the requests that were refused, none without any."""
    found = [fault for fault in faults if fault.refused]
    return (f"no fault, {len(found)} x request refused: {found[0].text}",) if found else ()


def most_in(faults: Sequence[Fault], seconds: float) -> int:
    """Return the most faults in any span of so many seconds; those without a time are together."""
    timed = sorted(fault.uptime_s for fault in faults if fault.uptime_s is not None)
    most, first = 0, 0
    for place, now in enumerate(timed):
        while now - timed[first] > seconds:
            first += 1
        most = max(most, place - first + 1)
    return max(most, len(faults) - len(timed))
