# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Whether a systemd unit runs, and runs with what is on disk: values in, a plan out. Pure."""

from __future__ import annotations

import calendar
import time
from dataclasses import dataclass, field, replace
from typing import Any, Mapping, Sequence

STARTED = "started"
ENABLE, DISABLE, RESET_FAILED = "enable", "disable", "reset-failed"
START, RESTART, RELOAD, STOP = "start", "restart", "reload", "stop"

SHOW_PROPERTIES = (
    "Id",
    "LoadState",
    "LoadError",
    "ActiveState",
    "SubState",
    "Result",
    "UnitFileState",
    "Type",
    "RemainAfterExit",
    "MainPID",
    "NRestarts",
    "InvocationID",
    "NeedDaemonReload",
    "CanReload",
    "FragmentPath",
    "DropInPaths",
    "ExecMainStatus",
    "InactiveExitTimestamp",
    "InactiveExitTimestampMonotonic",
    "ActiveEnterTimestampMonotonic",
    "StateChangeTimestampMonotonic",
)
# A process that systemd had to start again is believed after this time: the crash loops of daemons
# that wait for a neighbour, an address or a lock have periods of a few seconds to half a minute.
STEADY_S = 60.0
# The kernel stamps files with a clock that lags by up to one tick (10 ms at HZ=100).
_CLOCK_MARGIN_S = 0.1
_CANNOT_BE_ENABLED = ("static", "alias", "indirect", "generated", "transient")
_REPORT_READY = ("notify", "notify-reload", "forking", "oneshot")
_RUNNING = ("active", "reloading", "refreshing")


@dataclass(frozen=True)
class UnitState:
    """A unit as `systemctl show` reports it.

    `started_at` is in seconds since the epoch, 0 unknown; `up_s` the seconds since it became
    active; `state_changed_us` moves with each start and each `systemctl reload`.
    """

    name: str
    load_state: str = "not-found"
    load_error: str = ""
    active_state: str = "inactive"
    sub_state: str = "dead"
    result: str = ""
    unit_file_state: str = ""
    kind: str = ""
    remain_after_exit: bool = False
    main_pid: int = 0
    exit_status: int = 0
    restarts: int = 0
    invocation_id: str = ""
    need_daemon_reload: bool = False
    can_reload: bool = False
    files: tuple[str, ...] = ()
    started_at: float = 0.0
    up_s: float = 0.0
    state_changed_us: int = 0

    @property
    def running(self) -> bool:
        """True when it is up, be it with a process or, like a mount, without."""
        return self.active_state in _RUNNING

    @property
    def restarting(self) -> bool:
        """True while systemd waits to start it once more after it died."""
        return self.active_state == "activating" and self.sub_state.startswith("auto-restart")

    @property
    def settled(self) -> bool:
        """True when its process has read its files: it reports ready, or has had a minute."""
        return self.kind in _REPORT_READY or self.up_s >= STEADY_S

    @property
    def unsteady(self) -> bool:
        """True when it runs, but only since systemd started it again a moment ago."""
        return self.running and self.restarts > 0 and self.up_s < STEADY_S

    @property
    def in_transition(self) -> bool:
        """True while systemd is busy starting, stopping or reloading it."""
        busy = self.active_state in ("activating", "deactivating", "reloading", "refreshing")
        return busy and not self.restarting

    @property
    def enabled(self) -> bool:
        """True when it comes up at boot, or cannot be enabled by its nature."""
        return self.unit_file_state in ("enabled", *_CANNOT_BE_ENABLED)

    def describe(self) -> str:
        """Its state in words: `failed (exit-code)`, `active (running)`."""
        if self.load_state == "not-found" and self.active_state == "inactive":
            return "not installed"
        if self.load_state == "masked":
            return "masked"
        if self.active_state == "failed" or (self.restarting and self.result != "success"):
            state = "failed" if self.active_state == "failed" else "restarting"
            status = f" {self.exit_status}" if self.result == "exit-code" else ""
            return f"{state} ({self.result}{status})"
        return f"{self.active_state} ({self.sub_state})"


@dataclass(frozen=True)
class PathDigest:
    """The files a path stands for, each with its digest, and when any of them last changed.

    `touched` is another text after any write or change of mode, also when the content has come
    back to what it was. That an absent file came and went only its folder can tell (`around`), and
    that is touched by its other files, too.
    """

    files: Mapping[str, str]
    changed_at: float = 0.0
    touched: str = ""
    around: str = ""


@dataclass(frozen=True)
class OnDisk:
    """What is on disk now for one unit: its definition, and every path that it has to watch."""

    definition: PathDigest = PathDigest({})
    paths: Mapping[str, PathDigest] = field(default_factory=dict)


@dataclass(frozen=True)
class Wanted:
    """How one unit must be."""

    name: str
    state: str = STARTED
    # A unit that is to be stopped need not exist.
    missing_ok: bool = False
    enabled: bool | None = None
    restart_on: tuple[str, ...] = ()
    reload_on: tuple[str, ...] = ()
    reload_command: tuple[str, ...] = ()
    restart_key: str = ""
    # Why it must not be restarted now, in words; what is not up is started all the same.
    restart_blocked_by: str = ""
    settle_s: float = 2
    timeout_s: float = 90
    package: str = ""


@dataclass(frozen=True)
class Stamp:
    """What a unit runs with, as written down by the run that made it so.

    `pending` stamps announce a (re)start: they are written before it and hold the invocation that
    was there then. Once the unit has another invocation, the start has happened.
    `process` is the main process and the last change of state when the stamp was written: another
    one means that the unit was started or reloaded by another hand since. `settled` once the
    process is sure to have read its files.
    """

    invocation_id: str
    pending: bool
    definition: PathDigest
    paths: Mapping[str, PathDigest]
    restart_key: str
    process: str = ""
    settled: bool = False
    reloads: tuple[str, ...] = ()


@dataclass(frozen=True)
class UnitPlan:
    """Actions in order, why, what blocks them, and whether a new stamp is due.

    `deferred` is why a restart is due that is not done: it is announced only.
    """

    name: str
    actions: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    deferred: tuple[str, ...] = ()
    error: str = ""
    write_stamp: bool = False
    # seconds for which it must stay up before the run believes it
    prove_s: float = 0.0

    @property
    def starts(self) -> bool:
        """True when the unit gets a new process."""
        return START in self.actions or RESTART in self.actions


def full_name(name: str) -> str:
    """A unit name with its suffix."""
    suffixes = (
        ".service",
        ".socket",
        ".timer",
        ".mount",
        ".automount",
        ".target",
        ".path",
        ".swap",
        ".slice",
        ".scope",
        ".device",
    )
    return name if name.endswith(suffixes) else name + ".service"


def template_of(name: str) -> str:
    """`a@.service` for `a@b.service`; any other name is its own template."""
    stem, kind = name.rsplit(".", 1)
    return f"{stem.split('@', 1)[0]}@.{kind}" if "@" in stem else name


def drop_in_folders(name: str) -> list[str]:
    """Names of the directories whose files change a unit: its own, its template's, its prefixes'.

    Those of a whole kind of unit (`service.d`) count as well. See systemd.unit(5).
    """
    stem, kind = template_of(name).rsplit(".", 1)
    folders = [f"{own}.d" for own in dict.fromkeys([name, template_of(name)])]
    parts = stem.rstrip("@").split("-")
    for count in range(len(parts) - 1, 0, -1):
        folders.append(f"{'-'.join(parts[:count])}-.{kind}.d")
    return [*folders, f"{kind}.d"]


def parse_show(
    text: str, names: Sequence[str], now_wall: float, now_monotonic: float
) -> dict[str, UnitState]:
    """States from `systemctl show -p … NAME...`: one block for each name, in order of the names.

    Raises ValueError when there are not as many blocks as names.
    """
    blocks = [block for block in text.strip().split("\n\n") if block.strip()]
    if len(blocks) != len(names):
        raise ValueError(f"systemctl show answered {len(blocks)} of {len(names)} units")
    states = {}
    for name, block in zip(names, blocks):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        states[name] = _state(name, values, now_wall, now_monotonic)
    return states


def _state(
    name: str, values: Mapping[str, str], now_wall: float, now_monotonic: float
) -> UnitState:
    files = [values.get("FragmentPath", ""), *values.get("DropInPaths", "").split()]
    return UnitState(
        name=name,
        load_state=values.get("LoadState", ""),
        load_error=values.get("LoadError", "").strip('" '),
        active_state=values.get("ActiveState", ""),
        sub_state=values.get("SubState", ""),
        result=values.get("Result", ""),
        unit_file_state=values.get("UnitFileState", ""),
        kind=values.get("Type", ""),
        remain_after_exit=values.get("RemainAfterExit") == "yes",
        main_pid=_integer(values.get("MainPID")),
        exit_status=_integer(values.get("ExecMainStatus")),
        restarts=_integer(values.get("NRestarts")),
        invocation_id=values.get("InvocationID", ""),
        need_daemon_reload=values.get("NeedDaemonReload") == "yes",
        can_reload=values.get("CanReload") == "yes",
        files=tuple(path for path in files if path),
        started_at=start_time(
            values.get("InactiveExitTimestamp", ""),
            _integer(values.get("InactiveExitTimestampMonotonic")),
            now_wall,
            now_monotonic,
        ),
        up_s=max(0.0, now_monotonic - _integer(values.get("ActiveEnterTimestampMonotonic")) / 1e6),
        state_changed_us=_integer(values.get("StateChangeTimestampMonotonic")),
    )


def _integer(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def start_time(recorded: str, monotonic_us: int, now_wall: float, now_monotonic: float) -> float:
    """When a unit was started, in seconds since the epoch on the present clock; 0 when unknown.

    The monotonic stamp is exact, but turned into the present wall clock; the recorded wall clock
    is that of the start. Where the clock was stepped in between they differ, and the earlier one is
    taken, because a start that is taken for too late would hide a restart that is due.
    recorded is like `Fri 2025-11-21 02:02:01 UTC` (systemctl run with TZ=UTC).
    """
    if not monotonic_us:
        return 0.0
    exact = now_wall - (now_monotonic - monotonic_us / 1e6)
    try:
        day, clock, zone = recorded.split()[1:4]
        wall = calendar.timegm(time.strptime(f"{day} {clock}", "%Y-%m-%d %H:%M:%S"))
    except ValueError:
        return 0.0
    if zone != "UTC":
        return 0.0
    # one second: the recorded time has no fractions
    return min(exact, wall + 1.0)


def plan_unit(
    want: Wanted, now: UnitState, stamp: Stamp | None, disk: OnDisk, check_mode: bool
) -> UnitPlan:
    """What must be done so that the unit is as wanted, and runs with what is on disk."""
    if want.state != STARTED:
        return _plan_stopped(want, now, check_mode)
    problem = _obstacle(want, now, check_mode)
    if problem:
        return UnitPlan(want.name, error=problem)
    actions = _enabling(want, now)
    if not now.running:
        if now.in_transition:
            # check mode only: a real run waits until it is over
            return UnitPlan(want.name, tuple(actions))
        if now.active_state == "failed":
            # a unit that hit its start limit refuses every start until it is reset
            actions.append(RESET_FAILED)
        actions.append(RESTART if now.restarting else START)
        return UnitPlan(
            want.name,
            tuple(actions),
            (f"it is {now.describe()}",),
            write_stamp=True,
            # what died with the same files before is not believed after a moment
            prove_s=max(STEADY_S if _died_with(want, now, stamp, disk) else 0.0, want.settle_s),
        )
    restart, reload = what_it_lacks(want, now, stamp, disk)
    deferred: list[str] = []
    if restart and want.restart_blocked_by:
        deferred, restart, reload = restart, [], []
    if restart:
        actions.append(RESTART)
    elif reload:
        actions.append(RELOAD)
    prove_s = STEADY_S - now.up_s if now.unsteady else 0.0
    if restart:
        prove_s = STEADY_S if _died_with(want, now, stamp, disk) else 0.0
    return UnitPlan(
        want.name,
        tuple(actions),
        tuple(restart or reload),
        tuple(deferred),
        write_stamp=not deferred
        and (bool(restart or reload) or stamp != stamp_of(want, disk, now, pending=False)),
        prove_s=max(prove_s, want.settle_s if restart or reload else 0.0),
    )


def _died_with(want: Wanted, now: UnitState, stamp: Stamp | None, disk: OnDisk) -> bool:
    """True when a unit has died with the files that are on disk."""
    if now.active_state != "failed" and not now.restarting and not now.unsteady:
        return False
    if stamp is not None:
        # a reload that failed has left nothing on record of what it read
        known = {path: stamp.paths.get(path, digest) for path, digest in disk.paths.items()}
        if same_files(OnDisk(stamp.definition, known), disk):
            return True
    return what_it_lacks(want, now, stamp, disk) == ([], [])


def same_files(one: OnDisk, other: OnDisk) -> bool:
    """True when a unit's definition and all its files have the same content in both."""
    return (
        same_content(one.definition, other.definition)
        and one.paths.keys() == other.paths.keys()
        and all(same_content(one.paths[path], other.paths[path]) for path in other.paths)
    )


def _plan_stopped(want: Wanted, now: UnitState, check_mode: bool) -> UnitPlan:
    if now.load_state == "not-found":
        if not (want.missing_ok or check_mode):
            return UnitPlan(want.name, error=_not_found(want))
        # What ran when its file went away runs on, and a link that starts it at boot stays.
        if now.active_state == "inactive" and not now.enabled:
            return UnitPlan(want.name)
    actions = _enabling(want, now) if now.load_state != "masked" else []
    if now.active_state == "failed":
        actions.append(RESET_FAILED)
    elif now.active_state != "inactive":
        actions.append(STOP)
    return UnitPlan(want.name, tuple(actions), (f"it is {now.describe()}",) if actions else ())


def _enabling(want: Wanted, now: UnitState) -> list[str]:
    if want.enabled is True and not now.enabled:
        return [ENABLE]
    if want.enabled is False and now.unit_file_state.startswith("enabled"):
        return [DISABLE]
    return []


def _not_found(want: Wanted) -> str:
    package = want.package or "that ships it"
    return f"{want.name}: there is no such unit on this host; install the package {package}"


def _obstacle(want: Wanted, now: UnitState, check_mode: bool) -> str:
    """Why the unit cannot be kept running, or nothing."""
    if now.load_state == "not-found":
        return "" if check_mode else _not_found(want)
    if now.load_state == "masked":
        return f"{want.name} is masked; `systemctl unmask {want.name}` if it is meant to run"
    if now.load_state != "loaded":
        return f"{want.name} cannot be loaded ({now.load_state}): {now.load_error}"
    if now.kind == "oneshot" and not now.remain_after_exit:
        return (
            f"{want.name} is a oneshot unit without RemainAfterExit=yes, so it never stays up;"
            " add RemainAfterExit=yes, or manage the timer that starts it"
        )
    if now.in_transition and not now.running and not check_mode:
        return f"{want.name} is still {now.describe()} after {want.timeout_s:g} s"
    return ""


def same_content(one: PathDigest | None, other: PathDigest) -> bool:
    """True when both have the same files with the same digests."""
    return one is not None and dict(one.files) == dict(other.files)


def in_use(
    now: UnitState, stamp: Stamp | None, known: PathDigest | None, disk: PathDigest, by_reload: bool
) -> bool:
    """True when a running unit is proven to use what is on disk.

    known is what the stamp has of it, by_reload whether a reload reads it, too.
    - Untouched since the stamp: whatever start or reload came after has read the same.
    - Otherwise the content may have been another one in between, though it is what it was. It is
      proven only by a start after the last change, or because the process is still the one that
      was stamped and has read it once for all: a file that a reload reads as well, by any process,
      is not.
    """
    if known is not None:
        same, untouched = same_content(known, disk), known.touched == disk.touched
        if same and untouched and known.around == disk.around:
            return True
        if stamp is not None and not stamp.pending and stamp.invocation_id == now.invocation_id:
            if not same or (by_reload and not untouched):
                return False
            if stamp.process == process_of(now) and (untouched or stamp.settled):
                return True
    return bool(now.started_at) and disk.changed_at + _CLOCK_MARGIN_S < now.started_at


def what_it_lacks(
    want: Wanted, now: UnitState, stamp: Stamp | None, disk: OnDisk
) -> tuple[list[str], list[str]]:
    """Reasons for a restart and reasons for a reload of a running unit."""
    if stamp is not None and stamp.pending and stamp.invocation_id == now.invocation_id:
        return ["a restart that an earlier run announced did not happen"], []
    restart: list[str] = []
    reload: list[str] = []
    if not _definition_in_use(now, stamp, disk.definition):
        restart.append("its unit definition changed")
    if want.restart_key and (stamp is None or stamp.restart_key != want.restart_key):
        restart.append("its restart key changed" if stamp else "its restart key is not on record")
    reloadable = bool(want.reload_command or now.can_reload)
    for paths, by_reload in ((want.restart_on, False), (want.reload_on, reloadable)):
        for path in paths:
            known = stamp.paths.get(path) if stamp else None
            if not in_use(now, stamp, known, disk.paths[path], by_reload):
                reasons = reload if by_reload else restart
                reasons.append(_difference(path, disk.paths[path], known))
    if reload and want.restart_key and stamp and stamp.invocation_id != now.invocation_id:
        # Another process has started with files that are not known; so is what its key was.
        return restart + reload, []
    return restart, reload


def _definition_in_use(now: UnitState, stamp: Stamp | None, disk: PathDigest) -> bool:
    """Like `in_use`, but read by systemd: a start before the daemon-reload used the old one."""
    known = stamp.definition if stamp else None
    if stamp is not None and known is not None and same_content(known, disk):
        if (known.touched, known.around) == (disk.touched, disk.around):
            return True
        if not stamp.pending and stamp.invocation_id == now.invocation_id:
            # no reload of the unit reads its definition
            return True
    return not now.need_daemon_reload and in_use(now, stamp, known, disk, by_reload=False)


def _difference(path: str, disk: PathDigest, known: PathDigest | None) -> str:
    """Which files below a path changed, in words."""
    if known is None:
        return f"{path} may have changed since it started"
    names = {*disk.files, *known.files}
    changed = sorted(name for name in names if disk.files.get(name) != known.files.get(name))
    if not changed:
        return f"{path} may have been changed and changed back since the last run"
    shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
    return f"{shown} changed"


def process_of(now: UnitState) -> str:
    """The main process and its last change of state."""
    return f"{now.main_pid} {now.state_changed_us}"


def stamp_of(want: Wanted, disk: OnDisk, now: UnitState, pending: bool) -> Stamp:
    """The stamp that says: this unit, as it is now, runs with what is on disk."""
    return Stamp(
        invocation_id=now.invocation_id,
        pending=pending,
        definition=disk.definition,
        paths=dict(disk.paths),
        restart_key=want.restart_key,
        process=process_of(now),
        settled=now.settled,
        reloads=tuple(want.reload_on),
    )


def stamp_before_reload(stamp: Stamp, want: Wanted) -> Stamp:
    """The stamp while a reload is under way: of what it reads, nothing is known."""
    kept = {path: known for path, known in stamp.paths.items() if path not in want.reload_on}
    return replace(stamp, paths=kept)


def stamp_to_json(stamp: Stamp) -> dict[str, Any]:
    """A stamp as a JSON value."""
    return {
        "version": 2,
        "invocation_id": stamp.invocation_id,
        "pending": stamp.pending,
        "process": stamp.process,
        "settled": stamp.settled,
        "definition": _digest_to_json(stamp.definition),
        "paths": {path: _digest_to_json(known) for path, known in stamp.paths.items()},
        "reloads": list(stamp.reloads),
        "restart_key": stamp.restart_key,
    }


def _digest_to_json(digest: PathDigest) -> dict[str, Any]:
    return {
        "files": dict(digest.files),
        "changed_at": digest.changed_at,
        "touched": digest.touched,
        "around": digest.around,
    }


def stamp_from_json(value: Any) -> Stamp | None:
    """A stamp from a JSON value; None for anything else (a new one is then written)."""
    try:
        if value["version"] != 2:
            return None
        return Stamp(
            invocation_id=str(value["invocation_id"]),
            pending=bool(value["pending"]),
            definition=_digest_from_json(value["definition"]),
            paths={path: _digest_from_json(known) for path, known in value["paths"].items()},
            restart_key=str(value["restart_key"]),
            process=str(value["process"]),
            settled=bool(value["settled"]),
            reloads=tuple(map(str, value["reloads"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _digest_from_json(value: Any) -> PathDigest:
    return PathDigest(
        {str(name): str(digest) for name, digest in value["files"].items()},
        float(value["changed_at"]),
        str(value["touched"]),
        str(value["around"]),
    )


def on_disk_to_json(disk: OnDisk) -> dict[str, Any]:
    """What is on disk as a JSON value."""
    return {
        "definition": _digest_to_json(disk.definition),
        "paths": {path: _digest_to_json(digest) for path, digest in disk.paths.items()},
    }


def on_disk_from_json(value: Mapping[str, Any]) -> OnDisk:
    """The same, from a JSON value."""
    return OnDisk(
        _digest_from_json(value["definition"]),
        {path: _digest_from_json(digest) for path, digest in value["paths"].items()},
    )


def stayed_up(first: UnitState, then: UnitState, started: bool) -> str:
    """What went wrong between two readings after an action, or nothing.

    After a start the main process must be the same. After a reload it may be another one (Slurm
    23.11 and later replace their process on reconfigure), but systemd must not have restarted it.
    """
    if not then.running:
        return f"is {then.describe()}"
    again = then.restarts != first.restarts or then.invocation_id != first.invocation_id
    # a start by hand sets systemd's counter to 0
    if again or (started and then.restarts):
        return f"died and was started again by systemd ({then.restarts} restarts)"
    if started and then.main_pid != first.main_pid and first.main_pid:
        return f"changed its main process from {first.main_pid} to {then.main_pid}"
    return ""


def normalise_definition(text: str) -> str:
    """A unit file without comments and blank lines, which need no restart when they change."""
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and line.lstrip()[0] not in "#;")


def diff_of(plans: Sequence[UnitPlan], states: Mapping[str, UnitState]) -> list[dict[str, str]]:
    """Before and after of every unit that changes, in Ansible's form."""
    diffs = []
    for plan in plans:
        if not plan.actions:
            continue
        now = states[plan.name]
        enabled = now.unit_file_state or "unknown"
        state = now.describe()
        enabled_after, state_after = enabled, state
        for action in plan.actions:
            if action in (ENABLE, DISABLE):
                enabled_after = action + "d"
            elif action in (STOP, RESET_FAILED):
                state_after = "inactive (dead)"
            elif action in (START, RESTART, RELOAD):
                done = {START: "started", RESTART: "restarted", RELOAD: "reloaded"}[action]
                state_after = f"active, {done}: {'; '.join(plan.reasons)}"
        diffs.append(
            {
                "before_header": plan.name,
                "after_header": plan.name,
                "before": f"enabled: {enabled}\nstate: {state}\n",
                "after": f"enabled: {enabled_after}\nstate: {state_after}\n",
            }
        )
    return diffs
