# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts templates and files of the controller into the content of managed_files' entries."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from ansible_collections.baremetal.dgx.plugins.plugin_utils._templating.render import rendered

# What an entry says to this plugin; the module gets the rest, and the content.
OWN = ("when", "template", "source", "vars", "secret")
CONTENTS = ("template", "source", "content", "secret_content")
FOLDERS = {"template": "templates", "source": "files"}


class ActionModule(ActionBase):
    """Has the module write what is rendered and read here."""

    TRANSFERS_FILES = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the module's result; AnsibleActionFail for what cannot be rendered or read."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        if isinstance(arguments.get("files"), list):
            arguments["files"] = self.entries(arguments["files"], task_vars or {})
        result.update(
            self._execute_module(
                module_name="baremetal.dgx.managed_files",
                module_args=arguments,
                task_vars=task_vars,
            )
        )
        return result

    def entries(self, files: list[Any], task_vars: Mapping[str, Any]) -> list[Any]:
        """Return the entries that the module is to get."""
        # What is not a mapping is for the module to refuse.
        return [
            self._entry(entry, task_vars) if isinstance(entry, Mapping) else entry
            for entry in files
            if not isinstance(entry, Mapping) or _is_wanted(entry)
        ]

    def _entry(self, entry: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry with its content."""
        made = {key: value for key, value in entry.items() if key not in OWN}
        path = entry.get("path")
        given = [key for key in CONTENTS if entry.get(key) is not None]
        if not {"template", "source"}.intersection(given):
            return made
        if len(given) > 1:
            raise AnsibleActionFail(f"{path}: has {' and '.join(given)}; give one of them")
        kind = given[0]
        if entry.get("state") == "absent":
            return made
        found = self._found(FOLDERS[kind], entry[kind], path, task_vars)
        text = self._text(found, path)
        if kind == "template":
            try:
                text = rendered(
                    self._templar,
                    text,
                    found,
                    {**task_vars, **(entry.get("vars") or {})},
                    [os.path.dirname(found), self._role_folder("templates", task_vars)],
                )
            except AnsibleError as error:
                raise AnsibleActionFail(f"{path}: {found}: {error}") from error
        made["secret_content" if _truth(entry, "secret", False) else "content"] = text
        return made

    def _role_folder(self, folder: str, task_vars: Mapping[str, Any]) -> str:
        """Return the role's folder of this name; of a play without roles, that of the playbook."""
        above = task_vars.get("role_path") or self._loader.get_basedir()
        return os.path.join(str(above), folder)

    def _found(self, folder: str, name: Any, path: Any, task_vars: Mapping[str, Any]) -> str:
        """Return where the file lies: in the role, or where ansible-core's template would look."""
        place = os.path.join(self._role_folder(folder, task_vars), str(name))
        if os.path.isfile(place):
            return place
        try:
            found: str = self._find_needle(folder, str(name))
        except AnsibleError:
            raise AnsibleActionFail(f"{path}: there is no file {place}") from None
        return found

    def _text(self, found: str, path: Any) -> str:
        """Return what is in a file of the controller, which may be a vaulted one."""
        try:
            with open(self._loader.get_real_file(found), encoding="utf-8", newline="") as stream:
                return stream.read()
        except (OSError, UnicodeDecodeError) as error:
            raise AnsibleActionFail(f"{path}: {found}: {error}") from error


def _is_wanted(entry: Mapping[str, Any]) -> bool:
    return _truth(entry, "when", True)


def _truth(entry: Mapping[str, Any], key: str, default: bool) -> bool:
    """Return the entry's truth value; AnsibleActionFail for what is none."""
    try:
        return bool(boolean(entry.get(key, default)))
    except TypeError:
        raise AnsibleActionFail(
            f"{entry.get('path')}: {key} is {entry[key]!r}; write true or false"
        ) from None
