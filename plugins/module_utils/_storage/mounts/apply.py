# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Brings mounts to their wanted state with systemd, each command with a time limit."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from ..._core.child import limited
from ..._core.files import make_folder, remove, write_atomic
from ..._core.mounts import table
from ..._core.run import CommandResult, CommandRunner, ToolError, last_lines
from . import read as host
from .plan import (
    REMOVE,
    REVIVE,
    START,
    UNIT,
    Mount,
    Plan,
    Step,
    digest,
    fstab,
    fstab_line,
    fstab_owned,
    meaning,
    plan,
    unit_of,
    units,
    wanted_by,
    where_of,
)

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

FSTAB_PATH = "/etc/fstab"
_STOP_S = 30
_LISTS = ("options", "before", "requires", "watch")


@dataclass(frozen=True)
class Files:
    """Files to write (path -> text) and to remove, and what they were before (path -> text)."""

    written: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    before: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.written or self.removed)


def wanted_files(owner: str, style: str, mounts: Sequence[Mount], kept: frozenset[str]) -> Files:
    """Return what has to happen to unit files and fstab; `kept` are refused removals."""
    there = host.owned_units(owner)
    wanted: dict[str, str] = {}
    if style == UNIT:
        for mount in mounts:
            for name, text in units(owner, mount).items():
                wanted[os.path.join(host.UNITS, name)] = text
    for path, text in there.items():
        if where_of(text) in kept:
            wanted[path] = text
    table_text = host.read(FSTAB_PATH)
    in_table = fstab(owner, table_text, [] if style == UNIT else mounts)
    before = {**there, FSTAB_PATH: table_text}
    written = {path: text for path, text in wanted.items() if there.get(path) != text}
    # A refused mount of fstab keeps its line, too: the block is then left as it is.
    if in_table != table_text and not kept.intersection(fstab_owned(owner, table_text)):
        written[FSTAB_PATH] = in_table
    return Files(written, tuple(sorted(set(there) - set(wanted))), before)


def _outdated(run: CommandRunner, mount: Mount) -> bool:
    """Return whether a file that a live mount was made with has changed since.

    systemd counts from the boot: what was written before the boot stays older, whatever has been
    done to the clock. Where systemd does not know the mount, nothing is known against it.
    """
    if not mount.watch:
        return False
    shown = run(
        ["systemctl", "show", "--property=ActiveEnterTimestampMonotonic", "--",
         unit_of(mount.where)], timeout_s=_STOP_S,
    )  # fmt: skip
    stamp = shown.out.strip().rpartition("=")[2]
    up_us = int(stamp) if shown.ok and stamp.isdigit() else 0
    since = time.time() - (time.monotonic() - up_us / 1e6)
    return bool(up_us) and max(map(host.changed_at, mount.watch)) > since


def survey(
    run: CommandRunner,
    owner: str,
    mounts: Sequence[Mount],
    answer_s: float,
    login: str,
    keys: Sequence[str],
) -> tuple[Plan, dict[str, str], dict[str, str]]:
    """Return the plan, the digests of the mounts as they must be, and as they are found."""
    files = host.owned_units(owner)
    lines = fstab_owned(owner, host.read(FSTAB_PATH))
    owned = [*host.owned_points(files), *lines]
    watched = {path: host.digest_of(path) for mount in mounts for path in mount.watch}
    digests = {mount.where: digest(mount, watched) for mount in mounts}
    seen = host.look(sorted({*owned, *digests}), answer_s, keys)
    for mount in mounts:
        at = replace(seen[mount.where], device=host.device_of(mount.what))
        if at.live is not None and not at.applied and mount.where in owned:
            # Mounted at boot, by the definition that is there, and what it names as it was then.
            unit = unit_of(mount.where)
            text = files.get(os.path.join(host.UNITS, unit), "")
            same = (
                text == units(owner, mount)[unit]
                if text
                else lines.get(mount.where) == fstab_line(mount)
            ) and not _outdated(run, mount)
            at = replace(at, applied=digests[mount.where] if same else "another definition")
        seen[mount.where] = at
    found = {where: seen[where].applied or digests[where] for where in digests}
    return plan(mounts, owned, seen, digests, login), digests, found


@dataclass
class Applier:
    """Does the steps; `failed` has a line for each that did not succeed.

    `digests` are those of the mounts as they must be, `found` of what is mounted.
    """

    run: CommandRunner
    mounts: Mapping[str, Mount]
    digests: Mapping[str, str]
    found: Mapping[str, str]
    failed: list[str] = field(default_factory=list)

    def apply(self, steps: Sequence[Step], files: Files) -> None:
        """Note, take away, write, bring up; in this order."""
        live = table(host.read("/proc/self/mountinfo"))
        for where in self.mounts:
            # Before the definitions are written, which a run after a killed one would compare.
            if where in live and not host.noted(where):
                host.note(where, self.found[where])
        for step in steps:
            if step.action == REMOVE:
                self._stop(step.where, disable=True)
        self._write(files)
        # systemd itself reports when a unit's file is newer than what it knows, but not of fstab.
        if files:
            self._systemctl("daemon-reload")
        for step in steps:
            if step.action == REMOVE:
                continue
            if step.action == REVIVE:
                # The daemon is gone: nothing can be written any more, only the entry is left.
                self.run(["umount", "--lazy", step.where], timeout_s=_STOP_S)
                host.forget(step.where)
            elif step.action != START and not self._stop(step.where, disable=False):
                continue
            self._start(self.mounts[step.where])
        for mount in self.mounts.values():
            self._enable(mount)

    def _systemctl(self, *words: str, limit_s: float = _STOP_S) -> CommandResult:
        return self.run(["systemctl", "--no-ask-password", *words], timeout_s=limit_s)

    def _stop(self, where: str, disable: bool) -> bool:
        if disable:
            names = [unit_of(where, "automount"), unit_of(where)]
            there = [name for name in names if os.path.exists(os.path.join(host.UNITS, name))]
            if there:
                self._systemctl("disable", *there)
            self._systemctl("stop", unit_of(where, "automount"))
        done = self._systemctl("stop", unit_of(where), limit_s=_STOP_S)
        if where in table(host.read("/proc/self/mountinfo")):
            # It was changed since it was read, or systemd does not know of it.
            self.run(["umount", where], timeout_s=_STOP_S)
        if where in table(host.read("/proc/self/mountinfo")):
            reported = ", ".join(host.users(where)) or done.describe(2)
            self.failed.append(f"{where} cannot be unmounted: {reported}")
            return False
        host.forget(where)
        return True

    def _write(self, files: Files) -> None:
        for path, text in files.written.items():
            write_atomic(path, text)
        for path in files.removed:
            # What could not be unmounted keeps its unit, else its owner would not be known.
            where = where_of(files.before[path])
            if not any(line.startswith(f"{where} ") for line in self.failed):
                remove(path)

    def _start(self, mount: Mount) -> None:
        made = limited(lambda: make_folder(mount.where), 10)
        if made.message:
            self.failed.append(f"{mount.where} cannot be made: {made.message}")
            return
        unit = unit_of(mount.where, "automount" if mount.automount else "mount")
        self._systemctl("reset-failed", unit_of(mount.where))
        begun = int(time.time())
        done = self._systemctl("start", unit, limit_s=mount.limit_s + 15)
        if done.ok:
            if not mount.automount:
                host.note(mount.where, self.digests[mount.where])
            return
        # Of this start alone: the output of an earlier one may no longer be true.
        shown = self.run(
            ["journalctl", "--no-pager", "--output=cat", "--lines=12", f"--since=@{begun}",
             f"--unit={unit_of(mount.where)}"], timeout_s=10,
        )  # fmt: skip
        lines = [
            line for line in shown.out.splitlines()
            if not line.startswith(("Mounting ", "Failed to mount", "Mounted "))
        ]  # fmt: skip
        text = "\n".join(lines)
        reported = meaning(text) or meaning(done.text)
        why = last_lines(text, 3) or done.describe(2)
        self.failed.append(f"{mount.where} ({mount.name}): {reported or 'not mounted'}: {why}")

    def _enable(self, mount: Mount) -> None:
        unit = unit_of(mount.where, "automount" if mount.automount else "mount")
        path = os.path.join(host.UNITS, unit)
        links = [os.path.join(host.UNITS, f"{by}.wants", unit) for by in wanted_by(mount)]
        if os.path.exists(path) and not all(os.path.lexists(link) for link in links):
            self._systemctl("reenable", unit)


def mounts_of(data: list[dict[str, Any]]) -> list[Mount]:
    """Return the mounts of the module's option; ValueError for what cannot be mounted."""
    mounts = []
    for one in data:
        where = one["where"].rstrip("/")
        if not where.startswith("/") or "//" in where or "/.." in where:
            raise ValueError(f"{one['name']}: {one['where']!r} is not a mount point; write /PATH")
        lists = {key: tuple(one[key]) for key in _LISTS}
        mounts.append(Mount(**{**one, **lists, "where": where}))
    for what in ("name", "where"):
        values = [getattr(mount, what) for mount in mounts]
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise ValueError(f"{what} {', '.join(twice)} is declared twice; write it once")
    return mounts


def diff_of(files: Files) -> list[dict[str, str]]:
    """Return the diff of units and fstab; there are no secrets in them."""
    changes = {**dict.fromkeys(files.removed, ""), **files.written}
    return [
        {"before_header": path, "after_header": path, "before": files.before.get(path, ""),
         "after": text}
        for path, text in sorted(changes.items())
    ]  # fmt: skip


def bring_about(
    module: AnsibleModule, run: CommandRunner, login: str, keys: Sequence[str]
) -> dict[str, Any]:
    """Look, plan, apply; return what the module returns. Raises ToolError, ValueError.

    `keys` are the files that admit `login`, the user of this connection.
    """
    params, owner = module.params, module.params["owner"]
    mounts = mounts_of(params["mounts"])
    todo, digests, found = survey(run, owner, mounts, params["answer_s"], login, keys)
    # What hides files is not put there for the next boot either.
    hidden = {mount.where for mount in mounts if any(
        line.startswith(f"{mount.where} ") for line in todo.refused)}  # fmt: skip
    allowed = [mount for mount in mounts if mount.where not in hidden]
    files = wanted_files(owner, params["style"], allowed, todo.kept | frozenset(hidden))
    result: dict[str, Any] = {
        "changed": bool(todo.steps or files),
        "steps": [f"{step.action} {step.where}: {step.why}" for step in todo.steps],
        "pending": list(todo.pending),
        "refused": list(todo.refused),
        "hung": list(todo.hung),
        "diff": diff_of(files),
    }
    applier = Applier(run, {mount.where: mount for mount in allowed}, digests, found)
    if not module.check_mode:
        applier.apply(todo.steps, files)
    for line in todo.pending:
        module.warn(line)
    wrong = [*todo.refused, *applier.failed]
    wrong += [
        f"{where} is mounted but has not answered for {params['answer_s']:g} s: it was left alone; "
        "look at its servers and the network. What will never come back goes with "
        f"`umount --lazy {where}`"
        for where in todo.hung
    ]
    if wrong:
        raise ToolError("\n".join(wrong), **result)
    return result
