# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Whether the GPUs of this host are under a test of this collection: no job has left that behind.

The diagnostics of DCGM, NCCL and the burn-in hold a lock meanwhile, by each engine and by hand,
which the kernel takes from the dead. Several may hold it at a time.
"""

from __future__ import annotations

import contextlib
from typing import Iterator

from .._core.lock import BusyError, host_lock

_LOCK = "gpu_load"
# Who asks holds it for a moment, and others may ask then.
_WAIT_S, _ASK_S = 5.0, 1.0


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Show that the GPUs are under a test; a host that takes no lock is tested all the same."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError, BusyError):
            held.enter_context(host_lock(_LOCK, _WAIT_S, shared=True))
        yield


def is_loaded() -> bool:
    """Return whether a test runs on the GPUs."""
    try:
        with host_lock(_LOCK, _ASK_S):
            return False
    except BusyError:
        return True
    except OSError:
        return False
