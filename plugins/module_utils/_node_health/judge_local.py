# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Judgement of what is not GPU and not fabric: mounts, disks, memory, clock, services. Pure."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Collection, Iterable, Iterator, Mapping, Sequence

from .._core.mounts import GONE, on_top, table, unescape
from .._core.record import FAIL, NOT_MEASURED, PASS, Record
from .._core.run import CommandResult
from .._host.hardware_log import AER, MINUTE_S, Fault, most_in, refusals
from .._host.kernel_log import KernelLog
from .._host.memory import count_cpus
from .._storage.mounts.plan import owner_of, same_source
from .settings import Disk, Mount
from .thresholds import (
    ANSWERS,
    CLOCK,
    CPUS,
    FREE,
    FREE_INODES,
    MACHINE_CHECKS,
    MEMORY,
    MOUNTED,
    PCIE_CORRECTED,
    PCIE_ERRORS,
    PRESENT,
    READ_ONLY,
    SERVICE,
)

_MOST_LINES = 8
# Of USER@FSID.NAME=/PATH.
_CLIENT = re.compile(r"^[^@:/]*@")
_TRACKING_FIELDS = 14
# chrony keeps the last answer of servers that are gone. A poll may be missed, and the first ones
# are close together.
_FRESH_S, _FRESH_INTERVALS = 3600.0, 3


@dataclass(frozen=True)
class Space:
    """What statvfs reports about a folder; `error` is its number where it failed."""

    free_mib: int = 0
    inodes: int = 0
    free_inodes: int = 0
    read_only: bool = False
    error: int = 0


def unmounted(path: str, fstab: str, mountinfo: str) -> str:
    """Return the mount point of fstab(5) that a path is on and that is not mounted, "" without one.

    Its folder stays where it was not mounted at a boot, and takes all that jobs write. An automount
    is mounted by the first access.
    """
    points = []
    for line in fstab.split("\n"):
        fields = line.split()
        if len(fields) > 3 and not line.lstrip().startswith("#"):
            point, options = unescape(fields[1]).rstrip("/"), fields[3].split(",")
            if point and f"{path}/".startswith(f"{point}/") and "noauto" not in options:
                points.append(point)
    deepest = max(points, key=len, default="")
    live = on_top(mountinfo)
    # The kernel's table has what a link leads to.
    return "" if deepest in live or os.path.realpath(deepest) in live else deepest


def source_of(mount: Mount, unit: str) -> str:
    """Return what is to be mounted: by the unit of a role, which a change reaches first.

    Empty where the settings name nothing.
    """
    lines = (line for line in unit.split("\n") if line.startswith("What=") and owner_of(unit))
    what = next(lines, "")[len("What=") :].replace("%%", "%")
    return mount.source and (what or mount.source)


def judge_mounted(node: str, mount: Mount, mountinfo: str | None, device: str = "") -> Record:
    """Return whether it is mounted, by a mountinfo that can be read while the mount hangs.

    `device` is the number of the declared device, empty where none is there.
    """
    top = on_top(mountinfo or "").get(mount.path)
    found = top.fstype if top else None if mountinfo is None else "not mounted"
    # An automount is one that is mounted by the first access.
    want = mount.fstype or "mounted"
    value = found
    if found not in (None, "not mounted") and (not mount.fstype or found == "autofs"):
        value = want
    live = table(mountinfo or "").get(mount.path)
    # Another client mounts the same data.
    what = _CLIENT.sub("@", mount.source)
    if value == want and what and live and not same_source(what, live, device):
        value, want = live.other_than(mount.source), mount.source
    mounted_as = MOUNTED.filled(path=mount.path)
    return mounted_as.judge(subject_of(node, mount.path), value, want, text=mount.path)


def judge_answer(node: str, mount: Mount, space: Space, took_s: float) -> Record:
    """Return whether a mount has answered."""
    return Record(
        ANSWERS.check, subject_of(node, mount.path), _status(space),
        f"{mount.path}: {_error(space) or 'answered'}", {"value": round(took_s, 3), "unit": "s"},
        ANSWERS.threshold(mount.patience_s), remedy=_mount_remedy(mount) if space.error else "",
    )  # fmt: skip


def judge_hang(node: str, mount: Mount, hangs_s: float, message: str) -> Record:
    """Return the record of a mount that does not answer: a failure when that has lasted."""
    late = hangs_s > mount.patience_s
    return Record(
        ANSWERS.check, subject_of(node, mount.path), FAIL if late else NOT_MEASURED,
        f"{mount.path} has not answered for {hangs_s:.0f} s",
        {"value": round(hangs_s), "unit": "s"} if late else None,
        ANSWERS.threshold(mount.patience_s), (message,), _mount_remedy(mount) if late else "",
    )  # fmt: skip


def _mount_remedy(mount: Mount) -> str:
    return ANSWERS.filled(path=mount.path).remedy


def judge_disk(node: str, disk: Disk, space: Space, missing: str = "") -> Iterator[Record]:
    """Yield whether a folder can be written into, and whether enough is free.

    `missing` is its mount point, if that is not mounted.
    """
    subject = subject_of(node, disk.path)
    if space.error:
        yield Record(
            PRESENT.check, subject, _status(space), f"{disk.path}: {_error(space)}",
            threshold=PRESENT.threshold(), remedy=PRESENT.remedy,
        )  # fmt: skip
        return
    if missing:
        yield PRESENT.judge(subject, f"{missing} is not mounted", text=disk.path)
        return
    yield READ_ONLY.judge(subject, space.read_only, text=disk.path)
    yield FREE.filled(path=disk.path).judge(subject, space.free_mib, disk.free_mib)
    if space.inodes:
        # File systems without a fixed number of inodes say 0.
        percent = round(100 * space.free_inodes / space.inodes, 2)
        inodes = FREE_INODES.filled(path=disk.path)
        yield inodes.judge(subject, percent, disk.free_inodes_percent)


def subject_of(node: str, path: str) -> str:
    """Return the subject of a path on the node."""
    return f"path:{node}{path}"


def _status(space: Space) -> str:
    if not space.error:
        return PASS
    return FAIL if space.error in GONE else NOT_MEASURED


def _error(space: Space) -> str:
    return os.strerror(space.error) if space.error else ""


def judge_host(
    node: str, want_mib: int, want_cpus: int, memory_mib: int | None, online: str | None
) -> Iterator[Record]:
    """Yield memory and CPUs; 0 does not ask."""
    subject = f"node:{node}"
    if want_mib:
        yield MEMORY.judge(subject, memory_mib, want_mib)
    if want_cpus:
        yield CPUS.judge(subject, count_cpus(online), want_cpus)


def judge_hardware_log(
    node: str, faults: Sequence[Fault], elsewhere: Collection[str], log: KernelLog
) -> Iterator[Record]:
    """Yield what the kernel reports about memory, CPUs and PCIe; `elsewhere` are judged by others.

    Corrected memory errors and machine checks are not a finding: EDAC's counters are what tells
    more.
    """
    aer = [one for one in faults if one.kind == AER and one.where not in elsewhere]
    hard = [one for one in aer if one.hard]
    soft = [one for one in aer if one.corrected]
    memory = [one for one in faults if one.kind != AER and not one.corrected]
    for question, found, count in (
        (MACHINE_CHECKS, memory, sum(one.count for one in memory)),
        (PCIE_ERRORS, hard, len(hard)),
        (PCIE_CORRECTED, soft, most_in(soft, MINUTE_S)),
    ):
        named = ", ".join(sorted({one.where for one in found}))
        text = f"{question.what}: {named}" if named else question.what
        lost = bool(log.gap) and not count
        more = refusals(aer) if found is hard else ()
        yield question.judge(
            f"node:{node}", None if lost else count,
            text=f"{question.what}; {log.gap}" if lost else text,
            evidence=(*(one.text for one in found[:_MOST_LINES]), *more),
        )  # fmt: skip


def judge_clock(
    node: str, most_s: float, tracking: CommandResult, now_s: float
) -> Iterator[Record]:
    """Yield the offset, of `chronyc -c tracking` (chronyc(1), -c); `now_s` is Unix time.

    A host that is itself the source (`local`) has a reference time of the last minute.
    """
    fields = tracking.out.strip().split(",") if tracking.ok else []
    offset, text = None, f"chronyc shows nothing of use: {tracking.describe(1)}"
    try:
        if len(fields) == _TRACKING_FIELDS:
            offset, text = abs(float(fields[4])), f"offset of the clock; chrony says {fields[13]}"
            silent_s = abs(now_s - float(fields[3]))
            late = silent_s > max(_FRESH_S, _FRESH_INTERVALS * float(fields[12]))
            if late and offset <= most_s and fields[13] != "Not synchronised":
                offset, text = None, f"no time server has answered for {silent_s:.0f} s"
    except ValueError:
        pass
    if fields[13:] == ["Not synchronised"]:
        # The servers may be at fault, for all nodes at once; and there is nothing to compare with.
        offset = None
    yield CLOCK.judge(f"node:{node}", offset, most_s, text=text)


def judge_services(node: str, units: Sequence[str], shown: CommandResult) -> Iterator[Record]:
    """Yield a record of each unit, of `systemctl show -p Id -p LoadState -p ActiveState`.

    systemd answers in the order of the question, a block of lines each.
    """
    blocks = [_block(text.splitlines()) for text in shown.out.strip().split("\n\n")]
    whole = shown.ok and len(blocks) == len(units)
    for place, unit in enumerate(units):
        block: Mapping[str, str] = blocks[place] if whole else {}
        state = block.get("ActiveState")
        if block.get("LoadState") == "not-found":
            state = "not installed"
        elif state not in ("active", "failed", "inactive"):
            # On its way, or not reported.
            state = None
        yield SERVICE.filled(unit=unit).judge(
            f"service:{node}/{unit}", state, text=unit if whole else f"{unit}: {shown.describe(1)}"
        )


def _block(lines: Iterable[str]) -> dict[str, str]:
    return {key: value for key, _equals, value in (line.partition("=") for line in lines)}
