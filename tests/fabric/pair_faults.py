# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pair tests of a fabric with known faults, simulated: what the localiser reports about them.

A fault takes away a share of the rate of every flow that passes it, in one direction or in both;
all values then get noise.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "unit" / "plugins" / "module_utils")]

import tests.conftest  # noqa: E402, F401, I001  (makes the collection importable)
from cable_plans import plan_data  # noqa: E402

from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cables import (  # noqa: E402
    plan_cables,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (  # noqa: E402
    CablePlan,
    End,
    NODE_LEAF,
    rail_end,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.follow_up import (  # noqa: E402
    follow_up,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.localise import (  # noqa: E402
    Localiser,
    Measurement,
    Verdict,
    Ways,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.schedule import (  # noqa: E402
    Schedule,
    Request,
    make_schedule,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (  # noqa: E402
    Threshold,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.routes import Routes  # noqa: E402

GOOD_GBPS = 392.0
THRESHOLD = Threshold(">=", 380.0, "Gb/s", "test")
RATE_GBPS = 400.0
THRESHOLDS = {RATE_GBPS: THRESHOLD}
# What a faulty part leaves of the rate; one in five lets nothing through.
LEAVES = (0.1, 0.75)
DEAD = 0.2
KINDS = ("cable", "port", "hca", "link")
_RACKS = {"nodes_per_group": 12, "trunk": 4}
SIZES = {
    "basepod-12": (12, (), {}),
    "superpod-31": (31, (8, 4), {"ufm_unit": 1}),
    # Two racks by rule: 4 leaves each, 12 cables up to three spines.
    "trays-24": (24, (8, 3), {"topology": "leaf_spine", "rails": 4, "leaf_spine": _RACKS}),
    "superpod-127": (127, (32, 16), {"ufm_unit": 4}),
}


def plan_of(size: str) -> CablePlan:
    nodes, tiers, more = SIZES[size]
    return plan_cables(plan_data(nodes, tiers, **more))


@dataclass(frozen=True)
class Fault:
    """A faulty part: the directed links, rails' adapters or whole devices that it slows down."""

    kind: str
    subject: str
    leaves: float
    links: frozenset[End] = frozenset()
    sends: frozenset[End] = frozenset()
    receives: frozenset[End] = frozenset()
    host: str = ""

    def touches(self, source: End, target: End, links: tuple[End, ...]) -> bool:
        if self.host:
            return self.host in (source.host, target.host) or any(
                end.host == self.host for end in links
            )
        return source in self.sends or target in self.receives or not self.links.isdisjoint(links)


@dataclass
class Lab:
    """A plan, its routes and a schedule, and all flows with their links."""

    plan: CablePlan
    routes: Routes
    schedule: Schedule
    localiser: Localiser
    flows: list[tuple[int, int, End, End, tuple[End, ...]]] = field(default_factory=list)
    loaded: Counter[End] = field(default_factory=Counter)
    ways: Ways | None = None

    @classmethod
    def of(cls, plan: CablePlan, routes: Routes, request: Request | None = None) -> Lab:
        schedule = make_schedule(plan, routes, request)
        lab = cls(plan, routes, schedule, Localiser(plan, routes))
        for number, half, _unit, source, target in schedule.flows():
            links = routes.route(source, target)
            lab.flows.append((number, half, source, target, links))
            lab.loaded.update(links)
        return lab

    def measure(
        self,
        faults: list[Fault],
        dice: random.Random,
        noise: float = 0.05,
        schedule: Schedule | None = None,
        first_round: int = 0,
    ) -> list[Measurement]:
        """What the flows would give; noise is a standard deviation."""
        values = []
        flows = self.flows
        if schedule is not None:
            flows = [
                (first_round + number, half, source, target, self.routes.route(source, target))
                for number, half, _unit, source, target in schedule.flows()
            ]
        for number, half, source, target, links in flows:
            leaves = min((f.leaves for f in faults if f.touches(source, target, links)), default=1)
            gbps = max(0.0, GOOD_GBPS * leaves * (1 + dice.gauss(0, noise)))
            values.append(Measurement(number, half, source, target, gbps))
        return values

    def judge(self, values: list[Measurement]) -> Verdict:
        # The flows are the same each time: what they depend on is worked out once.
        if self.ways is None:
            self.ways = self.localiser.prepare(values)
        return self.localiser.judge(values, THRESHOLDS, self.ways)

    def judge_with_follow_up(
        self, values: list[Measurement], verdict: Verdict, faults: list[Fault], dice: random.Random
    ) -> Verdict:
        """What is concluded once the extra pairs have run as well."""
        further = follow_up(self.localiser.suspects, verdict, self.schedule)
        more = self.measure(
            faults, dice, schedule=further.schedule, first_round=len(self.schedule.rounds)
        )
        return self.localiser.judge([*values, *more], THRESHOLDS)

    def fault(self, kind: str, dice: random.Random) -> Fault:
        """A fault of this kind at a place that the schedule reaches in that direction."""
        leaves = 0.0 if dice.random() < DEAD else dice.uniform(*LEAVES)
        if kind == "hca":
            rail = rail_end(*dice.choice(sorted(self.plan.hcas)))
            way = dice.choice(("sends", "receives", "both"))
            return Fault(
                kind,
                f"hca:{rail}",
                leaves,
                sends=frozenset([rail] if way != "receives" else []),
                receives=frozenset([rail] if way != "sends" else []),
            )
        if kind in ("node", "leaf", "spine"):
            names = sorted({node for node, _rail in self.plan.hcas})
            if kind != "node":
                names = [s.name for s in self.plan.switches.values() if s.tier == kind]
            name = dice.choice(names)
            return Fault(kind, ("node:" if kind == "node" else "switch:") + name, leaves, host=name)
        cables = [c for c in self.plan.cables if (c.kind == NODE_LEAF) == (kind != "link")]
        while True:
            cable = dice.choice(cables)
            ways = [{cable.a}, {cable.b}, {cable.a, cable.b}]
            # A port fails in one direction more often than not: its sender or its receiver.
            links = frozenset(dice.choice(ways[:2] if kind == "port" else ways))
            if any(self.loaded[end] for end in links):
                return Fault(kind, cable.subject, leaves, links=links)

    def faults(self, kinds: tuple[str, ...], dice: random.Random) -> list[Fault]:
        """One fault of each kind, none at the place of another."""
        found: list[Fault] = []
        for kind in kinds:
            new = self.fault(kind, dice)
            while new.subject in {fault.subject for fault in found}:
                new = self.fault(kind, dice)
            found.append(new)
        return found


EXACT = "exact"
IN_CLASS = "in its class"
MISSED = "missed"
WRONG = "wrong part"
FALSE_ALARM = "false alarm"


def outcome(faults: list[Fault], verdict: Verdict) -> str:
    """How the findings compare with the faults."""
    truth = {fault.subject for fault in faults}
    classes = [set(finding.subjects) for finding in verdict.findings]
    named = set().union(*classes)
    if truth <= named and len(classes) == len(truth) and all(len(c & truth) == 1 for c in classes):
        return EXACT if all(len(each) == 1 for each in classes) else IN_CLASS
    if not truth <= named:
        return MISSED if all(each & truth for each in classes) else WRONG
    return FALSE_ALARM


__all__ = [
    "DEAD", "EXACT", "FALSE_ALARM", "IN_CLASS", "KINDS", "MISSED", "ROOT", "SIZES", "WRONG",
    "Fault", "Lab", "outcome", "plan_of",
]  # fmt: skip
