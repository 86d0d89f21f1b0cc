# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A finding about the fabric: one cause, with everything that follows from it. Pure.

There is one finding for each thing that has to be done. What follows from it, a hundred cables
of a leaf that is off, is named in it and is not its own finding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterable, NamedTuple

from .._core.record import FAIL, Threshold
from .model import Cable, CablePlan, End, cage_of

# The kinds, each with what it is about.
MISSING = "missing"  # cable: no link, and its adapter shows nowhere else
DARK = "dark"  # cable: both devices are there, the link between them is not
CAGE = "cage"  # cage: all links of one transceiver are gone
SWAPPED = "swapped"  # cable: two or more cables have exchanged their plugs
MOVED = "moved"  # cable: one plug is in a wrong port
UNEXPECTED = "unexpected"  # port: a link that no plan knows
EXCHANGED = "exchanged"  # node or switch: is where another one belongs
HCA_ABSENT = "hca_absent"  # hca: the node itself does not see it
RENAMED = "renamed"  # hca: in its place, under a name that is not its own
DESCRIPTION = "description"  # hca, node or switch: says that it is something else
REPLACED = "replaced"  # hca or switch: has another GUID than declared
IDENTITY = "identity"  # hca, node, switch or fabric: only the place says what it is
DUPLICATE_GUID = "duplicate_guid"  # guid: more than one port claims it
PORTS = "ports"  # switch: a block of its ports, or most of them, has no link
NODE_ABSENT = "node_absent"  # node: none of its rails
SWITCH_ABSENT = "switch_absent"  # switch: off, or cut off
SPLIT = "split"  # fabric: most of it is out of reach
SILENT = "silent"  # hca, node or switch: the link is up, but nothing answers
WIDTH = "width"  # cable: fewer lanes than planned
SPEED = "speed"  # cable, node or switch: slower lanes than planned
ERRORS = "errors"  # cable: more errors in the interval than the limit
UNHEARD = "unheard"  # node or fabric: nothing says where its cables lead
UPLINKS = "uplinks"  # switch: fewer uplinks than its peers, or more load than allowed
NO_SM = "no_sm"  # fabric
TWO_MASTERS = "two_masters"  # fabric
STANDBY_MISSING = "standby_missing"  # node or switch
SM_UNEXPECTED = "sm_unexpected"  # node or switch
SWITCH_PSU = "switch_psu"
SWITCH_FAN = "switch_fan"
SWITCH_TEMPERATURE = "switch_temperature"

CRITICAL = "critical"  # jobs fail, or all jobs of a node or a rail are slow
MAJOR = "major"  # a link or a device is lost or hurt: jobs that use it fail or are slow
MINOR = "minor"  # a reserve is lost, or something is not known
HARMLESS = "harmless"  # traffic is as planned; people are misled
LEVELS = (CRITICAL, MAJOR, MINOR, HARMLESS)


class Cost(NamedTuple):
    """What a finding costs the jobs, and why."""

    severity: str
    why: str


_SLOWEST = Cost(MAJOR, "a collective is as slow as its slowest link")
_NAMES = Cost(HARMLESS, "traffic is as planned; tools name another device")

# In the order of the findings: of one severity the upper ones come first.
COSTS = {
    NO_SM: Cost(CRITICAL, "no port becomes active, and no route changes (IBTA, MasterSMLID)"),
    SPLIT: Cost(CRITICAL, "most of the fabric cannot be reached"),
    SWITCH_ABSENT: Cost(CRITICAL, "nodes below it lose a rail; or all leaves lose a share"),
    # Of cables in wrong ports it depends on where they are: these are the rails.
    SWAPPED: Cost(CRITICAL, "a rail is at the leaf of another: its rings cross the spines"),
    MOVED: Cost(CRITICAL, "a rail is at the leaf of another: its rings cross the spines"),
    PORTS: Cost(CRITICAL, "a part of a switch is dead, for all nodes that it serves"),
    NODE_ABSENT: Cost(CRITICAL, "no job can run on the node"),
    HCA_ABSENT: Cost(CRITICAL, "NCCL finds fewer adapters than its peers have, and jobs fail"),
    SILENT: Cost(CRITICAL, "what does not answer gets no new route"),
    DUPLICATE_GUID: Cost(CRITICAL, "two ports have one address: only one of them is served"),
    TWO_MASTERS: Cost(CRITICAL, "two masters write different routes into one subnet"),
    CAGE: Cost(MAJOR, "both links of a transceiver are lost"),
    MISSING: Cost(MAJOR, "a rail has no link: a job that opens this adapter fails"),
    DARK: Cost(MAJOR, "a link between switches is lost, with its share of the bandwidth"),
    UPLINKS: Cost(MAJOR, "traffic out of this leaf has fewer ways than out of the others"),
    WIDTH: _SLOWEST,
    SPEED: _SLOWEST,
    ERRORS: Cost(MAJOR, "packets are sent again, and such a link is likely to go down"),
    SWITCH_TEMPERATURE: Cost(MAJOR, "a hot switch slows down or turns itself off"),
    SWITCH_PSU: Cost(MINOR, "the switch is off when its other power supply fails"),
    SWITCH_FAN: Cost(MINOR, "the switch gets hot when another fan fails"),
    STANDBY_MISSING: Cost(MINOR, "no subnet manager takes over when the master fails"),
    SM_UNEXPECTED: Cost(MINOR, "it may become master, with other settings"),
    UNEXPECTED: Cost(MINOR, "a port is taken, and routes count in what is there"),
    EXCHANGED: Cost(MINOR, "what is done to one device is done to another"),
    IDENTITY: Cost(MINOR, "a rail may be at the leaf of another"),
    UNHEARD: Cost(MINOR, "nothing is known of these cables"),
    REPLACED: Cost(HARMLESS, "traffic is as planned; the inventory is out of date"),
    DESCRIPTION: _NAMES,
    RENAMED: _NAMES,
}
UNEVEN = Cost(MINOR, "a leaf has more cables to one spine than to another: routes are uneven")
SAME_SWITCHES = Cost(HARMLESS, "each pair of devices has as many links as planned")


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong; `cables` are those that it explains.

    `status` is FAIL, or NOT_MEASURED for what could not be judged; then `text` says why.
    """

    kind: str
    subject: str
    text: str
    remedy: str
    cables: tuple[Cable, ...] = ()
    evidence: tuple[str, ...] = ()
    status: str = FAIL
    measured: float | None = None
    threshold: Threshold | None = None
    # Ends that a picture should highlight; those of the cables where there are none.
    ends: tuple[End, ...] = field(default=())
    # What it costs, where the kind alone does not tell.
    graded: Cost | None = None

    @property
    def cost(self) -> Cost:
        """What it costs the jobs."""
        return self.graded or COSTS[self.kind]


def by_cost(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings in order: what costs most comes first, then what concerns more cables."""
    rank = {kind: number for number, kind in enumerate(COSTS)}
    return sorted(
        findings,
        key=lambda one: (LEVELS.index(one.cost.severity), rank[one.kind], -len(one.cables)),
    )


def at(plan: CablePlan, end: End) -> str:
    """Return how a technician finds a port: device, port or rail, and what is printed there."""
    if end.is_switch:
        switch = plan.switches.get(end.host)
        if switch is not None and switch.per_cage > 1 and end.port <= switch.radix:
            return f"{end.host} port {end.port} ({switch.label(end.port)})"
        return f"{end.host} port {end.port}"
    label = cage_of(plan, end) if (end.host, end.rail) in plan.hcas else ""
    return f"{end.host} rail {end.rail}" + (f" ({label})" if label else "")


def several(names: list[str], most: int = 4) -> str:
    """Return the names in a sentence, the last ones counted only."""
    if len(names) > most:
        return ", ".join(names[: most - 1]) + f" and {len(names) - most + 1} more"
    return ", ".join(names)
