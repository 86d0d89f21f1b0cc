# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""cpu_memory_check on trees written here, and its known answers on the CPUs of this machine."""

from __future__ import annotations

import os
import re
import time

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import run as run_command
from ansible_collections.baremetal.dgx.plugins.module_utils._host import (
    cpu_memory_load as load_module,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host.cpu_memory import (
    Load,
    judge_load,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host.memory import count_cpus
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation import calls
from ansible_collections.baremetal.dgx.plugins.modules import cpu_memory_check
from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.contract import (
    CLUSTER_VARIABLES,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.calls import completed

pytestmark = pytest.mark.slow

PROFILE = {
    "cpu": {"sockets": 2, "cores_per_socket": 4, "threads_per_core": 2, "numa_nodes": 2},
    "real_memory_mb": 2000,
}


class Tree:
    """A sysfs and a proc of a node with 2 sockets of 4 cores, and 2 GiB."""

    def __init__(self, folder):
        self.folder = folder
        cpu = "sys/devices/system/cpu"
        self.write(f"{cpu}/online", "0-15\n")
        for number in range(16):
            self.write(f"{cpu}/cpu{number}/topology/physical_package_id", f"{number // 4 % 2}\n")
            self.write(f"{cpu}/cpu{number}/topology/core_id", f"{number % 4}\n")
        for node in range(2):
            self.numa(node, 1048576)
        self.write("proc/meminfo", "MemTotal:        2097152 kB\nMemFree:  1 kB\n")
        self.write("proc/uptime", "864000.12 1.0\n")
        for dimm in range(2):
            self.dimm(dimm)
        self.write("sys/devices/system/edac/mc/mc0/ce_noinfo_count", "0\n")
        self.write("sys/devices/system/edac/mc/mc0/ue_noinfo_count", "0\n")

    def write(self, path, text):
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def numa(self, node, kib):
        path = f"sys/devices/system/node/node{node}/meminfo"
        self.write(path, f"Node {node} MemTotal:       {kib} kB\nNode {node} MemFree: 9 kB\n")

    def dimm(self, number, ce=0, ue=0):
        place = f"sys/devices/system/edac/mc/mc0/dimm{number}"
        self.write(f"{place}/dimm_label", f"CPU_SrcID#0_MC#0_Chan#{number}_DIMM#0\n")
        self.write(f"{place}/dimm_ce_count", f"{ce}\n")
        self.write(f"{place}/dimm_ue_count", f"{ue}\n")


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


@pytest.fixture
def ask(run_module, tree):
    def run(check=False, **params):
        options = {
            "node": "dgx-01",
            "profile": PROFILE,
            "seconds": 0,
            "sysfs": str(tree.folder / "sys"),
            "proc": str(tree.folder / "proc"),
            **params,
        }
        return run_module(cpu_memory_check.main, options, check=check)

    return run


def bad(answer):
    return {one["check"]: one for one in answer["records"] if one["status"] != "pass"}


def test_a_healthy_node_passes_and_says_when(ask):
    answer = ask()
    assert answer["verdict"] == "pass", answer["findings"]
    assert {one["check"] for one in answer["records"]} == {
        "cpu.count", "cpu.sockets", "cpu.cores", "cpu.numa",
        "memory.size", "memory.balance", "memory.uncorrected", "memory.corrected",
    }  # fmt: skip
    assert all(one["at"] for one in answer["records"])


def test_a_dimm_that_is_gone_is_seen_twice(ask, tree):
    tree.numa(1, 917504)
    tree.write("proc/meminfo", "MemTotal:        1966080 kB\n")
    answer = ask()
    assert set(bad(answer)) == {"memory.size", "memory.balance"}
    assert answer["failed"] is True
    assert "NUMA node 1: 896 MiB" in bad(answer)["memory.size"]["evidence"]
    assert bad(answer)["memory.balance"]["measured"]["value"] == pytest.approx(0.125)


@pytest.mark.parametrize(("half", "status"), [(1, "pass"), (2, "fail")])
def test_nodes_of_gpu_memory_are_counted_but_not_compared(ask, tree, half, status):
    # GB200: two of Grace, four of the GPUs and 28 without memory.
    sizes = [502268928, 502268928 // half, *[192937984] * 4, *[0] * 28]
    tree.write("proc/meminfo", f"MemTotal:        {sum(sizes)} kB\n")
    for node, kib in enumerate(sizes):
        tree.numa(node, kib)
        tree.write(f"sys/devices/system/node/node{node}/cpulist", f"{node}\n" if node < 2 else "\n")
    cpu = {**PROFILE["cpu"], "numa_nodes": 34}
    answer = ask(profile={"cpu": cpu, "real_memory_mb": 980000}, fail_on=[])
    found = {one["check"]: one for one in answer["records"]}
    assert (found["cpu.numa"]["status"], found["memory.balance"]["status"]) == ("pass", status)
    assert len(found["memory.balance"]["evidence"]) == 2
    # Without one module MemTotal, with the memory of the GPUs, is still more than the profile has.
    assert found["memory.size"]["status"] == status
    assert found["memory.size"]["measured"]["value"] == (sizes[0] + sizes[1]) // 1024
    assert "NUMA node 2: 188416 MiB without CPUs" in found["memory.size"]["evidence"]


def test_cores_that_are_gone(ask, tree):
    tree.write("sys/devices/system/cpu/online", "0-6,8-15\n")
    assert set(bad(ask())) == {"cpu.count"}


def test_memory_errors_name_the_dimm(ask, tree):
    tree.dimm(1, ce=99, ue=1)
    found = bad(ask())
    # 99 in ten days are within what a module may have.
    assert set(found) == {"memory.uncorrected"}
    assert found["memory.uncorrected"]["evidence"] == [
        "mc0/dimm1 CPU_SrcID#0_MC#0_Chan#1_DIMM#0: 1"
    ]
    tree.dimm(1, ce=101)
    found = bad(ask())
    assert set(found) == {"memory.corrected"}
    assert found["memory.corrected"]["measured"] == {"value": 10.1, "unit": "errors/day"}


def test_a_node_that_has_just_come_up_is_not_extrapolated(ask, tree):
    tree.write("proc/uptime", "60.0 1.0\n")
    tree.dimm(0, ce=10)
    assert ask()["verdict"] == "pass"
    tree.dimm(0, ce=11)
    assert set(bad(ask())) == {"memory.corrected"}


def test_without_edac_errors_are_not_measured(ask, tree):
    for file in (tree.folder / "sys/devices/system/edac").rglob("*count"):
        file.unlink()
    answer = ask(fail_on=["fail"])
    assert answer["verdict"] == "not_measured"
    assert set(bad(answer)) == {"memory.uncorrected", "memory.corrected"}
    assert ask(edac=False)["verdict"] == "pass"


def test_what_is_not_declared_or_cannot_be_read_is_not_measured(ask, tree):
    answer = ask(profile={}, fail_on=["fail"])
    assert set(bad(answer)) == {"cpu.count", "memory.size"}
    assert "settings: write cpu" in bad(answer)["cpu.count"]["remedy"]
    answer = ask(sysfs=str(tree.folder / "nothing"), fail_on=["fail"])
    assert bad(answer)["cpu.count"]["status"] == "not_measured"
    assert answer["counts"]["fail"] == 0


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0-55,112-167\n", 112),
        ("0-111,113", 113),
        ("0\n", 1),
        ("", None),
        (None, None),
        ("x", None),
    ],
)
def test_lists_of_cpus(text, count):
    assert count_cpus(text) == count


def test_every_cpu_of_this_machine_knows_the_answers(ask):
    answer = ask(seconds=1.0, memory_mib=8 * len(os.sched_getaffinity(0)))
    assert answer["verdict"] == "pass", answer["findings"]
    found = {one["check"]: one for one in answer["records"]}
    assert found["cpu.known_answers"]["measured"]["value"] == 0
    assert found["memory.patterns"]["text"].split()[0] != "0"
    assert answer["cpus"] == len(os.sched_getaffinity(0))


def test_check_mode_loads_nothing(ask, monkeypatch):
    monkeypatch.setattr(load_module, "run", None)
    answer = ask(check=True, seconds=5)
    assert answer["cpus"] == len(os.sched_getaffinity(0))
    assert "cpu.known_answers" not in {one["check"] for one in answer["records"]}


@pytest.mark.parametrize(
    ("available", "options"), [(99999, {"memory_mib": 1}), (0, {"memory_mib": 0})]
)
def test_memory_that_is_too_little_for_the_cpus_is_not_measured(
    ask, monkeypatch, available, options
):
    def run(cpus, seconds, mib_each):
        return [Load(cpu, 3, 0) for cpu in cpus]

    monkeypatch.setattr(load_module, "run", run)
    monkeypatch.setattr(load_module, "available_mib", lambda: available)
    monkeypatch.setattr(load_module.os, "sched_getaffinity", lambda _pid: {0, 1, 2})
    found = bad(ask(seconds=1.0, fail_on=[], **options))
    assert set(found) == {"memory.patterns"}
    assert found["memory.patterns"]["status"] == "not_measured"
    assert found["memory.patterns"]["text"] == "less than 1 MiB for each of 3 CPUs"
    assert found["memory.patterns"]["remedy"].startswith("settings:")
    # A share of nothing is how the test is left out.
    answer = ask(seconds=1.0, memory_share=0.0, **options)
    assert answer["verdict"] == "pass"
    assert "memory.patterns" not in {one["check"] for one in answer["records"]}


def test_each_wrong_answer_is_told():
    for name in load_module.KNOWN:
        wrong = {**load_module.KNOWN, name: "0"}
        (line,) = load_module.wrong_answers(wrong)
        assert line.startswith(f"{name} is 0, must be ")
    assert not load_module.wrong_answers(load_module.answers())


class Flips(bytearray):
    """Memory that loses bit 4 of one byte whenever a block is written over it."""

    def __setitem__(self, where, value):
        super().__setitem__(where, value)
        at = 3 * load_module.BLOCK + 77
        super().__setitem__(at, self[at] & ~0x10)


def test_a_stuck_bit_is_found_by_its_byte():
    memory = Flips(4 * load_module.BLOCK)
    lines = []
    for _count, line in load_module.patterns(memory, len(memory), time.monotonic() + 60):
        lines += [line] if line else []
        if line.startswith("pattern 2"):
            break
    # Zeros and aa do not ask this bit, ones and 55 do.
    assert {line.split(" is ")[0].split(" byte ")[1] for line in lines} == {str(3145728 + 77)}
    assert not [line for line in lines if line.startswith(("pattern 0", "pattern 3"))]
    assert [line for line in lines if line.startswith("pattern 1")]


def test_time_that_is_up_ends_it_in_the_middle():
    memory = bytearray(64 * load_module.BLOCK)
    assert not list(load_module.patterns(memory, len(memory), time.monotonic() - 1))


def test_neighbours_hold_different_noise():
    blocks = {load_module.block(4, index) for index in range(300)}
    assert len(blocks) == 300


def lies(cpu, seconds, mib):
    return Load(cpu, 3, 5, ("CPU 0: floats is 1, must be 2",) if cpu == 0 else ())


def dies(cpu, seconds, mib):
    os.kill(os.getpid(), 9)


def breaks(cpu, seconds, mib):
    raise MemoryError("nothing left")


def test_a_wrong_core_fails_and_is_named():
    reported = load_module.run([0, 0], 1, 1, lies)
    answers, memory = judge_load("n", reported, 1, 8)
    assert answers.status == "fail"
    assert answers.evidence[0].startswith("CPU 0: floats")
    assert answers.remedy.startswith("replace:")
    assert memory.status == "pass"


@pytest.mark.parametrize(("doing", "why"), [(dies, "signal 9"), (breaks, "MemoryError")])
def test_a_process_that_is_lost_fails_none(doing, why):
    reported = load_module.run([0], 1, 1, doing)
    assert why in reported[0].problem
    records = list(judge_load("n", reported, 1, 8))
    assert {record.status for record in records} == {"not_measured"}
    assert why in records[0].evidence[0]


def test_one_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(load_module, "_GRACE_S", 0.3)
    (output,) = load_module.run([0], 0.2, 0, lambda cpu, seconds, mib: time.sleep(60))
    assert output.problem == "it did not end in time"


def test_no_memory_at_all_is_not_called_healthy():
    reported = [Load(0, 5, 0)]
    answers, memory = judge_load("n", reported, 1, 8)
    assert (answers.status, memory.status) == ("pass", "not_measured")
    assert [one.check for one in judge_load("n", reported, 1, None)] == ["cpu.known_answers"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"memory_share": 0.95}, "memory_share: is 0.95; write 0 to 0.9"),
        ({"memory_share": -0.1}, "memory_share: is -0.1; write 0 to 0.9"),
        ({"seconds": -1}, "seconds: is -1; write 0 or more"),
    ],
)
def test_nonsense_is_refused_by_every_engine(ask, monkeypatch, options, says):
    monkeypatch.setattr(load_module, "load", lambda *_of: pytest.fail("the node was asked"))
    assert ask(**options)["msg"] == says
    given = completed("cpu_memory_check", {"node": "dgx-01", "profile": PROFILE, **options})
    with pytest.raises(ValueError, match=f"^{re.escape(says)}$"):
        calls.call(run_command, "cpu_memory_check", given, lambda: "")


def test_the_contract_allows_what_the_check_does():
    parts = CLUSTER_VARIABLES["cluster_validation"].options["cpu_memory"].options
    assert parts["memory_share"].maximum == load_module.MOST_SHARE
