# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A host of the plan, and what its inventory says, as the inputs of its roles are made. Pure.

What the inventory says is not handed on but referred to, by a template: so no secret is written,
and a value that depends on facts is found when a role asks for it. Only what the plan itself
decides by must be known before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...module_utils._core.nodeset import fold
from ...module_utils._core.schema import EXTRA, Opaque, Problem, RoleSpec, Unresolved, leaves
from .._contract.contract import CLUSTER_VARIABLES, COMPUTE_GROUPS
from .._contract.settings import filled
from .._inventory.given import GIVEN
from .._inventory.subject import fabric_host
from .._inventory.values import Inventory

# Where the controller keeps the cluster's state; the plan has no paths of this machine.
STATE = "{{ __cluster_state }}"
# The folder there of the plan that the run works from.
PLAN = "{{ __cluster_plan }}"


def folded(names: Iterable[str]) -> str:
    """Return the template of these names. All of them for each host are their square."""
    return "{{ '%s' | baremetal.dgx.nodeset_expand }}" % fold(names)


class UnknownError(Exception):
    """What an input is made of cannot be known before hosts are asked."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True)
class Site:
    """The plan and all that it was made of."""

    # As in plan.json.
    plan: Mapping[str, Any]
    inventory: Inventory
    roles: Mapping[str, RoleSpec]
    # Names of the files in plan/fabric/.
    fabric_files: frozenset[str] = frozenset()
    # Variables of the cluster that were asked for: each host asks for the same.
    _kept: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The default of each role's input, by its name."""
        return {
            name: option.default
            for role in self.roles.values()
            for name, option in role.options.items()
        }

    @cached_property
    def hosts(self) -> dict[str, Host]:
        """The hosts of the plan by name."""
        return {node["name"]: Host(self, node) for node in self.plan["nodes"]}

    @cached_property
    def groups(self) -> Mapping[str, list[str]]:
        """The hosts of each group of the contract."""
        groups: Mapping[str, list[str]] = self.plan["cluster"]["groups"]
        return groups

    @cached_property
    def present(self) -> list[Host]:
        """Hosts that are to be in the cluster."""
        return [host for host in self.hosts.values() if host.node["state"] == "present"]

    @cached_property
    def present_groups(self) -> dict[str, list[str]]:
        """The same of each group: what is absent has no part that the others could wait for."""
        present = {host.name for host in self.present}
        return {
            group: [name for name in names if name in present]
            for group, names in self.groups.items()
        }

    @cached_property
    def primary(self) -> Host:
        """The controller of Slurm in charge: what its inventory says decides for the nodes."""
        return self.hosts[self.groups["slurm_controllers"][0]]

    @cached_property
    def slurm_nodes(self) -> dict[str, Mapping[str, Any]]:
        """What Slurm gets of each node, by name."""
        return {node["name"]: node for node in self.plan["slurm"]["nodes"]}

    @cached_property
    def slurm_names(self) -> str:
        """The template of their names."""
        return folded(self.slurm_nodes)

    @cached_property
    def gate_names(self) -> str:
        """The same of nodes that the gate holds: validate_nodes measures those with GPUs alone."""
        held = [name for name, node in self.slurm_nodes.items() if node["gres"]]
        return folded(held)

    @cached_property
    def powered_names(self) -> str:
        """The template of the names of GPU nodes with a BMC."""
        return self._gpu_nodes(lambda host: bool(host.outline("node_bmc")))

    @cached_property
    def serving_names(self) -> str:
        """The template of the names of nodes that have another job in the cluster, too."""
        return folded(
            name
            for group in COMPUTE_GROUPS
            for name in self.groups[group]
            if len(self.hosts[name].groups) > 1
        )

    @cached_property
    def unwired_names(self) -> str:
        """The template of the names of GPU nodes that have no rails."""
        return self._gpu_nodes(lambda host: not host.profile.get("rails"))

    def _gpu_nodes(self, keep: Callable[[Host], bool]) -> str:
        names = self.present_groups["gpu_nodes"]
        return folded(name for name in names if keep(self.hosts[name]))

    @cached_property
    def common_rails(self) -> int:
        """How many rails every GPU node has: a name that one lacks would stop its jobs."""
        counts = [
            len(self.hosts[one].profile.get("rails") or [])
            for one in self.present_groups["gpu_nodes"]
        ]
        if not counts or self.fabric_kind == "none":
            return 0
        return int(min(*counts, self.fabric["rails"]))

    @cached_property
    def fabric_host(self) -> str:
        """The host that looks at the fabric, "" without one."""
        return fabric_host(self.plan, {host.name for host in self.present})

    @cached_property
    def fabric_kind(self) -> str:
        """What the rails run: none, infiniband or ethernet."""
        return str(self.plan["cluster"]["fabric_kind"])

    def cluster(self, name: str) -> Any:
        """Return a variable of the cluster, which is the same for all hosts, defaults filled in."""
        return self._filled(name)[0]

    def settings(self, name: str) -> Any:
        """Return the same to be written: what may be any text is referred to."""
        return self._filled(name)[1]

    def _filled(self, name: str) -> tuple[Any, Any]:
        if name not in self._kept:
            option = CLUSTER_VARIABLES[name]
            host = next((host for host in self.hosts.values() if host.says(name)), None)
            value = host.value(name) if host else option.default
            refer = functools.partial(host.refer, name) if host else None
            self._kept[name] = (filled(option, value), filled(option, value, refer))
        return self._kept[name]

    @cached_property
    def fabric(self) -> Mapping[str, Any]:
        """The settings of cluster_fabric."""
        fabric: Mapping[str, Any] = self.cluster("cluster_fabric")
        return fabric


class Host:
    """One host."""

    def __init__(self, site: Site, node: Mapping[str, Any]) -> None:
        self.site = site
        self.node = node
        self.name: str = node["name"]
        self.groups = frozenset(node["groups"])
        self.profile: Mapping[str, Any] = site.plan["profiles"].get(node["profile"]) or {}
        self._given = site.inventory.hosts[self.name]

    @property
    def runs_jobs(self) -> bool:
        """Whether it is of a group whose hosts run slurmd."""
        return not self.groups.isdisjoint({"gpu_nodes", "cpu_nodes"})

    @property
    def address(self) -> str | None:
        """Its address on the network that SSH uses; what is absent may have none."""
        address: str | None = self.node["addresses"].get(
            self.site.plan["cluster"]["access_network"]
        )
        return address

    def says(self, name: str) -> bool:
        """Return whether the inventory has the variable for this host."""
        return name in self._given

    def is_extra(self, name: str) -> bool:
        """Return whether the variable is one of the command line, which no input replaces."""
        return name in self._given and self._given[name].path.startswith(EXTRA)

    def value(self, name: str) -> Any:
        """Return what the inventory says, else the role's default; UnknownError."""
        if name not in self._given:
            return self.site.defaults.get(name)
        given = self._given[name]
        _refuse_unknown(given.path, given.value)
        return given.value

    def outline(self, name: str) -> Any:
        """Return what the inventory says, None without; what is in it may be unknown."""
        if name not in self._given:
            return None
        given = self._given[name]
        if isinstance(given.value, (Opaque, Unresolved)):
            _refuse_unknown(given.path, given.value)
        return given.value

    def gives(self, name: str) -> bool:
        """Return whether the inventory says more than nothing; a secret does."""
        given = self._given.get(name)
        return given is not None and (isinstance(given.value, Opaque) or bool(self.outline(name)))

    def entry(self, name: str, key: str) -> Any:
        """Return the key's value in the inventory's mapping, in any case, None without.

        The keys of a mapping that is a secret, or made of a fact, are not known: None.
        """
        options = self._given[name].value if self.says(name) else None
        for given, value in options.items() if isinstance(options, Mapping) else ():
            if str(given).lower() == key.lower():
                _refuse_unknown(f"{self._given[name].path}.{given}", value)
                return value
        return None

    def fields(self, name: str, *keys: str) -> list[dict[str, Any]]:
        """Return these keys of each mapping in the inventory's list, where it has them."""
        found = []
        for index, item in enumerate(self.outline(name) or ()):
            if not isinstance(item, Mapping):
                _refuse_unknown(f"{self._given[name].path}[{index}]", item)
            found.append({key: item[key] for key in keys if item.get(key) is not None})
            _refuse_unknown(f"{self._given[name].path}[{index}]", found[-1])
        return found

    def refer(self, name: str, *keys: str | int) -> str:
        """Return the template of what the inventory says, or of a part of it."""
        # A name that the plan gives hides the inventory's.
        text = f"hostvars['{self.name}'].{name}" if name in GIVEN else name
        return "{{ %s%s }}" % (text, "".join(f"[{key!r}]" for key in keys))


def _refuse_unknown(path: str, value: Any) -> None:
    """Raise UnknownError for the first part of the value that is not known yet, or is secret."""
    for where, why in _unknown(path, value):
        raise UnknownError(Problem(where, why, "write the value itself"))


def _unknown(path: str, value: Any) -> Iterator[tuple[str, str]]:
    for where, one in leaves(path, value):
        if isinstance(one, Unresolved):
            yield where, f"{one.reason}, and no host is asked before the plan is made"
        elif isinstance(one, Opaque):
            yield where, "a secret, and the plan needs it"
