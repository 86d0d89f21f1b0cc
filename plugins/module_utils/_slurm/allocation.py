# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A job that holds nodes while steps are run in it."""

from __future__ import annotations

import re
from typing import Sequence

from .._core.run import CommandRunner, ToolError

_GRANTED = re.compile(r"Granted job allocation (\d+)")


def allocate(
    run: CommandRunner,
    nodes: Sequence[str],
    limit_s: float,
    wait_s: int,
    gres: str = "",
    options: Sequence[str] = (),
) -> str:
    """Return the number of a job that has these nodes; ToolError if Slurm does not give them.

    The job ends by itself after limit_s, so that nothing is held when nobody gives it back.
    """
    minutes = max(1, -(-int(limit_s) // 60))
    words = ["salloc", "--no-shell", "--exclusive", "--mem=0", "--job-name=fabric_pairs"]
    words += [f"--nodes={len(nodes)}", "--nodelist=" + ",".join(nodes), f"--time={minutes}"]
    words += [f"--immediate={wait_s}"]
    if gres:
        words.append(f"--gres={gres}")
    result = run([*words, *options], timeout_s=wait_s + 30)
    granted = _GRANTED.search(result.text)
    if not result.ok or not granted:
        raise ToolError(f"Slurm does not give the {len(nodes)} nodes: {result.describe(2)}")
    return granted[1]


def release(run: CommandRunner, job: str) -> None:
    """Give the nodes back; the job's own time limit does it where this fails."""
    run(["scancel", job], timeout_s=30)
