# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dcgm_diag on a simulated node: NVML in C, dcgmi as a program, faults in the state file."""

from __future__ import annotations

import subprocess
import time

import pytest
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.modules import dcgm_diag

pytestmark = pytest.mark.slow

TOOL = ROOT / "virtual_pod" / "hardware" / "dcgmi"


@pytest.fixture
def diag(run_module, simulated_node):
    """`diag(state, **options)` → the answer of the module."""

    def run(state="", check=False, **params):
        simulated_node.state(state)
        options = {
            "node": "dgx-01",
            "tool": str(TOOL),
            "nvml_library": simulated_node.library,
            "expected_gpus": 8,
            **params,
        }
        return run_module(dcgm_diag.main, options, check=check)

    return run


def bad(answer):
    return {(r["check"], r["subject"]): r for r in answer["records"] if r["status"] != "pass"}


@pytest.mark.parametrize("version", ["3.3.9", "4.4.1"])
def test_a_healthy_node_passes_levels_1_and_2(diag, version):
    answer = diag(f"dcgm.version = {version}", level=2)
    assert answer["verdict"] == "pass"
    assert answer["dcgm_version"] == version
    assert answer["counts"]["not_measured"] == 0
    subjects = {r["subject"] for r in answer["records"] if r["check"] == "dcgm.pcie"}
    assert subjects == {f"gpu:dgx-01/{gpu}" for gpu in range(8)}


@pytest.mark.parametrize("version", ["3.3.9", "4.4.1"])
def test_a_failure_of_the_last_gpu_names_it(diag, version):
    state = f"dcgm.version = {version}\ngpu.7.dcgm.pcie = Fail\n"
    answer = diag(state, level=2)
    assert answer["failed"] is True
    assert answer["gpus_failed"] == ["gpu:dgx-01/7"]
    assert list(bad(answer)) == [("dcgm.pcie", "gpu:dgx-01/7")]
    (line,) = answer["findings"]
    assert line.startswith("gpu:dgx-01/7 dcgm.pcie: pcie found an error on GPU 7.; do: replace:")
    if version.startswith("4"):
        record = bad(answer)["dcgm.pcie", "gpu:dgx-01/7"]
        assert "PCI 0000:df:00.0" in record["evidence"][0]
        assert "serial 1650000000008" in record["evidence"][0]


@pytest.mark.parametrize("version", ["3.3.9", "4.4.1"])
def test_persistence_off_is_of_the_node(diag, version):
    answer = diag(f"dcgm.version = {version}\ngpu.2.persistence = 0\n")
    assert answer["verdict"] == "fail"
    assert answer["gpus_failed"] == []
    assert list(bad(answer)) == [("dcgm.settings", "node:dgx-01")]
    assert diag("gpu.2.persistence = 0", fail_on=["not_measured"])["verdict"] == "fail"


def test_what_was_skipped_is_not_measured(diag):
    answer = diag("", level=3)
    assert answer["verdict"] == "not_measured"
    assert {check for check, _subject in bad(answer)} == {"dcgm.eud"}
    answer = diag("", level=3, skips_ok=["eud"])
    assert answer["verdict"] == "pass"
    assert len(answer["left_out"]) == 8
    # A failure is not a skip.
    answer = diag("gpu.1.dcgm.eud = Fail", level=3, skips_ok=["eud"])
    assert answer["gpus_failed"] == ["gpu:dgx-01/1"]


def test_a_hang_is_ended_in_time_and_fails_none(diag):
    started = time.monotonic()
    answer = diag("dcgm.hang = 60", timeout_s=1.0)
    assert time.monotonic() - started < 10
    assert answer["verdict"] == "not_measured"
    assert "restart nvidia-dcgm" in answer["msg"]
    assert answer["gpus_failed"] == []


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("dcgm.host_engine = down", "systemctl start nvidia-dcgm"),
        ("dcgm.truncate = 900", "truncated"),
        ("dcgm.runtime_error = the driver is not recommended", "the driver is not recommended"),
        ("dcgm.stderr = a plug-in says something", "on stderr: a plug-in says something"),
        ("dcgm.stdout = NVRM: strange", "unexpected text: NVRM: strange"),
        ("dcgm.rc = 3", "ended with 3 but names no failure"),
        ("dcgm.missing = pcie", "level 2 has no result of it"),
        ("gpu.6.absent = 1", "DCGM tested 7 GPUs of 8"),
        ("gpu.3.dcgm.memory = Not Run", "says 'Not Run'"),
    ],
)
def test_what_is_no_answer_is_not_measured(diag, state, message):
    answer = diag(state, level=2, busy_ok=True)
    assert answer["verdict"] == "not_measured"
    assert answer["failed"] is True
    assert message in answer["msg"]
    assert answer["gpus_failed"] == []
    assert "failed" not in diag(state, level=2, busy_ok=True, fail_on=["fail"])


def test_dcgmi_is_not_installed(diag):
    answer = diag("", tool="dcgmi-that-is-not-there")
    assert answer["verdict"] == "not_measured"
    assert "run the role dcgm" in answer["msg"]


def test_gpus_in_use_are_left_alone(diag):
    state = "gpu.4.processes = 1\ngpu.4.process.0.pid = 4711\n"
    answer = diag(state, level=2)
    assert answer["verdict"] == "not_measured"
    assert "GPU 4: process 4711" in answer["msg"]
    assert diag(state, level=2, busy_ok=True)["verdict"] == "pass"
    # Level 1 loads nothing.
    assert diag(state, level=1)["verdict"] == "pass"
    answer = diag("", level=2, nvml_library="/nowhere/libnvidia-ml.so.1")
    assert "not known" in answer["msg"]


def test_a_lost_gpu_is_named(diag):
    answer = diag("gpu.5.lost = 1", level=1)
    assert answer["gpus_failed"] == ["gpu:dgx-01/5"]


def test_check_mode_runs_nothing(diag):
    answer = diag("dcgm.hang = 60", level=4, check=True, parameters={"memtest.test_duration": 60})
    assert answer["command"][1:] == ["diag", "-r", "4", "-j", "-p", "memtest.test_duration=60"]
    assert answer["verdict"] == "not_measured"


@pytest.mark.parametrize(
    "words", [["diag", "-r", "1"], ["diag", "-r", "9", "-j"], ["diag", "-j", "--fast"], ["health"]]
)
def test_the_simulated_tool_refuses_what_it_does_not_know(words):
    done = subprocess.run([TOOL, *words], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "simulated" in done.stderr
