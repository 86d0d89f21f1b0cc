# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compute the known answers of gpu_burn with numpy, apart from all code that runs on a GPU.

    python .ci/burn_golden.py [N...]      prints the table of _burn/known_results.py (needs numpy)

For each size, amplitude and data set: the SHA-256 of the rows' sums that the exact product must
have. z = P (Q' w) mod 2^64, so that no product of matrices is ever computed here.
"""

from __future__ import annotations

import hashlib
import sys

import numpy as np

PHI = np.uint64(0x9E3779B97F4A7C15)
WEIGHT_SEED = np.uint64(0xD1B54A32D192ED03)
AMPLITUDES = (3, 45, 1 << 19)
SETS = 4


def mix(x: np.ndarray) -> np.ndarray:
    """Return the finalizer of splitmix64 for each element."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def values(seed: int, first_row: int, rows: int, n: int, amp: int) -> np.ndarray:
    """Return rows x n integers in -amp..amp, as 64-bit words."""
    index = np.arange(first_row * n, (first_row + rows) * n, dtype=np.uint64)
    upper = mix(index + np.uint64(seed + 1) * PHI) >> np.uint64(32)
    scaled = (upper * np.uint64(2 * amp + 1)) >> np.uint64(32)
    return (scaled - np.uint64(amp)).reshape(rows, n)


def golden(n: int, amp: int, data_set: int) -> str:
    """Return the SHA-256 of the expected sums of all rows."""
    weights = mix(np.arange(1, n + 1, dtype=np.uint64) * PHI + WEIGHT_SEED) | np.uint64(1)
    block = min(n, 256)
    folded = np.zeros(n, dtype=np.uint64)
    for row in range(0, n, block):
        q = values(2 * data_set + 1, row, block, n, amp)
        folded += (q * weights[row : row + block, None]).sum(axis=0, dtype=np.uint64)
    sums = [
        (values(2 * data_set, row, block, n, amp) * folded).sum(axis=1, dtype=np.uint64)
        for row in range(0, n, block)
    ]
    return hashlib.sha256(np.concatenate(sums).astype("<u8").tobytes()).hexdigest()


def main() -> None:
    """Print the table."""
    np.seterr(over="ignore")
    for n in map(int, sys.argv[1:] or ("64", "256", "1024", "4096", "8192")):
        for amp in AMPLITUDES:
            print(f"    ({n}, {amp}): (")
            for data_set in range(SETS):
                print(f'        "{golden(n, amp, data_set)}",')
            print("    ),")


if __name__ == "__main__":
    main()
