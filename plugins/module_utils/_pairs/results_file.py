# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The file of results: a line of JSON each, only ever added to, so that a killed run goes on.

The first line says which schedule and recipe the results are of. A line for each flow follows, and
one for each half of a round that is complete; flows of a half that has no such line do not count.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from dataclasses import dataclass, field
from typing import IO, Any, Mapping

from .._core.files import open_append
from .._core.run import ToolError
from .._fabric.model import End, rail_end
from .localise import Measurement
from .perftest import Recipe
from .schedule import Schedule, schedule_to_data

VERSION = 1


@dataclass
class Results:
    """What a file of results holds."""

    identity: str = ""
    # When the run began.
    at: str = ""
    # Rounds of the files before this one.
    offset: int = 0
    done: set[tuple[int, int]] = field(default_factory=set)
    flows: dict[tuple[int, int, End, End], Measurement] = field(default_factory=dict)

    def measurements(self) -> list[Measurement]:
        """Return the flows of complete halves, in their order."""
        return [flow for key, flow in sorted(self.flows.items()) if key[:2] in self.done]


def identity_of(schedule: Schedule, recipe: Recipe) -> str:
    """Return what tells results of this schedule and recipe from others."""
    data = {"schedule": schedule_to_data(schedule), "recipe": vars(recipe)}
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def read_results(text: str) -> Results:
    """Return what a file holds; a line that was cut off when a run was killed is left out."""
    results = Results()
    for line in text.splitlines():
        try:
            data = json.loads(line)
            _take(results, data)
        except (ValueError, KeyError, TypeError):
            continue
    return results


def _take(results: Results, data: Mapping[str, Any]) -> None:
    if data["kind"] == "run":
        results.identity, results.offset = data["identity"], data["offset"]
        results.at = str(data["at"])
    elif data["kind"] == "half":
        results.done.add((data["round"], data["half"]))
    elif data["kind"] == "flow":
        ends = (data["from"], data["to"])
        source, target = (rail_end(str(host), int(rail)) for host, rail in ends)
        key = (data["round"], data["half"], source, target)
        results.flows[key] = Measurement(*key, data["gbps"], data["reason"], data["at"])


class ResultsFile:
    """A file of results that is open for adding; no other process can add at the same time."""

    def __init__(self, path: str, identity: str, at: str, offset: int = 0) -> None:
        with open_append(path) as raw:
            self.file: IO[str] = os.fdopen(os.dup(raw.fileno()), "a+", encoding="utf-8")
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.file.close()
            raise ToolError(f"{path}: another run is adding to it") from None
        self.file.seek(0)
        text = self.file.read()
        self.results = read_results(text)
        if text.strip() and self.results.identity != identity:
            self.file.close()
            raise ToolError(
                f"{path}: holds results of another schedule or recipe; write another path, or "
                "remove the file"
            )
        if text and not text.endswith("\n"):
            self.file.write("\n")
        if not self.results.identity:
            head = {"kind": "run", "version": VERSION, "identity": identity, "at": at}
            self._add({**head, "offset": offset})
        self._flush()

    def add(self, flow: Measurement, at: str, message: str) -> None:
        """Add the result of a flow, and the tool's output where that is not a result."""
        self._add(
            {
                "kind": "flow",
                "round": flow.round,
                "half": flow.half,
                "from": [flow.source.host, flow.source.rail],
                "to": [flow.target.host, flow.target.rail],
                "gbps": flow.gbps,
                "reason": flow.reason,
                "at": at,
                "said": message,
            }
        )

    def close_half(self, number: int, half: int, **more: Any) -> None:
        """Say that a half is complete; from now on it counts."""
        self._add({"kind": "half", "round": number, "half": half, **more})
        self._flush()

    def _add(self, data: Mapping[str, Any]) -> None:
        line = json.dumps(data, sort_keys=True)
        self.file.write(line + "\n")
        _take(self.results, data)

    def _flush(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())

    def close(self) -> None:
        """Close it; another run may add to it then."""
        self.file.close()
