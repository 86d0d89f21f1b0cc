# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The files of a plan, made from the inventory of the running process."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...module_utils._core.files import Folder, open_folder, text_if_there
from .._cables.files import FILES, cable_counts, cable_line, fabric_files
from .._inventory.collect import collect
from .._inventory.refusals import Refusals
from .._inventory.role_specs import collection_root, load_roles
from .._inventory.run_plan import folder_to_write, planned_by, shared_folder
from .._plan.cabling_files import find_cables
from .._plan.plan import make_plan
from .._plan.report import hosts_text, node_texts, report, summary
from .host import Site
from .role_inputs import role_inputs


class InventoryError(Exception):
    """What is wrong with the inventory, a line for each mistake, and what is only odd."""

    def __init__(self, lines: Iterable[str], warnings: Iterable[str] = ()) -> None:
        self.lines, self.warnings = tuple(lines), tuple(warnings)
        count = len(self.lines)
        super().__init__(
            f"{count} mistake{'s' * (count > 1)} in the inventory; no host was touched"
        )


class StateError(Exception):
    """Where the plan would go is unknown, or another user's or cluster's."""


@dataclass(frozen=True)
class PlanFiles:
    """Where the plan is, whether anything in it is new, and what there is to say about it."""

    folder: str
    changed: bool
    warnings: tuple[str, ...]
    summary: dict[str, Any]
    report: list[str]


def write_texts(folder: str, texts: dict[str, str], ours: Iterable[str] | None = None) -> bool:
    """Write each text that differs and remove the other files: all, or only those of `ours`."""
    with open_folder(folder, make=0o755) as here:
        changed = []
        for name, text in texts.items():
            data = text.encode()
            if not _holds(here, name, data):
                # No secrets, and each playbook writes it again: no waiting for the disk.
                here.write(name, data, sync=False)
                changed.append(name)
        there = here.names()
        stale = set(there if ours is None else ours).intersection(there) - set(texts)
        for name in stale:
            here.remove(name)
    return bool(changed or stale)


def _holds(folder: Folder, name: str, data: bytes) -> bool:
    try:
        same_size = folder.lstat(name).st_size == len(data)
    except FileNotFoundError:
        return False
    return same_size and folder.read(name, len(data)) == data


def _state_refusal(state_dir: str) -> str:
    """Return why the state cannot be this user's: the secrets in it are its owner's alone."""
    mine = os.geteuid()
    if mine == 0 or not os.path.isdir(state_dir):
        return ""
    with os.scandir(state_dir) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            owner = entry.stat(follow_symlinks=False).st_uid
            if owner != mine:
                return (
                    f"{entry.path}: belongs to {_user(owner)}, and what is in it may be read or "
                    f"changed by that user alone; run as that user, or give all of {state_dir} to "
                    f"{_user(mine)}"
                )
    return ""


def _cluster_refusal(state_dir: str, name: str) -> str:
    """Return why the state cannot be this cluster's, whose name the first run notes there."""
    path = os.path.join(state_dir, "cluster_name")
    noted = (text_if_there(path) or "").strip()
    if not noted:
        with open_folder(state_dir, make=0o755) as folder:
            folder.write("cluster_name", f"{name}\n")
    if noted in ("", name):
        return ""
    return (
        f"all.cluster_name: {name}, but {state_dir} has the secrets and the measurements of the "
        f"cluster {noted}; put this inventory into another folder, or write cluster_state_dir in "
        f"it; if {noted} is now called {name}, remove {path}"
    )


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def write_plan(loader: Any, inventory: Any, manager: Any, state_dir: str | None) -> PlanFiles:
    """Write the plan of the inventory as it is now; InventoryError, StateError.

    In check mode too: it is a copy of the inventory beside it, and later tasks read it.
    """
    root = collection_root()
    roles = load_roles(root)
    found = collect(loader, inventory, manager, roles, root)
    plan = make_plan(found, roles, Refusals(loader, roles, root).find)
    if plan.data is None:
        raise InventoryError(plan.problems, plan.warnings)
    cabling = find_cables(plan.data, found.directory)
    warnings = (*plan.warnings, *cabling.warnings)
    if cabling.plan is None:
        raise InventoryError(cabling.problems, warnings)
    state_dir = state_dir or plan.state_dir
    if not state_dir:
        raise StateError(
            "all.cluster_state_dir: missing, and the inventory is not a file; write its path"
        )
    foreign = _state_refusal(state_dir)
    if foreign:
        raise StateError(foreign)
    fabric = fabric_files(cabling.plan, plan.data)
    inputs, problems = role_inputs(Site(plan.data, found, roles, frozenset(fabric)))
    if problems:
        raise InventoryError(problems, warnings)
    foreign = _cluster_refusal(state_dir, plan.data["cluster"]["name"])
    if foreign:
        raise StateError(foreign)
    extra = manager.extra_vars
    folder = folder_to_write(state_dir, extra, roles, found.names)
    changed = any(
        [
            write_texts(
                folder, {"plan.json": plan.plan_text(), "hosts": hosts_text(plan.data)}, ()
            ),
            write_texts(
                os.path.join(folder, "nodes"),
                {f"{name}.json": text for name, text in node_texts(plan.data).items()},
            ),
            write_texts(
                os.path.join(folder, "inputs"),
                {f"{name}.json": text for name, text in inputs.items()},
            ),
            write_texts(os.path.join(folder, "fabric"), fabric, FILES),
        ]
    )
    lines = [cable_line(cabling.plan)] if cabling.plan.switches else []
    if folder != shared_folder(state_dir):
        by = ", ".join(planned_by(extra, roles, found.names))
        lines.append(f"a plan for this run, with -e {by}: {folder}")
    return PlanFiles(
        folder,
        changed,
        warnings,
        {**summary(plan.data), "cables": cable_counts(cabling.plan)},
        [*report(plan.data), *lines],
    )
