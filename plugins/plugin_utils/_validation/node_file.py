# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The file of a node in .dgx/nodes: what a run has found, and what is left of those before. Pure.

    records      of this run, which prove `level`
    standing     failures that it has not measured
    looks        when deeper levels were last asked, by level

A pass is left out: beside those of this run it would make the evidence deeper than it is, or older.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._core.record import FAIL, NOT_MEASURED, VERSION
from ...module_utils._core.verdict import layer_of
from ...module_utils._slurm.gate.policy import LEVELS
from .levels import PARTS, never_asked
from .node_verdicts import read_records


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
        "links": list(links),
        "standing": _standing(before, result["records"], asked),
        "looks": _looks(before, result["level"]),
        "records": result["records"],
    }


def _standing(
    before: Mapping[str, Any], records: Sequence[Mapping[str, Any]], asked: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the failures of before that this run has not measured.

    A layer of which all was measured ends those of subjects that are there no more, too.
    """
    known = [one for one in records if one["status"] != NOT_MEASURED]
    measured = {(one["check"], one["subject"]) for one in known}
    over = {layer_of(one["check"]) for one in known}
    unknown = {one["check"] for one in records if one["status"] == NOT_MEASURED}
    over -= {layer_of(check) for check in unknown}
    # A record without a name may be of any layer of its part.
    over -= {layer for part in PARTS.values() if part.check in unknown for layer in part.layers}
    # What the inventory asks no more would never pass again.
    over.update(layer for name in never_asked(asked) for layer in PARTS[name].layers)
    return [
        one.as_data()
        for key in ("records", "standing")
        for one in _records(before, key)
        if one.status == FAIL
        and layer_of(one.check) not in over
        and (one.check, one.subject) not in measured
    ]


def _looks(before: Mapping[str, Any], level: str) -> dict[str, str]:
    """Return when the levels below which this run stays were last asked."""
    known = before.get("looks")
    found = dict(known) if isinstance(known, Mapping) else {}
    oldest = min((one.at for one in _records(before, "records")), default="")
    found[str(before.get("level"))] = oldest
    deeper = LEVELS[LEVELS.index(level) + 1 :]
    return {one: str(found[one]) for one in deeper if found.get(one)}


def _records(before: Mapping[str, Any], key: str) -> list[Any]:
    given = before.get(key)
    return read_records(given) if isinstance(given, list) else []
