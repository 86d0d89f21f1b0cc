# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Calls functions in separate processes, which may hang or crash; the caller goes on in time.

A call that waits inside the kernel (a dead mount, a dead GPU) cannot be killed. Its process is left
behind, and a caller that asks again later does not start another one beside it: such processes
would pile up with every run.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import select
import signal
import time
import traceback
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Mapping, Sequence

_REAP_S = 0.2
_PART = 1 << 16
_PR_SET_PDEATHSIG = 1
# What a line of a child begins with: one of several parts, or the end of its answer.
_PIECE, _END = b"+", b"="

DONE, HUNG, BROKEN, LEFT = "done", "hung", "broken", "left"

Send = Callable[[Any], None]


@dataclass(frozen=True)
class Call:
    """A name, what the child calls for JSON data, and the seconds it may take."""

    name: str
    ask: Callable[[], Any]
    limit_s: float


@dataclass(frozen=True)
class Process:
    """A process that was left behind; `start` tells it from a later one of the same number."""

    pid: int
    start: str


@dataclass(frozen=True)
class Answer:
    """How a call ended: `value` is JSON data if DONE; `said` is why there is none.

    `parts` are what the call sent before it ended, however it ended.
    """

    how: str
    value: Any = None
    message: str = ""
    took_s: float = 0.0
    left: Process | None = None
    parts: tuple[Any, ...] = ()


@dataclass
class _Child:
    pid: int
    reader: int
    begun: float
    limit_s: float
    raw: bytearray = field(default_factory=bytearray)

    @property
    def until(self) -> float:
        return self.begun + self.limit_s

    def is_whole(self) -> bool:
        """Return whether the last line is the end of the answer."""
        if not self.raw.endswith(b"\n"):
            return False
        last = self.raw.rfind(b"\n", 0, len(self.raw) - 1) + 1
        return self.raw[last : last + 1] == _END


def start_of(pid: int) -> str:
    """Return when a process was started, in ticks since boot; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as handle:
            fields = handle.read().rpartition(")")[2].split()
    except OSError:
        return ""
    # A zombie has answered the signal; only its parent's wait is missing.
    return "" if fields[0] in "ZX" else fields[19]


def is_alive(process: Process) -> bool:
    """Return whether this very process is still there."""
    return bool(process.start) and start_of(process.pid) == process.start


def _own_children() -> list[int]:
    """Return what this process has started and not seen end, if the kernel lists it."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as handle:
            return [int(word) for word in handle.read().split()]
    except OSError:
        return []


def _send(writer: int, kind: bytes, data: Any) -> None:
    rest = kind + json.dumps(data).encode() + b"\n"
    while rest:
        rest = rest[os.write(writer, rest) :]


def _die_with(parent: int) -> None:
    """Have the kernel end this process when its parent is gone, which alone holds the locks."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # pylint: disable=protected-access


def _run_child(work: Callable[[Send], Any], writer: int, parent: int) -> None:
    status = 1
    try:
        _die_with(parent)
        # Its own group, so that what it starts goes with it.
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        # The caller's caller waits for the end of our output; what is left behind must not hold it.
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        try:
            data = {"value": work(lambda part: _send(writer, _PIECE, part))}
            data["left"] = _own_children()
            _send(writer, _END, data)
        except Exception:  # pylint: disable=broad-exception-caught
            # What the work did not foresee is its own fault, and reported.
            broken = " | ".join(traceback.format_exc().splitlines()[-3:])
            _send(writer, _END, {"broken": broken})
        status = 0
    finally:
        # Nothing of the parent's may run here: no buffers flushed, no handlers called.
        os._exit(status)  # pylint: disable=protected-access


def _start(work: Callable[[Send], Any], limit_s: float, others: Sequence[_Child]) -> _Child:
    begun = time.monotonic()
    reader, writer = os.pipe()
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if pid == 0:
        os.close(reader)
        for other in others:
            os.close(other.reader)
        _run_child(work, writer, parent)
    os.close(writer)
    return _Child(pid, reader, begun, limit_s)


def _wait(pid: int) -> int | None:
    """Return how a process ended; None if it has not, within a moment."""
    until = time.monotonic() + _REAP_S
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() >= until:
            return None
        time.sleep(0.002)


def _kill(pid: int) -> Process | None:
    """End a group of processes; returns the one that cannot be ended."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)
    return Process(pid, start_of(pid)) if _wait(pid) is None else None


def _without_end(child: _Child) -> tuple[str, Process | None]:
    """Return how a child ended that has closed its end of the pipe without an answer."""
    status = _wait(child.pid)
    if status is None:
        return "closed its end without a whole answer", _kill(child.pid)
    code = os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    how = "by signal" if os.WIFSIGNALED(status) else "with status"
    return f"ended {how} {code} without a whole answer", None


def _answer(child: _Child, hung: bool) -> Answer:
    """Return what a child has sent, or why it has not, and end it."""
    took = time.monotonic() - child.begun
    # What comes after the last line end was truncated.
    lines = bytes(child.raw).split(b"\n")[:-1]
    parts = tuple(json.loads(line[1:]) for line in lines if line.startswith(_PIECE))
    if hung:
        message = f"did not come back within {child.limit_s:.3g} s"
        return Answer(HUNG, None, message, took, _kill(child.pid), parts)
    if not child.is_whole():
        message, left = _without_end(child)
        return Answer(BROKEN, None, message, took, left, parts)
    data = json.loads(lines[-1][1:])
    # Before the child is gone, whose children could then not be found.
    stuck = [Process(pid, start_of(pid)) for pid in data.get("left", ())]
    _kill(child.pid)
    if "broken" in data:
        return Answer(BROKEN, None, data["broken"], took, parts=parts)
    still = next((process for process in stuck if is_alive(process)), None)
    return Answer(DONE, data["value"], "", took, still, parts)


def _ended(children: Mapping[str, _Child]) -> Iterable[tuple[str, bool]]:
    """Wait for the next moment that something happens; yield who ended, and whether it hung."""
    first = min(child.until for child in children.values())
    poll = select.poll()
    for child in children.values():
        poll.register(child.reader, select.POLLIN | select.POLLHUP)
    ready = {one for one, _event in poll.poll(max(0.0, first - time.monotonic()) * 1000)}
    for name, child in children.items():
        if child.reader in ready:
            part = os.read(child.reader, _PART)
            child.raw += part
            # What it has started may hold the pipe open and hang.
            if not part or child.is_whole():
                yield name, False
                continue
        if time.monotonic() >= child.until:
            yield name, True


def _gather(children: dict[str, _Child]) -> dict[str, Answer]:
    """Wait for all; returns the answers by name."""
    answers = {}
    while children:
        for name, hung in list(_ended(children)):
            child = children.pop(name)
            os.close(child.reader)
            answers[name] = _answer(child, hung)
    return answers


def _give_up(children: Mapping[str, _Child]) -> None:
    for child in children.values():
        os.close(child.reader)
        _kill(child.pid)


def ask_all(
    calls: Iterable[Call], until: float, left: Mapping[str, Process] | None = None
) -> dict[str, Answer]:
    """Ask all at once; returns the answers by name. Raises OSError if no process can be started.

    `until` is of time.monotonic. `left` are processes of earlier runs by the name of the call:
    while one still hangs, the call is not made.
    """
    answers: dict[str, Answer] = {}
    children: dict[str, _Child] = {}
    try:
        for call in calls:
            before = (left or {}).get(call.name)
            if before is not None and is_alive(before):
                message = f"process {before.pid}, which asked before, still hangs"
                answers[call.name] = Answer(LEFT, message=message, left=before)
                continue
            limit_s = min(until - time.monotonic(), call.limit_s)
            children[call.name] = _start(_alone(call.ask), limit_s, list(children.values()))
        return {**answers, **_gather(children)}
    finally:
        _give_up(children)


def _alone(ask: Callable[[], Any]) -> Callable[[Send], Any]:
    return lambda _send_part: ask()


def limited(work: Callable[[], Any], limit_s: float) -> Answer:
    """Return what `work` returns (JSON data), or that it hung for limit_s seconds, or broke."""
    return ask_all([Call("", work, limit_s)], math.inf)[""]


def parts_of(work: Callable[[Send], Any], limit_s: float) -> Answer:
    """Like limited, for work that sends parts: those that came are in the answer of a hang, too."""
    children = {"": _start(work, limit_s, ())}
    try:
        return _gather(children)[""]
    finally:
        _give_up(children)
