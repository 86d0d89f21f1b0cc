# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdicts of all nodes of some records at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import Record
from ansible_collections.baremetal.dgx.plugins.module_utils._core.verdict import (
    Fold,
    NodeVerdict,
    as_record,
)


def verdicts(
    records_by_node: Mapping[str, Sequence[Record | Mapping[str, Any]]],
    levels: Mapping[str, str] | None = None,
    cables_fail_nodes: bool = False,
) -> list[NodeVerdict]:
    """Return the verdict of each node that is a key, in that order.

    Records count for what their subject belongs to, whichever host made them; FABRIC as a key holds
    those of the fabric. `levels` says how deeply each node was checked. With `cables_fail_nodes` a
    failed cable fails the nodes it is plugged into, too.
    """
    fold = Fold(cables_fail_nodes)
    for records in records_by_node.values():
        for record in records:
            fold.add(as_record(record))
    levels = levels or {}
    return [fold.verdict(node, levels.get(node, "")) for node in records_by_node]
