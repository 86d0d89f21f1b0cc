# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Running jobs that a restored queue does not know: slurmctld ends them when it starts. Pure."""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping

from .._slurm.saved_queue import Queued

# What squeue prints as %T: a flag of the job if it has one, its state otherwise (Slurm's
# job_state_string). Jobs that have their nodes, and those that wait for some, or will.
_RUN = ("RUNNING", "SUSPENDED", "STOPPED", "CONFIGURING", "RESIZING", "SIGNALING")
_WAIT = (
    "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"
)  # fmt: skip
_ROW = re.compile(r"^\s*\d+\s+(\d+)\s", re.MULTILINE)
# So many numbers a second at most may have been given since the copy.
_RATE = 10
_MARGIN = 10_000


def parse_listpids(text: str) -> set[int]:
    """Return the jobs of `scontrol listpids` of a node."""
    return {int(number) for number in _ROW.findall(text)}


def compare(running: Mapping[str, Iterable[int]], queue: Iterable[Queued]) -> dict[str, Any]:
    """Return what becomes of the jobs: `ended` by slurmctld, and `over`, which run no more.

    running is node -> jobs that run there; queue is what the restored state has.
    """
    known = {one.number: one.state for one in queue}
    on_nodes: dict[int, list[str]] = {}
    for node, jobs in sorted(running.items()):
        for job in jobs:
            on_nodes.setdefault(int(job), []).append(node)
    ended = [
        f"{job} on {', '.join(nodes)}: {_end(known.get(job, ''))}"
        for job, nodes in sorted(on_nodes.items())
        if known.get(job) not in (*_RUN, "COMPLETING")
    ]
    gone = sorted(job for job, what in known.items() if what in _RUN and job not in on_nodes)
    return {
        "go_on": sorted(job for job in on_nodes if known.get(job) in _RUN),
        "ended": ended,
        "over": gone,
        "queued": sorted(job for job, what in known.items() if what in _WAIT),
        "highest": max([0, *on_nodes, *known]),
    }


def _end(state: str) -> str:
    """Return why a job ends that the copy has in this state; empty for one that it lacks."""
    if not state:
        return "unknown to the copy"
    return f"{state} in the copy" + (", starts again" if state in _WAIT else "")


def first_job(numbers: Iterable[int], age_s: float) -> int:
    """Return a number above all that were given: those seen, and those since the copy."""
    above = max([0, *numbers]) + max(_MARGIN, int(age_s * _RATE))
    return -(-above // 1000) * 1000
