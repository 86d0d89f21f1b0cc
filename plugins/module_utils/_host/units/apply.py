# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Bringing units to the state and the files that are wanted: load, plan, act, see that it lasts."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from typing import Any, Mapping, Sequence

from ..._core.files import remove
from ..._core.run import CommandRunner, ToolError
from .plan import (
    DISABLE,
    RELOAD,
    RESTART,
    START,
    STOP,
    OnDisk,
    Stamp,
    UnitPlan,
    UnitState,
    Wanted,
    diff_of,
    full_name,
    plan_unit,
    same_files,
    stamp_before_reload,
    stamp_of,
    stayed_up,
)
from .systemd import (
    journal,
    on_disk,
    read_stamp,
    remove_stamp,
    show,
    stale_definitions,
    wants_of,
    with_started,
    write_stamp,
)

_POLL_S = 0.5
_PROOF_POLL_S = 2.0
# enable, disable and daemon-reload only move links and read files
_QUICK_TIMEOUT_S = 60


def desired(params: Mapping[str, Any]) -> list[Wanted]:
    """The wanted units; raises ToolError when one is listed twice."""
    entries = params["units"] if params["units"] is not None else [params]
    wanted = []
    for entry in entries:
        key = entry["restart_key"]
        wanted.append(
            Wanted(
                name=full_name(entry["name"]),
                state=entry["state"],
                missing_ok=entry["missing_ok"],
                enabled=entry["enabled"],
                restart_on=tuple(entry["restart_on"]),
                reload_on=tuple(entry["reload_on"]),
                reload_command=tuple(entry["reload_command"]),
                # whatever is put into the key must not be readable in the stamp
                restart_key=hashlib.sha256(key.encode()).hexdigest() if key else "",
                settle_s=entry["settle_s"],
                timeout_s=entry["timeout_s"],
                package=entry["package"],
                restart_blocked_by=entry["restart_blocked_by"],
            )
        )
    names = [want.name for want in wanted]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ToolError(f"listed twice: {', '.join(twice)}")
    return wanted


def load(
    run: CommandRunner, wanted: Sequence[Wanted], check_mode: bool
) -> tuple[dict[str, UnitState], dict[str, Stamp | None], dict[str, OnDisk], bool]:
    """States, stamps and digests of all units, and whether systemd reloaded definitions."""
    names = [want.name for want in wanted]
    states = show(run, with_started(names))
    stale = stale_definitions(states)
    # a definition written a moment ago is sometimes remembered as missing
    started = [want.name for want in wanted if want.state == "started"]
    missing = any(states[name].load_state == "not-found" for name in started)
    if (stale or missing) and not check_mode:
        control(run, ["daemon-reload"], _QUICK_TIMEOUT_S)
        states = show(run, with_started(names))
        # what systemd goes on to pass over is none of its definitions
        stale -= stale_definitions(states)
        for name, state in states.items():
            if name in stale:
                # what runs was started by the old definition, and that must not be forgotten
                states[name] = replace(state, need_daemon_reload=True)
    elif stale:
        states.update({name: replace(states[name], need_daemon_reload=True) for name in stale})
    states = {name: states[name] for name in names}
    if not check_mode:
        states = wait_for_rest(run, wanted, states)
    stamps = {name: read_stamp(name) for name in names}
    disk = {want.name: on_disk(want, states[want.name]) for want in wanted}
    return states, stamps, disk, bool(stale)


def wait_for_rest(
    run: CommandRunner, wanted: Sequence[Wanted], states: dict[str, UnitState]
) -> dict[str, UnitState]:
    """The states once no unit is being started or stopped, or its time is up."""
    started = time.monotonic()
    while True:
        waited = time.monotonic() - started
        busy = any(states[want.name].in_transition and waited < want.timeout_s for want in wanted)
        if not busy:
            return states
        time.sleep(_POLL_S)
        latest = show(run, [want.name for want in wanted])
        states = {
            name: replace(state, need_daemon_reload=states[name].need_daemon_reload)
            for name, state in latest.items()
        }


def control(run: CommandRunner, words: Sequence[str], timeout_s: float) -> None:
    """Run systemctl; raises ToolError with its output."""
    result = run(["systemctl", *words], timeout_s=timeout_s)
    if not result.ok:
        raise ToolError(result.describe())


def apply_unit(
    run: CommandRunner,
    want: Wanted,
    plan: UnitPlan,
    disk: OnDisk,
    now: UnitState,
    stamp: Stamp | None,
) -> None:
    """Do the actions of one unit; raises ToolError with the unit's state and journal."""
    if plan.starts or plan.deferred:
        write_stamp(want.name, stamp_of(want, disk, now, pending=True))
    elif RELOAD in plan.actions and stamp is not None:
        write_stamp(want.name, stamp_before_reload(stamp, want))
    for action in plan.actions:
        slow = action in (START, RESTART, RELOAD, STOP)
        words = ["systemctl", action, want.name]
        if action == RELOAD and want.reload_command:
            words = list(want.reload_command)
        if action == DISABLE and now.load_state == "not-found":
            # `systemctl disable` up to systemd 255 fails where the unit has no file.
            for link in wants_of(want.name):
                remove(link)
            words = ["systemctl", "daemon-reload"]
        result = run(words, timeout_s=want.timeout_s if slow else _QUICK_TIMEOUT_S)
        if not result.ok:
            raise unit_error(run, want.name, f"{action} failed: {result.describe()}")
        if action == STOP:
            remove_stamp(want.name)


def unit_error(run: CommandRunner, name: str, problem: str) -> ToolError:
    """An error that tells a unit's problem, its state and its last five journal lines."""
    state = show(run, [name])[name]
    message = journal(run, name)
    return ToolError(
        f"{name}: {problem}; it is {state.describe()}, Result={state.result};"
        f" journal: {message or 'empty'}"
    )


def settle(
    run: CommandRunner,
    wanted: Sequence[Wanted],
    plans: Sequence[UnitPlan],
    before: Mapping[str, UnitState],
) -> dict[str, UnitState]:
    """Wait until what was started, or what systemd had to start again, has proven to stay up.

    Returns the last states. Raises ToolError that names every unit that did not stay up.
    """
    names = [want.name for want in wanted]
    acted = {plan.name for plan in plans if plan.starts or RELOAD in plan.actions}
    watched = [plan for plan in plans if plan.name in acted or plan.prove_s]
    states = show(run, names)
    if not watched:
        return states
    states = wait_for_rest(run, wanted, states)
    # what was left alone is compared with how it was found
    first = {**before, **{name: states[name] for name in acted}}
    waited, longest = 0.0, max(plan.prove_s for plan in watched)
    problems: list[str] = []
    while not problems:
        step = min(_PROOF_POLL_S, longest - waited)
        time.sleep(step)
        waited += step
        states = wait_for_rest(run, wanted, show(run, names))
        problems = [
            problem
            for plan in watched
            for problem in [trouble(run, plan, first[plan.name], states[plan.name])]
            if problem
        ]
        if waited >= longest:
            break
    if problems:
        raise ToolError("; ".join(problems))
    return states


def trouble(run: CommandRunner, plan: UnitPlan, first: UnitState, then: UnitState) -> str:
    """What befell a unit that was to stay up, with its last words, or nothing."""
    problem = stayed_up(first, then, plan.starts)
    if not problem:
        return ""
    doing = "after its start" if plan.starts else "for a minute"
    if RELOAD in plan.actions:
        doing = "after its reload"
    return (
        f"{plan.name} did not stay up {doing}: it {problem},"
        f" Result={then.result}; journal: {journal(run, plan.name) or 'empty'}"
    )


def apply(
    run: CommandRunner,
    wanted: Sequence[Wanted],
    plans: Sequence[UnitPlan],
    disk: Mapping[str, OnDisk],
    states: Mapping[str, UnitState],
    stamps: Mapping[str, Stamp | None],
) -> dict[str, UnitState]:
    """Do all actions in order, see that they last, write the stamps; returns the last states."""
    for want, plan in zip(wanted, plans):
        name = want.name
        apply_unit(run, want, plan, disk[name], states[name], stamps[name])
    if not any(plan.actions or plan.write_stamp or plan.prove_s for plan in plans):
        return dict(states)
    after = settle(run, wanted, plans, states)
    for want, plan in zip(wanted, plans):
        # What another hand has changed meanwhile may have been read, or not: the next run finds
        # the announcement, or what was known before, and decides.
        acted = plan.starts or RELOAD in plan.actions
        now, planned = (after if acted else states)[want.name], disk[want.name]
        if plan.write_stamp and (not acted or same_files(on_disk(want, now), planned)):
            write_stamp(want.name, stamp_of(want, planned, now, pending=False))
    return after


@dataclass(frozen=True)
class Outcome:
    """What was planned, and the units before and after."""

    plans: tuple[UnitPlan, ...]
    actions: list[str]
    before: Mapping[str, UnitState]
    after: Mapping[str, UnitState]

    @property
    def deferred(self) -> dict[str, list[str]]:
        """Why, for each unit whose restart is due and was not done."""
        return {plan.name: list(plan.deferred) for plan in self.plans if plan.deferred}

    @property
    def reasons(self) -> dict[str, list[str]]:
        """Why, for each unit that something was done to."""
        return {plan.name: list(plan.reasons) for plan in self.plans if plan.reasons}

    def as_result(self, diff: bool) -> dict[str, Any]:
        """What the module returns."""
        result: dict[str, Any] = {
            "changed": bool(self.actions),
            "actions": self.actions,
            "reasons": self.reasons,
            "deferred": self.deferred,
            "units": {
                name: {
                    "active_state": state.active_state,
                    "sub_state": state.sub_state,
                    "main_pid": state.main_pid,
                    "invocation_id": state.invocation_id,
                }
                for name, state in self.after.items()
            },
        }
        if diff:
            result["diff"] = diff_of(self.plans, self.before)
        return result


def warnings_of(wanted: Sequence[Wanted], outcome: Outcome) -> list[str]:
    """Return a line for each unit whose restart waits."""
    return [
        f"{want.name} was left running ({want.restart_blocked_by}); restart it when this node is "
        f"drained: {'; '.join(outcome.deferred[want.name])}"
        for want in wanted
        if want.name in outcome.deferred
    ]


def synchronise(run: CommandRunner, wanted: Sequence[Wanted], check_mode: bool) -> Outcome:
    """Load, plan, apply. Raises ToolError, which carries the planned actions and reasons."""
    states, stamps, disk, stale = load(run, wanted, check_mode)
    plans = tuple(
        plan_unit(want, states[want.name], stamps[want.name], disk[want.name], check_mode)
        for want in wanted
    )
    actions = ["daemon-reload"] if stale else []
    actions += [f"{action} {plan.name}" for plan in plans for action in plan.actions]
    outcome = Outcome(plans, actions, states, states)
    try:
        errors = [plan.error for plan in plans if plan.error]
        if errors:
            raise ToolError("; ".join(errors))
        if check_mode:
            return outcome
        return replace(outcome, after=apply(run, wanted, plans, disk, states, stamps))
    except ToolError as error:
        error.details.update(actions=actions, reasons=outcome.reasons)
        raise
