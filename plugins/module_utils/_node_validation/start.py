# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The commands that start the program of a node on many nodes at once. Pure.

The program comes over standard input and is run from memory: nothing is left on a node, and no
other user can exchange it. What it prints comes back with a label before each line.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, field
from typing import Mapping, Sequence

from .._core.nodeset import fold

SLURM, CLUSTERSHELL = "slurm", "clustershell"
TOOLS = {SLURM: ("srun", "scontrol"), CLUSTERSHELL: ("clush",)}
# A new file in memory, its digest compared, and then run in the place of this process.
_READ = (
    "import hashlib,os,sys;"
    "d=sys.stdin.buffer.read();"
    "hashlib.sha256(d).hexdigest()==sys.argv[1] or sys.exit('the program came damaged');"
    "f=os.memfd_create('node-validation',0);"
    "os.set_inheritable(f,True);"
    "[os.write(f,d[i:i+1048576]) for i in range(0,len(d),1048576)];"
    "n=os.open(os.devnull,os.O_RDONLY);os.dup2(n,0);"
    "os.execv(sys.executable,[sys.executable,'-IS','/proc/self/fd/%d'%f,*sys.argv[2:]])"
)
# What clush reports of a connection that ssh, or a gateway, has lost. The program has neither.
_LOST = tuple(f"exited with exit code {code}" for code in (255, os.EX_PROTOCOL))
_LAUNCH_FAILED = re.compile(r"failed on node (?P<node>[A-Za-z0-9_.-]+)")


@dataclass(frozen=True)
class Start:
    """One command, and the node that each of its labels is."""

    name: str
    argv: tuple[str, ...]
    nodes: Mapping[str, str] = field(default_factory=dict)
    # The connections at a time, one for each node; 0 where one step has all nodes.
    fanout: int = 0


def program_words(python: str, digest: str, run: str) -> list[str]:
    """Return what runs the program of this digest, which comes over standard input."""
    return [python, "-IS", "-c", _READ, digest, run]


def srun_start(name: str, job: str, nodes: Sequence[str], words: Sequence[str]) -> Start:
    """Return the step that runs the words once on each of these nodes of a job.

    `nodes` are in Slurm's order, which is that of its labels.
    """
    count = len(nodes)
    argv = [
        "srun", f"--jobid={job}", f"--nodelist={fold(nodes)}", f"--nodes={count}",
        f"--ntasks={count}", "--ntasks-per-node=1",
        # The step of a run that was killed may still be there.
        "--overlap",
        # One node that fails must not end the others.
        "--no-kill", "--kill-on-bad-exit=0", "--wait=0",
        "--cpu-bind=none", "--mpi=none", "--label", *words,
    ]  # fmt: skip
    return Start(name, tuple(argv), {str(rank): node for rank, node in enumerate(nodes)})


def clush_start(
    name: str,
    nodes: Sequence[str],
    words: Sequence[str],
    script: str,
    fanout: int,
    topology: str,
    become: str,
) -> Start:
    """Return the command of ClusterShell that runs the words on each of these nodes.

    `script` is run in the place of ssh; it is given a node and a command, knows the way, and has
    the program.
    Gateways of a tree do not have it: there the words follow `become`. Without a `topology` there
    is no tree, also where ClusterShell has one by default.
    """
    argv = ["clush", "-w", ",".join(nodes), "-f", str(fanout), "-t", "20", "-u", "0"]
    remote = shlex.join(words)
    if topology:
        argv.append(f"--topology={topology}")
        remote = f"{become} {remote}".strip()
    else:
        argv += ["-n", "--worker=ssh", "-O", f"ssh_path=/bin/sh {shlex.quote(script)}"]
    return Start(name, (*argv, remote), {node: node for node in nodes}, fanout)


def split(line: str, labels: Mapping[str, str]) -> tuple[str, str]:
    """Return the node that a line came from, "" if it is not one of these, and what it said."""
    label, colon, text = line.partition(": ")
    label = label.strip()
    if not colon or label not in labels:
        # clush reports how a command ended in its own name.
        label, colon, text = line.partition(": ")[2].partition(": ")
        if not colon or label not in labels:
            return "", line.strip()
    return labels[label], text


def is_lost(text: str) -> bool:
    """Return whether clush says by this that the connection of a node has broken."""
    return text in _LOST


def not_started(line: str) -> str:
    """Return the node on which srun could not start anything, as this line says; "" for none."""
    found = _LAUNCH_FAILED.search(line) if line.startswith("srun: ") else None
    return found["node"].rstrip(":") if found else ""
