# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The compute fabric: are there switches for every rail of every node? Pure.

Sources: DGX SuperPOD reference architectures for H100 and B200 (tables of scalable units, leaf,
spine and core switches), DGX BasePOD reference architecture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...module_utils._core.schema import Problem, closest, words
from .._contract.contract import CLUSTER_VARIABLES
from .._contract.settings import filled

# A BasePOD of NDR switches is specified for two to eight nodes; there its links do not block.
BASEPOD_NODES = 8

# The network of a rail is called by its number.
_RAIL = re.compile(r"rail[0-9]+")

# The cables are those of the reference design.
COMPUTED = "computed"

_FABRIC = CLUSTER_VARIABLES["cluster_fabric"]

# A pair of UFM appliances with two ports each (published tables: 8 cables a node, and 4).
UFM_CABLES = 4


@dataclass(frozen=True)
class Cabling:
    """Who says which cable goes where, and in which file, as the inventory names it."""

    source: str
    file: str | None = None


@dataclass(frozen=True)
class SwitchPlace:
    """Where a switch stands; None is what the inventory leaves open."""

    rack: str | None = None
    rack_unit: int | None = None


@dataclass(frozen=True)
class Fabric:
    """The compute fabric as the inventory describes it."""

    topology: str
    leaf_switches: tuple[str, ...]
    spine_switches: tuple[str, ...]
    core_switches: tuple[str, ...]
    radix: int
    rails: int
    rate_gbps: int
    ufm_unit: int
    rail_groups: str
    cabling: Cabling
    # By name of the switch; GUIDs as 0x and 16 lower-case digits.
    switch_guids: Mapping[str, str] = field(default_factory=dict)
    switch_places: Mapping[str, SwitchPlace] = field(default_factory=dict)
    # By name of the switch: ports that something outside the plan hangs on.
    reserved_ports: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # The host that looks at it, where the inventory names one.
    fabric_host: str | None = None

    @property
    def computed(self) -> bool:
        """Whether the cables are those of the reference design."""
        return self.cabling.source == COMPUTED

    @property
    def switches(self) -> tuple[str, ...]:
        """All switches, leaves first."""
        return self.leaf_switches + self.spine_switches + self.core_switches

    @property
    def unit_size(self) -> int:
        """Nodes of a scalable unit: half of a leaf's ports go down."""
        return self.radix // 2

    @property
    def units(self) -> int:
        """Scalable units that the leaf switches suffice for."""
        return len(self.leaf_switches) // self.rails

    def unit_of(self, number: int) -> int:
        """Return the scalable unit of the node with this number."""
        return (number - 1) // self.unit_size + 1

    def place_of(self, number: int) -> int:
        """Return the place on its leaf switches, from 1, of the node with this number.

        Counted from the number and not from the neighbours, so that a node that comes or goes moves
        no other node's cable.
        """
        return (number - 1) % self.unit_size + 1 if self.topology == "superpod" else number

    @property
    def rails_of_leaf(self) -> tuple[tuple[int, ...], ...]:
        """The rails of the first and the second switch of a BasePOD."""
        rails = range(self.rails)
        half = (self.rails + 1) // 2
        if self.rail_groups == "even_odd":
            return tuple(rails[0::2]), tuple(rails[1::2])
        return tuple(rails[:half]), tuple(rails[half:])


def guid_text(text: str) -> str:
    """Return the GUID as sysfs and the InfiniBand tools compare it: 0x and 16 lower-case digits."""
    return "0x" + text.lower().replace(":", "").replace("0x", "", 1).zfill(16)


def parse_fabric(data: Mapping[str, Any]) -> Fabric:
    """Return the fabric that checked data describes."""
    data = filled(_FABRIC, data)
    cabling = data["cabling"]
    return Fabric(
        topology=data["topology"],
        leaf_switches=tuple(data["leaf_switches"]),
        spine_switches=tuple(data["spine_switches"]),
        core_switches=tuple(data["core_switches"]),
        radix=int(data["radix"]),
        rails=int(data["rails"]),
        rate_gbps=int(data["rate_gbps"]),
        ufm_unit=int(data.get("ufm_unit") or 0),
        rail_groups=data["rail_groups"],
        cabling=Cabling(cabling["source"], cabling.get("file")),
        switch_guids={
            name: guid_text(guid) for name, guid in (data.get("switch_guids") or {}).items()
        },
        switch_places={
            name: SwitchPlace(
                place.get("rack"),
                None if place.get("rack_unit") is None else int(place["rack_unit"]),
            )
            for name, place in (data.get("switch_places") or {}).items()
        },
        reserved_ports={
            name: tuple(int(port) for port in ports)
            for name, ports in (data.get("reserved_ports") or {}).items()
        },
        fabric_host=data.get("fabric_host"),
    )


def rail_kind(fabric: Fabric, kinds: Mapping[str, str]) -> str:
    """Return what the rails run: none without a fabric, else infiniband or ethernet.

    kinds has the kind of each network. Rails that have no network have no addresses, as InfiniBand
    needs none; Ethernet rails have one each.
    """
    if fabric.topology == "none":
        return "none"
    rails = {kind for name, kind in kinds.items() if _RAIL.fullmatch(name)}
    return "ethernet" if rails and "infiniband" not in rails else "infiniband"


def check_kinds(networks: Mapping[str, Mapping[str, Any]], path: str) -> Iterator[Problem]:
    """Yield rails that differ from the others in kind: one cluster has one kind of rails."""
    known = filled(CLUSTER_VARIABLES["cluster_networks"], networks)
    rails = {name: item["kind"] for name, item in known.items() if _RAIL.fullmatch(name)}
    if len(set(rails.values())) < 2:
        return
    for name, kind in rails.items():
        if kind == "infiniband":
            continue
        others = words([other for other in rails if rails[other] == "infiniband"], "and")
        wrong = f"ethernet, but infiniband is the kind of {others}"
        if "kind" not in networks[name]:
            wrong = f"missing, which means {wrong}"
        yield Problem(f"{path}.{name}.kind", wrong, "write the same kind for all rails")


def _measures(described: Mapping[str, Any], key: str) -> bool:
    """Return whether cluster_fabric asks for these tests between nodes."""
    return bool(filled(_FABRIC, described)[key]["transport"] != "none")


def check_managed(
    described: Mapping[str, Any],
    kind: str,
    path: str,
    managers: Sequence[str],
    present: Sequence[str],
) -> Iterator[Problem]:
    """Yield that no host would manage the subnet, or look at it, or measure between nodes.

    described is the valid cluster_fabric, kind what the rails run, managers the hosts of
    subnet_managers, present the nodes that are not declared absent.
    """
    host = described.get("fabric_host")
    if host is not None and host not in present:
        near = closest(host, present)
        wrong = f"no host that is present is called '{host}'"
        yield Problem(f"{path}.fabric_host", wrong, f"write {near or 'a host of the inventory'}")
    if kind == "infiniband" and not managers and host is None:
        yield Problem(
            "subnet_managers",
            "no host in it, and an InfiniBand fabric needs a subnet manager and a host that looks "
            "at its cables",
            f"put a host into this group, or, where UFM or a switch manages the subnet, write a "
            f"host on the fabric as {path}.fabric_host",
        )


def check_partners(described: Mapping[str, Any], path: str, count: int) -> Iterator[Problem]:
    """Yield tests between nodes where there are not two of them."""
    for key in ("pair_tests", "group_tests"):
        if count < 2 and _measures(described, key):
            yield Problem(
                f"{path}.{key}.transport",
                f"{count} node is in gpu_nodes, and two are needed to measure between nodes",
                "write none",
            )


def upper_tiers(fabric: Fabric, units: int) -> tuple[int, int]:
    """Return how many spine and core switches a SuperPOD of so many units has.

    The published rows are powers of two, and 3 units have the spines of 4: other counts are taken
    to be part of the next larger row. Two tiers end with as many leaves as a switch has ports.
    """
    row = 1
    while row < units:
        row *= 2
    leaves = row * fabric.rails
    if leaves <= fabric.radix:
        return max(1, leaves // 2), 0
    return leaves, leaves // 2


def _switches(count: int, kind: str = "") -> str:
    return "{} {}switch{}".format(count, kind + " " if kind else "", "" if count == 1 else "es")


def _units(count: int) -> str:
    return f"{count} scalable unit{'' if count == 1 else 's'}"


def check_fabric(
    fabric: Fabric, path: str, hosts: Mapping[str, str], units: Mapping[str, int]
) -> Iterator[Problem]:
    """Yield where switches lack or are too many.

    hosts has the path of each host, units the scalable unit of each GPU node.
    """
    yield from _check_switch_names(fabric, path, hosts)
    if fabric.topology == "none":
        for key in ("leaf_switches", "spine_switches", "core_switches"):
            if getattr(fabric, key):
                wrong = f"{_switches(len(getattr(fabric, key)))}, but the topology is none"
                remedy = "write topology: basepod or superpod, or remove them"
                yield Problem(f"{path}.{key}", wrong, remedy)
    elif not fabric.computed:
        # A list of cables decides how many switches there are.
        if not fabric.leaf_switches:
            remedy = "write the names of the leaf switches"
            yield Problem(path + ".leaf_switches", "no switches", remedy)
    elif fabric.topology == "basepod":
        yield from _check_basepod(fabric, path, len(units))
    else:
        yield from _check_superpod(fabric, path, hosts, units)


def _check_switch_names(fabric: Fabric, path: str, hosts: Mapping[str, str]) -> Iterator[Problem]:
    seen: dict[str, str] = {name.lower(): where for name, where in hosts.items()}
    for key in ("leaf_switches", "spine_switches", "core_switches"):
        for index, name in enumerate(getattr(fabric, key)):
            where = f"{path}.{key}[{index}]"
            if name.lower() in seen:
                wrong = f"'{name}' is also the name of {seen[name.lower()]}"
                yield Problem(where, wrong, "write another name")
            seen.setdefault(name.lower(), where)


def _check_basepod(fabric: Fabric, path: str, nodes: int) -> Iterator[Problem]:
    if len(fabric.leaf_switches) != 2:
        wrong = f"{_switches(len(fabric.leaf_switches))} for a BasePOD"
        yield Problem(path + ".leaf_switches", wrong, "write the names of its two")
    for key in ("spine_switches", "core_switches"):
        if getattr(fabric, key):
            wrong = f"{_switches(len(getattr(fabric, key)))}, but a BasePOD has none"
            yield Problem(f"{path}.{key}", wrong, "remove them, or write topology: superpod")
    used = nodes * fabric.rails // 2
    if used >= fabric.radix:
        yield Problem(
            path + ".topology",
            f"{nodes} nodes take {used} of {fabric.radix} ports of each switch, none is left to "
            "join the two",
            "write superpod, with leaf and spine switches",
        )


def _check_superpod(
    fabric: Fabric, path: str, hosts: Mapping[str, str], units: Mapping[str, int]
) -> Iterator[Problem]:
    leaves = len(fabric.leaf_switches)
    needed = max(units.values(), default=1)
    if leaves % fabric.rails or not leaves:
        wrong = (
            f"{_switches(leaves)}, but each of {fabric.rails} rails needs one in each scalable unit"
        )
        remedy = f"write {needed * fabric.rails}, for {_units(needed)}"
        yield Problem(path + ".leaf_switches", wrong, remedy)
        return
    for host, unit in units.items():
        if not unit:
            wrong = "missing, and the host name has no number to count it from"
            yield Problem(hosts[host] + ".node_su", wrong, "write its scalable unit")
        elif unit > fabric.units:
            wrong = "in scalable unit {}, but {} make {}".format(
                unit,
                _switches(leaves, "leaf"),
                fabric.units,
            )
            remedy = "write %s leaf switches, or another unit" % (unit * fabric.rails)
            yield Problem(hosts[host] + ".node_su", wrong, remedy)
    if fabric.ufm_unit > fabric.units:
        wrong = f"{fabric.ufm_unit}, but the leaf switches make {_units(fabric.units)}"
        yield Problem(path + ".ufm_unit", wrong, "write a unit that exists")
    spines, cores = upper_tiers(fabric, fabric.units)
    for key, count in (("spine_switches", spines), ("core_switches", cores)):
        given = len(getattr(fabric, key))
        if given != count:
            wrong = "{} for {}".format(_switches(given), _switches(leaves, "leaf"))
            yield Problem(f"{path}.{key}", wrong, f"write {count}, as the reference design has")
    yield from _check_unit_sizes(fabric, path, units)


def _check_unit_sizes(fabric: Fabric, path: str, units: Mapping[str, int]) -> Iterator[Problem]:
    for unit in sorted(set(units.values()) - {0}):
        count = sum(1 for other in units.values() if other == unit)
        # The node whose ports UFM takes: this is why there are 31, 63, 95 and 127 of them.
        room = fabric.unit_size - (1 if unit == fabric.ufm_unit else 0)
        if count > room:
            ufm = ", one node's ports being UFM's" if unit == fabric.ufm_unit else ""
            wrong = (
                f"{count} nodes in scalable unit {unit}, but its leaf switches have ports for "
                f"{room}{ufm}"
            )
            yield Problem(path, wrong, "write another node_su for %s of them" % (count - room))


def fabric_warnings(fabric: Fabric, path: str, nodes: int) -> list[str]:
    """Return what is possible but not as the reference designs have it."""
    if fabric.topology != "basepod" or not fabric.computed or nodes <= BASEPOD_NODES:
        return []
    down = nodes * fabric.rails // 2
    left = fabric.radix - down - max(map(len, fabric.reserved_ports.values()), default=0)
    return [
        (
            f"{path}: {nodes} nodes in a BasePOD, which is specified for {BASEPOD_NODES}; "
            f"{left} ports of each switch are left to join the two, "
            f"{down} would not block"
        )
    ]
