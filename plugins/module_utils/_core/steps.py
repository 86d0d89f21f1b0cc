# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""The steps of Slurm's jobs that run on this host, by the titles of their processes."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Iterable

from .files import text_if_readable, trusted

# `slurmstepd infinity` belongs to slurmd itself and is not a job.
_STEP = re.compile(r"^slurmstepd: \[([^\]]+)\]")
_NAME = re.compile(r"^Name:\t(?!slurmstepd$)", re.M)
_REAL_USER = re.compile(r"^Uid:\t(\d+)\t", re.M)


def running_steps(titles: Iterable[str]) -> list[str]:
    """Return the Slurm steps among process titles, such as `4711.batch`."""
    return sorted({match.group(1) for title in titles for match in [_STEP.match(title)] if match})


def titles(proc: str = "/proc") -> list[str]:
    """Return the titles of root's slurmstepd: a user may give its own process any title."""
    with contextlib.suppress(OSError):
        folders = [os.path.join(proc, name) for name in os.listdir(proc) if name.isdigit()]
        texts = (text_if_readable(f"{one}/cmdline") or "" for one in folders if _may_be_step(one))
        return [text.replace("\0", " ") for text in texts]
    return []


def _may_be_step(folder: str) -> bool:
    """Return whether root, or the caller, has started a slurmstepd, or that is not known.

    By its real user: slurmstepd acts as the user of the job at times, and what is set-uid as root.
    The title of a process that hangs in the kernel may not come back, its status does.
    """
    status = text_if_readable(f"{folder}/status") or ""
    found = _REAL_USER.search(status)
    return not _NAME.search(status) and (found is None or trusted(int(found.group(1))))
