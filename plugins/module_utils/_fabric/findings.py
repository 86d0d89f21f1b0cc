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

from .._core.record import FAIL, Threshold
from .model import Cable, CablePlan, End, cage_label, cage_of, twin_cages

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


def at(plan: CablePlan, end: End) -> str:
    """Return how a technician finds a port: device, port or rail, and what is printed there."""
    if end.is_switch:
        switch = plan.switches.get(end.host)
        if switch is not None and twin_cages(switch.radix) and end.port <= switch.radix:
            return f"{end.host} port {end.port} ({cage_label(end.port, switch.radix)})"
        return f"{end.host} port {end.port}"
    label = cage_of(plan, end) if (end.host, end.rail) in plan.hcas else ""
    return f"{end.host} rail {end.rail}" + (f" ({label})" if label else "")


def several(names: list[str], most: int = 4) -> str:
    """Return the names in a sentence, the last ones counted only."""
    if len(names) > most:
        return ", ".join(names[: most - 1]) + f" and {len(names) - most + 1} more"
    return ", ".join(names)
