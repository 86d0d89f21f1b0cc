# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Nodes: from variables to typed nodes, and what two of them cannot share. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...module_utils._core.nodeset import fold
from ...module_utils._core.schema import Problem, closest, words
from ...module_utils._gpu.ask import check_own
from .._contract.contract import COMPUTE_GROUPS, NODE_VARIABLES
from .._contract.profiles import BUILT_IN, Profile
from .._inventory.values import Value, is_hidden, trailing_number
from .fabric import Fabric, guid_text
from .mig import Layout, layout_for


@dataclass(frozen=True)
class Node:
    """One node of the plan, its addresses apart."""

    name: str
    type: str
    path: str
    groups: tuple[str, ...]
    number: int | None
    state: str
    profile: str | None
    rack: str | None
    rack_unit: int | None
    su: int | None
    # From 1; what has no own number and place has None.
    leaf_place: int | None
    features: tuple[str, ...]
    slurm_weight: int
    serial: str | None
    hca_guids: Mapping[str, str]
    # The MIG instances of each GPU that is divided.
    mig: Layout

    @property
    def present(self) -> bool:
        """Whether the node is to be in the cluster."""
        return self.state == "present"

    @property
    def runs_jobs(self) -> bool:
        """Whether the node is in slurm.conf."""
        return self.present and any(group in self.groups for group in COMPUTE_GROUPS)


def make_node(
    name: str,
    kind: str,
    groups: tuple[str, ...],
    variables: Mapping[str, Value],
    fabric: Fabric,
    profiles: Mapping[str, Profile],
) -> Node:
    """Return the node that its checked variables describe."""

    def get(variable: str) -> Any:
        value = variables.get("node_" + variable)
        return NODE_VARIABLES["node_" + variable].default if value is None else value.value

    number = get("number")
    number = trailing_number(name) if number is None else int(number)
    unit, su = get("rack_unit"), get("su")
    in_fabric = fabric.grouped and kind == "gpu_nodes"
    if su is None and in_fabric and number:
        su = fabric.unit_of(number)
    place = get("leaf_place")
    if place is None and fabric.topology != "none" and kind == "gpu_nodes" and number:
        place = fabric.place_of(number)
    return Node(
        name=name,
        type=kind,
        path=f"{kind}.{name}",
        groups=groups,
        number=number,
        state=get("state"),
        profile=get("profile"),
        rack=get("rack"),
        rack_unit=None if unit is None else int(unit),
        su=None if su is None else int(su),
        leaf_place=None if place is None else int(place),
        features=tuple(get("features")),
        slurm_weight=int(get("slurm_weight")),
        serial=get("serial"),
        hca_guids={
            str(rail): guid_text(guid)
            for rail, guid in sorted(get("hca_guids").items(), key=lambda item: int(item[0]))
        },
        mig=layout_for(variables, profiles.get(get("profile"))),
    )


def check_profiles(
    nodes: list[Node],
    written: Mapping[str, Mapping[str, Value]],
    profiles: Mapping[str, Profile],
    broken: list[str],
    all_written: Mapping[str, Mapping[str, Value]],
    fabric: Fabric,
) -> Iterator[Problem]:
    """Yield profiles that lack, are unknown, or lack what the node's use needs."""
    known = sorted(set(profiles) | set(broken))
    for kind in COMPUTE_GROUPS:
        members = [node for node in nodes if kind in node.groups]
        without = [node for node in members if "node_profile" not in all_written.get(node.name, {})]
        remedy = "write {}".format(
            words(
                known if kind == "gpu_nodes" else [name for name in known if name not in BUILT_IN]
            )
        )
        if kind == "cpu_nodes" and remedy == "write ":
            remedy = "write your own from cluster_profiles, with cpu and real_memory_mb"
        if without and len(without) == len(members):
            yield Problem(f"{kind}.node_profile", "missing", remedy)
        else:
            for node in without:
                yield Problem(node.path + ".node_profile", "missing", remedy)
    # Hosts that share the variable may differ in use, and a template may give each its own value.
    found: dict[Problem, None] = {}
    for node in nodes:
        value = written.get(node.name, {}).get("node_profile")
        if value is None:
            continue
        if value.value not in known:
            near = closest(value.value, known)
            remedy = "write %s" % (near or words(known))
            wrong = f"no profile is called '{value.value}'"
            found[Problem(value.path, wrong, remedy)] = None
        elif value.value in profiles and node.runs_jobs:
            found.update(dict.fromkeys(_check_figures(value, profiles[value.value], node, fabric)))
    yield from found


def _check_figures(value: Value, profile: Profile, node: Node, fabric: Fabric) -> Iterator[Problem]:
    lacking = profile.open_figures()
    if node.type == "gpu_nodes" and profile.gpus is not None:
        # One socket is next to all GPUs.
        if not profile.gpus.cores and (profile.cpu is None or profile.cpu.sockets > 1):
            lacking.append("gpus.cores")
        if fabric.topology != "none" and any(rail.hca_pci is None for rail in profile.rails):
            lacking.append("hca_pci of rails")
    if lacking:
        wrong = f"profile {profile.name} leaves open {words(lacking, 'and')}"
        remedy = f"write them in cluster_profiles.{profile.name}, as this machine has them"
        yield Problem(value.path, wrong, remedy)
    if node.type == "cpu_nodes" and profile.gpus is not None:
        wrong = f"profile {profile.name} has GPUs, and hosts of cpu_nodes get no driver for them"
        yield Problem(value.path, wrong, "put the host into gpu_nodes, or write another profile")
    if node.type == "gpu_nodes" and profile.gpus is None:
        wrong = f"profile {profile.name} has no GPUs"
        yield Problem(value.path, wrong, "write another, or put the host into cpu_nodes")


def check_thresholds(variables: Mapping[str, Mapping[str, Value]]) -> Iterator[Problem]:
    """Yield invalid thresholds of gpu_health; variables are those of each host."""
    for name, key in (
        ("cluster_validation", "health_thresholds"),
        ("node_health_gpu", "thresholds"),
    ):
        found = {values[name].path: values[name] for values in variables.values() if name in values}
        for path, given in found.items():
            own = given.value.get(key) if isinstance(given.value, Mapping) else None
            if isinstance(own, Mapping):
                yield from check_own(f"{path}.{key}", own)


def check_share(
    nodes: list[Node],
    valid: Mapping[str, Mapping[str, Value]],
    written: Mapping[str, Mapping[str, Value]],
) -> Iterator[Problem]:
    """Yield a share of drained nodes that is not that of all that drain themselves: each counts
    all of them.
    """
    name, switch = "node_health_share", "node_health_enabled"
    watched = [
        node.name
        for node in nodes
        if node.runs_jobs and switch in valid[node.name] and valid[node.name][switch].value
    ]
    given = [valid[host].get(name) for host in watched]
    invalid = any(name in written[host] and name not in valid[host] for host in watched)
    if invalid or any(value and is_hidden(value.value) for value in given):
        return
    for value in given:
        first = given[0]
        if (value and value.value) != (first and first.value):
            place = value or first
            wrong = "is not the same for all nodes, and each counts all of them"
            yield Problem(place.path if place else name, wrong, "write it once, in group_vars/all")
            return


def check_numbers(nodes: list[Node]) -> Iterator[Problem]:
    """Yield node numbers that two nodes of one group share, and number 0."""
    owners: dict[tuple[str, int], Node] = {}
    for node in nodes:
        if node.number is None or not node.present:
            continue
        if node.number < 1:
            wrong = f"{node.number}, from the host name"
            yield Problem(node.path + ".node_number", wrong, "write a number from 1 on")
        owner = owners.setdefault((node.type, node.number), node)
        if owner is not node:
            wrong = f"{node.number} is also the number of {owner.path}"
            yield Problem(node.path + ".node_number", wrong, "write another number")


def check_identities(nodes: list[Node]) -> Iterator[Problem]:
    """Yield serial numbers and adapter GUIDs that two machines cannot share."""
    serials: dict[str, Node] = {}
    guids: dict[str, str] = {}
    for node in nodes:
        if not node.present:
            continue
        if node.serial:
            owner = serials.setdefault(node.serial.upper(), node)
            if owner is not node:
                wrong = f"'{node.serial}' is also the serial number of {owner.path}"
                remedy = "write the one on this machine"
                yield Problem(node.path + ".node_serial", wrong, remedy)
        for rail, guid in node.hca_guids.items():
            where = f"{node.path}.node_hca_guids.{rail}"
            first = guids.setdefault(guid, where)
            if first != where:
                wrong = f"{guid} is also the GUID of {first}"
                yield Problem(where, wrong, "write the one of this adapter")


def check_rails(
    nodes: list[Node], profiles: Mapping[str, Profile], fabric: Fabric, fabric_path: str
) -> tuple[list[Problem], list[str]]:
    """Return where profile and fabric disagree on rails, as problems, and on rates, as warnings.

    A node may have fewer rails than the fabric, or none; its places on the others stay free.
    """
    problems: list[Problem] = []
    warnings: list[str] = []
    judged: dict[str, Profile] = {}
    for node in nodes:
        profile = profiles.get(node.profile or "")
        if profile is None or profile.gpus is None or node.type != "gpu_nodes":
            continue
        for rail in node.hca_guids:
            if int(rail) >= len(profile.rails):
                where = f"{node.path}.node_hca_guids.{rail}"
                wrong = f"profile {profile.name} has rails 0 to {len(profile.rails) - 1}"
                problems.append(Problem(where, wrong, "write one of them"))
        if profile.name in judged or fabric.topology == "none" or not node.present:
            continue
        judged[profile.name] = profile
        if profile.rails and profile.link_rate_gbps not in (None, fabric.rate_gbps):
            warnings.append(
                f"{fabric_path}.rate_gbps: {fabric.rate_gbps}, but profile {profile.name} runs at "
                f"{profile.link_rate_gbps}"
            )
    if judged:
        widest = max(judged.values(), key=lambda profile: len(profile.rails))
        if len(widest.rails) != fabric.rails:
            wrong = f"{fabric.rails}, but profile {widest.name} has {len(widest.rails)}"
            remedy = f"write {len(widest.rails)}"
            if not widest.rails:
                wrong, remedy = f"{fabric.rails}, but no node has a rail", "write topology: none"
            problems.append(Problem(fabric_path + ".rails", wrong, remedy))
    return problems, warnings


def has_place(node: Node, profiles: Mapping[str, Profile]) -> bool:
    """Return whether the node may stand on the leaf switches: not if it is known to lack rails."""
    profile = profiles.get(node.profile or "")
    return node.type != "gpu_nodes" or profile is None or bool(profile.rails)


def keeping_ports(nodes: list[Node], fabric: Fabric) -> list[str]:
    """Return the absent GPU nodes whose places on the switches of a BasePOD no other node has."""
    if fabric.topology != "basepod":
        return []
    wired = [node for node in nodes if node.type == "gpu_nodes"]
    taken = {node.leaf_place for node in wired if node.present}
    places = set(range(1, fabric.room + 1)) - taken
    return [node.name for node in wired if not node.present and node.leaf_place in places]


def without_storage_port(profiles: Mapping[str, Profile | None]) -> list[str]:
    """Return the nodes, of those with these profiles, that have no InfiniBand storage port."""
    return [
        name
        for name, profile in profiles.items()
        if profile and all(port.link_layer != "infiniband" for port in profile.storage_ports)
    ]


def is_by_site(variables: Mapping[str, Value]) -> bool:
    """Return whether the site configures the ports of the node, and not the role infiniband."""
    manager = variables.get("infiniband_network_manager")
    return manager is not None and manager.value == "none"


def rail_networks(
    node: Node, variables: Mapping[str, Value], profiles: Mapping[str, Profile], fabric: Fabric
) -> tuple[str, ...]:
    """Return the networks of the node's rails, whose ports the role infiniband configures.

    None with infiniband_network_manager none: there the site does.
    """
    profile = profiles.get(node.profile or "")
    if profile is None or is_by_site(variables) or fabric.topology == "none":
        return ()
    return tuple(f"rail{rail.rail}" for rail in profile.rails if rail.rail < fabric.rails)


def check_racks(
    nodes: list[Node],
    profiles: Mapping[str, Profile],
    written: Mapping[str, Mapping[str, Value]],
) -> Iterator[Problem]:
    """Yield rack units without a rack, and nodes of one rack that overlap."""
    racks: dict[str, list[tuple[int, int, Node]]] = {}
    for node in nodes:
        if not node.present or node.rack_unit is None:
            continue
        if node.rack is None:
            if "node_rack" in written[node.name]:
                continue
            wrong = "missing, but node_rack_unit is given"
            yield Problem(node.path + ".node_rack", wrong, "write the name of the rack")
            continue
        profile = profiles.get(node.profile or "")
        height = (profile.rack_units if profile else None) or 1
        last = node.rack_unit + height - 1
        racks.setdefault(node.rack, []).append((node.rack_unit, last, node))
    for rack, places in racks.items():
        places.sort(key=lambda place: (place[0], place[1]))
        below: tuple[int, int, Node] | None = None
        for place in places:
            first, last, node = place
            if below and first <= below[1]:
                wrong = "{} of rack {} {} filled by {} ({})".format(
                    _units(first, last),
                    rack,
                    "is" if first == last else "are",
                    below[2].path,
                    _units(below[0], below[1]),
                )
                yield Problem(
                    node.path + ".node_rack_unit", wrong, "write a free unit, or another node_rack"
                )
            if below is None or last > below[1]:
                below = place


def _units(first: int, last: int) -> str:
    return f"unit {first}" if first == last else f"units {first}-{last}"


def missing_addresses(
    nodes: list[Node],
    network: str,
    why: str = "this is the network that SSH uses",
    or_else: str = "",
) -> Iterator[Problem]:
    """Yield that these nodes have no address on the network that SSH and Slurm, or `why`, need.

    or_else is what to write besides.
    """
    kinds: dict[str, list[Node]] = {}
    for node in nodes:
        kinds.setdefault(node.type, []).append(node)
    for kind, lacking in kinds.items():
        if len(lacking) == 1:
            yield Problem(
                f"{lacking[0].path}.node_address.{network}",
                f"missing, and {why}",
                f"write the address, or node_first_address.{network} for {kind}{or_else}",
            )
        else:
            yield Problem(
                f"{kind}.node_first_address.{network}",
                f"missing for {fold(node.name for node in lacking)}, and {why}",
                f"write the address of node number 1{or_else}",
            )
