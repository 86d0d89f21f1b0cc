# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the inventory says about cables: can each node be plugged in, is each switch known? Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from ...module_utils._core.schema import Problem, closest
from .cables import three_tiers_fit
from .fabric import Fabric
from .nodes import Node


def check_cabling(fabric: Fabric, path: str, nodes: list[Node]) -> Iterator[Problem]:
    """Yield what keeps cables from being planned, the places of nodes apart."""
    yield from _check_source(fabric, path)
    yield from _check_switches(fabric, path, nodes)
    computed = fabric.computed and fabric.topology == "superpod"
    if computed and fabric.core_switches and fabric.units and not three_tiers_fit(fabric):
        yield Problem(
            path + ".radix",
            f"{fabric.radix}, by which {fabric.units} scalable units do not divide into planes of "
            "spine and core switches",
            "write cabling: {source: csv, file: …}, with a list of the cables",
        )


def _check_source(fabric: Fabric, path: str) -> Iterator[Problem]:
    source, file = fabric.cabling.source, fabric.cabling.file
    where = path + ".cabling"
    if fabric.computed and file is not None:
        wrong = f"'{file}', but the source is computed"
        yield Problem(where + ".file", wrong, "write source: csv, or remove the file")
    if not fabric.computed and file is None:
        remedy = "write the path of the CSV file, or source: computed"
        yield Problem(where + ".file", f"missing, but the source is {source}", remedy)
    if file is not None and _is_read_as_hosts(file):
        wrong = f"'{file}' lies where Ansible reads every file as a list of hosts"
        remedy = f"move it to group_vars/all/{posixpath.basename(file)}, and write that"
        yield Problem(where + ".file", wrong, remedy)
    if not fabric.computed and fabric.topology == "none":
        wrong = f"{source}, but the topology is none"
        remedy = "write topology: basepod, superpod or leaf_spine"
        yield Problem(where + ".source", wrong, remedy)


def _is_read_as_hosts(file: str) -> bool:
    """Return whether Ansible takes a path in the inventory's directory for inventory."""
    if posixpath.isabs(file) or file.startswith("~"):
        return False
    parts = posixpath.normpath(file).split("/")
    hidden = any(part.startswith(".") for part in parts)
    return not hidden and parts[0] not in ("group_vars", "host_vars") and parts[-1][-4:] != ".txt"


def _check_switches(fabric: Fabric, path: str, nodes: list[Node]) -> Iterator[Problem]:
    for key in ("switch_guids", "switch_places", "reserved_ports"):
        for name in getattr(fabric, key):
            if name not in fabric.switches:
                near = closest(name, fabric.switches)
                remedy = f"write {near}" if near else "write a name out of the lists of switches"
                yield Problem(f"{path}.{key}.{name}", f"no switch is called '{name}'", remedy)
    owners: dict[str, str] = {
        guid: f"{node.path}.node_hca_guids.{rail}"
        for node in nodes
        if node.present
        for rail, guid in node.hca_guids.items()
    }
    for name, guid in fabric.switch_guids.items():
        where = f"{path}.switch_guids.{name}"
        first = owners.setdefault(guid, where)
        if first != where:
            yield Problem(where, f"{guid} is also the GUID of {first}", "write this switch's own")
    for name, ports in fabric.reserved_ports.items():
        for index, port in enumerate(ports):
            if port > fabric.radix:
                where = f"{path}.reserved_ports.{name}[{index}]"
                wrong = f"{port}, but the switches have {fabric.radix} ports"
                yield Problem(where, wrong, "write one of them, or another radix")
    for name, place in fabric.switch_places.items():
        if place.rack is None and place.rack_unit is not None:
            where = f"{path}.switch_places.{name}.rack"
            yield Problem(where, "missing, but rack_unit is given", "write the name of the rack")


def check_places(
    fabric: Fabric, path: str, nodes: list[Node], found: Iterable[Problem]
) -> Iterator[Problem]:
    """Yield nodes that find no port on their leaf switches.

    `found` is what is wrong besides: what follows from is not reported a second time.
    """
    blamed = {problem.path for problem in found}
    if fabric.topology == "none" or not fabric.computed or any(p.startswith(path) for p in blamed):
        return
    room = fabric.room
    remedy = f"write a free place from 1 to {room}"
    owners: dict[tuple[int, int], Node] = {}
    for node in nodes:
        if not node.present or node.type != "gpu_nodes":
            continue
        where = node.path + ".node_leaf_place"
        if not blamed.isdisjoint({node.path + ".node_number", node.path + ".node_su", where}):
            continue
        if node.leaf_place is None:
            wrong = "missing, and the host name has no number to count it from"
            yield Problem(where, wrong, remedy)
            continue
        unit = (node.su or 0) if fabric.grouped else 0
        owner = owners.setdefault((unit, node.leaf_place), node)
        if node.leaf_place > room:
            wrong = f"{node.leaf_place}, but the leaf switches have places for {room} nodes"
            yield Problem(where, wrong, remedy)
        elif unit and unit == fabric.ufm_unit and node.leaf_place == room:
            wrong = f"{room} of {fabric.unit_word} {unit}, whose ports are UFM's"
            yield Problem(where, wrong, f"write a free place from 1 to {room - 1}")
        elif owner is not node:
            of_unit = f" in {fabric.unit_word} {unit}" if unit else ""
            wrong = f"{node.leaf_place}{of_unit} is also the place of {owner.path}"
            yield Problem(where, wrong, remedy)
