# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asks a mount, in a child with a time limit: writes a canary, reads it back, reads the peers'."""

from __future__ import annotations

import os
import time
from typing import Any, Iterable, Mapping

from .._core.child import limited
from .._core.files import NO_OTHER, UnsafeError, open_folder
from .._core.mounts import table, waiting
from .._core.record import FAIL, Record, stamped, utc_text
from .._core.wait import attempts
from .canary import (
    FOLDER,
    Canary,
    judge_mounted,
    judge_peers,
    judge_written,
    token_of,
    token_text,
)
from .mounts.read import device_of, read

# A peer's file may be behind a lease that its client gives back a moment later.
_SEEN_S = 10
_PAUSE_S = 0.5
# A token has some 5 kB; what is larger was not written by a canary.
_MOST_BYTES = 1 << 16


def write_token(path: str, node: str, run: str) -> dict[str, Any]:
    """Write, sync and read back; the answer has same and took_s, or error and step."""
    text = token_text(node, run)
    begun, step = time.monotonic(), "make the canary's folder"
    try:
        # All nodes do this at once: another may have made it since it was read. Users may have
        # made it, too, before any node did: then nothing is written.
        with open_folder(os.path.join(path, FOLDER), 0o700, NO_OTHER) as folder:
            step = "write and sync"
            fresh = folder.prepare(node, text)
            step = "rename"
            folder.rename(fresh, node)
            took, step = time.monotonic() - begun, "read back"
            return {"same": folder.read(node, _MOST_BYTES) == text.encode(), "took_s": took}
    except OSError as error:
        return _error(error, step)


def _error(error: OSError, step: str) -> dict[str, Any]:
    reported = {"error": error.errno or 5, "step": step}
    return {**reported, "unsafe": str(error)} if isinstance(error, UnsafeError) else reported


def list_folder(path: str) -> dict[str, Any]:
    """Read a folder's first entry; the answer has took_s, or error and step."""
    begun = time.monotonic()
    try:
        with os.scandir(path) as entries:
            next(entries, None)
    except OSError as error:
        return {"error": error.errno or 5, "step": "read the folder"}
    return {"took_s": time.monotonic() - begun}


def read_tokens(path: str, peers: tuple[str, ...], run: str) -> dict[str, Any]:
    """Read what the peers wrote; waits a little for those that are not there yet."""
    found: dict[str, Any] = {}
    for _left in attempts(_SEEN_S, _PAUSE_S):
        for peer in peers:
            if token_of(found.get(peer, {}).get("text", "")) == (peer, run):
                continue
            try:
                # Listed first: a name that was missing a moment ago is remembered as missing.
                with open_folder(os.path.join(path, FOLDER), deny=NO_OTHER) as folder:
                    folder.names()
                    text = folder.read(peer, _MOST_BYTES).decode("utf-8", "replace")
                found[peer] = {"text": text}
            except OSError as error:
                found[peer] = _error(error, "read")
        seen = [token_of(one.get("text", "")) == (peer, run) for peer, one in found.items()]
        if all(seen):
            break
    return found


def ask_mount(canary: Canary, node: str, stage: str, run: str, check: bool) -> list[Record]:
    """Return the records of one mount."""
    mountinfo = read("/proc/self/mountinfo")
    if canary.path in waiting(mountinfo) and not check:
        # The first access mounts it.
        limited(lambda: os.listdir(canary.path) and 0, canary.limit_s)
        mountinfo = read("/proc/self/mountinfo")
    live = table(mountinfo).get(canary.path)
    mounted = judge_mounted(node, canary, live, device_of(canary.what))
    # Never below a path where nothing is mounted: the canary would write to the disk of the system.
    if mounted.status == FAIL or check:
        return [mounted]
    if stage == "peers":
        limit_s = canary.limit_s + _SEEN_S
        outcome = limited(lambda: read_tokens(canary.path, canary.peers, run), limit_s)
        return list(judge_peers(node, canary, run, outcome))
    if canary.write:
        outcome = limited(lambda: write_token(canary.path, node, run), canary.limit_s)
    else:
        outcome = limited(lambda: list_folder(canary.path), canary.limit_s)
    return [mounted, *judge_written(node, canary, outcome)]


def ask_mounts(
    mounts: Iterable[Mapping[str, Any]], node: str, stage: str, run: str, check: bool
) -> list[Record]:
    """Return the records of these mounts, as mount_check takes them; `check` only looks."""
    records: list[Record] = []
    for data in mounts:
        path = data["path"].rstrip("/") or "/"
        canary = Canary(**{**data, "path": path, "peers": tuple(data["peers"])})
        if stage == "peers" and not canary.peers:
            continue
        begun = time.monotonic()
        asked = ask_mount(canary, node, stage, run, check)
        records += stamped(asked, utc_text(), time.monotonic() - begun)
    return records
