# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What gpu_health asks, the threshold of each question, its source, and what to do. Data only.

A remedy begins with the kind of action, so that a reader (and the module's `actions`) can tell a
setting from a card that must leave the node.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping, NamedTuple

from .._core.question import Question, by_check
from .._core.record import FAIL, Record, Threshold
from .models_data import MODELS as DATA
from .models_data import OTHER_PARTS

SETTINGS = "settings"
JOB = "job"
LOOK = "look"
RESET = "reset"
REBOOT = "reboot"
REPLACE = "replace"
# From the least to the most.
KINDS = (SETTINGS, JOB, LOOK, RESET, REBOOT, REPLACE)

_HEALTH_MASK = "NVML fabric health mask"
_PROFILE = "profile of the node"
_DEVICE = "what the device itself states"
_PEERS_VOLATILE = "Meta GCM, Azure AzNHC, Imbue cluster-health: any fails"
_SPECS = "NVIDIA data sheets, and sichek's table of clocks"

_RESET_GPU = (
    "reset: drain the node, then nvidia-smi --gpu-reset with no process on any GPU; where the "
    "NVSwitches refuse that, reboot"
)
_RMA = "replace: drain the node, run the field diagnostic, return the GPU"

QUESTIONS = by_check(
    # The node
    Question(
        "gpu.nvml",
        "NVML answers", "==", True, "answers", "NVML return codes",
        "look: is the driver installed and loaded (lsmod, dmesg | grep NVRM)?",
    ),
    Question(
        "gpu.count",
        "GPUs that the driver knows", "==", None, "GPUs", _PROFILE,
        "reboot: a GPU that is gone from lspci needs a power cycle; when it stays away, replace it",
    ),
    Question(
        "gpu.versions",
        "releases of kernel module, NVML and driver", "==", 1, "releases",
        "NVIDIA driver guide: user space and kernel module must be of one release",
        "reboot: drain the node; the module in the kernel is not the one installed",
    ),
    Question(
        "gpu.driver_version",
        "release of the driver", "==", None, "", "inventory",
        "settings: run the role nvidia_driver on this node",
    ),
    Question(
        "gpu.nouveau",
        "module nouveau", "==", "absent", "",
        "NVIDIA driver guide: nouveau holds the GPUs, and the driver cannot",
        "reboot: run the role nvidia_driver, which blocks nouveau, then reboot",
    ),
    Question(
        "gpu.fabric_manager",
        "release of the fabric manager", "==", None, "",
        "NVIDIA Fabric Manager guide: exactly the release of the driver, or it does not start",
        "settings: install nvidia-fabricmanager of the driver's release, hold it, restart its "
        "service",
    ),
    Question(
        "gpu.nvswitch_count",
        "NVSwitches on PCIe", "==", None, "NVSwitches", _PROFILE,
        "reboot: power-cycle the node; then look at the base board",
    ),
    Question(
        "gpu.sxid",
        "NVSwitch errors since boot", "==", 0, "fatal SXids",
        "NVIDIA Fabric Manager guide, appendix D",
        "reset: drain the node and reboot it; the same switch again: replace the base board",
    ),
    Question(
        "gpu.firmware_equal",
        "different VBIOS releases or board parts", "==", 1, "kinds",
        "Imbue cluster-health and sichek: the GPUs of a node are equal",
        "look: update the VBIOS of the one that differs",
    ),
    # One GPU: is it there, and is it the right one?
    Question(
        "gpu.present",
        "GPU at its PCI address", "==", True, "present", _PROFILE,
        "reboot: power-cycle the node; still absent from lspci: reseat or replace the GPU",
    ),
    Question(
        "gpu.access",
        "NVML reaches it", "==", True, "reached", "NVML: GPU_IS_LOST is a GPU off the bus",
        "reboot: drain the node and power-cycle it; when it happens again, replace the GPU",
    ),
    Question(
        "gpu.model",
        "model", "==", None, "", _PROFILE,
        "look: the wrong card is in this slot, or the node has the wrong profile",
    ),
    Question(
        "gpu.memory",
        "memory", ">=", None, "MiB", _PROFILE,
        "replace: memory is missing; run the field diagnostic",
    ),
    Question(
        "gpu.identity",
        "UUID and serial number", "==", True, "readable and its own",
        "history is kept by serial number",
        "look: the GPU was changed; record the new serial number. Unreadable: the infoROM is bad",
    ),
    Question(
        "gpu.inforom",
        "checksums of the infoROM", "==", True, "intact", "NVML; DCGM error 9",
        "look: flash the infoROM (NVIDIA support), or replace the GPU",
    ),
    Question(
        "gpu.numa",
        "NUMA node", "==", None, "", _PROFILE,
        "look: BIOS settings (NUMA per socket) differ from the profile",
    ),
    Question(
        "gpu.driver",
        "kernel driver that holds it", "==", "nvidia", "", "Linux: one driver a device",
        "look: another driver or none has this GPU; see dmesg | grep NVRM",
    ),
    # PCIe
    Question(
        "gpu.pcie_speed",
        "slowest PCIe link up to the root", ">=", None, "GT/s",
        "the lower of what both ends of each link are able to, and the model",
        "look: reseat the GPU or its riser; look for AER messages; then replace it",
    ),
    Question(
        "gpu.pcie_width",
        "narrowest PCIe link up to the root", ">=", None, "lanes",
        "the lower of what both ends of each link are able to, and the model",
        "look: reseat the GPU or its riser; look for AER messages; then replace it",
    ),
    Question(
        "gpu.pcie_errors",
        "uncorrected PCIe errors of its link since boot, by the kernel (AER)", "<=", 0, "errors",
        "Linux PCIe AER: what the hardware did not correct",
        "look: reseat the GPU or its riser; again: run the field diagnostic, then replace it",
    ),
    Question(
        "gpu.pcie_corrected",
        "most corrected PCIe errors of its link in a minute, by the kernel (AER)", "<=", 8,
        "errors", "DCGM: more than 8 replays in a minute",
        "look: reseat the GPU or its riser; again: run the field diagnostic, then replace it",
    ),
    # Memory
    Question(
        "gpu.ecc_mode",
        "ECC now and after the next reset", "==", "on, on", "", "NVIDIA: on as delivered",
        "settings: nvidia-smi --ecc-config=1, then reset the GPU",
    ),
    Question(
        "gpu.ecc_uncorrectable",
        "uncorrectable ECC errors since the driver was loaded", "<=", 0, "errors", _PEERS_VOLATILE,
        _RESET_GPU + "; again on the same GPU: run the field diagnostic",
    ),
    Question(
        "gpu.ecc_dram_correctable",
        "correctable DRAM errors, all time", "<=", 20_000_000, "errors", "Azure AzNHC", _RMA,
    ),
    Question(
        "gpu.ecc_sram_correctable",
        "correctable SRAM errors, all time", "<=", 10_000, "errors", "Azure AzNHC", _RMA,
    ),
    Question(
        "gpu.sram_uncorrectable",
        "uncorrectable SRAM errors, all time", "<=", 4, "errors", "sichek and ml-engineering", _RMA,
    ),
    Question(
        "gpu.sram_threshold",
        "the driver's flag that SRAM errors are too many", "==", False, "exceeded",
        "NVML SRAM threshold flag; DCGM isolates such a GPU", _RMA,
    ),
    Question(
        "gpu.remap_pending",
        "row remap that waits for a reset", "==", False, "pending",
        "NVIDIA memory error management: takes effect at the next reset", _RESET_GPU,
    ),
    Question(
        "gpu.remap_failed",
        "row remap that failed", "==", False, "failed",
        "NVIDIA memory error management: the RMA criterion", _RMA,
    ),
    Question(
        "gpu.remapped_rows",
        "rows remapped for uncorrectable errors", "<", 512, "rows", "DCGM", _RMA,
    ),
    Question(
        "gpu.retired_pages",
        "retired pages (before Ampere)", "<", 63, "pages", "DCGM", _RMA,
    ),
    Question(
        "gpu.retired_double",
        "pages retired for double-bit errors (before Ampere)", "<=", 15, "pages",
        "DCGM: soft limit; more of them in a week are a case for return",
        "look: run the field diagnostic",
    ),
    Question(
        "gpu.unrepairable",
        "the driver's flag of memory that cannot be repaired", "==", False, "unrepairable",
        "NVML unrepairable memory flag", _RMA,
    ),
    Question(
        "gpu.repair_pending",
        "repair of a memory channel or TPC that waits for a reset", "==", "none", "",
        "NVML repair status; nvidia-smi: Channel and TPC Repair Pending", _RESET_GPU,
    ),
    Question(
        "gpu.retired_pending",
        "page retirement that waits for a reset (before Ampere)", "==", False, "pending",
        "NVIDIA dynamic page retirement", _RESET_GPU,
    ),
    # NVLink
    Question(
        "gpu.nvlink_active",
        "NVLinks that are up", "==", None, "links", _PROFILE,
        _RESET_GPU + "; the same link again: field diagnostic, then replace GPU or base board",
    ),
    Question(
        "gpu.nvlink_speed",
        "slowest NVLink", ">=", None, "MB/s", _SPECS, _RESET_GPU,
    ),
    Question(
        "gpu.nvlink_replays",
        "replayed packets of the worst NVLink", "<=", 0, "replays",
        "DCGM, Meta GCM and sichek: any fails",
        "look: note the link; reset the GPU; when they grow again, run the field diagnostic",
    ),
    Question(
        "gpu.nvlink_recoveries",
        "recoveries of the worst NVLink", "<=", 0, "recoveries",
        "DCGM, Meta GCM and sichek: any fails",
        "look: note the link; reset the GPU; when they grow again, run the field diagnostic",
    ),
    Question(
        "gpu.nvlink_failed_recoveries",
        "failed recoveries of the worst NVLink (fifth generation)", "<=", 0, "failures",
        "DCGM: any fails",
        "look: note the link; reset the GPU; when they grow again, run the field diagnostic",
    ),
    Question(
        "gpu.nvlink_ber",
        "effective bit error ratio of the worst NVLink (fifth generation)", "<=", 1e-12,
        "bit error ratio", "DCGM 4.7: above 1e-12 fails",
        "look: note the link; reset the GPU; again: run the field diagnostic on both of its ends",
    ),
    Question(
        "gpu.fabric",
        "registration with the fabric manager", "==", "completed", "",
        "NVML fabric state; without it CUDA ends with error 802",
        "settings: look at nvidia-fabricmanager (journalctl -u) and restart it",
    ),
    Question(
        "gpu.fabric_bandwidth",
        "bandwidth of the NVLink fabric", "==", "good", "", _HEALTH_MASK,
        _RESET_GPU + "; check which NVLinks are down or slow",
    ),
    Question(
        "gpu.fabric_route_recovery",
        "routes of the NVLink fabric are not being recovered", "==", "good", "", _HEALTH_MASK,
        _RESET_GPU,
    ),
    Question(
        "gpu.fabric_route",
        "routes of the NVLink fabric", "==", "good", "", _HEALTH_MASK,
        _RESET_GPU + "; look at nvidia-fabricmanager (journalctl -u)",
    ),
    Question(
        "gpu.fabric_access",
        "access over the NVLink fabric without timeouts", "==", "good", "", _HEALTH_MASK,
        _RESET_GPU,
    ),
    Question(
        "gpu.fabric_configuration",
        "configuration of the NVLink fabric", "==", "good", "", _HEALTH_MASK,
        "settings: look at nvidia-fabricmanager (journalctl -u), its partitions",
    ),
    Question(
        "gpu.fabric_partition",
        "partition of the NVLink fabric that has the GPU", "==", "good", "", _HEALTH_MASK,
        "settings: look at nvidia-fabricmanager (journalctl -u), its partitions",
    ),
    Question(
        "gpu.fabric_connection",
        "connection to the global fabric manager", "==", "good", "", _HEALTH_MASK,
        "settings: look at nvidia-fabricmanager (journalctl -u), and restart it",
    ),
    # Clocks, heat, power
    Question(
        "gpu.clock_sm",
        "largest SM clock", ">=", None, "MHz", _SPECS,
        "settings: nvidia-smi --reset-gpu-clocks; the VBIOS limits it otherwise",
    ),
    Question(
        "gpu.clock_memory",
        "largest memory clock", ">=", None, "MHz", _SPECS,
        "settings: nvidia-smi --reset-memory-clocks",
    ),
    Question(
        "gpu.throttle",
        "what slows its clocks", "==", "none", "",
        "Azure healthagent: mask 0xe8; idle and the software power cap are not a fault",
        "look: airflow, fans, filters, heat sink, power supplies and their cables; then replace",
    ),
    Question(
        "gpu.temperature",
        "degrees below its largest operating temperature", ">", 0, "C", _DEVICE,
        "look: airflow, fans, filters and heat sink; take it out of use until it is cool",
    ),
    Question(
        "gpu.temperature_absolute",
        "temperature, where the device states no margin", "<", None, "C", _DEVICE,
        "look: airflow, fans, filters and heat sink; take it out of use until it is cool",
    ),
    Question(
        "gpu.memory_temperature",
        "memory temperature", "<", 95, "C", _DEVICE + "; sichek's 95 C where it does not",
        "look: airflow, fans, filters and heat sink; take it out of use until it is cool",
    ),
    Question(
        "gpu.power_limit",
        "power limit in force", ">=", None, "W", _DEVICE + " as its default",
        "settings: nvidia-smi --power-limit; look for a limit that the BMC sets",
    ),
    # Settings and use
    Question(
        "gpu.persistence",
        "persistence mode", "==", "on", "", "NVIDIA: nvidia-persistenced on servers",
        "settings: enable nvidia-persistenced",
    ),
    Question(
        "gpu.compute_mode",
        "compute mode", "==", "default", "", "NVIDIA: as delivered",
        "settings: nvidia-smi --compute-mode=0",
    ),
    Question(
        "gpu.mig",
        "MIG now and after the next reset", "==", None, "", "inventory",
        "settings: run the role nvidia_driver, which sets the layout; then reset the GPU",
    ),
    Question(
        "gpu.mig_instances",
        "MIG instances", "==", None, "", "inventory",
        "settings: systemctl restart baremetal-dgx-mig, and read its log",
    ),
    Question(
        "gpu.processes",
        "processes that hold it", "<=", 0, "processes", "asked on idle nodes only",
        "job: end what an earlier job has left; zombies and D state need a reboot",
    ),
    Question(
        "gpu.memory_used",
        "memory in use without a process", "<=", 15, "MiB", "Meta GCM; asked on idle nodes only",
        _RESET_GPU,
    ),
    # What the driver says
    Question(
        "gpu.recovery_action",
        "what the driver asks for", "==", "none", "", "NVML field GPU_RECOVERY_ACTION",
        _RESET_GPU,
    ),
    Question(
        "gpu.xid",
        "Xids since boot that ask for more than a restarted job", "==", 0, "Xids",
        "NVIDIA Xid catalogue, October 2025", _RESET_GPU,
    ),
)  # fmt: skip

# The remedies of Xids and recovery actions, by the words of _xid_table.
ACTION_REMEDIES = {
    "check": "look: seek the cause named here; ask NVIDIA when it repeats",
    "reset": _RESET_GPU,
    "reboot": "reboot: drain the node and power-cycle it; the same GPU again: replace it",
    "replace": _RMA,
}

# Where no NVSwitch is the node's, they are the rack's, and so is their fabric manager, NMX-C, which
# has the GPUs of other nodes too.
_OF_THE_RACK = "look: the fabric manager of the rack (NMX-C on an NVLink switch): "
_RACK_REMEDIES = {
    "gpu.fabric": _OF_THE_RACK + "does it have this GPU? Then restart the node",
    "gpu.fabric_route": _OF_THE_RACK + "routes and NVLink switches; then restart the node",
    "gpu.fabric_configuration": _OF_THE_RACK + "its partitions, and the place of the node",
    "gpu.fabric_partition": _OF_THE_RACK + "put the GPU into a partition",
    "gpu.fabric_connection": _OF_THE_RACK + "does it run, and reach the NVLink switches?",
}


def fabric_remedy(check: str, nvswitches: int | None) -> str:
    """Return what to do about a fabric; empty for the remedy of the question."""
    return "" if nvswitches else _RACK_REMEDIES.get(check, "")


# Bits of the throttle reasons that are a fault: hardware slowdown, software and hardware thermal
# slowdown, power brake.
THROTTLE_FAULTS = 0xE8


class Model(NamedTuple):
    """What a model is able to; None is not known. `nvswitch_pci`: its switches are on PCIe."""

    clock_sm_mhz: int | None
    clock_memory_mhz: int | None
    nvlink_mbps: int | None
    pcie_gts: float | None
    nvswitch_pci: bool | None


# By the profile's gpus.type.
MODELS: dict[str, Model] = {row[0]: Model(*row[2:7]) for row in DATA}
_MEMORY = {(row[0], row[1]): Model(*row[2:7]) for row in DATA if row[1]}


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", text.lower()))


def same_part(kind: str, name: str) -> bool:
    """Return whether a product name is of a type: all its words, and no other kind of board."""
    wanted, found = _words(kind), _words(name)
    return wanted <= found and wanted & OTHER_PARTS == found & OTHER_PARTS


def model_of(kind: str, memory_mib: int | None) -> Model | None:
    """Return what a type is able to; None for one that no table has.

    A type is compared word by word ("gb200" is no "b200"), and a card for a PCIe slot is another
    part than the module of the same name. Of two sizes of memory the one that is nearest counts.
    """
    words = _words(kind)
    if words & OTHER_PARTS:
        return None
    for name, model in MODELS.items():
        if name in words:
            sizes = {size: other for (known, size), other in _MEMORY.items() if known == name}
            if not sizes or memory_mib is None:
                return model
            return sizes[min(sizes, key=lambda size: abs(size - memory_mib))]
    return None


MODEL_WIDTH = 16


def threshold(
    check: str, value: Any = None, overrides: Mapping[str, Any] | None = None
) -> Threshold:
    """Return the threshold of a check; the site's own wins, then `value`, then the table's."""
    if overrides and check in overrides:
        return QUESTIONS[check].threshold(overrides[check], "inventory")
    return QUESTIONS[check].threshold(value)


def kind_of(remedy: str) -> str:
    """Return which of KINDS a remedy is; LOOK where it names none."""
    kind = remedy.partition(":")[0]
    return kind if kind in KINDS else LOOK


def actions(records: Iterable[Record]) -> dict[str, str]:
    """Return for each subject with a finding the most that one of them asks for."""
    most: dict[str, str] = {}
    for record in records:
        if record.status == FAIL:
            kind = kind_of(record.remedy)
            before = most.get(record.subject, KINDS[0])
            most[record.subject] = max(before, kind, key=KINDS.index)
    return most
