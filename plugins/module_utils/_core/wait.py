# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Trying again until time is up."""

from __future__ import annotations

import time
from typing import Iterator


def attempts(limit_s: float, pause_s: float) -> Iterator[float]:
    """Yield the seconds left, at once and after each pause; the last time when none are left.

    A caller that has what it wants breaks out of the loop; its `else` is for when the time is up.
    """
    until = time.monotonic() + limit_s
    left = max(0.0, limit_s)
    yield left
    while left > 0:
        time.sleep(min(pause_s, left))
        left = max(0.0, until - time.monotonic())
        yield left
