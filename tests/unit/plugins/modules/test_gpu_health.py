# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_info and gpu_health on a simulated node."""

from __future__ import annotations

import json
import os
import resource
import socket

import pytest

from ansible_collections.baremetal.dgx.plugins.modules import gpu_health, gpu_info
from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.profiles import (
    BUILT_IN,
)


@pytest.fixture
def health(run_module, simulated_node):
    def run(check=False, **params):
        options = {
            "node": "dgx-01",
            "profile": BUILT_IN["dgx_h100"],
            "library": simulated_node.library,
            "kernel_log": str(simulated_node.kernel_log),
            "fabric_manager": simulated_node.fabric_manager,
            "sysfs": simulated_node.sysfs,
            "proc": simulated_node.proc,
            "timeout_s": 5,
            **params,
        }
        return run_module(gpu_health.main, options, check)

    run.node = simulated_node
    return run


def test_a_healthy_node_passes(health):
    answer = health()
    assert answer["verdict"] == "pass"
    assert answer["findings"] == answer["not_measured"] == []
    assert answer["actions"] == {}
    assert answer["changed"] is False
    assert all(record["at"].endswith("Z") and record["took_s"] > 0 for record in answer["records"])
    json.dumps(answer)


def test_a_finding_fails_the_task_and_names_gpu_and_action(health):
    health.node.inject("nvlink_down")
    answer = health()
    assert answer["failed"]
    assert answer["msg"].startswith("gpu:dgx-01/6 gpu.nvlink_active is 17 links (must be == 18)")
    assert "down: 7" in answer["msg"]
    assert answer["actions"] == {"gpu:dgx-01/6": "reset"}
    (record,) = [record for record in answer["records"] if record["status"] == "fail"]
    assert record["threshold"]["source"] == "profile of the node"
    assert "serial 1650000000007" in record["evidence"][0]


def test_the_caller_may_decide_and_check_mode_fails_nothing(health):
    health.node.inject("hot")
    assert health(fail_on=[]).get("failed") is None
    answer = health(check=True)
    assert answer.get("failed") is None
    assert len(answer["findings"]) == 2


def test_the_release_of_the_fabric_manager_comes_from_its_program(health):
    health.node.inject("fm_mismatch")
    answer = health(fail_on=[])
    assert answer["actions"] == {"node:dgx-01": "settings"}
    assert "580.126.09" in answer["findings"][0]


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        ("echo '  MIG 7g.80gb     Device  0: (UUID: MIG-1)'", "pass", "7g.80gb"),
        ("true", "fail", "none"),
        ("echo 'Failed to initialize NVML'; exit 255", "not_measured", "ended with 255"),
    ],
)
def test_the_instances_of_a_gpu_come_from_nvidia_smi(
    health, monkeypatch, tmp_path, script, status, words
):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho 'GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-3)'\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    health.node.state("gpu.3.mig = 1\n")
    profile = BUILT_IN["dgx_h100"]
    profile = {**profile, "gpus": {**profile["gpus"], "mig": {"3": ["7g.80gb"]}}}
    answer = health(profile=profile, fail_on=[])
    (record,) = [one for one in answer["records"] if one["check"] == "gpu.mig_instances"]
    assert (record["subject"], record["status"]) == ("gpu:dgx-01/3", status)
    assert words in (record["text"] if record["measured"] is None else record["measured"]["value"])
    assert answer["verdict"] == status


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'error while loading shared libraries'; exit 127", "ended with 127"),
        ("echo 'no release here'", "no release here"),
        ("sleep 30", "did not end within"),
    ],
)
def test_a_fabric_manager_that_tells_nothing(health, script, message):
    tool = health.node.folder / "broken"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    answer = health(fabric_manager=str(tool), timeout_s=1)
    assert answer["findings"] == []
    (line,) = answer["not_measured"]
    assert message in line


def test_tools_and_files_that_are_not_there(health):
    answer = health(
        fabric_manager="no-such-program",
        kernel_log=str(health.node.folder / "none"),
        library=str(health.node.folder / "none.so"),
    )
    assert answer["findings"] == []
    assert answer["verdict"] == "not_measured"
    text = "\n".join(answer["not_measured"])
    assert "no-such-program is not installed" in text
    assert "none.so" in text
    assert "No such file or directory" in text


def test_a_node_without_anything_measures_nothing(health):
    answer = health(
        sysfs=str(health.node.folder / "none"),
        proc=str(health.node.folder / "none"),
        library=str(health.node.folder / "none.so"),
        fabric_manager="no-such-program",
    )
    assert answer["findings"] == []
    assert answer["verdict"] == "not_measured"


def test_the_host_name_is_the_node(health):
    subjects = {record["subject"] for record in health(node="")["records"]}
    assert f"node:{socket.gethostname().split('.')[0]}" in subjects


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"thresholds": {"gpu.colour": 3}},
            "thresholds.gpu.colour: no check of gpu_health is called",
        ),
        (
            {"thresholds": {"gpu.power_limit": "fast"}},
            "thresholds.gpu.power_limit: a number is wan",
        ),
        ({"thresholds": {"gpu.persistence": True}}, "thresholds.gpu.persistence: text is wanted"),
        ({"thresholds": {"gpu.identity": 1}}, "thresholds.gpu.identity: true or false is wanted"),
        ({"thresholds": {"gpu.count": "eight"}}, "thresholds.gpu.count: a number is wanted"),
        (
            {"thresholds": {"gpu.model": ["x"]}},
            "thresholds.gpu.model: a text or a number is wanted",
        ),
        ({"profile": {"gpus": {"count": 4, "pci": ["1b:00.0"]}}}, "gpus.count is 4"),
        ({"profile": {"gpus": {"count": "eight"}}}, "eight"),
    ],
)
def test_options_that_make_no_sense(health, params, message):
    answer = health(**params)
    assert answer["failed"]
    assert message in answer["msg"]


def test_recorded_identities_and_thresholds(health):
    known = {"pci": "61:00.0", "uuid": "GPU-other", "serial": "1"}
    answer = health(identities=[known], thresholds={"gpu.power_limit": 800}, fail_on=[])
    checks = [line.split()[1] for line in answer["findings"]]
    assert sorted(set(checks)) == ["gpu.identity", "gpu.power_limit"]
    assert checks.count("gpu.identity") == 1


def test_info(run_module, simulated_node):
    simulated_node.state("gpu.5.lost = 1\ngpu.2.pcie_width = 8\ngpu.6.hang = nvmlDeviceGetUUID\n")
    answer = run_module(
        gpu_info.main,
        {
            "library": simulated_node.library,
            "sysfs": simulated_node.sysfs,
            "proc": simulated_node.proc,
            "timeout_s": 1,
        },
    )
    assert answer["count"] == 8
    assert [gpu["index"] for gpu in answer["gpus"]] == [0, 1, 2, 3, 4, 5, 7]
    assert answer["gpus"][5]["lost"] == "the GPU has fallen off the bus"
    assert answer["gpus"][2]["pcie_links"][0]["width"] == 8
    assert answer["gpus"][2]["pcie_links"][0]["able_width"] == 16
    assert (answer["gpus"][4]["numa"], answer["gpus"][4]["kernel_driver"]) == (1, "nvidia")
    assert len(answer["nvswitches"]) == 4
    assert list(answer["stuck"]) == ["6"]
    assert (answer["driver_version"], answer["module_version"]) == ("580.105.08",) * 2
    assert answer["open_module"] is True
    assert len(answer["pci"]) == 8
    json.dumps(answer)


def test_it_takes_little_time(health, slowness):
    """Processor time of this process and its children, since others may be using this machine."""

    def used() -> float:
        mine = resource.getrusage(resource.RUSAGE_SELF)
        theirs = resource.getrusage(resource.RUSAGE_CHILDREN)
        return mine.ru_utime + mine.ru_stime + theirs.ru_utime + theirs.ru_stime

    health()
    before = used()
    assert health()["verdict"] == "pass"
    taken = used() - before
    assert taken < 0.3 * slowness()
