# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Folders of a CephFS, made through libcephfs, with their owner, mode, quotas and layout."""

from __future__ import annotations

import contextlib
import grp
import importlib
import pwd
import stat
from typing import Any, Sequence

from .cephfs import LAYOUT_PREFIX, LAYOUTS, QUOTAS, Folder, changes, describe

_NEW_MODE = 0o755


def identity(name: str | None, group: bool) -> int:
    """Return the number of a user or group, -1 for none; LookupError for an unknown one."""
    if name is None:
        return -1
    if name.isdigit():
        return int(name)
    return grp.getgrnam(name).gr_gid if group else pwd.getpwnam(name).pw_uid


def find(fs: Any, path: str) -> Folder:
    """Return a folder as it is."""
    missing = type(fs).missing
    try:
        seen = fs.stat(path)
    except missing:
        return Folder(exists=False)
    if not stat.S_ISDIR(seen.st_mode):
        raise ValueError(f"{path} is there, and no folder")
    attributes = {}
    for name in (*QUOTAS.values(), *(LAYOUT_PREFIX + key for key in LAYOUTS)):
        try:
            attributes[name] = fs.getxattr(path, name).decode()
        except type(fs).unset:
            continue
    return Folder(True, stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid, attributes)


def apply(fs: Any, path: str, todo: dict[str, Any]) -> None:
    """Make a folder as it must be."""
    if "make" in todo:
        # Another administrator's host makes it at the same moment.
        with contextlib.suppress(type(fs).there):
            fs.mkdirs(path, todo.get("mode", _NEW_MODE))
    # After the owner, since a change of owner clears the bits beyond permissions.
    if "owner" in todo:
        fs.chown(path, *todo["owner"])
    if "mode" in todo:
        fs.chmod(path, todo["mode"])
    for name, value in todo.get("attributes", {}).items():
        fs.setxattr(path, name, value.encode(), 0)


def connect(client: str, name: str) -> Any:
    """Mount the root of a file system through libcephfs; ImportError without its binding."""
    cephfs: Any = importlib.import_module("cephfs")

    class Tree(cephfs.LibCephFS):
        """Knows which errors mean that something is not there."""

        missing = cephfs.ObjectNotFound
        there = cephfs.ObjectExists
        unset = (cephfs.NoData, cephfs.ObjectNotFound)
        error = cephfs.Error

    fs = Tree(auth_id=client, conffile="/etc/ceph/ceph.conf")
    fs.conf_set("client_mount_timeout", "30")
    fs.mount(mount_root=b"/", filesystem_name=name.encode())
    return fs


def bring_about(
    client: str, name: str, folders: Sequence[dict[str, Any]], check_mode: bool
) -> dict[str, Any]:
    """Make the folders; return the steps, and `wrong` if something went wrong."""
    try:
        fs = connect(client, name)
    except ImportError:
        return {"wrong": "there is no Python binding of libcephfs: install python3-cephfs"}
    steps = []
    try:
        for folder in folders:
            path = folder["path"]
            uid, gid = identity(folder["owner"], False), identity(folder["group"], True)
            todo = changes(folder, find(fs, path), uid, gid)
            if todo:
                steps.append(describe(path, todo))
                if not check_mode:
                    apply(fs, path, todo)
    except (ValueError, LookupError, OSError, type(fs).error) as error:
        return {"wrong": str(error), "steps": steps}
    finally:
        fs.shutdown()
    return {"steps": steps}
