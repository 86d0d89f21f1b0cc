# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""One module of a kind at a time on a host.

When ansible-playbook is killed, the module it has started on a host goes on. The next run must not
overtake it: else the old run's files could replace those of the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from typing import Iterator

_POLL_S = 0.2


class BusyError(Exception):
    """Another run still holds the lock; `holder` is its process number, as far as known."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


@contextlib.contextmanager
def host_lock(name: str, wait_s: float) -> Iterator[None]:
    """Hold the lock of this name. Raises BusyError after wait_s seconds, OSError.

    The kernel lets go of it when the process ends, however it ends.
    """
    path = os.path.join(_folder(), f"{name}.lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    holder = os.read(descriptor, 20).decode("ascii", "replace").strip()
                    raise BusyError(holder or "unknown") from None
            time.sleep(_POLL_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        yield
    finally:
        os.close(descriptor)


def _folder() -> str:
    """A folder that nobody else can put anything into."""
    base = "/run" if os.access("/run", os.W_OK) else tempfile.gettempdir()
    uid = os.getuid()
    folder = os.path.join(base, "baremetal-dgx" if uid == 0 else f"baremetal-dgx-{uid}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != uid or status.st_mode & 0o022:
        raise OSError(1, "belongs to somebody else, or others may write into it", folder)
    return folder
