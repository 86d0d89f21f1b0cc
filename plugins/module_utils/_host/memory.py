# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The memory of the host."""

from __future__ import annotations

import re


def memory_mib(meminfo: str | None) -> int | None:
    """Return MemTotal of /proc/meminfo."""
    found = re.search(r"(?m)^MemTotal:\s+(\d+) kB", meminfo or "")
    return int(found.group(1)) // 1024 if found else None
