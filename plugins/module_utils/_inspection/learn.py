# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A list of cables that is learned from a sweep, and what keeps a sweep from being one.

What is learned is the reference from then on, so a fault that is learned is never found again. What
breaks the pattern of the fabric is named before, and learned only with consent.
"""

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence

from .._core.hang import write_files
from .._core.run import CommandRunner, ToolError
from .._fabric.ask import Answers, load_places, observe
from .._fabric.cables.learn import learn as learn_cables
from .._fabric.cables.lists import cables_csv
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
from .._fabric.model import CablePlan, Place, Sweep
from .judge import inspect

# The inventory decides who must be there; counters and masters are not in a list of cables.
_OTHERWISE = {NODE_ABSENT, SWITCH_ABSENT, DESCRIPTION, ERRORS, NO_SM, TWO_MASTERS}


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
    learned = learn_cables(devices, sweep, names)
    if learned.plan is None:
        problems.append(several(list(learned.problems)))
    if learned.plan is None or problems:
        raise ToolError("learn: " + "; ".join(problems))
    taken = [f"# allowed: {name}: {found[name].text}" for name in allowed if name in found]
    gone = [f"{name} is allowed, and was not found" for name in allowed if name not in found]
    count = len(learned.plan.cables)
    notes = [f"{count} cables were learned", *(line[2:] for line in taken), *gone, *learned.notes]
    return "".join(f"{line}\n" for line in taken) + cables_csv(learned.plan, places), notes


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
