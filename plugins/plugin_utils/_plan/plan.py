# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What this cluster must look like, computed from the inventory, or all that is wrong. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...module_utils._core.names import RAIL_NETWORK
from ...module_utils._core.schema import Problem, RoleSpec, words
from .._contract.contract import CLUSTER_VARIABLES, GROUPS
from .._contract.profiles import Profile, resolve_profiles
from .._contract.settings import filled
from .._inventory.hosts import type_of
from .._inventory.values import Inventory, Value
from . import bmc as _plan_bmc
from . import cabling as _plan_cabling
from . import containers as _plan_containers
from . import fabric as _plan_fabric
from . import interfaces as _plan_interfaces
from . import leaf_spine as _plan_leaf_spine
from . import mig as _plan_mig
from . import monitoring as _plan_monitoring
from . import mounts as _plan_mounts
from . import networks as _plan_networks
from . import nodes as _plan_nodes
from . import repair as _plan_repair
from . import slurm as _plan_slurm
from . import slurm_values as _plan_slurm_values
from . import users as _plan_users
from . import variables as _plan_variables
from .fabric import Fabric
from .networks import Network, Placed
from .nodes import Node
from .variables import Variables

VERSION = 1

_ADDRESSES = ("node_address", "node_first_address")


@dataclasses.dataclass(frozen=True)
class Plan:
    """A valid plan, or none and what is wrong; and what is doubtful in either case."""

    data: dict[str, Any] | None
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    # Where the controller keeps the cluster's state; the data has no paths of this machine.
    state_dir: str | None = None

    def plan_text(self) -> str:
        """Return the text of plan.json."""
        return json.dumps(self.data, indent=1, ensure_ascii=False) + "\n"


@dataclasses.dataclass
class _Findings:
    """What the checks have found so far."""

    problems: list[Problem] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)

    def add(self, found: tuple[list[Problem], list[str]]) -> None:
        """Take in problems and warnings of one check."""
        self.problems.extend(found[0])
        self.warnings.extend(found[1])


def _value(values: Mapping[str, Value], name: str, default: Any, group: str = "all") -> Value:
    return values.get(name) or Value(default, f"{group}.{name}")


def _setting(cluster: Mapping[str, Value], name: str) -> Value:
    """Return a variable of the cluster, the contract's default without one."""
    return _value(cluster, name, CLUSTER_VARIABLES[name].default)


def _place(
    nodes: list[Node],
    valid: Variables,
    known: Mapping[str, Any],
    networks: Mapping[str, Network],
    findings: _Findings,
) -> list[Placed]:
    """Return the addresses of all nodes. What is wrong with a group's variable is found once."""
    placed: list[Placed] = []
    found: dict[Problem, None] = {}
    for node in nodes:
        here, problems = _plan_networks.place_node(
            node.name, node.path, node.number, valid[node.name], known, networks
        )
        placed.extend(here)
        found.update(dict.fromkeys(problems))
    findings.problems.extend(found)
    return placed


def _is_known(name: str, cluster: Mapping[str, Value], inventory: Inventory) -> bool:
    """Return whether the variable of the cluster is what is meant: valid, or not written."""
    return name in cluster or all(name not in values for values in inventory.hosts.values())


def _has_address(node: Node, inventory: Inventory, network: str) -> bool:
    """Return whether an address of the node on the network is written, even a wrong one."""
    values = inventory.hosts[node.name]
    written = [values[name].value for name in _ADDRESSES if name in values]
    # What is not a mapping has been reported as that.
    return any(not isinstance(value, Mapping) or network in value for value in written)


def _without_address(nodes: list[Node], inventory: Inventory, network: str) -> list[Node]:
    """Return present nodes for which no address on the network is written, not even a wrong one."""
    return [node for node in nodes if node.present and not _has_address(node, inventory, network)]


def _check_addresses(
    nodes: list[Node],
    valid: Variables,
    inventory: Inventory,
    cluster: Mapping[str, Value],
    networks: Mapping[str, Network],
    findings: _Findings,
) -> list[Placed]:
    """Return the addresses of all nodes, those included that something is wrong with."""
    known = cluster["cluster_networks"]
    placed = _place(nodes, valid, known.value, networks, findings)
    present = {node.name for node in nodes if node.present}
    in_use = [item for item in placed if item.host in present]
    findings.problems.extend(_plan_networks.check_addresses(in_use, networks))
    name = "cluster_access_network"
    access = _setting(cluster, name)
    if access.value not in known.value:
        problem = _plan_networks.unknown_network(access.path, access.value, known.value)
        findings.problems.append(problem)
    elif _is_known(name, cluster, inventory):
        if access.value in networks:
            reached = {**inventory.reached, **inventory.addresses}
            findings.warnings.extend(
                _plan_networks.reach_warnings(in_use, networks[access.value], reached)
            )
            findings.problems.extend(
                _plan_networks.check_reached(in_use, networks[access.value], inventory.shared)
            )
        lacking = _without_address(nodes, inventory, access.value)
        findings.problems.extend(_plan_nodes.missing_addresses(lacking, access.value))
    findings.warnings.extend(
        f"{known.path}.{network}: no node has an address on it"
        for network in networks
        if not any(_has_address(node, inventory, network) for node in nodes)
    )
    return placed


def _check_rail_addresses(
    nodes: list[Node],
    rails: Mapping[str, tuple[str, ...]],
    inventory: Inventory,
    known: Value,
    findings: _Findings,
) -> None:
    """Find GPU nodes without an address on one of their rails, all of Ethernet: RoCE is IP.

    rails has the networks of each node's rails.
    """
    wired = [node for node in nodes if node.present and "gpu_nodes" in node.groups]
    networks = dict.fromkeys(name for node in wired for name in rails[node.name])
    lacking = [name for name in networks if name not in known.value]
    if lacking:
        wrong = f"{words(lacking, 'and')} missing, and a rail of Ethernet needs a network"
        remedy = f"write one for each rail{_plan_interfaces.BY_SITE}"
        findings.problems.append(Problem(known.path, wrong, remedy))
    for name in networks:
        if name in known.value:
            having = [node for node in wired if name in rails[node.name]]
            without = _without_address(having, inventory, name)
            findings.problems.extend(
                _plan_nodes.missing_addresses(
                    without, name, "a rail of Ethernet needs it", _plan_interfaces.BY_SITE
                )
            )


def _check_fabric(
    nodes: list[Node], profiles: Mapping[str, Profile], fabric: Fabric, path: str, found: _Findings
) -> None:
    wired = [node for node in nodes if _plan_nodes.has_place(node, profiles)]
    gpu_nodes = [node for node in wired if node.present and node.type == "gpu_nodes"]
    units = {node.name: node.su or 0 for node in gpu_nodes}
    hosts = {node.name: node.path for node in nodes}
    absent = _plan_nodes.keeping_ports(wired, fabric)
    found.problems.extend(_plan_fabric.check_fabric(fabric, path, hosts, units, absent))
    found.problems.extend(_plan_leaf_spine.check_leaf_spine(fabric, path, hosts, units))
    found.problems.extend(_plan_cabling.check_cabling(fabric, path, wired))
    found.warnings.extend(_plan_fabric.fabric_warnings(fabric, path, len(gpu_nodes), absent))
    found.add(_plan_nodes.check_rails(nodes, profiles, fabric, path))


def _site_mounts(
    cluster: Mapping[str, Value], inventory: Inventory, group: str = ""
) -> list[str] | None:
    """Return the mount points that the site says it mounts itself; None if that is not known.

    With a group, not those that are written for others.
    """
    if not _is_known("cluster_validation", cluster, inventory):
        return None
    canary = _setting(cluster, "cluster_validation").value.get("canary") or {}
    mounts = canary.get("mounts") or ()
    return [item["path"] for item in mounts if not group or group in item.get("groups", [group])]


def _check_slurm(
    inventory: Inventory,
    valid: Variables,
    nodes: list[Node],
    cluster: Mapping[str, Value],
    findings: _Findings,
) -> None:
    controllers = inventory.groups.get("slurm_controllers", ())
    findings.problems.extend(_plan_slurm.check_absent(nodes, valid))
    validation = _setting(cluster, "cluster_validation")
    findings.problems.extend(_plan_slurm.check_engine(validation, controllers))
    if not controllers:
        return
    values = valid.get(controllers[0], {})
    names = ("slurm_controller_partitions", "slurm_controller_node_sets")
    # One that is there but unsound has been reported; the other cannot be judged without it.
    if all(name in values or name not in inventory.hosts[controllers[0]] for name in names):
        partitions, node_sets = (_value(values, name, ()) for name in names)
        findings.add(_plan_slurm.check_partitions(nodes, partitions, node_sets))
    others = _site_mounts(cluster, inventory, "slurm_controllers")
    databases = inventory.groups.get("slurm_databases", ())
    findings.problems.extend(_plan_slurm.check_accounting(values, databases))
    findings.problems.extend(_plan_slurm.check_databases(valid, databases))
    findings.problems.extend(_plan_slurm.check_releases(nodes, valid))
    unknown = _plan_mounts.unknown_mounts(inventory.hosts[controllers[0]], values)
    if others is not None and not unknown:
        findings.problems.extend(_plan_mounts.check_state_folder(values, controllers, others))
    findings.warnings.extend(_plan_slurm.controller_warnings(values, controllers))
    here = [valid[node.name] for node in nodes if node.present]
    findings.warnings.extend(_plan_slurm.resume_warnings(values, here))


def _check_slurm_values(
    inventory: Inventory,
    valid: Variables,
    nodes: list[Node],
    profiles: Mapping[str, Profile],
    fabric: Fabric,
    networks: Mapping[str, Network],
    cluster: Mapping[str, Value],
    findings: _Findings,
) -> None:
    """Ask Slurm's modules what they would refuse on the primary."""
    controllers = inventory.groups.get("slurm_controllers", ())
    if not controllers:
        return
    values = valid[controllers[0]]
    described = {
        "cluster_name": "cluster",
        "controllers": list(controllers),
        "databases": list(inventory.groups.get("slurm_databases", ()))[:2],
        "nodes": _plan_slurm.slurm_nodes(nodes, profiles),
        "topology": _plan_slurm.slurm_topology(nodes, fabric, profiles),
    }
    names = [node.name for node in nodes if node.runs_jobs]
    findings.problems.extend(
        _plan_slurm_values.check_conf(values, described, names, findings.problems)
    )
    databases = [valid.get(name, {}) for name in inventory.groups.get("slurm_databases", ())]
    findings.problems.extend(_plan_slurm_values.check_entries(values, databases))
    jobs = [node for node in nodes if node.runs_jobs or "login_nodes" in node.groups]
    findings.problems.extend(
        _plan_slurm_values.check_pmix(values, [valid[node.name] for node in jobs])
    )
    access = networks.get(_setting(cluster, "cluster_access_network").value)
    if access is not None and access.net.version == 6:
        findings.problems.extend(_plan_slurm_values.check_ipv6(values, access.name))
    users = None
    directory = _setting(cluster, "cluster_user_directory").value or "identity_domain" in values
    if "node_base_users" in values and not directory:
        users = _plan_users.names_of(values["node_base_users"])
    unsound = inventory.hosts[controllers[0]].keys() - values.keys()
    findings.problems.extend(_plan_slurm_values.check_names(values, users, unsound))


def _check_hosts(
    nodes: list[Node],
    valid: Variables,
    networks: Mapping[str, Network],
    complete: bool,
    roles: Mapping[str, RoleSpec],
    others: list[str] | None,
    written: Mapping[str, Mapping[str, Value]],
    logins: Mapping[str, Value],
    findings: _Findings,
) -> None:
    """Compare what each host mounts, and its users; hosts that share the values are one."""
    names = ("cephfs_mounts", "local_storage_volumes", "cephfs_monitors", *_plan_users.DIRECTORY)
    directory = roles["identity"].options if "identity" in roles else {}
    seen: set[tuple[object, ...]] = set()
    for node in nodes:
        values = valid[node.name]
        # Where users are not known, their homes are not.
        unknown = "node_base_users" in written[node.name] and "node_base_users" not in values
        login = None if unknown else logins.get(node.name)
        key = (
            login,
            *(
                id(values[name].value) if name in values else 0
                for name in (*names, "node_base_users", "node_base_groups")
            ),
        )
        if node.present and key not in seen:
            seen.add(key)
            findings.problems.extend(_plan_mounts.check_mounts(values))
            findings.warnings.extend(_plan_mounts.login_warnings(values, login))
            findings.problems.extend(_plan_mounts.check_monitors(values, networks, complete))
            findings.problems.extend(_plan_users.check_users(values))
            findings.problems.extend(_plan_users.check_directory(values, directory))
        unsound = written[node.name].keys() - values.keys()
        if node.runs_jobs and others is not None and unsound.isdisjoint(_plan_mounts.PLACES):
            findings.warnings.extend(_plan_mounts.health_warnings(values, others))


def _check_interfaces(
    nodes: list[Node],
    valid: Variables,
    known: Mapping[str, Any],
    networks: Mapping[str, Network],
    placed: list[Placed],
    access: str,
    rails: Mapping[str, tuple[str, ...]],
    findings: _Findings,
) -> None:
    """Compare each host's interfaces with its networks; one finding for one list."""
    addressed: dict[str, set[str]] = {}
    for item in placed:
        addressed.setdefault(item.host, set()).add(item.network)
    found: dict[Problem, None] = {}
    for node in nodes:
        if node.present:
            here = addressed.get(node.name, set())
            problems = _plan_interfaces.check_interfaces(
                valid[node.name], known, networks, here, access, rails[node.name]
            )
            found.update(dict.fromkeys(problems))
    findings.problems.extend(found)


# What roles refuse: written variables, those without mistakes, and the hosts of each group.
Refuse = Callable[
    [Mapping[str, Mapping[str, Value]], Variables, Mapping[str, tuple[str, ...]]], Iterable[Problem]
]


def make_plan(
    inventory: Inventory, roles: Mapping[str, RoleSpec], refuse: Refuse | None = None
) -> Plan:
    """Return the plan of the cluster, or everything that is wrong with its inventory."""
    if inventory.unreadable:
        return Plan(None, tuple(sorted(map(str, inventory.unreadable))), ())
    findings = _Findings(list(inventory.problems), list(inventory.clear_texts))
    findings.warnings.extend(_plan_variables.name_warnings(inventory))
    findings.problems.extend(_plan_variables.check_groups(inventory))
    findings.problems.extend(_plan_variables.check_names(inventory))
    findings.add(_plan_variables.check_strays(inventory))
    checked = _plan_variables.check_variables(inventory, roles)
    valid = checked.valid
    findings.problems.extend(checked.problems)
    findings.warnings.extend(checked.warnings)
    findings.problems.extend(_plan_variables.check_required(inventory, roles, checked.meant))
    if refuse is not None:
        findings.problems.extend(refuse(inventory.hosts, valid, inventory.groups))
    cluster, problems = _plan_variables.cluster_values(checked, inventory)
    findings.problems.extend(problems)

    # What is required is there, or has been missed already.
    known = _value(cluster, "cluster_networks", {})
    networks, problems = _plan_networks.parse_networks(known.value, known.path)
    findings.problems.extend(problems)
    findings.problems.extend(_plan_networks.check_rails(networks, known.path))
    site = _setting(cluster, "cluster_profiles")
    profiles, problems, broken = resolve_profiles(site.value, site.path)
    findings.problems.extend(problems)
    profiles_known = _is_known("cluster_profiles", cluster, inventory)
    if not profiles_known:
        # What the built-in ones are changed to is not known either.
        profiles = {}
    described = _setting(cluster, "cluster_fabric")
    fabric = _plan_fabric.parse_fabric(described.value)

    nodes = [
        _plan_nodes.make_node(
            host,
            type_of(inventory, host),
            tuple(group for group in GROUPS if group in inventory.memberships[host]),
            valid[host],
            fabric,
            profiles,
        )
        for host in valid
    ]
    if profiles_known:
        findings.problems.extend(
            _plan_nodes.check_profiles(nodes, valid, profiles, broken, inventory.hosts, fabric)
        )
    for node in nodes:
        if node.present:
            layout = _plan_mig.check_mig(valid[node.name], profiles.get(node.profile or ""))
            findings.problems.extend(layout)
    findings.problems.extend(_plan_nodes.check_numbers(nodes))
    findings.problems.extend(_plan_nodes.check_identities(nodes))
    findings.problems.extend(_plan_nodes.check_racks(nodes, profiles, inventory.hosts))
    _check_fabric(nodes, profiles, fabric, described.path, findings)
    findings.problems.extend(_plan_fabric.check_kinds(known.value, known.path))
    kinds = filled(CLUSTER_VARIABLES["cluster_networks"], known.value)
    kind = _plan_fabric.rail_kind(fabric, {name: item["kind"] for name, item in kinds.items()})
    # What the rails run is only known by both.
    rails_known = "cluster_networks" in cluster and _is_known("cluster_fabric", cluster, inventory)
    if rails_known:
        findings.problems.extend(
            _plan_fabric.check_managed(
                described.value,
                kind,
                described.path,
                inventory.groups.get("subnet_managers", ()),
                [node.name for node in nodes if node.present],
                {
                    name
                    for name, values in inventory.hosts.items()
                    if "subnet_manager_ufm_url" in values and values["subnet_manager_ufm_url"].value
                },
                any(map(RAIL_NETWORK.fullmatch, known.value)),
            )
        )
    gpu_nodes = [node for node in nodes if node.present and node.type == "gpu_nodes"]
    findings.problems.extend(
        _plan_fabric.check_partners(described.value, described.path, len(gpu_nodes))
    )
    findings.problems.extend(_plan_slurm.check_spares(cluster.get("cluster_gate"), nodes))
    findings.problems.extend(_plan_repair.check_repair(cluster.get("cluster_repair"), nodes, valid))
    here = {node.name: valid[node.name] for node in nodes if node.present}
    findings.problems.extend(_plan_nodes.check_thresholds(here))
    findings.problems.extend(_plan_nodes.check_share(nodes, here, inventory.hosts))
    findings.problems.extend(_plan_monitoring.check_monitoring(inventory, here))
    findings.problems.extend(_plan_monitoring.check_watching(inventory, here))
    findings.problems.extend(_plan_monitoring.check_series_copies(inventory, here))
    findings.problems.extend(
        _plan_monitoring.check_fabric_exporter(inventory, here, described.value, kind)
    )
    findings.warnings.extend(_plan_monitoring.alert_warnings(inventory, here))
    admins = inventory.groups.get("storage_nodes", ())
    unknown = any(_plan_mounts.unknown_mounts(inventory.hosts[name], here[name]) for name in here)
    findings.problems.extend(_plan_mounts.check_home_quotas(here, admins, not unknown))
    complete = "cluster_networks" in cluster and networks.keys() == known.value.keys()
    others = _site_mounts(cluster, inventory)
    written, logins = inventory.hosts, inventory.logins
    _check_hosts(nodes, valid, networks, complete, roles, others, written, logins, findings)

    # With a profile that is wrong, a node is not known to have rails.
    wired = [
        node
        for node in nodes
        if _plan_nodes.has_place(node, profiles)
        and (node.profile in profiles or "node_profile" not in written[node.name])
    ]
    placed: list[Placed] = []
    if "cluster_networks" in cluster:
        placed = _check_addresses(nodes, valid, inventory, cluster, networks, findings)
        access = _setting(cluster, "cluster_access_network").value
        rails = {
            node.name: _plan_nodes.rail_networks(node, valid[node.name], profiles, fabric)
            for node in nodes
        }
        if rails_known:
            ported = {
                node.name: profiles.get(node.profile or "")
                for node in wired
                if node.present
                and node.type == "gpu_nodes"
                and not _plan_nodes.is_by_site(valid[node.name])
            }
            used = [item for item in placed if item.host in ported]
            addressed = {item.network for item in used}
            stored = {item.host: ported[item.host] for item in used if item.network == "storage"}
            managers = [
                name for name in inventory.groups.get("subnet_managers", ()) if name in here
            ]
            findings.warnings.extend(
                _plan_fabric.manager_warnings(fabric, kind, described.path, managers)
            )
            findings.problems.extend(
                _plan_fabric.check_ports(
                    fabric,
                    kind,
                    described.path,
                    known.path,
                    [network for network in networks.values() if network.name in addressed],
                    _plan_nodes.without_storage_port(stored),
                )
            )
        if kind == "ethernet":
            _check_rail_addresses(nodes, rails, inventory, known, findings)
        _check_interfaces(nodes, valid, known.value, networks, placed, access, rails, findings)
        findings.problems.extend(_plan_bmc.check_bmcs(nodes, valid, known, access, placed))
    _check_slurm(inventory, valid, nodes, cluster, findings)
    findings.problems.extend(
        _plan_containers.check_containers(nodes, valid, inventory.hosts, profiles)
    )
    _check_slurm_values(inventory, valid, nodes, profiles, fabric, networks, cluster, findings)
    findings.problems.extend(
        _plan_cabling.check_places(fabric, described.path, wired, findings.problems)
    )

    lines = tuple(sorted({str(problem) for problem in findings.problems}))
    notes = tuple(sorted(set(findings.warnings)))
    if lines:
        return Plan(None, lines, notes)
    cluster_data = {
        "name": cluster["cluster_name"].value,
        "domain": _setting(cluster, "cluster_domain").value,
        "access_network": _setting(cluster, "cluster_access_network").value,
        "networks": {name: network.as_data() for name, network in networks.items()},
        "fabric": _as_data(fabric),
        "fabric_kind": kind,
        "groups": {group: list(inventory.groups.get(group, ())) for group in GROUPS},
    }
    state_dir = _value(cluster, "cluster_state_dir", None).value
    if state_dir is None and inventory.directory:
        state_dir = inventory.directory + "/.dgx"
    return Plan(_data(cluster_data, nodes, placed, profiles, fabric), (), notes, state_dir)


def _data(
    cluster: dict[str, Any],
    nodes: list[Node],
    placed: list[Placed],
    profiles: Mapping[str, Profile],
    fabric: Fabric,
) -> dict[str, Any]:
    addresses: dict[str, dict[str, str]] = {}
    for item in placed:
        addresses.setdefault(item.host, {})[item.network] = str(item.address)
    order = list(cluster["networks"])
    used = sorted({node.profile for node in nodes if node.profile})
    return {
        "version": VERSION,
        "cluster": cluster,
        "nodes": [
            {
                "name": node.name,
                "number": node.number,
                "groups": list(node.groups),
                "state": node.state,
                "profile": node.profile,
                "addresses": {
                    name: addresses[node.name][name]
                    for name in order
                    if name in addresses.get(node.name, {})
                },
                "rack": node.rack,
                "rack_unit": node.rack_unit,
                "su": node.su,
                "leaf_place": node.leaf_place,
                "features": list(node.features),
                "serial": node.serial,
                "hca_guids": dict(node.hca_guids),
                "mig": {str(gpu): list(names) for gpu, names in node.mig.items()},
            }
            for node in nodes
        ],
        "profiles": {name: _as_data(profiles[name]) for name in used},
        "slurm": {
            "nodes": _plan_slurm.slurm_nodes(nodes, profiles),
            "topology": _plan_slurm.slurm_topology(nodes, fabric, profiles),
        },
    }


def _as_data(described: Any) -> dict[str, Any]:
    """Return the dataclass as mappings, lists and scalars, as it is read back from JSON."""
    data: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(described)))
    return data
