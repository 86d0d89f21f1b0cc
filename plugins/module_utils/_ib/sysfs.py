# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The RDMA devices of this node as sysfs shows them; `_pci_path` reads the files.

A file that is missing or cannot be read gives None, never a zero: a tree of an older kernel, of a
container or of a virtual machine lacks some, and nothing may be concluded from that.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Mapping

from .._host.pci import (
    ACS_REDIRECT,
    PciFunction,
    PciLink,
    Tree,
    links_of,
    load_path,
    max_read_request,
    whole,
)

NVIDIA_NETWORKING = "15b3"
# ConnectX functions on the base board of a B200 that lead to its NVSwitches, not to the fabric.
# They have the PCI id of any ConnectX-7; only the vital product data tells them apart.
_BRIDGE_MARK = b"SMDL=SW_MNG"

# Tags of the vital product data: of a large item, of its read-only fields, of its end.
_LARGE, _READ_ONLY, _END = 0x80, 0x90, 0x78

_RATE = re.compile(r"([0-9.]+) Gb/sec \((\d+)X ?(\w*)\)")


@dataclass(frozen=True)
class Port:
    """A port of an HCA; None is what sysfs did not say."""

    number: int
    link_layer: str | None = None
    state: str | None = None  # ACTIVE
    physical_state: str | None = None  # LinkUp
    rate_gbps: float | None = None
    width: str | None = None  # 4x
    speed: str | None = None  # NDR
    lid: int | None = None
    sm_lid: int | None = None
    guid: str | None = None
    pkeys: tuple[str, ...] | None = None
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Hca:
    """An RDMA device. `ignored` says why no check looks at it; empty for one that counts."""

    device: str
    pci: str | None = None
    vendor: str | None = None
    psid: str | None = None
    firmware: str | None = None
    model: str | None = None
    node_guid: str | None = None
    description: str | None = None
    numa: int | None = None
    netdevs: tuple[str, ...] = ()
    max_read_request: int | None = None
    path: tuple[PciFunction, ...] = ()
    ports: tuple[Port, ...] = ()
    ignored: str = ""

    @property
    def links(self) -> tuple[PciLink, ...]:
        """The PCIe links from the HCA up to the root."""
        return links_of(self.path)

    @property
    def redirecting(self) -> tuple[str, ...] | None:
        """The bridges above it that send traffic between peers to the root; None if unreadable."""
        bridges = self.path[1:]
        if not bridges or any(bridge.acs is None for bridge in bridges):
            return None
        return tuple(bridge.address for bridge in bridges if (bridge.acs or 0) & ACS_REDIRECT)


def _word(text: str | None) -> str | None:
    """Return ACTIVE for "4: ACTIVE"."""
    return None if not text else text.split(":", 1)[-1].strip()


def parse_rate(text: str | None) -> tuple[float | None, str | None, str | None]:
    """Return (Gb/s, width, speed) of "400 Gb/sec (4X NDR)"; None for what is not there."""
    found = _RATE.match(text or "")
    if not found:
        return None, None, None
    return float(found.group(1)), f"{found.group(2)}x", found.group(3) or "SDR"


def plain_guid(text: str | None) -> str | None:
    """Return 16 hexadecimal digits of "946d:ae03:0000:1001", None for anything else or zero."""
    digits = (text or "").replace(":", "").lower()
    good = re.match(r"[0-9a-f]{16}\Z", digits) and digits.strip("0")
    return digits if good else None


def _port_guid(gid: str | None) -> str | None:
    """Return the GUID in the last half of the first GID."""
    groups = (gid or "").split(":")
    return plain_guid(":".join(groups[4:])) if len(groups) == 8 else None


def _pkeys(tree: Tree, base: str) -> tuple[str, ...] | None:
    names = tree.names(base, "pkeys")
    values = [whole(tree.text(base, "pkeys", name)) for name in names]
    if not values or None in values:
        return None
    return tuple(sorted({f"0x{value:04x}" for value in values if value}))


def load_port(tree: Tree, device: str, number: int) -> Port:
    """Return a port of a device."""
    base = os.path.join("class", "infiniband", device, "ports", str(number))
    rate, width, speed = parse_rate(tree.text(base, "rate"))
    counters = {
        name: value
        for name in tree.names(base, "counters")
        for value in [whole(tree.text(base, "counters", name))]
        if value is not None
    }
    return Port(
        number=number,
        link_layer=tree.text(base, "link_layer"),
        state=_word(tree.text(base, "state")),
        physical_state=_word(tree.text(base, "phys_state")),
        rate_gbps=rate,
        width=width,
        speed=speed,
        lid=whole(tree.text(base, "lid")),
        sm_lid=whole(tree.text(base, "sm_lid")),
        guid=_port_guid(tree.text(base, "gids", "0")),
        pkeys=_pkeys(tree, base),
        counters=counters,
    )


def serial_number(vital: bytes) -> str | None:
    """Return the serial number in vital product data (PCI 3.0, appendix I), None without one."""
    at = 0
    while at + 3 <= len(vital):
        tag = vital[at]
        if not tag & _LARGE:
            if tag == _END:
                return None
            at += 1 + (tag & 7)
            continue
        size = int.from_bytes(vital[at + 1 : at + 3], "little")
        field_at, end = at + 3, min(at + 3 + size, len(vital))
        while tag == _READ_ONLY and field_at + 3 <= end:
            word, length = vital[field_at : field_at + 2], vital[field_at + 2]
            value = vital[field_at + 3 : min(field_at + 3 + length, end)]
            if word == b"SN":
                text = value.decode("ascii", "replace").strip(" \0")
                return text if len(value) == length and text.isprintable() and text else None
            field_at += 3 + length
        at += 3 + size
    return None


def _why_ignored(vendor: str | None, virtual: bool, vital: bytes) -> str:
    if vendor is not None and vendor != NVIDIA_NETWORKING:
        return f"made by vendor {vendor}, not by {NVIDIA_NETWORKING}"
    if virtual:
        return "a virtual function"
    if _BRIDGE_MARK in vital:
        return "leads to the NVSwitches of this node (SMDL=SW_MNG), not to the fabric"
    return ""


def load_hca(tree: Tree, device: str) -> Hca:
    """Return an RDMA device."""
    base = os.path.join("class", "infiniband", device)
    below = os.path.join(base, "device")
    path = load_path(tree, tree.real("class", "infiniband", device, "device"))
    vendor = tree.text(below, "vendor")
    numa = whole(tree.text(below, "numa_node"))
    numbers = [int(name) for name in tree.names(base, "ports") if name.isdigit()]
    ports = tuple(load_port(tree, device, number) for number in sorted(numbers))
    # The vital product data is read word by word from the card, which takes its time; a port that
    # is active in a fabric is not a bridge.
    idle = all(port.state != "ACTIVE" for port in ports)
    return Hca(
        device=device,
        pci=path[0].address if path else None,
        vendor=vendor[2:] if vendor and vendor.startswith("0x") else vendor,
        psid=tree.text(base, "board_id") or None,
        firmware=tree.text(base, "fw_ver") or None,
        model=tree.text(base, "hca_type") or None,
        node_guid=plain_guid(tree.text(base, "node_guid")),
        description=tree.text(base, "node_desc"),
        numa=None if numa is None or numa < 0 else numa,
        netdevs=tuple(tree.names(below, "net")),
        max_read_request=max_read_request(tree.data(below, "config")),
        path=path,
        ports=ports,
        ignored=_why_ignored(
            vendor[2:] if vendor and vendor.startswith("0x") else vendor,
            bool(tree.names(below, "physfn")),
            tree.data(below, "vpd") if idle else b"",
        ),
    )


def load_hcas(tree: Tree) -> list[Hca]:
    """Return all RDMA devices, by PCI address."""
    hcas = [load_hca(tree, name) for name in tree.names("class", "infiniband")]
    return sorted(hcas, key=lambda hca: (hca.pci or "~", hca.device))
