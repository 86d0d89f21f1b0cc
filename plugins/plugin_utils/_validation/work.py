# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The work of the nodes of one run: what each is asked, as entries of the program's archive. Pure.

Most of it is alike on most nodes. What is larger than a few words is kept once, by its digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

_SMALL = 100
# It follows from what Slurm reports now, and makes the question not another one.
_PASSING = ("idle",)


def text_of(value: Any) -> str:
    """Return a value as JSON, the same text for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest_of(value: Any) -> str:
    """Return a short name of a value."""
    return hashlib.sha256(text_of(value).encode()).hexdigest()[:16]


def question_of(parts: Sequence[Mapping[str, Any]]) -> str:
    """Return a name of what a node is asked; answers to another question do not count."""
    return digest_of(
        [
            {
                **part,
                "calls": [
                    {
                        "module": call["module"],
                        "options": {k: v for k, v in call["options"].items() if k not in _PASSING},
                    }
                    for call in part["calls"]
                ],
            }
            for part in parts
        ]
    )


class Archive:
    """The entries of the archive beside the program itself, path -> text."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    def add(self, node: str, work: Mapping[str, Any]) -> None:
        """Add the work of a node."""
        self.entries[f"work/{node}.json"] = text_of(
            {
                **work,
                "parts": [
                    {**part, "calls": [self._call(call) for call in part["calls"]]}
                    for part in work["parts"]
                ],
            }
        )

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        options = {name: self._value(value) for name, value in call["options"].items()}
        return {"module": call["module"], "options": options}

    def _value(self, value: Any) -> Any:
        text = text_of(value)
        if len(text) <= _SMALL:
            return value
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.entries[f"common/{name}.json"] = text
        return {"=": name}
