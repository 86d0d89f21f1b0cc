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
        asked = self._between_switches()
        unheard = {}
        for cable in self._plan.cables:
            why = self._deaf.get(cable.a)
            if cable.a.is_switch and not {cable.a.host, cable.b.host} & asked:
                why = "only switches hear it, and neither was asked"
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
        return Received(self._sweep, plan, unheard, _doubts(unheard))

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
            return f"port {' or '.join(ports) or 'without a name'} of {name} has no known form"
        there = far.ports.pop(number, None)
        if there is not None or (far.guid, number) in self._claimed:
            # One of them hears what is no longer so: neither is believed.
            self._claimed.add((far.guid, number))
            why = f"port {' or '.join(ports)} of {name} leads to more than one adapter"
            if there is not None and there.peer is not None:
                self._distrust(there.peer[0], why)
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

    def _distrust(self, guid: str, why: str) -> None:
        if self._sweep.devices[guid].kind == SWITCH:
            return
        device = self._sweep.devices.pop(guid)
        node, name = device.description.split()
        self._deaf[rail_end(node, int(name[len("mlx5_rail") :]))] = why

    def _between_switches(self) -> set[str]:
        """Add the links between switches; return the switches that were asked."""
        asked = set()
        for name, received in sorted(self._switches.items()):
            own = self._names.get(host_key(name))
            if own is None:
                continue
            asked.add(own)
            device = self._switch(own)
            for one in received:
                far = self._names.get(host_key(one.name))
                number = port_number([one.interface], self._per_cage)
                if far is None or number is None or number in device.ports:
                    continue
                port = FoundPort(number, width="", state="Active", physical_state="LinkUp")
                if not self._join(device, port, far, list(one.ports)):
                    device.ports[number] = port
        return asked


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
        if not host:
            text = f"{len(ends)} cables between switches were not received: no switch was asked"
            remedy = "save what lldpcli -f json0 show neighbors prints on each switch as NAME.json"
            found.append(_unheard("fabric", text, remedy, ends))
            continue
        reasons = list(dict.fromkeys(cables.values()))
        text = f"{len(ends)} cables of {host} were not received: {several(reasons)}"
        remedies = dict.fromkeys(_RENAME if _RENAME in why else _START for why in reasons)
        found.append(_unheard(f"node:{host}", text, "; ".join(remedies), ends))
    return found


def _unheard(subject: str, text: str, remedy: str, cables: tuple[Cable, ...]) -> Finding:
    return Finding(UNHEARD, subject, text, remedy, cables, status=NOT_MEASURED)
