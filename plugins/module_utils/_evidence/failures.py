# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Failures that stand: of nodes that were loaded together, which not all are each time.

    NODE.json    records by subject

A node that is held for one takes no part in the next run, whose records show nothing about it. So a
failure stands until its check passes or fails again for the same subject, until the plan has the
cable or adapter no longer, or until the part was replaced, which removes the subject from the file.
"""

from __future__ import annotations

import json
import os
from typing import Any, Mapping, Sequence, Tuple

from .._core.files import write_atomic
from .._core.record import FAIL, NOT_MEASURED
from .._core.verdict import layer_of, place_of
from .batch import file_name
from .parts import known_parts

_Key = Tuple[str, str]
# Its records have a subject for each adapter and cable of the plan, measured or not.
_PAIRS = layer_of("fabric.pairs.part")
_GROUPS = "groups"


def standing(
    before: Mapping[_Key, Mapping[str, Any]], records: Sequence[Mapping[str, Any]]
) -> tuple[dict[_Key, Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return what stands after these records, by check and subject, and what they did not measure.

    Of the latter only what belongs to their layers: a run of pairs shows nothing about groups.
    KeyError, TypeError for what is not a record.
    """
    measured = {_key(one) for one in records if one["status"] != NOT_MEASURED}
    layers = {layer_of(one["check"]) for one in records}
    there = {one["subject"] for one in records if layer_of(one["check"]) == _PAIRS}
    kept = {key: one for key, one in before.items()
            if key not in measured and not _has_left(key, there)}  # fmt: skip
    fresh = {_key(one): one for one in records
             if one["status"] == FAIL and place_of(one["subject"]).gate_fails}  # fmt: skip
    return {**kept, **fresh}, [one for key, one in kept.items() if layer_of(key[0]) in layers]


def note_failures(folder: str, records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Write which failures stand after these records; return those that they did not measure.

    OSError; ValueError for a file that is not as it was written.
    """
    files = _files(folder)
    after, left = standing(_by_key(files), records)
    wanted: dict[str, dict[str, list[Mapping[str, Any]]]] = {path: {} for path in files}
    for (_check, subject), one in sorted(after.items()):
        for node in place_of(subject).gate_fails:
            subjects = wanted.setdefault(os.path.join(folder, f"{file_name(node)}.json"), {})
            subjects.setdefault(subject, []).append(one)
    for path, subjects in wanted.items():
        if subjects != files.get(path):
            write_atomic(path, json.dumps(subjects, indent=1) + "\n", 0o640, make=0o750)
    return left


def keys_in(folder: str) -> set[_Key]:
    """Return check and subject of each failure that stands. OSError, ValueError."""
    return set(_by_key(_files(folder)))


def is_kept(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a failure that has a place in these files while it stands."""
    return (
        record["status"] == FAIL
        and layer_of(record["check"]) in (_PAIRS, _GROUPS)
        and bool(place_of(record["subject"]).gate_fails)
    )


def _files(folder: str) -> dict[str, dict[str, Any]]:
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    paths = [os.path.join(folder, name) for name in names if name.endswith(".json")]
    return {path: known_parts(path) for path in paths}


def _by_key(files: Mapping[str, Mapping[str, Any]]) -> dict[_Key, Mapping[str, Any]]:
    found: dict[_Key, Mapping[str, Any]] = {}
    for path, subjects in files.items():
        try:
            found.update({_key(one): one for some in subjects.values() for one in some})
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}: is not a list of failures: {error!r}") from error
    return found


def _has_left(key: _Key, there: set[str]) -> bool:
    """Return whether the plan has a node with these subjects, and no longer this part of it."""
    check, subject = key
    place = place_of(subject)
    if layer_of(check) != _PAIRS or place.kind not in ("cable", "hca") or subject in there:
        return False
    nodes = {place_of(one).owner for one in there if place_of(one).kind == "hca"}
    return not nodes.isdisjoint(place.nodes)


def _key(record: Mapping[str, Any]) -> _Key:
    return record["check"], record["subject"]
