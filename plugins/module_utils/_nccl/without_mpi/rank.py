# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""One rank of an all_reduce: a process for each GPU, which gets its work by one JSON line.

All ranks sum small integers as floats, so that the sum is exact in any order. What it must be is
computed on each GPU without NCCL, as a weighted sum of every row, and every element of the result
goes into such a sum: one wrong element is found with certainty, as in the burn-in.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import sys
import threading
import time
from typing import Any, Sequence, TextIO

from ..._core.files import write_atomic
from ..._core.wait import attempts
from ..._gpu.cuda import CudaError, Driver, Gpu, NoDriverError
from .binding import Nccl, NcclError, NoNcclError

_PR_SET_PDEATHSIG = 1
# Of _gpu/kernels.cu: a float with 10 bits of fraction, and data that is exact.
_KIND_FLOAT, _EXACT = 2, 0
# A sum over 16 ranks stays far below 2^24, where floats end to count by one.
_AMPLITUDE = 1000
_ROWS = 8
_NONE = (1 << 64) - 1
_POLL_S = 0.2
UNIT = 4 * _ROWS * 1024


def shape(size: int) -> tuple[int, int]:
    """Return (rows, columns) of a message; ValueError unless it is a multiple of 32 KiB."""
    if size <= 0 or size % UNIT:
        raise ValueError(f"a size must be a multiple of {UNIT} bytes, {size} is not")
    count, columns = size // 4, 1024
    # Few rows: their sums are added up on the host.
    while count // columns > 32768 and count % (2 * columns * _ROWS) == 0:
        columns *= 2
    return count // columns, columns


def seed_of(rank: int) -> int:
    """Return the seed of a rank's data."""
    return 0x6E63636C + rank


class Rank:
    """A rank, its GPU, and the lines to its parent."""

    def __init__(self, task: dict[str, Any], out: TextIO) -> None:
        self.task, self._out = task, out
        self.rank, self.ranks = int(task["rank"]), int(task["ranks"])
        self.comm: Any = None
        # The group must not be asked about while it is left.
        self._lock = threading.Lock()

    def report(self, event: str, **fields: Any) -> None:
        """Write one line."""
        self._out.write(json.dumps({"event": event, "rank": self.rank, **fields}) + "\n")
        self._out.flush()

    def run(self) -> None:
        """Join, sum each size, leave. Raises what the libraries raise, and OSError."""
        self.report("start")
        self.nccl = Nccl(str(self.task.get("library") or ""))
        self.gpu = Gpu(Driver(), str(self.task["address"]))
        self.report("gpu", name=self.gpu.name(), nccl=self.nccl.version())
        unique_id = self._unique_id()
        self.report("join")
        self.comm = self.nccl.join(self.ranks, unique_id, self.rank)
        threading.Thread(target=self._watch, daemon=True).start()
        for size in self.task["sizes"]:
            self.report("size", size=size)
            self._sum(int(size))
        with self._lock:
            comm, self.comm = self.comm, None
        self.nccl.leave(comm)
        self.report("done")

    def _unique_id(self) -> bytes:
        """Make the id as rank 0, or wait for it; OSError when it does not come."""
        path = os.path.join(str(self.task["folder"]), "id")
        if self.rank == 0:
            made = self.nccl.unique_id()
            write_atomic(path, made, sync=False)
            return made
        for left in attempts(float(self.task["join_s"]), 0.02):
            if os.path.exists(path):
                break
            if not left:
                raise OSError("rank 0 made no id")
        with open(path, "rb") as stream:
            return stream.read()

    def _watch(self) -> None:
        """Abort when NCCL notices in the background that something broke."""
        while self.comm is not None:
            time.sleep(_POLL_S)
            with self._lock:
                text = "" if self.comm is None else self.nccl.async_error(self.comm)
                if text:
                    self.report("failed", reason="async", text=text)
                    self.nccl.abort(self.comm)
                    os._exit(1)  # pylint: disable=protected-access

    def _sum(self, size: int) -> None:
        gpu, (rows, columns) = self.gpu, shape(size)
        count = rows * columns
        send, recv = gpu.allocate(size), gpu.allocate(size)
        weights, sums = gpu.allocate(8 * columns), gpu.allocate(8 * rows)
        expected, result = gpu.allocate(8 * rows), gpu.allocate(24)
        gpu.launch_over(columns, "burn_weights", weights, columns)
        # The result's place serves for the others' data until there is a result.
        totals = [0] * rows
        for rank in range(self.ranks):
            self._fill(recv, count, rank)
            self._check(recv, weights, 0, sums, result, rows, columns)
            for row, part in enumerate(struct.unpack(f"<{rows}Q", gpu.read(sums, 8 * rows))):
                totals[row] += part
        gpu.write(expected, struct.pack(f"<{rows}Q", *(one & _NONE for one in totals)))
        self._fill(send, count, self.rank)
        gpu.zero(recv, size)
        gpu.synchronize()
        time_us = self._time(send, recv, count)
        gpu.write(result, struct.pack("<3Q", 0, _NONE, 0))
        self._check(recv, weights, expected, sums, result, rows, columns)
        bad, first, _nan = struct.unpack("<3Q", gpu.read(result, 24))
        found = self._locate(send, recv, count, first, columns) if bad else {}
        self.report("sum", size=size, time_us=time_us, bad_rows=bad, elements=count, **found)
        # Not after a failure: to give back memory waits for a GPU that may hang.
        gpu.free_all()

    def _fill(self, at: int, count: int, rank: int) -> None:
        self.gpu.launch_over(
            count, "burn_fill", at, count, seed_of(rank), _AMPLITUDE, _KIND_FLOAT, _EXACT
        )

    def _check(
        self, at: int, weights: int, expected: int, sums: int, result: int, rows: int, columns: int
    ) -> None:
        grid = (rows // _ROWS, 1)
        self.gpu.launch("burn_check_float", grid, at, weights, expected, sums, result, columns)

    def _time(self, send: int, recv: int, count: int) -> float:
        """Return microseconds of one sum, the mean over the iterations."""
        gpu, iterations = self.gpu, int(self.task["iterations"])
        start, end = gpu.event(), gpu.event()
        for _each in range(int(self.task["warmups"])):
            self.nccl.all_reduce(send, recv, count, self.comm)
        gpu.synchronize()
        gpu.record(start)
        for _each in range(iterations):
            self.nccl.all_reduce(send, recv, count, self.comm)
        gpu.record(end)
        gpu.wait(end)
        return 1000 * gpu.elapsed_ms(start, end) / iterations

    def _locate(self, spare: int, recv: int, count: int, row: int, columns: int) -> dict[str, Any]:
        """Return the first wrong element of a row, by making all ranks' data of it again."""
        at, form = 4 * row * columns, f"<{columns}f"
        right = [0.0] * columns
        for rank in range(self.ranks):
            self._fill(spare, count, rank)
            part = struct.unpack(form, self.gpu.read(spare + at, 4 * columns))
            right = [one + two for one, two in zip(right, part)]
        got = struct.unpack(form, self.gpu.read(recv + at, 4 * columns))
        wrong = [place for place in range(columns) if got[place] != right[place]]
        if not wrong:
            # It was right when it was read again: the check or the reading is broken.
            return {"first_element": row * columns, "text": "not wrong when it was read again"}
        place = wrong[0]
        return {
            "first_element": row * columns + place,
            "text": f"{got[place]!r} instead of {right[place]!r}",
        }


def main() -> int:
    """Be one rank. The task is the first line of standard input."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    out = os.fdopen(os.dup(1), "w")
    # What NCCL prints must not get between the lines.
    os.dup2(2, 1)
    rank = Rank(json.loads(sys.stdin.readline()), out)
    try:
        rank.run()
    except NoNcclError as error:
        rank.report("failed", reason="no_nccl", text=f"libnccl.so.2 cannot be used: {error}")
    except NoDriverError as error:
        rank.report("failed", reason="no_driver", text=f"libcuda.so.1 cannot be used: {error}")
    except (NcclError, CudaError, OSError, ValueError) as error:
        rank.report("failed", reason="call", text=str(error))
    else:
        return 0
    out.flush()
    # Other threads and the libraries' own clean-up may hang on a broken GPU.
    os._exit(1)  # pylint: disable=protected-access


def command() -> Sequence[str]:
    """Return what starts this program, with the path by which this process finds its modules.

    Not by PYTHONPATH: Ansible's archive of a module has its own sitecustomize, which Python
    would run before all else.
    """
    path = [each for each in sys.path if each]
    program = f"import sys; sys.path[:0] = {path!r}; from {__name__} import main; sys.exit(main())"
    return [sys.executable, "-I", "-c", program]
