#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: service_sync
short_description: Keep systemd units running with what is on disk
description:
  - Takes the place of handlers. A handler is lost when a run is killed between the change and the
    end of the play, and then a daemon runs with an old configuration forever. This module
    compares what a unit was started with to what is on disk, every time.
  - What a unit runs with is written down in a stamp, C(/var/lib/baremetal-dgx/applied/UNIT.json),
    which holds digests of the watched files and of the unit's definition, and the unit's
    InvocationID.
  - A running unit is restarted when its definition, a file in O(restart_on) or O(restart_key)
    differs from what it was started with, reloaded when only a file in O(reload_on) does, and
    left alone otherwise.
  - Where there is no stamp, or somebody else has restarted the unit since, nothing is done for
    files that last changed before the unit was started. It has read them.
  - C(systemctl daemon-reload) is run when systemd says that a unit's definition on disk is newer
    than what it has loaded.
notes:
  - Before a start or restart the stamp is written as an announcement, after it (and the time in
    O(settle_s)) it is confirmed. A run killed in between is understood by the next one from the
    InvocationID. If it is still the announced one, the restart did not happen and is done; if
    not, it did, and is not repeated.
  - A run killed before the announcement leaves the old stamp, which differs from the disk. One
    killed after a reload and before its stamp reloads once more, which does no harm.
version_added: 1.0.0
author: [The baremetal.dgx authors (@baremetal-dgx)]
extends_documentation_fragment: [baremetal.dgx.attributes]
attributes:
  check_mode:
    support: full
    details:
      - A unit that does not exist yet is reported as one that would be started.
      - A change of a file that an earlier task only pretended in check mode cannot be seen.
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  name:
    description: The unit; without suffix it is a C(.service). Either O(name) or O(units) is
      required.
    type: str
  enabled:
    description: Whether it comes up at boot. Left alone when not given.
    type: bool
  state:
    description:
      - V(started) runs, with what is on disk.
      - V(stopped) does not run; the unit must exist.
      - V(absent_ok_stopped) does not run, and need not exist.
    type: str
    choices: [started, stopped, absent_ok_stopped]
    default: started
  restart_on:
    description: Files, directories (all files below) and patterns whose content the unit reads only
      when it starts.
    type: list
    elements: path
    default: []
  reload_on:
    description: The same for content that a reload applies. Where the unit cannot be reloaded, it
      is restarted.
    type: list
    elements: path
    default: []
  reload_command:
    description: Command that applies O(reload_on), instead of C(systemctl reload UNIT).
    type: list
    elements: str
    default: []
  restart_key:
    description: Any text, such as a package's version, that means a restart when it changes.
    type: str
    default: ""
  settle_s:
    description:
      - Seconds after a start, restart or reload for which the unit must stay up, with the same
        process.
        The wait is shared by all units of one call.
    type: float
    default: 2
  timeout_s:
    description: Seconds a start, stop or reload may take.
    type: float
    default: 90
  package:
    description: The package that ships the unit, named in the error when there is no such unit.
    type: str
    default: ""
  units:
    description: Several units, handled in this order. The options are those of the module.
    type: list
    elements: dict
    suboptions:
      name:
        description: See O(name).
        type: str
        required: true
      enabled:
        description: See O(enabled).
        type: bool
      state:
        description: See O(state).
        type: str
        choices: [started, stopped, absent_ok_stopped]
        default: started
      restart_on:
        description: See O(restart_on).
        type: list
        elements: path
        default: []
      reload_on:
        description: See O(reload_on).
        type: list
        elements: path
        default: []
      reload_command:
        description: See O(reload_command).
        type: list
        elements: str
        default: []
      restart_key:
        description: See O(restart_key).
        type: str
        default: ""
      settle_s:
        description: See O(settle_s).
        type: float
        default: 2
      timeout_s:
        description: See O(timeout_s).
        type: float
        default: 90
      package:
        description: See O(package).
        type: str
        default: ""
seealso:
  - module: baremetal.dgx.managed_files
  - module: baremetal.dgx.service_probe
"""

EXAMPLES = r"""
- name: Run slurmctld with its configuration, without a restart where a reconfigure will do
  baremetal.dgx.service_sync:
    name: slurmctld.service
    enabled: true
    restart_on: [/etc/munge/munge.key, /etc/default/slurmctld]
    reload_on: [/etc/slurm/slurm.conf, /etc/slurm/gres.conf]
    reload_command: [scontrol, reconfigure]

- name: Run munge before slurmd, and restart both when the key changes
  baremetal.dgx.service_sync:
    units:
      - {name: munge.service, enabled: true, restart_on: [/etc/munge/munge.key]}
      - {name: slurmd.service, enabled: true, restart_on: [/etc/munge/munge.key]}
"""

RETURN = r"""
actions:
  description:
    - What was done, or would be in check mode, in order.
    - On failure, what was planned.
  returned: when a plan could be made
  type: list
  elements: str
  sample: ["enable slurmd.service", "restart slurmd.service"]
reasons:
  description: Why, for each unit that something was done to.
  returned: when a plan could be made
  type: dict
  sample: {"slurmd.service": ["/etc/munge/munge.key changed"]}
units:
  description: The state of each unit at the end (in check mode, the present state).
  returned: success
  type: dict
  sample:
    slurmd.service:
      active_state: active
      sub_state: running
      main_pid: 812
      invocation_id: 5b1f7a6e2c1d4a64b1f3a7f2f7d2f0aa
"""

import contextlib
import hashlib
import time
from dataclasses import dataclass, replace
from typing import Any, Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._lock import BusyError, host_lock
from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    CommandRunner,
    ModuleRunner,
    ToolError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._units import (
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
    stamp_of,
    stayed_up,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._units_host import (
    journal,
    on_disk,
    read_stamp,
    remove_stamp,
    show,
    stale_definitions,
    with_started,
    write_stamp,
)

_POLL_S = 0.5
# enable, disable and daemon-reload only move links and read files
_QUICK_TIMEOUT_S = 60

UNIT_SPEC: dict[str, Any] = {
    "enabled": {"type": "bool"},
    "state": {"choices": ["started", "stopped", "absent_ok_stopped"], "default": "started"},
    "restart_on": {"type": "list", "elements": "path", "default": []},
    "reload_on": {"type": "list", "elements": "path", "default": []},
    "reload_command": {"type": "list", "elements": "str", "default": []},
    # "key" is a word that Ansible takes for a secret; a version is none
    "restart_key": {"type": "str", "default": "", "no_log": False},
    "settle_s": {"type": "float", "default": 2},
    "timeout_s": {"type": "float", "default": 90},
    "package": {"type": "str", "default": ""},
}
ARGUMENT_SPEC: dict[str, Any] = {
    "name": {"type": "str"},
    **UNIT_SPEC,
    "units": {
        "type": "list",
        "elements": "dict",
        "options": {"name": {"type": "str", "required": True}, **UNIT_SPEC},
    },
}


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
                enabled=entry["enabled"],
                restart_on=tuple(entry["restart_on"]),
                reload_on=tuple(entry["reload_on"]),
                reload_command=tuple(entry["reload_command"]),
                # whatever somebody puts into the key must not be readable in the stamp
                restart_key=hashlib.sha256(key.encode()).hexdigest() if key else "",
                settle_s=entry["settle_s"],
                timeout_s=entry["timeout_s"],
                package=entry["package"],
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
    """States, stamps and digests of all units, and whether systemd had to read definitions anew."""
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
    """The states once nobody is starting or stopping a unit any more, or its time is up."""
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
    """Run systemctl; raises ToolError with what it said."""
    result = run(["systemctl", *words], timeout_s=timeout_s)
    if not result.ok:
        raise ToolError(result.describe())


def apply_unit(
    run: CommandRunner, want: Wanted, plan: UnitPlan, disk: OnDisk, now: UnitState
) -> None:
    """Do the actions of one unit; raises ToolError with the unit's state and journal."""
    if plan.starts:
        write_stamp(want.name, stamp_of(want, disk, now.invocation_id, pending=True))
    for action in plan.actions:
        slow = action in (START, RESTART, RELOAD, STOP)
        words = ["systemctl", action, want.name]
        if action == RELOAD and want.reload_command:
            words = list(want.reload_command)
        result = run(words, timeout_s=want.timeout_s if slow else _QUICK_TIMEOUT_S)
        if not result.ok:
            raise unit_error(run, want.name, f"{action} failed: {result.describe()}")
        if action == STOP:
            remove_stamp(want.name)


def unit_error(run: CommandRunner, name: str, problem: str) -> ToolError:
    """An error that tells a unit's problem, its state and its last five journal lines."""
    state = show(run, [name])[name]
    said = journal(run, name)
    return ToolError(
        f"{name}: {problem}; it is {state.describe()}, Result={state.result};"
        f" journal: {said or 'empty'}"
    )


def settle(
    run: CommandRunner, wanted: Sequence[Wanted], plans: Sequence[UnitPlan]
) -> dict[str, UnitState]:
    """Wait until what was started has proven that it stays up; returns the last states.

    Raises ToolError that names every unit that did not stay up.
    """
    names = [want.name for want in wanted]
    touched = {plan.name: plan for plan in plans if plan.starts or RELOAD in plan.actions}
    states = show(run, names)
    if not touched:
        return states
    first = wait_for_rest(run, wanted, states)
    time.sleep(max((want.settle_s for want in wanted if want.name in touched), default=0.0))
    states = wait_for_rest(run, wanted, show(run, names))
    problems = []
    for name, plan in touched.items():
        problem = stayed_up(first[name], states[name], plan.starts)
        if problem:
            said = journal(run, name)
            action = "start" if plan.starts else "reload"
            problems.append(
                f"{name} did not stay up after its {action}: it {problem},"
                f" Result={states[name].result}; journal: {said or 'empty'}"
            )
    if problems:
        raise ToolError("; ".join(problems))
    return states


def apply(
    run: CommandRunner,
    wanted: Sequence[Wanted],
    plans: Sequence[UnitPlan],
    disk: Mapping[str, OnDisk],
    states: Mapping[str, UnitState],
) -> dict[str, UnitState]:
    """Do all actions in order, see that they last, write the stamps; returns the last states."""
    for want, plan in zip(wanted, plans):
        apply_unit(run, want, plan, disk[want.name], states[want.name])
    if not any(plan.actions or plan.write_stamp for plan in plans):
        return dict(states)
    after = settle(run, wanted, plans)
    for want, plan in zip(wanted, plans):
        if plan.write_stamp:
            stamp = stamp_of(want, disk[want.name], after[want.name].invocation_id, pending=False)
            write_stamp(want.name, stamp)
    return after


@dataclass(frozen=True)
class Outcome:
    """What was planned, and the units before and after."""

    plans: tuple[UnitPlan, ...]
    actions: list[str]
    before: Mapping[str, UnitState]
    after: Mapping[str, UnitState]

    @property
    def reasons(self) -> dict[str, list[str]]:
        """Why, for each unit that something was done to."""
        return {plan.name: list(plan.reasons) for plan in self.plans if plan.reasons}


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
        return replace(outcome, after=apply(run, wanted, plans, disk, states))
    except ToolError as error:
        error.details.update(actions=actions, reasons=outcome.reasons)
        raise


def main() -> None:
    """Synchronise and report."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
        mutually_exclusive=[("name", "units")],
        required_one_of=[("name", "units")],
    )
    run = ModuleRunner(module)
    try:
        wanted = desired(module.params)
        # as long as a run that was killed can still be busy with these units
        wait_s = sum(want.timeout_s for want in wanted) + 30
        lock = contextlib.nullcontext() if module.check_mode else host_lock("units", wait_s)
        with lock:
            outcome = synchronise(run, wanted, module.check_mode)
    except BusyError as error:
        module.fail_json(
            msg=f"another run is still starting units on this host (process {error.holder})"
        )
    except ToolError as error:
        module.fail_json(msg=str(error), **error.details)
    except OSError as error:
        module.fail_json(msg=f"cannot keep the stamp {error.filename}: {error.strerror}")
    result: dict[str, Any] = {
        "changed": bool(outcome.actions),
        "actions": outcome.actions,
        "reasons": outcome.reasons,
        "units": {
            name: {
                "active_state": state.active_state,
                "sub_state": state.sub_state,
                "main_pid": state.main_pid,
                "invocation_id": state.invocation_id,
            }
            for name, state in outcome.after.items()
        },
    }
    if module._diff:
        result["diff"] = diff_of(outcome.plans, outcome.before)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
