# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A list of cables that is learned from a sweep, and what keeps a sweep from being one.

What is learned is the reference from then on, so a fault that is learned is never found again. What
breaks the pattern of the fabric is named before, and learned only with consent. The list must be
whole, and rates are those of the inventory, since a link that is slow on the day of learning must
not become the threshold.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Mapping, Sequence

from .._core.hang import write_files
from .._core.run import CommandRunner, ToolError
from .._fabric.ask import Answers, load_places, observe
from .._fabric.cable_lists import Rows, cables_csv
from .._fabric.findings import (
    DESCRIPTION,
    ERRORS,
    NO_SM,
    NODE_ABSENT,
    SWITCH_ABSENT,
    TWO_MASTERS,
    Finding,
    several,
)
from .._fabric.judge import EmptyPlanError, Expectation
from .._fabric.judge_adapters import OwnHca, identities
from .._fabric.match import match
from .._fabric.model import (
    NODE_LEAF,
    CablePlan,
    End,
    FoundDevice,
    Place,
    Sweep,
    rail_end,
    switch_end,
)
from .judge import inspect

# The inventory decides who must be there; counters and masters are not in a list of cables.
_OTHERWISE = {NODE_ABSENT, SWITCH_ABSENT, DESCRIPTION, ERRORS, NO_SM, TWO_MASTERS}


@dataclasses.dataclass(frozen=True)
class Learned:
    """A reference, or None and what keeps the sweep from being one; `notes` are not mistakes."""

    plan: CablePlan | None
    problems: tuple[str, ...]
    notes: tuple[str, ...]


def irregular(answers: Answers) -> list[Finding]:
    """Return what a list that is learned now would take for the design."""
    try:
        verdict = inspect(answers.observation)
    except EmptyPlanError:
        return []
    return [item for item in verdict.findings + verdict.doubts if item.kind not in _OTHERWISE]


def learned_csv(
    devices: CablePlan,
    answers: Answers,
    places: Mapping[str, Place],
    adapters: Mapping[str, Sequence[OwnHca]] | None = None,
    allowed: Sequence[str] = (),
) -> tuple[str, list[str]]:
    """Return a list of the cables that a sweep found, and lines on it.

    ToolError where the sweep cannot be a reference; it names all findings but those of `allowed`.
    """
    sweep = answers.observation.sweep
    if answers.lost:
        raise ToolError(f"learn: {answers.lost[0][1]}")
    found = {f"{item.kind} {item.subject}": item for item in irregular(answers)}
    problems = [
        f"{name}: {item.text} ({item.evidence[-1]})"
        for name, item in found.items()
        if name not in allowed
    ]
    if problems:
        problems.append("repair them, or allow each (cluster_fabric.cabling.findings_allowed)")
    alone = CablePlan(devices.hcas, devices.switches, ())
    names = match(alone, sweep, known=identities(alone, adapters or {})).by_guid
    learned = learn_plan(devices, sweep, names)
    if learned.plan is None:
        problems.append(several(list(learned.problems)))
    if learned.plan is None or problems:
        raise ToolError("learn: " + "; ".join(problems))
    taken = [f"# allowed: {name}: {found[name].text}" for name in allowed if name in found]
    gone = [f"{name} is allowed, and was not found" for name in allowed if name not in found]
    count = len(learned.plan.cables)
    notes = [f"{count} cables were learned", *(line[2:] for line in taken), *gone, *learned.notes]
    return "".join(f"{line}\n" for line in taken) + cables_csv(learned.plan, places), notes


def learn_plan(devices: CablePlan, sweep: Sweep, names: Mapping[str, tuple[str, int]]) -> Learned:
    """Return the cables of a sweep in the plan's words.

    `devices` is who must be there (plan_devices; cables in it do not count), `names` the device of
    the plan, as (host, rail) with -1 for a switch, of each node GUID that is one.
    """
    problems = [f"the sweep is not whole: {complaint}" for complaint in sweep.complaints]
    problems += [
        f"something at the directed route 0,{','.join(map(str, route))} does not answer; repair it"
        for route in sweep.silent
    ]
    problems += [
        f"more than one port claims the GUID {guid}; correct one of them"
        for guid in sweep.duplicate_guids
    ]
    problems += _doubtful(devices, sweep, names)
    rows = Rows(devices, "sweep")
    notes: list[str] = []
    links = sweep.links()
    for number, (one, two) in enumerate(links, start=1):
        first, second = (_end(devices, names, *end) for end in (one, two))
        if first is not None and second is not None:
            rows.add(number, first, second, ("cable", "cable"), None)
            continue
        for end, other in ((first, two), (second, one)):
            if end is None or not end.is_switch:
                continue
            unplanned = sweep.devices.get(other[0])
            rows.reserve(number, end)
            notes.append(f"{end} is kept for {_words(unplanned, other)}, none of the inventory's")
    for guid, key in names.items():
        if guid in sweep.devices:
            rows.guid(0, "guid", key, guid)
    problems += [f"{item.wrong}; {item.remedy}" for item in rows.problems]
    plan = rows.plan() if not problems else None
    if plan is None and not problems:
        problems = [f"{item.wrong}; repair it, then sweep again" for item in rows.problems]
    if plan is not None:
        # For people: a sweep has devices in the order of their GUIDs.
        by_place = sorted(plan.cables, key=lambda cable: (cable.kind != NODE_LEAF, cable))
        plan = dataclasses.replace(plan, cables=tuple(by_place))
    return Learned(plan, tuple(problems), tuple(notes))


def _end(
    devices: CablePlan, names: Mapping[str, tuple[str, int]], guid: str, port: int
) -> End | None:
    key = names.get(guid)
    if key is None:
        return None
    if key[1] >= 0:
        return rail_end(*key)
    # The service ports of a switch are numbered beyond those that take a cable.
    switch = devices.switches.get(key[0])
    return switch_end(key[0], port) if switch and port <= switch.radix else None


def _doubtful(devices: CablePlan, sweep: Sweep, names: Mapping[str, tuple[str, int]]) -> list[str]:
    """Return planned switches that the sweep lacks, and names that two devices have."""
    found: dict[tuple[str, int], str] = {}
    wrong = []
    for guid, key in sorted(names.items()):
        if guid not in sweep.devices:
            continue
        first = found.setdefault(key, guid)
        if first != guid:
            host = key[0] if key[1] < 0 else f"{key[0]}/rail{key[1]}"
            wrong.append(f"{host} is both {first} and {guid}; tell them apart by their GUIDs")
    wrong += [
        f"switch {name} is not in the sweep; repair it, or leave it out of the inventory"
        for name in devices.switches
        if (name, -1) not in found
    ]
    return wrong


def _words(device: FoundDevice | None, end: tuple[str, int]) -> str:
    return f"'{device.description}' ({end[0]})" if device else f"the device {end[0]}"


def learn(
    run: CommandRunner,
    plan: CablePlan,
    wanted: Expectation,
    params: Mapping[str, Any],
    check: bool,
) -> dict[str, Any]:
    """Make a list of cables of what is found, and return what the module returns; ToolError."""
    answers = observe(run, params, ask_states)
    path, places = params["learn"], load_places(params["places"])
    text, notes = learned_csv(plan, answers, places, wanted.adapters, params["learn_allowed"])
    texts = {} if check else {os.path.basename(path): text}
    files = write_files(os.path.dirname(path) or ".", texts) if texts else []
    return {"changed": bool(files), "files": files, "information": notes, "msg": notes[0]}


def ask_states(_sweep: Sweep) -> bool:
    """Ask for the states of ports: they show what is silent."""
    return True
