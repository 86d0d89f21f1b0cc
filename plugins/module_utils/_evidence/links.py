# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The readings of links beside the evidence: links/NODE.jsonl, and NODE.old.jsonl.gz before it.

A line is a reading with its checksum, only ever added to. What is older than a month is folded to
one reading a day of each rail and compressed, and what is older than half a year is removed: 1,024
nodes with 8 rails take 190 MB (tests/unit/plugins/module_utils/_evidence/test_links.py).
"""

from __future__ import annotations

import contextlib
import gzip
import os
import zlib
from typing import Any, Iterable, Iterator, Sequence

from .._core.files import append_lines, make_folder, write_atomic
from .._ib.link_reading import LinkReading, reading_from_line, reading_from_own_line
from .batch import Problems, file_name, pack, unpack

KEEP_DAYS = 180.0
_PLAIN_DAYS = 30.0
# Folded when this much has come together, so that a file is not written again for each reading.
_FOLD_DAYS = 10.0
_DAY_S = 86400
# A node's clock may be so far ahead.
_SLACK_S = 600
# What a node hands over at once: 32 rails for two months.
_MOST = 2048


class LinkStore:
    """The readings of a store of evidence."""

    def __init__(self, evidence: str) -> None:
        self.folder = os.path.join(evidence, "links")

    def add(self, node: str, lines: Sequence[Any], now: float, simulated: str = "") -> list[str]:
        """Add the readings that are newer than those that are there; return what was refused.

        A node is not trusted: an invalid line, or one from the future, is left out. What
        was simulated has its own files, and never mixes with what was measured. Raises OSError.
        """
        name, refused = self._name(node, simulated), []
        problems = Problems()
        there = list(self._read(os.path.join(self.folder, f"{name}.jsonl"), problems))
        last: dict[int, int] = {}
        for one in there:
            last[one.rail] = max(last.get(one.rail, 0), one.at)
        fresh: list[LinkReading] = []
        for line in lines[-_MOST:]:
            try:
                reading = reading_from_line(line)
                if reading.at > now + _SLACK_S:
                    raise ValueError("a reading of a link is from the future")
            except (OverflowError, ValueError) as error:
                refused.append(f"{node}: {error}")
                continue
            if reading.at > last.get(reading.rail, 0) and reading.at > now - KEEP_DAYS * _DAY_S:
                last[reading.rail] = reading.at
                fresh.append(reading)
        if fresh:
            make_folder(self.folder, 0o750)
            self._write(name, there, sorted(fresh, key=lambda one: (one.at, one.rail)), now)
        return list(dict.fromkeys(refused))[:20]

    def _name(self, node: str, simulated: str) -> str:
        return f"simulated-{file_name(node)}" if simulated else file_name(node)

    def _write(
        self, name: str, there: list[LinkReading], fresh: list[LinkReading], now: float
    ) -> None:
        path = os.path.join(self.folder, f"{name}.jsonl")
        oldest = min((one.at for one in there), default=now)
        if now - oldest < (_PLAIN_DAYS + _FOLD_DAYS) * _DAY_S:
            append_lines(path, map(_line, fresh))
            return
        packed = os.path.join(self.folder, f"{name}.old.jsonl.gz")
        every = sorted(
            {(one.at, one.rail): one for one in [*self._old(packed), *there, *fresh]}.items()
        )
        edge, first = now - _PLAIN_DAYS * _DAY_S, now - KEEP_DAYS * _DAY_S
        old = [one for _key, one in every if first <= one.at < edge]
        text = "".join(f"{_line(one)}\n" for one in daily(old))
        # The old file first: what a killed run leaves twice is read once.
        write_atomic(packed, gzip.compress(text.encode("ascii"), 6, mtime=0), 0o640)
        plain = [one for _key, one in every if one.at >= edge]
        write_atomic(path, "".join(f"{_line(one)}\n" for one in plain), 0o640)

    def _old(self, path: str) -> Iterator[LinkReading]:
        yield from self._read(path, Problems())

    def _read(self, path: str, problems: Problems) -> Iterator[LinkReading]:
        """Yield the readings of a file, none of one that is missing; and report broken lines."""
        try:
            # All of it: readings of a thousand nodes are merged, and none may keep its file open.
            with open(path, "rb") as handle:
                content = handle.read()
            lines = (gzip.decompress(content) if path.endswith(".gz") else content).split(b"\n")
        except FileNotFoundError:
            return
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            problems.add(os.path.basename(path), 0, str(error))
            return
        for number, line in enumerate(lines, 1):
            if line:
                try:
                    text = line.decode("utf-8", "replace")
                    yield reading_from_own_line(unpack(text)["link"])
                except (ValueError, KeyError) as error:
                    problems.add(os.path.basename(path), number, str(error))

    def nodes(self) -> list[tuple[str, bool]]:
        """Return the names of all nodes with readings, and whether those are simulated."""
        found = set()
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.folder):
                if name.endswith(".jsonl"):
                    found.add(name[: -len(".jsonl")])
        return sorted(
            (name[len("simulated-") :], True) if name.startswith("simulated-") else (name, False)
            for name in found
        )

    def read(
        self, node: str, problems: Problems, since: float = 0.0, simulated: bool = False
    ) -> Iterator[LinkReading]:
        """Yield the readings of a node from a time on, the oldest first. Raises OSError."""
        name = self._name(node, "simulated" if simulated else "")
        last: dict[int, int] = {}
        for file in (f"{name}.old.jsonl.gz", f"{name}.jsonl"):
            for one in self._read(os.path.join(self.folder, file), problems):
                # A run that was killed between the two files leaves some in both.
                if one.at >= since and one.at > last.get(one.rail, -1):
                    last[one.rail] = one.at
                    yield one


def daily(readings: Iterable[LinkReading]) -> list[LinkReading]:
    """Return one reading a day of each rail and cable: the last, and each with a flap."""
    kept: dict[tuple[int, int, str, int], LinkReading] = {}
    for one in readings:
        flap = one.at if one.why else 0
        kept[one.rail, one.at // _DAY_S, one.serial, flap] = one
    return sorted(kept.values(), key=lambda one: (one.at, one.rail))


def _line(reading: LinkReading) -> str:
    return pack({"link": reading.as_line()})
