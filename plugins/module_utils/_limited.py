# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Calls a function in a child process that may hang, and comes back in time whatever it does.

Whoever asks a dead mount for anything waits inside the kernel, where no signal arrives. Such a
child is left behind; the caller goes on.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from dataclasses import dataclass
from typing import Any, Callable

DONE, HUNG, BROKEN = "done", "hung", "broken"
_PART = 1 << 16
_REAP_S = 0.2


@dataclass(frozen=True)
class Outcome:
    """How a call ended: `value` is JSON data where DONE; `said` is why there is none."""

    how: str
    value: Any = None
    said: str = ""
    took_s: float = 0.0


def _child(work: Callable[[], Any], writer: int) -> None:
    try:
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        # Whoever started us waits for the end of our output; a hung child must not hold it.
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        try:
            data: dict[str, Any] = {"value": work()}
        except Exception:  # pylint: disable=broad-exception-caught
            # What the work did not foresee is its own fault, and says so.
            data = {"broken": " | ".join(traceback.format_exc().splitlines()[-3:])}
        rest = json.dumps(data).encode() + b"\n"
        while rest:
            rest = rest[os.write(writer, rest) :]
    finally:
        # Nothing of the parent's may run here: no buffers flushed, no handlers called.
        os._exit(0)  # pylint: disable=protected-access


def _end(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except OSError:
            continue
    until = time.monotonic() + _REAP_S
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.005)


def limited(work: Callable[[], Any], limit_s: float) -> Outcome:
    """Return what `work` returns (JSON data), or that it hung for limit_s seconds, or broke."""
    reader, writer = os.pipe()
    begun = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(work, writer)
    os.close(writer)
    raw, whole = b"", False
    try:
        while not whole:
            left = begun + limit_s - time.monotonic()
            if left <= 0 or not select.select([reader], [], [], left)[0]:
                return Outcome(
                    HUNG, said=f"did not come back within {limit_s:g} s",
                    took_s=time.monotonic() - begun,
                )  # fmt: skip
            part = os.read(reader, _PART)
            raw += part
            whole = not part or part.endswith(b"\n")
    finally:
        os.close(reader)
        _end(pid)
    took = time.monotonic() - begun
    if not raw.endswith(b"\n"):
        return Outcome(BROKEN, said="ended without a whole answer", took_s=took)
    data = json.loads(raw)
    if "broken" in data:
        return Outcome(BROKEN, said=data["broken"], took_s=took)
    return Outcome(DONE, data["value"], took_s=took)
