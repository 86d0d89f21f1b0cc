# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What node_health asks besides GPUs and rails: threshold, source, and what to do. Data only."""

from __future__ import annotations

from .._core.question import Question

_DECLARED = "declared in the inventory"
_PROFILE = "profile of the node"
_CARD = "look: lspci -s of the address that is named; reseat that card, then replace it"

MOUNTED = Question(
    "mount.mounted", "file system of a mount", "==", None, "", _DECLARED,
    "look: findmnt {path}, systemctl status its mount unit; is its server reachable?",
)  # fmt: skip
ANSWERS = Question(
    "mount.answers", "time until a mount answers", "<=", None, "s without an answer", _DECLARED,
    "look: the server of {path}, and its network; a hung mount may need a reboot",
)  # fmt: skip
PRESENT = Question(
    "disk.present", "folder of a disk", "==", "there", "", _DECLARED,
    "look: is its file system mounted, are its disks there (findmnt, lsblk, dmesg)?",
)  # fmt: skip
READ_ONLY = Question(
    "disk.read_only", "file system of a disk", "==", False, "read-only", "jobs write here",
    "look: ext4 and xfs turn read-only after an error; dmesg, smartctl -a, then replace",
)  # fmt: skip
FREE = Question(
    "disk.free", "free in {path}", ">=", None, "MiB", _DECLARED,
    "job: see who fills {path} (du -xh), and what should have cleaned it",
)  # fmt: skip
FREE_INODES = Question(
    "disk.free_inodes", "inodes of {path}", ">=", None, "%", _DECLARED,
    "job: see who has so many files in {path}",
)  # fmt: skip
MEMORY = Question(
    "host.memory", "memory of the NUMA nodes with CPUs", ">=", None, "MiB", _PROFILE,
    "replace: a memory module is missing; ipmitool sel list, dmidecode -t 17",
)  # fmt: skip
CPUS = Question(
    "host.cpus", "CPUs online", "==", None, "CPUs", _PROFILE,
    "look: a socket, or a BIOS setting (hyper-threading), is gone",
)  # fmt: skip
MACHINE_CHECKS = Question(
    "host.machine_checks", "uncorrected errors of memory and CPUs since boot", "<=", 0, "errors",
    "Linux EDAC and mce: what the hardware did not correct",
    "replace: the module or CPU that is named (ipmitool sel list, edac-util); drain first",
)  # fmt: skip
PCIE_ERRORS = Question(
    "host.pcie_errors", "uncorrected PCIe errors since boot", "<=", 0, "errors",
    "Linux PCIe AER: what the hardware did not correct", _CARD,
)  # fmt: skip
PCIE_CORRECTED = Question(
    "host.pcie_corrected", "most corrected PCIe errors in a minute", "<=", 8, "errors",
    "DCGM: more than 8 replays in a minute", _CARD,
)  # fmt: skip
SENSORS = Question(
    "host.sensors", "sensors of the BMC that are critical or report a loss", "==", 0, "sensors",
    "the BMC's own critical thresholds; IPMI 2.0, tables 42-2 and 42-3",
    "look: ipmitool sdr elist; inlet air and fans, cable and feed of the supply that is named",
)  # fmt: skip
CLOCK = Question(
    "clock.offset", "offset of the clock", "<=", None, "s", _DECLARED,
    "look: chronyc sources -v, chronyc makestep",
)  # fmt: skip
SERVICE = Question(
    "service.active", "state of a unit", "==", "active", "", _DECLARED,
    "look: systemctl status {unit}; journalctl -u {unit}",
)  # fmt: skip
