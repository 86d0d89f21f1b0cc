# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Room on a disk: what is restored there may be as large as all time series."""

from __future__ import annotations

import os

from .repository import UnansweredError

# Of the free room; Prometheus, slurmctld and the system may write to the same disk.
_SHARE = 0.9


def require(folder: str, size: int, what: str) -> None:
    """Raise UnansweredError if so many bytes leave too little of the folder's disk. OSError."""
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if size > free * _SHARE:
        raise UnansweredError(
            f"{what} takes {size / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free on the disk of "
            f"{folder}; give it more room"
        )
