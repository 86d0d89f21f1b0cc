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
        # Production has 1, the pods have 2.
        self.slurm = Slurmctld(
            names,
            return_to_service=self.random.choice([1, 1, 2]),
            appends=self.random.random() < 0.7,
        )
        # The book of repair: an incident stays open while an operator has the node.
        self.repaired = {}
        self.policy = Policy(
            share=self.random.choice([0.0, 0.1, 0.25, 0.5]),
            level=self.random.choice(LEVELS),
            evidence_s=14 * DAY,
            unmeasured=self.random.choice(["leave", "drain"]),
            spares=tuple(names[size:]),
            spares_in_service=self.random.randint(0, 2),
            repaired=self.repaired,
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
        # How often a node that was down was let in.
        self.lifted = 0
        # How often a repair's boot has cost a node its reason, and an operator's hand has.
        self.replaced = {"gate": 0, "operator": 0}
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
        lets_in = values.get("State") in ("UNDRAIN", "RESUME")
        if values.get("State") not in (None, "DRAIN") and not lets_in:
            raise WrongError(f"the gate sends {values}")
        for name in values["NodeName"].split(","):
            node = self.slurm.nodes[name]
            answers = node.base == "DOWN" and node.flags == {"DRAIN"}
            if not (node.up or answers) and not (name in self.raw and words == ["Reason", "State"]):
                raise WrongError(f"{name} is not the gate's to touch: {node}")
            if node.drained and self.hand.get(name) != "gate":
                raise WrongError(f"{name} is drained by others: {node.reason!r} by {node.by}")
            if lets_in and answers != (values["State"] == "RESUME"):
                raise WrongError(f"{name} is let in by {values}: {node}")
            if lets_in:
                self.check_admission(name)
                self.lifted += answers
        if lets_in:
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
            and verdict.at > self.proven_after(name)
        )
        if not good:
            raise WrongError(f"{name} is let in on {verdict}, against {self.against.get(name)}")

    def proven_after(self, name):
        """Since when evidence counts: of a node that is down, since its boot at the least."""
        node, against = self.slurm.nodes[name], self.against.get(name, 0)
        return max(against, int(node.booted or 0)) if node.base == "DOWN" else against

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
        # Of what is the gate's, now and then: it is there to bring that back.
        mine = self.hand.get(name) == "gate" and self.random.random() < 0.5
        out = (node.drained or node.base == "DOWN") and node.base != "UNKNOWN"
        if out and not mine and not node.flags - {"DRAIN"}:
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
            signed = _gate.read_reason(name, node.reason)
            self.hand[name] = "copyist" if signed else "operator"

    def node_drains_itself(self, name, node):
        """As node_health does: root's hand, with a signed reason; the gate may let it back in."""
        if self.slurm.running and node.up and not node.drained:
            found = {"State": "DRAIN", "Reason": write_reason(name, "h", f"gpu:{name}/3 gpu.xid")}
            self.slurm.update({"NodeName": name, **found}, "root")
            self.forget(name)
            self.hand[name] = "gate"
            self.against[name] = int(self.slurm.now)

    def node_crashes(self, name, node):
        if node.base != "DOWN":
            before = node.reason
            self.slurm.crash(name)
            if node.reason == before:
                return
            # Slurm dates the reason again, and the proof of a node that was down is newer.
            self.against[name] = int(self.slurm.now)
            if self.hand.get(name) == "gate" and _gate.read_reason(name, before) is None:
                # Only its date showed whose a replaced reason was.
                self.forget(name)
                self.hand[name] = "slurm"
            if node.drained and self.hand.get(name) == "copyist":
                # Who wrote the gate's words once more is forgotten with Slurm's.
                self.hand[name] = "gate"

    def node_registers(self, name, _node):
        if self.slurm.running and name in self.known:
            self.slurm.register(name, booted=self.random.random() < 0.5)

    def operator_opens_what_is_repaired(self, _name, _node):
        """The machine is his, and a part is out: Slurm replaces his reason."""
        if self.repaired:
            name = self.random.choice(sorted(self.repaired))
            self.operator_edits(name, self.slurm.nodes[name])
            self.slurm.now += 900
            self.node_loses_a_part(name, self.slurm.nodes[name])

    def node_loses_a_part(self, name, node):
        """It comes up with less than slurm.conf declares: the reason is Slurm's now."""
        if not self.slurm.running or name not in self.known:
            return
        before, hand = node.reason, self.hand.get(name)
        lacks = self.random.choice(["Low CPUs", "gres/gpu count too low (7 < 8)"])
        self.slurm.register(name, booted=True, lacks=lacks)
        if node.reason != before:
            self.replaced["operator"] += hand == "operator" and name in self.repaired
            self.forget(name)
            self.hand[name] = "slurm"

    def node_is_repaired(self, name, node):
        """A step boots a node of the gate's: it may come up with less, or late."""
        signed = _gate.read_reason(name, node.reason)
        unfit = self.hand.get(name) != "gate" or not node.drained or node.jobs
        if unfit or not self.slurm.running or name not in self.known:
            return
        began = self.slurm.now
        boots = [*self.repaired[name].boots] if name in self.repaired else []
        kind = signed.kind if signed else self.repaired[name].kind
        if kind not in _gate.AGAINST:
            return
        self.slurm.now += 60
        before, lacks = (
            node.reason,
            self.random.choice(["", "Low CPUs", "gres/gpu too low (7 < 8)"]),
        )
        if self.random.random() < 0.3:
            self.slurm.crash(name)
        self.slurm.register(name, booted=True, lacks=lacks)
        if node.reason != before:
            self.replaced["gate"] += 1
            self.against[name] = int(self.slurm.now)
        boots.append((began, self.slurm.now + 600))
        self.repaired[name] = _gate.Repaired(kind, "7 of 8", tuple(boots))
        # No operator takes the machine over, opens it and boots it in that time.
        self.slurm.now += 900

    def incident_ends(self, name, node):
        """As repair_nodes notes it, later than the node came back."""
        if not node.drained:
            self.repaired.pop(name, None)

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
        "operator_edits", "operator_copies", "another_user_writes_the_same", *["node_crashes"] * 2,
        "node_drains_itself", "node_loses_a_part", *["node_is_repaired"] * 2, "incident_ends",
        "operator_opens_what_is_repaired",
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
            self.slurm.register(name, booted=self.random.random() < 0.5)
        self.known |= set(self.slurm.nodes)
