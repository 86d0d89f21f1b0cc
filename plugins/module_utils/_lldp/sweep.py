# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""An Ethernet fabric as LLDP shows it: the neighbours that lldpd prints, as a sweep. Pure.

Each node hears the switch and the port that each rail leads to. Cables between switches are
received by switches alone, whose answers can be added. The sweep is judged like one
of InfiniBand; what could not be received is taken out of the plan before, with the reason.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from typing import Any, Iterable, Mapping, Sequence

from .._core.record import NOT_MEASURED
from .._fabric.findings import UNHEARD, Finding, several
from .._fabric.model import (
    CA,
    SWITCH,
    Cable,
    CablePlan,
    End,
    FoundDevice,
    FoundPort,
    Sweep,
    rail_end,
    switch_end,
)
from .._ib.descriptions import host_key

_RAIL = re.compile(r"rail(\d+)")
# Cumulus Linux: swp12 or, a cage in parts, swp12s1, counted from 0. Onyx: Eth1/12 or Eth1/12/2,
# from 1. SONiC's description: etp12 or etp12b.
_PORTS = (
    (re.compile(r"swp(\d+)(?:s(\d+))?"), 0),
    (re.compile(r"Eth\d+/(\d+)(?:/(\d+))?"), 1),
    (re.compile(r"etp(\d+)([a-h])?"), "a"),
)
PORTS_PER_CAGE = 2
_START = "see that lldpd runs there, and on the switch: systemctl status lldpd"
_RENAME = "reboot, or run configure_fabric"
# A switch's management ports lead to no switch of the plan.
_MANAGEMENT = re.compile(r"eth\d+|mgmt\d+|[Mm]anagement\d+")
_NOT_ASKED = "only switches hear it, and neither was asked"
_ASK = (
    "give lldp_verify what lldpcli -f json0 show neighbors prints on a switch of each cable "
    "(switch_neighbor_files)"
)
_CALL = "call the switch of each answer as the inventory does"
_READ = (
    "give lldp_verify the answer of the switch at the other end, call switches as the inventory "
    "does, or follow these cables by hand"
)


@dataclass(frozen=True)
class Neighbour:
    """A device that an interface hears: its name, and the names that its port has."""

    interface: str
    name: str
    ports: tuple[str, ...]


def parse_neighbours(text: str) -> list[Neighbour]:
    """Return what `lldpcli -f json0 show neighbors` printed; ValueError for anything else."""
    try:
        data = json.loads(text)
        found = []
        # There is one entry, with or without neighbours.
        for each in data["lldp"][0].get("interface", ()):
            chassis, port = each["chassis"][0], each["port"][0]
            # A neighbour that sends no name is there, under its id.
            name = _value(chassis, "name") or _value(chassis, "id")
            ports = [_value(port, "id"), _value(port, "descr")]
            found.append(Neighbour(each["name"], name, tuple(filter(None, ports))))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not an answer of lldpcli -f json0: {error!r}") from error
    return found


def _value(entry: Mapping[str, Any], key: str) -> str:
    return str(entry[key][0]["value"]) if entry.get(key) else ""


def port_number(names: Iterable[str], per_cage: int = PORTS_PER_CAGE) -> int | None:
    """Return the number that the plan gives a switch's port, None for a name of another form."""
    for name in names:
        for pattern, first in _PORTS:
            found = pattern.fullmatch(name)
            if found and found.group(2) is None:
                return int(found.group(1))
            if found:
                part = found.group(2)
                index = ord(part) - ord("a") if first == "a" else int(part) - int(first)
                return (int(found.group(1)) - 1) * per_cage + index + 1
    return None


@dataclass
class Received:
    """The sweep, the plan of what could be received, and why the other cables could not."""

    sweep: Sweep
    plan: CablePlan
    unheard: dict[Cable, str] = field(default_factory=dict)
    doubts: list[Finding] = field(default_factory=list)


def hear(
    plan: CablePlan,
    nodes: Mapping[str, Mapping[str, Any]],
    switches: Mapping[str, Sequence[Neighbour]],
    per_cage: int = PORTS_PER_CAGE,
) -> Received:
    """Return what the nodes hear (the answers of lldp_info by name), and the switches."""
    return _Listener(plan, nodes, switches, per_cage).received()


class _Listener:
    def __init__(
        self,
        plan: CablePlan,
        nodes: Mapping[str, Mapping[str, Any]],
        switches: Mapping[str, Sequence[Neighbour]],
        per_cage: int,
    ) -> None:
        self._plan, self._nodes, self._switches, self._per_cage = plan, nodes, switches, per_cage
        self._names = {host_key(name): name for name in plan.switches}
        self._sweep = Sweep()
        # Ends that nothing was received at, with the reason.
        self._deaf: dict[End, str] = {}
        # Of each switch that was asked: the ports that could not be read, and so may lead anywhere.
        self._asked: dict[str, list[str]] = {}
        # Names of those that gave an answer and that the plan does not have.
        self._unknown: list[str] = []
        # Ports of switches that more than one adapter hears: (GUID of the switch, port).
        self._claimed: set[tuple[str, int]] = set()

    def received(self) -> Received:
        """Listen to all, and take what was not received out of the plan."""
        for name in self._plan.switches:
            self._switch(name)
        for node, rail in sorted(self._plan.hcas):
            answer = self._nodes.get(node)
            if answer is None or "links" not in answer:
                self._deaf[rail_end(node, rail)] = "the node did not answer"
            elif answer.get("problem"):
                self._deaf[rail_end(node, rail)] = str(answer["problem"])
            else:
                self._rail(node, rail, answer)
        self._between_switches()
        unheard = {}
        for cable in self._plan.cables:
            why = self._why_not_received(cable) if cable.a.is_switch else self._deaf.get(cable.a)
            if why:
                unheard[cable] = why
        left = tuple(cable for cable in self._plan.cables if cable not in unheard)
        # A cage where nothing was received may hold what was not received.
        free = tuple(cable.b for cable in unheard)
        # Devices are known by their names alone: their GUIDs here are made up.
        hcas = {key: replace(hca, guid=None) for key, hca in self._plan.hcas.items()}
        switches = {name: replace(one, guid=None) for name, one in self._plan.switches.items()}
        reserved = (*self._plan.reserved, *free)
        plan = replace(self._plan, hcas=hcas, switches=switches, cables=left, reserved=reserved)
        doubts = _doubts(unheard)
        if self._unknown:
            text = f"switch_neighbor_files: the plan has no switch {several(self._unknown)}"
            doubts.append(_unheard("fabric", text, _CALL, ()))
        return Received(self._sweep, plan, unheard, doubts)

    def _switch(self, name: str) -> FoundDevice:
        guid = _guid("switch", name)
        ports = self._plan.switches[name].radix if name in self._plan.switches else 1
        device = FoundDevice(guid, SWITCH, name, ports)
        return self._sweep.devices.setdefault(guid, device)

    def _rail(self, node: str, rail: int, answer: Mapping[str, Any]) -> None:
        end = rail_end(node, rail)
        link = next(
            (one for one in answer["links"] if _rail_of(str(one["interface"])) == rail), None
        )
        if link is None:
            present = (answer.get("misnamed") or {}).get(f"rail{rail}")
            if present:
                self._deaf[end] = f"rail{rail} is still called {present}: {_RENAME}"
            # Else the node itself does not have it: the sweep lacks it, as it lacks a dead adapter.
            return
        guid = _guid("rail", f"{node}/{rail}")
        rate = link["rate_gbps"]
        port = FoundPort(1, width="", speed=f"{rate:g}GbE" if rate else None)
        device = FoundDevice(guid, CA, f"{node} mlx5_rail{rail}", 1, {1: port})
        if link["carrier"] is None:
            self._deaf[end] = f"whether {link['interface']} is up could not be read"
        elif not link["carrier"]:
            port.state, port.physical_state = "Down", "Polling"
        elif not link["neighbors"]:
            self._deaf[end] = f"{link['interface']} is up and hears no neighbour"
        elif len(link["neighbors"]) > 1:
            received = several([str(one["name"]) for one in link["neighbors"]])
            self._deaf[end] = f"{link['interface']} hears more than one neighbour: {received}"
        else:
            port.state, port.physical_state = "Active", "LinkUp"
            one = link["neighbors"][0]
            why = self._join(device, port, str(one["name"]), [str(name) for name in one["ports"]])
            if why:
                self._deaf[end] = f"{link['interface']}: {why}"
        if end not in self._deaf:
            self._sweep.devices[guid] = device

    def _join(self, device: FoundDevice, port: FoundPort, name: str, ports: list[str]) -> str:
        """Link a port to that of a switch, or return why that cannot be."""
        far = self._switch(self._names.get(host_key(name), name))
        number = port_number(ports, self._per_cage)
        if number is None:
            return _no_form(" or ".join(ports), name)
        there = far.ports.pop(number, None)
        if there is not None or (far.guid, number) in self._claimed:
            # One of them hears what is no longer so: neither is believed.
            self._claimed.add((far.guid, number))
            why = f"port {' or '.join(ports)} of {name} leads to more than one device"
            self._deaf[switch_end(far.description, number)] = why
            if there is not None and there.peer is not None:
                self._distrust(*there.peer, why)
            return why
        port.peer = (far.guid, number)
        far.ports[number] = FoundPort(
            number,
            peer=(device.guid, port.number),
            width=port.width,
            speed=port.speed,
            state="Active",
            physical_state="LinkUp",
        )
        return ""

    def _distrust(self, guid: str, number: int, why: str) -> None:
        device = self._sweep.devices[guid]
        if device.kind == SWITCH:
            device.ports.pop(number, None)
            self._deaf[switch_end(device.description, number)] = why
            return
        del self._sweep.devices[guid]
        node, name = device.description.split()
        self._deaf[rail_end(node, int(name[len("mlx5_rail") :]))] = why

    def _between_switches(self) -> None:
        """Add the links between switches, as those that were asked received them."""
        nodes = {host_key(node) for node, _rail in self._plan.hcas}
        for name, received in sorted(self._switches.items()):
            own = self._names.get(host_key(name))
            if own is None:
                self._unknown.append(name)
                continue
            unread = self._asked.setdefault(own, [])
            device = self._switch(own)
            for one in received:
                number = port_number([one.interface], self._per_cage)
                if number in device.ports or host_key(one.name) in nodes:
                    continue
                if number is None:
                    if not _MANAGEMENT.fullmatch(one.interface):
                        unread.append(_no_form(one.interface, own))
                    continue
                far = self._names.get(host_key(one.name))
                if far is None:
                    why = f"{one.interface} of {own} hears {one.name}, which the plan does not name"
                else:
                    port = FoundPort(number, width="", state="Active", physical_state="LinkUp")
                    why = self._join(device, port, far, list(one.ports))
                    if not why:
                        device.ports[number] = port
                        continue
                self._deaf[switch_end(own, number)] = why

    def _why_not_received(self, cable: Cable) -> str:
        """Return why a cable between switches was not received, "" if it was, or should have been.

        A switch that was asked, and all of whose ports could be read, lacks what it does not hear.
        """
        ends = (cable.a, cable.b)
        asked = [end.host for end in ends if end.host in self._asked]
        if not asked:
            return _NOT_ASKED
        if any(end.port in self._switch(end.host).ports for end in ends):
            return ""
        reasons = [self._deaf[end] for end in ends if end in self._deaf]
        unread = [self._asked[name] for name in asked]
        if not reasons and all(unread):
            reasons = [several([why for some in unread for why in some])]
        return "; ".join(dict.fromkeys(reasons))


def _no_form(port: str, switch: str) -> str:
    return f"port {port or 'without a name'} of {switch} has no known form"


def _rail_of(interface: str) -> int | None:
    found = _RAIL.fullmatch(interface)
    return int(found.group(1)) if found else None


def _guid(kind: str, name: str) -> str:
    """Return a GUID for what has none: of 16 digits, and always the same."""
    return hashlib.sha256(f"{kind} {name}".encode()).hexdigest()[:16]


def _doubts(unheard: Mapping[Cable, str]) -> list[Finding]:
    """Return one finding for each node, and one for all cables between switches."""
    of: dict[str, dict[Cable, str]] = {}
    for cable, why in unheard.items():
        of.setdefault("" if cable.a.is_switch else cable.a.host, {})[cable] = why
    found = []
    for host, cables in sorted(of.items()):
        ends = tuple(cables)
        reasons = list(dict.fromkeys(cables.values()))
        if host:
            subject, what = f"node:{host}", f"cables of {host}"
            remedies = [_RENAME if _RENAME in why else _START for why in reasons]
        else:
            subject, what = "fabric", "cables between switches"
            remedies = [_ASK if why == _NOT_ASKED else _READ for why in reasons]
        text = f"{len(ends)} {what} were not received: {several(reasons)}"
        found.append(_unheard(subject, text, "; ".join(dict.fromkeys(remedies)), ends))
    return found


def _unheard(subject: str, text: str, remedy: str, cables: tuple[Cable, ...]) -> Finding:
    return Finding(UNHEARD, subject, text, remedy, cables, status=NOT_MEASURED)
