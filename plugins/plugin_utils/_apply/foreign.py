# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the tasks of a role call, and whether they need another host: a list would soon be wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from .._inventory.templates import load_templates

_FILES = ("ansible.builtin.import_tasks", "ansible.builtin.include_tasks")
_ROLES = ("ansible.builtin.import_role", "ansible.builtin.include_role")
_BLOCKS = ("block", "rescue", "always")
# With it the control machine proves that it still reaches the host. A node cannot do that.
_FROM_OUTSIDE = "ansible.builtin.wait_for_connection"


class Foreign:
    """Reads the tasks of roles."""

    def __init__(self, loader: Any, root: str) -> None:
        self._loader, self._root = loader, root
        self._known: dict[str, tuple[list[str], frozenset[str]]] = {}

    def why(self, role: str) -> str:
        """Return what in the role needs another host, one line; empty if nothing does."""
        return next(iter(self._read(role)[0]), "")

    def called(self, role: str) -> frozenset[str]:
        """Return the roles whose tasks it runs, itself included: it needs their inputs, too."""
        return self._read(role)[1]

    def _read(self, role: str) -> tuple[list[str], frozenset[str]]:
        if role not in self._known:
            seen: set[tuple[str, str]] = set()
            found = list(self._file(role, "main", seen))
            self._known[role] = (found, frozenset(name for name, _file in seen))
        return self._known[role]

    def _file(self, role: str, name: str, seen: set[tuple[str, str]]) -> Iterator[str]:
        if (role, name) in seen:
            return
        seen.add((role, name))
        parts = ("roles", role, "tasks", f"{name}.yml")
        tasks = load_templates(self._loader, self._root, *parts) or []
        for task in tasks:
            yield from self._task(task, role, f"{role}/tasks/{name}.yml", seen)

    def _task(
        self, task: Mapping[str, Any], role: str, place: str, seen: set[tuple[str, str]]
    ) -> Iterator[str]:
        if "delegate_to" in task:
            yield f"{place}: '{task.get('name')}' runs on another host"
        if task.get("run_once"):
            yield f"{place}: '{task.get('name')}' runs once for all hosts"
        if _FROM_OUTSIDE in task:
            yield f"{place}: '{task.get('name')}' asks from the control machine"
        for key in _BLOCKS:
            for one in task.get(key) or ():
                yield from self._task(one, role, place, seen)
        for key in _FILES:
            if key in task:
                called = task[key]
                file = str(called["file"] if isinstance(called, Mapping) else called)
                yield from self._file(role, os.path.splitext(file)[0], seen)
        for key in _ROLES:
            if key in task:
                other = str(task[key]["name"]).rpartition(".")[2]
                yield from self._file(other, str(task[key].get("tasks_from", "main")), seen)
