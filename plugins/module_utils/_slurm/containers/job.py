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
from dataclasses import dataclass
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
    r"Job violates|AssocGrp|QOS|Requested time limit|Unable to create job|not available|"
    r"Prolog hung|Unable to confirm allocation|runuser: failed to execute"
)
# The job of all nodes was ended from outside.
_TAKEN = (
    r"DUE TO (PREEMPTION|TIME LIMIT|NODE FAILURE|JOB REQUEUE)|Node failure on|"
    r"[Jj]ob allocation \S+ has been revoked"
)
# runuser has more lines, as of a folder or a program that is missing.
_NO_USER = re.compile(
    r"^runuser: (user .* does not exist|cannot (open session|set (groups|group id|user id))|"
    r"failed to establish user credentials).*",
    re.MULTILINE,
)
# A plug-in that cannot be loaded or refuses its options, on the node or here.
_PLUGIN = r"[Pp]lug-?in initialization failed|Incompatible Slurm plugin|spank: .*(fail|error)"
# With PrologFlags=Contain the step that holds the job's cgroup meets the plug-in first (24.11.5).
_NO_STEP = r"Something is wrong with the boot of the nodes|are still not ready"
_UNKNOWN_OPTION = r"unrecognized option '?--container"
_TIME_TO_ANSWER_S = 20
_IDLE = "idle"
_ABLE = (_IDLE, "mixed")
# A partition that the arguments of srun name, one to a line; of several the last one counts.
_NAMED = re.compile(r"^(?:-p\n?|--partition[=\n])(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Place:
    """A node's state with its flags, and its partitions that take jobs, `*` behind the default."""

    state: str
    partitions: list[str]


def answer(node: str, status: str, text: str) -> Record:
    """Return what is known of one node."""
    return Record(CHECK, f"node:{node}", status, text)


def ready(text: str) -> dict[str, Place]:
    """Return the nodes of `sinfo --Node --all --noheader --format='%N %T %P %a'`.

    It has one line for each node and partition.
    """
    found: dict[str, Place] = {}
    for raw in text.splitlines():
        words = raw.split()
        if len(words) == 4:
            node, state, partition, available = words
            place = found.setdefault(node, Place(state, []))
            if available == "up":
                place.partitions.append(partition)
    return found


def can_run(state: str) -> bool:
    """Whether a short job would start on a node in this state; a flag such as `*` means not."""
    return state in _ABLE


def partition_of(place: Place | None, arguments: Sequence[str]) -> tuple[str, str]:
    """Return the partition for a job on the node and "", or "" and why there can be no job.

    The partition is empty for the default one, which srun takes by itself.
    """
    if place is None:
        return "", "the node is unknown to Slurm"
    if not can_run(place.state):
        return "", f"the node is {place.state}"
    names = [one.rstrip("*") for one in place.partitions]
    named = _NAMED.findall("\n".join(arguments))[-1:]
    if named:
        fits = [one for one in named[0].split(",") if one in names]
        why = f"the arguments name partition {named[0]}, which takes no jobs on this node"
        return (fits[0], "") if fits else ("", why)
    if not names:
        return "", "no partition of the node takes jobs"
    return "" if any(one.endswith("*") for one in place.partitions) else names[0], ""


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
    unknown = _NO_USER.search(text)
    if unknown:
        return answer(
            node,
            NOT_MEASURED,
            f"no job could be made as that user ({unknown.group()}); write another in "
            "pyxis_trial_user",
        )
    if re.search(_TAKEN, text):
        return answer(node, NOT_MEASURED, f"the job was ended from outside: {why}")
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
    alike = any(re.search(one, text) for one in (_UNKNOWN_OPTION, _NO_JOB, _NO_USER))
    return silent[:most] if len(nodes) > 1 and not alike else []


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


def ask_nodes(run: CommandRunner, options: Mapping[str, Any]) -> tuple[list[Record], str]:
    """Return the answer of each node, and what must be warned of: see in_vain().

    A job has nodes of one partition only, so that there is one for each.
    """
    names = options["nodes"]
    listed = run(
        ["sinfo", "--Node", "--all", "--noheader", "--format=%N %T %P %a", "--nodes", fold(names)],
        timeout_s=_TIME_TO_ANSWER_S,
    )
    if listed.outcome == MISSING or not listed.ok:
        return [answer(n, NOT_MEASURED, listed.describe(1)) for n in names], ""
    places = ready(listed.out)
    answers: dict[str, Record] = {}
    able: dict[str, list[str]] = {}
    for name in names:
        partition, why = partition_of(places.get(name), options["arguments"])
        if why:
            answers[name] = answer(name, NOT_MEASURED, why)
        else:
            able.setdefault(partition, []).append(name)
    for partition, nodes in able.items():
        more = [f"--partition={partition}"] if partition else []
        asked = {**options, "arguments": [*options["arguments"], *more]}
        answers.update(zip(nodes, run_job(run, asked, nodes)))
    return list(answers.values()), in_vain(answers, places)


def in_vain(answers: Mapping[str, Record], places: Mapping[str, Place]) -> str:
    """Return that nodes are idle and none was measured, and why; "" otherwise."""
    idle = [name for name in answers if name in places and places[name].state == _IDLE]
    if not idle or any(one.status != NOT_MEASURED for one in answers.values()):
        return ""
    reasons = dict.fromkeys(answers[name].text for name in idle)
    return f"no container was tried, although nodes are idle ({fold(idle)}): {'; '.join(reasons)}"
