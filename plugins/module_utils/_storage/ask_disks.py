# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asks the NVMe disks of a node with smartctl."""

from __future__ import annotations

import os
import re
import time
from typing import Iterator

from .._core.record import Record, Threshold, judge, stamped
from .._core.run import CommandRunner
from .nvme import Marks, judge_disk


def controllers(sysfs: str) -> list[str]:
    """Return the controllers of NVMe disks, in the order of their numbers."""
    folder = os.path.join(sysfs, "class", "nvme")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    # Disks of the network (nvme over fabrics) have a controller, too, and are not this node's.
    local = []
    for name in names:
        try:
            with open(os.path.join(folder, name, "transport"), encoding="ascii") as handle:
                transport = handle.read().strip()
        except OSError:
            transport = "pcie"
        if re.fullmatch(r"nvme\d+", name) and transport == "pcie":
            local.append(name)
    return sorted(local, key=lambda name: int(name[4:]))


def ask_disks(
    run: CommandRunner, node: str, sysfs: str, count: int, marks: Marks, timeout_s: float
) -> Iterator[Record]:
    """Yield the records of each disk, and with a `count` whether there are as many."""
    names = controllers(sysfs)
    if count:
        yield judge(
            "nvme.present", f"node:{node}", len(names),
            Threshold(">=", count, "disks", "profile of the node"), ", ".join(names),
            "look: a disk is not seen; nvme list, dmesg, then reseat it",
        )  # fmt: skip
    for name in names:
        begun = time.monotonic()
        asked = run(["smartctl", "--json", "--all", f"/dev/{name}"], timeout_s=timeout_s)
        took_s = time.monotonic() - begun
        yield from stamped(judge_disk(node, f"/dev/{name}", asked, marks), "", took_s)
