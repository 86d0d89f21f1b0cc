# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asks of the inventory what the roles refuse in their preflight, by the lines of the roles.

A role keeps its refusals in the task "Refuse what cannot succeed": each is a condition (`when`) and
what the operator reads (`say`). The same templates are evaluated here. One that needs a fact, a
secret, what the plan gives, or what a task has registered is undefined here and waits for the host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible.errors import AnsibleError

from ...module_utils._core.schema import Problem, RoleSpec
from .._contract.contract import GROUPS
from .role_specs import load_defaults
from .templates import has_template, load_templates, templar, texts, trusted
from .values import Value, is_hidden

Variables = Mapping[str, Mapping[str, Value]]

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LINE = re.compile(r"(?P<name>[a-z0-9_]+)(?P<rest>[^ :]*): (?P<wrong>.*?)(?:; (?P<remedy>.*))?")
_SUFFIX = "_refusals"


@dataclass(frozen=True)
class _Refusal:
    """One condition of a role, and all names that it refers to, directly or not."""

    when: str
    say: str
    # Conditions of the task that asks it.
    switches: tuple[str, ...]
    scope: Mapping[str, Any]
    names: frozenset[str]


def _condition(text: Any) -> Any:
    return text if has_template(text) else trusted("{{ " + str(text) + " }}")


def _texts(value: Any) -> Iterator[str]:
    return map(str.__str__, texts(value))


def _names(value: Any, scopes: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return all words in the templates of the value, and in those that they refer to."""
    found: set[str] = set()
    waiting = list(_texts(value))
    while waiting:
        for name in set(_WORD.findall(waiting.pop())) - found:
            found.add(name)
            for scope in scopes:
                waiting.extend(_texts(scope.get(name)))
    return frozenset(found)


class Refusals:
    """What the roles refuse; hosts with the same values are one."""

    def __init__(self, loader: Any, roles: Mapping[str, RoleSpec], root: str) -> None:
        self._loader, self._roles, self._root = loader, roles, root
        self._templar = templar(loader)
        wired = {name for role in roles.values() for name in role.wired}
        defaults = load_defaults(root, roles, loader)
        self._defaults = {name: defaults[name] for name in defaults if name not in wired}
        # What the plan gives is known only where the inventory's own value wins.
        self._given = wired - {name for role in roles.values() for name in role.received}
        self._messages: dict[tuple[Any, ...], tuple[Any, str]] = {}

    def find(
        self,
        written: Variables,
        valid: Variables,
        groups: Mapping[str, tuple[str, ...]],
    ) -> set[Problem]:
        """Return what the roles refuse on their hosts.

        `valid` are the written variables without mistakes, `groups` the hosts of each group.
        """
        set_here = {name for host in written for name in written[host]}
        problems: set[Problem] = set()
        for name, role in self._roles.items():
            # A role that other tasks import has no own play.
            members = {host for group in role.groups for host in groups.get(group, ())}
            members = members & valid.keys() if role.groups else set(valid)
            if not members or set_here.isdisjoint(role.options):
                continue
            refusals = [one for one in self._load(name) if not one.names.isdisjoint(set_here)]
            names = frozenset().union(*(one.names for one in refusals))
            group = role.groups[0] if len(role.groups) == 1 and role.groups[0] in GROUPS else "all"
            for known, unknown in self._alike(members, names, written, valid):
                for refusal in refusals:
                    line = self._ask(refusal, known, unknown)
                    if line:
                        problems.add(_problem(line, group, known))
        return problems

    def _load(self, role: str) -> list[_Refusal]:
        scope = dict(load_templates(self._loader, self._root, "roles", role, "vars", "main.yml"))
        found: list[_Refusal] = []
        path = ("roles", role, "tasks", "preflight.yml")
        for task in load_templates(self._loader, self._root, *path) or []:
            values = task.get("vars") or {}
            lists = [values[key] for key in values if key.endswith(_SUFFIX)]
            when = task.get("when") or []
            switches = tuple(when if isinstance(when, list) else [when])
            here = {**scope, **{key: values[key] for key in values if not key.endswith(_SUFFIX)}}
            below = (task.get("ansible.builtin.import_role") or {}).get("name")
            asked = [
                (item["when"], item["say"], switches, here)
                for one in lists
                for item in one
                if isinstance(one, list)
            ]
            if lists and below:
                # The shared role asks these beside its own, under its own conditions.
                shared = self._load(below.rpartition(".")[2])
                asked = [
                    (*item[:2], shared[0].switches, {**shared[0].scope, **here}) for item in asked
                ]
                asked += [
                    (one.when, one.say, one.switches, {**one.scope, **here}) for one in shared
                ]
            for item in asked:
                found.append(_Refusal(*item, _names(item[:3], (item[3], self._defaults))))
        return found

    def _alike(
        self, members: Iterable[str], names: frozenset[str], written: Variables, valid: Variables
    ) -> Iterator[tuple[dict[str, Value], frozenset[str]]]:
        """Yield what is known, and which names are not, once for hosts that do not differ."""
        seen: set[Any] = set()
        for host in members:
            values = [(name, value) for name, value in valid[host].items() if name in names]
            unsound = names.intersection(written[host].keys() - valid[host].keys())
            key = (frozenset((name, id(value.value)) for name, value in values), unsound)
            if key in seen:
                continue
            seen.add(key)
            known = {
                name: value
                for name, value in values
                if name not in self._given and not is_hidden(value.value)
            }
            yield known, names.intersection(written[host].keys() - known.keys())

    def _ask(self, refusal: _Refusal, values: Mapping[str, Value], unknown: frozenset[str]) -> str:
        """Return what the role says to these values; nothing if they are not of its matter."""
        known = {name: value.value for name, value in values.items() if name in refusal.names}
        if not known:
            return ""
        key = (id(refusal), unknown, *sorted((name, id(value)) for name, value in known.items()))
        if key not in self._messages:
            # What ids stand for is kept, so that nothing else can get them.
            self._messages[key] = ((refusal, known), self._say(refusal, known, unknown))
        return self._messages[key][1]

    def _say(self, refusal: _Refusal, known: Mapping[str, Any], unknown: frozenset[str]) -> str:
        scope = {name: value for name, value in self._defaults.items() if name not in unknown}
        self._templar.available_variables = {**scope, **known, **refusal.scope}
        try:
            for condition in (*refusal.switches, refusal.when):
                if not self._templar.template(_condition(condition)):
                    return ""
            return " ".join(str(self._templar.template(refusal.say)).split())
        except AnsibleError:
            # What it needs is known on the host only.
            return ""


def _problem(line: str, group: str, known: Mapping[str, Value]) -> Problem:
    found = _LINE.fullmatch(line)
    if found is None:
        return Problem(group, line, "")
    name = found.group("name")
    path = known[name].path if name in known else f"{group}.{name}"
    return Problem(path + found.group("rest"), found.group("wrong"), found.group("remedy") or "")
