# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The thresholds that we publish, each with the source of its figure; a change of one is meant."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.judge_device import PCIE_GTS
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.thresholds import (
    MODEL_WIDTH,
    QUESTIONS,
    THROTTLE_FAULTS,
    threshold,
)

DCGM_NVLINK = "DCGM, Meta GCM and sichek: any fails"
REMAP = "NVIDIA memory error management: "
HEALTH = "NVML fabric health mask"
NVLINK_FABRIC = [
    "gpu.fabric_bandwidth",
    "gpu.fabric_route_recovery",
    "gpu.fabric_route",
    "gpu.fabric_access",
    "gpu.fabric_configuration",
    "gpu.fabric_partition",
    "gpu.fabric_connection",
]

# What is asked, the threshold and its unit, and who reports it.
PUBLISHED: list[tuple[str, str, Any, str, str]] = [
    ("gpu.nvml", "==", True, "answers", "NVML return codes"),
    (
        "gpu.versions",
        "==",
        1,
        "releases",
        "NVIDIA driver guide: user space and kernel module must be of one release",
    ),
    (
        "gpu.nouveau",
        "==",
        "absent",
        "",
        "NVIDIA driver guide: nouveau holds the GPUs, and the driver cannot",
    ),
    ("gpu.sxid", "==", 0, "fatal SXids", "NVIDIA Fabric Manager guide, appendix D"),
    (
        "gpu.firmware_equal",
        "==",
        1,
        "kinds",
        "Imbue cluster-health and sichek: the GPUs of a node are equal",
    ),
    ("gpu.present", "==", True, "present", "profile of the node"),
    ("gpu.access", "==", True, "reached", "NVML: GPU_IS_LOST is a GPU off the bus"),
    ("gpu.identity", "==", True, "readable and its own", "history is kept by serial number"),
    ("gpu.inforom", "==", True, "intact", "NVML; DCGM error 9"),
    ("gpu.driver", "==", "nvidia", "", "Linux: one driver a device"),
    ("gpu.pcie_errors", "<=", 0, "errors", "Linux PCIe AER: what the hardware did not correct"),
    ("gpu.pcie_corrected", "<=", 8, "errors", "DCGM: more than 8 replays in a minute"),
    ("gpu.ecc_mode", "==", "on, on", "", "NVIDIA: on as delivered"),
    (
        "gpu.ecc_uncorrectable",
        "<=",
        0,
        "errors",
        "Meta GCM, Azure AzNHC, Imbue cluster-health: any fails",
    ),
    ("gpu.ecc_dram_correctable", "<=", 20_000_000, "errors", "Azure AzNHC"),
    ("gpu.ecc_sram_correctable", "<=", 10_000, "errors", "Azure AzNHC"),
    ("gpu.sram_uncorrectable", "<=", 4, "errors", "sichek and ml-engineering"),
    (
        "gpu.sram_threshold",
        "==",
        False,
        "exceeded",
        "NVML SRAM threshold flag; DCGM isolates such a GPU",
    ),
    ("gpu.remap_pending", "==", False, "pending", REMAP + "takes effect at the next reset"),
    ("gpu.remap_failed", "==", False, "failed", REMAP + "the RMA criterion"),
    ("gpu.remapped_rows", "<", 512, "rows", "DCGM"),
    ("gpu.retired_pages", "<", 63, "pages", "DCGM"),
    (
        "gpu.retired_double",
        "<=",
        15,
        "pages",
        "DCGM: soft limit; more of them in a week are a case for return",
    ),
    ("gpu.unrepairable", "==", False, "unrepairable", "NVML unrepairable memory flag"),
    (
        "gpu.repair_pending",
        "==",
        "none",
        "",
        "NVML repair status; nvidia-smi: Channel and TPC Repair Pending",
    ),
    ("gpu.retired_pending", "==", False, "pending", "NVIDIA dynamic page retirement"),
    ("gpu.nvlink_replays", "<=", 0, "replays", DCGM_NVLINK),
    ("gpu.nvlink_recoveries", "<=", 0, "recoveries", DCGM_NVLINK),
    ("gpu.nvlink_failed_recoveries", "<=", 0, "failures", "DCGM: any fails"),
    ("gpu.nvlink_ber", "<=", 1e-12, "bit error ratio", "DCGM 4.7: above 1e-12 fails"),
    ("gpu.fabric", "==", "completed", "", "NVML fabric state; without it CUDA ends with error 802"),
    *((check, "==", "good", "", HEALTH) for check in NVLINK_FABRIC),
    (
        "gpu.throttle",
        "==",
        "none",
        "",
        "Azure healthagent: mask 0xe8; idle and the software power cap are not a fault",
    ),
    ("gpu.temperature", ">", 0, "C", "what the device itself states"),
    (
        "gpu.memory_temperature",
        "<",
        95,
        "C",
        "what the device itself states; sichek's 95 C where it does not",
    ),
    ("gpu.persistence", "==", "on", "", "NVIDIA: nvidia-persistenced on servers"),
    ("gpu.compute_mode", "==", "default", "", "NVIDIA: as delivered"),
    ("gpu.processes", "<=", 0, "processes", "asked on idle nodes only"),
    ("gpu.memory_used", "<=", 15, "MiB", "Meta GCM; asked on idle nodes only"),
    ("gpu.recovery_action", "==", "none", "", "NVML field GPU_RECOVERY_ACTION"),
    ("gpu.xid", "==", 0, "Xids", "NVIDIA Xid catalogue, October 2025"),
]


@pytest.mark.parametrize(("check", "op", "value", "unit", "source"), PUBLISHED)
def test_published_thresholds(check: str, op: str, value: Any, unit: str, source: str) -> None:
    found = threshold(check)
    assert (found.op, found.value, found.unit, found.source) == (op, value, unit, source)
    # 0 is not False, and 1 no True: reports write them otherwise.
    assert type(found.value) is type(value)


def test_every_threshold_that_is_not_the_sites_or_the_profiles_is_published_here() -> None:
    own = {check for check, question in QUESTIONS.items() if question.value is not None}
    assert {row[0] for row in PUBLISHED} == own


def test_throttle_reasons_that_are_a_fault() -> None:
    """NVML's bits: hardware slowdown, software and hardware thermal slowdown, power brake."""
    assert THROTTLE_FAULTS == 0x08 | 0x20 | 0x40 | 0x80


def test_links_of_pcie() -> None:
    # PCI Express Base Specification: GT/s of each generation. An accelerator has 16 lanes.
    assert PCIE_GTS == {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
    assert MODEL_WIDTH == 16
