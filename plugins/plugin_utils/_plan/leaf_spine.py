# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A fabric of leaf and spine switches by rule: its cables, and where the rule does not fit. Pure.

Switches are listed by island, leaf switches within it by group and rail. In an island every leaf
has `trunk` cables to every spine; above it every spine has `core_trunk` to every core of its plane.
Each lower switch counts these cables from its first uplink on, each upper one from port 1 on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from ...module_utils._core.schema import Problem, words
from ...module_utils._fabric.model import LEAF_SPINE, SPINE_CORE, Cable, switch_end
from .fabric import (
    A_LIST,
    Fabric,
    Island,
    LeafSpine,
    check_unit_sizes,
    check_units,
    count_switches,
    count_units,
)


@dataclass(frozen=True)
class _Ports:
    """How many ports of a switch have cables down and up."""

    down: int
    up: int

    def first_up(self, radix: int) -> int:
        """Return where those up begin: in the upper half, or so that they end at the last port."""
        half = radix // 2
        fits = self.down <= half and self.up <= radix - half
        return half + 1 if fits else radix - self.up + 1

    def __str__(self) -> str:
        if not self.up:
            return f"{self.down} ports down"
        ratio = Fraction(self.down, self.up)
        of = f"({ratio.numerator}:{ratio.denominator})"
        return f"{self.down} ports down and {self.up} up {of}"


def _leaf_ports(rule: LeafSpine, island: Island) -> _Ports:
    return _Ports(rule.nodes_per_group * rule.rails_per_leaf, island.trunk * island.spines)


def _spine_ports(fabric: Fabric, rule: LeafSpine, island: Island) -> _Ports:
    cores = len(fabric.core_switches) // rule.core_planes
    return _Ports(island.groups * fabric.unit_leaves * island.trunk, island.core_trunk * cores)


def _first_uplink(fabric: Fabric, rule: LeafSpine, island: Island) -> int:
    return rule.first_uplink or _leaf_ports(rule, island).first_up(fabric.radix)


def describe(fabric: Fabric) -> list[str]:
    """Return a line for the operator about each kind of island: its groups and oversubscription."""
    rule = fabric.rule
    if rule is None or not fabric.computed:
        return []
    lines = []
    for number, island in enumerate(fabric.islands, 1):
        name = f"island {number}" if len(fabric.islands) > 1 else "fabric"
        groups = count_units(island.groups, "group")
        line = (
            f"{name}: {groups} of {rule.nodes_per_group} nodes; "
            f"each leaf switch has {_leaf_ports(rule, island)}"
        )
        if fabric.core_switches:
            line += f", each spine switch {_spine_ports(fabric, rule, island)}"
        lines.append(line)
    return lines


def upper_cables(fabric: Fabric) -> Iterator[Cable]:
    """Yield the cables above the leaf switches of a valid rule."""
    rule = fabric.rule
    if rule is None:
        return
    planes: list[list[tuple[str, int, int]]] = [[] for _plane in range(rule.core_planes)]
    leaf = spine = 0
    for island in fabric.islands:
        leaves = fabric.leaf_switches[leaf : leaf + island.groups * fabric.unit_leaves]
        spines = fabric.spine_switches[spine : spine + island.spines]
        leaf, spine = leaf + len(leaves), spine + len(spines)
        first = _first_uplink(fabric, rule, island)
        lowers = [(name, island.trunk, first) for name in leaves]
        yield from _joined(LEAF_SPINE, lowers, spines, fabric.rate_gbps)
        first = _spine_ports(fabric, rule, island).first_up(fabric.radix)
        for index, name in enumerate(spines):
            plane = index * rule.core_planes // len(spines)
            planes[plane].append((name, island.core_trunk, first))
    each = len(fabric.core_switches) // rule.core_planes
    for number, lowers in enumerate(planes):
        cores = fabric.core_switches[number * each : (number + 1) * each]
        yield from _joined(SPINE_CORE, lowers, cores, fabric.rate_gbps)


def _joined(
    kind: str, lowers: Iterable[tuple[str, int, int]], uppers: tuple[str, ...], rate_gbps: int
) -> Iterator[Cable]:
    """Yield the cables of each lower switch, with its trunk and first port, to all upper ones."""
    port = 1
    for name, trunk, first in lowers:
        for index, upper in enumerate(uppers):
            for link in range(trunk):
                own = switch_end(name, first + index * trunk + link)
                yield Cable(own, switch_end(upper, port + link), kind, rate_gbps)
        port += trunk


def check_leaf_spine(
    fabric: Fabric, path: str, hosts: Mapping[str, str], units: Mapping[str, int]
) -> Iterator[Problem]:
    """Yield where the rule does not fit; hosts and units are those of check_fabric."""
    if fabric.topology != "leaf_spine" or not fabric.computed:
        return
    if any("[" in name for name in fabric.switches):
        return
    rule = fabric.rule
    if rule is None:
        remedy = f"write nodes_per_group and trunk; a fabric without a rule needs {A_LIST}"
        yield Problem(path + ".leaf_spine", "missing, but the topology is leaf_spine", remedy)
        return
    # What the counts of switches make impossible is not judged port by port.
    needed = max([1, *units.values()])
    found = list(_check_counts(fabric, rule, path, needed))
    found = found or list(_check_ports(fabric, rule, path))
    yield from found
    if not found:
        yield from check_units(fabric, hosts, units)
        yield from check_unit_sizes(fabric, path, units)


def _check_counts(fabric: Fabric, rule: LeafSpine, path: str, units: int) -> Iterator[Problem]:
    """Yield counts that do not divide or add up; `units` is how many groups there are nodes of."""
    where, leaves, each = path + ".leaf_spine", len(fabric.leaf_switches), fabric.unit_leaves
    if fabric.ufm_unit:
        wrong = f"{fabric.ufm_unit}, but only a superpod keeps ports for UFM by itself"
        yield Problem(path + ".ufm_unit", wrong, "write these ports as reserved_ports")
    if fabric.rails % rule.rails_per_leaf:
        wrong = f"{rule.rails_per_leaf}, by which {fabric.rails} rails do not divide"
        fitting = [str(count) for count in range(1, fabric.rails + 1) if not fabric.rails % count]
        yield Problem(where + ".rails_per_leaf", wrong, f"write {words(fitting)}, or {A_LIST}")
        return
    if leaves % each or not leaves:
        nodes = rule.nodes_per_group
        wrong = f"{count_switches(leaves)}, but each group of {nodes} nodes needs {each}"
        remedy = f"write {units * each}, for {count_units(units, 'group')}, or {A_LIST}"
        yield Problem(path + ".leaf_switches", wrong, remedy)
        return
    if leaves > 1 and not fabric.spine_switches:
        wrong = f"none, and nothing joins the {leaves} leaf switches"
        yield Problem(path + ".spine_switches", wrong, "write the names of the spine switches")
        return
    for key, tier, given in (
        ("groups", "leaf", fabric.units),
        ("spines", "spine", len(fabric.spine_switches)),
    ):
        total = sum(getattr(island, key) for island in fabric.islands)
        if total != given:
            switches = count_switches(len(getattr(fabric, tier + "_switches")), tier)
            wrong = f"{total} {key} in all, but {switches} make {given}"
            remedy = f"write islands of {given}, or other {tier}_switches"
            yield Problem(where + ".islands", wrong, remedy)
    yield from _check_cores(fabric, rule, path)


def _check_cores(fabric: Fabric, rule: LeafSpine, path: str) -> Iterator[Problem]:
    cores, where = len(fabric.core_switches), path + ".leaf_spine.core_planes"
    if cores and not fabric.spine_switches:
        wrong = f"{count_switches(cores)}, but there are no spine switches below"
        yield Problem(path + ".core_switches", wrong, "write spine_switches, or remove them")
    elif not cores and len(fabric.islands) > 1:
        wrong = f"none, and nothing joins the {len(fabric.islands)} islands"
        yield Problem(path + ".core_switches", wrong, "write the names of the core switches")
    elif not cores and rule.core_planes > 1:
        yield Problem(where, f"{rule.core_planes}, but there are no core switches", "remove it")
    elif cores % rule.core_planes:
        wrong = f"{rule.core_planes}, by which {count_switches(cores, 'core')} do not divide"
        yield Problem(where, wrong, f"write a divisor of {cores}, or {A_LIST}")
    elif any(island.spines % rule.core_planes for island in fabric.islands):
        uneven = [island.spines for island in fabric.islands if island.spines % rule.core_planes]
        switches = count_switches(uneven[0], "spine")
        wrong = f"{rule.core_planes}, by which the {switches} of an island do not divide"
        yield Problem(where, wrong, f"write a divisor of {uneven[0]}, or {A_LIST}")


def _check_ports(fabric: Fabric, rule: LeafSpine, path: str) -> Iterator[Problem]:
    """Yield switches that the rule gives more cables than ports, and uplinks on taken ports."""
    radix = fabric.radix
    remedy = f"write fewer nodes_per_group, a smaller trunk, or {A_LIST}"
    for number, island in enumerate(fabric.islands):
        where = path + ".leaf_spine" + (f".islands[{number}]" if rule.islands else "")
        leaf, spine = _leaf_ports(rule, island), _spine_ports(fabric, rule, island)
        first = _first_uplink(fabric, rule, island)
        for tier, ports in (("leaf", leaf), ("spine", spine)):
            if ports.down + ports.up > radix:
                wrong = f"{ports} at each {tier} switch, but it has {radix}"
                yield Problem(where, wrong, remedy)
        if leaf.down + leaf.up <= radix and not leaf.down < first <= radix - leaf.up + 1:
            wrong = f"{first}, but nodes take ports 1 to {leaf.down}, and {leaf.up} cables go up"
            within = f"write a port from {leaf.down + 1} to {radix - leaf.up + 1}"
            yield Problem(path + ".leaf_spine.first_uplink", wrong, within)
    if fabric.core_switches:
        taken = sum(island.spines * island.core_trunk for island in fabric.islands)
        taken //= rule.core_planes
        if taken > radix:
            wrong = f"{taken} ports of each core switch, but it has {radix}"
            remedy = f"write a smaller core_trunk, more core_planes, or {A_LIST}"
            yield Problem(path + ".leaf_spine.core_trunk", wrong, remedy)
