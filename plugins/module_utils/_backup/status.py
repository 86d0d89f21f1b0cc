# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What came of the last copy and the last proof of each kind, and its metrics.

It holds for one repository: of another one nothing is known, so that it is made and proved.
"""

from __future__ import annotations

import json
import os
from typing import Any, Iterable, Mapping

from .._core.files import json_if_readable, write_atomic
from .._core.prometheus_text import Family, exposition
from .._core.record import FAIL, PASS, Record, Tally
from .settings import CONTROL, Settings

PREFIX = "baremetal_dgx_backup"
_NAME = "status.json"
# As the alert BackupCopyOld.
_OLDEST_S = 3600
_METRICS = {
    "copy_timestamp_seconds": "When the newest copy was begun.",
    "copy_ok": "1 when the last try to make a copy made one.",
    "copy_duration_seconds": "How long it took.",
    "proof_timestamp_seconds": "When a copy was last restored, and was whole.",
    "proof_ok": "1 when the last proof passed, 0 when it failed; none if not measured.",
}


def load(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return kind -> what is known; nothing if the file is missing, broken, or of another one.

    What the host copied before and copies no longer would be an alert forever.
    """
    data = json_if_readable(os.path.join(settings.work_dir, _NAME))
    if not isinstance(data, dict) or data.get("repository") != settings.repository:
        return {}
    kinds = data.get("kinds")
    found = kinds.items() if isinstance(kinds, dict) else ()
    # The copy of the control machine goes to the host that tidies.
    ours = {*settings.kinds, *([CONTROL] if settings.tidies else [])}
    return {kind: dict(one) for kind, one in found if kind in ours and isinstance(one, dict)}


def copied(
    known: Mapping[str, Mapping[str, Any]], kind: str, at_s: float, took_s: float, is_ok: bool
) -> dict[str, dict[str, Any]]:
    """Return what is known after a try to make a copy. Pure."""
    new: dict[str, Any] = {"copy_ok": int(is_ok)}
    if is_ok:
        new.update({"copy_timestamp_seconds": at_s, "copy_duration_seconds": took_s})
    return _with(known, kind, new)


def lacks(settings: Settings, known: Mapping[str, Mapping[str, Any]], now_s: float) -> list[str]:
    """Return what is wrong with the last copy of each kind that this host has. Pure."""
    found = []
    for kind in settings.kinds:
        one = known.get(kind, {})
        age_s = abs(now_s - one.get("copy_timestamp_seconds", 0))
        if "copy_ok" not in one:
            found.append(f"{kind}: there is no copy in this repository yet")
        elif not one["copy_ok"]:
            found.append(f"{kind}: the last try made no copy")
        elif age_s > _OLDEST_S:
            found.append(f"{kind}: the newest copy is {age_s / 3600:.1f} h old")
    return found


def proved(
    known: Mapping[str, Mapping[str, Any]], kinds: Iterable[str], records: Iterable[Record],
    at_s: float,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Return what is known after a proof: what is of the whole repository counts for each. Pure."""
    found = {kind: dict(one) for kind, one in known.items()}
    listed = list(records)
    for kind in kinds:
        ours = [one for one in listed if one.subject.rpartition("/")[2] in (kind, "repository")]
        verdict = Tally.of(ours).verdict
        if verdict == PASS:
            found = _with(found, kind, {"proof_ok": 1, "proof_timestamp_seconds": at_s})
        elif verdict == FAIL:
            found = _with(found, kind, {"proof_ok": 0})
    return found


def _with(
    known: Mapping[str, Mapping[str, Any]], kind: str, new: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    return {**{key: dict(one) for key, one in known.items()}, kind: {**known.get(kind, {}), **new}}


def metrics(known: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text for node_exporter. Pure."""
    families = []
    for name, what in _METRICS.items():
        family = Family(f"{PREFIX}_{name}", what)
        for kind, one in sorted(known.items()):
            family.add(one.get(name), kind=kind)
        families.append(family)
    return exposition(families)


def save(settings: Settings, known: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep what is known and publish it. OSError."""
    data = {"repository": settings.repository, "kinds": known}
    write_atomic(os.path.join(settings.work_dir, _NAME), json.dumps(data, indent=1) + "\n", 0o600)
    if settings.metrics_file:
        write_atomic(settings.metrics_file, metrics(known), sync=False)
