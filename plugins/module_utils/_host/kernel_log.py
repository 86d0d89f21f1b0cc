# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The kernel's messages since boot, and whether those are all of them.

The kernel's own buffer is read first, which takes milliseconds. It is a ring: where its beginning
has been overwritten, the journal is asked, which takes longer and has all of them.

A program chooses its own name, and the kernel prints that name when the program crashes. So a
message counts only as a whole, from its first character on: `message` takes off the prefix of the
record or of the tool that printed it, and a reader of messages matches the beginning of the rest.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from typing import Iterator

from .._core.run import CommandRunner

_JOURNAL = (
    "journalctl", "--dmesg", "--boot", "--quiet", "--no-pager", "--output", "short-monotonic"
)  # fmt: skip
_RECORD = 8192
_MOST = 200_000

# A record of /dev/kmsg: priority and facility, sequence, microseconds, flags, more fields.
_KMSG = re.compile(r"(?P<priority>\d+),\d+,(?P<us>\d+),(?P<flags>[^,;]*)(?:,[^;]*)?;")
# dmesg --raw and pstore write the priority, dmesg --decode the facility and the level.
_RAW = re.compile(r"<(?P<priority>\d+)>")
_DECODED = re.compile(r"(?P<facility>[a-z0-9]+) *:[a-z]+ *: ")
_STAMP = re.compile(
    r"\[ *(?P<uptime>\d+\.\d+)\] ?(?:\[ *[TC]\d+\] )?"
    r"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]\d [0-9:]{8} \d{4}\] "
    r"|\d{4}-\d\d-\d\dT[0-9:]{8}[.,]\d+(?:Z|[+-][0-9:]{4,5}) "
)
# syslog and journalctl name the host and who speaks; only the kernel counts.
_DATE = re.compile(r"[A-Z][a-z]{2} [ 0-9]\d [0-9:]{8} ")
_SPEAKER = re.compile(r"[A-Za-z0-9_.:-]+ kernel: ")
_FACILITY_SHIFT = 3
# The flag that kernels before 4.10 gave to what goes on with an earlier message. Later ones have
# "c" for that, and for every line of NVIDIA's driver, Xids too (580.159.04, seen on H100 and H200):
# those count. What the kernel goes on with about a process, " in NAME[...]", begins with a space.
_FRAGMENT = "+"
# What a process did begins with its name and number.
_PROCESS = re.compile(r".{0,15}\[\d+\]: ")


@dataclass(frozen=True)
class Message:
    """One message of the kernel, without any prefix; `uptime_s` is None if not printed."""

    text: str
    uptime_s: float | None = None


def message(line: str) -> Message | None:
    """Return the message of a line; None for a line of which the kernel is not the author.

    Not a message of the kernel are: a record of another facility, a fragment by an old kernel, a
    line that another program wrote to syslog, and what the kernel reports about a process, which
    begins with the name that the process gave itself.
    """
    record = _KMSG.match(line)
    if record:
        if int(record["priority"]) >> _FACILITY_SHIFT or _FRAGMENT in record["flags"]:
            return None
        return _spoken(line[record.end() :], int(record["us"]) / 1e6)
    place = 0
    raw = _RAW.match(line)
    if raw:
        if int(raw["priority"]) >> _FACILITY_SHIFT:
            return None
        place = raw.end()
    decoded = _DECODED.match(line, place)
    if decoded:
        if decoded["facility"] != "kern":
            return None
        place = decoded.end()
    uptime: float | None = None
    date = _DATE.match(line, place)
    stamp = None if date else _STAMP.match(line, place)
    if stamp:
        place = stamp.end()
        uptime = float(stamp["uptime"]) if stamp["uptime"] else None
    elif date:
        place = date.end()
    speaker = _SPEAKER.match(line, place)
    if speaker:
        place = speaker.end()
        stamp = None if uptime is not None else _STAMP.match(line, place)
        if stamp:
            place = stamp.end()
            uptime = float(stamp["uptime"]) if stamp["uptime"] else None
    elif date:
        return None
    return _spoken(line[place:], uptime)


def _spoken(text: str, uptime_s: float | None) -> Message | None:
    return None if not text or _PROCESS.match(text) else Message(text, uptime_s)


def messages(text: str, words: tuple[str, ...] = ()) -> Iterator[Message]:
    """Yield the messages of a log; with `words` only of lines that hold one of them.

    In a log whose lines have prefixes, a line without one goes on with the message before it. Only
    the line feed ends a line: the names of programs may hold every other character.
    """
    lines = text.split("\n")
    prefixed = any(_prefixed(line) for line in lines)
    for line in lines:
        if words and not any(word in line for word in words):
            # Most lines of a log are of no concern; asking this first makes a long one quick.
            continue
        found = message(line) if not prefixed or _prefixed(line) else None
        if found is not None:
            yield found


def _prefixed(line: str) -> bool:
    return any(pattern.match(line) for pattern in (_KMSG, _STAMP, _RAW, _DATE, _DECODED))


@dataclass(frozen=True)
class KernelLog:
    """Text of the log; `gap` says what of it is missing or why there is none, empty if whole."""

    text: str = ""
    gap: str = ""


def read_ring(path: str = "/dev/kmsg") -> KernelLog:
    """Read the kernel's buffer without waiting for what is yet to come."""
    records: list[str] = []
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return KernelLog(gap=f"{path}: {error.strerror}")
    try:
        while len(records) < _MOST:
            try:
                part = os.read(handle, _RECORD)
            except BlockingIOError:
                break
            except OSError as error:
                # A record was overwritten while it was read; the next read goes on behind it.
                if error.errno == errno.EPIPE:
                    continue
                return KernelLog("".join(records), f"{path}: {error.strerror}")
            if not part:
                break
            records.append(part.decode("utf-8", "replace"))
    finally:
        os.close(handle)
    return KernelLog("".join(records), ring_gap(records[0] if records else ""))


def ring_gap(first: str) -> str:
    """Return what is missing before the first record of the buffer ("6,0,0,-;Linux version")."""
    number = first.split(",", 2)[1:2]
    if not number or not number[0].isdigit():
        return "the kernel's buffer is empty"
    if number[0] == "0":
        return ""
    return f"the first {number[0]} messages since boot have been overwritten"


def read_log(path: str, run: CommandRunner, timeout_s: float) -> KernelLog:
    """Read a file, or where `path` is empty the messages of this boot."""
    if path:
        try:
            with open(path, encoding="utf-8", errors="replace", newline="") as handle:
                return KernelLog(handle.read())
        except OSError as error:
            return KernelLog(gap=f"{path}: {error.strerror}")
    ring = read_ring()
    if not ring.gap:
        return ring
    result = run(_JOURNAL, timeout_s)
    if result.ok and result.out.strip():
        return KernelLog(result.out)
    return KernelLog(ring.text, f"{ring.gap}; {result.describe()}")
