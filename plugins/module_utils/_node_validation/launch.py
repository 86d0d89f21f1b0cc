# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Starts the program on many nodes, takes their lines, and ends those that are silent.

What comes back is appended to files of a folder that only this user looks into. A launch that was
killed leaves them there, and perhaps what it had started: the next one reads none of them, since a
node may have been repaired or have booted meanwhile. Each node is started again, and answers again
what it has kept. So does a node whose connection has broken, while the others of its start go on.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field, replace
from typing import Callable, Iterable, Mapping, Sequence

from .._core.files import Folder
from .._core.run import ToolError
from .spool import Spool
from .start import Start, is_lost, not_started, split

_LINES = ".lines"
_PART = 1 << 20
_PACKED, _PACK_SIZE = "spool-%03d.gz", 48 << 20
_POLL_S = 1.0
_GRACE_S = 40.0
_TRIES, _PARTS = 8, 4
# Longer with each try, together a few minutes: what breaks connections may last.
_PAUSE_S = 5.0


@dataclass
class _Turn:
    """Nodes of a group that are to be started, which try it is, and not before when."""

    group: str
    nodes: list[str]
    number: int = 1
    at: float = 0.0


@dataclass(eq=False)
class _Running:
    """A start that runs, its nodes, and when the last line came of each that was heard."""

    turn: _Turn
    start: Start
    process: subprocess.Popen[bytes]
    begun: float
    last_line: dict[str, float] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    # Nodes whose connection has broken.
    lost: set[str] = field(default_factory=set)
    ended_at: float = 0.0

    @property
    def nodes(self) -> list[str]:
        """Its nodes, without those that another start has taken over."""
        return self.turn.nodes


@dataclass
class _File:
    """A file of lines, how far it was read, and the line that has not ended yet."""

    labels: Mapping[str, str]
    offset: int = 0
    rest: bytes = b""


class Launch:
    """One run on many nodes; `asked` has the parts of each. OSError."""

    def __init__(
        self,
        run: str,
        folder: Folder,
        asked: Mapping[str, Sequence[str]],
        silent_s: float,
    ) -> None:
        self.spool, self._asked, self._silent_s = Spool(run), asked, silent_s
        self._folder = folder
        self._files: dict[str, _File] = {}

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
        until = time.monotonic() + seconds
        turns = [_Turn(group, self.missing(nodes)) for group, nodes in groups.items()]
        turns = [turn for turn in turns if turn.nodes]
        running: list[_Running] = []
        while turns or running:
            now = time.monotonic()
            due = [turn for turn in turns if turn.at <= now < until]
            turns = [turn for turn in turns if now < turn.at < until]
            for turn in due:
                try:
                    running.append(self._begin(begin, turn, program))
                except ToolError as error:
                    turns += self._put_off(turn, str(error))
            self._read({one.start.name: one for one in running})
            over = [one for one in running if self._is_over(one, time.monotonic(), until)]
            self._read({one.start.name: one for one in over})
            for one in running:
                if one.turn.number < _TRIES and time.monotonic() < until:
                    self._plan(turns, one, self._again(one, one in over))
            running = [one for one in running if one not in over]
            if turns or running:
                time.sleep(_POLL_S)

    def _plan(self, turns: list[_Turn], one: _Running, groups: Iterable[list[str]]) -> None:
        """Add the next turns of these groups of nodes of a start."""
        number, at = one.turn.number + 1, 0.0
        if one.start.fanout:
            at = time.monotonic() + _PAUSE_S * one.turn.number
        for nodes in groups:
            # Connections break one after the other, and each command takes memory.
            same = [t for t in turns if at and (t.group, t.number) == (one.turn.group, number)]
            if same:
                same[0].nodes += nodes
            else:
                turns.append(_Turn(one.turn.group, nodes, number, at))

    def _put_off(self, turn: _Turn, why: str) -> list[_Turn]:
        """Note why the nodes of a turn could not be started; return the next one, if any is left.

        What holds them may be gone, or what is asked for it does not answer: this costs no others.
        """
        for node in turn.nodes:
            self.spool.feed(node, why)
        at = time.monotonic() + _PAUSE_S * turn.number
        return [replace(turn, number=turn.number + 1, at=at)] if turn.number < _TRIES else []

    def _again(self, one: _Running, over: bool) -> list[list[str]]:
        """Return the groups of nodes of a start that are to be started again.

        Where each node has a connection, those whose connection has broken, while the others go on;
        all, when the start was killed.

        A step that lacks a node ends as a whole: the others are started without it. One that came
        to nothing does not say because of which node, so it is started again in parts.
        """
        todo = [node for node in self.missing(one.nodes) if node not in one.failed]
        if one.start.fanout:
            killed = over and not one.ended_at and one.process.returncode != 0
            again = [node for node in todo if killed or node in one.lost]
            one.turn.nodes = [node for node in one.nodes if node not in again]
            return [again] if again else []
        if not over:
            return []
        if one.failed:
            return [todo] if todo else []
        if one.last_line or one.ended_at or len(todo) < 2:
            return []
        size = -(-len(todo) // _PARTS)
        return [todo[at : at + size] for at in range(0, len(todo), size)]

    def _begin(
        self, begin: Callable[[str, str, Sequence[str]], Start], turn: _Turn, program: str
    ) -> _Running:
        taken = {name.partition(".")[0] for name in self._folder.names()}
        number = 1
        while f"{turn.group}-{number}" in taken:
            number += 1
        start = begin(f"{turn.group}-{number}", turn.group, turn.nodes)
        self._files[start.name] = _File(start.nodes)
        with open(program, "rb") as given, self._folder.open(
            start.name + _LINES, 0o600
        ) as taken_to:
            process = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with
                start.argv, stdin=given, stdout=taken_to, stderr=subprocess.STDOUT, cwd="/",
                start_new_session=True,
            )  # fmt: skip
        return _Running(turn, start, process, time.monotonic())

    def _waits(self, one: _Running, now: float) -> bool:
        """Return whether a node of a start may still answer."""
        first = one.begun
        if 0 < one.start.fanout < len(one.start.nodes):
            # The turn of those that were not heard comes when others are over.
            first = max(one.last_line.values(), default=first)
        return any(
            now - one.last_line.get(node, first) < self._silent_s
            for node in self.missing(one.nodes)
            if node not in one.failed | one.lost
        )

    def _is_over(self, one: _Running, now: float, until: float) -> bool:
        """Return whether a start has ended; end one whose nodes have all answered or are silent."""
        if one.process.poll() is not None:
            _end_rest(one.process)
            return True
        if now < until and self._waits(one, now):
            return False
        if not one.ended_at:
            # What has answered all ends by itself in a moment.
            one.ended_at = now
            if self.missing(one.nodes):
                _end(one.process, "terminate")
        elif now - one.ended_at > _GRACE_S:
            _end(one.process, "kill")
            one.process.wait()
            _end_rest(one.process)
            return True
        return False

    def _read(self, running: Mapping[str, _Running]) -> None:
        """Take what has come since the last time, of all starts."""
        for name, file in self._files.items():
            self._take(name, file, running.get(name))

    def _take(self, name: str, file: _File, one: _Running | None) -> None:
        with self._folder.open(name + _LINES, append=False) as handle:
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
            if one is not None and node in one.nodes:
                one.last_line[node] = time.monotonic()
                if is_lost(text):
                    one.lost.add(node)
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


def _end_rest(process: subprocess.Popen[bytes]) -> None:
    """End what an ended start has left: connections of clush to nodes that hang."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)


def _end(process: subprocess.Popen[bytes], how: str) -> None:
    with contextlib.suppress(ProcessLookupError):
        getattr(process, how)()
