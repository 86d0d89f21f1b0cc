# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The memory of the host, which is not that of its GPUs, and the number of its CPUs."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass, field
from typing import Collection, Mapping

from .._core.files import text_if_readable

_TOTAL = re.compile(r"MemTotal:\s+(\d+) kB")


@dataclass(frozen=True)
class Memory:
    """What the kernel shows; `mib` is None where it could not be read.

    `nodes_kib` is MemTotal of each NUMA node by number; `without_cpus` are those that have no CPU,
    such as the memory of a GPU.
    """

    mib: int | None = None
    nodes_kib: Mapping[int, int] = field(default_factory=dict)
    without_cpus: Collection[int] = ()


def count_cpus(text: str | None) -> int | None:
    """Return how many CPUs a list like 0-55,112-167 has; None for what is not a list."""
    total = 0
    for part in (text or "").strip().split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if found is None:
            return None
        total += int(found[2] or found[1]) - int(found[1]) + 1
    return total


def _total_kib(path: str) -> int | None:
    found = _TOTAL.search(text_if_readable(path) or "")
    return int(found[1]) if found else None


def load_memory(sysfs: str, proc: str) -> Memory:
    """Read the trees: MemTotal, without what NUMA nodes without CPUs have of it."""
    nodes: dict[int, int] = {}
    without_cpus: set[int] = set()
    for folder in glob.glob(os.path.join(sysfs, "devices/system/node/node[0-9]*")):
        number, kib = int(folder.rpartition("node")[2]), _total_kib(f"{folder}/meminfo")
        if kib is not None:
            nodes[number] = kib
        cpus = text_if_readable(f"{folder}/cpulist")
        if cpus is not None and not cpus.strip():
            without_cpus.add(number)
    total = _total_kib(os.path.join(proc, "meminfo"))
    if total is not None:
        total -= sum(nodes.get(number, 0) for number in without_cpus)
    return Memory(None if total is None else total // 1024, nodes, without_cpus)
