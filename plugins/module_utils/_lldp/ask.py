# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asks lldpd of a node for the neighbours of its interfaces."""

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence

from .._core.names import full_pci
from .._core.run import CommandRunner
from .sweep import parse_neighbours

_COMMAND = ("lldpcli", "-f", "json0", "show", "neighbors")


def ask_lldp(
    run: CommandRunner,
    interfaces: Sequence[str],
    sysfs: str,
    timeout_s: float,
    pci: Mapping[str, str],
) -> dict[str, Any]:
    """Return what the module lldp_info returns; never raises."""
    result = run(_COMMAND, timeout_s=timeout_s)
    problem, found = "", []
    if not result.ok:
        problem = result.describe()
    else:
        try:
            found = parse_neighbours(result.out)
        except ValueError as error:
            problem = str(error)
    links, misnamed = [], {}
    for name in interfaces:
        folder = os.path.join(sysfs, "class/net", name)
        if not os.path.isdir(folder):
            address = full_pci(str(pci.get(name) or ""))
            there = os.path.join(sysfs, "bus/pci/devices", address)
            present = _interface_of(there) if address else ""
            if present:
                misnamed[name] = present
            continue
        carrier, speed = _number(folder, "carrier"), _number(folder, "speed")
        links.append(
            {
                "interface": name,
                "carrier": None if carrier is None else bool(carrier),
                # -1 while the link is down
                "rate_gbps": speed / 1000 if speed and speed > 0 else None,
                "neighbors": [
                    {"name": one.name, "ports": list(one.ports)}
                    for one in found
                    if one.interface == name
                ],
            }
        )
    return {"problem": problem, "links": links, "misnamed": misnamed}


def _interface_of(device: str) -> str:
    try:
        return ", ".join(sorted(os.listdir(os.path.join(device, "net"))))
    except OSError:
        return ""


def _number(folder: str, name: str) -> int | None:
    # An interface that is taken down answers neither with a number.
    try:
        with open(os.path.join(folder, name), encoding="ascii") as stream:
            return int(stream.read())
    except (OSError, ValueError):
        return None
