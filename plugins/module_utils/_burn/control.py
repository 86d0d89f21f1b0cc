# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A burn-in as seen from Ansible: put on the node, started or resumed, followed, stopped, judged.

It must outlive the connection, Ansible and the module: the program is a zip archive of the sources
of this collection that needs nothing but Python, and runs as a unit of systemd where that is there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Mapping

from .._core import program as _program
from .._core.check_module import result_of
from .._core.files import NO_OTHER_WRITER, open_append, open_folder
from .._core.lock import host_lock
from .._core.names import full_pci
from .._core.record import FAIL, utc_text
from . import parent as _burn_parent
from . import plan as _burn_plan
from . import program as _burn_main
from . import state as _burn_state
from .judge import judge_burn
from .parent import is_running
from .plan import Settings, settings_from_data
from .state import DONE, ENDED, FAILED, State, load
from .thresholds import check_own

PROGRAM = "burn.pyz"
UNIT = "baremetal-dgx-burn"
# What the simulated libraries of tests and pods are found by; a unit does not inherit it.
_PASSED = ("SIMULATED_HARDWARE", "LD_LIBRARY_PATH")
_START_S = 20.0
_STOP_S = 30.0
_LOCK_S = 30
# What a clock that is kept by NTP may have been set back since.
_CLOCK_S = 600
_A_DAY_S = 86400
# Causes that do not go away by themselves: burned again, the GPU would be left again.
_STAYS = ("mig", "lost", "no_gpu")
_SETTINGS = tuple(Settings.__dataclass_fields__)

START, RESUME, FOLLOW, REPORT = "start", "resume", "follow", "report"


class BurnError(Exception):
    """The burn-in could not be started, followed or stopped."""


def archive() -> bytes:
    """Return the program: the same bytes for the same sources."""
    return _program.archive(_program.sources(_burn_main), _program.start_of(_burn_main.__name__))


def next_action(
    state: State | None, running: bool, settings: Settings, again: bool
) -> tuple[str, str]:
    """Return what to do and that in words. Raises BurnError where another burn-in is running."""
    same = state is not None and state.settings == settings
    steps = _burn_plan.plan(settings)
    if running:
        if same or state is None:
            return FOLLOW, "a burn-in is running"
        raise BurnError(
            "a burn-in with other settings is running; wait for it, or stop it with state=stopped"
        )
    if same and state is not None and not again:
        if state.state in ENDED:
            return REPORT, "this burn-in is over; again=true burns once more"
        phase = steps[min(state.step, len(steps) - 1)].phase
        return RESUME, f"goes on at step {state.step + 1} of {len(steps)}, {phase}"
    total = sum(step.seconds for step in steps)
    return START, f"burns {total:.0f} s in {len(steps)} steps: {', '.join(settings.phases)}"


def prepare(folder: str, settings: Settings, fresh: bool) -> None:
    """Put the program and its settings into the folder; what was found before is set aside."""
    # Root runs the program that is put there: no other user may write into the folder.
    with open_folder(folder, 0o750, NO_OTHER_WRITER) as own:
        if fresh:
            if own.exists(_burn_state.FILE):
                own.rename(_burn_state.FILE, "previous.json")
            for name in own.names():
                if name.startswith("sums-") or name.endswith((".log", ".jsonl")):
                    own.remove(name)
        own.write(PROGRAM, archive(), 0o750)
        text = json.dumps(settings.as_data(), sort_keys=True)
        own.write(_burn_main.SETTINGS, text, 0o640)


def start(folder: str, unit: str = UNIT, systemd: bool | None = None) -> str:
    """Start the program apart from this process, and wait until it runs; returns how.

    Raises BurnError when it does not come up.
    """
    command = [sys.executable, os.path.join(folder, PROGRAM), "run", folder]
    if systemd is None:
        systemd = os.path.isdir("/run/systemd/system") and bool(shutil.which("systemd-run"))
    log = os.path.join(folder, "burn.log")
    if systemd:
        settings = [f"--setenv={k}={os.environ[k]}" for k in _PASSED if os.environ.get(k)]
        described = ["--description=GPU burn-in (baremetal.dgx)", "--property=KillMode=mixed"]
        argv = ["systemd-run", f"--unit={unit}", "--collect", *described, *settings, *command]
        try:
            made = subprocess.run(  # pylint: disable=ansible-bad-function
                argv,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_START_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BurnError(f"systemd-run was not done after {_START_S:g} s") from None
        if made.returncode:
            message = made.stdout.decode("utf-8", "replace").strip()
            raise BurnError(f"systemd-run ended with {made.returncode}: {message}")
    else:
        with open_append(log) as stream:
            apart = [*command[:2], "start", folder]
            subprocess.run(  # pylint: disable=ansible-bad-function
                apart, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, cwd="/", check=False
            )
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        found = load(folder)
        if found is not None and (found.pid and found.updated > time.time() - _START_S - 60):
            if _burn_parent.is_running(folder) or found.state in ENDED:
                return f"unit {unit}" if systemd else "its own process"
        time.sleep(0.1)
    raise BurnError(f"the burn-in does not come up; see {log} or `journalctl -u {unit}`")


def follow(folder: str, until: float, sleep: Callable[[float], None] = time.sleep) -> State | None:
    """Wait until it is over or `until` (of time.monotonic) has come; returns the last state."""
    while _burn_parent.is_running(folder) and time.monotonic() < until:
        sleep(0.2)
    return load(folder)


def stop(folder: str) -> bool:
    """Interrupt a running burn-in; it can be resumed. Returns whether one ran. Raises BurnError."""
    if not _burn_parent.is_running(folder):
        return False
    state = load(folder)
    if state is None or not state.pid:
        raise BurnError("a burn-in is coming up; try again in a moment")
    os.kill(state.pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_S
    while _burn_parent.is_running(folder):
        if time.monotonic() > deadline:
            raise BurnError(f"process {state.pid} does not end")
        time.sleep(0.1)
    return True


def read_sums(folder: str) -> Callable[[str], bytes | None]:
    """Return a reader of the files of sums in a folder."""

    def read(name: str) -> bytes | None:
        try:
            with open(os.path.join(folder, os.path.basename(name)), "rb") as stream:
                return stream.read()
        except OSError:
            return None

    return read


def summary(state: State) -> dict[str, Any]:
    """Return how far it is, for people."""
    return {
        "state": state.state,
        "text": state.text,
        "phase": state.phase,
        "step": min(state.step + 1, max(1, state.steps)),
        "steps": state.steps,
        "burnt_s": round(state.burnt_s, 1),
        "resumed": state.resumed,
        "simulated": state.simulated,
        "program_sha256": hashlib.sha256(archive()).hexdigest(),
    }


def settings_of(options: Mapping[str, Any]) -> Settings:
    """Return what is burned in; ValueError for settings that cannot be."""
    check_own(options["thresholds"])
    return settings_from_data({name: options[name] for name in _SETTINGS})


def is_again(options: Mapping[str, Any], state: State | None, now: float) -> bool:
    """Return whether a burn-in that is over, or was interrupted, does not count any more.

    One that was interrupted more than a day ago is not resumed: what was repaired since is in none
    of its values. One that left GPUs unburned has nothing to say of them once the cause is gone,
    which some causes never are by themselves; one that lacks a GPU that is there now is the same.
    What either found stays reported.
    """
    if state is None:
        return bool(options["again"])
    # One that ended after now was dated by a wrong clock, and would count for years.
    age = now - state.updated
    if state.state not in ENDED:
        stale = not -_CLOCK_S <= age <= _A_DAY_S
        return bool(options["again"] or (stale and not _found(options, state)))
    # One that failed has burned nothing that is worth keeping, and looks at the node in seconds.
    causes = [*state.left.values(), *state.ended.values()] if state.state == DONE else []
    unburned = state.state == FAILED or any(one.get("reason") not in _STAYS for one in causes)
    if options["again_if_unburned"] and not _found(options, state):
        if unburned or _has_more(options, state):
            return True
    days = options["again_after_days"]
    if not days:
        return bool(options["again"])
    return bool(options["again"] or not -_CLOCK_S <= age <= days * _A_DAY_S)


def _has_more(options: Mapping[str, Any], state: State) -> bool:
    """Return whether NVML lists a GPU of the node now that this burn-in never saw."""
    seen = set(state.gpus) | set(state.left)
    places = sum("index " not in one for one in seen)
    is_whole = places >= options["count"] and seen >= {full_pci(one) for one in options["slots"]}
    if state.settings.gpus or is_whole:
        return False
    command = [sys.executable, "-I", "-S", os.path.join(options["folder"], PROGRAM)]
    gpus = _burn_parent.listed(command, state.settings.nvml).get("gpus") or ()
    return any(gpu["address"] not in seen and not gpu.get("error") for gpu in gpus)


def _found(options: Mapping[str, Any], state: State) -> bool:
    sums = read_sums(options["folder"])
    return any(one.status == FAIL for one in judge_burn("", state, sums, options["thresholds"]))


def begin(
    options: Mapping[str, Any], settings: Settings, result: dict[str, Any], check: bool
) -> str:
    """Begin a burn-in, or go on with it; `result` learns what was done, which is returned.

    BurnError, BusyError, OSError. `check` only tells what would be done.
    """
    folder = options["folder"]
    place = hashlib.sha256(folder.encode("utf-8")).hexdigest()[:12]
    with host_lock(f"gpu_burn-{place}", _LOCK_S):
        found = load(folder)
        again = is_again(options, found, time.time())
        action, text = next_action(found, is_running(folder), settings, again)
        result.update(action=action, text=text, changed=action not in (FOLLOW, REPORT))
        if result["changed"] and not check:
            prepare(folder, settings, action == START)
            result["runs_as"] = start(folder)
    return action


def halt(folder: str, result: dict[str, Any], check: bool) -> None:
    """Interrupt a burn-in that runs; `result` learns it. BurnError, OSError."""
    running = is_running(folder)
    result.update(action="stop", changed=running)
    if running and not check:
        stop(folder)


def report(
    options: Mapping[str, Any], node: str, state: State | None, result: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the module returns of what is on disk."""
    if state is None:
        return result_of([], **result)
    sums = read_sums(options["folder"])
    wanted = options["slots"], options["count"]
    records = judge_burn(node, state, sums, options["thresholds"], *wanted)
    # Reported again, it still counts by the time of the burn.
    return result_of(records, at=utc_text(state.updated or None), **result, run=summary(state))
