# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A folder for the files of one run, which goes with the run however that ends."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from typing import Iterator

from .._core.files import make_temporary, open_folder, remove_tree
from .._core.hang import BrokenError, HungError, in_time

PREFIX = ".fio_check-"
# A file of many GiB takes a while to be removed.
REMOVE_S = 120.0
_MAKE_S = 20.0


def remove_old(folder: str) -> list[str]:
    """Remove what runs left behind that were killed by force; returns their folders."""
    removed = []
    with open_folder(folder) as parent:
        for name in parent.names():
            found = parent.lstat(name)
            # Scratch may be writable for all: what another user calls so is not ours.
            mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            if name.startswith(PREFIX) and mine:
                parent.remove_tree(name)
                removed.append(os.path.join(folder, name))
    return removed


@contextlib.contextmanager
def own_folder(parent: str) -> Iterator[str]:
    """Make a folder and remove it at the end, also when this process is killed.

    A shell waits for the end of a pipe that only this process holds open. However it ends, the
    kernel closes the pipe, and the shell removes the folder. UnsafeError if another user could
    exchange a folder in `parent`; HungError if a mount keeps the making waiting.
    """
    folder = in_time(parent, lambda _send: make_temporary(PREFIX, parent), _MAKE_S)
    script = 'cat >/dev/null; rm -rf -- "$1"'
    keeper = subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    try:
        yield folder
    finally:
        # The shell goes on with it, and nobody waits for the shell for long.
        with contextlib.suppress(OSError, HungError, BrokenError):
            in_time(folder, lambda _send: remove_tree(folder), REMOVE_S)
        if keeper.stdin is not None:
            keeper.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            keeper.wait(30)
