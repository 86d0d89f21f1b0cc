# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Which idle nodes are due to be looked at under load. Pure."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from .._core.record import NOT_MEASURED
from .gate.policy import LEVELS, seconds_of
from .nodes import Node

DAY_S = 86400.0


def due(
    nodes: Mapping[str, Node],
    verdicts: Sequence[Mapping[str, Any]],
    now: float,
    level: str,
    days: float,
    most: int,
) -> list[str]:
    """Return the nodes to look at now, the longest unseen first, at most so many.

    Only a node that is IDLE and nothing else: one that is drained, reserved, planned for a job or
    not answering is left to the operator who made it so. A look at a lesser level does not count,
    and hides no deeper one that the verdict knows of in `looks`; one that is dated after now counts
    as none. Neither does one that measured nothing, unless `looks` has it: a node that was `tried`
    in vain stays due, and leaves the others their turn. ValueError for a level that there is not.
    """
    if level not in LEVELS:
        raise ValueError(f"level: there is no {level!r}; write {', '.join(LEVELS)}")
    found = []
    for verdict in verdicts:
        node = nodes.get(str(verdict["node"]))
        if node is None or node.states != ("IDLE",):
            continue
        in_vain = verdict.get("tried") or verdict.get("verdict") == NOT_MEASURED
        looks = {
            verdict.get("level") or LEVELS[0]: None if in_vain else verdict.get("at"),
            # A failure may be older than the look that has not measured it.
            **(verdict.get("looks") or {}),
        }
        seen = _latest([looks.get(one) for one in LEVELS[LEVELS.index(level) :]], now)
        if now - seen >= days * DAY_S:
            found.append((max(seen, _latest([verdict.get("tried")], now)), node.name))
    return [name for _turn, name in sorted(found)[: max(0, most)]]


def _latest(times: Sequence[Any], now: float) -> float:
    """Return the latest of these times that is not after now, 0 without one."""
    known = [seconds_of(str(one or "")) for one in times]
    return max((at for at in known if at is not None and at <= now), default=0.0)
