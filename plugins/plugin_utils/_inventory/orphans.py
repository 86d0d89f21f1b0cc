# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Finds group_vars and host_vars that Ansible never reads.

They are of what the inventory does not have, or beside others of the same group or host: Ansible
reads the first that is there of a folder NAME or a file NAME, NAME.yml, NAME.yaml and NAME.json.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator

from ...module_utils._core.schema import Problem, closest
from .._contract.contract import CLUSTER_GROUP, GROUPS
from .files import FORMS


def find_orphans(
    sources: Iterable[str], groups: Collection[str], hosts: Collection[str]
) -> Iterator[Problem]:
    """Yield files and folders that no group, or no host, is the name of, or that another covers.

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
            names = sorted(os.listdir(folder))
            for name in names:
                # A host's full name has dots.
                owner, form = (name, "") if name in known else os.path.splitext(name)
                if owner in known and form in FORMS:
                    first = min((f for f in FORMS if owner + f in names), key=FORMS.index)
                    if form != first and os.path.isdir(os.path.join(folder, owner + first)):
                        yield _covered(f"{top}/{owner}", form)
                    elif form != first:
                        wrong = f"is not read beside {owner}{first}"
                        yield Problem(f"{top}/{name}", wrong, "write both into one file")
                near = closest(owner, known, 0.8)
                strange = form in FORMS and not name.startswith(".") and owner not in known
                if strange and (near or not shared):
                    wrong = f"no {kind} is called '{owner}', and this is never read"
                    remedy = f"write {near}{form}" if near else "remove it, or add the " + kind
                    yield Problem(f"{top}/{name}", wrong, remedy)


def find_covered(sources: Iterable[str], paths: Iterable[str]) -> Iterator[Problem]:
    """Yield the files of an inventory that are not read any more once `paths` are in it.

    paths are relative: group_vars/NAME/FILE, host_vars/NAME/FILE.
    """
    above = {source if os.path.isdir(source) else os.path.dirname(source) for source in sources}
    for place in sorted({os.path.dirname(path) for path in paths}):
        for form in FORMS:
            if any(os.path.isfile(os.path.join(one, place + form)) for one in above):
                yield _covered(place, form)


def _covered(place: str, form: str) -> Problem:
    """Return that a file is not read beside the folder of the same name."""
    owner = os.path.basename(place)
    return Problem(
        place + form,
        f"is not read beside a folder {owner}/",
        f"move it to {place}/{owner}{form or '.yml'}",
    )
