# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The kernel's messages since boot, and whether those are all of them.

The kernel's own buffer is read first, which takes milliseconds. It is a ring: where its beginning
has been overwritten, the journal is asked, which takes longer and has all of them.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from ansible_collections.baremetal.dgx.plugins.module_utils._run import CommandRunner

_JOURNAL = (
    "journalctl", "--dmesg", "--boot", "--quiet", "--no-pager", "--output", "short-monotonic"
)  # fmt: skip
_RECORD = 8192
_MOST = 200_000


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
            with open(path, encoding="utf-8", errors="replace") as handle:
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
