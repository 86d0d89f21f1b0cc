# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What fio is asked on scratch, where it may be asked, and what its JSON says. Pure.

Data first: a block that does not come back as it was written is a failure at any speed.
"""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Sequence

from .._core.question import Question
from .._core.record import FAIL, NOT_MEASURED, Record
from .._core.run import ENDED, CommandResult, last_lines
from .thresholds import DISK_ERRORS, RATES, WRONG_BLOCKS

MIB = 1 << 20
LEAST_MIB = 256
# So much of the free space at most, and so much of the whole must be left.
MOST_OF_FREE, LEAST_LEFT = 0.25, 0.1
_DATA_MIB = 1024
# Many nodes at once would measure each other there.
SHARED = ("nfs", "nfs4", "ceph", "fuse.ceph", "fuse.ceph-fuse", "lustre", "beegfs", "gpfs", "9p",
          "cifs", "smb3", "virtiofs", "wekafs")  # fmt: skip
# In the memory of the node, not on its disks.
NO_DISK = ("tmpfs", "ramfs")

DATA, WRITE, READ = "data", "write", "read"
RANDOM_READ, RANDOM_WRITE = "random_read", "random_write"

# Errors that the disk has made; all others are of how it was asked.
_BROKEN = (errno.EIO, errno.EILSEQ, errno.EROFS, errno.EUCLEAN, errno.ENODEV, errno.ENXIO,
           errno.EREMOTEIO)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where it would run: bytes, the mount point it is on, and the type of its file system."""

    free: int
    total: int
    mount: str
    fstype: str


@dataclass(frozen=True)
class Step:
    """One run of fio: its name, command line, and the seconds until it is ended."""

    name: str
    argv: tuple[str, ...]
    limit_s: float


def refuse(place: Place, root_ok: bool, shared_ok: bool) -> str:
    """Return why nothing may be written there, empty where it may."""
    if place.mount == "/" and not root_ok:
        return "it is on the root file system: scratch is not mounted"
    if place.fstype in SHARED and not shared_ok:
        return f"{place.mount} is shared ({place.fstype}), and all nodes would load it at once"
    if place.fstype in NO_DISK:
        return f"{place.mount} is memory ({place.fstype}), no disk"
    if size_mib(place, LEAST_MIB) < LEAST_MIB:
        return (
            f"{place.free // MIB} of {place.total // MIB} MiB are free; {LEAST_MIB} MiB must be a "
            f"quarter of what is free, and a tenth of all must be left"
        )
    return ""


def size_mib(place: Place, asked_mib: int) -> int:
    """Return how large the file may be; there are two of them, the other is not larger."""
    room = min(place.free * MOST_OF_FREE, place.free - place.total * LEAST_LEFT) / 2
    return max(0, min(asked_mib, int(room / MIB)))


def steps(
    tool: str, folder: str, mib: int, seconds: float, engine: str, jobs: int, extra: Sequence[str]
) -> list[Step]:
    """Return what is run, one after the other, in its own folder."""
    common = [tool, "--output-format=json", f"--directory={folder}", f"--ioengine={engine}",
              "--direct=1", "--group_reporting=1", "--thread=1", *extra]  # fmt: skip
    timed = ["--time_based=1", f"--runtime={seconds:g}"]
    data = min(mib, _DATA_MIB)
    kinds: list[tuple[str, list[str]]] = [
        (DATA, ["--filename=data", "--rw=write", "--bs=1M", "--iodepth=16", f"--size={data}M",
                "--verify=crc32c", "--do_verify=1", "--verify_fatal=1",
                # fio would write how far it came into the folder that it is started in.
                "--verify_state_save=0"]),
        (WRITE, ["--filename=speed", "--rw=write", "--bs=1M", "--iodepth=32", f"--size={mib}M",
                 *timed]),
        (READ, ["--filename=speed", "--rw=read", "--bs=1M", "--iodepth=32", f"--size={mib}M",
                *timed]),
        (RANDOM_READ, ["--filename=speed", "--rw=randread", "--bs=4k", "--iodepth=64",
                       f"--numjobs={jobs}", f"--size={mib}M", "--norandommap=1", *timed]),
        (RANDOM_WRITE, ["--filename=speed", "--rw=randwrite", "--bs=4k", "--iodepth=64",
                        f"--numjobs={jobs}", f"--size={mib}M", "--norandommap=1", *timed]),
    ]  # fmt: skip
    # What is read at random was written before; where the disk is slow that takes longest.
    limit = 2 * seconds + 60
    return [Step(name, (*common, f"--name={name}", *words), limit) for name, words in kinds]


@dataclass(frozen=True)
class Answer:
    """What fio reports about one run; rates of both directions by name, times in milliseconds."""

    version: str = ""
    error: int = 0
    mb_s: Mapping[str, float] | None = None
    iops: Mapping[str, float] | None = None
    p99_ms: Mapping[str, float] | None = None
    bytes: Mapping[str, int] | None = None


def parse(text: str) -> Answer:
    """Read fio's JSON, of release 3; ValueError where there is none, or no whole one.

    Notes that it prints before the JSON are passed over. Of several jobs the rates are added, and
    the longest time counts.
    """
    begin = 0 if text.startswith("{") else text.find("\n{") + 1
    if not text[begin : begin + 1] == "{":
        raise ValueError("no JSON")
    data, _end = json.JSONDecoder().raw_decode(text[begin:])
    jobs = data.get("jobs") if isinstance(data, dict) else None
    if not jobs:
        raise ValueError("no jobs")
    mb_s: dict[str, float] = {}
    iops: dict[str, float] = {}
    p99: dict[str, float] = {}
    moved: dict[str, int] = {}
    try:
        for side in ("read", "write"):
            mb_s[side] = round(sum(float(job[side]["bw_bytes"]) for job in jobs) / 1e6, 1)
            iops[side] = round(sum(float(job[side]["iops"]) for job in jobs), 1)
            moved[side] = sum(int(job[side]["io_bytes"]) for job in jobs)
            times = [job[side]["clat_ns"].get("percentile", {}).get("99.000000") for job in jobs]
            p99[side] = round(max([float(one) for one in times if one] or [0.0]) / 1e6, 3)
        error = next((int(job["error"]) for job in jobs if int(job["error"])), 0)
    except (KeyError, TypeError, AttributeError) as lacks:
        raise ValueError(f"lacks {lacks}") from None
    return Answer(str(data.get("fio version", "")), error, mb_s, iops, p99, moved)


def subject_of(node: str, folder: str) -> str:
    """Return the subject of the records about a folder."""
    return f"mount:{node}{folder}"


def unmeasured(node: str, folder: str, text: str, remedy: str) -> Record:
    """Return the record of what could not be asked."""
    return Record("fio.run", subject_of(node, folder), NOT_MEASURED, text, remedy=remedy)


def questions_of(given: Mapping[str, Any], source: str) -> dict[str, Question]:
    """Return the questions by check, with the thresholds of the profile where it has them."""
    found = {}
    for key, question in RATES.items():
        own = given.get(key)
        if own is not None:
            question = question._replace(value=float(own), source=source)
        found[question.check] = question
    return found


def judge_step(
    node: str, folder: str, step: Step, result: CommandResult, questions: Mapping[str, Question]
) -> Iterator[Record]:
    """Yield the records of one run."""
    check, subject = f"fio.{step.name}", subject_of(node, folder)
    if result.outcome != ENDED:
        remedy = "look: is the disk stuck (dmesg)? Is fio installed?"
        yield Record(check, subject, NOT_MEASURED, result.describe(), remedy=remedy)
        return
    try:
        answer = parse(result.out)
    except ValueError as why:
        text = f"fio ended with {result.rc} and {why}: {last_lines(result.text, 2)}"
        yield Record(check, subject, NOT_MEASURED, text, remedy="look: run it by hand")
        return
    evidence: tuple[str, ...] = (f"{answer.version} {' '.join(step.argv[1:])}",)
    message = last_lines(result.err, 2)
    if answer.error or result.rc:
        yield _of_error(step, subject, answer.error, result, evidence)
        return
    if message and "note:" not in message:
        text = f"unexpected on standard error: {message}"
        yield Record(
            check, subject, NOT_MEASURED, text, evidence=evidence, remedy="look: run it by hand"
        )
        return
    moved, mb_s = answer.bytes or {}, answer.mb_s or {}
    if step.name == DATA:
        # Both ways, or nothing was compared.
        whole = bool(moved.get("read")) and moved.get("read") == moved.get("write")
        text = f"{moved.get('write', 0) // MIB} MiB written, {moved.get('read', 0) // MIB} verified"
        yield WRONG_BLOCKS.judge(subject, 0 if whole else None, text=text, evidence=evidence)
        return
    question = questions[check]
    side = "read" if step.name in (READ, RANDOM_READ) else "write"
    rates = mb_s if question.unit == "MB/s" else answer.iops or {}
    late = (answer.p99_ms or {}).get(side, 0.0)
    value = rates.get(side) if moved.get(side) else None
    evidence = (*evidence, f"99 % within {late:g} ms")
    yield question.judge(subject, value, evidence=evidence)


def _of_error(
    step: Step, subject: str, number: int, result: CommandResult, evidence: tuple[str, ...]
) -> Record:
    """The record of a run that ended with an error of fio's, or of the kernel's."""
    name = errno.errorcode.get(number, str(number)) if number else f"exit status {result.rc}"
    text = f"{name}: {last_lines(result.err or result.out.split(chr(10) + '{')[0], 2)}"
    if number in _BROKEN:
        what = "a block that is not what was written" if number == errno.EILSEQ else "I/O error"
        errors = DISK_ERRORS.filled(step=step.name)
        return errors.judge(subject, 1, text=f"{what}: {text}", evidence=evidence)
    remedy = "look: full, or direct I/O is not served there; try other options"
    check = f"fio.{step.name}"
    return Record(check, subject, NOT_MEASURED, text, evidence=evidence, remedy=remedy)


def is_over(records: Sequence[Record]) -> bool:
    """Return whether to stop: a disk that loses data needs no load, and a hang no second one."""
    return any(
        (record.status == FAIL and record.check == f"fio.{DATA}")
        or (record.status == NOT_MEASURED and "did not end" in record.text)
        for record in records
    )
