# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Finds group_vars and host_vars of what the inventory does not have: Ansible never reads them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator

from ...module_utils._core.schema import Problem, closest
from .._contract.contract import CLUSTER_GROUP, GROUPS

_FORMS = ("", ".yml", ".yaml", ".json")


def find_orphans(
    sources: Iterable[str], groups: Collection[str], hosts: Collection[str]
) -> Iterator[Problem]:
    """Yield files and folders that no group, or no host, is the name of.

    Beside a single file, names that are not like a known one are left alone: several inventories
    may share that folder.
    """
    known_groups = {*groups, *GROUPS, CLUSTER_GROUP, "all", "ungrouped"}
    seen: set[str] = set()
    for source in sources:
        shared = not os.path.isdir(source)
        beside = os.path.dirname(source) if shared else source
        for top, kind, known in (
            ("group_vars", "group", known_groups),
            ("host_vars", "host", {*hosts, "localhost"}),
        ):
            folder = os.path.join(beside, top)
            if folder in seen or not os.path.isdir(folder):
                continue
            seen.add(folder)
            for name in sorted(os.listdir(folder)):
                # A host's full name has dots.
                owner, form = (name, "") if name in known else os.path.splitext(name)
                near = closest(owner, known, 0.8)
                strange = form in _FORMS and not name.startswith(".") and owner not in known
                if strange and (near or not shared):
                    wrong = f"no {kind} is called '{owner}', and this is never read"
                    remedy = f"write {near}{form}" if near else "remove it, or add the " + kind
                    yield Problem(f"{top}/{name}", wrong, remedy)
