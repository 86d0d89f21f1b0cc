# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Reads what a report is made of: the store, the plan, the pairs, the secrets to leave out."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...module_utils._core.record import NOT_MEASURED, PASS, Record, flaw
from ...module_utils._core.verdict import BACKUP, FABRIC, is_about_another, layer_of
from ...module_utils._evidence.batch import (
    Batch,
    Problems,
    accepted,
    changes,
    current,
    is_from_the_future,
    parse_time,
)
from ...module_utils._evidence.failures import is_kept, keys_in
from ...module_utils._evidence.store import Store
from .._operations.outliers import RepeatOffender, repeat_offender
from .data import Collector, Request

# Longer ones are keys and certificates in their own files, whose lines are left out one by one.
_MOST_SECRET = 1 << 20


def read_text(path: str) -> str:
    """Return a text, "" where there is no such file. Raises OSError."""
    with (
        contextlib.suppress(FileNotFoundError),
        open(path, encoding="utf-8", errors="replace") as handle,
    ):
        return handle.read()
    return ""


def planned_nodes(path: str, groups: Sequence[str]) -> list[dict[str, Any]]:
    """Return the nodes of a plan that are in one of the groups. Raises OSError, ValueError."""
    with open(path, encoding="utf-8") as handle:
        nodes = json.load(handle).get("nodes", [])
    return [one for one in nodes if not groups or set(groups) & set(one.get("groups", ()))]


def read_secrets(folder: str) -> list[str]:
    """Return all secrets below a folder: whole files, and their lines. Raises OSError."""
    found = []
    for home, _folders, names in os.walk(folder):
        for name in names:
            with open(os.path.join(home, name), "rb") as handle:
                text = handle.read(_MOST_SECRET).decode("utf-8", "replace").strip()
            found += [text, *(line.strip() for line in text.splitlines())]
    return found


def load_report(
    evidence: str,
    nodes: Sequence[Mapping[str, Any]] | None,
    request: Request,
    at: str,
    pairs: str = "",
    states: Mapping[str, Mapping[str, str]] | None = None,
    versions: Mapping[str, str] | None = None,
    more: Mapping[str, Any] | None = None,
    failures: str = "",
) -> dict[str, Any]:
    """Return what the report shows of a store.

    `failures` is the folder of those of pairs and groups that stand. Raises OSError; ValueError,
    KeyError, TypeError where a file is not what it must be.
    """
    store, problems = Store(evidence), Problems()
    batches = store.batches(problems)
    last = current(batches)
    now = parse_time(at)
    problems.lines += [
        f"{run} is from the future: the clock of the controller was wrong then, or is now"
        for run in store.names()
        if is_from_the_future(run, now)
    ]
    if nodes is None:
        scopes = sorted({scope for scope, layer in last if scope != FABRIC and layer != BACKUP})
        nodes = [{"name": scope} for scope in scopes]
    collector = Collector(nodes, request)
    standing = _standing(failures, problems)
    layers: dict[tuple[str, int], set[str]] = {}
    for (_scope, layer), batch in last.items():
        layers.setdefault(batch.key, set()).add(layer)
    # Of two batches the newer is met last, and says how deeply a node was looked at.
    used = {one.key: one for one in sorted(last.values(), key=lambda one: one.order)}
    for batch in used.values():
        collector.batch(batch)
    changed = changes(batches)
    gone = {(check, subject) for check, subject, _before, _after in changed.gone}
    passed: set[tuple[str, str]] = set()
    counted: dict[tuple[str, int], int] = {}
    for run in sorted({run for run, _number in used}):
        read: dict[tuple[str, int], Batch] = {}
        problems_of_run = Problems()
        for batch, record in store.read(run, problems_of_run, lambda one: one.key in used):
            read[batch.key] = batch
            if record is not None and layer_of(record["check"]) in layers.get(batch.key, ()):
                counted[batch.key] = counted.get(batch.key, 0) + 1
                kept = usable(batch, record)
                if kept is not record:
                    problems_of_run.lines.append(
                        f"{run}: {record['subject']} {record['check']}: {kept['text']}"
                    )
                about = kept["check"], kept["subject"]
                if standing is not None and is_kept(kept):
                    kept = kept if about in standing else _gone(kept)
                if kept["status"] == PASS:
                    passed |= gone & {about, *_cables_of(kept)}
                collector.record(batch, kept)
        # Only the ends of batches have been looked at before.
        for key in (key for key in used if key[0] == run):
            if key not in read or not read[key].whole:
                collector.record(used[key], _unreadable(used[key]))
        problems.lines += [line for line in problems_of_run.lines if line not in problems.lines]
    for line in read_text(pairs).splitlines() if pairs else ():
        # One that was truncated when a run was killed has no flow.
        with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):
            collector.flow(json.loads(line))
    return collector.report(
        at=at,
        changes=changed.with_passed(passed),
        repeat_offenders=list(_repeat_offenders(store, at, problems)),
        runs=_runs(used, counted),
        problems=problems.lines,
        versions=versions or {},
        states=states or {},
        more=more or {},
    )


def usable(batch: Batch, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record of a store, or, if it cannot be used, one that has measured nothing."""
    if not flaw(data) and not (
        batch.scope != FABRIC and is_about_another(data["subject"], batch.scope)
    ):
        return data
    return replace(accepted(data, batch.scope), at=str(batch.head["at"])).as_data()


def _cables_of(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (check, subject) of each cable of a record of cables that are right."""
    if not record["subject"].startswith("cables:"):
        return []
    return [(record["check"], f"cable:{line}") for line in record.get("evidence", ())]


def _standing(folder: str, problems: Problems) -> set[tuple[str, str]] | None:
    """Return check and subject of each failure that stands; None where that is not known."""
    if not folder or not os.path.isdir(folder):
        return None
    try:
        return keys_in(folder)
    except (OSError, ValueError) as error:
        problems.lines.append(f"which failures of pairs and groups stand is not known: {error}")
        return None


def _gone(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a failure leaves that replace_node has removed."""
    return Record(
        check=data["check"],
        subject=data["subject"],
        status=NOT_MEASURED,
        text="not measured since its part was replaced",
        remedy="run validate_fabric with its pair and group tests",
        at=data["at"],
    ).as_data()


def _unreadable(batch: Batch) -> dict[str, Any]:
    """Return a record that says that some of a batch can no longer be read."""
    return Record(
        check="evidence.whole",
        subject=FABRIC if batch.scope == FABRIC else f"node:{batch.scope}",
        status=NOT_MEASURED,
        text=f"the records of {batch.head['run']} have been damaged since they were written",
        remedy="look at the disk of the controller; validate again",
        at=str(batch.head["at"]),
    ).as_data()


def _repeat_offenders(store: Store, at: str, problems: Problems) -> Iterator[RepeatOffender]:
    for serial, lines in store.histories(problems):
        if any(line.get("status") == "fail" for line in lines):
            yield repeat_offender(serial, lines, at)


def _runs(
    used: Mapping[tuple[str, int], Batch], counted: Mapping[tuple[str, int], int]
) -> list[dict[str, Any]]:
    runs: dict[str, dict[str, Any]] = {}
    for key, batch in used.items():
        one = runs.setdefault(
            key[0],
            {"run": key[0], "level": "", "batches": 0, "records": 0, "simulated": ""},
        )
        one["level"] = one["level"] or batch.head["level"]
        one["simulated"] = one["simulated"] or batch.head["simulated"]
        one["batches"] += 1
        one["records"] += counted.get(key, 0)
    return [runs[name] for name in sorted(runs)]
