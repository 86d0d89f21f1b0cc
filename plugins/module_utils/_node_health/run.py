# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""One run of the health program: ask all, act on what was measured, leave records and metrics."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from typing import Any, Mapping

from .._core.child import BROKEN, DONE, LEFT, Answer, ask_all, limited
from .._core.files import json_if_readable, write_atomic
from .._core.lock import BusyError, host_lock
from .._core.names import boot_id
from .._core.record import FAIL, NOT_MEASURED, PASS, Record, brief_of, utc_text
from .._core.run import cpu_seconds, run
from .._core.steps import running_steps, titles
from .._core.verdict import record_from_data
from .._gpu.load import is_loaded
from .._gpu.xid import parse_log
from .._host.hardware_log import parse_faults
from .._slurm.gate.reason import as_written
from .._slurm.nodes import BY_PLAN, UNSETTLED, Node
from . import settings as s
from .judge_local import judge_hang
from .own_node import OwnNode, SlurmError, own_node
from .questions import Look
from .report import CHECKER, answer_of, checker_fault, metrics_of, reason_of
from .settings import Settings
from .state import Hung, State, change_state, known_log, load_state, lock_name

# A status that no interpreter, shell or signal gives: whatever else comes back is the fault of the
# program, and must not take a node out.
OK, FAULT, FAILED = 0, 3, 10
# Something is broken, and the node stays in service: by the brake, or by Slurm's refusal.
HELD = 11
# Of a mode's time, what Slurm and the files get.
_SLURM_SHARE = 0.14
_SLURM_MOST_S = 10.0
_STEPS_S = 2.0
# A stamp in the log that is equal to this one was seen.
_JUST_AFTER_S = 1e-6
_OF_JOBS = frozenset((s.PROLOG, s.EPILOG))
# How the fault of a question begins that the timer alone asks, or asks in full.
_BROKEN_OF_TIMER = tuple(f"the check {name}" for name in (s.IB, s.SENSORS, s.NVME))
# What only a node without jobs can be held to.
_OF_IDLE = frozenset(("gpu.processes", "gpu.memory_used"))


@dataclass
class Run:
    """What a run has found so far; `lines` is for the log."""

    settings: Settings
    mode: str
    started: float = field(default_factory=time.monotonic)
    records: list[Mapping[str, Any]] = field(default_factory=list)
    faults: list[Record] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    # Whether the node is out of service, and why it is not although something is broken.
    out: bool = False
    held: str = ""
    held_s: float = 0.0

    @property
    def limits(self) -> s.Mode:
        """What the mode asks and may take."""
        return s.MODES[self.mode]

    @property
    def slurm_s(self) -> float:
        """Seconds that one command of Slurm may take."""
        return self.limits.limit_s * _SLURM_SHARE

    def fault(self, text: str) -> None:
        """Keep a fault of the program itself."""
        self.faults.append(checker_fault(self.settings.node, text))

    @property
    def slurm(self) -> OwnNode:
        """This node in Slurm."""
        return own_node(run, self.settings)


def look(settings: Settings, mode: str) -> tuple[int, list[str]]:
    """Do one run; returns exit status and lines for the log."""
    now = Run(settings, mode)
    if mode in _OF_JOBS:
        return _look(now), now.lines
    try:
        with host_lock(lock_name(settings.state_dir, "run"), 0.0):
            return _look(now), now.lines
    except BusyError as error:
        # Its answer stands for this one.
        return OK, [f"process {error.holder} is already running this check"]
    except OSError as error:
        return FAULT, [f"no lock can be had: {error}"]


def _look(now: Run) -> int:
    settings, boot = now.settings, boot_id()
    state = load_state(settings.state_dir, boot)
    before = state.drained
    of_job = now.mode in _OF_JOBS
    # A job's start and end ask only after a drain, which the operator may have taken back.
    node = _own_node(now) if before or not of_job else None
    settled = _settled(now, state, node)
    # Around `scontrol reboot` Slurm may resume the node; else a person does, or the gate by
    # evidence of this boot, which need not have what comes after this.
    stays = node is not None and node.has("DRAIN") and not node.has(*UNSETTLED)
    found = _last_xid(now, boot) if stays and state.drained_before else None
    idle = False if of_job else _is_idle(now, node)
    log = known_log(settings, boot, run if now.limits.optics else None)
    asked = Look(settings, now.limits, idle is not False, log, settled)
    left = {name: one.process for name, one in state.hung.items() if one.process is not None}
    # To drain takes four commands of Slurm.
    until = now.started + now.limits.limit_s - 4 * now.slurm_s
    try:
        answers = ask_all(asked.questions(), until, left)
    except OSError as error:
        # No process can be had: nothing was asked.
        now.fault(f"no check could be started: {error}")
        answers = {}
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
    since = _hung_since(state, answers, uptime, of_job)
    for name, answer in answers.items():
        _take(now, name, answer, uptime - since.get(name, uptime))
    drained = _act(now, _after_checks(now, node), state, bool(idle))
    reported = None if drained == before == state.drained else drained
    _remember(now, boot, answers, since, settled, reported, found)
    _leave(now)
    if any(record["status"] == FAIL for record in now.records):
        return FAILED if now.out or not now.limits.drains else HELD
    return FAULT if now.faults else OK


def _own_node(now: Run) -> Node | None:
    try:
        return now.slurm.read(now.slurm_s)
    except SlurmError as error:
        now.fault(f"the node's state in Slurm is not known: {error}")
        return None


def _is_idle(now: Run, node: Node | None) -> bool | None:
    """Return whether nothing may be on the GPUs: no job, no test, no operator at work.

    Slurm calls a node idle whose jobs are suspended; their steps are there. So is the step of a job
    that is over, where its process cannot be ended. None where that is not known.
    """
    if node is None or node.busy or node.has(*BY_PLAN) or is_loaded():
        return False
    try:
        steps = limited(lambda: running_steps(titles(now.settings.roots.proc)), _STEPS_S)
    except OSError:
        return None
    if steps.how == DONE and not steps.value:
        return True
    # It asks for the jobs of the cluster: where there is a step alone.
    squeue = os.path.join(os.path.dirname(now.settings.scontrol), "squeue")
    jobs = run([squeue, "-h", "-a", "-w", node.name, "-o", "%A"], now.slurm_s)
    return not jobs.out.strip() if jobs.ok else None


def _settled(now: Run, state: State, node: Node | None) -> float:
    """Return up to when Xids are settled: who resumed the node has seen them."""
    if not state.drained or node is None or node.has("DRAIN", "DOWN", "FAIL"):
        return state.settled_s
    if state.drained_before:
        # Slurm resumes a node after `scontrol reboot`, and no operator has seen what came since.
        state.drain("")
        return state.settled_s
    seen = _last_xid(now, state.boot) if state.drained_s is None else state.drained_s
    state.drain("")
    return max(state.settled_s, seen)


def _last_xid(now: Run, boot: str) -> float:
    """Return up to when there are Xids, or faults, so far; 0 without one."""
    log = known_log(now.settings, boot, None)()
    seen = [event.uptime_s for event in parse_log(log.text)]
    seen += [fault.uptime_s for fault in parse_faults(log.text)]
    return max((stamp + _JUST_AFTER_S for stamp in seen if stamp is not None), default=0.0)


def _hung_since(
    state: State, answers: Mapping[str, Answer], uptime: float, of_job: bool
) -> dict[str, float]:
    """Return for each question that hangs when it was asked first.

    A job's start and end wait for a moment only, in which what is slow does not answer either: no
    hang begins with them, unless the process that asked is still there.
    """
    since = {}
    for name, answer in answers.items():
        if answer.how in (DONE, BROKEN):
            continue
        known = state.hung.get(name)
        # A process that is gone has had its answer.
        if known is not None and known.process in (None, answer.left):
            since[name] = known.since_s
        elif answer.left is not None or not of_job:
            since[name] = uptime
    return since


def _take(now: Run, name: str, answer: Answer, hangs_s: float) -> None:
    if answer.how == DONE:
        now.records += answer.value
        return
    if answer.how == BROKEN:
        now.fault(f"the check {name}: {answer.message}")
        return
    node = now.settings.node
    mounts = {f"mount:{mount.path}": mount for mount in now.settings.mounts}
    if name in mounts:
        now.records.append(judge_hang(node, mounts[name], hangs_s, answer.message).as_data())
        return
    text = f"the check {name} {'was not asked: ' if answer.how == LEFT else ''}{answer.message}"
    check = f"health.{name.partition(':')[0]}"
    now.records.append(Record(check, f"node:{node}", NOT_MEASURED, text).as_data())


def _after_checks(now: Run, node: Node | None) -> Node | None:
    """Return the node; what a job or a test holds that began since then was not left behind."""
    left = [one for one in now.records if one["status"] == FAIL and one["check"] in _OF_IDLE]
    if left:
        node = _own_node(now)
        if not _is_idle(now, node):
            doubt = {"status": NOT_MEASURED, "measured": None}
            now.records = [
                {**one, **doubt, "text": f"{one['text']}; the node is not known to be idle"}
                if one in left
                else one
                for one in now.records
            ]
    return node


def _act(now: Run, node: Node | None, state: State, idle: bool) -> str:
    """Drain or take back; returns the reason that is ours afterwards."""
    reason = reason_of(now.records)
    now.held, now.held_s = state.held, state.held_s
    until = now.started + now.limits.limit_s
    # One command may hang, and the rest must have time.
    limit = max(0.2, min(_SLURM_MOST_S, (until - time.monotonic()) / 2))
    whole = now.records and not now.faults
    healthy = whole and all(record["status"] == PASS for record in now.records)
    try:
        if reason and now.limits.drains:
            if state.drained and node is None:
                # Perhaps it was resumed, and what failed is what the operator has repaired.
                return state.drained
            return _drain(now, state, reason, limit, until)
        if not healthy or node is None or now.mode in _OF_JOBS:
            return state.drained
        if now.slurm.clear(node, limit) or state.held:
            now.lines.append(f"{now.settings.node} is fit again; the brake had kept it in")
        now.held = ""
        mine = state.drained and as_written(node.reason) == state.drained
        # Of a node that is not idle, not all was measured.
        if now.settings.resume and now.mode == s.HEALTH and mine and idle:
            change = now.slurm.resume(state.drained, limit)
            now.lines.append(f"{now.settings.node} {change.message}")
            return "" if change.changed else state.drained
    except SlurmError as error:
        now.fault(f"Slurm did not take the change: {error}")
    return state.drained


def _drain(now: Run, state: State, reason: str, limit: float, until: float) -> str:
    """Drain within the share; returns the reason that is ours afterwards. Raises SlurmError."""
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
    if state.held and now.mode in _OF_JOBS and uptime - state.held_s < s.HELD_S:
        # A node that is kept in service starts and ends many jobs; slurmctld has better to do.
        return state.drained
    change = now.slurm.drain(reason, limit, until)
    now.out, now.held, now.held_s = change.out, change.message if change.held else "", uptime
    if not (change.held and state.held):
        now.lines.append(f"{now.settings.node} {change.message}")
    return change.reason or state.drained


def _remember(
    now: Run,
    boot: str,
    answers: Mapping[str, Answer],
    since: Mapping[str, float],
    settled: float,
    drained: str | None,
    found: float | None,
) -> None:
    try:
        with change_state(now.settings.state_dir, boot) as state:
            for name, answer in answers.items():
                state.hung.pop(name, None)
                if name in since or answer.left is not None:
                    started = since.get(name, time.clock_gettime(time.CLOCK_BOOTTIME))
                    state.hung[name] = Hung(started, answer.left)
            state.settled_s = max(state.settled_s, settled)
            # The event service may have drained in the meantime; what did not change is not ours.
            if drained is not None:
                state.drain(drained)
            elif found is not None:
                state.drain(state.drained, found)
            if now.limits.drains or not now.held:
                state.held, state.held_s = now.held, now.held_s
    except (BusyError, OSError) as error:
        now.fault(f"what was seen cannot be kept: {error}")


def _leave(now: Run) -> None:
    """Write records and metrics; what cannot be written is its own fault."""
    settings, ended = now.settings, time.time()
    took = time.monotonic() - now.started
    at = utc_text(ended)
    for target in (os.path.join(settings.state_dir, f"{now.mode}.json"), settings.metrics_file):
        if not target or (target == settings.metrics_file and now.mode in _OF_JOBS):
            continue
        records = [*now.records, *(fault.as_data() for fault in now.faults)]
        if target == settings.metrics_file:
            records += _of_timer(settings, ended) if now.mode != s.TIMER else []
        answer = answer_of(settings.node, now.mode, at, took, records)
        text = json.dumps(answer) + "\n"
        if target == settings.metrics_file:
            ran = _timer_ran(settings, ended)
            text = metrics_of(answer, ended, took, cpu_seconds(), bool(now.held), ran)
        try:
            write_atomic(target, text, sync=False)
        except OSError as error:
            now.fault(f"{target} cannot be written: {error.strerror}")
    now.lines += [
        f"{record['status']}: {brief_of(record_from_data(record))}"
        for record in now.records
        if record["status"] != PASS
    ]
    now.lines += [f"checker: {fault.text}" for fault in now.faults]


def _timer_file(settings: Settings) -> str:
    return os.path.join(settings.state_dir, f"{s.TIMER}.json")


def _timer_ran(settings: Settings, now_s: float) -> float | None:
    """Return when the timer last ran, None where it never did; after a boot it has time to."""
    try:
        ran = os.stat(_timer_file(settings)).st_mtime
    except OSError:
        return None
    return max(ran, now_s - time.clock_gettime(time.CLOCK_BOOTTIME))


def _of_timer(settings: Settings, now_s: float) -> list[Mapping[str, Any]]:
    """Return what the timer found lately and this mode does not ask: it stays in the metrics."""
    path = _timer_file(settings)
    try:
        # What it found before the boot shows nothing about now.
        lately = min(s.OF_TIMER_S, time.clock_gettime(time.CLOCK_BOOTTIME))
        if not 0 <= now_s - os.stat(path).st_mtime < lately:
            return []
        records = json_if_readable(path)["records"]
        return [
            record
            for record in records
            if record["check"].startswith(s.OF_TIMER)
            or (record["check"] == CHECKER and record["text"].startswith(_BROKEN_OF_TIMER))
        ]
    except (OSError, LookupError, TypeError, AttributeError):
        # Before the timer's first run there is none, and what is torn is written again by the next.
        return []
