# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Checks of groups, host names and single variables, before values are compared. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...module_utils._core.nodeset import fold
from ...module_utils._core.schema import (
    Opaque,
    Option,
    Problem,
    RoleSpec,
    Unresolved,
    check_value,
    closest,
    leaves,
    missing_remedy,
    words,
)
from .._contract.contract import (
    CLUSTER_GROUP,
    CLUSTER_VARIABLES,
    GROUPS,
    HOST_NAME_PATTERN,
    HOST_NAME_WORDS,
    VARIABLES,
)
from .._inventory.given import READ
from .._inventory.hosts import EVERYBODY, host_path, known_hosts, prefix_owner, type_of
from .._inventory.values import Inventory, Value

Variables = dict[str, dict[str, Value]]


def check_groups(inventory: Inventory) -> Iterator[Problem]:
    """Yield groups that are missing or misplaced, and hosts that are in one too many."""
    if not inventory.groups.get(CLUSTER_GROUP):
        yield Problem(
            CLUSTER_GROUP,
            "no such group, or no host in it",
            f"put the groups of nodes below one named {CLUSTER_GROUP}",
        )
    for group in GROUPS:
        hosts = inventory.groups.get(group)
        if hosts and group not in inventory.cluster_groups and CLUSTER_GROUP in inventory.groups:
            wrong = f"not below the group {CLUSTER_GROUP}"
            yield Problem(group, wrong, f"list it among the children of {CLUSTER_GROUP}")
    for groups, use in (
        (("slurm_controllers",), "a cluster needs one that runs slurmctld"),
        (("gpu_nodes", "cpu_nodes"), "a cluster needs one that runs jobs"),
    ):
        if not any(inventory.groups.get(group) for group in groups):
            yield Problem(groups[0], f"no host in it; {use}", "put a host into this group")
    databases = inventory.groups.get("slurm_databases", ())
    if len(databases) > 2:
        wrong = f"{len(databases)} hosts, but Slurm knows one slurmdbd and one stand-by"
        yield Problem("slurm_databases", wrong, "leave two at most")
    cpu_nodes = set(inventory.groups.get("cpu_nodes", ()))
    for host in inventory.groups.get("gpu_nodes", ()):
        if host in cpu_nodes:
            yield Problem("gpu_nodes." + host, "is in cpu_nodes too", "leave it in one of the two")


def check_strays(inventory: Inventory) -> tuple[list[Problem], list[str]]:
    """Return hosts that are in none of the contract's groups: as problems, or as mere warnings."""
    problems: list[Problem] = []
    warnings: list[str] = []
    known = set(known_hosts(inventory))
    strays: dict[tuple[str, bool], list[str]] = {}
    for host, groups in inventory.memberships.items():
        if host not in known and host != "localhost":
            inside = CLUSTER_GROUP in groups
            own = [group for group in groups if group not in EVERYBODY]
            group = own[0] if own else CLUSTER_GROUP if inside else "ungrouped"
            strays.setdefault((group, inside or not own), []).append(host)
    for (group, wrong), hosts in strays.items():
        near = closest(group, GROUPS)
        who = f"{fold(hosts)} {'is' if len(hosts) == 1 else 'are'}"
        if near or wrong:
            remedy = f"write {near}" if near else f"put it into {words(GROUPS)}"
            problems.append(Problem(group, f"{who} in no group of the contract", remedy))
        else:
            warnings.append(f"{group}: {who} not part of the cluster and will be left alone")
    return problems, warnings


def check_names(inventory: Inventory) -> Iterator[Problem]:
    """Yield invalid host names, and hosts that differ only in case or domain."""
    seen: dict[str, str] = {}
    for host in known_hosts(inventory):
        short = host.split(".")[0].lower()
        if short in seen:
            yield Problem(
                host_path(inventory, host),
                f"is {seen[short]} once more, apart from letter case and domain",
                "leave one of the two",
            )
            continue
        seen[short] = host_path(inventory, host)
        if not re.fullmatch(HOST_NAME_PATTERN, host):
            fits = re.fullmatch(HOST_NAME_PATTERN, short) is not None
            remedy = "write %s" % (short if fits else HOST_NAME_WORDS)
            yield Problem(host_path(inventory, host), f"'{host}' is not a short host name", remedy)


def _options(roles: Mapping[str, RoleSpec]) -> dict[str, Option]:
    options = {**VARIABLES, **READ}
    for role in roles.values():
        options.update(role.options)
    return options


def _unresolved(path: str, value: Unresolved) -> Problem:
    if value.later:
        wrong = f"{value.reason}, and no host is asked before the plan is made"
        return Problem(path, wrong, "write the value itself")
    return Problem(
        path,
        f"cannot be templated: {value.reason}",
        "define what it refers to, or write the value itself",
    )


def _inside(path: str, value: Any, needed: bool) -> Iterator[Problem]:
    """Yield what could not be templated; facts are a problem only where the value is needed."""
    for where, one in leaves(path, value):
        if isinstance(one, Unresolved) and (needed or not one.later):
            yield _unresolved(where, one)


def _unknown(name: str, owner: str, path: str, options: Mapping[str, Option]) -> Problem:
    near = closest(name, options, 0.75)
    remedy = f"remove it, names that begin with {owner}_ are the collection's"
    return Problem(path, "no such variable", f"write {near}" if near else remedy)


@dataclass(frozen=True)
class Checked:
    """The variables that are valid, so that one mistake is not reported twice; and the others."""

    valid: Variables
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]
    # Variables that misspelt ones were probably meant to be.
    meant: frozenset[str]


def check_variables(inventory: Inventory, roles: Mapping[str, RoleSpec]) -> Checked:
    """Check each variable by itself. A value that many hosts share is checked once."""
    options = _options(roles)
    problems: list[Problem] = []
    warnings: list[str] = []
    verdicts: dict[tuple[str, int], bool] = {}
    valid: Variables = {}
    for host in known_hosts(inventory):
        valid[host] = {}
        for name, value in inventory.hosts.get(host, {}).items():
            key = (value.path, id(value.value))
            if key not in verdicts:
                found = list(_check_one(name, value, roles, options))
                problems.extend(found)
                verdicts[key] = not found and _is_known(value.value, options[name])
            if verdicts[key]:
                valid[host][name] = value
    wired = {name for role in roles.values() for name in role.wired - role.received}
    for path, name in sorted(
        {
            (value.path, name)
            for host in valid
            for name, value in valid[host].items()
            if name in wired
        }
    ):
        warnings.append(f"{path}: not used, the playbooks set {name} themselves")
    for name, path in inventory.others.items():
        near = closest(name, options, 0.88)
        if near and name not in inventory.names:
            problems.append(Problem(path, "no such variable", f"write {near}"))
    problems.extend(_unread(inventory, valid, roles))
    unknown = {name for host in valid for name in inventory.hosts.get(host, {})} - options.keys()
    meant = {closest(name, options, 0.75) or "" for name in unknown}
    return Checked(valid, tuple(problems), tuple(warnings), frozenset(meant))


def _is_known(value: Any, option: Option) -> bool:
    """Return whether the checks can look into the value, and into each mapping of a list."""
    of_mappings = option.each is not None and option.each.type == "dict"
    items = value if of_mappings and isinstance(value, (list, tuple)) else ()
    return not any(isinstance(one, (Opaque, Unresolved)) for one in (value, *items))


def name_warnings(inventory: Inventory) -> list[str]:
    """Return that SSH asks DNS for hosts whose addresses are known."""
    if not inventory.by_name:
        return []
    where = f"group_vars/{CLUSTER_GROUP}/node.yml"
    lacking = f"{fold(inventory.by_name)}: no ansible_host, and SSH goes where DNS says"
    return [f"{lacking}; write ansible_host in {where}, as the examples have it"]


def _unread(
    inventory: Inventory, valid: Variables, roles: Mapping[str, RoleSpec]
) -> Iterator[Problem]:
    """Yield inputs of a role that are written for groups whose hosts do not have the role."""
    for role in roles.values():
        members = {host for group in role.groups for host in inventory.groups.get(group, ())}
        if not members:
            continue
        # Where a host of the role has the input, others are exceptions from what all have.
        read = {name for host in members & valid.keys() for name in valid[host]}
        others = role.options.keys() - read - role.wired - inventory.names
        written = {
            (name, variables[name].path)
            for variables in valid.values()
            for name in others & variables.keys()
        }
        for name, path in sorted(written):
            if path.split(".")[0] not in EVERYBODY and not name.endswith("_enabled"):
                wrong = f"only hosts of {words(role.groups, 'and')} read it"
                yield Problem(path, wrong, f"write it in group_vars/{words(role.groups)}")


def _check_one(
    name: str, value: Value, roles: Mapping[str, RoleSpec], options: Mapping[str, Option]
) -> Iterator[Problem]:
    option = options.get(name)
    if option is None:
        yield _unknown(name, prefix_owner(name, roles) or "", value.path, options)
        return
    yield from _inside(value.path, value.value, needed=name in VARIABLES)
    yield from check_value(value.path, value.value, option)


def cluster_values(
    checked: Checked, inventory: Inventory
) -> tuple[dict[str, Value], list[Problem]]:
    """Return the cluster-wide variables, the same for all nodes, and what is wrong with them."""
    valid = checked.valid
    values: dict[str, Value] = {}
    problems: list[Problem] = []
    once = "write it once, in group_vars/all/cluster.yml"
    for name, option in CLUSTER_VARIABLES.items():
        having = [host for host in valid if name in valid[host]]
        written = [host for host in valid if name in inventory.hosts.get(host, {})]
        if not written and option.required and name not in checked.meant:
            remedy = _write_in("group_vars/all/cluster.yml", option)
            problems.append(Problem("all." + name, "missing", remedy))
        if not having:
            continue
        first = valid[having[0]][name]
        found = [
            Problem(path, f"differs from {first.path}", once)
            for path in dict.fromkeys(
                valid[host][name].path for host in having if valid[host][name].value != first.value
            )
        ]
        without = valid.keys() - set(written)
        if without:
            found.append(Problem(first.path, f"not set for {fold(without)}", once))
        problems.extend(found)
        if not found:
            values[name] = first
    return values, problems


def _write_in(file: str, option: Option) -> str:
    return f"write it in {file}: {missing_remedy(option)}"


def check_required(
    inventory: Inventory, roles: Mapping[str, RoleSpec], meant: frozenset[str]
) -> Iterator[Problem]:
    """Yield inputs that a role cannot do without and neither inventory nor playbook gives."""
    hosts_known = known_hosts(inventory)
    for role in roles.values():
        members = {host for group in role.groups for host in inventory.groups.get(group, ())}
        hosts = [host for host in hosts_known if host in members]
        for name, option in role.options.items():
            if not option.required or name in role.wired or name in meant:
                continue
            lacking = [host for host in hosts if name not in inventory.hosts.get(host, {})]
            if not lacking:
                continue
            types = {type_of(inventory, host) for host in lacking}
            if lacking == hosts:
                group = types.pop() if len(types) == 1 else "all"
                remedy = _write_in(f"group_vars/{group}/{role.name}.yml", option)
                yield Problem(f"{group}.{name}", "missing", remedy)
            else:
                for host in lacking:
                    where = host_path(inventory, host, name)
                    yield Problem(where, "missing", f"write {missing_remedy(option)}")
