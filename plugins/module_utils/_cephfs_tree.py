# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Folders of a CephFS with their quotas and layouts: wanted against found. Pure.

Names of the attributes: Ceph's documentation, cephfs/quota and cephfs/file-layouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

QUOTAS = {"max_bytes": "ceph.quota.max_bytes", "max_files": "ceph.quota.max_files"}
# In the order in which they must be set: the pool first, then what must divide the object size.
LAYOUTS = ("pool", "object_size", "stripe_unit", "stripe_count")
LAYOUT_PREFIX = "ceph.dir.layout."


@dataclass(frozen=True)
class Folder:
    """A folder as found; `attributes` by full name, those that are not set are missing."""

    exists: bool
    mode: int = 0
    uid: int = -1
    gid: int = -1
    attributes: Mapping[str, str] | None = None


def wanted_attributes(folder: Mapping[str, Any]) -> dict[str, str]:
    """Return attribute -> value of what is declared; a quota of 0 is none."""
    found = {
        name: str(int(folder[key])) for key, name in QUOTAS.items() if folder.get(key) is not None
    }
    layout = folder.get("layout") or {}
    found.update(
        {LAYOUT_PREFIX + key: str(layout[key]) for key in LAYOUTS if layout.get(key) is not None}
    )
    return found


def changes(folder: Mapping[str, Any], found: Folder, uid: int, gid: int) -> dict[str, Any]:
    """Return what has to be done: make, mode, owner, attributes; empty when it is as declared.

    uid and gid are -1 where nothing is declared.
    """
    todo: dict[str, Any] = {}
    if not found.exists:
        todo["make"] = True
    mode = folder.get("mode")
    if mode is not None and (not found.exists or int(str(mode), 8) != found.mode):
        todo["mode"] = int(str(mode), 8)
    wanted = (uid if uid >= 0 else found.uid, gid if gid >= 0 else found.gid)
    if (uid >= 0 or gid >= 0) and (not found.exists or wanted != (found.uid, found.gid)):
        todo["owner"] = [uid, gid]
    there = found.attributes or {}
    wrong = {
        name: value
        for name, value in wanted_attributes(folder).items()
        # No quota at all is told as 0, or as no such attribute.
        if there.get(name, "0" if name in QUOTAS.values() else None) != value
    }
    if wrong:
        todo["attributes"] = wrong
    return todo


def told(path: str, todo: Mapping[str, Any]) -> str:
    """Return what is done to a folder, in a line."""
    said = []
    if "make" in todo:
        said.append("made")
    if "mode" in todo:
        said.append(f"mode {todo['mode']:04o}")
    if "owner" in todo:
        said.append("owner {}:{}".format(*todo["owner"]))
    said += [f"{name}={value}" for name, value in todo.get("attributes", {}).items()]
    return f"{path}: {', '.join(said)}"
