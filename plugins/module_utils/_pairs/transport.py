# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""How a script gets to a node: over SSH, as a step of a Slurm job, or here. Pure but for Slurm."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Mapping, Protocol

SSH = "ssh"
SLURM = "slurm"
LOCAL = "local"

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
