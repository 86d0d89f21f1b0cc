# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Daemons of the pods: each holds the lock on a file, with its pid, for as long as it lives."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import signal
import subprocess
from collections.abc import Sequence
from typing import IO


def spawn(
    argv: Sequence[str], lock: IO[str], output: pathlib.Path, env: dict[str, str] | None = None
) -> None:
    """Start a daemon that takes over a held lock, and note its pid in the file."""
    with output.open("w") as stream:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            pass_fds=[lock.fileno()],
            start_new_session=True,
            env=env,
            cwd="/",
        )
    lock.truncate(0)
    lock.write(str(process.pid))


def lives(path: pathlib.Path) -> bool:
    """Return whether the daemon of this lock lives."""
    if not path.exists():
        return False
    with path.open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def stop(path: pathlib.Path) -> bool:
    """Stop the daemon of this lock; return whether it lived."""
    if not path.exists():
        return False
    with path.open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with contextlib.suppress(ProcessLookupError, ValueError):
                # The lock is held, so the pid is that of the daemon.
                os.kill(int(lock.read()), signal.SIGTERM)
            fcntl.flock(lock, fcntl.LOCK_EX)
            return True
    return False
