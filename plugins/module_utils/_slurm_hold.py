# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Whether a node may be loaded, and a job that keeps it free meanwhile.

A node on which somebody's job runs is never loaded. One that Slurm could give to a job is held by a
job of ours that does nothing, has the node to itself, and ends by its own time limit when nobody
gives it back. decide() is pure; the rest asks Slurm.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    MISSING,
    CommandRunner,
    last_lines,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_state import Node, parse_nodes

AUTO, SSH, SLURM = "auto", "ssh", "slurm"
# What becomes of the node: nothing is needed, it gets a job, it has ours, or it is left alone.
FREE, HOLD, ADOPT, REFUSE = "free", "hold", "adopt", "refuse"

_ASK_S = 30
_MOST_PARTITIONS = 3
_GRANTED = re.compile(r"Granted job allocation (\d+)")
_PARTITIONS = re.compile(r"(?:^|\s)Partitions=(\S+)")
_NOT_FOUND = re.compile(r"[Nn]ode \S+ not found|Invalid node name")
# Out of service: no job starts there.
_OUT = ("DRAIN", "DOWN", "FAIL", "FUTURE", "INVALID_REG", "INVAL")
_UNSETTLED = ("REBOOT_ISSUED", "REBOOT_REQUESTED", "REBOOT", "POWERED_DOWN", "POWERING_DOWN",
              "POWERING_UP", "POWER_DOWN", "POWER_UP", "UNKNOWN")  # fmt: skip


@dataclass(frozen=True)
class Running:
    """A job on the node."""

    job_id: str
    name: str
    user: str
    state: str

    def describe(self) -> str:
        """`1234 (train of alice, RUNNING)`."""
        return f"{self.job_id} ({self.name} of {self.user}, {self.state})"


@dataclass(frozen=True)
class Seen:
    """What Slurm says of a node.

    `problem` is why nothing is known; `absent` is that there is no Slurm, or not this node in it.
    """

    node: Node | None = None
    jobs: tuple[Running, ...] = ()
    partitions: tuple[str, ...] = ()
    problem: str = ""
    absent: str = ""


@dataclass(frozen=True)
class Decision:
    """What to do, why, and for ADOPT the number of our job."""

    action: str
    why: str
    job: str = ""

    @property
    def may_load(self) -> bool:
        """Whether the node may be loaded once this is done."""
        return self.action != REFUSE


def decide(seen: Seen, transport: str, name: str, user: str) -> Decision:
    """Return what must be done before the node may be loaded.

    `name` and `user` are those of our own jobs. With SSH nothing is held, and only a node with a
    job is refused. With SLURM one that Slurm does not know is refused, too.
    """
    if seen.problem:
        return Decision(REFUSE, f"whether jobs run on it is not known: {seen.problem}")
    if seen.node is None:
        return Decision(
            REFUSE if transport == SLURM else FREE, seen.absent or "Slurm has no such node"
        )
    mine = [job for job in seen.jobs if job.name == name and job.user == user]
    others = [job for job in seen.jobs if job not in mine]
    state = seen.node.state
    if others:
        shown = ", ".join(job.describe() for job in others[:3])
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        return Decision(REFUSE, f"it has jobs: {shown}{more}")
    if mine:
        return Decision(ADOPT, "an earlier run holds it", mine[-1].job_id)
    if seen.node.busy:
        return Decision(REFUSE, f"it is {state}, and squeue names no job: one is ending")
    if seen.node.has(*_UNSETTLED):
        return Decision(REFUSE, f"it is {state}")
    if seen.node.has(*_OUT):
        return Decision(FREE, f"it is {state}: no job starts there")
    if transport == SSH:
        return Decision(FREE, f"it is {state}; nothing keeps a job from starting meanwhile")
    return Decision(HOLD, f"it is {state}")


def ask(run: CommandRunner, node: str) -> Seen:
    """Ask Slurm for a node and its jobs; never raises because of what Slurm says."""
    shown = run(["scontrol", "show", "node", node, "-o"], timeout_s=_ASK_S)
    if shown.outcome == MISSING:
        return Seen(absent="there is no Slurm")
    if not shown.ok:
        if _NOT_FOUND.search(shown.text):
            return Seen(absent="Slurm has no such node")
        return Seen(problem=last_lines(shown.text, 1) or shown.describe(1))
    found = parse_nodes(shown.out).get(node)
    if found is None:
        return Seen(problem=f"scontrol says {last_lines(shown.text, 1)!r}")
    queue = run(["squeue", "-h", "-a", "-w", node, "-o", "%A|%u|%T|%j"], timeout_s=_ASK_S)
    if not queue.ok:
        return Seen(problem=last_lines(queue.text, 1) or queue.describe(1))
    named = _PARTITIONS.search(shown.out)
    partitions = tuple(word for word in (named[1] if named else "").split(",") if word != "(null)")
    return Seen(found, parse_jobs(queue.out), tuple(filter(None, partitions)))


def parse_jobs(text: str) -> tuple[Running, ...]:
    """Return the jobs of `squeue -h -o %A|%u|%T|%j`; a name may contain anything."""
    jobs = []
    for line in text.splitlines():
        cells = line.strip().split("|", 3)
        if len(cells) == 4:
            jobs.append(Running(cells[0], cells[3], cells[1], cells[2]))
    return tuple(jobs)


@dataclass(frozen=True)
class Wish:
    """The job that holds a node: its name, seconds until it ends, and how long Slurm may take."""

    node: str
    name: str
    seconds: float
    wait_s: int
    options: tuple[str, ...] = field(default_factory=tuple)

    @property
    def minutes(self) -> int:
        """The time limit."""
        return max(1, -(-int(self.seconds) // 60))


def hold_commands(wish: Wish, partitions: Sequence[str]) -> list[list[str]]:
    """Return the commands to try, one for each partition of the node where none is asked for."""
    words = ["salloc", "--no-shell", "--exclusive", "--mem=0", "--nodes=1"]
    words += [f"--job-name={wish.name}", f"--nodelist={wish.node}", f"--time={wish.minutes}"]
    words += [f"--immediate={wish.wait_s}", *wish.options]
    given = any(re.match(r"^(-p|--partition|--reservation)", one) for one in wish.options)
    if given or not partitions:
        return [words]
    return [[*words, f"--partition={name}"] for name in partitions[:_MOST_PARTITIONS]]


def hold(run: CommandRunner, wish: Wish, partitions: Sequence[str]) -> tuple[str, str]:
    """Return the number of the job that holds the node and "", or "" and why there is none."""
    said = []
    for words in hold_commands(wish, partitions):
        result = run(words, timeout_s=wish.wait_s + 30)
        granted = _GRANTED.search(result.text)
        if granted and result.ok:
            return granted[1], ""
        if granted:
            release(run, granted[1])
        said.append(last_lines(result.text, 1) or result.describe(1))
    return "", "; ".join(dict.fromkeys(said))


def extend(run: CommandRunner, job: str, wish: Wish) -> str:
    """Give our job as much time again as is asked for; returns why not, empty when done."""
    words = ["scontrol", "update", f"JobId={job}", f"TimeLimit+={wish.minutes}"]
    result = run(words, timeout_s=_ASK_S)
    return "" if result.ok else last_lines(result.text, 1) or result.describe(1)


def release(run: CommandRunner, job: str) -> str:
    """Give the node back; returns why not. The job's own limit does it then."""
    result = run(["scancel", job], timeout_s=_ASK_S)
    return "" if result.ok else last_lines(result.text, 1) or result.describe(1)
