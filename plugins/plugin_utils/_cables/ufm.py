# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The cable plan in the form of UFM's topology files (NDT), written and read. Pure.

The form has columns StartDevice, StartPort, EndDevice and EndPort, and often LinkType or State. A
node is there by its name with the adapter as its port, or by its description with `Port 1`; a
port of a switch is `Port 17` or, with two ports a cage, `Port 1/9/1`. Some lists have each cable
twice, once from either end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ansible_collections.baremetal.dgx.plugins.module_utils._core.names import RAIL_DEVICE

from ...module_utils._fabric.cable_lists import Rows, take_table
from ...module_utils._fabric.model import CablePlan, End, PlannedHca

_HEADER = "#StartDevice,StartPort,EndDevice,EndPort,LinkType"
_NEEDED = ("startdevice", "startport", "enddevice", "endport")
_SIDES = (("startdevice", "startport"), ("enddevice", "endport"))

# A switch with its own system describes itself as MF0;NAME:MODEL/U1.
_MANAGED = re.compile(r"MF\d+;([^:]+):[^/]+/[A-Z]?\d+", re.IGNORECASE)
_CAGE = re.compile(r"\d+/\d+(?:/[12]){0,2}")


def ufm_csv(plan: CablePlan) -> str:
    """Return the cables for UFM, one line each. read_cables makes the same cables of it."""
    lines = [
        ",".join((*_written(plan, cable.a), *_written(plan, cable.b), "Data"))
        for cable in plan.cables
    ]
    return "\n".join([_HEADER, *lines]) + "\n"


def _written(plan: CablePlan, end: End) -> tuple[str, str]:
    if not end.is_switch:
        return end.host, f"{end.host} {RAIL_DEVICE.format(rail=end.rail)}"
    label = plan.switches[end.host].label(end.port)
    return end.host, "Port " + (label if label.count("/") > 1 else str(end.port))


def take_ufm(rows: Rows, text: str) -> None:
    """Take in a list of UFM's form."""
    taken = _Ufm(rows.devices)
    take_table(rows, text, _NEEDED, _column, taken.row)


def _column(text: str) -> str:
    """Return the name of a column: the first one has a prefix, `#` or `#Fields:`."""
    return re.sub(r"^#(fields:)?", "", text.lower())


class _Ufm:
    """Knows the names that adapters have in such lists, and the cables that were there before."""

    def __init__(self, devices: CablePlan) -> None:
        self._rails: dict[str, dict[str, int]] = {}
        for (node, rail), hca in devices.hcas.items():
            names = self._rails.setdefault(node, {})
            names.update({name.lower(): rail for name in _adapter_names(hca)})
        self._seen: set[tuple[End, End]] = set()

    def row(self, rows: Rows, line: int, cells: Mapping[str, str]) -> None:
        if cells.get("linktype", "").lower() not in ("", "data"):
            return
        if cells.get("state", "").lower() not in ("", "active"):
            return
        one, two = (self._end(rows, line, cells, *columns) for columns in _SIDES)
        if one is None or two is None or (two, one) in self._seen:
            return
        self._seen.add((one, two))
        rows.add(line, one, two, ("startport", "endport"), None)

    def _end(
        self, rows: Rows, line: int, cells: Mapping[str, str], device: str, port: str
    ) -> End | None:
        name, where = cells[device], cells[port]
        managed = _MANAGED.fullmatch(name)
        # By description: `dgx-01 mlx5_0`, with Port 1.
        first, _space, adapter = (managed[1] if managed else name).partition(" ")
        host = rows.host(line, device, first)
        if host is None:
            return None
        if host in rows.devices.switches:
            return rows.port(line, port, host, self._number(rows, host, where))
        adapter = adapter or where.rsplit(" ", 1)[-1]
        rail = self._rails[host].get(adapter.lower())
        if rail is None:
            wrong = f"'{adapter}' is not an adapter of {host}"
            remedy = "write its device on a rail, like mlx5_rail0"
            rows.wrong(line, port if where.endswith(adapter) else device, wrong, remedy)
            return None
        return rows.rail(line, port, host, str(rail))

    @staticmethod
    def _number(rows: Rows, switch: str, text: str) -> str:
        """Return the number of a port from any of its names; other texts as they are."""
        name = re.sub(r"(?i)^port\s+", "", text)
        cage = _CAGE.fullmatch(name)
        if not cage:
            return name
        known = rows.devices.switches[switch]
        for port in range(1, known.radix + 1):
            if known.label(port) == name:
                return str(port)
        return text


def _adapter_names(hca: PlannedHca) -> Iterator[str]:
    """Yield the names of a rail's adapter: RDMA devices, and the network device by PCI address."""
    yield from hca.devices
    yield f"rail{hca.rail}"
    if hca.pci is not None:
        domain, bus, slot, function = (int(part, 16) for part in re.split("[:.]", hca.pci))
        prefix = f"ibP{domain}p" if domain else "ibp"
        yield f"{prefix}{bus}s{slot}"
        yield f"{prefix}{bus}s{slot}f{function}"
