# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the discovery tools print, read into a Sweep: ibnetdiscover and iblinkinfo. Pure.

The tools end with 0 whatever they found, so the text itself must say whether it is whole: each link
is printed at both of its ends, and a text that was cut off has links of one end only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .model import CA, SWITCH, FoundDevice, FoundPort, Sweep

# Blanks are optional everywhere: terminal logs lose the tabs.
_HEAD = re.compile(
    r'(Switch|Ca|Rt)\s*(\d+)\s*"([SHR])-([0-9a-fA-F]{1,16})"\s*#\s*"(.*)"'
    r"(?:\s*(?:enhanced|base) port 0 lid (\d+) lmc \d+)?\s*$"
)
_LINK = re.compile(
    r'\[(\d+)\](?:\[ext [^\]]*\])?(?:\(([0-9a-fA-F]+)\))?\s*"([SHR])-([0-9a-fA-F]{1,16})"'
    r"\[(\d+)\](?:\[ext [^\]]*\])?(?:\(([0-9a-fA-F]+)\))?\s*"
    r'#\s*(?:lid (\d+) lmc \d+ )?"(.*)" lid (\d+) (\d+x)(\S+)'
)
_VALUE = re.compile(
    r"(vendid|devid|sysimgguid|switchguid|caguid|rtguid)=0x([0-9a-fA-F]+)"
    r"(?:\(([0-9a-fA-F]+)\))?\s*$"
)
_START = re.compile(r"#\s*Initiated from node ([0-9a-fA-F]+) port ([0-9a-fA-F]+)")
# What such lines begin with: the rest is chatter of the terminal around the answer.
_OURS = re.compile(r"\[|(?:Switch|Ca|Rt)[\s\d]|(?:vendid|devid|sysimgguid|\w*guid)=")

_ROW = re.compile(
    r"(CA|SW|RT)\s+(\d+)\s+(\d+)\s+0x([0-9a-f]{1,16})\s+(\S+)\s+(\S+)"
    r"(?:\s+-\s+(CA|SW|RT)\s+(\d+)\s+(\d+)\s+0x([0-9a-f]{1,16})\s+\( '(.*)' - '(.*)' \)"
    r"|\s*'?(.*?)'?)$"
)
_ROW_BEGINS = re.compile(r"(?:CA|SW|RT)\s+\d")

_STATE = re.compile(
    r'0x([0-9a-f]{1,16})\s+"\s*(.*?)"\s+(\d+)\s+(\d+)\[.*?\]\s+'
    r"==\(\s*(?:(\d+X)\s+([\d.]+|\S+)\s*(?:Gbps)?(?:\s*\((\S+)\))?\s+)?(\S+)/\s*(.*?)\)==>\s*(.*)$"
)
_STATE_PEER = re.compile(r"0x([0-9a-f]{1,16})\s+(\d+)\s+(\d+)\[")

_KINDS = {"S": SWITCH, "H": CA, "R": CA, "SW": SWITCH, "CA": CA, "RT": CA, "Switch": SWITCH}

# How many places a complaint names before it says that there are more.
_NAMED = 3


def read_ibnetdiscover(text: str) -> Sweep:
    """Return what an answer of ibnetdiscover says, of its default form or of that with -p.

    Nothing is raised: what cannot be read, or shows that lines are missing, is a complaint. With -p
    a channel adapter goes by the GUID of its port, since the answer does not hold another.
    """
    lines = text.splitlines()
    rows = any(_ROW_BEGINS.match(line) for line in lines)
    reader = _Reader(Sweep())
    if rows:
        reader.read_rows(lines)
    else:
        reader.read_records(lines)
    reader.check_links()
    if not reader.sweep.devices:
        reader.sweep.complaints.append("the answer of ibnetdiscover holds no device")
    return reader.sweep


@dataclass
class _Reader:
    sweep: Sweep

    def read_records(self, lines: list[str]) -> None:
        """Read the default form: a record for each device."""
        values: dict[str, str] = {}
        device: FoundDevice | None = None
        unread: list[int] = []
        for number, line in enumerate(lines, 1):
            line = line.strip()
            if not line:
                values, device = {}, None
                continue
            if line.startswith("#"):
                start = _START.match(line)
                if start:
                    self.sweep.start = _guid(start.group(1))
                continue
            value, link = _VALUE.match(line), _LINK.match(line)
            if value:
                values[value.group(1)] = value.group(2)
            elif link and device is not None:
                self._add_link(device, link)
            else:
                head = _HEAD.match(line)
                if head:
                    device = self._add_device(head, values)
                elif _OURS.match(line):
                    unread.append(number)
        self._complain_of_lines(unread, lines)

    def _complain_of_lines(self, unread: list[int], lines: list[str]) -> None:
        if unread:
            first = lines[unread[0] - 1].strip()[:60]
            more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
            self.sweep.complaints.append(
                f"line {unread[0]}{more} of ibnetdiscover's answer cannot be read: {first!r}"
            )

    def _add_device(self, head: re.Match[str], values: dict[str, str]) -> FoundDevice:
        kind, count, _letter, digits, description, lid = head.groups()
        guid = _guid(digits)
        # A link may have named it before its own record came.
        device = self._device(guid, _KINDS.get(kind, CA), description)
        device.description = description
        device.port_count = int(count)
        device.device_id = values.get("devid")
        system = values.get("sysimgguid")
        device.system_guid = _guid(system) if system else None
        device.lid = int(lid) if lid else None
        return device

    def _add_link(self, device: FoundDevice, link: re.Match[str]) -> None:
        (own, own_guid, letter, far, far_port, far_guid, own_lid, name, far_lid, width, speed) = (
            link.groups()
        )
        port = _port(device, int(own))
        port.guid = _guid(own_guid) if own_guid else device.guid
        port.width, port.speed = width, speed
        if own_lid:
            port.lid = int(own_lid)
            device.lid = device.lid or port.lid
        other = self._device(_guid(far), _KINDS[letter], name)
        if far_guid:
            _port(other, int(far_port)).guid = _guid(far_guid)
        if other.lid is None:
            other.lid = int(far_lid)
        port.peer = (other.guid, int(far_port))

    def _device(self, guid: str, kind: str, description: str) -> FoundDevice:
        device = self.sweep.devices.get(guid)
        if device is None:
            # No own ports yet: if no record follows, the check of the links tells.
            device = FoundDevice(guid, kind, description, 0)
            self.sweep.devices[guid] = device
        return device

    def read_rows(self, lines: list[str]) -> None:
        """Read the form of -p: a line for each port, also of those without a link."""
        unread: list[int] = []
        for number, line in enumerate(lines, 1):
            row = _ROW.match(line.rstrip())
            if row:
                self._add_row(row)
            elif line.strip():
                unread.append(number)
        self._complain_of_lines(unread, lines)

    def _add_row(self, row: re.Match[str]) -> None:
        (kind, lid, number, guid, width, speed) = row.groups()[:6]
        guid = _guid(guid)
        (far_kind, far_lid, far_number, far_guid, name, far_name, alone) = row.groups()[6:]
        device = self._device(guid, _KINDS[kind], alone if far_kind is None else name)
        device.lid = int(lid)
        device.port_count = max(device.port_count, int(number))
        port = _port(device, int(number))
        port.guid, port.lid = guid, int(lid)
        if far_kind is None:
            # A port without a link is printed as "4x SDR": that is neither a width nor a speed.
            return
        port.width, port.speed = width, speed
        far_guid = _guid(far_guid)
        other = self._device(far_guid, _KINDS[far_kind], far_name)
        other.lid = int(far_lid)
        port.peer = (far_guid, int(far_number))

    def check_links(self) -> None:
        """Complain of each link that its two ends do not tell alike, and believe neither end."""
        odd: list[str] = []
        cut: list[str] = []
        wrong: list[FoundPort] = []
        for device in self.sweep.devices.values():
            for port in device.ports.values():
                if port.peer is None:
                    continue
                other = self.sweep.devices[port.peer[0]]
                back = other.ports.get(port.peer[1])
                here = f"{device.description.strip()} port {port.number}"
                if other.port_count == 0 or back is None or back.peer is None:
                    cut.append(here)
                elif back.peer != (device.guid, port.number):
                    odd.append(here)
                    wrong.append(port)
        for port in wrong:
            port.peer = None
        self.sweep.partial = bool(cut)
        if cut:
            self.sweep.complaints.append(
                f"the answer is cut off: the far end of {_some(cut)} is not in it"
            )
        if self.sweep.devices and self.sweep.start and self.sweep.start not in self.sweep.devices:
            self.sweep.partial = True
            self.sweep.complaints.append(
                "the answer is cut off: the device that it began at is not in it"
            )
        if odd:
            self.sweep.complaints.append(
                f"the answer contradicts itself: the two ends of the link at {_some(odd)} differ"
            )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _guid(digits: str) -> str:
    return digits.lower().zfill(16)


def _port(device: FoundDevice, number: int) -> FoundPort:
    port = device.ports.get(number)
    if port is None:
        port = device.ports[number] = FoundPort(number)
    return port


def port_index(sweep: Sweep) -> dict[tuple[str, int], tuple[str, int]]:
    """Return (GUID, port number) -> (GUID of the device, port number).

    Some tools name a channel adapter by the GUID of its port, others by its own.
    """
    index: dict[tuple[str, int], tuple[str, int]] = {}
    for device in sweep.devices.values():
        for number, port in device.ports.items():
            if port.guid and device.kind == CA:
                index[port.guid, number] = (device.guid, number)
    for device in sweep.devices.values():
        for number in device.ports:
            index[device.guid, number] = (device.guid, number)
    return index


def add_link_states(sweep: Sweep, text: str) -> None:
    """Add what `iblinkinfo -l` reports about each port: its states, and the ports without a link.

    A device that ibnetdiscover did not show, or a line that cannot be read, is a complaint.
    """
    index = port_index(sweep)
    unread = 0
    unknown: list[str] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        row = _STATE.match(line.strip())
        if row is None:
            unread += 1
            continue
        guid, name, lid, number, width, speed, form, state, physical, rest = row.groups()
        guid = _guid(guid)
        place = index.get((guid, int(number)))
        device = sweep.devices.get(place[0] if place else guid)
        if device is None:
            unknown.append(name)
            continue
        port = _port(device, int(number))
        if port.peer is not None or not _STATE_PEER.match(rest):
            port.state, port.physical_state = state, physical.strip()
        # Otherwise it has a link that ibnetdiscover's answer lost: that is not an unresponsive
        # device.
        port.guid = port.guid or guid
        port.lid = port.lid or int(lid)
        if width and port.width is None:
            port.width = width.lower()
            port.speed = _SPEED_OF_LANE.get(form or speed)
        if port.peer is None and _STATE_PEER.match(rest):
            unknown.append(name)
    if unread:
        sweep.complaints.append(f"{unread} lines of iblinkinfo's answer cannot be read")
    if unknown:
        sweep.complaints.append(
            f"iblinkinfo shows what ibnetdiscover does not: {_some(sorted(set(unknown)))}"
        )


# Gb/s of one lane as iblinkinfo prints it.
_SPEED_OF_LANE = {
    "2.5": "SDR",
    "5.0": "DDR",
    "10.0": "QDR",
    "FDR10": "FDR10",
    "14.0625": "FDR",
    "25.78125": "EDR",
    "53.125": "HDR",
    "106.25": "NDR",
    "212.5": "XDR",
}


def resolve_path(sweep: Sweep, path: tuple[int, ...]) -> tuple[str, int] | None:
    """Return the port (GUID of its device, number) that a directed route leaves by last.

    The route is the list of ports after the leading 0, from where the sweep began; None where the
    sweep does not know a hop.
    """
    if sweep.start is None or not path:
        return None
    here = sweep.start
    for step, number in enumerate(path):
        device = sweep.devices.get(here)
        if device is None:
            return None
        if step == len(path) - 1:
            return (here, number)
        port = device.ports.get(number)
        if port is None or port.peer is None:
            return None
        here = port.peer[0]
    return None
