# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Which GPU belongs into which slot of a node: the first that was seen there, until it is replaced.

A GPU that changed without a word is a finding (gpu.identity). The operator says when a change was
meant; then the slot is forgotten, and the next validation takes what it finds.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping, Sequence

from .._core.files import read_json
from .._core.record import PASS

_WHO = re.compile(r"^PCI (?P<pci>\S+), UUID (?P<uuid>GPU-\S+), serial (?P<serial>\S+)$")
_PART = re.compile(r"^(?:node|(?P<kind>gpu|hca):(?P<name>[a-z]*[0-9]+))$")
_CHECK = "gpu.identity"
_HCA = "hca:"


def known_parts(path: str) -> dict[str, Any]:
    """Return what the file of a node says by subject, nothing without one; OSError, ValueError."""
    try:
        known = read_json(path, "parts of a node")
    except FileNotFoundError:
        return {}
    if not isinstance(known, dict):
        raise ValueError(f"{path} (parts of a node): is not a mapping")
    return known


def identities_of(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return by subject the pci, uuid and serial of GPUs that were identified, and belong there."""
    found = {}
    for record in records:
        if record.get("check") == _CHECK and record.get("status") == PASS:
            for line in record.get("evidence") or ():
                match = _WHO.match(line)
                if match and "?" not in match.groups():
                    found[str(record["subject"])] = match.groupdict()
    return found


def merged(
    known: Mapping[str, Mapping[str, str]], records: Iterable[Mapping[str, Any]]
) -> dict[str, dict[str, str]]:
    """Return what is known of a node's slots, with those that were not known yet."""
    fresh = identities_of(records)
    return {subject: dict(known.get(subject) or fresh[subject])
            for subject in sorted({*known, *fresh})}  # fmt: skip


def subjects_of(node: str, replaced: Sequence[str]) -> list[str]:
    """Return the subjects of parts as the operator writes them: gpu:3, hca:rail5; node is all.

    ValueError for what is not a part.
    """
    found = []
    for part in replaced:
        named = _PART.match(part)
        if named is None:
            raise ValueError(f"replaced: {part!r} is not a part; write gpu:3, hca:rail5, or node")
        kind, name = named.group("kind"), named.group("name")
        found.append(f"{kind}:{node}/{name}" if kind else f"node:{node}")
    return found


def without(known: Mapping[str, Any], subjects: Sequence[str]) -> dict[str, Any]:
    """Return what is known without these parts, and the cables of adapters among them.

    With a node among them nothing is left.
    """
    if any(subject.startswith("node:") for subject in subjects):
        return {}
    ends = {subject[len(_HCA) :] for subject in subjects if subject.startswith(_HCA)}
    return {
        subject: value
        for subject, value in known.items()
        if subject not in set(subjects) and ends.isdisjoint(_ends_of(subject))
    }


def _ends_of(subject: str) -> list[str]:
    kind, _colon, name = subject.partition(":")
    return name.split("--") if kind == "cable" else []
