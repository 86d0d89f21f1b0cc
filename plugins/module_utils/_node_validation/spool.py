# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Answers of nodes as lines that may be cut, doubled, mixed or late, and back. Pure.

An answer is compressed and divided over short lines, since what carries them cuts longer ones and
mixes their parts with those of other nodes. Each line says whose part of which answer it is, and
ends with a checksum. An answer counts when all its lines are there; a second copy of a line changes
nothing. Any other line is output of the node, and is kept as the reason of one that gave no answer.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from typing import Any, Iterator, Mapping

from .._evidence.batch import pack, unpack

# srun hands on 1,024 bytes at a time, with its label before them.
_DATA = 640
_MOST_ANSWER = 64 << 20
_MOST_LINES = _MOST_ANSWER // _DATA
_KEPT_LINES, _KEPT_WIDTH = 3, 200


def lines_of(run: str, node: str, part: str, answer: Mapping[str, Any]) -> list[str]:
    """Return the lines of an answer, without their ends."""
    text = json.dumps(answer, sort_keys=True, separators=(",", ":")).encode()
    return _lines(run, node, part, base64.b64encode(zlib.compress(text, 6)).decode("ascii"))


def _lines(run: str, node: str, part: str, data: str) -> list[str]:
    digest = hashlib.sha256(data.encode("ascii")).hexdigest()[:16]
    pieces = [data[at : at + _DATA] for at in range(0, len(data), _DATA)]
    head = {"run": run, "node": node, "part": part, "id": digest, "of": len(pieces)}
    return [pack({**head, "n": number, "data": piece}) for number, piece in enumerate(pieces)]


def beat_of(run: str, node: str) -> str:
    """Return a line that says that a node is still at work."""
    return pack({"run": run, "node": node})


class Spool:
    """The answers to one run, by node and part, in the order in which lines come."""

    def __init__(self, run: str) -> None:
        self.run = run
        # Other output of the nodes, the last lines of each.
        self.messages: dict[str, list[str]] = {}
        # Lines in which a node spoke of another one.
        self.foreign: dict[str, int] = {}
        self._pieces: dict[tuple[str, str, str], dict[int, str]] = {}
        self._whole: dict[tuple[str, str], tuple[str, str]] = {}
        self._counts: dict[str, int] = {}

    def feed(self, source: str, line: str) -> None:
        """Take a line that came from a node."""
        line = line.strip()
        start = line.find("{")
        if not line:
            return
        try:
            # What the shell of a node prints without an end of line may stand before it.
            data = unpack(line[start:]) if start >= 0 else None
            whose = (str(data["run"]), str(data["node"])) if data else ("", "")
        except (ValueError, KeyError):
            data = None
            if line[start:].startswith('{"run":'):
                # Torn: another copy may come.
                return
        if data is None:
            messages, line = self.messages.setdefault(source, []), line[:_KEPT_WIDTH]
            # Each try to start a node may end in the same line.
            if line not in messages:
                messages.append(line)
            del messages[:-_KEPT_LINES]
        elif whose[0] == self.run:
            if whose[1] != source:
                self.foreign[source] = self.foreign.get(source, 0) + 1
            else:
                self._take(source, data)

    def _take(self, node: str, data: Mapping[str, Any]) -> None:
        try:
            # A line that only says that the node is at work has none.
            part, digest = str(data["part"]), str(data["id"])
            number, count, piece = int(data["n"]), int(data["of"]), str(data["data"])
        except (KeyError, TypeError, ValueError):
            return
        if (node, part) in self._whole or not 0 <= number < count <= _MOST_LINES:
            return
        pieces = self._pieces.setdefault((node, part, digest), {})
        pieces[number] = piece
        if len(pieces) == count:
            whole = "".join(pieces[at] for at in sorted(pieces))
            del self._pieces[node, part, digest]
            if hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:16] == digest:
                self._whole[node, part] = (digest, whole)
                self._counts[node] = self._counts.get(node, 0) + 1

    def count(self, node: str) -> int:
        """Return how many parts a node has answered."""
        return self._counts.get(node, 0)

    def all_lines(self) -> Iterator[str]:
        """Yield what has come, each once, as "NODE: line" for another spool to be fed with."""
        for (node, part), (_digest, whole) in self._whole.items():
            for line in _lines(self.run, node, part, whole):
                yield f"{node}: {line}"
        for (node, part, digest), pieces in self._pieces.items():
            if (node, part) not in self._whole:
                for number, piece in pieces.items():
                    # An answer that is not whole stays so: its number of lines is not known.
                    head = {"run": self.run, "node": node, "part": part, "id": digest}
                    yield f"{node}: {pack({**head, 'of': _MOST_LINES, 'n': number, 'data': piece})}"
        for node, lines in self.messages.items():
            yield from (f"{node}: {line}" for line in lines)

    def torn(self, node: str, part: str) -> str:
        """Return how much of an answer has come that is not whole, empty where nothing has."""
        found = [one for key, one in self._pieces.items() if key[:2] == (node, part)]
        lines = max(map(len, found), default=0)
        return f"only {lines} lines of its answer came whole" if lines else ""

    def answer(self, node: str, part: str) -> dict[str, Any] | None:
        """Return an answer, None where it has not come whole."""
        if (node, part) not in self._whole:
            return None
        try:
            packed = base64.b64decode(self._whole[node, part][1], validate=True)
            unpacked = zlib.decompressobj()
            text = unpacked.decompress(packed, _MOST_ANSWER)
            if not unpacked.eof:
                return None
            answer = json.loads(text)
        except (ValueError, zlib.error):
            return None
        return answer if isinstance(answer, dict) else None
