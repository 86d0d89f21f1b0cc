# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What may be to blame for a slow flow: every part on its way, in every way that it can fail. Pure.

A part may fail in both directions or in one: a fibre, a laser or a receiver is one direction. The
data of a loopback turns round in the adapter, so it uses no cable: that tells the adapter from the
cable.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Iterable

from .._fabric.model import NODE_LEAF, CablePlan, End, rail_end
from .._fabric.routes import NoRouteError, Routes

CABLE = "cable"
HCA = "hca"
CAGE = "cage"
NODE = "node"
SWITCH = "switch"
PAIR = "pair"

# What it takes to believe in a fault of each kind: -ln of how likely one is before anything was
# measured. Only the order matters: cables and optics fail first (of 419 interruptions of Llama 3's
# training 35 were switches or cables, 7 adapters), and one fault of a whole before many of its
# parts. A pair whose parts all pass elsewhere is the last explanation but chance.
COST = {CABLE: 8.0, HCA: 9.0, CAGE: 9.5, NODE: 10.0, SWITCH: 10.5, PAIR: 9.0}
# A fault of one direction is believed a little less readily than one of both.
ONE_WAY_COST = 0.7

BOTH = ""
IN_PART = "in part"


@dataclass(frozen=True)
class Suspect:
    """A part and the way in which it may have failed; `mode` is BOTH or says the direction."""

    subject: str
    kind: str
    mode: str
    cost: float

    @property
    def name(self) -> str:
        """The subject, with the direction where it is one."""
        return f"{self.subject} ({self.mode})" if self.mode else self.subject


class Suspects:
    """Numbers for suspects, and which of them a flow between two rails depends on."""

    def __init__(self, plan: CablePlan, routes: Routes) -> None:
        self.plan = plan
        self.routes = routes
        self.all: list[Suspect] = []
        self.number: dict[tuple[str, str], int] = {}
        self.cages = _cages(plan)
        rails = Counter(node for node, _rail in plan.hcas)
        # A node with one rail is the same as its adapter.
        self.whole_nodes = {node for node, count in rails.items() if count > 1}
        self._of_link: dict[End, tuple[int, ...]] = {}
        self._of_flow: dict[tuple[End, End], tuple[int, ...]] = {}

    def of_flow(self, source: End, target: End) -> tuple[int, ...]:
        """Return the numbers of all suspects of a flow; NoRouteError where it has no way."""
        known = self._of_flow.get((source, target))
        if known is None:
            known = tuple(dict.fromkeys(self._collect(source, target)))
            self._of_flow[source, target] = known
        return known

    def links(self, source: End, target: End) -> tuple[End, ...]:
        """Return the directed links of a flow, nothing where it has no way."""
        try:
            return self.routes.route(source, target)
        except NoRouteError:
            return ()

    def rate_gbps(self, source: End, target: End) -> float:
        """Return what a flow can reach at most: the rate of the slowest part that is planned."""
        hcas = (self.plan.hcas[end.host, end.rail] for end in (source, target))
        cables = (self.routes.by_end[link] for link in self.links(source, target))
        return min(*(hca.rate_gbps for hca in hcas), *(cable.rate_gbps for cable in cables))

    def _collect(self, source: End, target: End) -> list[int]:
        if source == target:
            hca = f"hca:{source}"
            modes = (BOTH, "sends", "receives")
            return self._nodes(source) + [self._get(hca, HCA, mode) for mode in modes]
        found = [
            *self._nodes(source, target),
            self._get(f"hca:{source}", HCA),
            self._get(f"hca:{source}", HCA, "sends"),
            self._get(f"hca:{target}", HCA),
            self._get(f"hca:{target}", HCA, "receives"),
        ]
        for link in self.routes.route(source, target):
            found += self._of_one_link(link)
        one, two = min(source, target), max(source, target)
        found.append(self._get(f"pair:{one.host}--{two.host}", PAIR))
        found.append(self._get(f"pair:{one}--{two}", PAIR))
        return found

    def _nodes(self, *ends: End) -> list[int]:
        return [self._get(f"node:{end.host}", NODE) for end in ends if end.host in self.whole_nodes]

    def _of_one_link(self, link: End) -> tuple[int, ...]:
        known = self._of_link.get(link)
        if known is None:
            cable = self.routes.by_end[link]
            far = cable.other(link)
            found = [
                self._get(cable.subject, CABLE),
                self._get(cable.subject, CABLE, f"from {link}"),
            ]
            for end in (link, far):
                if end in self.cages:
                    found.append(self._get(self.cages[end], CAGE))
            if far.is_switch:
                found.append(self._get(f"switch:{far.host}", SWITCH))
            known = tuple(found)
            self._of_link[link] = known
        return known

    def _get(self, subject: str, kind: str, mode: str = BOTH) -> int:
        key = (subject, mode)
        if key not in self.number:
            self.number[key] = len(self.all)
            cost = COST[kind] + (ONE_WAY_COST if mode else 0.0)
            self.all.append(Suspect(subject, kind, mode, cost))
        return self.number[key]

    def add(self, suspect: Suspect) -> int:
        """Take in a suspect that is made for one case, and return its number."""
        self.all.append(suspect)
        return len(self.all) - 1


def _cages(plan: CablePlan) -> dict[End, str]:
    """Return the cage of each end that shares one with another: there one optic carries both.

    At a node the plan knows the cages, at a switch its ports do.
    """
    ends: dict[str, list[End]] = {}
    for cable in plan.cables:
        for end in (cable.a, cable.b):
            name = _cage_of(plan, end)
            if name:
                ends.setdefault(name, []).append(end)
    return {end: name for name, some in ends.items() if len(some) > 1 for end in some}


def _cage_of(plan: CablePlan, end: End) -> str:
    if not end.is_switch:
        cage = plan.hcas[end.host, end.rail].cage
        return f"cage:{end.host}/{cage}" if cage else ""
    switch = plan.switches[end.host]
    return f"cage:{end.host}/{switch.cage(end.port)}" if switch.per_cage > 1 else ""


def parts(plan: CablePlan) -> Iterable[tuple[str, str, tuple[End, ...]]]:
    """Yield subject, kind and the sending ends of every part that a record is made of."""
    for node, rail in sorted(plan.hcas):
        yield f"hca:{rail_end(node, rail)}", HCA, (rail_end(node, rail),)
    for cable in plan.cables:
        yield cable.subject, CABLE, (cable.a, cable.b)
    ends: dict[str, list[End]] = {name: [] for name in plan.switches}
    for cable in plan.cables:
        for end in (cable.a, cable.b):
            if end.is_switch:
                ends[end.host].append(end)
    for name, some in ends.items():
        yield f"switch:{name}", SWITCH, tuple(some)


def elements(plan: CablePlan) -> dict[str, list[tuple[str, ...]]]:
    """Return the parts that each node and switch is made of, as the subjects of each part.

    A node that fails may take some of its rails along, a switch some of its ports.
    """
    made_of: dict[str, list[tuple[str, ...]]] = {}
    for cable in plan.cables:
        for end in (cable.a, cable.b):
            if end.is_switch:
                made_of.setdefault(f"switch:{end.host}", []).append((cable.subject,))
            elif cable.kind == NODE_LEAF:
                made_of.setdefault(f"node:{end.host}", []).append((cable.subject, f"hca:{end}"))
    return made_of
