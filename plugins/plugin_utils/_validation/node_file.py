# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The file of a node in .dgx/nodes: what a run has found, and what is left of those before. Pure.

    records      of this run at `asked_level`, which prove `level`
    standing     failures that it has not measured, each with the `asked_level` that found it
    ended        layers that the inventory asks no more
    begun        whether it has loaded the node, where its level does
    looks        when deeper levels were last asked, by level; its own, too, if it has not begun

A pass is left out: beside those of this run it would make the evidence deeper than it is, or older.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._core.record import NOT_MEASURED, VERSION
from ...module_utils._core.verdict import layer_of
from ...module_utils._slurm.gate.policy import LEVELS
from .levels import PARTS, ended, level_that_asks
from .node_verdicts import failures_in, read_records


def node_file(
    result: Mapping[str, Any],
    node: str,
    asked: Mapping[str, str],
    links: Sequence[Any],
    former: Any,
) -> dict[str, Any]:
    """Return the content of the file; `result` is of levels.fold(), `asked` of levels.reasons().

    `former` is the content before, or anything else where there is none that can be read.
    """
    before = former if isinstance(former, Mapping) and former.get("node") == node else {}
    return {
        "version": VERSION,
        "node": node,
        "level": result["level"],
        "asked_level": result["asked_level"],
        "begun": result["begun"],
        "links": list(links),
        "ended": ended(asked),
        "standing": _standing(before, result, ended(asked)),
        "looks": _looks(before, result),
        "records": result["records"],
    }


def _standing(
    before: Mapping[str, Any], result: Mapping[str, Any], ends: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the failures of before that this run has not measured.

    A layer of which all was measured ends those of subjects that are there no more, too, but of
    tests that only a deeper run asks.
    """
    records: Sequence[Mapping[str, Any]] = result["records"]
    place = LEVELS.index(result["asked_level"])
    known = [one for one in records if one["status"] != NOT_MEASURED]
    measured = {(one["check"], one["subject"]) for one in known}
    over = {layer_of(one["check"]) for one in known}
    unknown = {one["check"] for one in records if one["status"] == NOT_MEASURED}
    over -= {layer_of(check) for check in unknown}
    # A record without a name may be of any layer of its part.
    over -= {layer for part in PARTS.values() if part.check in unknown for layer in part.layers}
    return [
        {**one.as_data(), "asked_level": level}
        for one, level in failures_in(before)
        # What the inventory asks no more would never pass again.
        if layer_of(one.check) not in ends
        and (one.check, one.subject) not in measured
        and (
            layer_of(one.check) not in over
            or LEVELS.index(level_that_asks(one.check, level)) > place
        )
    ]


def _looks(before: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, str]:
    """Return when the levels that this run has not asked were last asked."""
    known = before.get("looks")
    found = dict(known) if isinstance(known, Mapping) else {}
    if before.get("begun", True):
        given = before.get("records")
        records = read_records(given if isinstance(given, list) else ())
        found[str(before.get("level"))] = min((one.at for one in records), default="")
    deeper = LEVELS[LEVELS.index(result["level"]) + bool(result["begun"]) :]
    return {one: str(found[one]) for one in deeper if found.get(one)}
