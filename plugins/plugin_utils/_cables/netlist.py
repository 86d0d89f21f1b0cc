# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The planned fabric for InfiniBand's own tools: a netlist for ibsim, names for GUIDs. Pure.

A netlist has the form in which ibnetdiscover prints a fabric, which ibsim reads back. What the
inventory has no GUID for gets one that is made up from its name, and so is the same on each day.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator

from ansible_collections.baremetal.dgx.plugins.module_utils._core.names import RAIL_DEVICE

from ...module_utils._fabric.model import RATE_4X_GBPS, CablePlan, End, PlannedHca, PlannedSwitch

# The second bit of the first byte flags an address that no maker has given out.
_MADE_UP = "02d6"

_VENDOR = "0x2c9"
_QUANTUM_2 = "0xd2f2"
# PCI device of an adapter by its rate (pci.ids): ConnectX-6 up to HDR, ConnectX-7, ConnectX-8.
_ADAPTERS = {100: "0x101b", 200: "0x101b", 400: "0x1021", 800: "0x1023"}

# The fastest that ibsim 0.12 can pretend.
_FASTEST_GBPS = 400
_SPEEDS = {RATE_4X_GBPS[name]: name for name in ("EDR", "HDR", "NDR")}

# NodeDescription is a field of 64 bytes; ibsim wants a closing zero in it.
_LONGEST_DESCRIPTION = 63


def made_up_guid(name: str) -> str:
    """Return 16 hexadecimal digits that are always the same for a name and no maker's."""
    return _MADE_UP + hashlib.sha256(name.encode()).hexdigest()[: 16 - len(_MADE_UP)]


def hca_guid(hca: PlannedHca) -> str:
    """Return the GUID of the inventory, or a made-up one."""
    return hca.guid or made_up_guid(hca_description(hca))


def switch_guid(switch: PlannedSwitch) -> str:
    """Return the GUID of the inventory, or a made-up one."""
    return switch.guid or made_up_guid(switch.name)


def hca_description(hca: PlannedHca) -> str:
    """Return the node description of an adapter as the kernel writes it: host and device."""
    return f"{hca.node} {RAIL_DEVICE.format(rail=hca.rail)}"


def switch_description(switch: PlannedSwitch, managed: bool = False) -> str:
    """Return a switch's own name, or with managed the form of a switch with an own system."""
    return f"MF0;{switch.name}:MQM9700/U1" if managed else switch.name


def netlist(plan: CablePlan, managed: bool = False) -> str:
    """Return the fabric for ibsim 0.12 or newer; older ones know no NDR.

    With managed, the switches' descriptions have the long form of switches with an own system.
    ibsim knows nothing faster than NDR, and faster cables are written as NDR.
    """
    text = _Netlist(plan, managed)
    return "".join(text.lines())


class _Netlist:
    """Identity and name of each device, and the lines of its ports."""

    def __init__(self, plan: CablePlan, managed: bool) -> None:
        self.plan = plan
        self.guids: dict[tuple[str, int], str] = {}
        self.names: dict[tuple[str, int], str] = {}
        for key, hca in plan.hcas.items():
            self._know(key, hca_guid(hca), hca_description(hca))
        for name, switch in plan.switches.items():
            self._know((name, -1), switch_guid(switch), switch_description(switch, managed))
        # By device: port number and line.
        self.ports: dict[tuple[str, int], list[tuple[int, str]]] = {key: [] for key in self.guids}
        for cable in plan.cables:
            speed = _SPEEDS[min(cable.rate_gbps, _FASTEST_GBPS)]
            self._port(cable.a, cable.b, speed)
            self._port(cable.b, cable.a, speed)

    def _know(self, key: tuple[str, int], guid: str, name: str) -> None:
        self.guids[key] = guid
        self.names[key] = name.encode()[:_LONGEST_DESCRIPTION].decode(errors="ignore")

    def _port(self, end: End, other: End, speed: str) -> None:
        """Keep the line of a port: its number, the other end, and what the tools print of it."""
        near, far = (end.host, end.rail), (other.host, other.rail)
        guid, name = self.guids[far], self.names[far]
        to = f'"S-{guid}"[{other.port}]'
        if not other.is_switch:
            to = f'"H-{guid}"[{other.port}]({_port_guid(guid)})'
        if end.is_switch:
            line = f'[{end.port}]\t{to}\t\t# "{name}" lid 0 4x{speed}\n'
        else:
            own = _port_guid(self.guids[near])
            line = f'[{end.port}]({own})\t{to}\t\t# lid 0 lmc 0 "{name}" lid 0 4x{speed}\n'
        self.ports[near].append((end.port, line))

    def lines(self) -> Iterator[str]:
        yield "# Made from the cable plan by baremetal.dgx, for ibsim 0.12 or newer.\n"
        for name, switch in self.plan.switches.items():
            key, guid = (name, -1), self.guids[name, -1]
            yield (
                f"\nvendid={_VENDOR}\ndevid={_QUANTUM_2}\nsysimgguid=0x{guid}\n"
                f'switchguid=0x{guid}({guid})\nSwitch {switch.radix} "S-{guid}"\t'
                f'# "{self.names[key]}" enhanced port 0 lid 0 lmc 0\n'
            )
            yield from (line for _port, line in sorted(self.ports[key]))
        for key, hca in self.plan.hcas.items():
            guid = self.guids[key]
            yield (
                f"\nvendid={_VENDOR}\ndevid={_ADAPTERS[hca.rate_gbps]}\nsysimgguid=0x{guid}\n"
                f'caguid=0x{guid}\nCa 1 "H-{guid}"\t# "{self.names[key]}"\n'
            )
            yield from (line for _port, line in self.ports[key])


@functools.cache
def _port_guid(guid: str) -> str:
    """Return the GUID of an adapter's port: ibsim counts it from that of the device."""
    return f"{int(guid, 16) + 1:016x}"


def node_name_map(plan: CablePlan) -> str:
    """Return what infiniband-diags and opensm take as --node-name-map: known GUIDs only."""
    known = [
        (switch.guid, switch_description(switch))
        for switch in plan.switches.values()
        if switch.guid
    ]
    known += [(hca.guid, hca_description(hca)) for hca in plan.hcas.values() if hca.guid]
    lines = [f'0x{guid} "{name}"\n' for guid, name in known]
    return "# Made from the inventory by baremetal.dgx: what has a GUID there.\n" + "".join(lines)
