# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Parts of validate_nodes: which are asked of a node, and one answer. Pure.

A part that is asked for and gives no record is a record by itself, which says why: not measured. A
part that is not asked for is absent, and the reason is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...module_utils._core.record import NOT_MEASURED, PASS, Record, Tally, line_of
from ...module_utils._core.verdict import layer_of
from ...module_utils._evidence.batch import accepted
from ...module_utils._gpu.dcgm import TIME_LIMITS, is_deep
from ...module_utils._slurm.gate.policy import LEVELS

QUICK, STANDARD, BURN_IN = LEVELS


@dataclass(frozen=True)
class Part:
    """A part: the least level that asks it, whether it loads the node, its check when it could not
    be run, and the layers of its records."""

    level: str
    loads: bool
    check: str
    layers: tuple[str, ...]


# In the order in which they are run: what only asks comes first, and what heats most last but two.
PARTS: dict[str, Part] = {
    "gpu_health": Part(QUICK, False, "gpu.run", ("gpu",)),
    "ib_health": Part(QUICK, False, "ib.run", ("ib",)),
    "canary": Part(QUICK, False, "storage.run", ("storage",)),
    "cpu_memory": Part(STANDARD, True, "cpu.run", ("cpu", "memory")),
    "dcgm": Part(STANDARD, True, "dcgm.run", ("dcgm",)),
    "burn": Part(STANDARD, True, "burn.run", ("burn",)),
    "nccl": Part(STANDARD, True, "nccl.run", ("nccl",)),
    "fio": Part(STANDARD, True, "fio.run", ("fio",)),
}
_NO_ANSWER = "look: is the node up? ssh, ping, the BMC's console"
# What a part asks about, and the inventory declares.
_DECLARE = {
    "ib_health": "cluster_fabric.topology, and rails in the node's profile",
    "canary": "cephfs_mounts, local_storage_volumes or cluster_validation.canary.mounts",
    "dcgm": "dcgm_source, and no nvidia_driver_mig",
    "burn": "no nvidia_driver_mig",
    "nccl": "no nvidia_driver_mig",
    "fio": "local_storage_volumes or cluster_validation.fio.folder",
}
_OFF, _OFF_HERE, _DEEPER = "switched off", "switched off in this run", "level "
_WHOLE = "look: validate the node again, without the part in -e parts"
_REMEDY = "look: what is in the way, and validate the node again"


def reasons(
    level: str,
    switches: Mapping[str, Any],
    nothing: Mapping[str, str] | None = None,
    run: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Return for each part why it is not asked for, "" where it is; ValueError.

    `switches` are the parts that the inventory switches off or on, `run` those that this run does;
    `nothing` says why a part has nothing to ask. What is switched on by name is asked all the same,
    and then reports what it lacks.
    """
    if level not in LEVELS:
        raise ValueError(f"there is no level {level!r}; write {', '.join(LEVELS)}")
    strange = sorted({*switches, *(run or {}), *(nothing or {})} - set(PARTS))
    if strange:
        raise ValueError(f"there is no part {strange[0]!r}; write {', '.join(PARTS)}")
    wanted = reasons(level, switches, nothing) if run else {}
    found = {}
    for name, part in PARTS.items():
        switched = {**switches, **(run or {})}.get(name)
        if switched is False:
            here = name in wanted and (not wanted[name] or wanted[name].startswith(_DEEPER))
            found[name] = _OFF_HERE if here else _OFF
        elif switched is None and (nothing or {}).get(name):
            found[name] = str((nothing or {})[name])
        elif LEVELS.index(level) < LEVELS.index(part.level):
            found[name] = f"{_DEEPER}{part.level}"
        else:
            found[name] = ""
    return found


def proven(level: str, asked: Mapping[str, str]) -> str:
    """Return the deepest level of which a run at this one has left out no part.

    What the inventory switches off is the site's policy; what only this run did not ask is not.
    """
    places = [LEVELS.index(PARTS[name].level) - 1 for name in left_out(asked)]
    return LEVELS[max(0, min([LEVELS.index(level), *places]))]


def left_out(asked: Mapping[str, str]) -> list[str]:
    """Return the parts that the inventory asks for and this run has switched off."""
    return [name for name, why in asked.items() if why == _OFF_HERE]


def never_asked(asked: Mapping[str, str]) -> list[str]:
    """Return the parts that the inventory asks at no level: switched off, or of no use there."""
    return [
        name
        for name, why in asked.items()
        if why and why != _OFF_HERE and not why.startswith(_DEEPER)
    ]


def ended(asked: Mapping[str, str]) -> list[str]:
    """Return the layers of what is never asked: what is known of them counts no more."""
    return sorted(layer for name in never_asked(asked) for layer in PARTS[name].layers)


def level_that_asks(check: str, found_at: str) -> str:
    """Return the least level of a run that asks a check, as one at `found_at` has.

    What belongs to no part is asked at each. A deeper level runs the same tests for longer; of DCGM
    it runs more.
    """
    layer = layer_of(check)
    places = [LEVELS.index(part.level) for part in PARTS.values() if layer in part.layers]
    if is_deep(check):
        places.append(LEVELS.index(found_at))
    return LEVELS[max(places, default=0)]


def dcgm_limit(level: int, given: float | None) -> float:
    """Return the seconds that DCGM may take at one of its levels, unless others are given."""
    return given or TIME_LIMITS[level]


def fold(
    node: str,
    asked: Mapping[str, str],
    answers: Mapping[str, Any],
    at: str,
    in_the_way: Mapping[str, str] | None = None,
    nothing: Mapping[str, str] | None = None,
    level: str = QUICK,
) -> dict[str, Any]:
    """Return one answer: records, verdict, counts, lines of what did not pass, what was not asked.

    `level` is that of the run, `asked_level` in the answer, whose own is the one that the records
    prove. A part of the least one that only this run has left out does not fail it, and has a
    record: nothing of it is known. `begun` says whether the node was loaded, where that was asked.

    `asked` is of reasons(); `answers` has what the task of each part returned; `in_the_way` says
    why a part was not begun, `nothing` why it has nothing to ask. `at` is the time of the records
    that are made here.
    """
    records: list[Record] = []
    for name, why in asked.items():
        if why:
            continue
        answer = answers.get(name)
        given = (answer.get("records") if isinstance(answer, Mapping) else None) or []
        found = [
            _taken(node, name, one, at) for one in (given if isinstance(given, list) else [given])
        ]
        before = (in_the_way or {}).get(name, "")
        records += found or [_silent(node, name, answer, at, before, (nothing or {}).get(name, ""))]
    tally = Tally.of(records)
    records += [
        _unknown(node, name, asked[name], at, _WHOLE)
        for name in left_out(asked)
        if PARTS[name].level == QUICK
    ]
    absent = [f"{name} ({why})" for name, why in asked.items() if why]
    message = ", ".join(
        f"{count} {status.replace('_', ' ')}" for status, count in tally.counts.items()
    )
    return {
        "records": [record.as_data() for record in records],
        "level": proven(level, asked),
        "asked_level": level,
        "begun": _begun(asked, answers),
        "verdict": tally.verdict,
        "counts": tally.counts,
        "lines": [line_of(record) for record in records if record.status != PASS],
        "not_asked": absent,
        "text": f"{message}; not asked for: {', '.join(absent) or 'nothing'}",
    }


def _begun(asked: Mapping[str, str], answers: Mapping[str, Any]) -> bool:
    """Return whether a part began that loads the node; where none of them is asked, any part."""
    wanted = [name for name, why in asked.items() if not why]
    loads = [name for name in wanted if PARTS[name].loads] or wanted
    return any(_is_answer(answers.get(name)) for name in loads)


def _is_answer(given: Any) -> bool:
    return isinstance(given, Mapping) and not given.get("skipped") and not given.get("unreachable")


def _taken(node: str, name: str, given: Any, at: str) -> Record:
    """Return a record of a part; one that cannot be counted has measured nothing, and says why."""
    try:
        record = accepted(given, node)
    except (KeyError, TypeError) as error:
        odd = {"failed": True, "msg": f"one of its records cannot be read: {error!r}"}
        record = _silent(node, name, odd, at, "", "")
        check = given.get("check") if isinstance(given, Mapping) else None
        if isinstance(check, str) and layer_of(check) in PARTS[name].layers:
            record = replace(record, check=check)
        return record
    return replace(record, at=at) if record.status == NOT_MEASURED and not record.at else record


def _silent(node: str, name: str, answer: Any, at: str, in_the_way: str, nothing: str) -> Record:
    """The record of a part that was asked for and gave none."""
    remedy = _REMEDY
    if not isinstance(answer, Mapping) or answer.get("skipped"):
        text = in_the_way or "it was not begun"
    elif answer.get("unreachable"):
        text, remedy = f"the node does not answer: {_text(answer)}", _NO_ANSWER
    elif answer.get("failed"):
        text = f"the check itself failed: {_text(answer)}"
    elif nothing:
        text = f"it has nothing to ask: {nothing}"
        remedy = f"settings: write {_DECLARE[name]}, or leave the part out"
    else:
        text = "it gave no records"
    return _unknown(node, name, text, at, remedy)


def _unknown(node: str, name: str, text: str, at: str, remedy: str) -> Record:
    return Record(
        PARTS[name].check, f"node:{node}", NOT_MEASURED, f"{name}: {text}", remedy=remedy, at=at
    )


def _text(answer: Mapping[str, Any]) -> str:
    return " ".join(str(answer.get("msg") or "no reason given").split())[:300]
