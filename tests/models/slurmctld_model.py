# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model of slurmctld as scontrol shows it, with jobs, operators and restarts.

What it accepts and refuses was compared with Slurm 24.11 (`tests/pod/test_gate.py` does it again):
no DRAIN without a reason, no RESUME of a node that is not out, no unknown node; UNDRAIN of any
registered node succeeds and leaves DOWN alone; a reason alone is dropped unless the node is out.

What it does by itself is that of src/slurmctld/node_mgr.c of 25.11 (set_node_reason,
validate_node_specs, _drain_node): to a reason that there is it appends ` : ` and its words, a node
that registers with less than slurm.conf declares gets its words as the whole reason, and by
ReturnToService=1 only a node comes back by itself whose reason is exactly "Not responding" and that
has not booted. Without `appends` it is that of 22.05: a reason that there is stays as it is, with
its author and its time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ENDED, CommandResult

OUT = ("DRAIN", "FAIL")
NO_CONTACT = "slurm_load_node error: Unable to contact slurm controller (connect failure)"
NO_REASON = "You must specify a reason when DOWNING or DRAINING a node. Request denied"


def _stamp(at):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))


@dataclass
class Machine:
    """A node: base state, flags, the reason with author and time, and its jobs."""

    base: str = "IDLE"
    flags: set = field(default_factory=set)
    reason: str = ""
    by: str = ""
    at: float = 0.0
    jobs: set = field(default_factory=set)
    # None until its slurmd registers.
    booted: float | None = 0.0

    @property
    def drained(self):
        return "DRAIN" in self.flags

    @property
    def up(self):
        return self.base not in ("DOWN", "UNKNOWN") and not self.flags - {"DRAIN"}

    @property
    def usable(self):
        return self.up and not self.drained

    def shown(self, name):
        base = "ALLOCATED" if self.jobs and self.base == "IDLE" else self.base
        text = (
            f"NodeName={name} Arch=x86_64 CPUTot=224 State={'+'.join([base, *sorted(self.flags)])}"
        )
        text += " ThreadsPerCore=2 Partitions=batch"
        boot = "None" if self.booted is None else _stamp(self.booted)
        text += f" BootTime={boot} SlurmdStartTime={boot}"
        if self.reason:
            at = _stamp(self.at)
            text += f" Reason={self.reason} [{self.by}@{at}]"
        return text


class Slurmctld:
    """Answers `scontrol show node` and `scontrol update`; every change is kept in `changes`."""

    def __init__(self, names=(), now=1_800_000_000.0, return_to_service=1, appends=True):
        self.appends = appends
        self.now = now
        self.return_to_service = return_to_service
        self.nodes = {name: Machine() for name in names}
        self.running = True
        self.changes = []
        self.killed = []
        self._next_job = 1

    # what scontrol does

    def __call__(self, argv, timeout_s=30, env=None):
        return self.command(argv, "root", env)

    def command(self, argv, user, env=None):
        words = tuple(argv)
        if not self.running:
            return CommandResult(words, ENDED, 1, "", NO_CONTACT)
        if words[:3] == ("scontrol", "show", "node"):
            # without these the times could not be compared
            if (env or {}).get("TZ") != "UTC" or (env or {}).get("SLURM_TIME_FORMAT") != "standard":
                raise AssertionError("scontrol would print local times")
            return self._show(words)
        if words[:2] == ("scontrol", "update"):
            complaint = self.update(dict(word.split("=", 1) for word in words[2:]), user)
            return CommandResult(words, ENDED, 1 if complaint else 0, "", complaint)
        return CommandResult(words, ENDED, 1, "", f"invalid keyword: {words}")

    def _show(self, words):
        names = words[4].split(",") if len(words) > 4 else list(self.nodes)
        lines = [self.nodes[name].shown(name) for name in names if name in self.nodes]
        lines += [f"Node {name} not found" for name in names if name not in self.nodes]
        wrong = any(name not in self.nodes for name in names)
        return CommandResult(words, ENDED, 1 if wrong else 0, "\n".join(lines))

    def update(self, values, user):
        """Change nodes; returns what scontrol says, empty when it is content."""
        state, reason = values.get("State"), values.get("Reason")
        if set(values) - {"NodeName", "State", "Reason"}:
            return f"Update of this parameter is not supported: {values}"
        if state in ("DRAIN", "DOWN", "FAIL") and not reason:
            return NO_REASON
        names = values["NodeName"].split(",")
        if any(name not in self.nodes for name in names):
            return "slurm_update error: Invalid node name specified"
        message = ""
        for name in names:
            message = self._change(name, state, reason, user) or message
        return message

    def _change(self, name, state, reason, user):
        node = self.nodes[name]
        before = node.shown(name)
        invalid = "slurm_update error: Invalid node state specified"
        if state not in (None, "DRAIN", "DOWN", "FAIL", "RESUME", "UNDRAIN"):
            return invalid
        if state == "UNDRAIN" and "INVALID_REG" in node.flags:
            return invalid
        if state == "RESUME" and (
            "INVALID_REG" in node.flags or not (node.base == "DOWN" or node.flags & set(OUT))
        ):
            return invalid
        if state in ("DRAIN", "FAIL"):
            node.flags.add(state)
        elif state == "DOWN":
            node.base = "DOWN"
            self._kill(name, user)
        elif state == "UNDRAIN":
            node.flags.discard("DRAIN")
        elif state == "RESUME":
            node.flags -= set(OUT)
            node.base = "IDLE" if node.base == "DOWN" else node.base
        out = node.base == "DOWN" or node.flags & set(OUT)
        if not out:
            node.reason, node.by, node.at = "", "", 0.0
        elif reason is not None:
            node.reason, node.by, node.at = reason, user, self.now
        self.changes.append((name, user, state, reason, before, node.shown(name)))
        return ""

    def _kill(self, name, by):
        jobs = set(self.nodes[name].jobs)
        self.killed += [(job, by) for job in sorted(jobs)]
        for node in self.nodes.values():
            node.jobs -= jobs

    # what happens beside it

    def start_job(self, names):
        """Start a job where all its nodes can take one; returns it, or None."""
        if not self.running or not names or not all(self.nodes[name].usable for name in names):
            return None
        job, self._next_job = self._next_job, self._next_job + 1
        for name in names:
            self.nodes[name].jobs.add(job)
        return job

    def end_job(self, job):
        for node in self.nodes.values():
            node.jobs.discard(job)

    def add(self, name):
        """A new line in slurm.conf: unknown until its slurmd registers."""
        self.nodes[name] = Machine(base="UNKNOWN", booted=None)

    def register(self, name, booted=False, lacks=""):
        """The slurmd of a node answers again; `lacks` is the reason for too little hardware."""
        node = self.nodes[name]
        node.flags -= {"NOT_RESPONDING", "INVALID_REG"}
        if booted or node.booted is None:
            node.booted = self.now
        if lacks:
            node.flags.add("INVALID_REG")
            if not node.flags & set(OUT) and node.base != "DOWN":
                node.flags.add("DRAIN")
            fixed = node.reason and node.reason != "Not responding" and not self.appends
            if node.reason != lacks and not fixed:
                node.reason, node.by, node.at = lacks, "slurm", self.now
            return
        silent = node.reason == "Not responding" and not booted
        if node.base != "DOWN" or self.return_to_service == 2 or silent:
            node.base = "IDLE"
        elif node.reason == "Not responding" and not node.flags & set(OUT):
            node.reason, node.by, node.at = "Node unexpectedly rebooted", "slurm", self.now
        if node.base != "DOWN" and not node.flags & set(OUT):
            node.reason, node.by, node.at = "", "", 0.0

    def crash(self, name):
        """A node is silent for SlurmdTimeout: its jobs are lost, and its reason gets more words."""
        node = self.nodes[name]
        if node.base != "DOWN":
            node.base = "DOWN"
            if self.appends or not node.reason:
                words = f"{node.reason} : Not responding" if node.reason else "Not responding"
                node.reason, node.by, node.at = words, "slurm", self.now
        node.flags.add("NOT_RESPONDING")
        self._kill(name, "slurm")

    def restart(self):
        """slurmctld comes back with its saved state; nodes register one by one."""
        self.running = True
        for node in self.nodes.values():
            if node.base != "DOWN":
                node.flags.add("NOT_RESPONDING")
