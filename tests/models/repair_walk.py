# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random histories of a cluster under repair: faults, jobs, operators, kills, lost measurements,
BMCs that fail, and tickets that are lost on the way.

The gate here is the rule of the real one in two lines: a node with a newer pass is let in, a node
in service that fails is drained. What is asked of the shipped code is in `check`.
"""

from __future__ import annotations

import json
import random
import re
import time
from dataclasses import dataclass, field, replace

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.decide import (
    MOST_VALIDATIONS,
    Due,
    Policy,
    gate_policy,
    obstacle,
    plan_repair,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.incident import (
    BEGUN,
    ENDED,
    VALIDATE,
    Event,
    Incident,
    fold,
    line_of,
    open_of,
    read_line,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.ladders import (
    BY_BMC,
    RESTARTS,
    STEPS,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.tickets import (
    ticket_data,
    tickets_of,
    unsent,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.policy import (
    Verdict,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import (
    FAILED,
    ITSELF,
    read_reason,
    write_reason,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import Node

# Check, and the least step that helps; "" is none.
FAULTS = (
    ("gpu.xid", "reset_gpu"), ("gpu.xid", "reboot"), ("gpu.access", "reboot"), ("gpu.xid", ""),
    ("gpu.remap_failed", ""), ("fabric.cable", ""), ("stack.driver", "restart_driver"),
    ("gpu.access", "power_cycle"), ("gpu.count", "ac_cycle"),
)  # fmt: skip


_LESS = "gres/gpu count reported lower than configured (7 < 8)"
_STUCK = re.compile(r"bring it back|slurm has it")


class KilledError(Exception):
    """The run ends here."""


@dataclass
class World:
    """A few nodes, and all that happens to them. Times are seconds."""

    seed: int
    nodes: dict[str, Node] = field(default_factory=dict)
    faults: dict[str, tuple[str, str]] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    jobs: set[str] = field(default_factory=set)
    taken: list[tuple[float, str, str]] = field(default_factory=list)
    # Steps of which the BMC did nothing, or after which the machine stayed off.
    failed: list[tuple[str, str]] = field(default_factory=list)
    # What the receiver has, by key; which keys are noted as taken; how often one came again.
    receiver: dict[str, str] = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)
    again: int = 0
    # Boots that changed what Slurm shows of the node.
    late: int = 0
    # Reasons that Slurm has put in place of ours, by node, with their dates.
    mine: dict[str, str] = field(default_factory=dict)
    # Those of a run that was killed: they may count as ours.
    unsure: set[tuple[str, str]] = field(default_factory=set)
    # How often it has put one in place of an operator's while an incident was open.
    lost: int = 0
    now: float = 1_800_000_000.0

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        names = [f"dgx-{number}" for number in range(1, self.draw.randint(3, 9))]
        self.policy = Policy(
            steps=[step for step in STEPS if self.draw.random() < 0.8],
            at_once=self.draw.randint(1, 2),
            times=self.draw.randint(1, 2),
            window_s=self.draw.choice([3600.0, 30 * 86400.0]),
            powered=[name for name in names if self.draw.random() < 0.7],
            serving=[name for name in names if self.draw.random() < 0.1],
        )
        for name in names:
            self.nodes[name] = Node(name, ("IDLE",))
            self.verdicts[name] = Verdict(name, PASS, self.now, "standard")

    # ---- what happens

    def happen(self) -> None:
        """One thing: a fault, a job, an operator, the health program, the gate, or time."""
        self.now += self.draw.choice([1, 60, 3600, 86400])
        name = self.draw.choice(sorted(self.nodes))
        what = self.draw.randrange(10)
        if what <= 1:
            self.faults.setdefault(name, self.draw.choice(FAULTS))
        elif what == 2 and not self.nodes[name].has("DRAIN"):
            self.jobs.add(name)
        elif what == 3:
            self.jobs.discard(name)
        elif what == 4:
            reason = self.draw.choice(["", "fans"])
            states = ("IDLE", "DRAIN") if reason else ("IDLE",)
            self.nodes[name] = Node(name, states, reason, "ada" if reason else "", self.stamp())
        elif what == 9:
            held = [one for one in open_of(fold(self.events())) if self.nodes[one].has("DRAIN")]
            if held:
                # The machine is an operator's, and a part is out: his reason is there no more.
                name = self.draw.choice(sorted(held))
                self.now += 900
                self.lost += 1
                states = ("IDLE", "DRAIN", "INVALID_REG")
                self.nodes[name] = Node(name, states, _LESS, "slurm", self.stamp())
        elif what == 5 and name in self.faults and not self.nodes[name].has("DRAIN"):
            self.drain(name, ITSELF, "gpu3 xid")
        else:
            if self.draw.random() < 0.7:
                self.validate(name)
            self.gate()

    def stamp(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.now))

    def drain(self, name: str, kind: str, text: str) -> None:
        reason = write_reason(name, kind, text)
        self.nodes[name] = Node(name, ("IDLE", "DRAIN"), reason, "root", self.stamp())

    def validate(self, name: str) -> None:
        self.now += 30
        if self.draw.random() < 0.15 or self.nodes[name].has("NOT_RESPONDING"):
            self.verdicts[name] = Verdict(name, NOT_MEASURED, self.now, "standard")
        elif name in self.faults:
            check = self.faults[name][0]
            self.verdicts[name] = Verdict(name, FAIL, self.now, "standard", check, f"gpu:{name}/3")
        else:
            self.verdicts[name] = Verdict(name, PASS, self.now, "standard")
            node = self.nodes[name]
            states = tuple(state for state in node.states if state != "INVALID_REG")
            self.nodes[name] = replace(node, states=states)

    def gate(self) -> None:
        for name, node in sorted(self.nodes.items()):
            verdict = self.verdicts[name]
            ours = self.ours(name) and not node.has("INVALID_REG")
            if verdict.verdict == FAIL and not node.has("DRAIN"):
                self.drain(name, FAILED, verdict.check)
            elif verdict.verdict == PASS and ours and self.stamp_of(verdict) > node.reason_at:
                self.nodes[name] = Node(name, ("IDLE",))

    @staticmethod
    def stamp_of(verdict: Verdict) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(verdict.at))

    # ---- a run of repair_nodes

    def seen(self) -> dict[str, Node]:
        return {
            name: replace(node, states=("ALLOCATED", *node.states[1:]))
            if name in self.jobs
            else node
            for name, node in self.nodes.items()
        }

    def events(self) -> list[Event]:
        return [event for line in self.lines if (event := read_line(line))]

    def repair(self) -> None:
        """A run, which may be killed after any of its parts, and a line may be cut."""
        self.now += 60
        plan = plan_repair(
            self.seen(), self.verdicts, fold(self.events()), self.policy, self.now, list(self.nodes)
        )
        self.check_waits(plan.due, dict(plan.waits))
        for due in plan.due:
            self.check_hand(due.node)
        for event in plan.events:
            self.lines.append(line_of(event))
        if plan.events and self.draw.random() < 0.02:
            self.lines[-1] = self.lines[-1][: self.draw.randrange(len(self.lines[-1]))]
            return
        assert sum(due.step != VALIDATE for due in plan.due) <= self.policy.at_once
        try:
            for due in plan.due:
                self.carry_out(due)
        except KilledError:
            return
        self.gate()
        self.tell()
        self.check()

    def tell(self, is_lossy: bool = True) -> None:
        """Send the tickets in their order, as send_all does: one may not arrive, or its answer."""
        events = self.events()
        for ticket in unsent(tickets_of(events), self.sent, 0.0, fold(events)):
            luck = self.draw.random() if is_lossy else 1.0
            if luck < 0.15:
                return
            text = json.dumps(ticket_data(ticket, "alpha"), sort_keys=True)
            self.again += ticket.key in self.receiver
            assert self.receiver.setdefault(ticket.key, text) == text, f"{ticket.key} has two texts"
            if luck < 0.3:
                # The answer is lost, or the run is killed before it notes it.
                return
            self.sent.add(ticket.key)

    def carry_out(self, due: Due) -> None:
        self.kill()
        if due.step != VALIDATE:
            self.happen()
            if obstacle(self.seen().get(due.node), gate_policy("root", fold(self.events()))):
                return
            assert due.node not in self.jobs
            self.check_hand(due.node)
            assert due.step not in BY_BMC or due.node in self.policy.powered
            assert due.step not in RESTARTS or due.node not in self.policy.serving
            self.taken.append((self.now, due.node, due.step))
            outcome = self.effect(due)
            try:
                self.kill()
            except KilledError:
                # Nothing tells when the step was over, and so whose a reason of Slurm was.
                self.unsure.add((due.node, self.mine.pop(due.node, "")))
                raise
            self.now += 30
            ended = Event(self.now, due.incident, due.node, ENDED, step=due.step, text=outcome)
            self.lines.append(line_of(ended))
        self.kill()
        self.validate(due.node)

    def effect(self, due: Due) -> str:
        """What a step does; a BMC may refuse, or leave the machine off."""
        if due.step in BY_BMC and self.draw.random() < 0.3:
            self.failed.append((due.node, due.step))
            if self.draw.random() < 0.5:
                node = self.nodes[due.node]
                off = ("DOWN", "NOT_RESPONDING", "DRAIN")
                self.nodes[due.node] = replace(node, states=off)
            return "failed"
        fault = self.faults.get(due.node)
        if fault and fault[1] and STEPS.index(fault[1]) <= STEPS.index(due.step):
            del self.faults[due.node]
        if due.step in RESTARTS:
            self.boots(due.node)
        return "done"

    def boots(self, name: str) -> None:
        """The machine is back, late for SlurmdTimeout, or with a GPU less."""
        node, at = self.nodes[name], self.stamp()
        if self.faults.get(name, ("",))[0] == "gpu.count":
            states = ("IDLE", "DRAIN", "INVALID_REG")
            self.nodes[name] = Node(name, states, _LESS, "slurm", at)
            self.mine[name] = at
        elif self.draw.random() < 0.5:
            # With ReturnToService=1, and with 2.
            states = (self.draw.choice(["DOWN", "IDLE"]), "DRAIN")
            self.nodes[name] = Node(name, states, f"{node.reason} : Not responding", "slurm", at)
        self.late += self.nodes[name] != node

    def ours(self, name: str) -> bool:
        """Whether the drain is the gate's, or that of an open incident."""
        node = self.nodes[name]
        written = read_reason(name, node.reason)
        if node.has("DRAIN") and node.reason_by == "slurm" and not written:
            return self.mine.get(name) == node.reason_at and name in open_of(fold(self.events()))
        return bool(written) and node.reason_by in ("root", "slurm")

    def kill(self) -> None:
        if self.draw.random() < 0.05:
            raise KilledError

    # ---- what must hold

    def check_waits(self, due: tuple[Due, ...], waits: dict[str, str]) -> None:
        """No node that is out for a finding is forgotten: it gets a step, or a reason to wait."""
        for name in self.nodes:
            if self.ours(name):
                assert name in waits or name in {one.node for one in due}, name
                assert waits.get(name, "x")

    def check_hand(self, name: str) -> None:
        """Nothing is done to a node that others have taken over."""
        assert self.ours(name) or (name, self.nodes[name].reason_at) in self.unsure, self.nodes[
            name
        ]

    def check(self) -> None:
        for incident in fold(self.events()).values():
            self.check_incident(incident)
        starts = [(one.at, one.node, one.step) for one in self.events() if one.what == BEGUN]
        for at, node, step in starts:
            before = [
                one
                for one in starts
                if one[1:] == (node, step) and at - self.policy.window_s < one[0] <= at
            ]
            assert step == VALIDATE or len(before) <= self.policy.times
        for at, node, step in self.taken:
            assert any(one[0] <= at and one[1:] == (node, step) for one in starts)

    def check_incident(self, incident: Incident) -> None:
        steps = [step for step, _at in incident.steps if step != VALIDATE]
        places = [STEPS.index(step) for step in steps]
        assert places == sorted(set(places)), "a ladder went down"
        assert set(steps) <= set(self.policy.steps)
        assert len(incident.steps) <= (len(STEPS) + 1) * (MOST_VALIDATIONS + 1)

    def check_tickets(self) -> None:
        """The receiver has each ticket once, with its text, in the order of its incident."""
        tickets = tickets_of(self.events())
        assert set(self.receiver) == self.sent == {one.key for one in tickets}
        for name in {one.incident.name for one in tickets}:
            mine = [one.key for one in tickets if one.incident.name == name]
            assert [key for key in self.receiver if key in set(mine)] == mine
        waiting = {
            name for name, one in fold(self.events()).items() if one.waits and not one.closed
        }
        reported = {one.incident.name for one in tickets if one.state in ("person", "return")}
        assert waiting <= reported, "a person is waited for, and has no ticket"

    def settle(self) -> None:
        """Without events, every incident ends or names what it waits for, and no step is left."""
        self.jobs.clear()
        for name, node in self.nodes.items():
            if node.has("NOT_RESPONDING"):
                # A person has switched it on.
                self.nodes[name] = replace(node, states=("DOWN", "DRAIN"))
        for _number in range(60):
            self.now += 60
            plan = plan_repair(
                self.seen(), self.verdicts, fold(self.events()), self.policy, self.now,
                list(self.nodes),
            )  # fmt: skip
            self.lines += [line_of(event) for event in plan.events]
            if not plan.events:
                break
            for due in plan.due:
                fault = self.faults.get(due.node)
                if fault and fault[1] and due.step in STEPS and (
                    STEPS.index(fault[1]) <= STEPS.index(due.step)
                ):  # fmt: skip
                    del self.faults[due.node]
                self.now += 30
                self.validate(due.node)
            self.gate()
        else:
            raise AssertionError("it never ends")
        for _number in range(3):
            self.tell(is_lossy=False)
        self.check_tickets()
        for name, incident in open_of(fold(self.events())).items():
            if name in self.nodes:
                assert self.nodes[name].has("DRAIN")
                assert name in plan.waits, incident
                # What others hold waits for them; what is ours never waits for Slurm.
                assert not self.ours(name) or not _STUCK.search(plan.waits[name]), plan.waits[name]


def walk(seed: int) -> World:
    """Return a world after its history; AssertionError where a rule was broken."""
    world = World(seed)
    for _number in range(world.draw.randint(10, 60)):
        if world.draw.random() < 0.4:
            world.repair()
        else:
            world.happen()
    world.settle()
    return world
