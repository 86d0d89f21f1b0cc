# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The control machine's folder comes back: what it lacks, and no more."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any

from .._core.files import copy_file, make_folder, open_folder, remove_tree, rename
from .._core.run import CommandRunner, ToolError

# It is there until all is in place; restore_cluster and back_up look for it.
_ASIDE = ".restoring"
_LIMIT_S = 3600


def unpack(run: CommandRunner, archive: str, folder: str, check: bool) -> dict[str, Any]:
    """Put what is missing from an archive into a folder. ToolError, OSError.

    It is unpacked aside, and each file is moved: a run that was killed leaves no half of one.
    """
    if check:
        return {"changed": True}
    aside = os.path.join(folder, _ASIDE)
    remove_tree(aside)
    make_folder(aside, 0o700)
    done = run(["tar", "-xzf", archive, "-C", aside, f"--exclude=./{_ASIDE}"], _LIMIT_S)
    if not done.ok:
        raise ToolError(f"{archive}: {done.describe(2)}")
    changed = False
    for above, folders, files in os.walk(aside):
        target = os.path.normpath(os.path.join(folder, os.path.relpath(above, aside)))
        _make_like(above, target)
        links = [name for name in folders if os.path.islink(os.path.join(above, name))]
        for name in (*files, *links):
            if not os.path.lexists(os.path.join(target, name)):
                _move(above, target, name)
                changed = True
    remove_tree(aside)
    return {"changed": changed}


def _make_like(copied: str, target: str) -> None:
    """Make a folder that is missing, with the mode and, for root, the owner of its copy."""
    found, is_there = os.stat(copied), os.path.isdir(target)
    with open_folder(target, stat.S_IMODE(found.st_mode)) as folder:
        if not is_there and os.geteuid() == 0:
            folder.set_attributes(owner=found.st_uid, group=found.st_gid)


def _move(above: str, target: str, name: str) -> None:
    """Move a file or a link, on another file system by a copy that is whole."""
    source = os.path.join(above, name)
    try:
        rename(source, os.path.join(target, name))
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        if os.path.islink(source):
            with open_folder(target) as folder:
                folder.link(name, os.readlink(source))
        else:
            copy_file(source, os.path.join(target, name))
