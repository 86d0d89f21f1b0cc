# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The readings of its links that a node keeps until they are collected: one a day for each rail.

What happened in between is kept as well: a link that went down, or another cable. The log is a
file of lines that is only added to, and shortened when it is twice as long as it may be.

Why a link went down, the adapter's firmware and the kernel report. mlxlink tells it in the table
that `--amber_collect` writes, and nowhere else: a line of names, and a line of values for the port.
mlx5 writes what happens to modules to the kernel's log.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import time
from typing import Any, Mapping, Sequence

from .._core.files import append_lines, read_text, temporary_folder, text_if_readable, write_atomic
from .._core.run import MISSING, CommandRunner
from .._host.kernel_log import messages
from .counters import Sample
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

_TOOLS = ("mlxlink", "mstlink")
_FOLDER = "baremetal-dgx-links-"
_COLUMNS = ("down_blame", "local_reason_opcode", "remote_reason_opcode")
_NONE = frozenset(("", "N/A", "Unknown", "No_link_down_indication", "Unknown_reason", "0"))
# drivers/net/ethernet/mellanox/mlx5/core/events.c, port_module
_EVENT = re.compile(
    r"mlx5_core (?P<pci>[0-9a-f:.]+): Port module event(?:\[error\])?: module \d+, "
    r"(?P<what>.+?)\s*\Z"
)
_WORD = re.compile(r"[\w ,.()/-]{1,60}\Z")


def parse_amber(text: str) -> list[str]:
    """Return who is blamed and the reasons of a table of mlxlink; nothing where none is given.

    ValueError for any other text.
    """
    rows = list(csv.reader(io.StringIO(text)))
    names = [name.strip() for name in rows[0]] if rows else []
    if "down_blame" not in names or len(rows) < 2:
        raise ValueError("the table of mlxlink does not tell why a link went down")
    values = dict(zip(names, (value.strip() for value in rows[-1])))
    lines = [values.get(name, "") for name in _COLUMNS]
    return [word for word in lines if word not in _NONE and _WORD.match(word)]


def ask_down_reasons(run: CommandRunner, pci: str, timeout_s: float) -> list[str]:
    """Return the reasons that the firmware gives for the last time; nothing where it gives none."""
    with contextlib.suppress(OSError, ValueError), temporary_folder(_FOLDER) as folder:
        path = os.path.join(folder, "amber.csv")
        for tool in _TOOLS:
            answer = run([tool, "-d", pci, "--amber_collect", path], timeout_s=timeout_s)
            if answer.outcome != MISSING:
                return parse_amber(read_text(path)) if answer.ok else []
    return []


def module_events(text: str, pci: str, since_s: float) -> list[str]:
    """Return what the kernel reported of an adapter's module since a time after boot."""
    found = []
    for one in messages(text, ("Port module event",)):
        event = _EVENT.match(one.text)
        if event and event["pci"] == pci and (one.uptime_s or 0.0) >= since_s:
            if event["what"] != "Cable plugged" and _WORD.match(event["what"]):
                found.append(event["what"])
    return found


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
