# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading in a child: hangs, crashes and lost GPUs cost only themselves."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.nvml import types as t
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.nvml.sweep import sweep


def indexes(found) -> list[int]:
    return [gpu.index for gpu in found.gpus]


def test_a_healthy_node(simulated_node) -> None:
    found = sweep(simulated_node.library)
    assert indexes(found) == list(range(8))
    assert (found.count, found.driver_version, found.library_version) == (
        8,
        "580.105.08",
        "580.105.08",
    )
    assert found.error == ""
    assert found.stuck == {}


def test_a_gpu_that_hangs_costs_its_own_time_only(simulated_node) -> None:
    simulated_node.state("gpu.3.hang = nvmlDeviceGetSerial\n")
    started = time.monotonic()
    found = sweep(simulated_node.library, 0.5)
    assert time.monotonic() - started < 20
    assert indexes(found) == [0, 1, 2, 4, 5, 6, 7]
    assert found.stuck == {3: "nvmlDeviceGetSerial did not come back within 0.5 s"}


def test_a_crash_inside_the_library(simulated_node) -> None:
    simulated_node.state(
        "gpu.0.crash = nvmlDeviceGetNvLinkState\ngpu.7.crash = nvmlDeviceGetName\n"
    )
    found = sweep(simulated_node.library)
    assert indexes(found) == [1, 2, 3, 4, 5, 6]
    assert found.stuck == {
        0: "nvmlDeviceGetNvLinkState ended the process that called it",
        7: "nvmlDeviceGetName ended the process that called it",
    }


def test_a_library_that_hangs_everywhere_is_given_up(simulated_node) -> None:
    simulated_node.state("gpu.*.hang = nvmlDeviceGetUUID\n")
    found = sweep(simulated_node.library, 0.3)
    assert found.gpus == ()
    assert sorted(found.stuck) == list(range(8))
    assert "not asked" in found.stuck[7]


def test_a_lost_gpu(simulated_node) -> None:
    simulated_node.state("gpu.5.lost = 1\n")
    found = sweep(simulated_node.library)
    assert found.count == 8
    assert [gpu.index for gpu in found.gpus if gpu.lost] == [5]
    assert found.gpus[5].lost_code == t.GPU_IS_LOST
    assert found.gpus[5].pci is None
    assert found.gpus[6].serial == "1650000000007"


def test_a_gpu_that_is_lost_while_it_is_read(simulated_node) -> None:
    simulated_node.state("gpu.5.ret.nvmlDeviceGetPowerUsage = 15\n")
    found = sweep(simulated_node.library)
    assert [gpu.index for gpu in found.gpus if gpu.lost] == [5]
    assert found.gpus[5].pci == "0000:c3:00.0"


@pytest.mark.parametrize(
    ("state", "code", "message"),
    [
        ("driver_loaded = 0\n", t.DRIVER_NOT_LOADED, "driver is not loaded"),
        ("ret.nvmlInit = 18\n", t.LIB_RM_VERSION_MISMATCH, "different versions"),
    ],
)
def test_nvml_that_does_not_start(simulated_node, state: str, code: int, message: str) -> None:
    simulated_node.state(state)
    found = sweep(simulated_node.library)
    assert (found.error_code, found.gpus) == (code, ())
    assert message in found.error


def test_nvml_that_never_starts(simulated_node) -> None:
    simulated_node.state("hang = nvmlInit\n")
    found = sweep(simulated_node.library, 0.3)
    assert found.error == "nvmlInit_v2 did not come back within 0.3 s"
    assert (found.gpus, found.stuck) == ((), {})


def test_no_library(tmp_path: Path) -> None:
    found = sweep(str(tmp_path / "none.so"))
    assert found.error_code == t.LIBRARY_NOT_FOUND


def test_a_library_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "wrong.so").write_text("not a library\n")
    assert sweep(str(tmp_path / "wrong.so")).error_code == t.LIBRARY_NOT_FOUND


def children() -> set[str]:
    """Return the processes below this one; other tests of the same worker may have left some."""
    lists = Path("/proc/self/task").glob("*/children")
    return {pid for one in lists for pid in one.read_text().split()}


def test_nothing_is_left_behind(simulated_node) -> None:
    before, others = len(os.listdir("/proc/self/fd")), children()
    simulated_node.state("gpu.1.hang = nvmlDeviceGetName\n")
    sweep(simulated_node.library, 0.2)
    assert len(os.listdir("/proc/self/fd")) == before
    assert children() <= others
