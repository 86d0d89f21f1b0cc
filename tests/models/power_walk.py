# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random histories of machines that are switched: jobs, operators, kills, BMCs that come and go.

The order of the steps is that of playbooks/power.yml; the decisions are the shipped code's. Slurm
here gives a job to whatever can take one, at every moment in which it could.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.machine import (
    AC_CYCLE,
    OFF,
    ON,
    SOFT_OFF,
    Machine,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.outing import (
    OWNER,
    obstacle,
    plan_outing,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.redfish import (
    BmcError,
    LackError,
    SilentError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.switch import (
    ACTIONS,
    CYCLE,
    Limits,
    Switched,
    switch,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm import hold
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.hold_many import Cluster, Holder
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import (
    DRAINED,
    RESUMED,
    Node,
    Wanted,
    is_owned,
    nodes_of_share,
    plan_nodes,
)

LIMITS = Limits(soft_s=10, change_s=20, poll_s=2)


class KilledError(Exception):
    """The run ends here."""


class FakeMachine:
    """A machine of the world; its BMC may be away, lose answers, or be unable."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name

    def _disturb(self) -> None:
        self.world.step()
        if self.world.away.get(self.name, 0.0) > self.world.now:
            raise SilentError("no answer in time")

    def power(self) -> str:
        self._disturb()
        return self.world.power[self.name]

    def reset(self, kind: str) -> None:
        self._disturb()
        world, name = self.world, self.name
        if kind == AC_CYCLE and name in world.unable:
            raise LackError("the BMC has no way to cycle AC power")
        if not world.calm and world.draw.random() < 0.1:
            raise SilentError("the question was lost")
        world.change(name, kind)
        if world.draw.random() < 0.1:
            raise SilentError("the answer was lost")


@dataclass
class World:
    """A few nodes, and all that happens to them. Times are seconds."""

    seed: int
    nodes: dict[str, Node] = field(default_factory=dict)
    power: dict[str, str] = field(default_factory=dict)
    away: dict[str, float] = field(default_factory=dict)
    unable: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    # By node: a reservation, and an exclusive job of the run's own.
    reserved: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    acts: list[tuple[str, str]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    running: bool = False
    calm: bool = False
    now: float = 1_800_000_000.0

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        names = [f"dgx-{number}" for number in range(1, self.draw.randint(3, 12))]
        self.share = self.draw.choice((0.1, 0.3, 0.5, 1.0))
        self.most = nodes_of_share(self.share, len(names))
        for name in names:
            self.nodes[name] = Node(name, ("IDLE",))
            self.power[name] = "On"
        self.unable = {name for name in names if self.draw.random() < 0.2}

    # What happens beside the run

    def starts(self, name: str) -> bool:
        """Whether Slurm could give the node to a job now."""
        return (
            self.nodes[name].usable
            and self.power[name] == "On"
            and name not in self.reserved | self.held
        )

    def happen(self) -> None:
        """One thing that users, the operator or the machine do."""
        name = self.draw.choice(list(self.nodes))
        node = self.nodes[name]
        what = self.draw.random()
        if what < 0.45 and self.starts(name):
            self.jobs.add(name)
            self.nodes[name] = replace(node, states=("ALLOCATED",))
        elif what < 0.65 and name in self.jobs:
            self.end_job(name)
        elif what < 0.72 and not node.has("DRAIN"):
            self.nodes[name] = replace(node, states=(*node.states, "DRAIN"), reason="broken fan")
        elif what < 0.82 and node.has("DRAIN"):
            # The operator does not ask whose drain it is.
            states = tuple(one for one in node.states if one != "DRAIN") or ("IDLE",)
            self.nodes[name] = Node(name, states)
        elif what < 0.88:
            self.away[name] = self.now + self.draw.randint(1, 30)
        elif what < 0.92 and name not in self.jobs and not self.running:
            self.power[name] = self.draw.choice(("On", "Off"))
        elif what < 0.96 and self.power[name] == "Off" and not node.has("DOWN"):
            self.jobs.discard(name)
            self.nodes[name] = replace(node, states=("DOWN", *_kept(node)))
        elif self.power[name] == "On" and node.has("DOWN"):
            self.nodes[name] = replace(node, states=("IDLE", *_kept(node)))

    def end_job(self, name: str) -> None:
        """The job of a node is over."""
        self.jobs.discard(name)
        node = self.nodes[name]
        self.nodes[name] = replace(node, states=("IDLE", *_kept(node)))

    def step(self) -> None:
        """A moment of the run: others act meanwhile, and it may be killed."""
        self.now += 1
        if self.calm:
            return
        for _number in range(self.draw.randint(0, 2)):
            self.happen()
        self.check()
        if self.draw.random() < 0.02:
            raise KilledError

    def change(self, name: str, kind: str) -> None:
        """A machine gets its command."""
        assert kind == ON or name not in self.jobs, f"{kind} of {name} under a job"
        self.acts.append((name, kind))
        if kind == SOFT_OFF and self.draw.random() < 0.3:
            return
        if kind == AC_CYCLE:
            self.away[name] = self.now + 5
        self.power[name] = "Off" if kind in (OFF, SOFT_OFF) else "On"

    def check(self) -> None:
        """Never more than the share are out for this."""
        out = [name for name, node in self.nodes.items()
               if node.has("DRAIN") and is_owned(node, OWNER)]  # fmt: skip
        assert len(out) <= self.most, f"{out} are out, {self.most} may be"

    # The run

    def opener(self, name: str) -> object:
        @contextlib.contextmanager
        def opened() -> Iterator[Machine]:
            if self.away.get(name, 0.0) > self.now:
                raise SilentError("no answer in time")
            yield FakeMachine(self, name)

        return opened

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.step()

    def update(self, state: str, names: list[str], text: str = "") -> None:
        """What slurm_node does."""
        plan = plan_nodes(Wanted(state, text, OWNER), [self.nodes[name] for name in names])
        for name in plan.changed_names:
            after = plan.after[name]
            states = ("ALLOCATED", *_kept(after)) if name in self.jobs else after.states
            self.nodes[name] = replace(after, states=states)

    def hold(self, name: str) -> bool:
        """What slurm_node_hold does."""
        node = self.nodes[name]
        jobs = tuple([hold.Running("1", "train", "alice", "RUNNING")] if name in self.jobs else [])
        # A reservation that an earlier run has left is this run's.
        seen = hold.Seen(node, jobs)
        decided = hold.decide(seen, hold.SLURM, hold.Mine("dgx-validate", "root"))
        if decided.action == hold.RESERVE:
            self.reserved.add(name)
            # Looked at again: it may have been resumed, and taken, before the reservation was.
            if name in self.jobs:
                self.reserved.discard(name)
                return False
        elif decided.action == hold.HOLD:
            self.held.add(name)
        return decided.may_load

    def release(self, names: list[str], reserved: list[str]) -> None:
        """What slurm_nodes_hold does; job and reservation of a node are left by a killed run."""
        mine = hold.Mine("dgx-validate", "root", "new", ("old",))
        seen = {
            name: hold.Seen(
                node,
                (hold.Running(name, "dgx-validate:old", "root", "RUNNING"),)
                if name in self.held else (),
                reservations=(hold.Reservation(f"dgx-validate_old_{name}", ""),)
                if name in self.reserved else (),
            )
            for name, node in self.nodes.items()
        }  # fmt: skip

        def ended(argv: Sequence[str], **_given: object) -> CommandResult:
            listed = ""
            if argv[0] == "scancel":
                self.held.remove(argv[1])
            elif argv[1] == "show":
                since = "StartTime=2026-01-01T00:00:00"
                lines = [
                    f"ReservationName=dgx-validate_old_{one} {since} Nodes={one} "
                    for one in self.reserved
                ]
                listed = "\n".join(lines)
            else:
                self.reserved.remove(argv[-1].partition("_old_")[2])
            return CommandResult(tuple(argv), ENDED, 0, listed)

        holder = Holder(ended, hold.Request("", mine, 60, 15), hold.SLURM, 1)  # type: ignore[arg-type]
        holder.give_back(Cluster(seen, {}), names, reserved)

    def run(self, action: str, targets: list[str]) -> None:
        """One run of the playbook, to its end or to where it is killed."""
        self.running = True
        try:
            self._run(action, targets)
            self.ended.append(action)
        except KilledError:
            self.ended.append("killed")
        self.running = False

    def _switch(self, name: str, action: str) -> Switched | None:
        try:
            return switch(self.opener(name), action, LIMITS, self.sleep, lambda: self.now)  # type: ignore[arg-type]
        except BmcError:
            return None

    def _run(self, action: str, targets: list[str]) -> None:
        if action == ON:
            done = [
                name for name in targets
                if (one := self._switch(name, ON)) is not None and one.power == "On"
            ]  # fmt: skip
            self.step()
            self.update(RESUMED, done)
            self.step()
            self.release([], done)
            return
        outing = plan_outing(dict(self.nodes), targets, self.share)
        if action in (CYCLE, AC_CYCLE) and outing.crowded:
            return
        self.step()
        self.update(DRAINED, list(outing.fresh), action)
        held = []
        for name in outing.names:
            self.step()
            if self.hold(name):
                held.append(name)
        shown = dict(self.nodes)
        self.step()
        refused = [name for name in outing.names if obstacle(shown.get(name), name in held)]
        back = [name for name in refused if name in outing.fresh]
        for name in outing.names:
            if name not in refused:
                one = self._switch(name, action)
                if one is not None and one.power == "On" and action != OFF:
                    back.append(name)
        self.step()
        self.update(RESUMED, back)
        self.step()
        self.release(list(outing.names), back)
        assert not self.reserved.intersection(outing.names), "a run that ended left them reserved"

    def settle(self) -> None:
        """Calm, and one run that brings everything back: nothing is left out or off."""
        self.calm, self.away = True, {}
        for name in list(self.jobs):
            self.end_job(name)
        # A killed validation has left one, and its load may still run.
        self.held.add(next(iter(self.nodes)))
        held = set(self.held)
        self.run(ON, list(self.nodes))
        assert self.held == held, f"jobs on {held - self.held} were ended"
        assert not self.reserved, f"{self.reserved} stay reserved"
        for name, node in self.nodes.items():
            assert self.power[name] == "On", name
            assert not is_owned(node, OWNER) or not node.has("DRAIN"), node


def _kept(node: Node) -> tuple[str, ...]:
    return tuple(one for one in node.states if one == "DRAIN")


def walk(seed: int) -> World:
    """Return a world after its history; AssertionError where a rule was broken."""
    world = World(seed)
    for _number in range(world.draw.randint(5, 25)):
        for _moment in range(world.draw.randint(0, 8)):
            world.happen()
        names = list(world.nodes)
        action = world.draw.choice(ACTIONS)
        # A cycle of more than the share is refused.
        most = len(names) if action in (ON, OFF) else world.draw.choice((world.most, len(names)))
        targets = world.draw.sample(names, world.draw.randint(1, most))
        world.run(action, targets)
        world.check()
        if world.draw.random() < 0.5:
            # The time limits of what a killed run has left.
            world.reserved.clear()
            world.held.clear()
    world.settle()
    return world
