# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Which idle nodes are due to be looked at under load. Pure."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

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
    as none. ValueError for a level that there is not.
    """
    if level not in LEVELS:
        raise ValueError(f"level: there is no {level!r}; write {', '.join(LEVELS)}")
    found = []
    for verdict in verdicts:
        node = nodes.get(str(verdict["node"]))
        if node is None or node.states != ("IDLE",):
            continue
        looks = {
            verdict.get("level") or LEVELS[0]: verdict.get("at"),
            # A failure may be older than the look that has not measured it.
            **(verdict.get("looks") or {}),
        }
        deep = [seconds_of(str(looks.get(one) or "")) for one in LEVELS[LEVELS.index(level) :]]
        seen = max((at for at in deep if at is not None and at <= now), default=0.0)
        if now - seen >= days * DAY_S:
            found.append((seen, node.name))
    return [name for _seen, name in sorted(found)[: max(0, most)]]
