# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every fault of the matrix, and the healthy runs: what happens is what the page says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parent)]

import matrix  # noqa: E402

FAULTS = matrix.load()
TWINS = [fault for fault in FAULTS if fault.twin is not None]
SOUND = [(rig, seed) for rig, count in matrix.SOUND.items() for seed in range(count)]


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> matrix.Matrix:
    return matrix.Matrix(tmp_path_factory.mktemp("faults"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_what_the_table_says(bench: matrix.Matrix, fault: matrix.Fault) -> None:
    assert bench.problems(fault) == []


@pytest.mark.parametrize(("rig", "seed"), SOUND)
def test_a_healthy_world_is_accused_of_nothing(bench: matrix.Matrix, rig: str, seed: int) -> None:
    assert matrix.healthy_problems(bench, rig, seed) == []


@pytest.mark.parametrize("fault", TWINS, ids=lambda fault: fault.name)
def test_the_harmless_twin_of_a_fault_is_accused_of_nothing(
    bench: matrix.Matrix, fault: matrix.Fault
) -> None:
    assert fault.twin is not None
    assert matrix.accusations(bench, fault.rig, fault.twin.given, fault.name) == []
