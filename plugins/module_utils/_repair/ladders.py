# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Ladders: which steps of repair a failed check gets, the least first, and what comes after. Data.

A step interrupts nothing but the node itself, which is out of service by then. What no step can
change has none: the part goes back to its maker, or a person decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping, Sequence

from .._core.schema import closest
from .._core.schema import words as words_of

RESET_GPU, RESTART_DRIVER, REBOOT = "reset_gpu", "restart_driver", "reboot"
POWER_CYCLE, AC_CYCLE = "power_cycle", "ac_cycle"
# What a ladder may have, in the order of what it costs.
STEPS = (RESET_GPU, RESTART_DRIVER, REBOOT, POWER_CYCLE, AC_CYCLE)
# Steps by the node's BMC.
BY_BMC = (POWER_CYCLE, AC_CYCLE)
# Steps that end all that runs on the node.
RESTARTS = (REBOOT, *BY_BMC)

# After the last step: the part is returned, or a person decides.
RETURN, PERSON = "return", "person"


@dataclass(frozen=True)
class Ladder:
    """The steps in their order, and what comes after the last of them."""

    steps: tuple[str, ...]
    end: str
    source: str


_SETTING = "what is set on the node differs from the inventory: no reset changes that"
_ASK = Ladder((), PERSON, "a cause that is outside of the node, or that is not known")

_LADDERS: tuple[tuple[Ladder, tuple[str, ...]], ...] = (
    (
        Ladder(
            (RESET_GPU, REBOOT, POWER_CYCLE),
            RETURN,
            "NVIDIA GPU Debug Guidelines: reset, then reboot, then return; Xid catalogue of "
            "October 2025 (reset GPU, restart bare metal)",
        ),
        (
            "gpu.xid", "gpu.sxid", "gpu.recovery_action", "gpu.ecc_uncorrectable",
            "gpu.remap_pending", "gpu.repair_pending", "gpu.retired_pending", "gpu.memory_used",
            "gpu.nvlink_active", "gpu.nvlink_speed", "gpu.nvlink_replays",
            "gpu.nvlink_recoveries", "gpu.nvlink_failed_recoveries", "gpu.nvlink_ber",
            "gpu.fabric", "gpu.fabric_access", "gpu.fabric_bandwidth", "gpu.fabric_route",
            "gpu.fabric_route_recovery", "gpu.run", "burn.run", "burn.xid", "nccl.correct",
        ),
    ),
    (
        Ladder(
            (REBOOT, POWER_CYCLE, AC_CYCLE),
            RETURN,
            "NVIDIA Xid catalogue of October 2025, Xid 79: restart bare metal, then check the "
            "hardware; what left PCI comes back with the bus, and what runs on standby power "
            "(FPGA, EROT, the baseboard's BMC) with the AC power alone",
        ),
        (
            "gpu.access", "gpu.count", "gpu.present", "gpu.nvswitch_count", "gpu.pcie_errors",
            "gpu.pcie_speed", "gpu.pcie_width", "gpu.memory", "gpu.numa", "host.cpus",
            "host.memory", "host.pcie_errors", "memory.size", "cpu.count", "ib.present",
            "ib.count", "ib.pcie_speed", "ib.pcie_width", "nvme.present", "disk.present",
            "disk.read_only",
        ),
    ),
    (
        Ladder(
            (RESTART_DRIVER, REBOOT),
            PERSON,
            "NVIDIA driver installation guide: kernel modules, libraries and fabric manager of "
            "one release after a reload",
        ),
        (
            "gpu.nvml", "gpu.versions", "gpu.fabric_manager", "gpu.persistence",
            "gpu.mig_instances", "stack.driver", "stack.modules", "stack.fabric_manager",
            "stack.nouveau", "gpu.nouveau",
        ),
    ),
    (
        Ladder(
            (),
            RETURN,
            "NVIDIA RMA policy for row remapping, GPU Memory Error Management; SMART and machine "
            "checks of the part's maker: the part is at its end",
        ),
        (
            "gpu.remap_failed", "gpu.remapped_rows", "gpu.unrepairable", "gpu.sram_threshold",
            "gpu.sram_uncorrectable", "gpu.retired_double", "gpu.retired_pages", "gpu.inforom",
            "gpu.ecc_dram_correctable", "gpu.ecc_sram_correctable", "burn.ecc", "burn.hbm",
            "burn.hbm_rate", "burn.entropy_bf16", "burn.gemm_bf16", "burn.pairs",
            "memory.uncorrected", "memory.patterns",
            "cpu.known_answers", "nvme.critical_warning", "nvme.media_errors", "nvme.self_test",
            "nvme.smart_status", "nvme.spare", "nvme.wear",
        ),
    ),
    (
        Ladder((), PERSON, _SETTING),
        (
            "gpu.clock_memory", "gpu.clock_sm", "gpu.compute_mode", "gpu.ecc_mode", "gpu.mig",
            "gpu.power_limit", "gpu.driver", "gpu.driver_version", "gpu.fabric_configuration",
            "gpu.fabric_connection", "gpu.fabric_partition",
            "gpu.firmware_equal", "gpu.identity", "gpu.model", "gpu.processes",
            "ib.acs", "ib.description", "ib.firmware", "ib.link_layer", "ib.max_read_request",
            "ib.name", "ib.pkeys", "ib.psid", "stack.cuda", "stack.dcgm", "stack.declared",
            "stack.dma_buf", "stack.libcuda", "stack.nccl", "stack.nscq", "stack.on_disk",
            "stack.parameter", "stack.peermem",
            "dcgm.settings", "dcgm.settings_under_load",
        ),
    ),
    (
        Ladder((), PERSON, "cooling and power of the room or the machine: no reset changes them"),
        ("gpu.memory_temperature", "gpu.temperature", "gpu.throttle"),
    ),
    (
        Ladder((), PERSON, "slow or corrected, and without an error: the part that lags is named"),
        (
            "burn.host", "burn.like_hbm", "burn.like_peer", "burn.peers",
            "burn.rate_hbm", "burn.rate_peer", "dcgm.memory", "dcgm.pcie", "gpu.pcie_corrected",
            "host.machine_checks", "host.pcie_corrected", "nccl.busbw",
        ),
    ),
    (
        Ladder((), PERSON, "a cable, a transceiver, a switch or the plan: work at the named ports"),
        (
            "fabric.dark", "fabric.description", "fabric.duplicate_guid", "fabric.errors",
            "fabric.exchanged", "fabric.hca_absent", "fabric.missing", "fabric.moved",
            "fabric.no_sm", "fabric.node_absent", "fabric.pairs.fleet", "fabric.pairs.part",
            "fabric.silent", "fabric.sm_unexpected", "fabric.speed", "fabric.standby_missing",
            "fabric.swapped", "fabric.switch_absent", "fabric.switch_psu", "fabric.two_masters",
            "fabric.width", "ib.crc_errors", "ib.effective_ber", "ib.link_downed",
            "ib.lossless_discards", "ib.module_faults", "ib.optics_temperature",
            "ib.physical_state", "ib.rate", "ib.state", "ib.symbol_errors", "ib.troubleshooting",
            "ib.width",
        ),
    ),
    (
        Ladder((), PERSON, "a service, a mount, a clock or a full disk: what it names is repaired"),
        (
            "clock.offset", "disk.free", "disk.free_inodes", "mount.answers", "mount.mounted",
            "service.active",
        ),
    ),
)  # fmt: skip
_BY_CHECK = {check: ladder for ladder, checks in _LADDERS for check in checks}
CHECKS = frozenset(_BY_CHECK)
# A fabric that no GPU of the node has joined is that of its fabric manager, and no part goes back.
_OF_THE_NODE = {"gpu.fabric": _BY_CHECK["gpu.fabric_manager"]}


def ladder_of(
    check: str, own: Mapping[str, Ladder] = MappingProxyType({}), subject: str = ""
) -> Ladder:
    """Return the ladder of a check, the site's `own` first; without any a person decides.

    One of the whole node, by its `subject`, may have another ladder than one of a part.
    """
    found = _OF_THE_NODE.get(check) if subject.startswith("node:") else None
    return own.get(check) or found or _BY_CHECK.get(check, _ASK)


def flaw(words: Sequence[str]) -> tuple[int, str, str]:
    """Return what is wrong with a ladder: the place, what, and what to write; or nothing."""
    for place, word in enumerate(words):
        if word in ("resume", "validate", "back", "admit"):
            wrong = f"'{word}' is not a step, and nothing puts a node back before it was validated"
            remedy = "leave it out: each step is followed by validate_nodes, and the gate lets in"
            return place, wrong, remedy
        if word not in (*STEPS, RETURN, PERSON):
            near = closest(word, STEPS)
            return place, f"'{word}' is not a step", f"write {near or words_of(STEPS)}"
        if word not in STEPS and place != len(words) - 1:
            return place, f"nothing comes after '{word}'", "write it last"
        if word in STEPS and any(
            STEPS.index(word) <= STEPS.index(one) for one in words[:place] if one in STEPS
        ):
            wrong = f"'{word}' is weaker than what comes before it, and would change nothing"
            return place, wrong, f"write the steps in the order {', '.join(STEPS)}"
    if not words or words[-1] in STEPS:
        wrong = "it does not say what comes after the last step"
        return len(words), wrong, "end it with return or person"
    return 0, "", ""


def own_ladder(words: Sequence[str]) -> Ladder:
    """Return the ladder that a site gives; ValueError for one that flaw() refuses."""
    _place, wrong, remedy = flaw(words)
    if wrong:
        raise ValueError(f"{wrong}; {remedy}")
    return Ladder(tuple(words[:-1]), words[-1], "the inventory: cluster_repair.ladders")
