# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the module validation_run does: one program on many nodes, by Slurm or by ClusterShell."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

from .._core.files import NO_OTHER, make_folder, open_folder, read_json
from .._core.lock import host_lock
from .._core.nodeset import expand
from .._core.run import CommandRunner, ToolError, last_lines
from .launch import Launch
from .start import CLUSTERSHELL, SLURM, TOOLS, Start, clush_start, program_words, srun_start

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

_LOCK = "validation_run"
_NODES = re.compile(r"(?:^|\s)NodeList=(\S+)")
_GONE = re.compile(r"(?i)invalid job id")
_ASK_S = 60
_INSTALL = {
    SLURM: "Slurm's client tools",
    CLUSTERSHELL: "ClusterShell (clustershell, 1.8 or later)",
}


def lacking(engine: str, find: Callable[[str], str | None]) -> str:
    """Return what to do about a tool of the engine that is missing, "" if all are there.

    `find` tells where one is.
    """
    for tool in TOOLS[engine]:
        if not find(tool):
            return (
                f"engine {engine}: {tool} is not installed on {os.uname().nodename}: install "
                f"{_INSTALL[engine]}, or write cluster_validation.engine: ansible"
            )
    return ""


def in_order(run: CommandRunner, job: str, nodes: Sequence[str]) -> list[str]:
    """Return the nodes in the order in which Slurm counts them in this job. ToolError."""
    shown = run(["scontrol", "show", "job", job, "-o"], timeout_s=_ASK_S)
    if not shown.ok:
        why = last_lines(shown.text, 1) or shown.describe(1)
        gone = f"job {job} is gone" if _GONE.search(why) else f"Slurm does not show job {job}"
        raise ToolError(f"{gone}: {why}")
    found, wanted = _NODES.search(shown.out), set(nodes)
    there = [node for node in expand(found[1]) if node in wanted] if found else []
    if not there:
        raise ToolError(f"job {job} has none of these nodes any more")
    return there


def _starter(
    params: Mapping[str, Any], run: CommandRunner, words: Sequence[str]
) -> Callable[[str, str, Sequence[str]], Start]:
    def slurm(name: str, group: str, nodes: Sequence[str]) -> Start:
        return srun_start(name, group, in_order(run, group, nodes), words)

    def clustershell(name: str, _group: str, nodes: Sequence[str]) -> Start:
        return clush_start(
            name, nodes, words, params["ssh_script"], params["fanout"], params["topology"],
            "".join(params["become_words"]),
        )  # fmt: skip

    return slurm if params["engine"] == SLURM else clustershell


def bring_about(module: AnsibleModule, run: CommandRunner) -> dict[str, Any]:
    """Start the program, take the answers; return what the module returns.

    ToolError, OSError, ValueError.
    """
    params = module.params
    why = lacking(params["engine"], shutil.which)
    if why and (params["state"] == "finished" or params["required"]):
        raise ToolError(why)
    done = {"changed": False, "ready": not why, "files": [], "missing": []}
    if params["state"] == "ready" or module.check_mode:
        return done
    if params["topology"] and len(params["become_words"]) > 1:
        raise ToolError(
            "clustershell.topology: its gateways start the same command on all nodes, and these "
            f"become root in different ways ({'; '.join(params['become_words'])}); set the same "
            "ansible_become for all of them, or no topology"
        )
    asked = read_json(params["asked"], "the parts of each node")
    with open(params["program"], "rb") as handle:
        digest = hashlib.sha256(handle.read()).hexdigest()
    begin = _starter(params, run, program_words(params["python"], digest, params["run"]))
    groups = params["groups"] or {CLUSTERSHELL: sorted(asked)}
    make_folder(params["folder"], 0o700, NO_OTHER)
    # The module of a run that was killed may still be at work; it ends when its nodes have.
    # Both engines may be on one host: a control machine that is the Slurm controller, too.
    lock = host_lock(f"{_LOCK}-{params['engine']}-{params['run']}", params["seconds"])
    with lock, open_folder(params["folder"], deny=NO_OTHER) as folder:
        launch = Launch(params["run"], folder, asked, params["silent_s"])
        launch.run(groups, begin, params["program"], params["seconds"])
        missing = launch.missing(sorted(asked))
        return {**done, "files": launch.pack(), "missing": missing}
