# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Time series of Prometheus: the finished blocks of its folder, without a question to it.

A block is a folder with a ULID for its name, which Prometheus makes under another name, renames,
and never changes; it renames one again before it removes it. Samples of the last hours, up to
three, are in its log and its memory, and in no block. To ask Prometheus for a snapshot of these
would need its admin API, by which anyone who reaches it may delete series.

The folder belongs to Prometheus' user, so that nothing in it is followed, and a block that
vanishes while it is taken is none.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from dataclasses import dataclass
from typing import Any, Mapping

from .._core.files import (
    Folder,
    give_tree,
    json_if_readable,
    make_folder,
    open_folder,
    write_atomic,
)
from .._core.run import ToolError
from .._core.wait import attempts
from . import manifest, work

# Crockford's letters, of which each ULID has 26.
_NAME = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}\Z")
_META, _INDEX, _TOMBSTONES, _CHUNKS = "meta.json", "index", "tombstones", "chunks"
# Prometheus removes what has this ending when it starts.
_UNDONE = ".tmp-for-creation"
# The first bytes of these files (tsdb/docs/format of Prometheus).
_INDEX_BEGINS, _CHUNKS_BEGIN = bytes.fromhex("baaad700"), bytes.fromhex("85bd40dd")
_PAUSE_S = 1.0


@dataclass(frozen=True)
class Block:
    """What meta.json says: Unix time in milliseconds, `until_ms` excluded, and two counts."""

    from_ms: int
    until_ms: int
    series: int
    samples: int


def parse_meta(data: bytes, name: str) -> Block:
    """Return what a meta.json says; ValueError for one that is torn, or another block's. Pure."""
    try:
        found = json.loads(data)
        if found["ulid"] != name:
            raise ValueError(f"it is that of {found['ulid']}")
        stats = found["stats"]
        numbers = [found["minTime"], found["maxTime"], stats["numSeries"], stats["numSamples"]]
        return Block(*map(int, numbers))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name}/{_META}: not whole: {error!r}") from error


def whole(folder: Folder) -> dict[str, Block]:
    """Return the finished blocks of a folder by name. OSError, UnsafeError for a link."""
    found = {}
    for name in filter(_NAME.match, folder.names()):
        with contextlib.suppress(FileNotFoundError, ValueError), folder.folder(name) as block:
            one = parse_meta(block.read(_META), name)
            block.lstat(_INDEX)
            block.lstat(_CHUNKS)
            found[name] = one
    return found


def is_block(name: str) -> bool:
    """Return whether a folder of this name is a block."""
    return bool(_NAME.match(name))


def is_there(path: str) -> bool:
    """Return whether a folder has blocks, whole or not. OSError."""
    try:
        with open_folder(path) as folder:
            return any(map(_NAME.match, folder.names()))
    except FileNotFoundError:
        return False


def is_linked(source: str, target: str) -> bool:
    """Return whether blocks of a folder are the same files in the other one. OSError."""
    return not os.path.isdir(source) or os.stat(source).st_dev == os.stat(target).st_dev


def _signs(block: Folder) -> dict[str, list[int]]:
    """Return size and time of each file of a block, which a copy of it has, too. OSError."""
    names = [name for name in (_META, _INDEX, _TOMBSTONES) if block.exists(name)]
    found = {name: block.lstat(name) for name in names}
    with block.folder(_CHUNKS) as chunks:
        found.update({f"{_CHUNKS}/{name}": chunks.lstat(name) for name in chunks.names()})
    return {path: [one.st_size, one.st_mtime_ns] for path, one in found.items()}


def _is_same(block: Folder, into: Folder, name: str) -> bool:
    """Return whether a folder has this block already. OSError."""
    try:
        with into.folder(name) as old:
            return _signs(old) == _signs(block)
    except FileNotFoundError:
        return False


def _take(source: Folder, into: Folder, name: str, owner: int = -1, group: int = -1) -> None:
    """Have a block of another folder here, too, if it is still there afterwards. OSError."""
    fresh = name + _UNDONE
    into.remove_tree(fresh)
    with source.folder(name) as block:
        if _is_same(block, into, name):
            return
        with into.folder(fresh, 0o700) as made, made.folder(_CHUNKS, 0o700) as chunks:
            with block.folder(_CHUNKS) as old:
                _fill(chunks, old, old.names(), owner, group)
            names = [one for one in (_META, _INDEX, _TOMBSTONES) if block.exists(one)]
            _fill(made, block, names, owner, group)
    into.remove_tree(name)
    into.rename(fresh, name)


def _fill(made: Folder, old: Folder, names: list[str], owner: int, group: int) -> None:
    for name in names:
        made.take(old, name)
        if owner >= 0:
            made.attributes(name, 0o644, owner, group)
    if owner >= 0:
        made.sync()
        made.set_attributes(0o755, owner, group)


def _require_room(source: Folder, into: Folder, target: str) -> None:
    """Raise ToolError where what is copied from another disk leaves too little of this one."""
    size = 0
    for name in whole(source):
        with contextlib.suppress(FileNotFoundError), source.folder(name) as block:
            if not _is_same(block, into, name):
                size += sum(one[0] for one in _signs(block).values())
    work.require_room(target, size, f"the blocks of {source.path}, which is on another disk,")


def copy(source: str, target: str, limit_s: float) -> dict[str, Block]:
    """Have all finished blocks of a folder in another one; return them. ToolError, OSError.

    On the same disk they are the same files, otherwise copies, of which only those that are
    missing are made. A Prometheus that was not started has no block. Blocks go when others take
    their place, so that they are looked at again until none has gone in the meantime.
    """
    make_folder(target, 0o700)
    if not os.path.isdir(source):
        return {}
    with open_folder(source) as data, open_folder(target) as into:
        if not is_linked(source, target):
            _require_room(data, into, target)
        for _left in attempts(limit_s, _PAUSE_S):
            wanted = whole(data)
            for name in set(into.names()) - set(wanted):
                into.remove_tree(name)
            for name in wanted:
                with contextlib.suppress(FileNotFoundError):
                    _take(data, into, name)
            # A block that is removed is renamed first: what has its name here was taken whole.
            if set(into.names()) == set(whole(data)):
                return whole(into)
    raise ToolError(f"{source}: blocks went all the time for {limit_s:.0f} s, and were not copied")


def digests(folder: str, memory: str, limit_s: float) -> dict[str, str]:
    """Return path -> SHA-256 of all files below a folder. ToolError, OSError.

    A file that has size and time of one of the last copy is not read again; restic takes it for
    the same as well. What is read stays in the file `memory`, also when the time is up.
    """
    known = json_if_readable(memory)
    paths = sorted(manifest.paths(folder))
    found = {path: known[path] for path in paths if isinstance(known, dict) and path in known}
    until = time.monotonic() + limit_s
    try:
        for path in paths:
            status = os.lstat(os.path.join(folder, path))
            signs = [status.st_size, status.st_mtime_ns]
            if found.get(path, [])[:2] == signs:
                continue
            if time.monotonic() > until:
                raise ToolError(
                    f"{path}: not read after {limit_s:.0f} s; the next run goes on, and "
                    "backup_limit_s gives it more time"
                )
            found[path] = [*signs, manifest.digest(os.path.join(folder, path))]
    finally:
        write_atomic(memory, json.dumps(found) + "\n", 0o600)
    return {path: one[2] for path, one in found.items()}


def facts(found: Mapping[str, Block]) -> dict[str, Any]:
    """Return what the manifest holds of blocks; Unix time in seconds. Pure."""
    return {
        "blocks": {name: one.samples for name, one in sorted(found.items())},
        "series": max((one.series for one in found.values()), default=0),
        "from_s": min((one.from_ms for one in found.values()), default=0) // 1000,
        "until_s": max((one.until_ms for one in found.values()), default=0) // 1000,
    }


def broken(folder: str, wanted: Mapping[str, int]) -> list[str]:
    """Return each block of a copy that is not that of the manifest, or is not whole. OSError."""
    wrong = []
    with open_folder(folder) as data:
        found = whole(data)
        for name in sorted({*wanted, *found}):
            if name not in found or found[name].samples != wanted.get(name):
                has = found[name].samples if name in found else "no"
                wrong.append(f"{name}: {has} of {wanted.get(name, 'no')} samples")
                continue
            with data.folder(name) as block, block.folder(_CHUNKS) as chunks:
                begins = dict.fromkeys(chunks.names(), (chunks, _CHUNKS_BEGIN))
                begins[_INDEX] = (block, _INDEX_BEGINS)
                wrong += [
                    f"{name}: {one} is none of Prometheus"
                    for one, (where, begin) in begins.items()
                    if where.read_first(one, len(begin)) != begin
                ]
    return wrong


def put(source: str, target: str, owner: int, group: int) -> None:
    """Put blocks into the folder of a Prometheus that is stopped, `owner`'s. OSError.

    A run that was killed is done again.
    """
    give_tree(source, owner, group, 0o700)
    with open_folder(source) as copied, open_folder(target, 0o750) as into:
        for name in whole(copied):
            _take(copied, into, name, owner, group)
        into.set_attributes(0o750, owner, group)
        into.sync()
