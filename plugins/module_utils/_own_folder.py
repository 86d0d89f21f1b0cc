# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A folder for the files of one run, which goes with the run however that ends."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import subprocess
import tempfile
from typing import Iterator

PREFIX = ".fio_check-"


def remove_old(folder: str) -> list[str]:
    """Remove what runs left behind that were killed by force; returns their folders."""
    removed = []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), PREFIX + "*"))):
        found = os.lstat(path)
        # Scratch may be writable for all: what another user calls so is not ours.
        if os.path.isdir(path) and not os.path.islink(path) and found.st_uid == os.getuid():
            shutil.rmtree(path)
            removed.append(path)
    return removed


@contextlib.contextmanager
def own_folder(parent: str) -> Iterator[str]:
    """Make a folder and remove it at the end, also when this process is killed.

    A shell waits for the end of a pipe that only this process holds open. However it ends, the
    kernel closes the pipe, and the shell removes the folder.
    """
    folder = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
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
        shutil.rmtree(folder, ignore_errors=True)
        if keeper.stdin is not None:
            keeper.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            keeper.wait(30)
