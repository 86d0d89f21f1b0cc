# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The configuration space of a PCI function, as sysfs gives it in the file `config`. Pure.

Only root reads more than the first 64 bytes; what lies beyond the bytes given is None, not zero.
Offsets and values: PCI Express Base Specification, chapters 7.5.3 and 7.7.8 (ACS).
"""

from __future__ import annotations

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
