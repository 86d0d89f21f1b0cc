# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Verdicts for the gate, of what validate_nodes and validate_fabric left on the controller. Pure.

A node has its own records, and those of the cables it is plugged into: for the gate a node behind a
bad cable is not good. What cannot be read, or is about another node, measured nothing. Failures of
pairs and groups stand until they are measured again, since a held node takes part in no run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...module_utils._core.record import FAIL, NOT_MEASURED, PASS, VERSION, Record, flaw
from ...module_utils._core.verdict import (
    FABRIC,
    Fold,
    NodeVerdict,
    gate_data,
    is_about_another,
    place_of,
    record_from_data,
)
from ...module_utils._slurm.gate.policy import LEVELS
from .levels import level_that_asks

# A severity in records.json of the fabric.
_HARMLESS = "harmless"
# How a node that is held is measured again.
_PAGE = "docs/validation.md, Failures of pairs and groups"
_IN_PAIRS = f"then run validate_fabric with pair_tests.transport ssh ({_PAGE})"
_IN_GROUPS = f"then run its group in a reservation ({_PAGE})"
_IN_NODES = "then run validate_nodes at the level that asks it"


def gate_verdicts(
    files: Iterable[tuple[str, Any]],
    fabric: Sequence[Any] | None,
    standing: Sequence[Any],
    needs_fabric: bool,
    own_age: bool = False,
    without_rails: Collection[str] = (),
    findings: Sequence[Any] = (),
) -> list[dict[str, Any]]:
    """Return the gate's plain verdict of each node.

    `files` has each node with the content of its file (node_file.py), or with the text of why there
    is none; a verdict has the `looks` of that file, and when its level itself was asked, or in
    `tried` when that was begun in vain. One that fails has in `asked_by` the least level of a run
    that asks all that fails.
    `fabric` are the records of the sweep, None where there was none, and `standing` those of pair
    and group tests; of these only failures count, since they are not run each time. With
    `needs_fabric` a node whose cables were not checked is not measured, unless it is one
    `without_rails`. A verdict that is not a failure is as old as its oldest record. Those of the
    cables count for that with `needs_fabric` and without `own_age`: they are swept for all nodes at
    once and not when one of them is validated.

    `findings` are those of the sweep: of the failures of a node the one that costs most is named
    first, what its last run has not measured last, and one that is harmless fails no node.
    """
    weights = _weights(findings)
    fold, levels, oldest = Fold(cables_fail_nodes=True), {}, {}
    looks: dict[str, dict[str, Any]] = {}
    found_at: dict[_Key, str] = {}
    left: set[_Key] = set()
    for node, data in files:
        records, why = _own_records(node, data)
        reported = "" if why else data.get("level")
        levels[node] = reported if reported in LEVELS else LEVELS[0]
        oldest[node] = min((record.at for record in records), default="")
        looks[node] = _looks({} if why else data, levels[node], oldest[node])
        kept = _standing(node, data)
        found_at.update(_found_at(node, data))
        left.update(map(_key, kept))
        for record in (*records, *kept):
            fold.add(record)
        if why:
            fold.add(_missing(node, "node.records", why, "run validate_nodes"))
    seen = set()
    for record in read_records(fabric or ()):
        for node in _link_of(record) & set(oldest):
            seen.add(node)
            if needs_fabric and not own_age:
                oldest[node] = min(oldest[node], record.at)
            if record.status == NOT_MEASURED and place_of(record.subject).owner == FABRIC:
                fold.unmeasured.setdefault(node, []).append(record)
        if record.status == FAIL and _weight(weights, record)[1] == _HARMLESS:
            record = replace(record, status=PASS)
        fold.add(record)
    for record in read_records(standing):
        if record.status == FAIL:
            again = _IN_GROUPS if record.check.startswith("groups.") else _IN_PAIRS
            fold.add(_to_measure(record, again))
    if needs_fabric:
        for node in sorted(set(oldest) - seen - set(without_rails)):
            why = "its cables were not checked"
            fold.add(_missing(node, "fabric.records", why, "run validate_fabric"))
    verdicts = gate_data(
        [_by_cost(fold.verdict(node, levels[node]), weights, left) for node in oldest]
    )
    for one in verdicts:
        one.update(looks[one["node"]])
        if one["verdict"] == FAIL:
            failing = fold.failing[one["node"]]
            one["at"] = max(record.at for record in failing)
            one["asked_by"] = _asked_by(failing, found_at)
        else:
            one["at"] = oldest[one["node"]]
    return verdicts


def _to_measure(record: Record, again: str) -> Record:
    """Return a failure that stands, with what measures it again after its remedy."""
    return replace(record, remedy="; ".join(filter(None, (record.remedy, again))))


_Key = tuple[str, str]
_Weights = Mapping[_Key, tuple[int, str]]


def _key(record: Record) -> _Key:
    return record.check, record.subject


def _weights(findings: Sequence[Any]) -> _Weights:
    """Return place and severity of each finding, for its own record and those of its cables.

    In records.json what costs most is first.
    """
    weights: dict[tuple[str, str], tuple[int, str]] = {}
    for place, one in enumerate(findings):
        try:
            reported = [(f"fabric.{one['kind']}", str(one["subject"]))]
            reported += [("fabric.cable", str(subject)) for subject in one["cables"]]
            weight = (place, str(one["severity"]))
        except (KeyError, TypeError):
            continue
        for key in reported:
            weights.setdefault(key, weight)
    return weights


def _weight(weights: _Weights, record: Record) -> tuple[int, str]:
    # What is the node's own comes first.
    return weights.get((record.check, record.subject), (-1, ""))


def _by_cost(found: NodeVerdict, weights: _Weights, left: Collection[_Key]) -> NodeVerdict:
    """Return a verdict with the failures that cost most first, and those that are left last."""
    failing = sorted(found.failing, key=lambda one: (_key(one) in left, _weight(weights, one)[0]))
    return replace(found, failing=tuple(failing))


def _own_records(node: str, data: Any) -> tuple[list[Record], str]:
    """The records of a node's file, and why they do not count, empty when they do."""
    if not isinstance(data, Mapping):
        return [], str(data)
    if data.get("node") != node:
        return [], f"the records are about {data.get('node')!r}"
    version = data.get("version")
    if not isinstance(version, int) or version > VERSION:
        return [], f"the records have version {version!r}"
    given = data.get("records")
    records = read_records(given) if isinstance(given, list) else []
    foreign = [one.subject for one in records if is_about_another(one.subject, node)]
    # What it reports about itself still counts, so that it cannot hide a failure behind the others.
    own = [one for one in records if not is_about_another(one.subject, node)]
    if not isinstance(given, list) or len(records) != len(given):
        return own, "some records cannot be read"
    if foreign:
        return own, f"{len(foreign)} records are about another node: {foreign[0]}"
    return own, "" if own else "there are no records"


def _standing(node: str, data: Any) -> list[Record]:
    """The failures in a node's file of layers that its last run has not measured."""
    given = data.get("standing") if isinstance(data, Mapping) and data.get("node") == node else ()
    return [
        _to_measure(one, _IN_NODES)
        for one in read_records(given if isinstance(given, list) else ())
        if one.status == FAIL and not is_about_another(one.subject, node)
    ]


def failures_in(data: Mapping[str, Any]) -> list[tuple[Record, str]]:
    """Return the failures in the file of a node, each with the level of the run that found it.

    Of a file of an earlier version it is not known, and taken for the deepest.
    """
    found = []
    for key in ("records", "standing"):
        given = data.get(key)
        for one in given if isinstance(given, list) else ():
            if isinstance(one, Mapping) and one.get("status") == FAIL:
                source = data if key == "records" else one
                level = source.get("asked_level")
                level = level if level in LEVELS else LEVELS[-1]
                found += [(record, level) for record in read_records([one])]
    return found


def _asked_by(failing: Iterable[Record], found_at: Mapping[_Key, str]) -> str:
    """Return the least level of a run that asks all these failures."""
    asked = (level_that_asks(one.check, found_at.get(_key(one), LEVELS[0])) for one in failing)
    return max(asked, key=LEVELS.index)


def _found_at(node: str, data: Any) -> dict[_Key, str]:
    """Return the level of the run that found each failure in a node's file."""
    if not isinstance(data, Mapping):
        return {}
    return {
        _key(one): level
        for one, level in failures_in(data)
        if not is_about_another(one.subject, node)
    }


def _looks(data: Mapping[str, Any], level: str, at: str) -> dict[str, Any]:
    """Return when the levels were looked at, by a run at this one, too, unless it was in vain."""
    known = data.get("looks")
    looks = dict(known) if isinstance(known, Mapping) else {}
    if not data.get("begun", True):
        return {"looks": looks, "tried": at}
    return {"looks": {**looks, level: at} if data else {}}


def read_records(given: Iterable[Any]) -> list[Record]:
    """Return the records among what a file has."""
    records = []
    for one in given:
        try:
            if not flaw(one):
                records.append(record_from_data(one))
        except (KeyError, TypeError, AttributeError):
            continue
    return records


def _link_of(record: Record) -> set[str]:
    """Nodes whose link to the fabric the record is about."""
    place = place_of(record.subject)
    return set(place.nodes) if place.kind in ("cable", "cables", "port", "hca") else set()


def _missing(node: str, check: str, why: str, remedy: str) -> Record:
    return Record(check, f"node:{node}", NOT_MEASURED, why, remedy=remedy)
