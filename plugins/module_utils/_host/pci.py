# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The way of a PCI function up to the root, as sysfs shows it. `Tree` is all that reads files.

A file that is missing or cannot be read gives None, never a zero: a tree of an older kernel, of a
container or of a virtual machine lacks some, and nothing may be concluded from that.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Sequence

from .._core.files import text_if_readable

# The configuration space: PCI Express Base Specification, chapters 7.5.3 and 7.7.8 (ACS). Only root
# reads more than its first 64 bytes; what lies beyond the bytes given is None, not zero.
_STATUS = 0x06
_HAS_LIST = 0x10
_FIRST_CAPABILITY = 0x34
_PCI_EXPRESS = 0x10
_FLAGS = 0x02
_DEVICE_CONTROL = 0x08
_EXTENDED = 0x100
_ACS = 0x000D
_ACS_CONTROL = 0x06

ROOT_PORT = 4
UPSTREAM_PORT = 5
DOWNSTREAM_PORT = 6

# What sends traffic between two functions up to the root: request and completion redirect, and
# egress control. Source validation alone does not.
ACS_REDIRECT = 0x04 | 0x08 | 0x20

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")


@dataclass(frozen=True)
class PciFunction:
    """One function on the way from a device to the root, as it is linked upwards."""

    address: str
    kind: int | None  # port type; None where the configuration is not readable
    speed_gts: float | None
    width: int | None
    max_speed_gts: float | None
    max_width: int | None
    acs: int | None = None


@dataclass(frozen=True)
class PciLink:
    """A link of that way: what runs, and what both ends are able to."""

    lower: str
    upper: str
    speed_gts: float | None
    width: int | None
    able_speed_gts: float | None
    able_width: int | None


def _least(one: float | None, two: float | None) -> float | None:
    return None if one is None or two is None else min(one, two)


def _least_int(one: int | None, two: int | None) -> int | None:
    return None if one is None or two is None else min(one, two)


def links_of(path: Sequence[PciFunction]) -> tuple[PciLink, ...]:
    """Return the PCIe links of a way, from the device up to the root.

    Both ends of a link are a function and the root or downstream port above it. The upstream
    and the downstream ports of one switch are not a link, though one lies above the other.
    """
    found = []
    for index, (lower, upper) in enumerate(zip(path, path[1:])):
        # The port above an end point can be nothing else, even where its kind is not readable.
        if upper.kind in (ROOT_PORT, DOWNSTREAM_PORT) or (upper.kind is None and not index):
            found.append(
                PciLink(
                    lower.address,
                    upper.address,
                    lower.speed_gts,
                    lower.width,
                    _least(lower.max_speed_gts, upper.max_speed_gts),
                    _least_int(lower.max_width, upper.max_width),
                )
            )
    return tuple(found)


@dataclass(frozen=True)
class Tree:
    """A sysfs tree; `root` is /sys, or a copy of one."""

    root: str

    def path(self, *parts: str) -> str:
        """Return the path of a file in the tree."""
        return os.path.join(self.root, *parts)

    def text(self, *parts: str) -> str | None:
        """Return the text of a file without its line end, None where it cannot be read."""
        text = text_if_readable(self.path(*parts))
        return None if text is None else text.strip()

    def data(self, *parts: str) -> bytes:
        """Return the bytes of a file, none where it cannot be read."""
        try:
            with open(self.path(*parts), "rb") as handle:
                return handle.read(4096)
        except OSError:
            return b""

    def names(self, *parts: str) -> list[str]:
        """Return the sorted names in a folder, none where there is no such folder."""
        try:
            return sorted(os.listdir(self.path(*parts)))
        except OSError:
            return []

    def real(self, *parts: str) -> str:
        """Return the path with all links followed."""
        return os.path.realpath(self.path(*parts))


def whole(text: str | None) -> int | None:
    """Return the number that a file of sysfs holds, decimal or with 0x."""
    try:
        return None if text is None else int(text, 0)
    except ValueError:
        return None


def _number(text: str | None) -> float | None:
    """Return the number that a text begins with ("32.0 GT/s PCIe")."""
    found = re.match(r"[0-9]+(\.[0-9]+)?", text or "")
    return float(found.group()) if found else None


def load_path(tree: Tree, real: str) -> tuple[PciFunction, ...]:
    """Return the functions from the device at a real path of the tree up to the root port."""
    functions = []
    while _PCI_ADDRESS.match(os.path.basename(real)):
        config = tree.data(os.path.relpath(real, tree.root), "config")
        base = os.path.relpath(real, tree.root)
        functions.append(
            PciFunction(
                address=os.path.basename(real),
                kind=port_type(config),
                speed_gts=_number(tree.text(base, "current_link_speed")),
                width=whole(tree.text(base, "current_link_width")) or None,
                max_speed_gts=_number(tree.text(base, "max_link_speed")),
                max_width=whole(tree.text(base, "max_link_width")) or None,
                acs=acs_control(config),
            )
        )
        real = os.path.dirname(real)
    return tuple(functions)


def _word(config: bytes, offset: int, size: int = 2) -> int | None:
    part = config[offset : offset + size]
    return int.from_bytes(part, "little") if len(part) == size else None


def _express(config: bytes) -> int | None:
    """Return where the PCI Express capability lies."""
    if not (_word(config, _STATUS) or 0) & _HAS_LIST:
        return None
    offset = _word(config, _FIRST_CAPABILITY, 1) or 0
    # 48 is as many as fit; a broken list may be a ring.
    for _step in range(48):
        offset &= 0xFC
        identity = _word(config, offset, 1)
        if not offset or identity is None:
            return None
        if identity == _PCI_EXPRESS:
            return offset
        offset = _word(config, offset + 1, 1) or 0
    return None


def port_type(config: bytes) -> int | None:
    """Return the kind of port (ROOT_PORT, ...; 0 is an end point), None where it cannot be read."""
    express = _express(config)
    flags = None if express is None else _word(config, express + _FLAGS)
    return None if flags is None else flags >> 4 & 0xF


def max_read_request(config: bytes) -> int | None:
    """Return the size in bytes of the largest read request, None where it cannot be read."""
    express = _express(config)
    control = None if express is None else _word(config, express + _DEVICE_CONTROL)
    return None if control is None else 128 << (control >> 12 & 7)


def acs_control(config: bytes) -> int | None:
    """Return the ACS control register, 0 where there is no ACS, None where it cannot be read."""
    if len(config) <= _EXTENDED:
        return None
    offset = _EXTENDED
    for _step in range(960):
        header = _word(config, offset, 4)
        if header is None or header in (0, 0xFFFFFFFF):
            return 0
        if header & 0xFFFF == _ACS:
            return _word(config, offset + _ACS_CONTROL)
        offset = header >> 20
        if offset < _EXTENDED:
            return 0
    return None
