# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Finds group_vars of a group that the inventory does not have: Ansible never reads them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator

from ...module_utils._core.schema import Problem, closest
from .._contract.contract import CLUSTER_GROUP, GROUPS

_FORMS = ("", ".yml", ".yaml", ".json")


def find_orphans(sources: Iterable[str], groups: Collection[str]) -> Iterator[Problem]:
    """Yield files and folders that a misspelt group is the name of.

    Other names are left alone: several inventories may share a folder.
    """
    known = {*groups, *GROUPS, CLUSTER_GROUP, "all", "ungrouped"}
    seen: set[str] = set()
    for source in sources:
        beside = source if os.path.isdir(source) else os.path.dirname(source)
        folder = os.path.join(beside, "group_vars")
        if folder in seen or not os.path.isdir(folder):
            continue
        seen.add(folder)
        for name in sorted(os.listdir(folder)):
            group, form = os.path.splitext(name)
            near = closest(group, known, 0.8)
            if form in _FORMS and not name.startswith(".") and group not in known and near:
                wrong = f"no group is called '{group}', and this is never read"
                yield Problem(f"group_vars/{name}", wrong, f"write {near}{form}")
