# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asks several questions at once, each in a process of its own that may hang or crash without harm.

A question that waits inside the kernel (a dead mount, a dead GPU) cannot be killed. It is left
behind, and while it is there the same question is not asked again: else such processes would pile
up with every run.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Mapping, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils._records import Record

_REAP_S = 0.05
_PART = 1 << 16

ANSWERED, HUNG, BROKEN, LEFT = "answered", "hung", "broken", "left"


@dataclass(frozen=True)
class Question:
    """A name, what is called in the child, and the seconds it may take."""

    name: str
    ask: Callable[[], Iterable[Record]]
    limit_s: float


@dataclass(frozen=True)
class Process:
    """A process that was left behind; `start` tells it from a later one of the same number."""

    pid: int
    start: str


@dataclass(frozen=True)
class Answer:
    """How a question ended: `records` as data; `said` is why there are none."""

    how: str
    records: tuple[Mapping[str, Any], ...] = ()
    said: str = ""
    left: Process | None = None


@dataclass
class _Child:
    question: Question
    pid: int
    reader: int
    until: float
    raw: bytes = b""


def start_of(pid: int) -> str:
    """Return when a process was started, in ticks since boot; empty where there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as handle:
            fields = handle.read().rpartition(")")[2].split()
    except OSError:
        return ""
    # A zombie has answered the signal; only its parent's wait is missing.
    return "" if fields[0] in "ZX" else fields[19]


def is_alive(process: Process) -> bool:
    """Tell whether this very process is still there."""
    return bool(process.start) and start_of(process.pid) == process.start


def _own_children() -> list[int]:
    """Return what this process has started and not seen end, where the kernel tells."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as handle:
            return [int(word) for word in handle.read().split()]
    except OSError:
        return []


def _run_child(question: Question, writer: int) -> None:
    status = 1
    try:
        # A group of its own, so that what it starts goes with it.
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        # Whoever called waits for the end of our output; what is left behind must not hold it.
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        try:
            data: dict[str, Any] = {"records": [one.as_data() for one in question.ask()]}
            data["left"] = _own_children()
        except Exception:  # pylint: disable=broad-exception-caught
            # Whatever a check does not foresee is the checker's fault, and says so.
            data = {"broken": " | ".join(traceback.format_exc().splitlines()[-3:])}
        rest = json.dumps(data).encode() + b"\n"
        while rest:
            rest = rest[os.write(writer, rest) :]
        status = 0
    finally:
        # Nothing of the parent's may run here: no buffers flushed, no handlers called.
        os._exit(status)  # pylint: disable=protected-access


def _start(question: Question, until: float, others: Sequence[_Child]) -> _Child:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        for other in others:
            os.close(other.reader)
        _run_child(question, writer)
    os.close(writer)
    return _Child(question, pid, reader, min(until, time.monotonic() + question.limit_s))


def _kill(pid: int) -> Process | None:
    """End a group of processes; returns the one that cannot be ended."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except OSError:
            continue
    until = time.monotonic() + _REAP_S
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return None
        time.sleep(0.005)
    return Process(pid, start_of(pid))


def _ended(child: _Child) -> Answer:
    """Read what a child has sent, or why it has not."""
    line, end, _rest = child.raw.partition(b"\n")
    if not end:
        status = os.waitpid(child.pid, 0)[1]
        code = os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        how = "by signal" if os.WIFSIGNALED(status) else "with status"
        return Answer(BROKEN, said=f"ended {how} {code} without a whole answer")
    data = json.loads(line)
    # Before the child is gone, whose children would then be anybody's.
    stuck = [Process(pid, start_of(pid)) for pid in data.get("left", ())]
    _kill(child.pid)
    if "broken" in data:
        return Answer(BROKEN, said=data["broken"])
    still = [process for process in stuck if is_alive(process)]
    return Answer(ANSWERED, tuple(data["records"]), left=still[0] if still else None)


def ask_all(
    questions: Iterable[Question], until: float, left: Mapping[str, Process] | None = None
) -> dict[str, Answer]:
    """Ask all at once; returns the answers by name.

    `until` is of time.monotonic. `left` are processes of earlier runs by the name of the question:
    where one still hangs, the question is not asked.
    """
    answers: dict[str, Answer] = {}
    children: dict[int, _Child] = {}
    for question in questions:
        before = (left or {}).get(question.name)
        if before is not None and is_alive(before):
            said = f"process {before.pid}, which asked before, still hangs"
            answers[question.name] = Answer(LEFT, said=said, left=before)
            continue
        child = _start(question, until, list(children.values()))
        children[child.reader] = child
    while children:
        first = min(child.until for child in children.values())
        ready = select.select(list(children), [], [], max(0.0, first - time.monotonic()))[0]
        for reader in ready:
            child = children[reader]
            part = os.read(reader, _PART)
            child.raw += part
            # What it has started may hold the pipe open and hang.
            if not part or part.endswith(b"\n"):
                answers[child.question.name] = _ended(child)
                os.close(reader)
                del children[reader]
        now = time.monotonic()
        for reader, child in list(children.items()):
            if now >= child.until:
                took = child.question.limit_s - max(0.0, child.until - now)
                said = f"did not come back within {took:.3g} s"
                answers[child.question.name] = Answer(HUNG, said=said, left=_kill(child.pid))
                os.close(reader)
                del children[reader]
    return answers
