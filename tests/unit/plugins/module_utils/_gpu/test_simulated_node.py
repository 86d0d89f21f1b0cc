# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each fault is found on its own GPU with the right action, and nothing on the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    Record,
    Tally,
    lines_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu import judge_node as _gpu_health
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.host import load_host
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.judge_node import (
    judge_node,
    wanted_from_profile,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.nvml.sweep import sweep
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.read import Sweep
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.thresholds import (
    QUESTIONS,
    actions,
    kind_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host.kernel_log import KernelLog
from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.profiles import (
    BUILT_IN,
)

PROFILE = BUILT_IN["dgx_h100"]
RELEASE = "580.105.08"
FAULTS = ROOT / "virtual_pod" / "hardware" / "faults"


@pytest.fixture
def judged(simulated_node):
    """`judged(state, log, **options)` → the records of a simulated node."""

    def run(
        state: str | None = "",
        log: str = "",
        *,
        fabric_manager: str = RELEASE,
        old: bool = False,
        gap: str = "",
        profile: dict[str, Any] | None = None,
        gpus: dict[str, Any] | None = None,
        **options: Any,
    ) -> list[Record]:
        if state is not None:
            simulated_node.state(state, log, gpus if gpus else None)
        host = replace(
            load_host(simulated_node.sysfs, simulated_node.proc),
            fabric_manager=fabric_manager,
            instances=dict.fromkeys(range(8), ("7g.80gb",)),
        )
        library = simulated_node.old_library if old else simulated_node.library
        text = simulated_node.kernel_log.read_text()
        wanted = wanted_from_profile(PROFILE if profile is None else profile, **options)
        return list(judge_node("n", wanted, sweep(library, 1), host, KernelLog(text, gap)))

    return run


def found(records: list[Record], status: str = "fail") -> set[tuple[str, str]]:
    """What has a status, as (subject without its node, check without its layer)."""
    return {
        (record.subject.replace("gpu:n/", "gpu ").replace("node:n", "node"), record.check[4:])
        for record in records
        if record.status == status
    }


def one(records: list[Record], check: str, subject: str = "gpu:n/3") -> Record:
    (record,) = [r for r in records if r.check == check and r.subject == subject]
    return record


def test_a_healthy_node_has_no_finding_and_nothing_is_left_open(judged) -> None:
    records = judged()
    assert found(records) == found(records, "not_measured") == set()
    assert Tally.of(records).verdict == "pass"
    subjects = {record.subject for record in records}
    assert subjects == {"node:n", *(f"gpu:n/{number}" for number in range(8))}
    # Every question that a Hopper can be asked was asked.
    older = {
        "gpu.nvlink_ber",
        "gpu.nvlink_failed_recoveries",
        "gpu.retired_double",
        "gpu.retired_pages",
        "gpu.retired_pending",
        "gpu.temperature_absolute",
    }
    unasked = set(QUESTIONS) - {record.check for record in records}
    # Drivers after 590 and 610 report these.
    newer = {"gpu.fabric_partition", "gpu.fabric_connection"}
    assert unasked == {*older, *newer, "gpu.driver_version", "gpu.mig_instances"}


# Everything that a state can do to GPU 3, and what comes of it.
@pytest.mark.parametrize(
    ("state", "checks", "action"),
    [
        ("name = NVIDIA A100-SXM4-80GB", {"model"}, "look"),
        ("memory_total_mib = 71559", {"memory"}, "replace"),
        ("ecc_mode = 0", {"ecc_mode"}, "settings"),
        ("ecc_mode_pending = 0", {"ecc_mode"}, "settings"),
        ("ecc.volatile.dram.uncorrectable = 1", {"ecc_uncorrectable"}, "reset"),
        ("ecc.volatile.sram.uncorrectable = 1", {"ecc_uncorrectable"}, "reset"),
        ("ecc.aggregate.dram.correctable = 20000001", {"ecc_dram_correctable"}, "replace"),
        ("ecc.aggregate.sram.correctable = 10001", {"ecc_sram_correctable"}, "replace"),
        ("ecc.aggregate.sram.uncorrectable = 5", {"sram_uncorrectable"}, "replace"),
        ("sram_threshold_exceeded = 1", {"sram_threshold"}, "replace"),
        ("remap.pending = 1", {"remap_pending"}, "reset"),
        ("remap.failure = 1", {"remap_failed"}, "replace"),
        ("remap.uncorrectable = 512", {"remapped_rows"}, "replace"),
        ("unrepairable = 1", {"unrepairable"}, "replace"),
        ("repair.channel = 1", {"repair_pending"}, "reset"),
        ("repair.tpc = 1", {"repair_pending"}, "reset"),
        ("inforom_valid = 0", {"inforom"}, "look"),
        ("fabric.health = 0x1a9", {"fabric_bandwidth"}, "reset"),
        ("fabric.health = 0x1a6", {"fabric_route_recovery"}, "reset"),
        ("fabric.health = 0x19a", {"fabric_route"}, "reset"),
        ("fabric.health = 0x16a", {"fabric_access"}, "reset"),
        ("fabric.health = 0x5aa", {"fabric_configuration"}, "settings"),
        ("pcie_width = 8", {"pcie_width"}, "look"),
        ("pcie_switch_width = 8", {"pcie_width"}, "look"),
        ("pcie_generation = 4", {"pcie_speed"}, "look"),
        ("numa = 1", {"numa"}, "look"),
        ("kernel_driver = vfio-pci", {"driver"}, "look"),
        ("link.7.state = 0", {"nvlink_active"}, "reset"),
        ("link.7.speed_mbps = 13281", {"nvlink_speed"}, "reset"),
        ("link.7.replay = 1", {"nvlink_replays"}, "look"),
        ("link.7.recovery = 1", {"nvlink_recoveries"}, "look"),
        ("fabric.state = 2", {"fabric"}, "settings"),
        ("fabric.status = 27", {"fabric"}, "settings"),
        ("clock_max.sm = 1755", {"clock_sm"}, "settings"),
        ("clock_max.memory = 1593", {"clock_memory"}, "settings"),
        ("throttle = 0x8", {"throttle"}, "look"),
        ("throttle = 0x20", {"throttle"}, "look"),
        ("throttle = 0x40", {"throttle"}, "look"),
        ("throttle = 0x85", {"throttle"}, "look"),
        ("temperature = 87", {"temperature"}, "look"),
        ("memory_temperature = 95", {"memory_temperature"}, "look"),
        ("power_limit_mw = 500000", {"power_limit"}, "settings"),
        ("persistence = 0", {"persistence"}, "settings"),
        ("compute_mode = 2", {"compute_mode"}, "settings"),
        ("mig = 1", {"mig"}, "settings"),
        ("mig_pending = 1", {"mig"}, "settings"),
        ("processes = 1", {"processes"}, "job"),
        ("memory_used_mib = 16", {"memory_used"}, "reset"),
        ("recovery_action = 1", {"recovery_action"}, "reset"),
        ("recovery_action = 2", {"recovery_action"}, "reboot"),
        ("lost = 1", {"access"}, "reboot"),
        ("ret.nvmlDeviceGetHandleByIndex_v2 = 16", {"access"}, "reset"),
    ],
)
def test_one_fault_of_one_gpu(judged, state: str, checks: set[str], action: str) -> None:
    records = judged(f"gpu.3.{state}\n")
    assert found(records) == {("gpu 3", check) for check in checks}
    assert found(records, "not_measured") == set()
    assert actions(records) == {"gpu:n/3": action}


@pytest.mark.parametrize(
    "state",
    [
        "throttle = 0x1",  # idle
        "throttle = 0x4",  # software power cap
        "throttle = 0x112",  # clocks that were set
        "temperature = 86",
        "memory_temperature = 94",
        "memory_used_mib = 15",
        "remap.uncorrectable = 511",
        "remap.correctable = 3",
        "ecc.aggregate.sram.uncorrectable = 4",
        "ecc.aggregate.dram.uncorrectable = 9",
        "pcie_replays = 150",
        "link.2.crc = 4",
        "clock.sm = 345",
    ],
)
def test_what_is_no_fault(judged, state: str) -> None:
    records = judged(f"gpu.3.{state}\n")
    assert found(records) == found(records, "not_measured") == set()


@pytest.mark.parametrize(
    ("name", "findings", "action"),
    [
        (
            "ecc",
            {
                ("gpu 3", "ecc_uncorrectable"),
                ("gpu 3", "remap_pending"),
                ("gpu 3", "recovery_action"),
                ("gpu 3", "xid"),
            },
            {"gpu:n/3": "reset"},
        ),
        ("xid79", {("gpu 5", "access"), ("gpu 5", "xid")}, {"gpu:n/5": "reboot"}),
        ("hot", {("gpu 2", "temperature"), ("gpu 2", "throttle")}, {"gpu:n/2": "look"}),
        ("nvlink_down", {("gpu 6", "nvlink_active")}, {"gpu:n/6": "reset"}),
    ],
)
def test_faults_of_the_demo(judged, simulated_node, name, findings, action) -> None:
    simulated_node.inject(name)
    records = judged(None)
    assert found(records) == findings
    assert found(records, "not_measured") == set()
    assert actions(records) == action
    # The fragment tells a reader which GPU it is.
    assert f"GPU {min(findings)[0].split()[1]}" in (FAULTS / f"{name}.state").read_text()
    simulated_node.inject("--clear")
    assert found(judged(None)) == set()


def test_the_fault_of_the_fabric_manager_is_the_nodes(judged, simulated_node) -> None:
    simulated_node.inject("fm_mismatch")
    records = judged(None, fabric_manager="580.126.09")
    assert found(records) == {("node", "fabric_manager")}
    assert found(records, "not_measured") == {("node", "fabric")}
    assert actions(records) == {"node:n": "settings"}
    assert one(records, "gpu.fabric", "node:n").text.startswith("registration of all 8 GPUs")


def test_a_gpu_that_is_gone_from_the_bus_is_named_by_its_slot(judged) -> None:
    records = judged("gpu.3.absent = 1\n")
    assert found(records) == {("gpu 3", "present"), ("node", "count")}
    assert "PCI 0000:61:00.0" in one(records, "gpu.present").evidence
    # What comes after it keeps its number.
    serial = one(records, "gpu.identity", "gpu:n/7").evidence[0]
    assert "0000:df:00.0" in serial
    assert "1650000000008" in serial


def test_a_gpu_that_hangs_is_not_measured_and_named(judged) -> None:
    records = judged("gpu.3.hang = nvmlDeviceGetSerial\n")
    assert found(records) == set()
    assert found(records, "not_measured") == {("gpu 3", "access")}
    assert "nvmlDeviceGetSerial did not come back within 1 s" in one(records, "gpu.access").text


def test_two_lost_gpus_are_told_apart(judged) -> None:
    records = judged("gpu.2.lost = 1\ngpu.6.lost = 1\n")
    assert found(records) == {("gpu 2", "access"), ("gpu 6", "access")}


def test_a_lost_gpu_that_no_address_is_known_of_is_the_nodes(judged) -> None:
    # No list in the profile, and PCI without it.
    profile = {"gpus": {"count": 8, "type": "h100"}}
    records = judged("gpu.3.lost = 1\n", profile=profile)
    assert ("gpu 3", "access") in found(records)
    gone = judged("gpu.3.lost = 1\n", profile=profile, gpus={"pci": ["1b:00.0"], "numa": [0]})
    assert ("node", "access") in found(gone)
    assert "GPU 3 of NVML" in one(gone, "gpu.access", "node:n").text


B200 = """\
gpu.*.name = NVIDIA B200
gpu.*.memory_total_mib = 183359
gpu.*.link.speed_mbps = 50000
gpu.*.clock_max.sm = 1965
gpu.*.clock_max.memory = 3996
nvswitches = 0
"""

# Of this generation no GPU tells a fabric state, and PCIe is of generation 4.
A100 = """\
gpu.*.name = NVIDIA A100-SXM4-80GB
gpu.*.memory_total_mib = 81920
gpu.*.links = 12
gpu.*.link.speed_mbps = 25000
gpu.*.clock_max.sm = 1410
gpu.*.clock_max.memory = 1593
gpu.*.pcie_generation = 4
gpu.*.pcie_generation_max = 4
gpu.*.fabric.state = 0
nvswitches = 6
"""


def test_a_newer_generation(judged) -> None:
    newer = BUILT_IN["dgx_b200"]
    profile = {"gpus": {**PROFILE["gpus"], **newer["gpus"]}, "nvlink": newer["nvlink"]}
    records = judged(B200, profile=profile)
    assert found(records) == found(records, "not_measured") == set()
    # Its NVSwitches are not on PCIe, so that they cannot be counted there.
    assert "gpu.nvswitch_count" not in {record.check for record in records}
    hopper = found(judged("", profile=profile))
    assert {check for _subject, check in hopper} >= {"model", "memory", "nvlink_speed"}


def test_an_older_generation(judged) -> None:
    profile = BUILT_IN["dgx_a100"]
    buses = profile["gpus"]["pci"]
    places = "".join(f"gpu.{number}.pci = {bus}\n" for number, bus in enumerate(buses))
    records = judged(A100 + places, profile=profile, gpus=profile["gpus"])
    assert found(records) == found(records, "not_measured") == set()
    assert "gpu.fabric" not in {record.check for record in records}
    down = "gpu.1.link.11.state = 0\ngpu.2.pcie_generation = 3\n"
    records = judged(A100 + places + down, profile=profile, gpus=profile["gpus"])
    assert found(records) == {("gpu 1", "nvlink_active"), ("gpu 2", "pcie_speed")}


def test_a_gpu_where_the_profile_has_none(judged) -> None:
    profile = {"gpus": {"pci": ["1b:00.0"], "count": 1, "type": "h100"}}
    records = judged("gpu.2.absent = 1\n", profile=profile)
    assert ("gpu 1", "present") in found(records)
    assert ("node", "count") in found(records)


def test_a_driver_that_is_not_loaded_measures_nothing_and_blames_none(judged) -> None:
    records = judged("driver_loaded = 0\n")
    assert found(records) == {(f"gpu {number}", "driver") for number in range(8)}
    open_ = found(records, "not_measured")
    assert {("node", "nvml"), ("node", "count"), ("node", "versions")} <= open_
    assert "not loaded" in one(records, "gpu.nvml", "node:n").text
    # PCI still shows that the GPUs are there.
    assert one(records, "gpu.present").status == "pass"


def test_a_library_of_another_release_than_the_module(judged) -> None:
    records = judged("ret.nvmlInit = 18\n")
    assert found(records) == {("node", "versions")}
    assert actions(records) == {"node:n": "reboot"}


def test_a_module_of_another_release_than_the_library(judged) -> None:
    records = judged("module_version = 580.126.09\n")
    assert found(records) == {("node", "versions")}
    evidence = one(records, "gpu.versions", "node:n").evidence
    assert "kernel module 580.126.09" in evidence
    assert f"NVML {RELEASE}" in evidence


@pytest.mark.parametrize(
    ("state", "check", "options"),
    [
        ("nouveau = 1\n", "nouveau", {}),
        ("nvswitches = 3\n", "nvswitch_count", {}),
        ("gpu.3.vbios = 96.00.99.00.02\n", "firmware_equal", {}),
        ("", "driver_version", {"driver_version": "580.126.09"}),
        ("", "fabric_manager", {"fabric_manager": "580.126.09"}),
    ],
)
def test_one_fault_of_the_node(judged, state: str, check: str, options: dict[str, Any]) -> None:
    assert found(judged(state, **options)) == {("node", check)}


def test_a_fabric_manager_that_is_not_there_is_not_measured(judged) -> None:
    records = judged("", fabric_manager=None)
    assert found(records) == set()
    assert found(records, "not_measured") == {("node", "fabric_manager")}


def test_an_older_driver_leaves_open_what_it_lacks(judged) -> None:
    records = judged("", old=True)
    assert found(records) == set()
    open_ = {check for _subject, check in found(records, "not_measured")}
    assert open_ == {"fabric", "memory_used", "processes", "sram_threshold"}
    # The temperature is still judged, by the older limit.
    hot = judged("gpu.3.temperature = 89\n", old=True)
    assert found(hot) == {("gpu 3", "temperature_absolute")}
    assert "does not have the function" in one(records, "gpu.processes").text


def test_what_only_an_idle_node_is_asked(judged) -> None:
    state = "gpu.3.processes = 1\ngpu.4.memory_used_mib = 9000\n"
    assert found(judged(state)) == {("gpu 3", "processes"), ("gpu 4", "memory_used")}
    assert found(judged(state, idle=False)) == set()


def test_mig_and_ecc_as_declared(judged) -> None:
    records = judged("gpu.*.mig = 1\n", mig=True)
    assert found(records) == found(records, "not_measured") == set()
    assert found(judged("gpu.*.ecc_mode = 0\n", ecc=False)) == set()
    assert len(found(judged("", mig=True))) == 8


def test_a_gpu_that_mig_divides(judged) -> None:
    """As one of driver 590 answers: nothing of NVLinks and remapped rows, spare rows by bank."""
    profile = {**PROFILE, "gpus": {**PROFILE["gpus"], "mig": [3]}}
    for more, checks in (
        ("", set()),
        ("gpu.3.remap.full_banks = 1\n", set()),
        ("gpu.3.ret.nvmlDeviceGetRowRemapperHistogram = 3\n", set()),
        ("gpu.3.remap.failure = 1\ngpu.3.unrepairable = 1\n", {("gpu 3", "unrepairable")}),
        ("gpu.3.recovery_action = 4\n", {("gpu 3", "recovery_action")}),
        ("gpu.3.fabric.state = 2\n", {("gpu 3", "fabric")}),
    ):
        records = judged("gpu.3.mig = 1\n" + more, profile=profile)
        assert found(records) == checks
        assert found(records, "not_measured") == set()
        asked = {record.check for record in records if record.subject == "gpu:n/3"}
        assert not {check for check in asked if check.startswith(("gpu.nvlink", "gpu.remap"))}


def test_recorded_identities(judged) -> None:
    mine = ("GPU-51a7ed00-0000-4000-8000-000000000004", "1650000000004")
    address = "0000:61:00.0"
    assert found(judged("", identities={address: mine})) == set()
    changed = judged("", identities={address: (mine[0], "1650000000999")})
    assert found(changed) == {("gpu 3", "identity")}
    assert "1650000000999" in one(changed, "gpu.identity").text


def test_thresholds_of_a_site(judged) -> None:
    state = "gpu.3.power_limit_mw = 500000\n"
    assert found(judged(state, thresholds={"gpu.power_limit": 500})) == set()
    assert found(judged("", thresholds={"gpu.memory_temperature": 30})) == {
        (f"gpu {number}", "memory_temperature") for number in range(8)
    }
    record = one(judged(state, thresholds={"gpu.power_limit": 600}), "gpu.power_limit")
    assert record.threshold is not None
    assert (record.threshold.value, record.threshold.source) == (600, "inventory")


def test_a_gpu_asleep_says_nothing_of_its_links_speed(judged) -> None:
    records = judged("gpu.3.pstate = 8\ngpu.3.pcie_generation = 1\n")
    assert found(records) == set()
    assert found(records, "not_measured") == {("gpu 3", "pcie_speed")}


def test_parts_that_retire_pages(judged) -> None:
    base = "gpu.*.remapping = 0\n"
    assert found(judged(base)) == set()
    records = judged(base + "gpu.1.retired.single = 63\ngpu.2.retired.pending = 1\n")
    assert found(records) == {("gpu 1", "retired_pages"), ("gpu 2", "retired_pending")}
    assert found(judged(base + "gpu.1.retired.double = 15\n")) == set()
    assert found(judged(base + "gpu.1.retired.double = 16\n")) == {("gpu 1", "retired_double")}


LINE = "NVRM: Xid (PCI:0000:{}:00): {}, pid=1, name=x, text\n"


@pytest.mark.parametrize(
    ("code", "action"),
    [(48, "reset"), (54, "look"), (64, "reset"), (79, "reboot"), (95, "reset"), (119, "reset")],
)
def test_an_xid_is_the_gpus_at_its_address(judged, code: int, action: str) -> None:
    records = judged("", LINE.format("61", code))
    assert found(records) == {("gpu 3", "xid")}
    assert actions(records) == {"gpu:n/3": action}


def test_the_worst_of_several_xids_decides(judged) -> None:
    log = "".join(LINE.format("61", code) for code in (31, 95, 31, 79, 48))
    record = one(judged("", log), "gpu.xid")
    assert record.text.startswith("Xid 79")
    assert kind_of(record.remedy) == "reboot"
    assert len(record.evidence) == 5


def test_xids_of_programs_are_no_finding(judged) -> None:
    records = judged("", "".join(LINE.format("61", code) for code in (13, 31, 43, 45, 63, 94)))
    assert found(records) == found(records, "not_measured") == set()
    assert "6 that ask for no more" in one(records, "gpu.xid").text


def test_an_xid_that_is_unknown_is_not_measured(judged) -> None:
    records = judged("", LINE.format("61", 877))
    assert found(records) == set()
    assert found(records, "not_measured") == {("gpu 3", "xid")}


def test_an_xid_of_a_gpu_that_is_none_is_the_nodes(judged) -> None:
    assert found(judged("", LINE.format("aa", 79))) == {("node", "xid")}


def test_events_of_switches(judged) -> None:
    fatal = "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 30 LTSSM\n"
    records = judged("", fatal)
    assert found(records) == {("node", "sxid")}
    assert actions(records) == {"node:n": "reset"}
    assert found(judged("", fatal.replace("Fatal", "Non-fatal"))) == set()


def test_a_log_with_a_gap_proves_no_absence_but_a_finding_stands(judged) -> None:
    records = judged("", LINE.format("61", 79), gap="the first 412 messages are gone")
    assert found(records) == {("gpu 3", "xid")}
    open_ = found(records, "not_measured")
    reported = {*((f"gpu {n}", "xid") for n in range(8) if n != 3), ("node", "sxid")}
    pcie = {(f"gpu {n}", f"pcie_{kind}") for n in range(8) for kind in ("errors", "corrected")}
    assert open_ == reported | pcie


def test_a_finding_in_words(judged) -> None:
    (line,) = lines_of(judged("gpu.3.remap.failure = 1\n"), "fail")
    head, whose, remedy = line.split("; ", 2)
    assert (
        head == "gpu:n/3 gpu.remap_failed is True failed (must be == False): row remap that failed"
    )
    assert whose.startswith("threshold: ")
    assert remedy.startswith("do: replace: drain the node")


@pytest.mark.parametrize("mask", ["0x1aa", "0x2", "0x0"])
def test_a_fabric_that_is_well_or_does_not_tell(judged, mask: str) -> None:
    records = judged(f"gpu.3.fabric.health = {mask}\n")
    assert found(records) == found(records, "not_measured") == set()


@pytest.mark.parametrize(("mask", "check"), [("0x1ab", "bandwidth"), ("0x9aa", "configuration")])
def test_a_condition_of_the_fabric_that_is_unknown(judged, mask: str, check: str) -> None:
    records = judged(f"gpu.3.fabric.health = {mask}\n")
    assert found(records) == set()
    assert found(records, "not_measured") == {("gpu 3", f"fabric_{check}")}


@pytest.mark.parametrize(("code", "open_"), [(13, set()), (25, set()), (999, {"fabric_route"})])
def test_a_driver_that_does_not_tell_the_health_of_the_fabric(judged, code: int, open_) -> None:
    """Drivers before 550 lack the function; what another one cannot read stays open."""
    records = judged(f"gpu.*.ret.nvmlDeviceGetGpuFabricInfoV = {code}\n")
    assert found(records) == set()
    assert {what for _who, what in found(records, "not_measured")} == open_
    assert "gpu.fabric" in {record.check for record in records}


def test_what_links_report_of_a_lost_gpu_is_one_cause_with_it(judged) -> None:
    lost = "3,1,90300111333,-;NVRM: Xid (PCI:0000:61:00): 79, pid=7, GPU has fallen off the bus.\n"
    link = "3,2,{},-;nvidia-nvswitch0: SXid (PCI:0000:05:00.0): {}, Fatal, Link 30 text\n"
    records = judged("", lost + link.format(90300900000, 20034))
    assert found(records) == {("gpu 3", "xid")}
    reported = one(records, "gpu.sxid", "node:n").evidence
    assert any("follows from Xid 79 of the GPU at 0000:61:00.0" in line for line in reported)
    # Another fault of the switch, and a link that failed long after.
    for rest in (link.format(90300900000, 24004), link.format(90400900000, 20034)):
        assert found(judged("", lost + rest)) == {("gpu 3", "xid"), ("node", "sxid")}


def test_a_gpu_that_pci_has_and_nvml_has_not_is_named(judged) -> None:
    log = "3,1,9,-;NVRM: GPU 0000:61:00.0: RmInitAdapter failed! (0x62:0x40:2407)\n"
    records = judged("gpu.3.uninitialized = 1\n", log)
    assert found(records) == {("gpu 3", "access"), ("node", "count")}
    record = one(records, "gpu.access", "gpu:n/3")
    assert "PCI has it and NVML has not" in record.text
    assert any("RmInitAdapter failed" in line for line in record.evidence)
    assert record.remedy.startswith("reboot:")
    assert "0000:61:00.0" in one(records, "gpu.count", "node:n").remedy


def test_memory_that_mig_holds_is_no_finding_of_its_own(judged) -> None:
    records = judged("gpu.3.mig = 1\ngpu.3.memory_used_mib = 1024\n")
    assert found(records) == {("gpu 3", "mig")}


def test_past_heat_is_told_and_is_no_finding(judged) -> None:
    records = judged("gpu.3.violation.1 = 7300000000\n")
    assert found(records) == set()
    reported = one(records, "gpu.throttle", "gpu:n/3").evidence
    assert any("slowed down for heat for 7.3 s" in line for line in reported)


def test_links_of_the_fifth_generation_fail_to_recover(judged) -> None:
    records = judged("gpu.*.nvlink5 = 1\ngpu.3.link.7.recovery_failed = 1\n")
    assert found(records) == {("gpu 3", "nvlink_failed_recoveries")}
    assert found(judged("gpu.*.nvlink5 = 1\n")) == set()


def test_a_lost_gpu_is_given_no_slot_where_two_could_be_its(judged) -> None:
    # NVML knows seven, of which one has no name; two addresses are without a GPU.
    records = judged("gpu.2.absent = 1\ngpu.5.lost = 1\n")
    assert ("node", "access") in found(records)
    assert not {("gpu 2", "access"), ("gpu 5", "access")} & found(records)
    assert "whose PCI address is not known" in one(records, "gpu.access", "node:n").text


@pytest.mark.parametrize(
    ("count", "lost", "named"),
    [
        # Two addresses are left and one GPU has no name: its rank says which, as all are counted.
        (4, 2, {"0000:52:00.0": 2}),
        # NVML counts other GPUs than PCI has: ranks say nothing.
        (3, 2, {}),
        (5, 2, {}),
        (None, 2, {}),
        # The rank is of a GPU that NVML names.
        (4, 0, {}),
        (4, 9, {}),
    ],
)
def test_a_lost_gpu_gets_an_address_by_rank_only_if_all_are_counted(count, lost, named):
    slots = ["0000:1b:00.0", "0000:43:00.0", "0000:52:00.0", "0000:61:00.0"]
    known = dict.fromkeys(slots[:2])
    found = _gpu_health._nameless(slots, Sweep(count=count, stuck={lost: "x"}), known)
    assert {address: index for address, (index, _what) in found.items()} == named
