# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A quick sample of the fault matrix, and its page. All of it is tests/faults/test_matrix.py."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "faults"
sys.path[:0] = [str(FOLDER)]
if not FOLDER.is_dir():
    pytest.skip("the artefact has no fault matrix", allow_module_level=True)

import matrix  # noqa: E402
import page  # noqa: E402

pytestmark = pytest.mark.slow

FAULTS = {fault.name: fault for fault in matrix.load()}
# One of each rig, as far as it takes no load.
SAMPLE = ("gpu_lost", "nvml_missing", "fleet_power_limit", "hca_absent", "mount_stale", "rail_swap",
          "leaf_dead", "pairs_slow_cable", "records_cut", "sdc_without_load")  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> matrix.Matrix:
    if not shutil.which("gcc"):
        pytest.skip("gcc builds the libraries")
    return matrix.Matrix(tmp_path_factory.mktemp("faults"))


def test_the_page_says_what_the_table_says() -> None:
    assert matrix.PAGE.read_text(encoding="utf-8") == page.render(list(FAULTS.values()))


def test_the_table_is_wide_enough() -> None:
    assert len(FAULTS) >= 60
    assert {fault.outcome for fault in FAULTS.values()} == {"fail", "not_measured", "pass"}
    assert len({fault.layer for fault in FAULTS.values()}) >= 15


@pytest.mark.parametrize("name", SAMPLE)
def test_a_fault_is_what_the_table_says(bench: matrix.Matrix, name: str) -> None:
    assert bench.problems(FAULTS[name]) == []


# The runner must notice what it is there for.
@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("gpu_lost", {"fail": (("gpu.access", "gpu:dgx-01/4"),)}, "fail: "),
        ("gpu_lost", {"fail": (), "unsure": (("gpu.access", "gpu:dgx-01/3"),)}, "the fold"),
        ("gpu_lost", {"drains": ("dgx-02",)}, "out are ['dgx-01']"),
        ("gpu_lost", {"fleet": True}, ""),
        ("nvml_missing", {"holds": ()}, "of new nodes ['dgx-01'] stay out"),
        ("records_cut", {"holds": ()}, "of new nodes ['dgx-01'] stay out"),
        ("rail_swap", {"drains": ()}, "out are ['dgx-0004']"),
        ("mount_stale", {"fail": (), "unsure": ()}, "the node drained itself"),
    ],
)
def test_what_differs_is_told(bench: matrix.Matrix, name: str, changes: dict, message: str) -> None:
    reported = bench.problems(dataclasses.replace(FAULTS[name], **changes))
    assert any(message in line for line in reported) if message else reported == []


@pytest.mark.parametrize("rig", ["gpu", "hca", "fabric", "pairs"])
def test_a_healthy_world_is_accused_of_nothing(bench: matrix.Matrix, rig: str) -> None:
    assert matrix.healthy_problems(bench, rig, 1) == []


def test_the_twin_of_a_fault_is_accused_of_nothing_and_the_fault_itself_is(
    bench: matrix.Matrix,
) -> None:
    hot = FAULTS["gpu_hot"]
    assert hot.twin is not None
    assert matrix.accusations(bench, hot.rig, hot.twin.given, "twin") == []
    accused = matrix.accusations(bench, hot.rig, hot.given, "fault")
    assert any("fail gpu.temperature" in line for line in accused)
    assert any("the gate keeps out" in line for line in accused)
