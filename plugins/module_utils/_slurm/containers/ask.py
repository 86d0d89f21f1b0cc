# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asks each node by a job in an image; what it prints is the answer."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ..._core.nodeset import fold
from ..._core.record import NOT_MEASURED, Record
from ..._core.run import ENDED, MISSING, CommandRunner
from .job import SCRIPT, answer, can_run, judge_job, ready, single_out

_TIME_TO_ANSWER_S = 20


def command(options: Mapping[str, Any], nodes: Sequence[str]) -> list[str]:
    """Return the command line of the job on these nodes."""
    srun = [
        "srun",
        f"--nodes={len(nodes)}",
        f"--nodelist={fold(nodes)}",
        "--ntasks-per-node=1",
        "--time=5",
        f"--immediate={options['wait_s']}",
        "--job-name=baremetal-dgx-containers",
        "--chdir=/",
        *options["arguments"],
        f"--container-image={options['image']}",
        "sh",
        "-c",
        SCRIPT.format(marker=options["marker"]),
    ]
    if options["user"] == "root":
        return srun
    return ["runuser", "-u", options["user"], "--", *srun]


def run_job(run: CommandRunner, options: Mapping[str, Any], nodes: Sequence[str]) -> list[Record]:
    """Return the answers of these nodes, the silent ones asked a second time."""
    result = run(command(options, nodes), timeout_s=options["timeout_s"])
    ended = result.outcome == ENDED
    answers = dict(zip(nodes, judge_job(result.text, nodes, options["token"], ended)))
    silent = single_out(nodes, result.text, options["alone"])
    for node in silent:
        alone = run(command(options, [node]), timeout_s=options["timeout_s"])
        ended = alone.outcome == ENDED
        answers[node] = judge_job(alone.text, [node], options["token"], ended)[0]
    return list(answers.values())


def ask_nodes(run: CommandRunner, options: Mapping[str, Any]) -> list[Record]:
    """Return the answer of each node."""
    names = options["nodes"]
    listed = run(
        ["sinfo", "--Node", "--noheader", "--format=%N %T", "--nodes", fold(names)],
        timeout_s=_TIME_TO_ANSWER_S,
    )
    if listed.outcome == MISSING or not listed.ok:
        return [answer(n, NOT_MEASURED, listed.describe(1)) for n in names]
    states = ready(listed.out)
    able = [name for name in names if can_run(states.get(name, ""))]
    answers = [
        answer(
            name,
            NOT_MEASURED,
            f"the node is {states.get(name) or 'unknown to Slurm'}",
        )
        for name in names
        if name not in able
    ]
    return answers + (run_job(run, options, able) if able else [])
