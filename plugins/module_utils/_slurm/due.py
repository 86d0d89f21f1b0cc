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
    and one that is dated after now counts as none. ValueError for a level that there is not.
    """
    if level not in LEVELS:
        raise ValueError(f"level: there is no {level!r}; write {', '.join(LEVELS)}")
    found = []
    for verdict in verdicts:
        node = nodes.get(str(verdict["node"]))
        if node is None or node.states != ("IDLE",):
            continue
        at = seconds_of(str(verdict.get("at") or ""))
        deep = LEVELS.index(verdict.get("level") or LEVELS[0]) >= LEVELS.index(level)
        seen = at if at is not None and deep and at <= now else 0.0
        if now - seen >= days * DAY_S:
            found.append((seen, node.name))
    return [name for _seen, name in sorted(found)[: max(0, most)]]
