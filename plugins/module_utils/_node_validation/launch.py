# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Starts the program on many nodes, takes their lines, and ends those that are silent.

What comes back is appended to files of a folder that only this user looks into. A launch that was
killed leaves them there, and perhaps what it had started: the next one reads all of them, starts
only what is missing, and each node answers again what it has done before.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import subprocess
import time
from dataclasses import dataclass, field
from typing import Callable, Iterable, Mapping, Sequence

from .._core.files import Folder
from .spool import Spool
from .start import Start, not_started, split

_LINES, _LABELS = ".lines", ".labels.json"
_PART = 1 << 20
_PACKED, _PACK_SIZE = "spool-%03d.gz", 48 << 20
_POLL_S = 1.0
_GRACE_S = 40.0
_TRIES, _PARTS = 8, 4


@dataclass
class _Running:
    """A start that runs, and when the last line of each of its nodes came."""

    start: Start
    process: subprocess.Popen[bytes]
    last_line: dict[str, float]
    failed: set[str] = field(default_factory=set)
    # Whether any line came from any node.
    answered: bool = False
    ended_at: float = 0.0


@dataclass
class _File:
    """A file of lines, how far it was read, and the line that has not ended yet."""

    labels: Mapping[str, str]
    offset: int = 0
    rest: bytes = b""


class Launch:
    """One run on many nodes; `asked` has the parts of each. OSError.

    What an earlier launch has left in the folder is read at once.
    """

    def __init__(
        self,
        run: str,
        folder: Folder,
        asked: Mapping[str, Sequence[str]],
        silent_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spool, self._asked, self._silent_s = Spool(run), asked, silent_s
        self._folder, self._clock = folder, clock
        self._files: dict[str, _File] = {}
        self._read({})

    def missing(self, nodes: Iterable[str]) -> list[str]:
        """Return those of the nodes that have not answered all that they were asked."""
        return [node for node in nodes if self.spool.count(node) < len(self._asked[node])]

    def run(
        self,
        groups: Mapping[str, Sequence[str]],
        begin: Callable[[str, str, Sequence[str]], Start],
        program: str,
        seconds: float,
    ) -> None:
        """Start the program on all groups of nodes, and wait until each has answered or is silent.

        `begin` makes the command for a name, a group and its nodes. OSError.
        """
        until = self._clock() + seconds
        running: list[tuple[str, int, _Running]] = []
        for group, nodes in groups.items():
            todo = self.missing(nodes)
            if todo:
                running.append((group, 1, self._begin(begin, group, todo, program)))
        while running:
            self._read({one.start.name: one for _group, _number, one in running})
            now = self._clock()
            still = []
            for group, number, one in running:
                if not self._is_over(one, now, until):
                    still.append((group, number, one))
                    continue
                self._read({one.start.name: one})
                if number < _TRIES and now < until:
                    still += [
                        (group, number + 1, self._begin(begin, group, nodes, program))
                        for nodes in self._again(one)
                    ]
            running = still
            if running:
                time.sleep(_POLL_S)

    def _again(self, one: _Running) -> list[list[str]]:
        """Return the groups of nodes to be started again after this start.

        A step that lacks a node ends as a whole: the others are started without it. One that came
        to nothing does not say because of which node, so it is started again in parts.
        """
        todo = [node for node in self.missing(one.last_line) if node not in one.failed]
        if one.failed:
            return [todo] if todo else []
        if one.answered or one.ended_at or len(todo) < 2:
            return []
        size = -(-len(todo) // _PARTS)
        return [todo[at : at + size] for at in range(0, len(todo), size)]

    def _begin(
        self,
        begin: Callable[[str, str, Sequence[str]], Start],
        group: str,
        nodes: Sequence[str],
        program: str,
    ) -> _Running:
        taken = {name.partition(".")[0] for name in self._folder.names()}
        number = 1
        while f"{group}-{number}" in taken:
            number += 1
        start = begin(f"{group}-{number}", group, nodes)
        self._folder.write(start.name + _LABELS, json.dumps(dict(start.nodes)), 0o600)
        with open(program, "rb") as given, self._folder.open(
            start.name + _LINES, 0o600
        ) as taken_to:
            process = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with
                start.argv, stdin=given, stdout=taken_to, stderr=subprocess.STDOUT, cwd="/",
                start_new_session=True,
            )  # fmt: skip
        return _Running(start, process, dict.fromkeys(nodes, self._clock()))

    def _is_over(self, one: _Running, now: float, until: float) -> bool:
        """Return whether a start has ended; end one whose nodes have all answered or are silent."""
        if one.process.poll() is not None:
            return True
        waits = [
            node
            for node in self.missing(one.last_line)
            if node not in one.failed and now - one.last_line[node] < self._silent_s
        ]
        if waits and now < until:
            return False
        if not one.ended_at:
            # What has answered all ends by itself in a moment.
            one.ended_at = now
            if self.missing(one.last_line):
                _end(one.process, "terminate")
        elif now - one.ended_at > _GRACE_S:
            _end(one.process, "kill")
            one.process.wait()
            return True
        return False

    def _read(self, running: Mapping[str, _Running]) -> None:
        """Take what has come since the last time, of all starts that there ever were."""
        for name in self._folder.names():
            if not name.endswith(_LINES):
                continue
            start = name[: -len(_LINES)]
            if name not in self._files:
                with contextlib.suppress(OSError, ValueError):
                    labels = json.loads(self._folder.read(start + _LABELS))
                    self._files[name] = _File(labels)
            if name in self._files:
                self._take(name, self._files[name], running.get(start))

    def _take(self, name: str, file: _File, one: _Running | None) -> None:
        with self._folder.open(name, append=False) as handle:
            handle.seek(file.offset)
            while True:
                data = handle.read(_PART)
                if not data:
                    return
                file.offset += len(data)
                *lines, file.rest = (file.rest + data).split(b"\n")
                for line in lines:
                    self._line(line.decode("utf-8", "replace"), file.labels, one)

    def _line(self, line: str, labels: Mapping[str, str], one: _Running | None) -> None:
        node, text = split(line, labels)
        if node:
            self.spool.feed(node, text)
            if one is not None and node in one.last_line:
                one.last_line[node] = self._clock()
                one.answered = True
            return
        lost = not_started(text)
        if lost in self._asked:
            self.spool.feed(lost, text)
            if one is not None:
                one.failed.add(lost)

    def pack(self) -> list[str]:
        """Write all that has come as compressed files of "NODE: line"; return their paths."""
        for name in self._folder.names():
            if name.endswith(".gz"):
                self._folder.remove(name)
        packed: list[str] = []
        paths: list[str] = []
        size = 0
        for line in self.spool.all_lines():
            packed.append(line)
            size += len(line)
            if size > _PACK_SIZE:
                paths.append(self._pack(packed, len(paths)))
                packed, size = [], 0
        paths.append(self._pack(packed, len(paths)))
        return paths

    def _pack(self, lines: Sequence[str], number: int) -> str:
        name = _PACKED % number
        data = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
        self._folder.write(name, gzip.compress(data, 1, mtime=0), 0o600)
        return os.path.join(self._folder.path, name)


def _end(process: subprocess.Popen[bytes], how: str) -> None:
    with contextlib.suppress(ProcessLookupError):
        getattr(process, how)()
