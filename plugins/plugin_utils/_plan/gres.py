# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Generic resources of nodes, as Slurm writes them and as they are declared. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._core.nodeset import expand, fold

# gpu:h100:4(S:0-1), and (null) for none.
_DETAILS = re.compile(r"\([^()]*\)")
_COUNT = re.compile(r"(\d+)([kmgtp]?)")
_SUFFIXES = "kmgtp"


def totals(text: str) -> Counter[str]:
    """Return name -> count of `gpu:h100:4(S:0),gpu:h100:4(S:1),shard:64`, whatever the type."""
    counts: Counter[str] = Counter()
    for item in filter(None, _DETAILS.sub("", text).lower().split(",")):
        name, *rest = item.split(":")
        count = _COUNT.fullmatch(rest[-1]) if rest else None
        # gres.conf and slurm.conf man pages: without a count there is one.
        power = _SUFFIXES.find(count[2]) + 1 if count and count[2] else 0
        counts[name] += int(count[1]) * 1024**power if count else 1
    return counts


def fewer(
    present: Iterable[str], declared: Iterable[Mapping[str, Any]], nodes: Iterable[str]
) -> list[str]:
    """Return what each of these nodes would lose: `dgx-[01-02] would go from 8 to 4 gpu`.

    present has lines of `NODES GRES`; declared are slurm_config's nodes. ValueError for invalid
    names.
    """
    asked = set(nodes)
    wanted: dict[str, Counter[str]] = {}
    for node in declared:
        counts: Counter[str] = Counter()
        for gres in node.get("gres") or ():
            counts[gres["name"].lower()] += gres["count"]
        wanted.update(dict.fromkeys(expand(node["name"]), counts))
    losses: dict[tuple[str, int, int], list[str]] = {}
    for line in present:
        names, _space, text = line.partition(" ")
        here = [name for name in expand(names) if name in asked and name in wanted]
        for what, count in totals(text.strip()).items():
            for name in here:
                if wanted[name][what] < count:
                    losses.setdefault((what, count, wanted[name][what]), []).append(name)
    return [
        f"{fold(names)} would go from {count} to {left} {what}"
        for (what, count, left), names in losses.items()
    ]
