# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the InfiniBand tools say beside the discovery: counters, subnet managers, errors. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Iterable, Mapping

from .model import Sweep

_COUNTERS_OF = re.compile(r'(?:Errors|Data Counters) for (?:0x([0-9a-f]+) )?"(.*)"$')
_COUNTERS = re.compile(r"GUID 0x([0-9a-f]+) port (\d+|ALL):(.*)$")
# A number that nothing follows may be cut off.
_COUNTER = re.compile(r"\[(\w+) == (\d+)[] ]")
_SUMMARY = re.compile(r"## Summary: (\d+) nodes checked")
# The last line, in every release (print_summary of infiniband-diags/ibqueryerrors.c).
_END = "## Suppressed:"
# What is at or below a threshold, or suppressed, is not printed, and --counters prints no errors.
# PortRcvSwitchRelayErrors is what -c suppresses, and is not judged.
_LEFT_OUT = re.compile(
    r"## Thresholds: *\[|## Suppressed:.* (?!PortRcvSwitchRelayErrors\b)\w|Data Counters for "
)
_FAILURES = re.compile(r"##\s+(\d+) PMA query failures")

_SMINFO = re.compile(
    r"sminfo: sm lid (\d+) sm guid 0x([0-9a-f]+), activity count (\d+) priority (\d+) "
    r"state (\d+) SMINFO_(\w+)"
)
_SM_LID = re.compile(r"EndPortLid\.+(\d+)")

# Lines that say nothing of the fabric: the simulator's client greets so.
HARMLESS = re.compile(r"ibwarn: \[\d+\] sim_connect: attached as client \d+ at node ")
# NodeInfo alone (0x11): whatever else is asked for is of a device that has answered.
_SILENT = re.compile(
    r"DR path slid \d+; dlid \d+; 0((?:,\d+)*) Attr 0x11:.*(?:timed out|bad status 110)"
)
_DUPLICATE = re.compile(r"Duplicate (?:Port|Node): .*guid 0x([0-9a-f]+)", re.IGNORECASE)
# A second line on the same matter.
_DUPLICATE_AGAIN = re.compile(r"Error Occurred when trying to insert new (?:port|node) guid 0x")
_NO_COUNTERS = re.compile(r"query failed on (.*), (?:Lid (\d+)|DR path .*?) port (\d+|ALL)\s*$")
# Where a device has one answer for all its ports (AllPortSelect), port 255 is asked for first, and
# without its answer no other.
_ALL_PORTS = ("ALL", "255")
_NO_ANSWER = re.compile(r"mad_rpc: _do_madrpc failed; dport \(")


@dataclass
class Reading:
    """The counters of all ports at one time.

    A port that is not in `ports` answered with nothing but zeros, unless it is in `unread`, or the
    reading is not `whole`: the tool prints only counters that are not zero. With `left_out`, which
    is never `whole`, a port that is there also lacks counters that are not zero.
    """

    at_s: float
    ports: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)
    # (GUID of the device, port); port 0 stands for all of them
    unread: set[tuple[str, int]] = field(default_factory=set)
    whole: bool = True
    complaints: list[str] = field(default_factory=list)
    left_out: bool = False
    # GUIDs of the devices that were asked; None: all
    asked: set[str] | None = None

    def has_asked(self, guid: str) -> bool:
        """Return whether a device was asked, with an answer or without."""
        return self.asked is None or guid in self.asked

    def of(self, place: tuple[str, int], counter: str) -> int | None:
        """Return the value of a counter, None where it was not read."""
        values = self.ports.get(place)
        if values is not None and (counter in values or not self.left_out):
            return values.get(counter, 0)
        if not self.has_asked(place[0]):
            return None
        if not self.whole or place in self.unread or (place[0], 0) in self.unread:
            return None
        return 0


def read_counters(
    text: str,
    errors: str,
    at_s: float,
    sweep: Sweep,
    index: Mapping[tuple[str, int], tuple[str, int]],
    *,
    saved: bool = False,
) -> Reading:
    """Return what ibqueryerrors says; `index` is that of _fabric_sweep.port_index.

    Of `saved` answers the options are not known: they must be of all devices.

    The row of "port ALL" is left out: the tool adds counters of all ports into fields that are too
    small for them.
    """
    recorded = {guid for guid, device in sweep.devices.items() if device.recorded}
    reading = Reading(at_s, whole=False, asked=recorded)
    doubtful, checked, failures = False, -1, 0
    for line in text.splitlines():
        line = line.strip()
        if _LEFT_OUT.match(line) and not reading.left_out:
            reading.complaints.append(
                f"ibqueryerrors left counters out ({line.lstrip('# ')[:97]}); save its answer with "
                "--threshold-file /dev/null, and without --suppress and --counters"
            )
            reading.left_out = doubtful = True
        if not line or _COUNTERS_OF.match(line):
            continue
        if line.startswith("##"):
            summary = _SUMMARY.match(line)
            if summary:
                checked = int(summary.group(1))
            elif line.startswith(_END):
                reading.whole = checked >= 0
            failed = _FAILURES.match(line)
            failures = int(failed.group(1)) if failed else failures
            continue
        row = _COUNTERS.match(line)
        if row is None:
            # What is in it is not known to be zero.
            reading.complaints.append(f"ibqueryerrors says: {line[:100]!r}")
            doubtful = True
            continue
        # The tool does not print leading zeros.
        guid, port, values = row.group(1).zfill(16), row.group(2), row.group(3)
        if port == "ALL":
            continue
        place = index.get((guid, int(port)), (guid, int(port)))
        found = {name: int(value) for name, value in _COUNTER.findall(values)}
        reading.ports.setdefault(place, {}).update(found)
    if not reading.whole:
        reading.complaints.append("the answer of ibqueryerrors has no end")
        # The end says which counters are left out, and the last row may be half.
        reading.left_out = True
    # It counts each device that it knows, also one that did not answer. In a sweep it asks all, and
    # a node that goes off between two looks must not cost the others their counters.
    if saved and reading.whole and checked < len(recorded):
        reading.complaints.append(
            f"ibqueryerrors asked {checked} devices, and the discovery has {len(recorded)}"
        )
        doubtful = True
    named = _read_unanswered(reading, errors, sweep)
    if failures > named:
        reading.complaints.append(
            f"ibqueryerrors had {failures} questions without an answer, and names {named} of them"
        )
        doubtful = True
    reading.whole = reading.whole and not doubtful
    return reading


def _read_unanswered(reading: Reading, errors: str, sweep: Sweep) -> int:
    """Add what standard error says to the reading; return how many lines name a port of it."""
    named = 0
    by_lid = {device.lid: guid for guid, device in sweep.devices.items() if device.lid}
    by_name: dict[str, list[str]] = {}
    for guid, device in sweep.devices.items():
        by_name.setdefault(device.description.strip(), []).append(guid)
    for line in errors.splitlines():
        failed = _NO_COUNTERS.search(line)
        if failed:
            name, lid, port = failed.groups()
            guids = [by_lid[int(lid)]] if lid and int(lid) in by_lid else by_name.get(name, [])
            for guid in guids:
                reading.unread.add((guid, 0 if port in _ALL_PORTS else int(port)))
            named += bool(guids)
        elif line.strip() and not HARMLESS.match(line) and not _NO_ANSWER.search(line):
            reading.complaints.append(f"ibqueryerrors says: {line.strip()[:100]!r}")
    return named


def add_errors(sweep: Sweep, tool: str, text: str) -> None:
    """Sort what a tool wrote to standard error into the sweep: nothing of it is passed over."""
    rest = []
    for line in text.splitlines():
        line = line.strip()
        if not line or HARMLESS.match(line) or _DUPLICATE_AGAIN.search(line):
            continue
        twice, silent = _DUPLICATE.search(line), _SILENT.search(line)
        if twice:
            guid = twice.group(1).zfill(16)
            if guid not in sweep.duplicate_guids:
                sweep.duplicate_guids.append(guid)
        elif silent:
            path = tuple(int(hop) for hop in silent.group(1).split(",") if hop)
            if path not in sweep.silent:
                sweep.silent.append(path)
        else:
            rest.append(line)
    if rest:
        more = f" and {len(rest) - 1} lines more" if len(rest) > 1 else ""
        sweep.complaints.append(f"{tool} says: {rest[0][:120]!r}{more}")


@dataclass(frozen=True)
class FoundSm:
    """A subnet manager: `state` is MASTER, STANDBY, DISCOVER or NOTACT; None: it did not say."""

    lid: int
    guid: str | None
    priority: int | None
    state: str | None


@dataclass
class FoundSms:
    """The subnet managers; `asked` is False if they were not asked for, or without tools."""

    asked: bool = False
    sms: list[FoundSm] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def masters(self) -> list[FoundSm]:
        """Those that say that they are master."""
        return [sm for sm in self.sms if sm.state == "MASTER"]


def read_sminfo(text: str) -> FoundSm | None:
    """Return the subnet manager that sminfo speaks of, None where it got no answer."""
    found = _SMINFO.search(text)
    if found is None:
        return None
    lid, guid, _count, priority, _number, state = found.groups()
    return FoundSm(int(lid), guid.zfill(16), int(priority), state)


def read_sm_lids(text: str) -> list[int]:
    """Return the LIDs of all ports where `saquery -s` says that a subnet manager runs."""
    running = text.split("IsSMdisabled ports", 1)[0]
    return [int(lid) for lid in _SM_LID.findall(running)]


def gather_sms(master: str, lids: str, each: Iterable[tuple[int, str]]) -> FoundSms:
    """Return all subnet managers, from sminfo, `saquery -s` and sminfo of each LID."""
    found = FoundSms(asked=True)
    by_lid: dict[int, FoundSm] = {}
    first = read_sminfo(master)
    if first:
        by_lid[first.lid] = first
    for lid in read_sm_lids(lids):
        by_lid.setdefault(lid, FoundSm(lid, None, None, None))
    for lid, text in each:
        answer = read_sminfo(text)
        if answer:
            by_lid[lid] = answer
    found.sms = [by_lid[lid] for lid in sorted(by_lid)]
    return found
