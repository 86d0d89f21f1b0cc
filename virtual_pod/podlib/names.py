# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The name server of a pod: a site has one before any of its nodes is set up.

Knows the names of the pod's nodes and answers everything else at once with "no such name".
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import pathlib
import struct
from collections.abc import Callable, Mapping
from typing import cast

PORT = 53
_A, _IN = 1, 1
_NO_ERROR, _FORMAT_ERROR, _NO_SUCH_NAME = 0, 1, 3
_TTL_S = 5


def answer(query: bytes, addresses: Mapping[str, str]) -> bytes | None:
    """Return the answer to a DNS query (RFC 1035), or nothing when it is none."""
    if len(query) < 12 or query[2] & 0x80:
        return None
    identity, flags, questions = struct.unpack("!HHH", query[:6])
    # An answer, authoritative, with the query's request for recursion.
    flags = 0x8400 | (flags & 0x0100)
    try:
        if questions != 1:
            raise ValueError("one question at a time")
        name, end = _name(query, 12)
        kind, _class = struct.unpack("!HH", query[end : end + 4])
    except (ValueError, struct.error, IndexError, UnicodeDecodeError):
        return struct.pack("!HHHHHH", identity, flags | _FORMAT_ERROR, 0, 0, 0, 0)
    question = query[12 : end + 4]
    address = addresses.get(name)
    if address is None:
        return struct.pack("!HHHHHH", identity, flags | _NO_SUCH_NAME, 1, 0, 0, 0) + question
    if kind != _A:
        return struct.pack("!HHHHHH", identity, flags | _NO_ERROR, 1, 0, 0, 0) + question
    packed = ipaddress.IPv4Address(address).packed
    # 0xC00C points to the name in the question.
    record = struct.pack("!HHHLH", 0xC00C, _A, _IN, _TTL_S, len(packed)) + packed
    return struct.pack("!HHHHHH", identity, flags | _NO_ERROR, 1, 1, 0, 0) + question + record


def _name(query: bytes, start: int) -> tuple[str, int]:
    labels = []
    while length := query[start]:
        if length > 63:
            raise ValueError("no pointers in a question")
        labels.append(query[start + 1 : start + 1 + length].decode("ascii").lower())
        start += 1 + length
    return ".".join(labels), start + 1


def addresses_in(record: pathlib.Path) -> dict[str, str]:
    """Return the addresses of the nodes in a pod.json; none when it cannot be read."""
    try:
        return {n["name"]: n["ip"] for n in json.loads(record.read_text())["nodes"]}
    except (OSError, ValueError, KeyError):
        return {}


class Server(asyncio.DatagramProtocol):
    """Answers queries from what `addresses` returns at that moment."""

    def __init__(self, addresses: Callable[[], Mapping[str, str]]) -> None:
        self._addresses = addresses
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer one query."""
        reply = answer(data, self._addresses())
        if reply and self._transport:
            self._transport.sendto(reply, addr)
