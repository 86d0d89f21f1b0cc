# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The compute fabric: are there switches for every rail of every node? Pure.

Sources: DGX SuperPOD reference architectures for H100, B200 and B300 with XDR (tables of scalable
units, leaf, spine and core switches), DGX BasePOD reference architecture.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...module_utils._core.names import RAIL_NETWORK
from ...module_utils._core.nodeset import expand, fold
from ...module_utils._core.schema import Problem, closest, words
from ...module_utils._fabric.model import NDR200
from .._contract.contract import CLUSTER_VARIABLES
from .._contract.settings import filled
from .interfaces import BY_SITE
from .networks import Network

# A BasePOD of NDR switches is specified for two to eight nodes; there its links do not block. With
# NDR200, where each port of a switch is two, it is specified for twice as many.
BASEPOD_NODES = 8

# Spines of the units of a row, by the ports of a switch and the rails, where a table has rows other
# than powers of two: B300 with XDR, Table 3. Each leaf has as many cables to every spine.
_ROWS: dict[tuple[int, int], dict[int, int]] = {(144, 8): {1: 4, 2: 8, 4: 18, 8: 36, 18: 72}}

# The cables are those of the reference design.
COMPUTED = "computed"

_FABRIC = CLUSTER_VARIABLES["cluster_fabric"]

# The ways on for a fabric that is not as a rule has it.
A_LIST = "cabling: {source: csv} or {source: learned}"
OTHER_DESIGN = f"for another design write topology: leaf_spine, or {A_LIST}"

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
class Island:
    """Groups with separate spine switches, and how many cables join a pair of switches."""

    groups: int
    spines: int
    # From each leaf switch to each spine switch, and from each spine switch to each core switch.
    trunk: int
    core_trunk: int


@dataclass(frozen=True)
class LeafSpine:
    """The rule of a fabric of leaf and spine switches."""

    # A group of nodes shares its leaf switches: a rack, for example.
    nodes_per_group: int
    rails_per_leaf: int
    trunk: int
    core_trunk: int
    # The cores are divided into so many planes, as the spines of each island are.
    core_planes: int
    # The port of a leaf at which its cables to the spines begin; None is for the rule to say.
    first_uplink: int | None
    # As written: none for a fabric that is one island.
    islands: tuple[Island, ...]


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
    leaf_spine: LeafSpine | None = None

    @property
    def computed(self) -> bool:
        """Whether the cables are those of the reference design."""
        return self.cabling.source == COMPUTED

    @property
    def switches(self) -> tuple[str, ...]:
        """All switches, leaves first."""
        return self.leaf_switches + self.spine_switches + self.core_switches

    @property
    def rule(self) -> LeafSpine | None:
        """The rule that is in force."""
        return self.leaf_spine if self.topology == "leaf_spine" else None

    @property
    def grouped(self) -> bool:
        """Whether nodes share leaf switches by unit: a scalable unit, or a group of the rule."""
        return self.topology == "superpod" or self.rule is not None

    @property
    def unit_word(self) -> str:
        """What a unit is called."""
        return "group" if self.topology == "leaf_spine" else "scalable unit"

    @property
    def unit_size(self) -> int:
        """Nodes of a unit; of a scalable unit, half of a leaf's ports go down."""
        return self.rule.nodes_per_group if self.rule else self.radix // 2

    @property
    def room(self) -> int:
        """Places for nodes on the leaf switches of a unit; in a BasePOD some ports join the two."""
        if self.grouped:
            return self.unit_size
        return (self.radix - 1) // max(len(rails) for rails in self.rails_of_leaf)

    @property
    def unit_leaves(self) -> int:
        """Leaf switches that the rails of a node are shared out among."""
        if self.topology == "basepod":
            return 2
        return -(-self.rails // (self.rule.rails_per_leaf if self.rule else 1))

    @property
    def units(self) -> int:
        """Units that the leaf switches suffice for."""
        return len(self.leaf_switches) // self.unit_leaves

    @property
    def islands(self) -> tuple[Island, ...]:
        """The islands of the rule; a fabric without any is one."""
        rule = self.rule
        if rule is None or rule.islands:
            return rule.islands if rule else ()
        return (Island(self.units, len(self.spine_switches), rule.trunk, rule.core_trunk),)

    def unit_of(self, number: int) -> int:
        """Return the unit of the node with this number."""
        return (number - 1) // self.unit_size + 1

    def place_of(self, number: int) -> int:
        """Return the place on its leaf switches, from 1, of the node with this number.

        Counted from the number and not from the neighbours, so that a node that comes or goes moves
        no other node's cable.
        """
        return (number - 1) % self.unit_size + 1 if self.grouped else number

    @property
    def rails_of_leaf(self) -> tuple[tuple[int, ...], ...]:
        """The rails of each leaf switch of a unit, or of each switch of a BasePOD."""
        rails, count = range(self.rails), self.unit_leaves
        if self.rail_groups == "even_odd":
            return tuple(tuple(rails[leaf::count]) for leaf in range(count))
        each = -(-self.rails // count)
        return tuple(tuple(rails[leaf * each : (leaf + 1) * each]) for leaf in range(count))


def guid_text(text: str) -> str:
    """Return the GUID as sysfs and the InfiniBand tools compare it: 0x and 16 lower-case digits."""
    return "0x" + text.lower().replace(":", "").replace("0x", "", 1).zfill(16)


def _names(written: Sequence[str]) -> tuple[str, ...]:
    """Return the names, each range in brackets expanded; what means nothing stays as it is."""
    names: list[str] = []
    for text in written:
        try:
            names += expand(text.replace(":", "-"))
        except ValueError:
            names.append(text)
    return tuple(names)


def _parse_leaf_spine(data: Mapping[str, Any] | None) -> LeafSpine | None:
    if not data or data.get("nodes_per_group") is None:
        return None
    trunk, core_trunk = int(data["trunk"]), int(data["core_trunk"])
    first = data.get("first_uplink")
    return LeafSpine(
        nodes_per_group=int(data["nodes_per_group"]),
        rails_per_leaf=int(data["rails_per_leaf"]),
        trunk=trunk,
        core_trunk=core_trunk,
        core_planes=int(data["core_planes"]),
        first_uplink=None if first is None else int(first),
        islands=tuple(
            Island(
                int(island["groups"]),
                int(island["spines"]),
                int(island.get("trunk") or trunk),
                int(island.get("core_trunk") or core_trunk),
            )
            for island in data["islands"]
        ),
    )


def parse_fabric(data: Mapping[str, Any]) -> Fabric:
    """Return the fabric that checked data describes."""
    data = filled(_FABRIC, data)
    cabling = data["cabling"]
    return Fabric(
        topology=data["topology"],
        leaf_switches=_names(data["leaf_switches"]),
        spine_switches=_names(data["spine_switches"]),
        core_switches=_names(data["core_switches"]),
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
        leaf_spine=_parse_leaf_spine(data.get("leaf_spine")),
    )


def rail_kind(fabric: Fabric, kinds: Mapping[str, str]) -> str:
    """Return what the rails run: none without a fabric, else infiniband or ethernet.

    kinds has the kind of each network. Rails that have no network have no addresses, as InfiniBand
    needs none; Ethernet rails have one each.
    """
    if fabric.topology == "none":
        return "none"
    rails = {kind for name, kind in kinds.items() if RAIL_NETWORK.fullmatch(name)}
    return "ethernet" if rails and "infiniband" not in rails else "infiniband"


def check_kinds(networks: Mapping[str, Mapping[str, Any]], path: str) -> Iterator[Problem]:
    """Yield rails that differ from the others in kind: one cluster has one kind of rails."""
    known = filled(CLUSTER_VARIABLES["cluster_networks"], networks)
    rails = {name: item["kind"] for name, item in known.items() if RAIL_NETWORK.fullmatch(name)}
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
    with_ufm: Collection[str],
    named: bool = True,
) -> Iterator[Problem]:
    """Yield that no host would manage the subnet, or look at it, or measure between nodes.

    described is the valid cluster_fabric, kind what the rails run, managers the hosts of
    subnet_managers, present the nodes that are not declared absent, with_ufm hosts that know
    where UFM is. Without a network of a rail (named), the rails may be meant to be Ethernet.
    """
    host = described.get("fabric_host")
    here = [name for name in managers if name in present]
    if described.get("read_from") == "ufm" and (host or next(iter(here), "")) not in with_ufm:
        yield Problem(
            f"{path}.read_from",
            "ufm, but the host that reads the fabric has no subnet_manager_ufm_url",
            "write it in group_vars/subnet_managers, and put a host there that reaches UFM",
        )
    if described.get("switch_health"):
        where = f"{path}.switch_health"
        if kind != "infiniband":
            yield Problem(where, "true, but ibswinfo asks InfiniBand switches only", "write false")
        elif described.get("read_from") == "ufm":
            wrong = f"true, but {path}.read_from is ufm: no host asks the switches"
            yield Problem(where, wrong, "write false, and watch them in UFM")
    if host is not None and host not in present:
        near = closest(host, present)
        wrong = f"no host that is present is called '{host}'"
        yield Problem(f"{path}.fabric_host", wrong, f"write {near or 'a host of the inventory'}")
    if kind == "infiniband" and not here and host is None:
        why = "its hosts are all absent" if managers else "no host in it"
        yield Problem(
            "subnet_managers",
            f"{why}, and an InfiniBand fabric needs a subnet manager and a host that looks at its "
            "cables",
            f"put a host into this group, or, where UFM or a switch manages the subnet, write a "
            f"host on the fabric as {path}.fabric_host"
            + (
                "" if named else ", or, for Ethernet, call the networks of the rails rail0, rail1 …"
            ),
        )


def check_ports(
    fabric: Fabric,
    kind: str,
    path: str,
    networks_path: str,
    used: Sequence[Network],
    portless: Sequence[str],
) -> Iterator[Problem]:
    """Yield networks on which GPU nodes have addresses, and that no role would set up.

    kind is what the rails run, used are the networks, without nodes whose ports the site
    configures; portless are nodes with an address on storage and no InfiniBand port for it.
    """
    infiniband = [network.name for network in used if network.kind == "infiniband"]
    if kind == "none":
        # Switches and cables without a topology have been reported.
        if infiniband and fabric.computed and not fabric.switches:
            wrong = f"none, but GPU nodes have addresses on {fold(infiniband)}"
            remedy = "write basepod, superpod or leaf_spine"
            yield Problem(f"{path}.topology", wrong, remedy + BY_SITE)
        return
    rails = [f"rail{rail}" for rail in range(fabric.rails)]
    # What the inputs of the role infiniband have a port for.
    ports = [*rails, "storage"] if kind == "infiniband" else rails
    lost = [
        network.name
        for network in used
        if network.name not in ports
        and (network.kind == "infiniband" or RAIL_NETWORK.fullmatch(network.name))
    ]
    if lost:
        wrong = f"no port of the GPU nodes gets the addresses on {fold(lost)}"
        remedy = f"write names out of {fold(ports)}"
        if kind == "ethernet" and lost[0] in infiniband:
            remedy = "write kind: ethernet"
        yield Problem(f"{networks_path}.{lost[0]}", wrong, remedy + BY_SITE)
    elif portless and "storage" in infiniband:
        wrong = f"infiniband, but the profile of {fold(portless)} has no such storage port"
        remedy = "write kind: ethernet, or the profile's storage_ports"
        yield Problem(f"{networks_path}.storage.kind", wrong, remedy + BY_SITE)


def manager_warnings(fabric: Fabric, kind: str, path: str, managers: Sequence[str]) -> list[str]:
    """Return that hosts of subnet_managers, those that are present, manage no subnet.

    kind is what the rails run, path that of cluster_fabric.
    """
    if kind == "infiniband" or not managers:
        return []
    idle = f"with which {fold(managers)} of subnet_managers manages no subnet"
    if fabric.topology == "none":
        remedy = "write basepod, superpod or leaf_spine, or leave the group empty"
        return [f"{path}.topology: none, {idle}; {remedy}"]
    return [f"{path}: its rails are Ethernet, {idle}; leave the group empty"]


def check_partners(described: Mapping[str, Any], path: str, count: int) -> Iterator[Problem]:
    """Yield tests between nodes where there are not two of them."""
    for key in ("pair_tests", "group_tests"):
        if count < 2 and _measures(described, key):
            yield Problem(
                f"{path}.{key}.transport",
                f"{count} node is in gpu_nodes, and two are needed to measure between nodes",
                "write none",
            )


def row_of(fabric: Fabric, units: int) -> int:
    """Return the units of the published row that so many units are part of.

    3 units have the spines of 4: other counts are taken to be part of the next larger row. The rows
    are powers of two where _ROWS has no others.
    """
    published = _ROWS.get((fabric.radix, fabric.rails), {})
    powers = 1 << max(units - 1, 0).bit_length()
    return min((row for row in published if row >= units), default=powers)


def upper_tiers(fabric: Fabric, units: int) -> tuple[int, int]:
    """Return how many spine and core switches a SuperPOD of so many units has.

    Two tiers end with as many leaves as a switch has ports.
    """
    row = row_of(fabric, units)
    published = _ROWS.get((fabric.radix, fabric.rails), {}).get(row)
    if published:
        return published, 0
    leaves = row * fabric.rails
    if leaves <= fabric.radix:
        return max(1, leaves // 2), 0
    return leaves, leaves // 2


def count_switches(count: int, kind: str = "") -> str:
    """Return a count of switches for a sentence."""
    return "{} {}switch{}".format(count, kind + " " if kind else "", "" if count == 1 else "es")


def count_units(count: int, word: str = "scalable unit") -> str:
    """Return a count of units for a sentence."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def check_fabric(
    fabric: Fabric,
    path: str,
    hosts: Mapping[str, str],
    units: Mapping[str, int],
    absent: Sequence[str] = (),
) -> Iterator[Problem]:
    """Yield where switches lack or are too many; of a rule, check_leaf_spine says that.

    hosts has the path of each host, units the scalable unit of each GPU node; absent are the nodes
    that are declared so and keep their ports.
    """
    yield from _check_switch_names(fabric, path, hosts)
    if fabric.leaf_spine is not None and fabric.topology != "leaf_spine":
        wrong = f"given, but the topology is {fabric.topology}"
        remedy = "write topology: leaf_spine, or remove it"
        yield Problem(path + ".leaf_spine", wrong, remedy)
    if any("[" in name for name in fabric.switches):
        return
    if fabric.topology == "none":
        for key in ("leaf_switches", "spine_switches", "core_switches"):
            if getattr(fabric, key):
                wrong = f"{count_switches(len(getattr(fabric, key)))}, but the topology is none"
                remedy = "write topology: basepod, superpod or leaf_spine, or remove them"
                yield Problem(f"{path}.{key}", wrong, remedy)
    elif not fabric.computed:
        # A list of cables decides how many switches there are.
        if not fabric.leaf_switches:
            remedy = "write the names of the leaf switches"
            yield Problem(path + ".leaf_switches", "no switches", remedy)
    elif fabric.topology == "basepod":
        yield from _check_basepod(fabric, path, len(units), absent)
    elif fabric.topology == "superpod":
        yield from _check_superpod(fabric, path, hosts, units)


def _check_switch_names(fabric: Fabric, path: str, hosts: Mapping[str, str]) -> Iterator[Problem]:
    seen: dict[str, str] = {name.lower(): where for name, where in hosts.items()}
    for key in ("leaf_switches", "spine_switches", "core_switches"):
        for index, name in enumerate(getattr(fabric, key)):
            where = f"{path}.{key}[{index}]"
            if "[" in name:
                try:
                    expand(name.replace(":", "-"))
                except ValueError as exc:
                    message = str(exc).replace(name.replace(":", "-"), name)
                    yield Problem(where, message, "write a range like leaf-[01:32]")
            if name.lower() in seen:
                wrong = f"'{name}' is also the name of {seen[name.lower()]}"
                yield Problem(where, wrong, "write another name")
            seen.setdefault(name.lower(), where)


def _check_basepod(
    fabric: Fabric, path: str, nodes: int, absent: Sequence[str]
) -> Iterator[Problem]:
    if len(fabric.leaf_switches) != 2:
        wrong = f"{count_switches(len(fabric.leaf_switches))} for a BasePOD"
        yield Problem(path + ".leaf_switches", wrong, "write the names of its two")
    for key in ("spine_switches", "core_switches"):
        if getattr(fabric, key):
            wrong = f"{count_switches(len(getattr(fabric, key)))}, but a BasePOD has none"
            yield Problem(f"{path}.{key}", wrong, "remove them, or write topology: superpod")
    used = nodes * fabric.rails // 2
    if used >= fabric.radix:
        yield Problem(
            path + ".topology",
            f"{nodes} nodes take {used} of {fabric.radix} ports of each switch, none is left to "
            "join the two",
            "write superpod or leaf_spine, with leaf and spine switches",
        )
    elif absent and _left(fabric, nodes + len(absent)) <= 0:
        yield Problem(
            path + ".topology",
            f"{nodes} nodes, and the absent {fold(absent)}, which keep theirs, take all ports of "
            "each switch but those of reserved_ports, none is left to join the two",
            "delete the lines of absent nodes that do not come back",
        )


def _left(fabric: Fabric, nodes: int) -> int:
    """Return how many ports of each switch of a BasePOD so many nodes leave to join the two."""
    reserved = max(map(len, fabric.reserved_ports.values()), default=0)
    return fabric.radix - nodes * fabric.rails // 2 - reserved


def _check_superpod(
    fabric: Fabric, path: str, hosts: Mapping[str, str], units: Mapping[str, int]
) -> Iterator[Problem]:
    leaves = len(fabric.leaf_switches)
    needed = max(units.values(), default=1)
    if leaves % fabric.rails or not leaves:
        each = f"each of {fabric.rails} rails needs one in each scalable unit"
        wrong = f"{count_switches(leaves)}, but {each}"
        remedy = f"write {needed * fabric.rails}, for {count_units(needed)}"
        yield Problem(path + ".leaf_switches", wrong, f"{remedy}; {OTHER_DESIGN}")
        return
    yield from check_units(fabric, hosts, units)
    if fabric.ufm_unit > fabric.units:
        wrong = f"{fabric.ufm_unit}, but the leaf switches make {count_units(fabric.units)}"
        yield Problem(path + ".ufm_unit", wrong, "write a unit that exists")
    spines, cores = upper_tiers(fabric, fabric.units)
    for key, count in (("spine_switches", spines), ("core_switches", cores)):
        given = len(getattr(fabric, key))
        if given != count:
            wrong = "{} for {}".format(count_switches(given), count_switches(leaves, "leaf"))
            remedy = f"write {count}, as the reference design has; {OTHER_DESIGN}"
            yield Problem(f"{path}.{key}", wrong, remedy)
    yield from check_unit_sizes(fabric, path, units)


def check_units(
    fabric: Fabric, hosts: Mapping[str, str], units: Mapping[str, int]
) -> Iterator[Problem]:
    """Yield nodes without a unit, and those of a unit that has no leaf switches."""
    for host, unit in units.items():
        if not unit:
            wrong = "missing, and the host name has no number to count it from"
            yield Problem(hosts[host] + ".node_su", wrong, f"write its {fabric.unit_word}")
        elif unit > fabric.units:
            leaves = count_switches(len(fabric.leaf_switches), "leaf")
            wrong = f"in {fabric.unit_word} {unit}, but {leaves} make {fabric.units}"
            word = fabric.unit_word.rpartition(" ")[2]
            remedy = f"write {unit * fabric.unit_leaves} leaf switches, or another {word}"
            yield Problem(hosts[host] + ".node_su", wrong, remedy)


def check_unit_sizes(fabric: Fabric, path: str, units: Mapping[str, int]) -> Iterator[Problem]:
    """Yield units with more nodes than places."""
    for unit in sorted(set(units.values()) - {0}):
        count = sum(1 for other in units.values() if other == unit)
        # The node whose ports UFM takes: this is why there are 31, 63, 95 and 127 of them.
        room = fabric.unit_size - (1 if unit == fabric.ufm_unit else 0)
        if count > room:
            ufm = ", one node's ports being UFM's" if unit == fabric.ufm_unit else ""
            wrong = (
                f"{count} nodes in {fabric.unit_word} {unit}, but its leaf switches have ports for "
                f"{room}{ufm}"
            )
            yield Problem(path, wrong, "write another node_su for %s of them" % (count - room))


def fabric_warnings(fabric: Fabric, path: str, nodes: int, absent: Sequence[str] = ()) -> list[str]:
    """Return what is possible but not as the reference designs have it.

    absent are the nodes that are declared so and keep their ports.
    """
    if fabric.topology != "basepod" or not fabric.computed:
        return []
    most = BASEPOD_NODES * (2 if (fabric.rate_gbps, fabric.radix) == NDR200 else 1)
    down, left = nodes * fabric.rails // 2, _left(fabric, nodes)
    lines = []
    if nodes > most:
        lines.append(
            f"{path}: {nodes} nodes in a BasePOD, which is specified for {most}; "
            f"{left} ports of each switch are left to join the two, "
            f"{down} would not block"
        )
    with_absent = _left(fabric, nodes + len(absent))
    if absent and with_absent < down:
        lines.append(
            f"{path}: {fold(absent)} absent, with ports that are kept: {with_absent} cables are "
            f"planned to join the two switches, and {down} would not block; delete the lines of "
            "nodes that do not come back"
        )
    return lines
