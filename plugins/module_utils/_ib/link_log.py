# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The readings of its links that a node keeps until they are collected: one a day for each rail.

What happened in between is kept as well: a link that went down, or another cable. The log is a
file of lines that is only added to, and shortened when it is twice as long as it may be.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Mapping, Sequence

from .._core.files import append_lines, text_if_readable, write_atomic
from .._core.run import CommandRunner
from .counters import Sample
from .down_reasons import ask_down_reasons, module_events
from .judge import WantedRail, find_rail
from .link_reading import LinkReading, reading_from_line, reading_of
from .mlxlink import LinkReport
from .sysfs import Hca

# Of the role node_health, which asks every quarter of an hour, and of ib_health.
LOG = "/var/lib/baremetal-dgx/node-health/links.jsonl"
# A reading this long after the last one is that of the next day.
_A_DAY_S = 20 * 3600
# For each rail: what a node keeps that is never validated, about two months.
_MOST_OF_RAIL = 64


def read_log(path: str, since: float = 0.0) -> list[LinkReading]:
    """Return the readings of a log from a time on, the oldest first; broken lines are left out."""
    found = []
    for line in (text_if_readable(path) or "").splitlines():
        try:
            reading = reading_from_line(json.loads(line))
        except ValueError:
            continue
        if reading.at >= since:
            found.append(reading)
    return found


def is_due(last: LinkReading | None, now: LinkReading) -> bool:
    """Return whether a reading is kept: the first of a day, or after something happened."""
    if last is None or not 0 <= now.at - last.at < _A_DAY_S:
        return True
    return now.serial != last.serial or went_down(last, now)


def went_down(last: LinkReading, now: LinkReading) -> bool:
    """Return whether the link went down between two readings of one boot."""
    same = last.boot == now.boot and last.downs is not None and now.downs is not None
    return same and (now.downs or 0) > (last.downs or 0)


def readings_now(
    pairs: Sequence[tuple[WantedRail, Hca]],
    reports: Mapping[str, LinkReport | str],
    sample: Sample,
    at: int,
) -> list[LinkReading]:
    """Return what was read of the links that answered; `sample` has the kernel's counters."""
    found = []
    for rail, hca in pairs:
        report = reports.get(hca.device)
        if report is None or isinstance(report, str) or not hca.ports:
            continue
        port = hca.ports[0]
        counters = sample.ports.get(port.guid or "", port.counters)
        downs = counters.get("link_down_events_phy", counters.get("link_downed"))
        gbps = port.rate_gbps or rail.rate_gbps
        found.append(reading_of(report, at, rail.rail, gbps, sample.boot, downs))
    return found


def keep_readings(
    run: CommandRunner,
    path: str,
    wanted: Sequence[WantedRail],
    hcas: Sequence[Hca],
    reports: Mapping[str, LinkReport | str],
    sample: Sample,
    timeout_s: float,
    kernel_log: str = "",
    write: bool = True,
) -> list[LinkReading]:
    """Add to the log what is due, and return it; of links that went down it is asked why."""
    at = int(time.time())
    found = [(rail, find_rail(rail, [hca for hca in hcas if not hca.ignored])) for rail in wanted]
    pairs = [(rail, hca) for rail, hca in found if hca is not None]
    of_rail = {rail.rail: hca for rail, hca in pairs}
    old = read_log(path)
    last = {reading.rail: reading for reading in old}
    due: list[LinkReading] = []
    for reading in readings_now(pairs, reports, sample, at):
        before = last.get(reading.rail)
        if not is_due(before, reading):
            continue
        if before is not None and went_down(before, reading):
            hca = of_rail[reading.rail]
            why = ask_down_reasons(run, hca.pci or "", timeout_s)
            why += module_events(kernel_log, hca.pci or "", sample.uptime_s - (at - before.at))
            reading = LinkReading(**{**vars(reading), "why": tuple(dict.fromkeys(why))[:8]})
        due.append(reading)
    if due and write:
        # A full disk is judged by its own check, and takes no reading of now from the caller.
        with contextlib.suppress(OSError):
            _write(path, old, due, _MOST_OF_RAIL * max(1, len(pairs)))
    return due


def _write(path: str, old: Sequence[LinkReading], due: Sequence[LinkReading], most: int) -> None:
    if len(old) + len(due) > 2 * most:
        kept = [*old, *due][-most:]
        write_atomic(path, "".join(f"{_line(one)}\n" for one in kept), sync=False)
    else:
        append_lines(path, map(_line, due), 0o644, sync=False)


def _line(reading: LinkReading) -> str:
    return json.dumps(reading.as_line(), separators=(",", ":"))


def links_of(path: str, days: float, now: Sequence[LinkReading]) -> list[list[Any]]:
    """Return the lines of a log of the last days, for the answer of a module, with those of now."""
    since = time.time() - days * 86400
    # What is in the log already is due once; a second reading in one second is another one.
    known = dict.fromkeys([*read_log(path, since), *now])
    return [one.as_line() for one in sorted(known, key=lambda one: one.at)]


def beside(state_dir: str) -> str:
    """Return the log of a health program by its folder."""
    return os.path.join(state_dir, os.path.basename(LOG))
