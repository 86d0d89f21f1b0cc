# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What repair has to know of parts: their names, who fails again and again, who is kept out.

A part is followed by its name for life, wherever it is: its history goes along to another host.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._core.files import read_json
from ...module_utils._core.record import FAIL
from ...module_utils._evidence.batch import Problems, file_name
from ...module_utils._evidence.store import Store, now_utc
from ...module_utils._repair.book import Book
from ...module_utils._repair.incident import Incident, fold, kept_parts, open_of, repaired_of
from .outliers import repeat_offender


def repair_parts(
    folder: str, nodes: Sequence[str], verdicts: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return `names` and `serials` by subject, `offenders` with why, `kept` nodes and `repaired`.

    `folder` is .dgx. Only subjects that fail now, or of open incidents, are looked at: those of a
    large cluster are a hundred thousand. OSError, ValueError for a file that cannot be read.
    """
    incidents = fold(Book(os.path.join(folder, "incidents")).events()[0])
    subjects: dict[str, set[str]] = {}
    for verdict in verdicts:
        first = verdict.get("first_failing") or {}
        if verdict.get("verdict") == FAIL and first.get("subject"):
            subjects.setdefault(str(verdict["node"]), set()).add(str(first["subject"]))
    for node, incident in open_of(incidents).items():
        subjects.setdefault(node, set()).add(incident.subject)
    store = Store(os.path.join(folder, "evidence"))
    names: dict[str, str] = {}
    serials: dict[str, str] = {}
    for node, some in subjects.items():
        known = _parts_in(store, node)
        names.update({one: known[one] for one in some if one in known})
        slots = _mapping(os.path.join(folder, "identities", f"{node}.json"))
        serials.update({one: str(slots[one].get("serial", "")) for one in some if one in slots})
    offenders = {}
    for name in sorted(set(names.values())):
        history = repeat_offender(name, store.history_of(name, Problems()), now_utc())
        if history.is_repeat_offender:
            offenders[name] = f"failed {history.incidents} times, in {', '.join(history.nodes)}"
    kept = _kept(store, nodes, kept_parts(incidents))
    return {
        "names": names,
        "serials": serials,
        "offenders": offenders,
        "kept": kept,
        "repaired": {node: dict(vars(one)) for node, one in repaired_of(incidents).items()},
    }


def _parts_in(store: Store, node: str) -> dict[str, Any]:
    return _mapping(os.path.join(store.parts, f"{file_name(node)}.json"))


def _mapping(path: str) -> dict[str, Any]:
    try:
        known = read_json(path, "parts of a node")
    except FileNotFoundError:
        return {}
    return known if isinstance(known, dict) else {}


def _kept(
    store: Store, nodes: Sequence[str], parts: Mapping[str, Incident]
) -> list[dict[str, str]]:
    """Return the nodes with one of these parts, wherever its incident was."""
    if not parts:
        return []
    found = []
    for node in nodes:
        for part in _parts_in(store, node).values():
            if part in parts:
                found.append({"node": node, "part": part, "why": parts[part].kept})
                break
    return found
