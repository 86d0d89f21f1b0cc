# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Runs a job that asks for an image, and judges from its text whether it ran in it.

srun returns 0 when the job ran on the bare host (measured with Slurm 22.05.8 and 24.11.5), and
with 22.05.8 when a broken plug-in kept it from starting, so that the return code is never asked.
"""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

from ..._core.nodeset import fold
from ..._core.record import FAIL, NOT_MEASURED, PASS, Record
from ..._core.run import ENDED, MISSING, CommandRunner

CHECK = "slurm.container"

# A file of the image holds the token. On the bare host there is none, and the line ends early.
SCRIPT = (
    'token=none; read -r token < {marker} || :; echo "container-job: $SLURMD_NODENAME in=$token"'
)
_SAID = re.compile(r"^container-job: (\S+) in=(\S*)$", re.MULTILINE)
# Of these no job was made, which shows nothing about containers.
_NO_JOB = (
    r"Requested nodes are busy|Unable to allocate resources|Requested node configuration|"
    r"Unable to contact slurm controller|Socket timed out|Invalid account|Invalid partition|"
    r"Job violates|AssocGrp|QOS|Requested time limit|Unable to create job|not available|Prolog hung"
)
# A plug-in that cannot be loaded or refuses its options, on the node or here.
_PLUGIN = r"[Pp]lug-?in initialization failed|Incompatible Slurm plugin|spank: .*(fail|error)"
# With PrologFlags=Contain the step that holds the job's cgroup meets the plug-in first (24.11.5).
_NO_STEP = r"Something is wrong with the boot of the nodes|are still not ready"
_UNKNOWN_OPTION = r"unrecognized option '?--container"
_TIME_TO_ANSWER_S = 20
_IDLE = ("idle", "mixed")


def answer(node: str, status: str, text: str) -> Record:
    """Return what is known of one node."""
    return Record(CHECK, f"node:{node}", status, text)


def ready(text: str) -> dict[str, str]:
    """Return node → state out of `sinfo --Node --noheader --format='%N %T'`; flags are kept."""
    found = {}
    for raw in text.splitlines():
        words = raw.split()
        if len(words) == 2:
            found[words[0]] = words[1]
    return found


def can_run(state: str) -> bool:
    """Whether a short job would start on a node in this state; a flag such as `*` means not."""
    return state in _IDLE


def judge_job(text: str, nodes: Sequence[str], token: str, ended: bool = True) -> list[Record]:
    """Return the answer of each node that the job was to run on.

    text is what srun printed on both streams; token is what the image's marker file holds. ended
    is False where srun was stopped when its time was up.
    """
    reported = dict(_SAID.findall(text))
    return [_judge(node, reported, token, text, ended) for node in nodes]


def _judge(node: str, reported: dict[str, str], token: str, text: str, ended: bool) -> Record:
    if node in reported:
        if reported[node] == token:
            return answer(node, PASS, "the job ran in the image")
        if reported[node] in ("", "none"):
            return answer(
                node,
                FAIL,
                "the job ran on the bare host and not in the image, with return code 0; "
                "its plugstack.conf lacks the line of pyxis, or has it as optional",
            )
        return answer(node, FAIL, f"the job ran in another image ({reported[node]})")
    why = _first(text)
    if re.search(_UNKNOWN_OPTION, text):
        return answer(
            node, FAIL, "srun here does not know --container-image; see its plugstack.conf"
        )
    if re.search(_PLUGIN, text):
        return answer(
            node,
            FAIL,
            f"a plug-in of plugstack.conf cannot be loaded or refuses its options, so that "
            f"no job starts, whatever srun returns: {why}",
        )
    if re.search(_NO_STEP, text):
        return answer(
            node,
            FAIL,
            f"no step starts there, as when slurmstepd cannot load a plug-in of "
            f"plugstack.conf or refuses its options: {why}",
        )
    if not ended:
        return answer(node, NOT_MEASURED, f"the job did not end in time: {why}")
    if re.search(_NO_JOB, text):
        return answer(node, NOT_MEASURED, f"no job could be made: {why}")
    return answer(node, FAIL, f"the job printed nothing: {why}")


def _first(text: str) -> str:
    """The lines that tell most: errors first, without what srun prefixes them with."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("container-job: ")]
    errors = [line for line in lines if re.search(r"error|fail|denied|cannot|No such", line, re.I)]
    return " | ".join((errors or lines)[:2])[:300] or "nothing was printed"


def single_out(nodes: Sequence[str], text: str, most: int) -> list[str]:
    """Return nodes to ask alone: silent ones of many, since another's fault may have ended them."""
    reported = {name for name, _token in _SAID.findall(text)}
    silent = [name for name in nodes if name not in reported]
    unknown = re.search(_UNKNOWN_OPTION, text) or re.search(_NO_JOB, text)
    return silent[:most] if len(nodes) > 1 and not unknown else []


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
