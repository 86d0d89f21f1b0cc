# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Whether Slurm may start a job on a node, asked before what would kill one."""

from __future__ import annotations

from .._core.run import ENDED, CommandRunner
from .hold import ask


def in_service(run: CommandRunner, node: str) -> str:
    """Return why a job may start on a node, or that it is not known; empty if none can."""
    seen = ask(run, node)
    if seen.problem:
        # Controllers and login hosts have scontrol, too, and run no jobs; nor does an image.
        daemon = run(["pgrep", "-x", "slurmd"])
        if daemon.outcome == ENDED and daemon.rc == 1:
            return ""
        return f"Slurm does not say whether a job may start here ({seen.problem})"
    if seen.node is None or not (seen.node.usable or seen.node.busy):
        return ""
    return f"{seen.node.name} is in service in Slurm ({seen.node.state})"
