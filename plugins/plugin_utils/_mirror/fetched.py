# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the roles of a host would fetch: their own tasks, read without the host.

The tasks that install or fetch (`FETCHING`) are templated with the inventory, the plan's inputs and
the facts of a fresh system, as refusals are. So no package has its name in a second place, and a
task of a role that is not understood is a problem and not a gap.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError

from .._inventory.collect import plain
from .._inventory.templates import has_template, load_templates, templar, trusted
from .._templating.render import rendered
from .assumed import ROWS
from .platforms import Platform
from .redirects import KNOWN

_FILES = "baremetal.dgx.managed_files"
# What a role calls to get something onto the node from elsewhere, and the method that reads it.
FETCHING = {
    "ansible.builtin.apt": "_packages",
    "ansible.builtin.command": "_command",
    "ansible.builtin.dnf": "_packages",
    "ansible.builtin.get_url": "_download",
    "baremetal.dgx.enroot_images": "_images",
    "baremetal.dgx.local_repository": "_folder",
    _FILES: "_configuration",
    "baremetal.dgx.system_packages": "_packages",
}
_IMPORTS = ("ansible.builtin.import_tasks", "ansible.builtin.include_tasks")
_ROLES = ("ansible.builtin.import_role", "ansible.builtin.include_role")
# Each role's phases; what is imported is read from there.
_PHASES = ("install", "configure", "service")
# What decides where packages come from. The proxy and other settings of a node are its own.
_SOURCES = ("/etc/apt/sources.list", "/etc/apt/preferences.d/", "/etc/apt/keyrings/")
_KEYS = ("/etc/apt/keyrings/", "/usr/share/keyrings/")
_SOURCE_WORDS = ("/etc/apt/", "key_file")
# Of these the role has fetched the packages itself.
FETCHED = "/var/lib/baremetal-dgx/packages/"


@dataclass(frozen=True, order=True)
class Download:
    """A file behind a URL, with its checksum, and which role puts it where."""

    url: str
    sha256: str
    place: str
    role: str

    @property
    def is_key(self) -> bool:
        """Whether it is the key of a repository, which the mirror needs itself."""
        return self.place.startswith(_KEYS)


@dataclass
class Wanted:
    """What one host would fetch."""

    # Each with the roles that ask for it; a name, or NAME=VERSION.
    packages: dict[str, set[str]] = field(default_factory=dict)
    # Sources, pins and keys, by their path on the node.
    files: dict[str, str] = field(default_factory=dict)
    downloads: set[Download] = field(default_factory=set)
    # Folders of packages, the site's or of what is fetched, by what the role makes of them.
    folders: dict[str, dict[str, str]] = field(default_factory=dict)
    images: dict[str, set[str]] = field(default_factory=dict)
    # The inputs that say where something comes from.
    inputs: dict[str, Any] = field(default_factory=dict)
    problems: set[str] = field(default_factory=set)


class UnknownError(Exception):
    """Something that only the node knows."""


class Reader:
    """Reads the tasks of roles."""

    def __init__(self, loader: Any, root: str, defaults: Mapping[str, Any]) -> None:
        self._loader, self._root, self._defaults = loader, root, defaults
        self._templar = templar(loader)
        self._wanted = Wanted()
        self._role = self._phase = ""

    def wanted(
        self,
        roles: Iterable[str],
        variables: Mapping[str, Any],
        inputs: Mapping[str, Any],
        platform: Platform,
    ) -> Wanted:
        """Return what a host with these variables and inputs would fetch."""
        self._wanted = Wanted()
        path, text = platform.sources
        if path:
            self._wanted.files[path] = text
        scope = {
            **self._defaults,
            **variables,
            **inputs,
            "ansible_facts": platform.facts,
            "ansible_check_mode": False,
        }
        for name in KNOWN:
            try:
                self._wanted.inputs[name] = self._ask(scope, name)
            except UnknownError:
                # No role of the host has it, or a fact decides.
                continue
        for role in roles:
            if not os.path.isdir(os.path.join(self._root, "roles", role)):
                continue
            self._role = role
            here = self._scope(role, scope, platform)
            for self._phase in _PHASES:
                self._file(role, self._phase, here, platform)
        return self._wanted

    def _scope(self, role: str, scope: Mapping[str, Any], platform: Platform) -> dict[str, Any]:
        """Return the scope with the variables of a role, and what it would learn on the node."""
        own = dict(scope)
        for name in ("main", platform.facts["os_family"]):
            path = ("roles", role, "vars", f"{name}.yml")
            own.update(load_templates(self._loader, self._root, *path))
        own["role_path"] = os.path.join(self._root, "roles", role)
        if role in ROWS:
            try:
                own.update(ROWS[role](lambda name: self._ask(own, name), platform))
            except UnknownError as error:
                self._problem(f"{role}: {error}")
            except ValueError as error:
                self._problem(f"{role}: {error}")
        return own

    def _ask(self, scope: Mapping[str, Any], name: str) -> Any:
        return self._value(trusted("{{ " + name + " }}"), scope)

    def _value(self, value: Any, scope: Mapping[str, Any]) -> Any:
        self._templar.available_variables = dict(scope)
        try:
            return plain(self._templar.template(value), open_vault=False)
        except AnsibleError as error:
            raise UnknownError(" ".join(str(error).split())[:200]) from error

    def _is_off(self, conditions: Any, scope: Mapping[str, Any]) -> bool:
        """Whether a condition is false. One that only the node knows counts as true."""
        for one in conditions if isinstance(conditions, list) else [conditions]:
            if isinstance(one, bool):
                text: Any = one
            else:
                text = one if has_template(one) else trusted("{{ " + str(one) + " }}")
            try:
                if not self._value(text, scope):
                    return True
            except UnknownError:
                continue
        return False

    def _file(self, role: str, name: str, scope: Mapping[str, Any], platform: Platform) -> None:
        tasks = load_templates(self._loader, self._root, "roles", role, "tasks", f"{name}.yml")
        self._tasks(tasks or [], role, scope, platform)

    def _tasks(
        self,
        tasks: Iterable[Mapping[str, Any]],
        role: str,
        scope: Mapping[str, Any],
        platform: Platform,
    ) -> None:
        for task in tasks:
            here = {**scope, **(task.get("vars") or {})}
            if "when" in task and self._is_off(task["when"], here):
                continue
            self._tasks(task.get("block") or [], role, here, platform)
            for key in _IMPORTS:
                if key in task:
                    called = task[key]
                    name = str(called["file"] if isinstance(called, Mapping) else called)
                    self._file(role, name.removesuffix(".yml"), here, platform)
            for key in _ROLES:
                if key in task:
                    other = str(task[key]["name"]).rpartition(".")[2]
                    below = {**self._scope(other, here, platform), **(task.get("vars") or {})}
                    self._file(other, str(task[key].get("tasks_from", "main")), below, platform)
            for key in FETCHING.keys() & task.keys():
                # Other files may hold secrets, which nothing here makes.
                if key != _FILES or self._says_sources(task):
                    self._read(task, key, here)

    def _says_sources(self, task: Mapping[str, Any]) -> bool:
        return self._phase == "install" and any(word in str(task) for word in _SOURCE_WORDS)

    def _read(self, task: Mapping[str, Any], module: str, scope: Mapping[str, Any]) -> None:
        try:
            for one in self._each(task, scope):
                getattr(self, FETCHING[module])(task[module], one)
        except UnknownError as error:
            self._problem(f"{self._role}: '{task.get('name')}' fetches what is not known: {error}")

    def _each(
        self, task: Mapping[str, Any], scope: Mapping[str, Any]
    ) -> Iterable[Mapping[str, Any]]:
        if "loop" not in task:
            return [scope]
        name = (task.get("loop_control") or {}).get("loop_var", "item")
        return [{**scope, name: item} for item in self._value(task["loop"], scope)]

    def _problem(self, line: str) -> None:
        self._wanted.problems.add(line)

    def _packages(self, arguments: Mapping[str, Any], scope: Mapping[str, Any]) -> None:
        for name in self._value(arguments.get("present", arguments.get("name", [])), scope):
            self._wanted.packages.setdefault(str(name), set()).add(self._role)

    def _download(self, arguments: Mapping[str, Any], scope: Mapping[str, Any]) -> None:
        found = self._value({key: arguments[key] for key in ("url", "dest", "checksum")}, scope)
        sha256 = str(found["checksum"]).removeprefix("sha256:")
        self._wanted.downloads.add(Download(found["url"], sha256, found["dest"], self._role))

    def _folder(self, arguments: Mapping[str, Any], scope: Mapping[str, Any]) -> None:
        found = self._value(dict(arguments), scope)
        self._wanted.folders[found["destination"]] = {
            key: found.get(key, "") for key in ("path", "sha256", "manifest")
        } | {"role": self._role}

    def _images(self, arguments: Mapping[str, Any], scope: Mapping[str, Any]) -> None:
        for image in self._value(arguments["images"], scope):
            self._wanted.images.setdefault(image["uri"], set()).add(self._role)

    def _command(self, arguments: Any, scope: Mapping[str, Any]) -> None:
        """Of commands, `podman pull` alone gets something from elsewhere."""
        words = arguments.get("argv") if isinstance(arguments, Mapping) else None
        if isinstance(words, list) and "pull" in words:
            image = self._value(words[-1], scope)
            self._wanted.images.setdefault(f"docker://{image}", set()).add(self._role)

    def _configuration(self, arguments: Mapping[str, Any], scope: Mapping[str, Any]) -> None:
        """Of files, those that say where packages come from."""
        for one in self._value(arguments["files"], scope):
            path = str(one.get("path", ""))
            if not path.startswith((*_SOURCES, *_KEYS)):
                continue
            if one.get("state", "file") == "absent":
                self._wanted.files.pop(path, None)
            elif "template" in one:
                self._wanted.files[path] = self._rendered(str(one["template"]), scope)
            else:
                self._wanted.files[path] = str(one.get("content", ""))

    def _rendered(self, name: str, scope: Mapping[str, Any]) -> str:
        path = os.path.join(str(scope["role_path"]), "templates", name)
        text = Path(path).read_text(encoding="utf-8")
        try:
            return rendered(self._templar, text, path, scope, [os.path.dirname(path)])
        except AnsibleError as error:
            raise UnknownError(" ".join(str(error).split())[:200]) from error
