# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The known answers, from three sides: the table (numpy), Python here, and plain arithmetic."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import struct
from collections.abc import Sequence

import pytest
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.module_utils._burn import known_results as golden
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.cublaslt import KINDS
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.plan import SIZES


def value_at(seed: int, index: int, amplitude: int) -> int:
    """Return the operand at a place, an integer in -amplitude..amplitude."""
    upper = golden.mix64((index + (seed + 1) * golden.PHI) & golden.MASK) >> 32
    return ((upper * (2 * amplitude + 1)) >> 32) - amplitude


def weight_at(column: int) -> int:
    """Return the odd weight of a column."""
    return golden.mix64(((column + 1) * golden.PHI + golden.WEIGHT_SEED) & golden.MASK) | 1


def digest(sums: Sequence[int]) -> str:
    """Return the SHA-256 of sums as they are in memory."""
    return hashlib.sha256(struct.pack(f"<{len(sums)}Q", *sums)).hexdigest()


def expected_sums(n: int, amplitude: int, data_set: int) -> list[int]:
    """Return the sum of each row of the exact product mod 2^64; slow, for n up to a few hundred."""
    folded = [0] * n
    for column in range(n):
        weight = weight_at(column)
        for k in range(n):
            folded[k] += value_at(2 * data_set + 1, column * n + k, amplitude) * weight
    rows = [
        sum(value_at(2 * data_set, row * n + k, amplitude) * folded[k] for k in range(n))
        for row in range(n)
    ]
    return [one & golden.MASK for one in rows]


def test_every_size_and_kind_has_a_known_answer():
    wanted = {(n, kind.amplitude) for n in SIZES for kind in KINDS.values()}
    assert set(golden.GOLDEN) == wanted
    answers = [one for four in golden.GOLDEN.values() for one in four]
    assert len(set(answers)) == len(answers) == golden.SETS * len(wanted)


@pytest.mark.parametrize("amplitude", [3, 45, 1 << 19])
def test_the_table_is_what_python_computes(amplitude):
    sums = expected_sums(64, amplitude, 1)
    assert digest(sums) == golden.GOLDEN[64, amplitude][1]


def test_a_row_s_sum_is_that_of_the_plain_product():
    """The long way, for one row: every element as a sum of products, then weighted."""
    n, row, amplitude = 64, 17, 45
    p = [value_at(0, row * n + k, amplitude) for k in range(n)]
    total = 0
    for column in range(n):
        q = [value_at(1, column * n + k, amplitude) for k in range(n)]
        total += sum(a * b for a, b in zip(p, q, strict=True)) * weight_at(column)
    assert total & golden.MASK == expected_sums(n, amplitude, 0)[row]


def test_operands_fill_their_range():
    values = [value_at(3, index, 3) for index in range(2000)]
    assert set(values) == set(range(-3, 4))
    assert abs(sum(values)) < 400


def test_weights_can_be_undone():
    """An odd weight has an inverse mod 2^64, so that no single wrong element can cancel."""
    for column in (0, 1, 63, 16383):
        weight = weight_at(column)
        assert weight % 2 == 1
        assert weight * pow(weight, -1, 1 << 64) & golden.MASK == 1


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_products_of_the_largest_size_are_exact(kind):
    """Bits that a sum may need against those that the accumulator has (fp8: see Kind)."""
    most = kind.amplitude**2 * max(SIZES)
    assert most < {"fp64": 2**53, "fp8": 2**17}.get(kind.name, 2**24)
    fraction = {"bf16": 7, "fp16": 10, "tf32": 10, "fp8": 3, "fp64": 52}[kind.name]
    assert kind.amplitude < 2 ** (fraction + 1)


def test_patterns():
    assert golden.pattern_at(golden.WORD, 0xAA, 5) == 0xAA
    assert golden.pattern_at(golden.ADDRESS, golden.MASK, 5) == golden.MASK ^ 5
    assert golden.pattern_at(golden.RANDOM, 1, 5) != golden.pattern_at(golden.RANDOM, 2, 5)


@pytest.mark.skipif(not shutil.which("gcc"), reason="gcc compiles the element functions")
def test_single_flips_are_found_and_located():
    """A sample of tests/bench/burn_detection.py, on the element functions of the kernels."""
    path = ROOT / "tests" / "bench" / "burn_detection.py"
    spec = importlib.util.spec_from_file_location("burn_detection", path)
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    counts = bench.run(tiles=100, flips=640, n=32, seed=7)
    assert set(counts) == {"exact", "entropy"}
    for one in counts.values():
        assert bench.healthy(one), one
        assert one["flips"] == 640
        assert one["bits"] == 32
    missed = {**counts["exact"], "located": 639}
    assert not bench.healthy(missed)
    assert not bench.healthy({**counts["exact"], "false_alarms": 1})
