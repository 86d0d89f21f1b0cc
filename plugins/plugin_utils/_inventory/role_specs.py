# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Reads from the collection's own folder what its roles take and which groups get them."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ...module_utils._core.schema import RoleSpec, role_spec_options
from .given import EXTENDED, GIVEN, YIELDING
from .templates import has_template, load_templates

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# The playbooks' ways to name their groups: `{{ target | default('gpu_nodes:cpu_nodes') }}`, and a
# list of such.
_VALUE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_NAMED = re.compile(r"['\"]([^'\"]*)['\"]")


def collection_root() -> str:
    """Return the folder of the collection that this file belongs to."""
    return str(Path(os.path.abspath(__file__)).parents[3])


def _load(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as stream:
            return yaml.load(stream, Loader=_LOADER)
    except FileNotFoundError:
        return None


def _groups(hosts: Any) -> list[str]:
    text = hosts if isinstance(hosts, str) else ""
    text = _VALUE.sub(lambda value: ":".join(_NAMED.findall(value.group())), text)
    return [group for group in text.split(":") if group.isidentifier()]


def _plays(root: str) -> list[tuple[dict[str, Any], str]]:
    """Return all plays of the collection's playbooks, each with its playbook's folder."""
    plays: list[tuple[dict[str, Any], str]] = []
    for path in sorted(glob.glob(os.path.join(root, "playbooks", "*.yml"))):
        found = _load(path)
        plays.extend((play, os.path.dirname(path)) for play in found or [] if "hosts" in play)
    return plays


def _given(play: dict[str, Any], folder: str) -> dict[str, Any]:
    """Return the variables that the play gives itself, by vars or vars_files."""
    given = dict(play.get("vars") or {})
    for name in play.get("vars_files") or []:
        if isinstance(name, str) and "{{" not in name:
            given.update(_load(os.path.join(folder, name)) or {})
    return given


def load_roles(root: str) -> dict[str, RoleSpec]:
    """Return what each role takes, for which groups the playbooks run it, and what it is given.

    The plan gives most of it, a play some.
    """
    groups: dict[str, dict[str, None]] = {}
    given: dict[str, set[str]] = {}
    # What begins with the inventory's own value, as in hostvars[…].NAME | default(…).
    received: dict[str, set[str]] = {}
    for play, folder in _plays(root):
        for entry in play.get("roles") or []:
            role = entry if isinstance(entry, str) else str(entry.get("role") or entry.get("name"))
            name = role.split(".")[-1]
            groups.setdefault(name, {}).update(dict.fromkeys(_groups(play["hosts"])))
            values = _given(play, folder)
            values.update((entry.get("vars") or {}) if isinstance(entry, dict) else {})
            names = set(values)
            received.setdefault(name, set()).update(n for n in names if f".{n}" in str(values[n]))
            # What only some of the plays give must come from the inventory for the others.
            given[name] = given[name] & names if name in given else names
    roles: dict[str, RoleSpec] = {}
    for path in sorted(glob.glob(os.path.join(root, "roles", "*", "meta", "argument_specs.yml"))):
        name = path.split(os.sep)[-3]
        # An internal role takes its inputs from the role that imports it, never from an inventory.
        if name.startswith("_"):
            continue
        options = role_spec_options(_load(path) or {})
        roles[name] = RoleSpec(
            name=name,
            options=options,
            groups=tuple(groups.get(name, ())),
            wired=frozenset((given.get(name, set()) | GIVEN) & set(options)),
            received=frozenset((received.get(name, set()) | YIELDING | EXTENDED) & set(options)),
        )
    return roles


def load_defaults(root: str, roles: Mapping[str, RoleSpec], loader: Any) -> dict[str, Any]:
    """Return the roles' defaults, so that inventory values that refer to them can be templated.

    A default that generates a secret is left out.
    """
    defaults: dict[str, Any] = {}
    for name, role in roles.items():
        found = load_templates(loader, root, "roles", name, "defaults", "main.yml")
        defaults.update(
            {
                key: value
                for key, value in found.items()
                if key not in role.options
                or not role.options[key].no_log
                or not has_template(value)
            }
        )
    return defaults
