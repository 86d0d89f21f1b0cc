# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What came back from the nodes, as the answers of the parts of validate_nodes.

What did not come is an answer, too: that the node does not answer, by name of the part.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._node_validation.spool import Spool
from .levels import fold

_MORE = 200


def read_spool(run: str, paths: Iterable[str], nodes: Iterable[str]) -> Spool:
    """Return the answers of these compressed files; one that is cut gives what it has. OSError."""
    known, spool = set(nodes), Spool(run)
    for path in paths:
        try:
            with gzip.open(path, "rt", encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    node, colon, text = line.partition(": ")
                    if colon and node in known:
                        spool.feed(node, text)
        except (EOFError, gzip.BadGzipFile):
            continue
    return spool


def why_missing(spool: Spool, node: str, part: str) -> str:
    """Return why a part of a node has no answer, one line."""
    torn = spool.torn(node, part)
    reported = " | ".join(spool.messages.get(node, ()))[-_MORE:]
    if node in spool.foreign:
        return f"its lines speak of another node ({spool.foreign[node]} lines were left out)"
    if torn:
        return torn
    if spool.count(node):
        return f"it answered {spool.count(node)} parts and then nothing" + (
            f": {reported}" if reported else ""
        )
    return reported or "nothing came from it"


def answers_of(
    spool: Spool, node: str, parts: Sequence[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what each part answered, as a task returns it, and why some were not begun."""
    answers: dict[str, Any] = {}
    in_the_way: dict[str, str] = {}
    for part in parts:
        answer = spool.answer(node, part)
        if answer is None:
            answers[part] = {"unreachable": True, "msg": why_missing(spool, node, part)}
        elif answer.get("skipped"):
            in_the_way[part] = f"the node was not loaded: {answer.get('why') or 'no reason given'}"
        else:
            answers[part] = answer
    return answers, in_the_way


def result_of(
    spool: Spool,
    node: str,
    asked: Mapping[str, str],
    nothing: Mapping[str, str],
    at: str,
    level: str,
) -> tuple[dict[str, Any], list[Any]]:
    """Return the folded answer of a node, and the readings of its links."""
    parts = [part for part, why in asked.items() if not why]
    answers, in_the_way = answers_of(spool, node, parts)
    result = fold(node, asked, answers, at, in_the_way, nothing, level)
    return result, answers.get("ib_health", {}).get("links") or []
