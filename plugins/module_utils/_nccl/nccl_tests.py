# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What nccl-tests print, of version 2.0 to 2.17, and what it means. Pure.

"Avg bus bandwidth" mixes all sizes: on one fabric it is 84 GB/s where large messages reach 370
(AWS). So the bus bandwidth is judged at a stated size. A wrong value is a failure at any speed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Sequence

from .._core.question import Question
from .._core.record import FAIL, NOT_MEASURED, Record
from .._core.run import MISSING, TIMED_OUT, CommandResult
from .thresholds import CORRECT, GIVE_ONE, MORE, ONE_NODE, PAIR, PUBLISHED, PUBLISHED_FROM

_NUMBER = re.compile(r"^\d+(\.\d+)?([eE][-+]?\d+)?$")
_TYPES = frozenset(
    [
        "int8",
        "uint8",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "half",
        "float",
        "double",
        "bfloat16",
        "fp8_e4m3",
        "fp8_e5m2",
        "f8e4m3",
        "f8e5m2",
        "char",
        "int",
        "uint",
    ]
)
# `srun -l` and mpirun's --tag-output
_TAG = re.compile(r"^\s*(\d+: ?|\[\d+,\d+\]<std(out|err)>:?\s?)")
_DEVICE = re.compile(
    r"^#\s+Rank\s+(?P<rank>\d+)\s.*\bon\s+(?P<host>\S+)\s+device\s+(?P<device>\d+)\s+\[(?P<bus>\w+)"
)
_OUT_OF_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*(?P<count>\d+)\s*(?P<word>\w*)")
_VERSION = re.compile(r"NCCL version (\d[\w.+]*)")
_HEADER = re.compile(r"^#\s+size\s+count\b")
_VALIDATION = re.compile(r"validation: (\d)")
_LOUD = re.compile(
    r"NCCL WARN|Test NCCL failure|Test CUDA failure|Test failure|\bABORT|[Ss]egmentation fault"
    r"|unhandled (cuda|system) error|srun: error|error while loading shared libraries"
)

# What healthy ranks print on stderr.
_CHATTER = re.compile(
    r"^\s*$|NCCL INFO|NCCL version|^pyxis: |^srun: (job \d+|lua|Step created|jobid \d+"
    # A step waits until that of the run before is gone.
    r"|[Jj]ob (\d+ )?step creation (temporarily|still) disabled|Step completed in JobId=)"
)

_LOOK_RUN = "look: run it by hand with NCCL_DEBUG=INFO on these nodes"
_HANG = (
    "look: see NCCL_DEBUG=INFO and the kernel log for Xid; run gpu_health; a process that cannot "
    "be killed needs a reboot"
)


@dataclass(frozen=True)
class Row:
    """A line of the table; bandwidths in GB/s, times in us; `wrong` is None where not checked."""

    size: int
    busbw: tuple[float, ...]
    wrong: int | None


@dataclass(frozen=True)
class Table:
    """What one run printed. `ranks` are (rank, host, device); `tables` counts headers."""

    rows: tuple[Row, ...] = ()
    ranks: tuple[tuple[int, str, int], ...] = ()
    out_of_bounds: int | None = None
    version: str = ""
    tables: int = 0
    loud: tuple[str, ...] = ()
    checked: bool = True

    @property
    def ended(self) -> bool:
        """Whether the last lines are there: without them the run was interrupted."""
        return self.out_of_bounds is not None

    @property
    def wrong(self) -> int | None:
        """How many values were wrong, None if it was not checked."""
        # Rows of size 0 check nothing. The last line counts the rows.
        counted = [row.wrong for row in self.rows if row.size and row.wrong is not None]
        most = max(sum(counted), self.out_of_bounds or 0)
        return most if counted or most else None


def parse(text: str) -> Table:
    """Read what was printed. Lines of other kinds are left out; never raises."""
    rows: list[Row] = []
    ranks: set[tuple[int, str, int]] = set()
    loud: list[str] = []
    out_of_bounds, version, tables, checked = None, "", 0, True
    new_columns: bool | None = None
    for raw in text.splitlines():
        line = _TAG.sub("", raw).strip()
        row = _row(line, new_columns)
        if row is not None:
            rows.append(row)
            continue
        if _HEADER.match(line):
            tables += 1
            new_columns = "#wrong" in line
        for pattern in (_OUT_OF_BOUNDS, _DEVICE, _VERSION, _VALIDATION):
            found = pattern.search(line)
            if found is None:
                continue
            if pattern is _OUT_OF_BOUNDS:
                failed = found["word"] == "FAILED"
                count = int(found["count"]) or int(failed)
                out_of_bounds = max(out_of_bounds or 0, count)
            elif pattern is _DEVICE:
                ranks.add((int(found["rank"]), found["host"], int(found["device"])))
            elif pattern is _VERSION:
                version = found[1]
            else:
                checked = found[1] != "0"
        if _LOUD.search(line):
            loud.append(line[:200])
    return Table(
        tuple(rows),
        tuple(sorted(ranks)),
        out_of_bounds,
        version,
        tables,
        tuple(loud[:5]),
        checked,
    )


def _row(line: str, new_columns: bool | None) -> Row | None:
    """Return a line of the table, None for any other line, also one that was cut or mixed up.

    The columns redop and root came with later versions; the last eight are the same in all.
    """
    words = line.split()
    if not 11 <= len(words) <= 13 or words[2] not in _TYPES:
        return None
    if not (words[0].isdigit() and words[1].isdigit()):
        return None
    sides = [words[-8:-4], words[-4:]]
    busbw: list[float] = []
    wrong: int | None = None
    for side in sides:
        # A collective that cannot work in place has N/A in that half.
        if side[0] == "N/A":
            continue
        if not all(_NUMBER.match(word) for word in side[:3]):
            return None
        busbw.append(float(side[2]))
        # Before 2.11 the column is the largest deviation, which is not a count.
        if side[3].isdigit() and new_columns is not False:
            wrong = (wrong or 0) + int(side[3])
        elif side[3] != "N/A" and not _NUMBER.match(side[3]):
            return None
        elif side[3] != "N/A" and new_columns is False:
            # A deviation that is within bounds: whether it is, the last line shows.
            wrong = wrong or 0
    return Row(int(words[0]), tuple(busbw), wrong) if busbw else None


def published_for(gpu_type: str, nodes: int, size: int) -> Question | None:
    """Return the published question for this many nodes of eight GPUs and messages of this size.

    None if none is published, or only for larger messages.
    """
    if size < PUBLISHED_FROM:
        return None
    many = ONE_NODE if nodes == 1 else PAIR if nodes == 2 else MORE
    return PUBLISHED.get((gpu_type.lower(), many))


def busbw_at(table: Table, size: int) -> float | None:
    """Return the lowest bus bandwidth of a size, in and out of place; None where there is none."""
    found = [value for row in table.rows if row.size == size for value in row.busbw]
    return min(found) if found else None


def judge(
    table: Table, subject: str, size: int, question: Question | None, ranks: int | None
) -> list[Record]:
    """Return nccl.correct, nccl.busbw, and nccl.run where it is not a complete answer.

    One rank has no nccl.busbw.
    """
    evidence = tuple(
        [f"NCCL {table.version}"] * bool(table.version)
        + [
            f"{row.size} B: {'/'.join(f'{bw:g}' for bw in row.busbw)} GB/s"
            for row in table.rows[-3:]
        ]
        + list(table.loud)
    )
    problems = _problems(table, size, ranks)
    records = [
        Record("nccl.run", subject, NOT_MEASURED, text, evidence=evidence, remedy=_LOOK_RUN)
        for text in (["; ".join(problems)] if problems else [])
    ]
    records.append(_correct(table, subject, evidence, bool(problems)))
    if ranks == 1:
        # Of one rank the bus bandwidth is 0 by definition.
        return records
    value = None if problems else busbw_at(table, size)
    what = f"all_reduce bus bandwidth at {size} bytes"
    if question is None:
        record = Record(
            "nccl.busbw",
            subject,
            NOT_MEASURED,
            f"{what}: no threshold is published for these nodes and this size",
            measured=None if value is None else {"value": value, "unit": "GB/s"},
            evidence=evidence,
            remedy=GIVE_ONE,
        )
    else:
        text = what if value is not None else f"{what}: not known"
        record = question.judge(subject, value, text=text, evidence=evidence)
    return [*records, record]


def _correct(table: Table, subject: str, evidence: Sequence[str], broken: bool) -> Record:
    wrong = table.wrong
    # A run that was interrupted proves that values are wrong, but not that all are right.
    if not wrong and (broken or not table.checked):
        wrong = None
    text = "values that are wrong" if wrong is not None else "the values were not checked"
    remedy = "" if wrong else "settings: run with -c 1, to the end"
    return CORRECT.judge(subject, wrong, text=text, remedy=remedy, evidence=evidence)


def _problems(table: Table, size: int, ranks: int | None) -> list[str]:
    problems = []
    if not table.rows:
        problems.append("it printed no table")
    elif not table.ended:
        problems.append("the end of the table is missing: it was interrupted")
    elif busbw_at(table, size) is None:
        sizes = ", ".join(str(row.size) for row in table.rows[-3:])
        problems.append(f"size {size} is not in the table, which ends with {sizes}")
    if ranks is not None and table.ranks:
        # Without MPI each process of srun is its own run, with all ranks numbered 0.
        numbers = {rank for rank, _host, _device in table.ranks}
        if len(numbers) != ranks:
            problems.append(
                f"{len(numbers)} of {ranks} ranks took part"
                + (": this build has no MPI, or srun no --mpi" if table.tables > 1 else "")
            )
        places = {(host, device) for _rank, host, device in table.ranks}
        if len(places) < len(numbers):
            problems.append("several ranks ran on one GPU")
    elif table.tables > 1:
        problems.append(f"{table.tables} tables: several runs printed into one another")
    return problems


def unexpected(text: str) -> list[str]:
    """Return the first lines of stderr that are not known to be harmless."""
    lines = [_TAG.sub("", line).strip()[:200] for line in text.splitlines()]
    return [line for line in lines if not _CHATTER.search(line)][:3]


def judge_run(result: CommandResult, table: Table, subject: str) -> list[Record]:
    """Return what the command did wrong; nothing where it ended well or its table says why."""
    tail = (result.describe(),)
    if result.outcome == MISSING:
        remedy = "settings: install nccl-tests, or use runner ctypes, which needs libnccl.so.2 only"
        return [Record("nccl.run", subject, NOT_MEASURED, tail[0], remedy=remedy)]
    if result.outcome == TIMED_OUT:
        text = f"{result.describe()}: it hung and was ended"
        return [Record("nccl.run", subject, NOT_MEASURED, text, evidence=table.loud, remedy=_HANG)]
    # It ends with 1 where values are wrong, which the table says better.
    if result.rc and not table.wrong:
        text = "; ".join(table.loud) or result.describe(2)
        return [Record("nccl.run", subject, NOT_MEASURED, text, evidence=tail, remedy=_LOOK_RUN)]
    message = unexpected(result.err)
    if message:
        text = f"on stderr: {'; '.join(message)}"
        return [Record("nccl.run", subject, NOT_MEASURED, text, remedy=_LOOK_RUN)]
    return []


def finish(records: Sequence[Record]) -> list[Record]:
    """Return records with one nccl.run at most; beside it only failures are kept."""
    runs = [record for record in records if record.check == "nccl.run"]
    rest = [record for record in records if record.check != "nccl.run"]
    if not runs:
        return rest
    failed = [record for record in rest if record.status == FAIL]
    return [runs[0], *failed]
