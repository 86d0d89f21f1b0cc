# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Which nodes may be taken out for work on the machine, and which may be worked on now. Pure.

A node is taken out by a drain with a reason of ours, and held by a reservation (slurm_node_hold),
so that no job starts even if it is resumed meanwhile. What is out is in Slurm, so that a run that
was killed is counted, and continued, by the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Collection, Mapping, Sequence

from .._slurm.nodes import UNSETTLED, Node, is_owned, nodes_of_share

# Whose reasons the nodes that are out have: what is switched, and what is flashed. Each returns its
# own: power=on must not let a machine in that is half flashed.
OWNER, FIRMWARE = "dgx-power", "dgx-firmware"
_OUT = ("DRAIN", "DOWN", "FAIL")
# Among them may be the controller that this very run asks.
_SERVES = "it runs services of the cluster, too; do it by hand"


@dataclass(frozen=True)
class Outing:
    """`names` may be worked on, of which `fresh` leave service for it; the others, and why not.

    `crowded` are those of the others that only the share refuses.
    """

    names: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    crowded: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


def plan_outing(
    nodes: Mapping[str, Node],
    targets: Sequence[str],
    share: float,
    serving: Collection[str] = (),
) -> Outing:
    """Return which targets may be taken out; those that are out anyway cost no service.

    Never more than the share of all nodes are out for these reasons, those of other runs included,
    and none of those that are `serving` the cluster otherwise.
    """
    most = nodes_of_share(share, len(nodes))
    taken = {
        name for name, node in nodes.items()
        if node.has("DRAIN") and any(is_owned(node, owner) for owner in (OWNER, FIRMWARE))
    }  # fmt: skip
    names: list[str] = []
    fresh: list[str] = []
    crowded: list[str] = []
    refused: dict[str, str] = {}
    for name in dict.fromkeys(targets):
        node = nodes.get(name)
        why = "Slurm has no such node, so that jobs on it are not known" if node is None else ""
        if node is not None:
            why = _SERVES if name in serving else _disturbed(node)
        if node is not None and not why and not node.has(*_OUT):
            if len(taken) >= most:
                why = f"{len(taken)} of {len(nodes)} nodes are out for this, and {most} may be"
                crowded.append(name)
            else:
                taken.add(name)
                fresh.append(name)
        if why:
            refused[name] = why
        else:
            names.append(name)
    return Outing(tuple(names), tuple(fresh), tuple(crowded), refused)


def left_out(nodes: Mapping[str, Node], names: Sequence[str]) -> list[str]:
    """Return those of the names that a run has drained for its firmware and not returned."""
    return [
        name for name in names
        if name in nodes and nodes[name].has("DRAIN") and is_owned(nodes[name], FIRMWARE)
    ]  # fmt: skip


def obstacle(node: Node | None, is_held: bool, serves: bool = False) -> str:
    """Return why the machine must not be worked on now; empty where it may.

    To be asked right before the work: what is out and reserved gets no job.
    """
    if node is None:
        return "Slurm has no such node, so that jobs on it are not known"
    if serves:
        return _SERVES
    if not is_held:
        return "it is not held against jobs"
    if not node.has(*_OUT):
        return f"it is {node.state}, and a job could start"
    return _disturbed(node)


def _disturbed(node: Node) -> str:
    if node.busy:
        return f"it has jobs: {node.state}"
    if node.has(*UNSETTLED, "FUTURE"):
        return f"it is {node.state}"
    return ""
