# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The finished values of one host: what a node gets to apply its own roles.

Everything is templated here, so that a node needs neither the inventory nor another host. It gets
the inputs of the roles that it runs and nothing else: no variable of another role, and no secret
that its roles would not leave there anyway.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible.errors import AnsibleError

from ...module_utils._core.schema import RoleSpec
from ...module_utils._local.apply import FOLDER, STATE
from .._inventory.collect import plain
from .._inventory.templates import has_template, is_like_template, load_templates, templar
from .foreign import Foreign

# Beside inputs of roles: what the tasks of apply_roles read, and whom slurm_compute lets in.
_ALSO = ("__storage_users", "node_base_home_mode", "ansible_user")
# A secret that is used only where the switch is on.
_SWITCHES = {"slurm_base_jwt_key": "slurm_base_jwt"}
_MOST_BYTES = 4 * 1024 * 1024


class ValuesError(Exception):
    """A value that only another host, or a fact, can make; `str` is one line."""


def _encoded(value: Any) -> str:
    """Return the value as YAML in JSON's form; text that looks like a template stays text."""
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return f"!unsafe {text}" if is_like_template(value) else text
    if isinstance(value, Mapping):
        inside = (f"{json.dumps(str(key))}: {_encoded(item)}" for key, item in value.items())
        return "{%s}" % ", ".join(inside)
    if isinstance(value, (list, tuple)):
        return "[%s]" % ", ".join(map(_encoded, value))
    return json.dumps(value)


class Values:
    """Makes them, host by host."""

    def __init__(
        self, loader: Any, root: str, roles: Mapping[str, RoleSpec], state: str, plan: str
    ) -> None:
        self._loader, self._root, self._roles = loader, root, roles
        self._foreign = Foreign(loader, root)
        # Where the control machine keeps the cluster's state, and the plan of this run.
        self._state, self._plan = state.rstrip("/"), plan.rstrip("/")
        self._templar = templar(loader)
        self._common = load_templates(loader, root, "playbooks", "vars", "cluster.yml")

    def blob(self, host: str, variables: Mapping[str, Any], applied: Iterable[str]) -> bytes:
        """Return what is sent to the host; ValuesError.

        `variables` are those that Ansible has for it, `applied` the roles.
        """
        inputs = load_templates(self._loader, self._plan, "inputs", f"{host}.json")
        # As for a run that is limited to this host.
        scope = {**variables, **self._common, **inputs, "ansible_play_hosts": [host]}
        applied = list(applied)
        files: dict[str, str] = {}
        found = {
            name: self._here(name, value, files)
            for name, value in self._found(host, scope, applied).items()
        }
        found |= {
            "__apply_roles": applied,
            "__apply_hosts_file": self._here("", os.path.join(self._plan, "hosts"), files),
            "ansible_connection": "local",
        }
        # A template, and the only one: Ansible must not look for another Python.
        lines = [f"{json.dumps(name)}: {_encoded(value)}" for name, value in sorted(found.items())]
        lines.append('"ansible_python_interpreter": "{{ ansible_playbook_python }}"')
        text = '{"all": {"hosts": {%s: {\n%s\n}}}}\n' % (json.dumps(host), ",\n".join(lines))
        return json.dumps({"inventory": text, "files": files}, ensure_ascii=False).encode()

    def _found(self, host: str, scope: Mapping[str, Any], applied: Iterable[str]) -> dict[str, Any]:
        self._templar.available_variables = dict(scope)
        found = {name: self._value(host, name, scope[name]) for name in _ALSO if name in scope}
        # An internal role has no inputs but those that it is called with.
        called = frozenset().union(*map(self._foreign.called, applied)) & self._roles.keys()
        for role in sorted(called):
            made = self._generated(role)
            for name in self._roles[role].options:
                value = scope.get(name, made.get(name))
                switch = _SWITCHES.get(name)
                if switch and not self._value(host, switch, scope.get(switch)):
                    value = ""
                if value is not None:
                    found[name] = self._value(host, name, value)
        if "cephfs_keys" in found:
            used = {mount.get("client") for mount in found.get("cephfs_mounts") or ()}
            keys = found["cephfs_keys"].items()
            found["cephfs_keys"] = {name: key for name, key in keys if name in used}
        return found

    def _generated(self, role: str) -> dict[str, Any]:
        """Return the role's defaults that make a secret, which the control machine keeps."""
        defaults = load_templates(self._loader, self._root, "roles", role, "defaults", "main.yml")
        options = self._roles[role].options
        return {
            name: value
            for name, value in defaults.items()
            if name in options and options[name].no_log and has_template(value)
        }

    def _value(self, host: str, name: str, value: Any) -> Any:
        if has_template(value):
            try:
                value = self._templar.template(value)
            except AnsibleError as error:
                text = " ".join(str(error).split())[:200]
                raise ValuesError(
                    f"{host}: {name} is known only over SSH ({text}); write the value itself, or "
                    "use engine ansible"
                ) from error
        return plain(value, open_vault=True)

    def _here(self, name: str, value: Any, files: dict[str, str]) -> Any:
        """Return the value with the node's paths for those of the plan, whose files are kept."""
        if isinstance(value, Mapping):
            return {key: self._here(name, item, files) for key, item in value.items()}
        if isinstance(value, list):
            return [self._here(name, item, files) for item in value]
        if not isinstance(value, str) or not value.startswith((self._state + "/", self._plan)):
            return value
        if value == self._plan or value.startswith(self._plan + "/"):
            for path in _files_at(value):
                below = "plan" + path[len(self._plan) :]
                files[below] = _text(path)
            return os.path.join(FOLDER, STATE, "plan" + value[len(self._plan) :])
        if os.path.isfile(value):
            raise ValuesError(
                f"{name}: {value} is a file of the control machine; use engine ansible for its role"
            )
        # A folder of the control machine: what is in it comes as a value, or is not for nodes.
        return os.path.join(FOLDER, STATE, value[len(self._state) + 1 :])


def _files_at(path: str) -> Iterator[str]:
    if os.path.isdir(path):
        for name in sorted(os.listdir(path)):
            if os.path.isfile(os.path.join(path, name)):
                yield os.path.join(path, name)
    elif os.path.isfile(path):
        yield path


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as stream:
        text = stream.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValuesError(f"{path}: more than {_MOST_BYTES} bytes; use engine ansible")
    return text
