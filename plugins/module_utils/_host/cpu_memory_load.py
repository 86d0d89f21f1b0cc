# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Loads every CPU with known answers and memory with patterns: a process bound to each CPU.

It finds a core that computes wrongly in what Python uses (integers, floats, SHA), and memory that
does not keep what was written, as far as it goes through the caches. It is not memtest86: it sees
no page that others hold, hammers no rows, and knows nothing of the addresses behind the pages.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import mmap
import os
import re
import time
import zlib
from typing import Any, Callable, Iterator, Mapping, Sequence

from .._core.child import DONE, HUNG, Answer, Call, ask_all
from .._core.record import Record
from .cpu_memory import Load, judge_host, judge_load, load

BLOCK = 1 << 20
_STEP = 64
_BASE = b"".join(hashlib.sha256(b"block %d" % number).digest() for number in range(BLOCK // 32))
_TWICE = _BASE + _BASE
# What the rounds must come to; made by answers() itself and kept here, so that a machine that is
# wrong from the start does not agree with itself.
KNOWN = {
    "sha256": "867da874e6973b6fdb1674f5d6f797d44db021b856cc81cd2e09d39877f402f7",
    "crc32": "84d1e03e",
    "integers": "01ca61555484b2878297d75cc994fce9b9e16400445377e496625859b8589389",
    "floats": "0x1.b303a0d293927p-4 0x1.8c82b9247215bp+2",
}
_MOST_LINES = 4
_GRACE_S = 20.0
# Of what is available. The rest is the kernel's and the daemons': without it the node may end them.
MOST_SHARE = 0.9


def answers() -> dict[str, str]:
    """Return the answers of one round. IEEE 754 and integers have one right answer everywhere."""
    digest = b"baremetal.dgx"
    for _turn in range(2000):
        digest = hashlib.sha256(digest).digest()
    power = pow(0x1D0C5A7E, (1 << 521) - 3, (1 << 1279) - 1)
    x, total = 0.4, 0.0
    for turn in range(1, 5000):
        x = 3.99 * x * (1.0 - x)
        total += math.sqrt(x) / turn
    return {
        "sha256": digest.hex(),
        "crc32": f"{zlib.crc32(_BASE):08x}",
        "integers": hashlib.sha256(b"%x" % power).hexdigest(),
        "floats": f"{x.hex()} {total.hex()}",
    }


def wrong_answers(found: dict[str, str]) -> list[str]:
    """Return a line for each answer that is not the known one."""
    return [
        f"{name} is {found.get(name)}, must be {known}"
        for name, known in KNOWN.items()
        if found.get(name) != known
    ]


def block(pattern: int, index: int) -> bytes:
    """Return what block `index` must hold; no two of 16384 neighbours hold the same noise."""
    if pattern < 4:
        return (b"\x00", b"\xff", b"\x55", b"\xaa")[pattern] * BLOCK
    start = index * _STEP % BLOCK
    return _TWICE[start : start + BLOCK]


def patterns(memory: Any, size: int, until: float) -> Iterator[tuple[int, str]]:
    """Write and verify one pattern after the other; yield MiB verified, and what was wrong.

    `memory` is a mapping of `size` bytes. It ends at `until`, of time.monotonic, also in the
    middle.
    """
    blocks, turn = size // BLOCK, 0
    while True:
        # The noise first: where time is short it says the most.
        pattern = (4 + turn) % 5
        written = 0
        for index in range(blocks):
            if time.monotonic() > until:
                break
            memory[index * BLOCK : (index + 1) * BLOCK] = block(pattern, index)
            written += 1
        for index in range(written):
            found, must = memory[index * BLOCK : (index + 1) * BLOCK], block(pattern, index)
            yield 1, "" if found == must else _where(found, must, pattern, index)
        if time.monotonic() > until:
            return
        turn += 1


def _where(found: bytes, must: bytes, pattern: int, index: int) -> str:
    at = next(place for place, (one, two) in enumerate(zip(found, must)) if one != two)
    bits = sum(bin(one ^ two).count("1") for one, two in zip(found, must))
    return (
        f"pattern {pattern} byte {index * BLOCK + at} is {found[at]:#04x}, must be "
        f"{must[at]:#04x}; {bits} bits of this MiB are wrong"
    )


def work(cpu: int, seconds: float, mib: int) -> Load:
    """Do the work of one CPU in this process."""
    started = time.monotonic()
    # Half of the time for each, since one of them alone heats less than the two.
    until = started + seconds / 2 if mib else started + seconds
    rounds, wrong = 0, []
    while not rounds or time.monotonic() < until:
        wrong += [f"CPU {cpu}: {line}" for line in wrong_answers(answers())]
        rounds += 1
    verified, bad = 0, []
    if mib:
        with contextlib.closing(mmap.mmap(-1, mib * BLOCK)) as memory:
            for count, line in patterns(memory, mib * BLOCK, started + seconds):
                verified += count
                if line:
                    bad.append(f"CPU {cpu}: {line}")
    return Load(cpu, rounds, verified, tuple(wrong[:_MOST_LINES]), tuple(bad[:_MOST_LINES]))


Work = Callable[[int, float, int], Load]


def run(cpus: Sequence[int], seconds: float, mib_each: int, doing: Work = work) -> list[Load]:
    """Run a process on each CPU and return their answers, in the order of `cpus`.

    One that dies, or does not end within 20 s after its time, has no answer. If this process is
    killed, they end by themselves when their time is up.
    """
    limit = seconds + _GRACE_S
    asked = [Call(str(cpu), _on(cpu, seconds, mib_each, doing), limit) for cpu in cpus]
    answers = ask_all(asked, time.monotonic() + limit)
    return [_load_of(cpu, answers[str(cpu)]) for cpu in cpus]


def _on(cpu: int, seconds: float, mib: int, doing: Work) -> Callable[[], dict[str, Any]]:
    """Return what the process of a CPU does."""

    def ask() -> dict[str, Any]:
        # Out of memory, the kernel shall end this one and no other.
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as stream:
            stream.write("1000")
        os.sched_setaffinity(0, {cpu})
        return vars(doing(cpu, seconds, mib))

    return ask


def _load_of(cpu: int, answer: Answer) -> Load:
    if answer.how == HUNG:
        return Load(cpu, problem="it did not end in time")
    if answer.how != DONE:
        return Load(cpu, problem=answer.message[-200:])
    lists = {key: tuple(value) for key, value in answer.value.items() if isinstance(value, list)}
    return Load(**{**answer.value, **lists})


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

    `options` are those of cpu_memory_check; ValueError for those that cannot be. `check` asks the
    kernel only.
    """
    seconds, share = options["seconds"], options["memory_share"]
    if seconds < 0:
        raise ValueError(f"seconds: is {seconds:g}; write 0 or more")
    if not 0 <= share <= MOST_SHARE:
        raise ValueError(f"memory_share: is {share:g}; write 0 to {MOST_SHARE:g}")
    cpus = sorted(os.sched_getaffinity(0)) if seconds else []
    most = int(available_mib() * share)
    most = min(most, options["memory_mib"]) if options["memory_mib"] else most
    each = most // len(cpus) if cpus else 0
    host = load(options["sysfs"], options["proc"])
    records = list(judge_host(node, host, options["profile"], options["edac"]))
    if cpus and not check:
        report = run(cpus, seconds, each)
        asked = each * len(cpus) if share else None
        records += judge_load(node, report, seconds, asked)
    return records, len(cpus), each * len(cpus)
