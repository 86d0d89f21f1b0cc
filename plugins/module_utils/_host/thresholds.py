# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What cpu_memory_check asks, the threshold, its source, and what to do. Data only."""

from __future__ import annotations

from .._core.question import Question

_PROFILE = "profile of the node"
_LOOK_CPU = "look: lscpu -e; SMT, NPS and SNC in the firmware; nosmt and maxcpus in /proc/cmdline"
_LOOK_MEMORY = "replace: find the memory module with dmidecode -t 17 and ipmitool sel list"
_KNOWN = "the results are known before"

CPUS = Question("cpu.count", "CPUs that are online", "==", None, "", _PROFILE, _LOOK_CPU)
SOCKETS = Question("cpu.sockets", "sockets", "==", None, "", _PROFILE, _LOOK_CPU)
CORES = Question("cpu.cores", "cores", "==", None, "", _PROFILE, _LOOK_CPU)
NUMA_NODES = Question("cpu.numa", "NUMA nodes", "==", None, "", _PROFILE, _LOOK_CPU)
SIZE = Question(
    "memory.size", "memory of the NUMA nodes with CPUs", ">=", None, "MiB", _PROFILE, _LOOK_MEMORY,
)  # fmt: skip
# A DIMM of 16 or 32 is 3 to 6 %.
BALANCE = Question(
    "memory.balance",
    "share that the smallest of the NUMA nodes with CPUs has less than the largest", "<=", 0.05, "",
    "Azure azurehpc-health-checks: memory within 5 %", _LOOK_MEMORY,
)  # fmt: skip
# mcelog.conf as delivered: ce-error-threshold = 10 / 24h of a DIMM, uc-error-threshold = 1 / 24h.
UNCORRECTED = Question(
    "memory.uncorrected", "uncorrected memory errors since the boot", "==", 0, "errors",
    "mcelog.conf: one uncorrected error is too many", _LOOK_MEMORY,
)  # fmt: skip
CORRECTED = Question(
    "memory.corrected",
    "corrected memory errors of the worst DIMM in 24 h, on average since the boot", "<=", 10,
    "errors/day", "mcelog.conf: 10 in 24 h of a DIMM", _LOOK_MEMORY,
)  # fmt: skip

# Under load
_AGAIN = "replace: run it again; the processor where the same CPU is wrong, else memtest86"
KNOWN_ANSWERS = Question(
    "cpu.known_answers", "wrong results of computations", "==", 0, "wrong results", _KNOWN, _AGAIN,
)  # fmt: skip
PATTERNS = Question(
    "memory.patterns", "blocks of memory that change", "==", 0, "wrong blocks", _KNOWN, _AGAIN,
)  # fmt: skip
