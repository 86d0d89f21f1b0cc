# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asks the kernel for processors and memory, and loads them with work whose results are known."""

from __future__ import annotations

import os
import re
from typing import Any, Mapping

from .._core.record import Record
from .cpu_memory import judge_host, judge_load, load
from .cpu_memory_load import run


def available_mib() -> int:
    """Return MemAvailable of this host, 0 where it cannot be read."""
    try:
        with open("/proc/meminfo", encoding="ascii") as stream:
            found = re.search(r"(?m)^MemAvailable:\s+(\d+) kB", stream.read())
    except OSError:
        return 0
    return int(found[1]) // 1024 if found else 0


def ask_cpus(node: str, options: Mapping[str, Any], check: bool) -> tuple[list[Record], int, int]:
    """Return the records, how many CPUs are loaded and how many MiB written.

    `options` are those of cpu_memory_check. `check` asks the kernel only.
    """
    seconds = options["seconds"]
    cpus = sorted(os.sched_getaffinity(0)) if seconds else []
    share = int(available_mib() * options["memory_share"])
    most = min(share, options["memory_mib"]) if options["memory_mib"] else share
    each = most // len(cpus) if cpus else 0
    host = load(options["sysfs"], options["proc"])
    records = list(judge_host(node, host, options["profile"], options["edac"]))
    if cpus and not check:
        told = run(cpus, seconds, each)
        records += judge_load(node, told, seconds, each * len(cpus))
    return records, len(cpus), each * len(cpus)
