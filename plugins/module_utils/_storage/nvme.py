# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Wear and errors of NVMe disks, out of `smartctl --json --all` (smartctl(8)).

The log page is "SMART / Health Information", section 5.16.1.3 of the specification.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any, Iterator, Mapping

from .._core.record import NOT_MEASURED, Record, stamped
from .._core.run import CommandResult, CommandRunner
from .thresholds import (
    CRITICAL_WARNING,
    MEDIA_ERRORS,
    PRESENT,
    SELF_TEST,
    SMART_STATUS,
    SPARE,
    WEAR,
)

# smartctl(8), EXIT STATUS. Bits 0 and 1: the command line was wrong, the disk could not be opened.
_NOT_READ = 0b11
# Bit 2 says that some command failed: since 7.3 that is set for every disk without the optional
# self-test log. Whether the health page was read is seen by its being there.
# Bit 3 is the disk's own verdict. Bits 4 and 5 are of ATA attributes. Bit 6, an entry in the log of
# errors, is set by any command that a disk does not know, and proves nothing.
_FAILING = 1 << 3
# Bit 7: a self-test has found an error.
_SELF_TEST = 1 << 7
_WARNINGS = (
    "spare below its threshold",
    "temperature out of range",
    "reliability degraded",
    "read only",
    "volatile memory backup failed",
    "persistent memory unreliable",
)


def warnings_of(bits: int) -> str:
    """Return what the bits of the critical warning mean."""
    messages = [text for place, text in enumerate(_WARNINGS) if bits & (1 << place)]
    return ", ".join(messages) or "none"


def parse(text: str) -> Mapping[str, Any]:
    """Return the answer; ValueError for what is not complete JSON."""
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("no object")
    return data


def judge_disk(
    node: str,
    device: str,
    asked: CommandResult,
    wear_percent: int | None = None,
    media_errors: int | None = None,
) -> Iterator[Record]:
    """Yield the records of one disk; the subject is its serial, or its name without one.

    `wear_percent` and `media_errors` are the most that the site allows.
    """
    unnamed = f"nvme:{node}/{device.rpartition('/')[2]}"
    try:
        data = parse(asked.out) if asked.outcome == "ended" else {}
    except ValueError as error:
        yield _unknown(unnamed, device, f"smartctl gives no whole answer: {error}")
        return
    serial = str(data.get("serial_number") or "")
    subject = f"nvme:{node}/{serial}" if serial else unnamed
    model = data.get("model_name", "no model")
    evidence: tuple[str, ...] = (f"serial {serial}", f"{device}, {model}")
    log = data.get("nvme_smart_health_information_log")
    if asked.outcome != "ended" or asked.rc & _NOT_READ or not isinstance(log, dict):
        messages = data.get("smartctl", {}).get("messages") or []
        reported = "; ".join(str(one.get("string")) for one in messages) or asked.describe(1)
        yield _unknown(subject, device, f"{device} was not read: {reported}")
        return
    messages = data.get("smartctl", {}).get("messages") or []
    evidence += tuple(f"smartctl: {one.get('string')}" for one in messages[:3])
    yield from _exit_status(subject, device, asked.rc, log, evidence)
    bits, wear = _number(log, "critical_warning"), _number(log, "percentage_used")
    text = "" if bits is None else f"{device}: {warnings_of(bits)}"
    yield CRITICAL_WARNING.judge(subject, bits, text=text or device, evidence=evidence)
    yield WEAR.judge(subject, wear, wear_percent, text=device, evidence=evidence)
    spare, least = _number(log, "available_spare"), _number(log, "available_spare_threshold")
    if least is not None:
        yield SPARE.judge(subject, spare, least, text=device, evidence=evidence)
    errors = _number(log, "media_errors")
    yield MEDIA_ERRORS.judge(subject, errors, media_errors, text=device, evidence=evidence)


def _exit_status(
    subject: str, device: str, status: int, log: Mapping[str, Any], evidence: tuple[str, ...]
) -> Iterator[Record]:
    """Yield what the exit status says and the health page does not."""
    if status & _FAILING and not _number(log, "critical_warning"):
        text = f"{device}: its own verdict"
        yield SMART_STATUS.judge(subject, "failing", text=text, evidence=evidence)
    if status & _SELF_TEST:
        text = f"{device}: log of self-tests"
        yield SELF_TEST.judge(subject, "errors", text=text, evidence=evidence)


def _number(log: Mapping[str, Any], name: str) -> int | None:
    value = log.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _unknown(subject: str, device: str, message: str) -> Record:
    return Record(
        "nvme.read", subject, NOT_MEASURED, message, evidence=(device,),
        remedy="look: is smartmontools installed, does the disk answer (dmesg, nvme list)?",
    )  # fmt: skip


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
    run: CommandRunner, node: str, sysfs: str, count: int, timeout_s: float, **most: int
) -> Iterator[Record]:
    """Yield the records of each disk, and with a `count` whether there are as many.

    `most` is what judge_disk() takes.
    """
    yield from judge_count(node, sysfs, count)
    for name in controllers(sysfs):
        yield from ask_disk(run, node, name, timeout_s, **most)


def judge_count(node: str, sysfs: str, count: int) -> Iterator[Record]:
    """Yield whether there are as many disks; 0 does not ask."""
    names = controllers(sysfs)
    if count:
        yield PRESENT.judge(f"node:{node}", len(names), count, text=", ".join(names))


def ask_disk(
    run: CommandRunner, node: str, name: str, timeout_s: float, **most: int
) -> Iterator[Record]:
    """Yield the records of one disk; `most` is what judge_disk() takes."""
    begun = time.monotonic()
    asked = run(["smartctl", "--json", "--all", f"/dev/{name}"], timeout_s=timeout_s)
    took_s = time.monotonic() - begun
    yield from stamped(judge_disk(node, f"/dev/{name}", asked, **most), "", took_s)
