# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cable_plans import plan_data

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import Problem
from ansible_collections.baremetal.dgx.plugins.plugin_utils._cables.ufm import ufm_csv
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import Value
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cables import (
    plan_cables,
    plan_devices,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cabling import (
    check_cabling,
    check_places,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cabling_files import find_cables
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.fabric import (
    Fabric,
    parse_fabric,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.nodes import Node, make_node

CSV = {"source": "csv", "file": "/srv/cables.csv"}


def basepod(**given: Any) -> Fabric:
    return parse_fabric({"topology": "basepod", "leaf_switches": ["leaf-1", "leaf-2"], **given})


def superpod(leaf: int = 16, spine: int = 8, core: int = 0, **given: Any) -> Fabric:
    counts = (("leaf", leaf), ("spine", spine), ("core", core))
    lists = {f"{tier}_switches": [f"{tier}-{n}" for n in range(count)] for tier, count in counts}
    return parse_fabric({"topology": "superpod", **lists, **given})


def node(name: str, kind: str = "gpu_nodes", **given: Any) -> Node:
    values = {f"node_{key}": Value(value, "") for key, value in given.items()}
    return make_node(name, kind, (kind,), values, basepod(), {})


def lines_of(fabric: Fabric, *nodes: Node) -> list[str]:
    return [str(problem) for problem in check_cabling(fabric, "f", list(nodes))]


@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("cables.csv", True),
        ("lists/cables.csv", True),
        ("./lists/../cables.csv", True),
        ("group_vars/all/cables.csv", False),
        ("./host_vars/dgx-01/cables.csv", False),
        ("lists/group_vars/cables.csv", True),
        ("/srv/cables.csv", False),
        ("~/cables.csv", False),
        ("~root/cables.csv", False),
        # Ansible passes over what is hidden and texts; above the inventory it reads nothing.
        (".cables.csv", False),
        (".lists/cables.csv", False),
        ("../cables.csv", False),
        ("cables.txt", False),
        ("cables.txt/cables.csv", True),
    ],
)
def test_no_list_of_cables_where_ansible_reads_hosts(file: str, read: bool) -> None:
    wrong = (
        f"f.cabling.file: '{file}' lies where Ansible reads every file as a list of hosts; "
        "move it to group_vars/all/cables.csv, and write that"
    )
    assert lines_of(basepod(cabling={"source": "csv", "file": file})) == ([wrong] if read else [])


def test_source_and_file_belong_together() -> None:
    assert lines_of(basepod()) == []
    assert lines_of(basepod(cabling={"source": "computed", "file": "/c.csv"})) == [
        (
            "f.cabling.file: '/c.csv', but the source is computed; write source: csv, or "
            "remove the "
            "file"
        )
    ]
    assert lines_of(basepod(cabling={"source": "learned"})) == [
        (
            "f.cabling.file: missing, but the source is learned; write the path of the CSV "
            "file, or "
            "source: computed"
        )
    ]
    assert lines_of(parse_fabric({})) == []
    assert lines_of(parse_fabric({"cabling": CSV})) == [
        (
            "f.cabling.source: csv, but the topology is none; "
            "write topology: basepod, superpod or leaf_spine"
        )
    ]


def test_cables_that_three_tiers_cannot_have() -> None:
    # 12 spines of a rail would share 16 units.
    planes = {"leaf": 128, "spine": 128, "core": 64, "radix": 24}
    assert lines_of(superpod(**planes)) == [
        (
            "f.radix: 24, by which 16 scalable units do not divide into planes of spine and core "
            "switches; write cabling: {source: csv, file: …}, with a list of the cables"
        )
    ]
    assert lines_of(superpod(**planes, cabling=CSV)) == []
    assert lines_of(superpod(**{**planes, "radix": 64})) == []
    # Two tiers have no planes, and what is not a unit yet has been reported as that.
    assert lines_of(superpod(16, 8, radix=24, rails=1)) == []
    assert lines_of(superpod(3, 9, 9, radix=16, rails=9)) == []
    assert lines_of(basepod(core_switches=["c"], radix=24, rails=1)) == []


def test_what_is_said_of_switches_is_said_of_one_that_there_is() -> None:
    valid = basepod(
        switch_guids={"leaf-1": "fc6a1c0301000000", "leaf-2": "fc6a1c0301000001"},
        switch_places={"leaf-1": {"rack": "r1"}, "leaf-2": {"rack": "r1", "rack_unit": 40}},
        reserved_ports={"leaf-1": [1, 64]},
    )
    assert lines_of(valid) == []
    assert lines_of(basepod(switch_places={"leaf-1": {}})) == []
    wrong = {"leaf-3": "fc6a1c0301000000", "x": "fc6a1c0301000001"}
    assert lines_of(basepod(switch_guids=wrong)) == [
        "f.switch_guids.leaf-3: no switch is called 'leaf-3'; write leaf-2",
        "f.switch_guids.x: no switch is called 'x'; write a name out of the lists of switches",
    ]
    assert lines_of(basepod(reserved_ports={"leaf-1": [64, 65], "leaf-2": [66]})) == [
        (
            "f.reserved_ports.leaf-1[1]: 65, but the switches have 64 ports; "
            "write one of them, or another radix"
        ),
        (
            "f.reserved_ports.leaf-2[0]: 66, but the switches have 64 ports; "
            "write one of them, or another radix"
        ),
    ]
    assert lines_of(
        basepod(switch_places={"leaf-1": {"rack": "r"}, "leaf-2": {"rack_unit": 1}})
    ) == [
        "f.switch_places.leaf-2.rack: missing, but rack_unit is given; write the name of the rack"
    ]


def test_a_switch_has_no_adapters_guid() -> None:
    guid = "fc6a1c0301000000"
    fabric = basepod(switch_guids={"leaf-1": guid})
    assert lines_of(fabric, node("dgx-01", state="absent", hca_guids={2: guid})) == []
    assert lines_of(fabric, node("dgx-01", hca_guids={2: guid})) == [
        (
            "f.switch_guids.leaf-1: 0xfc6a1c0301000000 is also the GUID of "
            "gpu_nodes.dgx-01.node_hca_guids.2; write this switch's own"
        )
    ]


def places(fabric: Fabric, *nodes: Node, found: tuple[str, ...] = ()) -> list[str]:
    problems = [Problem(path, "", "") for path in found]
    return [str(problem) for problem in check_places(fabric, "f", list(nodes), problems)]


def test_places_on_the_switches_of_a_basepod() -> None:
    beyond = "but the leaf switches have places for 15 nodes; write a free place from 1 to 15"
    # 15 of 64 ports go to four rails of each node, and one joins the two.
    assert places(basepod(), node("a-15"), node("b-1", su=9)) == []
    assert places(basepod(), node("a-16"), node("b-99")) == [
        f"gpu_nodes.a-16.node_leaf_place: 16, {beyond}",
        f"gpu_nodes.b-99.node_leaf_place: 99, {beyond}",
    ]
    assert places(basepod(ufm_unit=1), node("a-15", su=1)) == []
    assert places(basepod(), node("a-1", su=1), node("b-2", leaf_place=1, su=2)) == [
        (
            "gpu_nodes.b-2.node_leaf_place: 1 is also the place of gpu_nodes.a-1; "
            "write a free place from 1 to 15"
        )
    ]


@pytest.mark.parametrize(
    ("rails", "radix", "last"), [(8, 64, 15), (4, 64, 31), (3, 64, 31), (8, 65, 16), (1, 8, 7)]
)
def test_the_last_place_of_a_basepod_leaves_a_port_to_join_the_two(
    rails: int, radix: int, last: int
) -> None:
    fabric = basepod(rails=rails, radix=radix)
    assert places(fabric, node(f"a-{last}")) == []
    assert len(places(fabric, node(f"a-{last + 1}"))) == 1


def test_places_on_the_switches_of_a_superpod() -> None:
    def at(name: str, su: int | None, place: int) -> Node:
        return node(name, leaf_place=place, **({} if su is None else {"su": su}))

    assert places(superpod(), at("a", 1, 32), at("b", 2, 32), at("c", 1, 1)) == []
    assert places(superpod(), at("a", 1, 33)) == [
        (
            "gpu_nodes.a.node_leaf_place: 33, but the leaf switches have places for 32 nodes; "
            "write a free place from 1 to 32"
        )
    ]
    ufm = superpod(ufm_unit=2)
    assert places(ufm, at("a", 1, 32), at("b", 2, 31), at("c", 2, 32)) == [
        (
            "gpu_nodes.c.node_leaf_place: 32 of scalable unit 2, whose ports are UFM's; "
            "write a free place from 1 to 31"
        )
    ]
    assert places(superpod(), at("a", 2, 5), at("b", 1, 5), at("c", 2, 5)) == [
        (
            "gpu_nodes.c.node_leaf_place: 5 in scalable unit 2 is also the place of gpu_nodes.a; "
            "write a free place from 1 to 32"
        )
    ]
    # Without a unit they are next to none that has one.
    assert places(ufm, at("a", 1, 5), at("b", None, 5), at("c", None, 5), at("d", None, 32)) == [
        (
            "gpu_nodes.c.node_leaf_place: 5 is also the place of gpu_nodes.b; "
            "write a free place from 1 to 32"
        )
    ]


def test_nodes_that_need_no_place() -> None:
    others = (node("h-1", "login_nodes", leaf_place=1), node("a-1", state="absent"))
    assert places(basepod(), *others, node("b-1")) == []
    nameless = node("c")
    line = (
        "gpu_nodes.c.node_leaf_place: missing, and the host name has no number to count it from; "
        "write a free place from 1 to 15"
    )
    assert len(places(basepod(), *others, nameless, node("b-16"))) == 2
    assert places(basepod(), nameless)[0] == line
    beyond = node("b-99")
    assert places(parse_fabric({}), nameless, beyond) == []
    assert places(basepod(cabling=CSV), nameless, beyond) == []
    assert places(basepod(), nameless, found=("f.radix",)) == []
    assert places(basepod(), nameless, found=("cluster_name", "gpu_nodes.b-1.node_su")) == [line]


@pytest.mark.parametrize("variable", ["node_number", "node_su", "node_leaf_place"])
def test_what_follows_from_another_problem_is_not_said(variable: str) -> None:
    found = (f"gpu_nodes.a-99.{variable}", "gpu_nodes.a-99.node_rack")
    (line,) = places(basepod(), node("a-99"), node("b-77"), found=found)
    assert line.startswith("gpu_nodes.b-77.node_leaf_place: 77,")
    assert len(places(basepod(), node("a-99"), found=("gpu_nodes.a-99.node_rack",))) == 1


def learned(tmp_path: Path, source: str, file: str) -> dict[str, Any]:
    data = plan_data(2, cabling={"source": source, "file": file})
    made = plan_cables(plan_data(2))
    (tmp_path / "cables.csv").write_text(ufm_csv(made), encoding="utf-8")
    return data


def test_the_list_of_cables_is_found_from_the_inventorys_directory(tmp_path: Path) -> None:
    data = learned(tmp_path, "csv", "cables.csv")
    computed = find_cables(plan_data(2, cabling={"source": "computed", "file": None}), None)
    assert (computed.problems, computed.warnings) == ((), ())
    assert computed.plan is not None
    found = find_cables(data, str(tmp_path))
    assert found.problems == ()
    assert found.plan is not None
    assert len(found.plan.cables) == len(computed.plan.cables) == 2 * 8 + 8
    # Of an inventory without a directory the path is taken as it is.
    data["cluster"]["fabric"]["cabling"]["file"] = str(tmp_path / "cables.csv")
    assert find_cables(data, None).problems == ()


def test_a_list_of_cables_that_is_not_there(tmp_path: Path) -> None:
    found = find_cables(learned(tmp_path, "csv", "none.csv"), str(tmp_path))
    where = "all.cluster_fabric.cabling.file"
    assert found.plan is None
    assert found.problems == (
        (
            f"{where}: there is no file 'none.csv'; write the path of the list, from the "
            "inventory's "
            "directory on"
        ),
    )
    # learn_fabric makes it, and until then no cable is known.
    data = learned(tmp_path, "learned", "none.csv")
    found = find_cables(data, str(tmp_path))
    assert (found.problems, found.plan) == ((), plan_devices(data))
    assert found.warnings == (
        f"{where}: 'none.csv' is not there yet; until learn_fabric has made it, no cable is known",
    )
    found = find_cables(learned(tmp_path, "learned", "."), str(tmp_path))
    assert found.plan is None
    assert found.problems == (
        f"{where}: '.' cannot be read (Is a directory); write the path of a readable file",
    )


def test_a_design_that_reserved_ports_keep_from_being_cabled() -> None:
    data = plan_data(31, (8, 4), cabling={"source": "computed"}, reserved_ports={"leaf-001": [40]})
    found = find_cables(data, None)
    assert found.plan is None
    assert found.problems == (
        (
            "all.cluster_fabric.reserved_ports: leaf-001/40 is reserved, but the plan needs it for "
            "spine-001/8; write another port"
        ),
    )
