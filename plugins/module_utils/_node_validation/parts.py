# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The parts of validate_nodes on one node, in their order: what only asks first, then the load.

A load that was answered before a run was killed is not put on the node again, unless it has booted
since. What only asks is asked again: a repair may have come between. Each part is asked in its own
process with a time limit, so that one that hangs costs only itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Mapping, Sequence

from .._core.child import DONE, HUNG, Answer, limited
from .._core.record import FAIL
from .kept import Kept

Calls = Sequence[Mapping[str, Any]]
Call = Callable[[str, Mapping[str, Any]], "dict[str, Any]"]
Limited = Callable[[Callable[[], Any], float], Answer]

_GPU, _BURN, _IDLE = "gpu_health", "burn", "idle"
# What is brought to the control machine of an answer.
_BROUGHT = ("records", "verdict", "links", "failed", "msg", "skipped", "why")
GPU_FINDINGS = "gpu_health has findings"


@dataclass(frozen=True)
class Part:
    """A part: whether it loads the node, its seconds at most, and its calls in their order."""

    name: str
    loads: bool
    limit_s: float
    calls: Calls


def parts_from_data(data: Sequence[Mapping[str, Any]]) -> list[Part]:
    """Return the parts that the control machine has asked for; KeyError."""
    return [Part(one["name"], one["loads"], one["limit_s"], one["calls"]) for one in data]


def left_out(why: str) -> dict[str, Any]:
    """Return the answer of a part that was not begun."""
    return {"skipped": True, "why": why}


class Node:
    """Asks the parts of this node. All I/O is handed in.

    `call` makes one call, `may_load` says why the node must not be loaded (any more) or "",
    `has_job` why a job may be on it or "", `stop_burn` interrupts a burn-in.
    """

    def __init__(
        self,
        kept: Kept,
        call: Call,
        may_load: Callable[[], str],
        has_job: Callable[[], str],
        stop_burn: Callable[[Mapping[str, Any]], None],
        within: Limited = limited,
    ) -> None:
        self._kept, self._call, self._may_load = kept, call, may_load
        self._has_job = has_job
        self._stop_burn, self._within = stop_burn, within

    def ask(self, parts: Sequence[Part], say: Callable[[str, Mapping[str, Any]], None]) -> None:
        """Ask all parts; `say` gets the name and the answer of each as soon as it is there."""
        stop, burning = "", False
        answer: Mapping[str, Any] = {}
        try:
            for part in parts:
                known = self._kept.answer(part.name)
                if known is None and part.loads:
                    stop = stop or self._may_load()
                if known is not None:
                    answer = known
                elif part.loads and stop:
                    answer = left_out(stop)
                else:
                    burning = burning or part.name == _BURN
                    answer = self._answer(part)
                if part.name == _GPU and answer.get("verdict") == FAIL:
                    stop = GPU_FINDINGS
                say(part.name, {key: answer[key] for key in _BROUGHT if key in answer})
        finally:
            # Else a job would start beside it, whatever has ended this; one that a killed run has
            # left is still at work where this one does not come to it. That of a run which holds
            # the node is not left.
            burn = next((one for one in parts if one.name == _BURN), None)
            if burn is not None and self._kept.answer(_BURN) is None:
                if burning or (stop == GPU_FINDINGS and not self._may_load()):
                    self._stop_burn(burn.calls[-1]["options"])

    def _answer(self, part: Part) -> dict[str, Any]:
        """Ask one part; what a load says is kept, unless it broke: then the next run asks again."""
        answer = self._asked(part)
        idle = part.name == _GPU and any(one["options"].get(_IDLE) for one in part.calls)
        if idle and answer.get("verdict") == FAIL and self._has_job():
            # The processes of a job that began meanwhile were not left behind.
            calls = [{**one, "options": {**one["options"], _IDLE: False}} for one in part.calls]
            answer = self._asked(replace(part, calls=calls))
        running = (answer.get("run") or {}).get("state") == "running"
        if part.loads and not (answer.get("failed") or answer.get("skipped") or running):
            self._kept.keep(part.name, answer)
        return answer

    def _asked(self, part: Part) -> dict[str, Any]:
        asked = self._within(lambda: self._all(part.calls), part.limit_s)
        if asked.how == DONE:
            answer: dict[str, Any] = asked.value
            return answer
        reported = asked.message if asked.how == HUNG else f"{asked.how}: {asked.message}"
        return {"failed": True, "msg": reported}

    def _all(self, calls: Calls) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        for one in calls:
            answer = self._call(one["module"], one["options"])
        return answer
