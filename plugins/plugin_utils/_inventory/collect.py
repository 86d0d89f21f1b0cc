# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Takes the inventory out of the running process: plain values, each with the place it is written.

The running process has vaulted files open, extra variables applied and host ranges expanded; a
separate ansible-inventory process would have none of that, and would cost as much again.
"""

from __future__ import annotations

import functools
import os
import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.inventory.group import Group
from ansible.inventory.helpers import sort_groups
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.loader import connection_loader
from ansible.vars.plugins import get_vars_from_inventory_sources, get_vars_from_path
from jinja2 import Environment, TemplateError, meta

from ...module_utils._core.schema import (
    EXTRA,
    Opaque,
    Option,
    Problem,
    RoleSpec,
    Unresolved,
    check_value,
    typed,
)
from .._contract.contract import CLUSTER_GROUP, GROUPS, VARIABLES
from .files import find_clear_texts, find_duplicates, find_unparsed, find_unreadable, read_files
from .given import READ
from .hosts import concerned, host_path, known_hosts
from .orphans import find_orphans
from .role_specs import load_defaults
from .secrets import hides, secret_options
from .templates import has_template, templar, texts
from .values import Inventory, Value, is_hidden, node_address, parse_address

_STATE = "cluster_state_dir"
_FIRST = "node_first_address"
_BECOME = "ansible_become"
# Of the variables of Ansible's plugin ssh the last wins, as in way.py.
_SSH = ("connection", "ssh")
# What leads from one address to several machines: a port, a proxy, a gateway that asks for a login.
_WAYS = (
    "port", "private_key_file", "remote_user", "ssh_args", "ssh_common_args", "ssh_executable",
    "ssh_extra_args",
)  # fmt: skip

_UNDEFINED = re.compile(r"'([^']+)' is undefined")
_NO_ATTRIBUTE = re.compile(r"has no attribute '([^']+)'")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# The template of ansible_host that docs/inventory.md and the examples have.
_ADDRESS = re.compile(
    r"{{(?P<name>inventory_hostname(?:_short)?)\|baremetal\.dgx\.node_address\("
    r"node_first_address\|default\({}\),node_address\|default\({}\),"
    r"cluster_access_network\|default\('management'\)"
    r"(?P<number>,node_number\|default\(none\))?\)}}"
)

# What is not known before a host is asked, or before a task has run there.
_FACTS = re.compile(r"ansible_(?!host\b|user\b|port\b|connection\b|inventory_sources\b).*")

# Names through which a template reaches variables that its text does not name.
_REACHING = frozenset({"lookup", "query", "q", "vars", "varnames", "hostvars", "now", "undef"})


def _is_vaulted(value: Any) -> bool:
    # AnsibleVaultEncryptedUnicode up to ansible-core 2.18, EncryptedString from 2.19 on.
    return type(value).__name__ in ("AnsibleVaultEncryptedUnicode", "EncryptedString")


def plain(value: Any, open_vault: bool) -> Any:
    """Return the value without Ansible's own types; a vaulted one stays closed unless needed."""
    if _is_vaulted(value):
        return str(value) if open_vault else Opaque()
    if isinstance(value, Mapping):
        return {
            int(key) if isinstance(key, int) else str(key): plain(item, open_vault)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [plain(item, open_vault) for item in value]
    if isinstance(value, str):
        return str.__str__(value)
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float):
        if isinstance(value, kind):
            return kind(value)
    return str(value)


def _templates(value: Any) -> Iterator[str]:
    return filter(has_template, texts(value))


@functools.cache
def _names_in(template: str) -> frozenset[str] | None:
    """Return the variables that a template names; None when it may reach others."""
    try:
        names = meta.find_undeclared_variables(Environment().parse(template))
    except TemplateError:
        return None
    return None if names & _REACHING else frozenset(names)


@functools.cache
def _words_in(template: str) -> frozenset[str]:
    """Return the words of a template that may be names of an inventory's variables."""
    # What all hosts are in is long, and is the inventory's itself.
    return frozenset(_WORD.findall(template)) - _REACHING - {"groups"}


def _reason(exc: Exception, names: Iterable[str]) -> Unresolved:
    """Return why a value could not be templated, in the same words for all ansible-cores.

    names are the variables that the value refers to.
    """
    text = str(exc)
    if "vault secrets" in text:
        return Unresolved("no password that is given opens it")
    undefined = _UNDEFINED.search(text)
    if undefined:
        name = undefined.group(1)
        later = _FACTS.fullmatch(name) is not None
        wrong = "depends on the fact" if later else "refers to the undefined variable"
        return Unresolved(f"{wrong} '{name}'", later)
    attribute = _NO_ATTRIBUTE.search(text)
    if attribute:
        later = "ansible_facts" in names
        wrong = "depends on the fact" if later else "refers to the undefined attribute"
        return Unresolved(f"{wrong} '{attribute.group(1)}'", later)
    return Unresolved(" ".join(text.split())[:200])


class _Reader:
    """Templates values host by host; a result is kept for all hosts with the same references."""

    def __init__(self, loader: Any, defaults: dict[str, Any]) -> None:
        # What the templates refer to, directly or not; each word where that cannot be known.
        self.names: set[str] = set()
        self._defaults = defaults
        self._templar = templar(loader)
        self._kept: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self._raw: dict[tuple[int, bool], tuple[Any, Any]] = {}
        self._templated: dict[int, tuple[Any, bool]] = {}

    def has_template(self, value: Any) -> bool:
        """Return whether there is a template in the value; shared values are searched once."""
        known = self._templated.get(id(value))
        if known is None:
            known = self._templated[id(value)] = (value, has_template(value))
        return known[1]

    def raw(self, value: Any, open_vault: bool) -> Any:
        """Return the plain form of a value without templates; shared values are converted once."""
        key = (id(value), open_vault)
        if key not in self._raw:
            try:
                result = plain(value, open_vault)
            except AnsibleError:
                # None of several passwords opens a part of it.
                result = self._evaluate(value, {}, open_vault)
            # The value is kept too, so that no other can get its id.
            self._raw[key] = (value, result)
        return self._raw[key][1]

    def _closure(self, value: Any, scope: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what the value refers to, directly or not; None when that is not known."""
        found: dict[str, Any] = {}
        closed = True
        waiting = list(_templates(value))
        while waiting:
            text = str.__str__(waiting.pop())
            names = _names_in(text)
            if names is None:
                closed, names = False, _words_in(text)
            self.names.update(names)
            for name in sorted(names - found.keys()):
                if name in scope:
                    found[name] = scope[name]
                    if self.has_template(found[name]):
                        waiting.extend(_templates(found[name]))
        return found if closed else None

    def template(self, value: Any, variables: Mapping[str, Any], open_vault: bool) -> Any:
        """Return the plain result for the host that has these variables."""
        scope = ChainMap(dict(variables), self._defaults)
        closure = self._closure(value, scope)
        if closure is None:
            return self._evaluate(value, dict(scope), open_vault)
        key = (id(value), open_vault, *((name, id(item)) for name, item in closure.items()))
        if key not in self._kept:
            # What the ids stand for is kept too, so that nothing else can get them.
            self._kept[key] = (self._evaluate(value, closure, open_vault), (value, closure))
        return self._kept[key][0]

    def _evaluate(self, value: Any, variables: dict[str, Any], open_vault: bool) -> Any:
        self._templar.available_variables = variables
        try:
            return plain(self._templar.template(value), open_vault)
        except AnsibleError as exc:
            return self._part_by_part(value, variables, open_vault, _reason(exc, variables))

    def _part_by_part(
        self, value: Any, variables: dict[str, Any], open_vault: bool, reason: Unresolved
    ) -> Any:
        """Return the value with only those parts unresolved that cannot be templated."""
        if isinstance(value, Mapping):
            return {
                str(key): self._evaluate(item, variables, open_vault) for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self._evaluate(item, variables, open_vault) for item in value]
        return reason


class _Origins:
    """Finds the group that a host's value comes from."""

    def __init__(self, loader: Any, inventory: Any, extra: Mapping[str, Any]) -> None:
        self._loader = loader
        self._sources = inventory._sources
        self._extra = extra
        self._group_variables: dict[str, dict[str, Any]] = {}

    def of_group(self, group: Any) -> dict[str, Any]:
        """Return what is written for the group."""
        if group.name not in self._group_variables:
            basedir = self._loader.get_basedir()
            self._group_variables[group.name] = {
                **group.get_vars(),
                **get_vars_from_inventory_sources(self._loader, self._sources, [group], "task"),
                **get_vars_from_path(self._loader, basedir, [group], "task"),
            }
        return self._group_variables[group.name]

    def find(self, groups: list[Any], name: str, value: Any) -> str | None:
        """Return the place of the value when it is not the host's own.

        groups are the host's, the most general first; a group's value is the very object that the
        host has.
        """
        if name in self._extra:
            return f"{EXTRA}{name}"
        for group in reversed(groups):
            variables = self.of_group(group)
            if name in variables and variables[name] is value:
                return f"{group.name}.{name}"
        return None

    def replaces(self, groups: list[Any], name: str, value: Any) -> bool:
        """Return whether the host's own value hides another, which its groups would give it.

        Where an inventory is made by a program, hosts may have the values of their groups.
        """
        above = (self.of_group(group) for group in reversed(groups))
        given = next((variables[name] for variables in above if name in variables), value)
        return constants.DEFAULT_HASH_BEHAVIOUR == "replace" and bool(given != value)


def _option(name: str, roles: Mapping[str, RoleSpec]) -> Option | None:
    if name in VARIABLES:
        return VARIABLES[name]
    if name in READ:
        return READ[name]
    return next((role.options[name] for role in roles.values() if name in role.options), None)


def _below(group: Any) -> set[str]:
    return {group.name} | {name for child in group.child_groups for name in _below(child)}


def _read(
    reader: _Reader,
    value: Any,
    variables: Mapping[str, Any],
    option: Option | None,
    open_vault: bool,
) -> Any:
    """Return the plain value of one variable of one host, or of a part of it."""
    templated = not _is_vaulted(value) and reader.has_template(value)
    if option is not None and option.no_log and (templated or _is_vaulted(value)):
        for text in _templates(value) if templated else ():
            try:
                Environment().parse(text)
            except TemplateError as error:
                return Unresolved(f"the template has a mistake: {error.message}")
        # Templating it could make the secret, and would put it into this process for nothing.
        return Opaque()
    if not templated:
        return reader.raw(value, open_vault)
    if option is not None and hides(option):
        if isinstance(value, Mapping):
            known = option.options or {}
            return {
                str(key): _read(reader, item, variables, known.get(key, option.each), open_vault)
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [_read(reader, item, variables, option.each, open_vault) for item in value]
    return typed(reader.template(value, variables, open_vault), option)


def _unread(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return what needs no host to be understood: neither secrets nor templates."""
    return {
        name: plain(value, open_vault=False)
        for name, value in variables.items()
        if not _is_vaulted(value) and not has_template(value)
    }


@functools.cache
def _usual(template: str) -> re.Match[str] | None:
    return _ADDRESS.fullmatch(re.sub(r"\s+", "", template))


def _usual_address(reader: _Reader, template: str, variables: Mapping[str, Any]) -> str:
    """Return what the usual template makes; nothing if it is another, or has a mistake.

    Jinja takes a millisecond for each host, which was a third of the plan of 4,096 nodes.
    """
    found = _usual(template)
    if found is None:
        return ""
    given: tuple[Any, ...] = (
        variables.get(found["name"]),
        variables.get(_FIRST),
        variables.get("node_address"),
        variables.get("cluster_access_network", "management"),
        variables.get("node_number") if found["number"] else None,
    )
    if any(_is_vaulted(value) or reader.has_template(value) for value in given):
        return ""
    try:
        return node_address(*given)
    except (TypeError, ValueError):
        # Jinja says why.
        return ""


def _read_address(reader: _Reader, variables: Mapping[str, Any]) -> str | None:
    """Return what the host's template of ansible_host makes; None where it is not a template."""
    given = variables.get("ansible_host")
    if _is_vaulted(given) or not reader.has_template(given):
        return None
    known = _usual_address(reader, str(given), variables)
    if known:
        return known
    address = reader.template(given, variables, open_vault=False)
    return address if isinstance(address, str) else None


def _ssh_names(option: str) -> list[str]:
    """Return the variables of an option of Ansible's plugin, the one that wins first."""
    connection_loader.get(_SSH[1], class_only=True)
    known = constants.config.get_configuration_definitions(*_SSH)
    return [one["name"] for one in reversed(known[option]["vars"])]


def _find_shared(
    reader: _Reader, inventory: Any, variable_manager: Any, addresses: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield addresses at which SSH finds one machine for several hosts, with those."""
    at: dict[str, list[str]] = {}
    for host, text in addresses.items():
        try:
            address = str(parse_address(text))
        except ValueError:
            address = text
        at.setdefault(address, []).append(host)
    names = ["ansible_ssh_host", *(name for option in _WAYS for name in _ssh_names(option))]
    for address, hosts in at.items():
        ways: dict[tuple[str, ...], list[str]] = {}
        for host in hosts if len(hosts) > 1 else ():
            variables = variable_manager.get_vars(host=inventory.get_host(host))
            connection, *way = (
                reader.template(variables.get(name), variables, open_vault=False)
                for name in ("ansible_connection", *names)
            )
            by_ssh = str(connection or "ssh").rpartition(".")[2] in ("ssh", "smart")
            if by_ssh and not is_hidden(way):
                ways.setdefault(tuple(map(str, way)), []).append(host)
        yield from ((address, tuple(same)) for same in ways.values() if len(same) > 1)


def _read_login(
    reader: _Reader, variables: Mapping[str, Any], names: Iterable[str]
) -> tuple[str, str]:
    """Return a variable and as whom Ansible logs in; empty where not known, or it does not."""
    name = next((name for name in names if variables.get(name) is not None), "")
    local = str(variables.get("ansible_connection")).rpartition(".")[2] == "local"
    if not name or local or _is_vaulted(variables[name]):
        return "", ""
    login = reader.template(variables[name], variables, open_vault=False)
    return (name, login) if isinstance(login, str) else ("", "")


def _find_states(
    directories: Mapping[str, str], hosts: Mapping[str, Mapping[str, Value]]
) -> Iterator[Problem]:
    """Yield that the inventory has no one folder beside it: its files are in several.

    directories have one of their hosts each.
    """
    if len(directories) > 1 and not all(_STATE in hosts[host] for host in directories.values()):
        there = " and ".join(f"{host} in {folder}" for folder, host in directories.items())
        yield Problem(
            f"all.{_STATE}",
            f"missing, and the inventory's files are in several folders: {there}",
            "write the path of the one folder for secrets and plan",
        )


def _find_become(reader: _Reader, inventory: Any, variable_manager: Any) -> Iterator[Problem]:
    """Yield that the control machine would become root, since a variable wins over tasks' words."""
    localhost = inventory.get_host("localhost")
    variables = variable_manager.get_vars(host=localhost) if localhost else {}
    become = reader.template(variables.get(_BECOME), variables, open_vault=False)
    # Of root, Ansible makes no other root.
    asked = isinstance(become, (bool, int, str)) and boolean(become, strict=False)
    if not asked or os.geteuid() == 0:
        return
    wrong = "holds for the control machine, too, where sudo would run and files would be root's"
    if _BECOME in variable_manager.extra_vars:
        yield Problem(f"{EXTRA}{_BECOME}", wrong, "write -b, or the variable in group_vars/cluster")
    else:
        yield Problem(f"all.{_BECOME}", wrong, "write it in group_vars/cluster")


def collect(
    loader: Any, inventory: Any, variable_manager: Any, roles: Mapping[str, RoleSpec], root: str
) -> Inventory:
    """Return groups and hosts of the inventory that Ansible has loaded.

    roles say which variables are wanted; root is the collection's folder, for the roles' defaults.
    """
    groups = {
        name: tuple(host.name for host in group.get_hosts())
        for name, group in inventory.groups.items()
    }
    cluster = inventory.groups.get(CLUSTER_GROUP)
    skeleton = Inventory(groups, tuple(sorted(_below(cluster))) if cluster else (), {})
    reader = _Reader(loader, load_defaults(root, roles, loader))
    origins = _Origins(loader, inventory, variable_manager.extra_vars)
    options: dict[str, Option | None] = {}
    others: dict[str, str] = {}
    directories: dict[str, str] = {}
    by_name: list[str] = []
    addresses: dict[str, str] = {}
    reached: dict[str, str] = {}
    logins: dict[str, Value] = {}
    at: dict[str, str] = {}
    mistaken: set[Problem] = set()
    login_names = _ssh_names("remote_user")
    found: dict[str, list[tuple[str, Any, Any, str | None]]] = {}
    # By name and object: the first result, and whether all hosts' results are equal to it.
    uniform: dict[tuple[str, int], tuple[Any, bool]] = {}
    for host_name in known_hosts(skeleton):
        host = inventory.get_host(host_name)
        host_groups = sort_groups(host.get_groups())
        variables = variable_manager.get_vars(host=host)
        if variables.get("inventory_dir"):
            directories.setdefault(variables["inventory_dir"], host_name)
        given = variables.get("ansible_host")
        if not given and variables.get("ansible_connection") is None:
            by_name.append(host_name)
        if not isinstance(given, str) and not _is_vaulted(given):
            place = origins.find(host_groups, "ansible_host", given)
            place = place or host_path(skeleton, host_name, "ansible_host")
            mistaken.update(
                check_value(place, plain(given, open_vault=False), Option(nullable=True))
            )
        address = _read_address(reader, variables)
        if address:
            addresses[host_name] = address
        elif given and isinstance(given, str):
            reached[host_name] = given
        if address or not reader.has_template(given):
            at[host_name] = address or reached.get(host_name, host_name)
        name, login = _read_login(reader, variables, login_names)
        if login:
            place = origins.find(host_groups, name, variables[name])
            logins[host_name] = Value(login, place or host_path(skeleton, host_name, name))
        found[host_name] = []
        for name, value in variables.items():
            # What is not text is a mistake, which find_unreadable names.
            if name in others or not isinstance(name, str):
                continue
            place = origins.find(host_groups, name, value)
            if name not in options:
                if not concerned(name, roles):
                    others[name] = place or host_path(skeleton, host_name, name)
                    continue
                options[name] = _option(name, roles)
            result = _read(reader, value, variables, options[name], name in VARIABLES)
            first, same = uniform.setdefault((name, id(value)), (result, True))
            if same and first is not result and first != result:
                uniform[name, id(value)] = (first, False)
            found[host_name].append((name, value, result, place))
            if name == _FIRST and place is None and origins.replaces(host_groups, name, value):
                wrong = "counts from node number 1, and replaces that of the group for this host"
                where = host_path(skeleton, host_name, name)
                mistaken.add(Problem(where, wrong, "write node_address"))
    hosts = {
        host_name: {
            # A template whose result differs from host to host counts as the host's own.
            name: Value(
                result,
                place
                if place and uniform[name, id(value)][1]
                else host_path(skeleton, host_name, name),
            )
            for name, value, result, place in entries
        }
        for host_name, entries in found.items()
    }
    files = read_files(inventory._sources, {*groups, *inventory.hosts})
    problems = (
        *find_duplicates(files),
        *find_orphans(inventory._sources, groups, inventory.hosts),
        *_find_states(directories, hosts),
        *_find_become(reader, inventory, variable_manager),
        *mistaken,
    )
    unread = {
        group: _unread(origins.of_group(inventory.groups.get(group) or Group(group)))
        for group in GROUPS
        if not groups.get(group)
    }
    return Inventory(
        groups,
        skeleton.cluster_groups,
        hosts,
        others,
        next(iter(directories), None),
        unread,
        problems,
        frozenset(reader.names),
        (
            *find_unreadable(files),
            *find_unparsed(inventory._sources, inventory._inventory.processed_sources, files),
        ),
        tuple(find_clear_texts(files, secret_options(roles))),
        tuple(by_name),
        addresses,
        reached,
        logins,
        tuple(_find_shared(reader, inventory, variable_manager, at)),
    )
