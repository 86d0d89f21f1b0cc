# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the tasks of validate_nodes ask of a host, for the program of a node.

The tasks of playbooks/tasks/validate_PART.yml are the only place that says which options a check
gets: they are read here and templated for each host, as Ansible would, and completed by the
argument spec of their module.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from .._inventory.templates import load_templates, templar
from .levels import PARTS, dcgm_limit

_OURS = "baremetal.dgx."
_BLOCK, _DEFAULTS = "block", "module_defaults"
# The seconds that a part takes at most beside what its options say, checks that hang included.
_SPARE_S = 300.0


def module_tasks(
    tasks: Any, defaults: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the modules of the collection that the tasks call, with their options."""
    for task in tasks or ():
        given = {**(defaults or {}), **(task.get(_DEFAULTS) or {})}
        if _BLOCK in task:
            yield from module_tasks(task[_BLOCK], given)
        for name in task:
            if name.startswith(_OURS):
                yield name.removeprefix(_OURS), {**(given.get(name) or {}), **(task[name] or {})}


@functools.cache
def _validator(module: str) -> ArgumentSpecValidator:
    found = importlib.import_module(f"ansible_collections.baremetal.dgx.plugins.modules.{module}")
    return ArgumentSpecValidator(found.ARGUMENT_SPEC)


def completed(module: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a module with its defaults; ValueError for what it does not take."""
    checked = _validator(module).validate(json.loads(json.dumps(options, default=str)))
    if checked.error_messages:
        raise ValueError(f"{module}: {'; '.join(checked.error_messages)}")
    return dict(checked.validated_parameters)


def limit_of(part: str, calls: list[dict[str, Any]]) -> float:
    """Return the seconds after which a part is given up."""
    options = calls[-1]["options"]
    if part == "ib_health":
        return _SPARE_S + 2 * options["timeout_s"] * len(options["rails"])
    if part == "canary":
        return _SPARE_S + sum(one["limit_s"] for one in options["mounts"])
    if part == "cpu_memory":
        return _SPARE_S + 2 * options["seconds"]
    if part == "dcgm":
        return _SPARE_S + dcgm_limit(options["level"], options["timeout_s"])
    if part == "burn":
        return _SPARE_S + 2 * options["duration_s"] + 600
    if part == "nccl":
        return _SPARE_S + options["timeout_s"]
    if part == "fio":
        return _SPARE_S + 12 * options["seconds"]
    return _SPARE_S


class Reader:
    """Reads the tasks once, and templates them for one host after the other."""

    def __init__(self, loader: Any, root: str) -> None:
        self._templar = templar(loader)
        self._tasks = {
            part: list(
                module_tasks(
                    load_templates(loader, root, "playbooks", "tasks", f"validate_{part}.yml")
                )
            )
            for part in PARTS
        }

    def parts(
        self, wanted: list[str], variables: Mapping[str, Any], omit: Any
    ) -> list[dict[str, Any]]:
        """Return the wanted parts for a host with these variables; AnsibleError, ValueError."""
        self._templar.available_variables = dict(variables)
        found = []
        for part in wanted:
            calls = []
            for module, options in self._tasks[part]:
                given = self._templar.template(options)
                given = {
                    key: value
                    for key, value in given.items()
                    if value is not omit and value != omit and value is not None
                }
                calls.append({"module": module, "options": completed(module, given)})
            limit_s = limit_of(part, calls)
            found.append(
                {"name": part, "loads": PARTS[part].loads, "limit_s": limit_s, "calls": calls}
            )
        return found

    def value(self, value: Any, variables: Mapping[str, Any]) -> Any:
        """Return a value with its templates filled in; AnsibleError."""
        self._templar.available_variables = dict(variables)
        return self._templar.template(value)
