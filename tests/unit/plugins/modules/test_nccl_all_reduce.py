# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""nccl_all_reduce on a simulated node: real processes for each GPU, simulated libraries in C."""

from __future__ import annotations

import os
import subprocess
import time

import pytest
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.module_utils._nccl.without_mpi.parent import (
    busbw_gbps,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._nccl.without_mpi.rank import shape
from ansible_collections.baremetal.dgx.plugins.modules import nccl_all_reduce

pytestmark = pytest.mark.slow

HARDWARE = ROOT / "virtual_pod" / "hardware"
TOOL = HARDWARE / "all_reduce_perf"
MIB = 1 << 20
# A stand-in for Slurm: it starts all tasks of all nodes here, as srun would there.
SRUN = """#!/bin/sh
echo "$@" > {log}
nodes=1 each=1
while :; do
  case "$1" in
    --nodes=*) nodes=${{1#*=}} ;;
    --ntasks-per-node=*) each=${{1#*=}} ;;
    -*) ;;
    *) break ;;
  esac
  shift
done
tasks=$((nodes * each)) number=0 jobs=
while [ "$number" -lt "$tasks" ]; do
  SLURM_NTASKS=$tasks SLURM_NNODES=$nodes SLURM_PROCID=$number "$@" &
  jobs="$jobs $!"
  number=$((number + 1))
done
status=0
for job in $jobs; do wait "$job" || status=$?; done
exit "$status"
"""


@pytest.fixture(scope="session")
def cuda_libraries(tmp_path_factory):
    """A folder with the simulated libcuda.so.1 and libnccl.so.2."""
    out = tmp_path_factory.mktemp("cuda")
    names = [f"{out}/libcuda.so.1", f"{out}/libnccl.so.2"]
    subprocess.run(["make", "-s", "-C", str(HARDWARE), f"OUT={out}", *names], check=True)
    return out


@pytest.fixture
def all_reduce(run_module, simulated_node, cuda_libraries):
    """`all_reduce(state, **options)` → the answer of the module."""

    def run(state="", check=False, **params):
        simulated_node.state(state)
        options = {
            "nodes": ["dgx-01"],
            "tool": str(TOOL),
            "gpu_type": "h100",
            "nvml_library": simulated_node.library,
            "environment": {"LD_LIBRARY_PATH": str(cuda_libraries)},
            "timeout_s": 60.0,
            **params,
        }
        return run_module(nccl_all_reduce.main, options, check=check)

    return run


@pytest.fixture
def by_ctypes(all_reduce):
    """The same by ctypes alone, with a small message, for which a small threshold is right."""

    def run(state="", **params):
        options = {
            "runner": "ctypes",
            "size_bytes": MIB,
            "first_size_bytes": MIB,
            "busbw_threshold_gbps": 60.0,
            "iterations": 2,
            **params,
        }
        return all_reduce(state, **options)

    return run


def statuses(answer):
    return {f"{r['check']} {r['subject']}": r["status"] for r in answer["records"]}


# nccl-tests on this node


@pytest.mark.parametrize("form", ["old", "new"])
def test_a_good_node(all_reduce, form):
    answer = all_reduce(f"nccl_tests.form = {form}\nnccl_tests.info = 1\n")
    assert answer["runner"] == "nccl_tests"
    assert statuses(answer) == {
        "nccl.correct node:dgx-01": "pass",
        "nccl.busbw node:dgx-01": "pass",
    }
    record = answer["records"][1]
    assert record["measured"]["value"] == pytest.approx(477.62, abs=0.01)
    assert (record["threshold"]["value"], record["threshold"]["unit"]) == (460.0, "GB/s")
    assert "Azure" in record["threshold"]["source"]


def test_one_slow_gpu_slows_all(all_reduce):
    answer = all_reduce("gpu.6.nccl.busbw_gbps = 300")
    assert answer["verdict"] == "fail"
    assert answer["failed"] is True
    assert "must be >= 460.0" in answer["msg"]
    assert "failed" not in all_reduce("gpu.6.nccl.busbw_gbps = 300", fail_on=["not_measured"])


@pytest.mark.parametrize("form", ["old", "new"])
def test_wrong_values_fail_though_fast(all_reduce, form):
    answer = all_reduce(f"nccl_tests.form = {form}\nnccl_tests.wrong = 2\n")
    assert statuses(answer) == {
        "nccl.correct node:dgx-01": "fail",
        "nccl.busbw node:dgx-01": "pass",
    }


def test_a_hang_is_ended_in_time(all_reduce):
    started = time.monotonic()
    answer = all_reduce("nccl_tests.hang = 60", timeout_s=1.5)
    assert time.monotonic() - started < 15
    assert statuses(answer) == {"nccl.run node:dgx-01": "not_measured"}
    assert "it hung" in answer["msg"]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("nccl_tests.truncate = 14", "not measured"),
        ("nccl_tests.stderr = a library says something", "on stderr: a library says something"),
        ("nccl_tests.truncate = 18", "interrupted"),
        ("nccl_tests.error = Cuda failure 802 'system not yet initialized'", "802"),
        ("gpu.3.absent = 1", "Test CUDA failure"),
    ],
)
def test_what_is_no_answer_is_not_measured(all_reduce, state, message):
    answer = all_reduce(state, busy_ok=True)
    assert answer["verdict"] == "not_measured"
    assert message in answer["msg"]
    assert "failed" not in all_reduce(state, busy_ok=True, fail_on=["fail"])


@pytest.mark.parametrize(
    "line",
    [
        "srun: Job 65 step creation temporarily disabled, retrying (Requested nodes are busy)",
        "srun: Job 65 step creation still disabled, retrying (Requested nodes are busy)",
        "srun: Job step creation temporarily disabled, retrying",
        "srun: Step completed in JobId=65, retrying",
        "srun: Step created for job 65",
    ],
)
def test_a_step_that_waited_for_the_one_before_is_a_good_run(all_reduce, line):
    """The groups are steps of one job, one right after the other."""
    assert all_reduce(f"nccl_tests.stderr = {line}", busy_ok=True)["verdict"] == "pass"


def test_a_type_without_a_threshold(all_reduce):
    assert all_reduce("", gpu_type="gb300")["verdict"] == "not_measured"
    answer = all_reduce(
        "", gpu_type="gb300", busbw_threshold_gbps=470.0, threshold_source="our own nodes"
    )
    assert answer["verdict"] == "pass"
    assert answer["records"][1]["threshold"]["source"] == "our own nodes"


def test_gpus_in_use_are_left_alone(all_reduce):
    state = "gpu.1.processes = 1\ngpu.1.process.0.pid = 99\n"
    answer = all_reduce(state)
    assert statuses(answer) == {"nccl.idle node:dgx-01": "not_measured"}
    assert "GPU 1: process 99" in answer["msg"]
    assert all_reduce(state, busy_ok=True)["verdict"] == "pass"


def test_check_mode_says_what_would_run(all_reduce):
    answer = all_reduce("nccl_tests.hang = 60", check=True)
    words = "-b 1073741824 -e 8589934592 -f 2 -g 8 -n 20 -w 5 -c 1"
    assert answer["command"] == [str(TOOL), *words.split()]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": ["a", "b"]}, "launcher: srun"),
        ({"nodes": ["a", "a"], "launcher": "srun"}, "once"),
        ({"launcher": "srun", "runner": "ctypes"}, "this node only"),
        ({"first_size_bytes": 3 * MIB}, "doubled"),
        ({"first_size_bytes": 16 << 30}, "not above"),
        ({"runner": "ctypes", "size_bytes": 1000, "first_size_bytes": 500}, "multiple of 32768"),
        ({"iterations": 0}, "positive"),
    ],
)
def test_options_that_make_no_sense(all_reduce, options, message):
    answer = all_reduce("", check=True, **options)
    assert answer["failed"] is True
    assert message in answer["msg"]


def test_the_simulated_tool_refuses_what_it_does_not_know():
    for words in (["-b", "8G", "--blocking", "1"], ["-b", "lots"], ["-f", "1"]):
        done = subprocess.run([TOOL, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "simulated" in done.stderr


# Through Slurm


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A srun in the path; returns the file that has what it was asked for."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "srun").write_text(SRUN.format(log=tmp_path / "asked"))
    (folder / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return tmp_path / "asked"


def test_two_nodes_by_srun_in_a_container(all_reduce, slurm):
    answer = all_reduce(
        "",
        nodes=["dgx-01", "dgx-02"],
        launcher="srun",
        gpus_per_node=4,
        busbw_threshold_gbps=440.0,
        container_image="/shared/pytorch.sqsh",
        container_mounts="/shared:/shared",
        slurm_options=["--partition=test"],
    )
    assert statuses(answer) == {
        "nccl.correct nodes:dgx-01,dgx-02": "pass",
        "nccl.busbw nodes:dgx-01,dgx-02": "pass",
    }
    asked = slurm.read_text().split()
    for word in (
        "--nodes=2", "--nodelist=dgx-01,dgx-02", "--ntasks-per-node=4", "--gres=gpu:4",
        "--exclusive", "--mpi=pmix", "--container-image=/shared/pytorch.sqsh",
        "--container-mounts=/shared:/shared", "--partition=test", "--time=2", "--immediate=60",
    ):  # fmt: skip
        assert word in asked
    assert asked[asked.index("-g") + 1] == "1"


def test_a_build_without_mpi_is_no_good_run(all_reduce, slurm):
    answer = all_reduce("nccl_tests.mpi = 0", launcher="srun", gpus_per_node=4)
    assert answer["verdict"] == "not_measured"
    assert "1 of 4 ranks took part" in answer["msg"]
    assert slurm.exists()


# By ctypes


def test_by_ctypes_every_gpu_is_verified(by_ctypes):
    answer = by_ctypes()
    wanted = {f"nccl.correct gpu:dgx-01/{gpu}": "pass" for gpu in range(8)}
    assert statuses(answer) == {**wanted, "nccl.busbw node:dgx-01": "pass"}
    record = answer["records"][-1]
    # 20 us and the time of 1 MiB at 478 GB/s.
    assert record["measured"]["value"] == pytest.approx(76.98, abs=0.02)
    assert record["evidence"][0] == "NCCL 2.27.3"
    assert "PCI 0000:1b:00.0" in answer["records"][0]["evidence"][0]


def test_ranks_start_from_the_archive_of_a_module(by_ctypes, tmp_path, monkeypatch):
    # Ansible's archive has a sitecustomize that plain Python cannot read.
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "sitecustomize.py").write_text("\\ no Python\n")
    monkeypatch.syspath_prepend(str(tmp_path / "archive"))
    assert by_ctypes()["verdict"] == "pass"


def test_without_nccl_tests_ctypes_takes_over(by_ctypes):
    answer = by_ctypes(runner="auto", tool="all_reduce_perf_is_not_here")
    assert answer["runner"] == "ctypes"
    assert answer["verdict"] == "pass"
    answer = by_ctypes(runner="nccl_tests", tool="all_reduce_perf_is_not_here")
    assert answer["verdict"] == "not_measured"
    assert "not installed" in answer["msg"]


def test_one_wrong_bit_is_found_on_its_gpu(by_ctypes):
    # The first and the last element, the lowest bit, the sign, one of the exponent.
    flips = {1: (0, 0), 3: (777, 3), 4: (262143, 31), 7: (131072, 23)}
    answer = by_ctypes("".join(f"gpu.{gpu}.nccl.flip = {i} {b}\n" for gpu, (i, b) in flips.items()))
    bad = {r["subject"]: r for r in answer["records"] if r["status"] == "fail"}
    assert list(bad) == [f"gpu:dgx-01/{gpu}" for gpu in flips]
    for gpu, (element, _bit) in flips.items():
        record = bad[f"gpu:dgx-01/{gpu}"]
        assert record["check"] == "nccl.correct"
        assert f"element {element} is " in record["text"]
    assert "PCI 0000:61:00.0" in bad["gpu:dgx-01/3"]["evidence"][0]


def test_what_nccl_says_is_received(by_ctypes):
    answer = by_ctypes("gpu.2.nccl.say = n:1:1 [2] NCCL WARN something is odd")
    assert statuses(answer) == {"nccl.run node:dgx-01": "not_measured"}
    assert "gpu:dgx-01/2: n:1:1 [2] NCCL WARN something is odd" in answer["msg"]
    assert by_ctypes("gpu.2.nccl.say = n:1:1 [2] NCCL INFO all is well")["verdict"] == "pass"


def test_a_slow_gpu_fails_the_node(by_ctypes):
    answer = by_ctypes("gpu.2.nccl.busbw_gbps = 20")
    bad = {key: status for key, status in statuses(answer).items() if status != "pass"}
    assert bad == {"nccl.busbw node:dgx-01": "fail"}


@pytest.mark.parametrize("function", ["ncclAllReduce", "ncclCommInitRank"])
def test_a_rank_that_hangs_is_killed_and_blames_none(by_ctypes, function):
    started = time.monotonic()
    answer = by_ctypes(f"gpu.5.hang = {function}", timeout_s=6.0)
    assert time.monotonic() - started < 40
    assert statuses(answer) == {"nccl.run node:dgx-01": "not_measured"}
    (record,) = answer["records"]
    assert record["text"] == "it hung and was ended"
    assert next(line for line in record["evidence"] if function in line).startswith("gpu:dgx-01/0")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("gpu.4.ret.ncclCommInitRank = 2", "ncclCommInitRank: unhandled system error"),
        ("gpu.4.ret.ncclAllReduce = 1", "ncclAllReduce: unhandled cuda error"),
        ("ret.ncclGetUniqueId = 3", "ncclGetUniqueId: internal error"),
        ("gpu.4.nccl.async_error = 6\ngpu.6.hang = ncclAllReduce", "remote process exited"),
        ("gpu.4.ret.cuMemAlloc_v2 = 2", "CUDA_ERROR_OUT_OF_MEMORY"),
        ("ret.cuInit = 802", "CUDA_ERROR_SYSTEM_NOT_READY"),
    ],
)
def test_an_error_of_one_rank_ends_all(by_ctypes, state, message):
    started = time.monotonic()
    answer = by_ctypes(state)
    # The others would wait for the whole limit, and are not let.
    assert time.monotonic() - started < 40
    assert answer["verdict"] == "not_measured"
    assert message in answer["msg"]


def test_libraries_that_are_not_there(by_ctypes, tmp_path):
    answer = by_ctypes(nccl_library="/nowhere/libnccl.so.2")
    assert "install libnccl2" in answer["msg"]
    answer = by_ctypes(gpus_per_node=9)
    assert "8 of 9 GPUs can be used" in answer["msg"]
    answer = by_ctypes("gpu.5.lost = 1", busy_ok=True)
    assert "7 of 8 GPUs can be used" in answer["msg"]


def test_the_shape_of_a_message():
    for size in (32768, MIB, 1 << 30, 8 << 30, 96 << 20):
        rows, columns = shape(size)
        assert rows * columns * 4 == size
        assert rows % 8 == 0
        assert columns % 4 == 0
    assert shape(8 << 30) == (32768, 65536)
    for size in (0, -32768, 1000, 32769):
        with pytest.raises(ValueError, match="multiple of 32768"):
            shape(size)


def test_bus_bandwidth_is_that_of_nccl_tests():
    # A line of a real table: 1 GiB over 16 ranks in 4478.8 us is 449.51 GB/s.
    assert busbw_gbps(1 << 30, 4478.8, 16) == pytest.approx(449.51, abs=0.01)
