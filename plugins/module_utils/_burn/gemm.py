# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Products under load, every row of each checked on the GPU.

Exact: integer operands whose products are exact in any order of summation. The weighted sum of each
row mod 2^64 must be what integer arithmetic says, and that is compared with a known answer.
Entropy: operands that toggle many bits, whose products are the same bits every time. The first
product is made until two agree; all others are compared with it, and its sums with other GPUs.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
from dataclasses import dataclass
from typing import Any, Callable

from .._core.files import write_atomic
from .._gpu.cuda import Gpu
from .cublaslt import KINDS, Lt, Product
from .known_results import GOLDEN, SETS

EXACT, ENTROPY = 0, 1
# Seeds of the second mode lie apart from those of the first.
_ENTROPY_SEED = 1000
_NONE = (1 << 64) - 1
_ROWS = 8
_FRESH = struct.pack("<4Q", 0, _NONE, 0, 0)
# Errors of a phase that are reported one by one; the rest are counted.
MOST_TOLD = 20
_BEAT_S = 1.0

Report = Callable[..., None]


class NotEnoughMemoryError(Exception):
    """Not even one product fits."""


@dataclass(frozen=True)
class GemmTask:
    """What to run: `data` is EXACT or ENTROPY; `pulse_s` > 0 works and rests in turn so long."""

    phase: str
    kind: str
    n: int
    data: int
    seconds: float
    memory_bytes: int
    most_batch: int = 32
    pulse_s: float = 0.0
    folder: str = ""


@dataclass
class _Slot:
    p: int
    q: int
    c: int
    data_set: int


class Gemm:
    """One phase on one GPU. Raises CudaError, LtError, NotEnoughMemoryError."""

    def __init__(self, gpu: Gpu, lt: Lt, task: GemmTask, report: Report) -> None:
        self.gpu, self.task, self.report = gpu, task, report
        self.kind, n = KINDS[task.kind], task.n
        self.words = n * self.kind.result_width // 4
        self.exact = task.data == EXACT
        self.product = Product(lt, gpu, self.kind, n, Product.WORKSPACE)
        self.weights = gpu.allocate(8 * self.words)
        gpu.launch_over(self.words, "burn_weights", self.weights, self.words)
        self.errors = 0
        self._sets()
        self._slots()

    def _seeds(self, data_set: int) -> tuple[int, int]:
        base = 0 if self.exact else _ENTROPY_SEED
        return base + 2 * data_set, base + 2 * data_set + 1

    def _sets(self) -> None:
        """Make the expected sums of each data set; in the second mode they are made later."""
        n, gpu, kind = self.task.n, self.gpu, self.kind
        self.expected = [gpu.allocate(8 * n) for _each in range(SETS)]
        self.columns: list[bytes] = []
        if not self.exact:
            return
        folded = gpu.allocate(8 * n)
        known = GOLDEN.get((n, kind.amplitude))
        for data_set, expected in enumerate(self.expected):
            seed_p, seed_q = self._seeds(data_set)
            gpu.zero(folded, 8 * n)
            grid = (gpu.blocks(n), min(64, n))
            gpu.launch("burn_fold", grid, folded, n, n, seed_q, kind.amplitude)
            gpu.launch("burn_expect", (n, 1), expected, folded, n, seed_p, kind.amplitude)
            found = hashlib.sha256(gpu.read(expected, 8 * n)).hexdigest()
            if known is not None and found != known[data_set]:
                self.errors += 1
                self.report("error", what="known_answer", data_set=data_set, found=found)
        self.report("known_answer", there=known is not None, kind=kind.name, n=n)

    def _slots(self) -> None:
        """Fill the memory that may be used with operands and room for results."""
        n, gpu, kind = self.task.n, self.gpu, self.kind
        operand, result = n * n * kind.width, n * n * kind.result_width
        room = min(self.task.memory_bytes, gpu.memory()[0])
        room -= 16 * 8 * (n + self.words) + 40 * self.task.most_batch * n
        count = int(room // (2 * operand + result))
        if count < 1:
            need = (2 * operand + result) >> 20
            raise NotEnoughMemoryError(
                f"a {kind.name} product of size {n} needs {need} MiB, {max(0, room) >> 20} are free"
            )
        self.slots = []
        for number in range(count):
            data_set = number % SETS
            p, q, c = (gpu.allocate(size) for size in (operand, operand, result))
            slot = _Slot(p, q, c, data_set)
            for at, seed in zip((slot.p, slot.q), self._seeds(data_set)):
                gpu.launch_over(
                    n * n,
                    "burn_fill",
                    at,
                    n * n,
                    seed,
                    kind.amplitude,
                    kind.code,
                    self.task.data,
                )
            self.slots.append(slot)
        self.batch = min(self.task.most_batch, count)
        self.sums = [gpu.allocate(8 * n) for _each in range(self.batch)]
        self.results = gpu.allocate(32 * self.batch)
        gpu.synchronize()

    def _check(self, slot: _Slot, sums: int, result: int, compare: bool = True) -> None:
        n = self.task.n
        expected = self.expected[slot.data_set] if compare else 0
        if not self.exact:
            name, grid, width = "burn_hash_rows", n // _ROWS, self.words
        elif self.kind.result_width == 8:
            name, grid, width = "burn_check_double", n, n
        else:
            name, grid, width = "burn_check_float", n // _ROWS, n
        self.gpu.launch(name, (grid, 1), slot.c, self.weights, expected, sums, result, width)

    def _column_sums(self, c: int) -> bytes:
        at = self.sums_of_columns
        self.gpu.zero(at, 8 * self.words)
        grid = (self.gpu.blocks(self.words), min(64, self.task.n))
        self.gpu.launch("burn_hash_columns", grid, c, self.weights, at, self.task.n, self.words)
        return self.gpu.read(at, 8 * self.words)

    def prepare(self) -> None:
        """Settle what the second mode compares with, and tell its digests."""
        if self.exact:
            return
        n, gpu = self.task.n, self.gpu
        self.sums_of_columns = gpu.allocate(8 * self.words)
        for data_set in range(min(SETS, len(self.slots))):
            slot = self.slots[data_set]
            seen: list[tuple[bytes, bytes]] = []
            # Two equal answers: a single flip in the first must not fail all that follow.
            while len(seen) < 3 and not (len(seen) == 2 and seen[0][0] == seen[1][0]):
                self.product.start(slot.p, slot.q, slot.c)
                self._check(slot, self.sums[0], self.results, compare=False)
                rows = gpu.read(self.sums[0], 8 * n)
                seen.append((rows, self._column_sums(slot.c)))
            good = next((one for one in seen if sum(one[0] == x[0] for x in seen) > 1), seen[0])
            for rows, columns in seen:
                if rows != good[0]:
                    self._tell_difference(data_set, rows, good[0], columns, good[1])
            gpu.write(self.expected[data_set], good[0])
            self.columns.append(good[1])
            self._keep(data_set, good[0] + good[1])

    def _keep(self, data_set: int, sums: bytes) -> None:
        """Keep the sums for the comparison with other GPUs, and tell their digest."""
        name = ""
        if self.task.folder:
            name = f"sums-{self.gpu.address.replace(':', '_')}-{self.task.phase}-{data_set}"
            path = os.path.join(self.task.folder, name)
            write_atomic(path, sums, sync=False)
        self.report(
            "digest",
            data_set=data_set,
            digest=hashlib.sha256(sums).hexdigest(),
            algorithm=self.product.algorithm,
            file=name,
            n=self.task.n,
        )

    def run(self) -> None:
        """Compute and check until the time is up, and tell once a second how it goes."""
        gpu = self.gpu
        start, middle, end = gpu.event(), gpu.event(), gpu.event()
        started = beat = time.monotonic()
        products, product_ms, check_ms, at = 0, 0.0, 0.0, 0
        flop = 2.0 * self.task.n**3
        while True:
            batch = [self.slots[(at + i) % len(self.slots)] for i in range(self.batch)]
            at = (at + self.batch) % len(self.slots)
            gpu.write(self.results, _FRESH * self.batch)
            gpu.record(start)
            for slot in batch:
                self.product.start(slot.p, slot.q, slot.c)
            gpu.record(middle)
            for i, slot in enumerate(batch):
                self._check(slot, self.sums[i], self.results + 32 * i)
            gpu.record(end)
            gpu.wait(end)
            product_ms += gpu.elapsed_ms(start, middle)
            check_ms += gpu.elapsed_ms(middle, end)
            products += self.batch
            found = struct.unpack(f"<{4 * self.batch}Q", gpu.read(self.results, 32 * self.batch))
            for i, slot in enumerate(batch):
                if found[4 * i]:
                    self._tell(slot, i, found[4 * i : 4 * i + 3], products)
            now = time.monotonic()
            over = now - started >= self.task.seconds
            if over or now - beat >= _BEAT_S:
                self.report(
                    "beat",
                    products=products,
                    flop=products * flop,
                    product_ms=product_ms,
                    check_ms=check_ms,
                    bytes_in_use=len(self.slots) * self._slot_bytes(),
                )
                beat, products, product_ms, check_ms = now, 0, 0.0, 0.0
            if over:
                return
            self._rest()

    def _slot_bytes(self) -> int:
        return self.task.n**2 * (2 * self.kind.width + self.kind.result_width)

    def _rest(self) -> None:
        """Rest in every second interval of the wall clock, so that all GPUs step at once."""
        pulse = self.task.pulse_s
        if pulse > 0:
            phase = time.time() % (2 * pulse)
            if phase > pulse:
                time.sleep(2 * pulse - phase)

    def _tell(self, slot: _Slot, i: int, found: tuple[int, ...], products: int) -> None:
        """Locate what is wrong in a result and report it."""
        self.errors += 1
        if self.errors > MOST_TOLD:
            self.report("error", what="more", rows=found[0])
            return
        n, row = self.task.n, found[1]
        sums = self.gpu.read(self.sums[i], 8 * n)
        if not self.exact:
            good = self.gpu.read(self.expected[slot.data_set], 8 * n)
            columns = self._column_sums(slot.c)
            self._tell_difference(slot.data_set, sums, good, columns, self.columns[slot.data_set])
            return
        elements = self._wrong_elements(slot, row)
        self.report(
            "error",
            what="product",
            data_set=slot.data_set,
            rows=found[0],
            impossible_rows=found[2],
            row=row,
            column=elements[0]["column"] if elements else None,
            elements=elements[:8],
            wrong_in_row=len(elements),
            sums=hashlib.sha256(sums).hexdigest(),
            after_products=products,
        )

    def _wrong_elements(self, slot: _Slot, row: int) -> list[dict[str, Any]]:
        """Compare each element of a row with its exact value."""
        n, width = self.task.n, self.kind.result_width
        exact_at = self.gpu.allocate(8 * n)
        seed_p, seed_q = self._seeds(slot.data_set)
        self.gpu.launch(
            "burn_expect_row", (n, 1), exact_at, row, n, seed_p, seed_q, self.kind.amplitude
        )
        exact = struct.unpack(f"<{n}q", self.gpu.read(exact_at, 8 * n))
        raw = self.gpu.read(slot.c + row * n * width, n * width)
        number, word = ("d", "Q") if width == 8 else ("f", "I")
        wanted = struct.unpack(f"<{n}{word}", struct.pack(f"<{n}{number}", *exact))
        got, values = struct.unpack(f"<{n}{word}", raw), struct.unpack(f"<{n}{number}", raw)
        return [
            {
                "column": column,
                "got": repr(values[column]),
                "wanted": exact[column],
                "bits": f"{got[column] ^ wanted[column]:#x}",
            }
            for column in range(n)
            if got[column] != wanted[column]
        ]

    def _tell_difference(
        self, data_set: int, rows: bytes, good_rows: bytes, columns: bytes, good_columns: bytes
    ) -> None:
        """Report rows and columns whose raw sums differ."""
        bad_rows = differing(rows, good_rows)
        bad_words = differing(columns, good_columns)
        words = self.kind.result_width // 4
        self.report(
            "error",
            what="bits",
            data_set=data_set,
            rows=len(bad_rows),
            row=bad_rows[0] if bad_rows else None,
            column=bad_words[0] // words if bad_words else None,
            wrong_columns=len({word // words for word in bad_words}),
            sums=hashlib.sha256(rows).hexdigest(),
        )


def differing(one: bytes, other: bytes) -> list[int]:
    """Return which 64-bit words of two arrays differ."""
    return [at // 8 for at in range(0, len(one), 8) if one[at : at + 8] != other[at : at + 8]]
