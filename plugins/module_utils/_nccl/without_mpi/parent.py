# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""An all_reduce over the GPUs of this node without MPI, nccl-tests or Slurm, and its judgement.

The parent touches neither CUDA nor NCCL. It starts a process for each GPU, ends all of them when
one fails or the time is up, and keeps how far each of them came.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ..._core.files import make_temporary, open_append, remove_tree
from ..._core.question import Question
from ..._core.record import NOT_MEASURED, PASS, Record
from ..nccl_tests import unexpected
from ..thresholds import CORRECT_ROWS, GIVE_ONE
from .rank import command

# Those that wait for a rank that failed get this long to end by themselves.
_GRACE_S = 3.0
_REAP_S = 3.0
_STDERR_BYTES = 4096
_HIDDEN = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")

_REMEDIES = {
    "no_nccl": "settings: install libnccl2 of the CUDA release that the driver serves",
    "no_driver": "settings: run the role nvidia_driver on this node",
}
_LOOK = "look: run gpu_health on this node; then this again with NCCL_DEBUG=INFO"
_HANG = (
    "look: run gpu_health and read the kernel log for Xid; a process that cannot be killed needs a "
    "reboot"
)
_SLOW = "look: run gpu_health (NVLink, clocks, throttle reasons) on this node"


@dataclass
class Settings:
    """What to run: sizes in bytes, limits in seconds. `addresses` are of the GPUs, rank by rank."""

    addresses: Sequence[str]
    sizes: Sequence[int]
    iterations: int = 20
    warmups: int = 5
    time_limit_s: float = 120.0
    library: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class RankState:
    """How far a rank came. `sums` are its lines by size; `stuck` when it could not be killed."""

    last: str = "was started"
    sums: dict[int, dict[str, Any]] = field(default_factory=dict)
    failed: str = ""
    reason: str = ""
    done: bool = False
    rc: int | None = None
    stuck: bool = False
    stderr: str = ""
    nccl: str = ""


class _Process:
    """A rank's process and the thread that reads its lines."""

    def __init__(self, rank: int, task: Mapping[str, Any], settings: Settings, log: str) -> None:
        self.rank, self.log, self.state = rank, log, RankState()
        environment = {key: text for key, text in os.environ.items() if key not in _HIDDEN}
        # What libraries leave behind when they are killed goes with the folder of the run.
        environment.update(settings.environment, TMPDIR=os.path.dirname(log))
        with open_append(log) as stderr:
            self.process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                list(command()),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
            )
        self._task = task
        self._reader: threading.Thread | None = None

    def start(self, lines: queue.Queue[tuple[int, Any]]) -> None:
        """Tell the task, and put what it says into the queue until it ends (None)."""
        self._reader = threading.Thread(target=self._read, args=(lines,), daemon=True)
        self._reader.start()
        stream = self.process.stdin
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.write(json.dumps(self._task).encode() + b"\n")
                stream.close()

    def _read(self, lines: queue.Queue[tuple[int, Any]]) -> None:
        stream = self.process.stdout
        for line in stream or ():
            with contextlib.suppress(ValueError):
                lines.put((self.rank, json.loads(line)))
        if stream is not None:
            stream.close()
        lines.put((self.rank, None))

    def take(self, line: dict[str, Any]) -> None:
        """Keep what a line says."""
        state, event = self.state, line.get("event")
        if event == "failed":
            state.failed, state.reason = str(line["text"]), str(line["reason"])
        elif event == "sum":
            state.sums[int(line["size"])] = line
            state.last = f"had summed {line['size']} bytes"
        elif event == "gpu":
            state.nccl, state.last = str(line["nccl"]), "had its GPU"
        elif event == "join":
            state.last = "waited for the other ranks (ncclCommInitRank)"
        elif event == "size":
            state.last = f"was at the sum of {line['size']} bytes (ncclAllReduce)"
        elif event == "done":
            state.done = True

    def end(self) -> None:
        """Kill it, and keep how it ended and what it printed."""
        self.process.kill()
        try:
            self.state.rc = self.process.wait(_REAP_S)
        except subprocess.TimeoutExpired:
            self.state.stuck = True
        # Its last words are in the pipe, which ends with it.
        if self._reader is not None and not self.state.stuck:
            self._reader.join(_REAP_S)
        with open(self.log, "rb") as stream:
            stream.seek(max(0, os.path.getsize(self.log) - _STDERR_BYTES))
            self.state.stderr = stream.read().decode("utf-8", "replace")


def run(settings: Settings) -> list[RankState]:
    """Run all ranks within the time limit; returns what is known of each."""
    folder = make_temporary("nccl-")
    lines: queue.Queue[tuple[int, Any]] = queue.Queue()
    processes: list[_Process] = []
    try:
        for rank, address in enumerate(settings.addresses):
            task = {
                "rank": rank,
                "ranks": len(settings.addresses),
                "address": address,
                "folder": folder,
                "sizes": list(settings.sizes),
                "iterations": settings.iterations,
                "warmups": settings.warmups,
                "join_s": settings.time_limit_s,
                "library": settings.library,
            }
            processes.append(_Process(rank, task, settings, os.path.join(folder, f"log.{rank}")))
        for process in processes:
            process.start(lines)
        _follow(processes, lines, settings.time_limit_s)
    finally:
        for process in processes:
            process.end()
        with contextlib.suppress(OSError):
            remove_tree(folder)
    return [process.state for process in processes]


def _follow(
    processes: Sequence[_Process], lines: queue.Queue[tuple[int, Any]], limit_s: float
) -> None:
    """Take lines until all have ended, or the time is up."""
    until, running = time.monotonic() + limit_s, len(processes)
    while running:
        try:
            rank, line = lines.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return
        if line is not None:
            processes[rank].take(line)
            continue
        running -= 1
        if not processes[rank].state.done:
            # The others wait for it forever.
            until = min(until, time.monotonic() + _GRACE_S)


def busbw_gbps(size: int, time_us: float, ranks: int) -> float:
    """Return the bus bandwidth in GB/s, as nccl-tests define it: size/time * 2(n-1)/n."""
    return size / (time_us * 1000) * 2 * (ranks - 1) / ranks


def judge(
    states: Sequence[RankState],
    node: str,
    subjects: Sequence[str],
    size: int,
    question: Question | None,
    evidence: Sequence[Sequence[str]],
) -> list[Record]:
    """Return the records: nccl.correct for each GPU, nccl.busbw of the node, nccl.run if it broke.

    Of one GPU the bus bandwidth is 0 by definition, and is left out.

    `subjects` and `evidence` are by rank. A hang blames no rank: every rank waits for every other.
    """
    records: list[Record] = []
    broken = _broken(states, node, subjects)
    records += broken
    for state, subject, lines in zip(states, subjects, evidence):
        bad = sum(int(line["bad_rows"]) for line in state.sums.values())
        wrong = [line for line in state.sums.values() if line["bad_rows"]]
        if not wrong and not state.done:
            continue
        text = "every element of the sum is right"
        if wrong:
            first = wrong[0]
            text = f"at {first['size']} bytes element {first['first_element']} is {first['text']}"
        records.append(CORRECT_ROWS.judge(subject, bad, text=text, evidence=lines))
    if broken:
        return [record for record in records if record.status != PASS]
    if len(states) == 1:
        return records
    slowest = max((state.sums[size]["time_us"] for state in states), default=0.0)
    value = round(busbw_gbps(size, slowest, len(states)), 2) if slowest > 0 else None
    what = f"all_reduce bus bandwidth at {size} bytes over {len(states)} GPUs"
    reported = (f"NCCL {states[0].nccl}", "ctypes runner, not nccl-tests")
    if question is None:
        records.append(
            Record(
                "nccl.busbw",
                f"node:{node}",
                NOT_MEASURED,
                f"{what}: no threshold is published for this GPU",
                measured=None if value is None else {"value": value, "unit": "GB/s"},
                evidence=reported,
                remedy=GIVE_ONE,
            )
        )
    else:
        records.append(
            question.judge(f"node:{node}", value, text=what, remedy=_SLOW, evidence=reported)
        )
    return records


def _broken(states: Sequence[RankState], node: str, subjects: Sequence[str]) -> list[Record]:
    """Return one record where the run did not come to its end."""
    if all(state.done for state in states):
        messages = [
            f"{subject}: {line}"
            for subject, state in zip(subjects, states)
            for line in unexpected(state.stderr)
        ]
        text = f"NCCL printed: {'; '.join(messages[:3])}"
        return [Record("nccl.run", f"node:{node}", NOT_MEASURED, text, remedy=_LOOK)] * bool(
            messages
        )
    failed = [(subject, state) for subject, state in zip(subjects, states) if state.failed]
    crashed = [
        (subject, state)
        for subject, state in zip(subjects, states)
        if not state.failed and not state.done and state.rc not in (None, 0, -9)
    ]
    if failed:
        text = "; ".join(sorted({f"{state.failed} ({subject})" for subject, state in failed})[:3])
        remedy = _REMEDIES.get(failed[0][1].reason, _LOOK)
    elif crashed:
        ends = [f"the process of {subject} ended with {state.rc}" for subject, state in crashed]
        text, remedy = "; ".join(ends[:3]), _LOOK
    else:
        text, remedy = "it hung and was ended", _HANG
    lines = [f"{subject} {state.last}" for subject, state in zip(subjects, states)]
    lines += [f"{s} could not be killed" for s, state in zip(subjects, states) if state.stuck]
    messages = [state.stderr.strip().splitlines()[-1] for state in states if state.stderr.strip()]
    return [
        Record(
            "nccl.run",
            f"node:{node}",
            NOT_MEASURED,
            text,
            evidence=(*lines, *(line[:200] for line in messages[:3])),
            remedy=remedy,
        )
    ]
