# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Asking systemd, digesting files and keeping stamps: the host side of `_units`."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import time
from dataclasses import replace
from typing import Iterator, Mapping, Sequence

from ..._core.files import remove, write_atomic
from ..._core.hang import BrokenError, HungError, in_time
from ..._core.run import MISSING, CommandRunner, ToolError, last_lines
from .plan import (
    SHOW_PROPERTIES,
    OnDisk,
    PathDigest,
    Stamp,
    UnitState,
    Wanted,
    drop_in_folders,
    normalise_definition,
    on_disk_from_json,
    on_disk_to_json,
    parse_show,
    stamp_from_json,
    stamp_to_json,
    template_of,
)

STAMP_FOLDER = "/var/lib/baremetal-dgx/applied"
_SHOW_TIMEOUT_S = 30
_READ_S = 60.0
_MADE_BY_GENERATORS = ("/run/systemd/generator", "/run/systemd/transient")
# Where administrators and packages put definitions, first wins; what generators make is left to
# systemd. See systemd.unit(5), "unit file load path".
UNIT_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)


def show(run: CommandRunner, names: Sequence[str]) -> dict[str, UnitState]:
    """The state of each unit, from one call of systemctl; raises ToolError when it cannot tell."""
    if not names:
        return {}
    result = run(
        ["systemctl", "show", "--no-pager", "-p", ",".join(SHOW_PROPERTIES), "--", *names],
        timeout_s=_SHOW_TIMEOUT_S,
        # systemctl prints times in the local zone, whose abbreviation cannot be parsed
        env={"TZ": "UTC"},
    )
    if result.outcome == MISSING:
        raise ToolError("systemctl is not installed: this host is not run by systemd")
    if not result.ok:
        reason = last_lines(result.text, 1) or result.describe()
        raise ToolError(f"systemd does not answer: {reason}")
    try:
        states = parse_show(result.out, names, time.time(), time.monotonic())
    except ValueError as error:
        raise ToolError(str(error)) from error
    # Of a unit whose file is gone, systemd does not say whether links to it are left.
    for name, state in states.items():
        if not state.unit_file_state and wants_of(name):
            states[name] = replace(state, unit_file_state="enabled")
    return states


def wants_of(name: str) -> list[str]:
    """Return the links that start a unit with another, which `systemctl disable` takes away."""
    places = (f"{folder}/*.{kind}" for folder in UNIT_FOLDERS[:1] for kind in ("wants", "requires"))
    return [path for place in places for path in glob.glob(f"{place}/{glob.escape(name)}")]


def with_started(names: Sequence[str]) -> list[str]:
    """Return the units and the services that timers, paths and sockets among them start.

    A timer's service is not a declared unit, and yet it runs by the definition that is loaded.
    """
    kinds = (".timer", ".path", ".socket")
    started = [f"{name.rpartition('.')[0]}.service" for name in names if name.endswith(kinds)]
    return list(dict.fromkeys([*names, *started]))


def stale_definitions(states: Mapping[str, UnitState]) -> set[str]:
    """Units whose definition on disk is not the one that systemd has loaded.

    NeedDaemonReload alone does not tell: systemd 252 (Debian 12, RHEL 9) overlooks the first file
    in a new drop-in directory, and no version sees a unit file that overrides a vendor's.
    """
    return {
        name
        for name, state in states.items()
        if state.need_daemon_reload
        or (state.load_state == "loaded" and _overlooked(name, state, UNIT_FOLDERS))
    }


def _overlooked(name: str, state: UnitState, folders: Sequence[str]) -> bool:
    loaded = {os.path.basename(path) for path in state.files[1:]}
    for folder in folders:
        for drop_in_folder in drop_in_folders(name):
            for path in glob.glob(os.path.join(folder, drop_in_folder, "*.conf")):
                # a link to /dev/null hides a drop-in of the same name
                if os.path.basename(path) not in loaded and os.path.realpath(path) != os.devnull:
                    return True
    fragment = state.files[0] if state.files else ""
    if fragment.startswith(_MADE_BY_GENERATORS):
        return False
    for own_name in dict.fromkeys([name, template_of(name)]):
        for folder in folders:
            own = os.path.join(folder, own_name)
            if os.path.lexists(own):
                return os.path.realpath(own) != os.path.realpath(fragment)
    return False


def journal(run: CommandRunner, name: str, lines: int = 5) -> str:
    """The last lines of a unit's journal, joined with ' | '; empty when there are none."""
    return _journal(run, ["-u", name], lines)


def last_words(run: CommandRunner, name: str) -> str:
    """The last line that the unit's own processes wrote, else what systemd wrote about it."""
    return _journal(run, [f"_SYSTEMD_UNIT={name}"], 1) or _journal(run, ["-u", name], 1)


def _journal(run: CommandRunner, match: Sequence[str], lines: int) -> str:
    argv = ["journalctl", *match, "-n", str(lines), "--no-pager", "-q", "-o", "cat"]
    result = run(argv, timeout_s=15)
    return last_lines(result.out, lines) if result.ok else ""


def on_disk(want: Wanted, now: UnitState) -> OnDisk:
    """Digests of the unit's definition and of all paths it watches.

    A child reads them: any of them may be on a mount that does not answer. ToolError names it.
    """
    watched = (*want.restart_on, *want.reload_on)
    what = f"{want.name}: reading {', '.join(watched) or 'its definition'}"
    try:
        found = in_time(what, lambda _send: on_disk_to_json(_read_disk(watched, now)), _READ_S)
    except (HungError, BrokenError) as error:
        raise ToolError(str(error)) from error
    return on_disk_from_json(found)


def _read_disk(watched: Sequence[str], now: UnitState) -> OnDisk:
    definition = {path: _definition_digest(path) for path in now.files}
    gone = [os.path.dirname(path) for path in now.files if definition[path] == "absent"]
    return OnDisk(
        _path_digest(definition, now.files, gone),
        {path: digest_path(path) for path in watched},
    )


def _definition_digest(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as handle:
            text = normalise_definition(handle.read())
    except OSError:
        return "absent"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def digest_path(path: str) -> PathDigest:
    """Digests of a file, of all files below a directory, or of all that match a pattern.

    The time of change is the inode's (ctime): renaming a file into place moves it, and unlike the
    content's time it cannot be set back. A path that is absent has the time of its directory,
    which a removal moves.
    """
    pattern = glob.has_magic(path)
    roots = sorted(glob.glob(path)) if pattern else [path]
    present = any(os.path.lexists(root) for root in roots)
    names = [name for root in roots for name in _walk(root)]
    files = {name: _file_digest(name) for name in names if not os.path.isdir(name)}
    if not files and not pattern:
        files[path] = "empty directory" if present else "absent"
    # a file that is no longer there leaves its trace in the directory
    folder = [os.path.dirname(path.rstrip("/"))]
    if pattern:
        return _path_digest(files, names + folder, [])
    return _path_digest(files, names, [] if present else folder)


def _path_digest(
    files: Mapping[str, str], names: Sequence[str], around: Sequence[str]
) -> PathDigest:
    inodes = [(name, changed_ns(name)) for name in sorted(names)]
    folders = [(name, changed_ns(name)) for name in sorted(around)]
    changed = [when for _name, when in (*inodes, *folders)]
    return PathDigest(files, max(changed, default=0) / 1e9, _digest_of(inodes), _digest_of(folders))


def _digest_of(inodes: Sequence[tuple[str, int]]) -> str:
    """A short text for names and times; names of files may be no text at all."""
    text = json.dumps(inodes).encode("utf-8", "surrogateescape")
    return hashlib.sha256(text).hexdigest()[:32] if inodes else ""


def _walk(root: str) -> Iterator[str]:
    """A path and, when it is a directory, all that is below it."""
    if not os.path.lexists(root):
        return
    yield root
    if os.path.isdir(root):
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in sorted([*names, *folders]):
                yield os.path.join(folder, name)


def changed_ns(path: str) -> int:
    """When the inode of a path, or of what it links to, last changed; 0 when it is absent."""
    times = []
    for follow in (False, True):
        try:
            times.append(os.stat(path, follow_symlinks=follow).st_ctime_ns)
        except OSError:
            continue
    return max(times, default=0)


def _file_digest(path: str) -> str:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as handle:
            for block in iter(lambda: handle.read(1 << 20), b""):
                digest.update(block)
    except OSError as error:
        return f"unreadable: {error.strerror}"
    return digest.hexdigest()


def read_stamp(name: str) -> Stamp | None:
    """The stamp of a unit; None when there is none or it cannot be understood."""
    try:
        with open(_stamp_path(name), encoding="utf-8") as handle:
            return stamp_from_json(json.load(handle))
    except (OSError, ValueError):
        return None


def write_stamp(name: str, stamp: Stamp) -> None:
    """Write the stamp of a unit, atomically and for root alone. Raises OSError."""
    text = json.dumps(stamp_to_json(stamp), indent=1, sort_keys=True)
    write_atomic(_stamp_path(name), text, 0o600, make=0o700)


def remove_stamp(name: str) -> None:
    """Forget what a unit ran with. Raises OSError."""
    remove(_stamp_path(name))


def _stamp_path(name: str) -> str:
    return os.path.join(STAMP_FOLDER, name.replace("/", "-") + ".json")
