# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""When a certificate ends. Pure: ssl tells it of authorities alone, and a node that applies its own
roles has no library for it.
"""

from __future__ import annotations

import base64
import binascii
import calendar
import re
import time

_PEM = re.compile("-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
# RFC 5280, 4.1: the fields of a certificate before `validity`, and how it spells a time.
_SEQUENCE, _INTEGER, _VERSION = 0x30, 0x02, 0xA0
_FIELDS = (_INTEGER, _SEQUENCE, _SEQUENCE)
_SHORT, _LONG = 0x17, 0x18
_TIMES = {_SHORT: "%y%m%d%H%M%SZ", _LONG: "%Y%m%d%H%M%SZ"}


def ends_at(text: str) -> int:
    """Return the Unix time at which the first certificate of a PEM text ends.

    In a chain the first one is the server's own. ValueError where the text has none.
    """
    found = _PEM.search(text)
    if not found:
        raise ValueError("no certificate in PEM")
    try:
        data = base64.b64decode("".join(found[1].split()), validate=True)
        return _ends_at(data)
    except (binascii.Error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"not a certificate: {error}") from error


def _ends_at(data: bytes) -> int:
    _tag, at, _end = _element(data, 0, _SEQUENCE)
    _tag, at, _end = _element(data, at, _SEQUENCE)
    if data[at] == _VERSION:
        at = _element(data, at, _VERSION)[2]
    for field in _FIELDS:
        at = _element(data, at, field)[2]
    _tag, at, _end = _element(data, at, _SEQUENCE)
    at = _element(data, at, *_TIMES)[2]
    tag, at, end = _element(data, at, *_TIMES)
    written = data[at:end].decode("ascii")
    read = time.strptime(written, _TIMES[tag])
    # Years of two digits are those from 1950 to 2049, and for strptime from 1969 to 2068.
    year = read.tm_year - 100 if tag == _SHORT and read.tm_year >= 2050 else read.tm_year
    return calendar.timegm((year, *read[1:6]))


def _element(data: bytes, at: int, *expected: int) -> tuple[int, int, int]:
    """Return the tag of the element (DER), and where its content begins and ends."""
    tag, length, begin = data[at], data[at + 1], at + 2
    if tag not in expected:
        raise ValueError(f"not a certificate: {tag:#x} at {at}")
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(data[at + 2 : begin], "big")
    if begin + length > len(data):
        raise ValueError("not a certificate: cut")
    return tag, begin, begin + length
