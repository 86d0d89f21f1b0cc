# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What is new in the event log of a BMC since the last look, which is kept on the control machine.

Entries differ in what they say as a whole: their numbers begin again after a log was cleared, and
have no order that all BMCs keep (DMTF DSP0268, LogEntry; NVIDIA, BlueField BMC, System Log). When
they were made is a moment, whatever offset the BMC shows it in; it is compared, and never judged,
since the clock may be that of 1970. A look is the last one only when its records are kept, so that
a killed run costs no entry.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Iterable, Mapping

from .._core.files import json_if_readable, rename, write_atomic

VERSION = 1
# What an entry says: its number, when, how bad, and what (Redfish, LogEntry).
FIELDS = ("Id", "Created", "Severity", "Message")


@dataclass(frozen=True)
class Look:
    """What a look has seen of a machine: its serial number, when, and the key of each entry."""

    serial: str = ""
    at: str = ""
    keys: frozenset[str] = frozenset()


@dataclass(frozen=True)
class News:
    """Entries that the last look has not seen, when that was, and whether some may be lost."""

    entries: tuple[Mapping[str, str], ...]
    since: str = ""
    is_lost: bool = False


def entries_of(members: Iterable[Mapping[str, Any]], log: str) -> list[dict[str, str]]:
    """Return the entries of a log as text, with the path of the log."""
    return [
        {"log": log, **{name: str(one.get(name) or "")[:300] for name in FIELDS}} for one in members
    ]


def _moment(created: str) -> str:
    """Return the time in UTC; what has no offset, or cannot be read as a time, as it is."""
    try:
        at = datetime.fromisoformat(created.replace("Z", "+00:00"))
        return at.astimezone(timezone.utc).isoformat() if at.tzinfo else created
    except (ValueError, OverflowError):
        return created


def key_of(entry: Mapping[str, str]) -> str:
    """Return what an entry alone of its machine has."""
    at_moment = {**entry, "Created": _moment(entry["Created"])}
    text = "\0".join(at_moment[name] for name in ("log", *FIELDS))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def news_of(entries: Iterable[Mapping[str, str]], last: Look | None, serial: str) -> News:
    """Return what is new since the last look at this machine; all of it if there was none.

    If nothing of the last look is there any more, the log was cleared or has wrapped, and what came
    between is not known.
    """
    if last is None or (last.serial and serial and last.serial != serial):
        return News(tuple(entries))
    known = {key_of(one): one for one in entries}
    fresh = tuple(one for key, one in known.items() if key not in last.keys)
    is_lost = bool(last.keys) and last.keys.isdisjoint(known)
    return News(fresh, last.at, is_lost)


def _path(folder: str, node: str, end: str) -> str:
    return os.path.join(folder, f"{node}.{end}")


def last_look(folder: str, node: str) -> Look | None:
    """Return the last look at a node's log; None if there was none, or its file cannot be read."""
    data = json_if_readable(_path(folder, node, "json"))
    return _look_of(data) if isinstance(data, dict) else None


def _look_of(data: Mapping[str, Any]) -> Look | None:
    if data.get("version") != VERSION or not isinstance(data.get("keys"), list):
        return None
    return Look(str(data.get("serial")), str(data.get("at")), frozenset(map(str, data["keys"])))


def write_look(folder: str, node: str, name: str, look: Look) -> None:
    """Write what the look of this name has seen; it is not the last one yet. Raises OSError."""
    data = {"version": VERSION, "look": name, "serial": look.serial, "at": look.at,
            "keys": sorted(look.keys)}  # fmt: skip
    write_atomic(_path(folder, node, "next"), json.dumps(data) + "\n", 0o640)


def settle(folder: str, nodes: Iterable[str], name: str) -> list[str]:
    """Make the look of this name the last one, where no other came after it; return the nodes."""
    settled = []
    for node in nodes:
        data = json_if_readable(_path(folder, node, "next"))
        if isinstance(data, dict) and data.get("look") == name:
            rename(_path(folder, node, "next"), _path(folder, node, "json"))
            settled.append(node)
    return settled
