# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the burn-in's checks find on a real GPU: bits that this program flips in its memory.

    python tests/bench/burn_flips.py [--flips 200] [--n 8192] [--seed 1] [--address 0000:1b:00.0]

Computes products as the burn-in does, flips one bit of a result between product and check, and
counts how often the shipped kernels find it and name its row and column. Every product is first
checked as it is. The same for words of HBM. burn_detection.py does this on a CPU.
Ends with 1 where a flip is missed or misplaced or a clean result is refused, 77 without a GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import struct
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import conftest  # noqa: E402, F401 - makes the collection importable
from burn_reference import find_cublaslt  # noqa: E402

from ansible_collections.baremetal.dgx.plugins.module_utils._burn.cublaslt import (  # noqa: E402
    KINDS,
    Lt,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.gemm import (  # noqa: E402
    ENTROPY,
    EXACT,
    Gemm,
    GemmTask,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.known_results import (  # noqa: E402
    RANDOM,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.memory import (  # noqa: E402
    _verify,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.cuda import (  # noqa: E402
    CudaError,
    Driver,
    Gpu,
    NoDriverError,
)

FRESH = struct.pack("<4Q", 0, (1 << 64) - 1, 0, 0)
MEMORY = 1 << 30


def first_address(driver: Driver) -> str:
    """Return the PCI address of CUDA's first GPU."""
    text = ctypes.create_string_buffer(32)
    driver.call("cuDeviceGetPCIBusId", text, 32, 0)
    return text.value.decode("ascii")


def flip(gpu: Gpu, at: int, bit: int) -> None:
    """Change one bit of the GPU's memory."""
    at, bit = at + bit // 8, bit % 8
    gpu.write(at, bytes([gpu.read(at, 1)[0] ^ (1 << bit)]))


class Flips:
    """The products of one phase on one GPU, and what was found in them."""

    def __init__(self, gpu: Gpu, lt: Lt, kind: str, data: int, n: int) -> None:
        self.errors: list[dict[str, Any]] = []
        room = 4 * (2 * n * n * KINDS[kind].width + n * n * KINDS[kind].result_width) + (64 << 20)
        task = GemmTask("flips", kind, n, data, 0, room, most_batch=1)
        self.gpu, self.n, self.gemm = gpu, n, Gemm(gpu, lt, task, self._report)
        self.gemm.prepare()

    def _report(self, event: str, **fields: Any) -> None:
        if event == "error":
            self.errors.append(fields)

    def check(self, slot: Any) -> list[dict[str, Any]]:
        """Return what a check of a result reports."""
        self.errors, self.gemm.errors = [], 0
        self.gpu.write(self.gemm.results, FRESH)
        self.gemm._check(slot, self.gemm.sums[0], self.gemm.results)
        found = struct.unpack("<4Q", self.gpu.read(self.gemm.results, 32))
        if found[0]:
            self.gemm._tell(slot, 0, found[:3], 1)
        return self.errors

    def run(self, flips: int, source: random.Random) -> dict[str, int]:
        """Return the counts: clean, false_alarms, flips, found, located, bits."""
        width = self.gemm.kind.result_width
        counts = {
            "clean": 0,
            "false_alarms": len(self.errors),
            "flips": 0,
            "found": 0,
            "located": 0,
        }
        positions = set()
        for number in range(flips):
            slot = self.gemm.slots[number % len(self.gemm.slots)]
            self.gemm.product.start(slot.p, slot.q, slot.c)
            counts["clean"] += 1
            counts["false_alarms"] += bool(self.check(slot))
            row, column = source.randrange(self.n), source.randrange(self.n)
            bit = number % (8 * width)
            positions.add(bit)
            flip(self.gpu, slot.c + (row * self.n + column) * width, bit)
            counts["flips"] += 1
            found = self.check(slot)
            counts["found"] += bool(found)
            counts["located"] += [(one.get("row"), one.get("column")) for one in found] == [
                (row, column)
            ]
        return {**counts, "bits": len(positions)}


def memory_flips(gpu: Gpu, flips: int, source: random.Random) -> dict[str, int]:
    """Return the counts of flips in words of HBM that hold a random pattern."""
    size = min(MEMORY, gpu.memory()[0] // 2) // 4096 * 4096
    at, result, count = gpu.allocate(size), gpu.allocate(16), size // 8
    counts = {"clean": 0, "false_alarms": 0, "flips": 0, "found": 0, "located": 0}
    gpu.launch_over(count, "burn_pattern_write", at, count, 1, RANDOM)
    for number in range(flips):
        counts["clean"] += 1
        counts["false_alarms"] += _verify(gpu, at, count, RANDOM, 1, result) is not None
        word, bit = source.randrange(count), number % 64
        flip(gpu, at + 8 * word, bit)
        found = _verify(gpu, at, count, RANDOM, 1, result)
        counts["flips"] += 1
        counts["found"] += found is not None
        counts["located"] += found is not None and (found["word"], found["bits"]) == (
            word,
            f"{1 << bit:#x}",
        )
        flip(gpu, at + 8 * word, bit)
    return {**counts, "bits": min(flips, 64)}


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--n", type=int, default=8192)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--address", default="")
    args = parser.parse_args()
    try:
        driver = Driver()
        gpu = Gpu(driver, args.address or first_address(driver))
    except (NoDriverError, CudaError) as error:
        print(f"no GPU: {error}")
        return 77
    if hasattr(driver.library, "simulated_device"):
        print("SIMULATED libraries: nothing below is a measurement")
    print(f"{gpu.name()}, n = {args.n}, seed {args.seed}")
    lt, source, wrong = Lt(find_cublaslt(), driver.version()), random.Random(args.seed), 0
    rows = [(kind, EXACT) for kind in KINDS] + [("bf16", ENTROPY), ("fp8", ENTROPY)]
    for kind, data in [*rows, ("memory", EXACT)]:
        began = time.monotonic()
        if kind == "memory":
            counts = memory_flips(gpu, args.flips, source)
        else:
            counts = Flips(gpu, lt, kind, data, args.n).run(args.flips, source)
        gpu.free_all()
        wrong += counts["found"] != args.flips or counts["located"] != args.flips
        wrong += bool(counts["false_alarms"])
        name = "HBM" if kind == "memory" else f"{kind} {'entropy' if data else 'exact'}"
        print(
            f"{name}: {counts['found']}/{counts['flips']} flips found, {counts['located']} located "
            f"exactly, in {counts['bits']} bit positions; {counts['false_alarms']} false alarms in "
            f"{counts['clean']} clean results; {time.monotonic() - began:.0f} s",
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
