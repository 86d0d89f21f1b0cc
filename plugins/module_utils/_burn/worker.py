# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The program that burns: one process for each GPU, which gets its work on its standard input.

It answers with one JSON object a line. It never decides anything: what a figure means is judged
elsewhere. A fault of CUDA ends the process, since a context is of no use after one.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from typing import Any, Callable, Sequence, TextIO

from .._gpu.cuda import (
    INVALID_DEVICE,
    NO_DEVICE,
    OUT_OF_MEMORY,
    SYSTEM_NOT_READY,
    CudaError,
    Driver,
    Gpu,
    NoDriverError,
)
from .cublaslt import Lt, LtError, NoLibraryError
from .gemm import Gemm, GemmTask, NotEnoughMemoryError
from .memory import hbm, hbm_rate, host, peers

_PR_SET_PDEATHSIG = 1
# cuBLASLt: FP8 kernels need compute capability 8.9 or later.
_FP8_SINCE = (8, 9)
_MEMORY_PHASES: dict[str, Callable[..., None]] = {"hbm": hbm, "hbm_rate": hbm_rate, "host": host}


def reason_of(error: Exception) -> tuple[str, str]:
    """Return (reason, text): the reason is a word that the judge knows."""
    if isinstance(error, NoDriverError):
        return "no_driver", f"libcuda.so.1 cannot be used: {error}"
    if isinstance(error, NoLibraryError):
        return "no_cublaslt", str(error)
    if isinstance(error, NotEnoughMemoryError):
        return "out_of_memory", str(error)
    if isinstance(error, CudaError):
        words = {
            SYSTEM_NOT_READY: "fabric_manager",
            OUT_OF_MEMORY: "out_of_memory",
            NO_DEVICE: "no_gpu",
            INVALID_DEVICE: "no_gpu",
        }
        return words.get(error.code, "cuda"), str(error)
    if isinstance(error, LtError):
        return "cublaslt", str(error)
    return "broken", f"{type(error).__name__}: {error}"


class Worker:
    """One GPU, or all of them for peer copies, and the lines to its parent."""

    def __init__(self, addresses: Sequence[str], out: TextIO) -> None:
        self.addresses, self._out, self.phase = list(addresses), out, ""

    def report(self, event: str, **fields: Any) -> None:
        """Write one line."""
        line = {"event": event, "phase": self.phase, **fields}
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()

    def open(self, settings: dict[str, Any]) -> None:
        """Take the GPUs. Raises what reason_of knows."""
        self.settings = settings
        self.driver = Driver()
        self.gpus = [Gpu(self.driver, address) for address in self.addresses]
        self.lt: Lt | None = None
        free, total = self.gpus[0].memory()
        self.report(
            "ready",
            name=self.gpus[0].name(),
            free_bytes=free,
            total_bytes=total,
            driver_version=self.driver.version(),
            simulated=hasattr(self.driver.library, "simulated_device"),
        )

    def memory_bytes(self) -> int:
        """Return how much of the GPU may be used."""
        limit = int(self.settings.get("memory_bytes") or 0)
        free = int(self.gpus[0].memory()[0] * float(self.settings.get("memory_share", 0.9)))
        return min(limit, free) if limit else free

    def run(self, phase: dict[str, Any]) -> None:
        """Run one phase and free what it took."""
        gpu, seconds = self.gpus[0], float(phase["seconds"])
        try:
            if phase["program"] == "peers":
                peers(self.gpus, seconds, self.memory_bytes(), self.report)
            elif phase["program"] in _MEMORY_PHASES:
                program = _MEMORY_PHASES[phase["program"]]
                program(gpu, seconds, self.memory_bytes(), self.report)
            else:
                self._gemm(gpu, phase)
        finally:
            for each in self.gpus:
                each.make_current()
                each.free_all()

    def _gemm(self, gpu: Gpu, phase: dict[str, Any]) -> None:
        if phase["kind"] == "fp8" and gpu.capability() < _FP8_SINCE:
            self.report("not_run", reason="not_supported", text="this GPU has no fp8")
            return
        if self.lt is None:
            self.lt = Lt(str(self.settings.get("cublaslt") or ""), self.driver.version())
        task = GemmTask(
            phase=phase["name"],
            kind=phase["kind"],
            n=int(self.settings["n"]),
            data=int(phase["data"]),
            seconds=float(phase["seconds"]),
            memory_bytes=self.memory_bytes(),
            most_batch=int(self.settings.get("most_batch") or 32),
            pulse_s=float(phase.get("pulse_s") or 0),
            folder=str(self.settings.get("folder") or ""),
        )
        gemm = Gemm(gpu, self.lt, task, self.report)
        self.report("library", path=self.lt.path, version=self.lt.version)
        gemm.prepare()
        gemm.run()

    def serve(self, lines: TextIO) -> int:
        """Take GPUs, then run each phase that is asked for. Returns the exit status."""
        try:
            self.open(json.loads(lines.readline()))
            while True:
                line = lines.readline()
                if not line:
                    return 0
                phase = json.loads(line)
                self.phase = phase["name"]
                started = time.monotonic()
                try:
                    self.run(phase)
                except (NoLibraryError, NotEnoughMemoryError, LtError) as error:
                    # The context is whole: what does not need the library can still be measured.
                    reason, text = reason_of(error)
                    self.report("not_run", reason=reason, text=text)
                self.report("done", took_s=round(time.monotonic() - started, 3))
        except Exception as error:
            reason, text = reason_of(error)
            self.report("failed", reason=reason, text=text)
            return 1


def stay_near(address: str) -> None:
    """Run on the CPUs beside the GPU, where the kernel says which those are."""
    try:
        path = f"/sys/bus/pci/devices/{address}/local_cpulist"
        with open(path, encoding="ascii") as stream:
            cpus = cpu_list(stream.read())
        os.sched_setaffinity(0, cpus & os.sched_getaffinity(0) or os.sched_getaffinity(0))
    except (OSError, ValueError):
        return


def cpu_list(text: str) -> set[int]:
    """Return the CPUs of a kernel list (0-3,8)."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _dash, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def main(addresses: Sequence[str]) -> int:
    """Serve on the standard streams until the parent closes them or dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    out = os.fdopen(os.dup(1), "w")
    # What a library prints must not get between the lines.
    os.dup2(2, 1)
    if len(addresses) == 1:
        stay_near(addresses[0])
    return Worker(addresses, out).serve(sys.stdin)
