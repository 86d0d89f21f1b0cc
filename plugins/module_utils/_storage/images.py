# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Images in a folder that users may write into, too: which of them are the site's own.

A file counts only if it is the site's beyond doubt: its owner, no link, one name, no other user
may write into it. What another user has put under the name of a declared image is refused, and
never taken over or removed: a person has to look at it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import stat
from typing import Any, Callable, Mapping

from .._core.failures import message_of
from .._core.files import (
    Folder,
    UnsafeError,
    make_temporary,
    open_folder,
    open_to_others,
    rename,
    runs,
    trusted,
)
from .._core.hang import LIMIT_S, in_time
from .._core.run import CommandRunner, ToolError

_PREFIX = ".enroot-import-"
_LEFT = re.compile(r"^\.enroot-import-(\d+)-")
_MODE = 0o644


def doubt(found: os.stat_result, owner: int) -> str:
    """Return why an entry is not an image of the site's; empty if it is."""
    if stat.S_ISLNK(found.st_mode):
        return f"is a link of user {found.st_uid}"
    if not stat.S_ISREG(found.st_mode):
        return f"is not a file (of user {found.st_uid})"
    if found.st_uid not in (0, owner):
        return f"belongs to user {found.st_uid}"
    if found.st_mode & 0o022:
        return f"has mode {stat.S_IMODE(found.st_mode):04o}, others may write into it"
    return f"has {found.st_nlink} names (hard links)" if found.st_nlink > 1 else ""


def look(folder: str, names: list[str], owner: int) -> tuple[list[str], list[str]]:
    """Return the images that are missing, and a line for each that is not the site's. OSError."""
    missing, refused = [], []
    with open_folder(folder) as open_one:
        found = open_one.status()
        if open_to_others(found) and not (trusted(found.st_uid) and found.st_mode & stat.S_ISVTX):
            mode = stat.S_IMODE(found.st_mode)
            raise UnsafeError(
                folder, f"has mode {mode:04o}, and users could exchange images in it: chmod +t"
            )
        _sweep(open_one)
        for name in names:
            if not open_one.exists(name):
                missing.append(name)
                continue
            why = doubt(open_one.lstat(name), owner)
            if why:
                refused.append(
                    f"{folder}/{name}: {why}, and is not taken for the site's image: find out who "
                    "made it and remove it; the next run imports the image"
                )
    return missing, refused


def _sweep(folder: Folder) -> None:
    """Remove what killed runs have left."""
    for name in folder.names():
        left = _LEFT.match(name)
        if left and not runs(int(left.group(1))):
            with contextlib.suppress(OSError):
                if trusted(folder.lstat(name).st_uid):
                    folder.remove_tree(name)


def begin(folder: str) -> str:
    """Make a folder beside the images that no other user can enter; returns its path. OSError."""
    return make_temporary(f"{_PREFIX}{os.getppid()}-", folder)


def put(folder: str, fresh: str, name: str, owner: int) -> str:
    """Put what was imported in place, by one rename; returns why not, or an empty text. OSError."""
    with open_folder(folder) as target, target.folder(os.path.basename(fresh)) as source:
        source.attributes(name, mode=_MODE)
        why = doubt(source.lstat(name), owner)
        if not why:
            rename(os.path.join(fresh, name), os.path.join(folder, name))
            target.sync()
        return why


def drop(folder: str, fresh: str) -> None:
    """Remove the folder of an import. OSError."""
    with open_folder(folder) as target:
        target.remove_tree(os.path.basename(fresh))


def number_of(name: str) -> int:
    """Return the number of a user; ToolError for an unknown one."""
    if name.isdigit():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise ToolError(f"owner: there is no user {name}") from None


def on_disk(folder: str, work: Callable[[], Any]) -> Any:
    """Do something in the folder in time; ToolError with one line for all that goes wrong."""
    try:
        return in_time(folder, lambda _send: work(), LIMIT_S)
    except OSError as error:
        place = "" if error.filename else f"{folder}: "
        raise ToolError(place + message_of(error)) from None


def bring(
    run: CommandRunner, folder: str, image: Mapping[str, str], owner: int, limit: float
) -> None:
    """Import one image; ToolError."""
    name = image["name"]
    fresh = on_disk(folder, lambda: begin(folder))
    try:
        arch = ["--arch", image["arch"]] if image.get("arch") else []
        target = os.path.join(fresh, name)
        result = run(["enroot", "import", *arch, "-o", target, image["uri"]], limit)
        if not result.ok:
            raise ToolError(f"{folder}/{name}: {result.describe()}")
        why = on_disk(folder, lambda: put(folder, fresh, name, owner))
        if why:
            raise ToolError(f"{folder}/{name}: what enroot has imported {why}")
    finally:
        on_disk(folder, lambda: drop(folder, fresh))


def bring_all(
    run: CommandRunner, params: Mapping[str, Any], check_mode: bool, imported: list[str]
) -> None:
    """Import what is missing; `imported` gets each name. Raises ToolError."""
    folder, images = params["folder"], params["images"]
    names = [one["name"] for one in images]
    bad = [name for name in names if "/" in name or name in ("", ".", "..")]
    if bad:
        raise ToolError(f"images: {bad[0]!r} is not a file name")
    owner = number_of(params["owner"])
    missing, refused = on_disk(folder, lambda: look(folder, names, owner))
    if refused:
        raise ToolError("; ".join(refused))
    for image in images:
        if image["name"] in missing:
            if not check_mode:
                bring(run, folder, image, owner, params["timeout_s"])
            imported.append(image["name"])
