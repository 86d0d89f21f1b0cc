# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work in forked processes with a time limit; nothing of it outlives the process that forked."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

_PR_SET_PDEATHSIG = 1
# How long a fork has to end what it started itself, before it is killed.
_GRACE_S = 5
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# The status of a fork whose work raised an exception.
BROKEN = 99


@dataclass(frozen=True)
class Ending:
    """How a fork ended: its status, or the signal that ended it, or by the time limit."""

    status: int = 0
    signal: int = 0
    by_limit: bool = False


def stop_on_signals() -> None:
    """Have TERM, INT and HUP raise KeyboardInterrupt here, so that `in_fork` ends its fork."""
    for number in _STOPS:
        signal.signal(number, signal.default_int_handler)


def _run(work: Callable[[], int], parent: int, *, forks: bool) -> None:
    status = BROKEN
    try:
        os.setpgid(0, 0)
        # What forks itself ends its own forks before it goes.
        death = signal.SIGTERM if forks else signal.SIGKILL
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, death, 0, 0, 0)
        if os.getppid() != parent:
            return
        if not forks:
            for number in _STOPS:
                signal.signal(number, signal.SIG_DFL)
        if not os.environ.get("MUTANTS_LOUD"):
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def in_fork(work: Callable[[], int], seconds: float, *, forks: bool = False) -> Ending:
    """Run `work` in a fork; it and all of its process group are gone when this returns or raises.

    `forks` is for work that calls in_fork itself.
    """
    parent = os.getpid()
    child = os.fork()
    if not child:
        _run(work, parent, forks=forks)
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    handle = os.pidfd_open(child)
    ended = False
    try:
        ended = _ends(handle, seconds)
    finally:
        if not ended and forks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
            _ends(handle, _GRACE_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        os.close(handle)
    if not ended:
        return Ending(by_limit=True)
    if os.WIFSIGNALED(status):
        return Ending(signal=os.WTERMSIG(status))
    return Ending(os.WEXITSTATUS(status))


def _ends(handle: int, seconds: float) -> bool:
    """Wait for the process of this descriptor to end; False after so many seconds."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if poll.poll(min(left, 3600) * 1000):
            return True
    return bool(poll.poll(0))
