# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A cluster around the gate: operators, jobs, crashes, restarts, and a watcher of every step.

The watcher knows who did what, not what the gate thinks of it.
"""

from __future__ import annotations

import random

from slurmctld_model import Slurmctld

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.commands import NoAnswerError
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate import policy as _gate
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.apply import (
    Slurm,
    StoppedError,
    carry_out,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.policy import (
    LEVELS,
    GatePlan,
    Policy,
    Verdict,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import write_reason

DAY = 86400.0
CHECKS = ("gpu.ecc", "gpu.clock", "fabric.wiring", "disk.smart")


class KilledError(Exception):
    """The gate's process ends here."""


class WrongError(AssertionError):
    """The gate did what it must never do."""


class World:
    """Slurm, operators, verdicts, and a watcher of the gate."""

    def __init__(self, seed, kills=True):
        self.random = random.Random(seed)
        self.kills = kills
        pool = self.random.randint(0, 3)
        size = self.random.randint(4, 14)
        names = [f"dgx-{number:02d}" for number in range(1, size + pool + 1)]
        self.slurm = Slurmctld(names)
        self.policy = Policy(
            share=self.random.choice([0.0, 0.1, 0.25, 0.5]),
            level=self.random.choice(LEVELS),
            evidence_s=14 * DAY,
            unmeasured=self.random.choice(["leave", "drain"]),
            spares=tuple(names[size:]),
            spares_in_service=self.random.randint(0, 2),
        )
        self.verdicts = {}
        # who has drained a node or written its reason last: gate, operator or slurm
        self.hand = {}
        # since when there is a finding against a node that the gate holds
        self.against = {}
        # in service until the gate drained them
        self.taken = set()
        # new nodes that were not admitted
        self.raw = set()
        self.known = set(names)
        self.jobs = []
        self.quiet = False
        # a run keeps the verdicts that it was started with
        self.in_gate = False
        self.sent = 0
        self.refused = 0
        self.runs = 0
        for name in self.policy.spares:
            self.slurm.nodes[name].flags.add("DRAIN")
            node = self.slurm.nodes[name]
            node.reason, node.by, node.at = (
                _gate.write_reason(name, "s", "spare, ready"), "root", self.slurm.now,
            )  # fmt: skip
            self.hand[name] = "gate"

    # the gate's side

    def run(self, argv, timeout_s=30, env=None):
        """scontrol in the gate's hands: the world goes on before each look, and after each change.

        Between a look and the change that rests on it there are two processes and no time here:
        scontrol has no way to ask and change at once, and the documentation confirms it.
        """
        looks = argv[1] == "show"
        if looks:
            self.happen(self.random.choice([0, 0, 1, 3]))
        if self.kills and not self.quiet and self.random.random() < 0.03:
            raise KilledError
        if not looks:
            self.check_before(argv)
        result = self.slurm.command(argv, "root", env)
        if not looks:
            self.sent += 1
            if result.ok:
                self.note_gate(argv)
            if self.kills and not self.quiet and self.random.random() < 0.03:
                raise KilledError
            self.happen(self.random.choice([0, 1, 2]))
        return result

    def check_before(self, argv):
        """What the gate may send, judged by what the watcher knows."""
        values = dict(word.split("=", 1) for word in argv[2:])
        words = sorted(set(values) - {"NodeName"})
        if values.get("State") not in (None, "DRAIN", "UNDRAIN"):
            raise WrongError(f"the gate sends {values}")
        for name in values["NodeName"].split(","):
            node = self.slurm.nodes[name]
            if not node.up and not (name in self.raw and words == ["Reason", "State"]):
                raise WrongError(f"{name} is not the gate's to touch: {node}")
            if node.drained and self.hand.get(name) != "gate":
                raise WrongError(f"{name} is drained by others: {node.reason!r} by {node.by}")
            if values.get("State") == "UNDRAIN":
                self.check_admission(name)
        if values.get("State") == "UNDRAIN":
            together = set(values["NodeName"].split(",")) & set(self.policy.spares)
            serving = {name for name in self.policy.spares if self.slurm.nodes[name].usable}
            if together and len(together | serving) > self.policy.spares_in_service:
                raise WrongError(f"too many spares: {together | serving}")

    def check_admission(self, name):
        verdict, now = self.verdicts.get(name), self.slurm.now
        good = (
            verdict is not None
            and verdict.verdict == "pass"
            and LEVELS.index(verdict.level) >= LEVELS.index(self.policy.level)
            and verdict.at is not None
            and now - self.policy.evidence_s <= verdict.at <= now + 300
            and verdict.at > self.against.get(name, 0)
        )
        if not good:
            raise WrongError(f"{name} is let in on {verdict}, against {self.against.get(name)}")

    def note_gate(self, argv):
        values = dict(word.split("=", 1) for word in argv[2:])
        for name in values["NodeName"].split(","):
            node = self.slurm.nodes[name]
            if not node.drained:
                self.forget(name)
                self.raw.discard(name)
                continue
            if values.get("State") == "DRAIN" and name not in self.raw:
                self.taken.add(name)
            self.hand[name] = "gate"
            if "spare, ready" in node.reason or "unproven" in node.reason:
                self.against.pop(name, None)
                self.taken.discard(name)
            else:
                self.against[name] = int(self.slurm.now)
        fleet = len(set(self.slurm.nodes) - set(self.policy.spares))
        most = max(1, int(self.policy.share * fleet)) if self.policy.share else 0
        if values.get("State") == "DRAIN" and len(self.taken) > most:
            raise WrongError(f"{sorted(self.taken)} are out, {most} of {fleet} may be")

    def forget(self, name):
        self.hand.pop(name, None)
        self.against.pop(name, None)
        self.taken.discard(name)

    # the world's side

    def happen(self, count):
        for _index in range(0 if self.quiet else count):
            self.slurm.now += self.random.choice([1, 60, 3600])
            name = self.random.choice(sorted(self.slurm.nodes))
            judging = not self.in_gate and self.random.random() < 0.3
            event = self.random.choice(self.VERDICTS if judging else self.OTHERS)
            getattr(self, event)(name, self.slurm.nodes[name])

    def job_starts(self, name, _node):
        others = self.random.sample(sorted(self.slurm.nodes), 2)
        wanted = sorted({name, *others[: self.random.randint(0, 2)]})
        job = self.slurm.start_job(wanted)
        if job:
            if self.raw & set(wanted):
                raise WrongError(f"a job runs on {self.raw & set(wanted)}, which was not admitted")
            self.jobs.append(job)

    def job_ends(self, _name, _node):
        if self.jobs:
            self.slurm.end_job(self.jobs.pop(self.random.randrange(len(self.jobs))))

    def operator(self, name, values):
        if self.slurm.running:
            user = self.random.choice(["root", "alice"])
            self.slurm.update({"NodeName": name, **values}, user)
            node = self.slurm.nodes[name]
            if node.drained:
                # taken over: what the gate had against it is the operator's to judge now
                self.forget(name)
                self.hand[name] = "operator"
            else:
                self.forget(name)
                self.raw.discard(name)

    def operator_drains(self, name, _node):
        self.operator(name, {"State": "DRAIN", "Reason": f"ticket {self.random.randint(1, 99)}"})

    def operator_resumes(self, name, node):
        if node.drained and node.up:
            self.operator(name, {"State": "RESUME"})

    def operator_edits(self, name, node):
        if node.drained:
            edits = [node.reason + " (seen, alice)", "x" + node.reason, node.reason[:-1], "fan"]
            edits += [node.reason.replace("gpu", "GPU") + ".", node.reason.replace("#f", "#n")]
            # an edit that is undone by another edit of root leaves what the gate wrote
            edits = [edit for edit in edits if _gate.read_reason(name, edit) is None]
            self.operator(name, {"Reason": self.random.choice(edits) or "fan"})

    def operator_copies(self, name, _node):
        """The reason of another node: it begins like one of the gate's."""
        other = self.slurm.nodes[self.random.choice(sorted(self.slurm.nodes))]
        if other.reason and _gate.read_reason(name, other.reason) is None:
            self.operator(name, {"State": "DRAIN", "Reason": other.reason})

    def another_user_writes_the_same(self, name, node):
        if node.drained and self.slurm.running:
            self.slurm.update({"NodeName": name, "Reason": node.reason}, "alice")
            self.forget(name)
            self.hand[name] = "operator"

    def node_drains_itself(self, name, node):
        """As node_health does: root's hand, with a signed reason; the gate may let it back in."""
        if self.slurm.running and node.up and not node.drained:
            found = {"State": "DRAIN", "Reason": write_reason(name, "h", f"gpu:{name}/3 gpu.xid")}
            self.slurm.update({"NodeName": name, **found}, "root")
            self.forget(name)
            self.hand[name] = "gate"
            self.against[name] = int(self.slurm.now)

    def node_crashes(self, name, _node):
        self.slurm.crash(name)

    def node_registers(self, name, _node):
        if self.slurm.running and name in self.known:
            self.slurm.register(name)

    def nodes_register(self, _name, _node):
        """Most slurmd are quick to find a slurmctld that came back."""
        for name in sorted(self.slurm.nodes):
            if self.random.random() < 0.9:
                self.node_registers(name, None)

    def slurmctld_stops(self, _name, _node):
        self.slurm.running = False

    def slurmctld_starts(self, _name, _node):
        if not self.slurm.running:
            self.slurm.restart()

    def verdict_changes(self, name, _node):
        result = self.random.choice(["pass", "fail", "not_measured"])
        ages = [0, 0, 1, 3600, 5 * DAY, 20 * DAY, -7200]
        self.judged(name, result, self.random.choice(ages), self.random.choice(LEVELS))

    def all_are_validated(self, _name, _node):
        """As validate_nodes does; now and then it finds something all over the fleet."""
        failing = self.random.choice([0, 0, 0.05, 0.05, 0.1, 0.6])
        level = self.random.choice([self.policy.level, "burn_in", "quick"])
        age = self.random.choice([0, 0, 0, 2 * DAY])
        for name in sorted(self.slurm.nodes):
            reported = "fail" if self.random.random() < failing else "pass"
            self.judged(name, reported, age, level)

    def judged(self, name, message, age, level):
        self.verdicts[name] = Verdict(
            node=name,
            verdict=message,
            at=None if self.random.random() < 0.02 else float(int(self.slurm.now - age)),
            level=level,
            check="" if message == "pass" else self.random.choice(CHECKS),
            subject=f"gpu:{name}/{self.random.randint(0, 7)}",
            text=f"is {self.random.randint(1, 9)}",
            remedy="replace it",
            fleet_share=self.random.choice([None, None, 0.0, 0.05]),
        )

    def verdict_is_lost(self, name, _node):
        self.verdicts.pop(name, None)

    VERDICTS = ("verdict_changes", *["all_are_validated"] * 2, "verdict_is_lost")
    OTHERS = (
        *["job_starts"] * 6, *["job_ends"] * 5, "operator_drains", *["operator_resumes"] * 6,
        "operator_edits", "operator_copies", "another_user_writes_the_same", "node_crashes",
        "node_drains_itself",
        *["nodes_register"] * 5, "slurmctld_stops", *["slurmctld_starts"] * 12,
    )  # fmt: skip

    # runs of the gate

    def decide(self, verdicts):
        return lambda nodes, spent: _gate.plan_gate(
            verdicts, nodes, self.policy, self.slurm.now, (), spent
        )

    def gate(self):
        """One run of the gate, on the verdicts of its beginning; None when it did not end."""
        verdicts = list(self.verdicts.values())
        self.runs += 1
        return self.attempt(self.decide(verdicts))

    def attempt(self, decide):
        self.in_gate = True
        try:
            outcome = carry_out(Slurm(self.run), decide, lambda step: None)
        except (KilledError, NoAnswerError, StoppedError):
            return None
        finally:
            self.in_gate = False
        self.refused += bool(outcome.refusal)
        return outcome

    def add_node(self):
        """A new node, introduced before its slurmd starts, however often that takes."""
        name = f"new-{len(self.slurm.nodes) + 1:02d}"
        self.slurm.add(name)
        self.raw.add(name)

        def decide(nodes, spent):
            fresh = {name} - {node for node, _what in spent}
            return GatePlan(_gate.plan_introduction(fresh, nodes, _gate.Policy()), ())

        for _try in range(200):
            outcome = self.attempt(decide)
            self.happen(3)
            if outcome is not None and not outcome.passed_over:
                break
        else:
            raise WrongError("a node cannot be introduced")
        self.known.add(name)

    def settle(self):
        """No more surprises: everything answers, and only the gate acts."""
        self.quiet = True
        if not self.slurm.running:
            self.slurm.restart()
        for name in self.slurm.nodes:
            self.slurm.register(name)
        self.known |= set(self.slurm.nodes)
