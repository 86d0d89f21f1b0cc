# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""How a script gets to a node: over SSH, as a step of a Slurm job, or here. Pure but for Slurm."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Mapping, Protocol, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils._run import CommandRunner, ToolError

SSH = "ssh"
SLURM = "slurm"
LOCAL = "local"

_GRANTED = re.compile(r"Granted job allocation (\d+)")
# What a connection that does not answer any more may take before it is given up.
_ALIVE_S = 5
_ALIVE_COUNT = 3


class Transport(Protocol):
    """Makes the command that runs a script on a node."""

    def argv(self, node: str, script: str) -> list[str]:
        """Return the command."""


@dataclass(frozen=True)
class Ssh:
    """Over SSH, without asking anything; `targets` has what to connect to (user@address)."""

    targets: Mapping[str, str]
    connect_s: int = 10
    options: tuple[str, ...] = ()

    def argv(self, node: str, script: str) -> list[str]:
        """Return the command."""
        words = ["ssh", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={self.connect_s}"]
        words += ["-o", f"ServerAliveInterval={_ALIVE_S}"]
        words += ["-o", f"ServerAliveCountMax={_ALIVE_COUNT}", "-o", "LogLevel=ERROR"]
        words += [*self.options, "--", self.targets.get(node, node)]
        return [*words, "exec sh -c " + shlex.quote(script)]


@dataclass(frozen=True)
class Local:
    """On this host, which pretends to be every node."""

    def argv(self, node: str, script: str) -> list[str]:
        """Return the command."""
        return ["env", f"FABRIC_PAIRS_NODE={node}", "sh", "-c", script]


@dataclass(frozen=True)
class Slurm:
    """As steps of one job that has all nodes to itself.

    Steps overlap: server and client of different pairs are on the same node one after the other,
    and none may wait for resources of another.
    """

    job: str
    gres: str = ""

    def argv(self, node: str, script: str) -> list[str]:
        """Return the command."""
        words = ["srun", f"--jobid={self.job}", "--overlap", "--nodes=1", "--ntasks=1"]
        words += [f"--nodelist={node}", "--cpu-bind=none", "--mem=0", "--unbuffered", "--quiet"]
        if self.gres:
            words.append(f"--gres={self.gres}")
        return [*words, "sh", "-c", script]


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
