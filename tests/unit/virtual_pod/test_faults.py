# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from .conftest import podlib

layout = podlib("layout")
fabric = podlib("fabric")
faults = podlib("faults")


def cable(here: tuple[str, str, int], there: tuple[str, str, int]) -> str:
    """A port's line of a netlist, as the collection writes it."""
    _own, _name, port = here
    far, name, far_port = there
    guid = f"({far[2:-1]}1)" if far.startswith("H-") else ""
    own = f"({here[0][2:-1]}1)" if here[0].startswith("H-") else ""
    return f'[{port}]{own}\t"{far}"[{far_port}]{guid}\t\t# "{name}" lid 0 4xNDR'


def device(kind: str, identity: str, name: str) -> str:
    return f'\n{kind} "{identity}"\t# "{name}" enhanced port 0 lid 0 lmc 0'


def small_netlist() -> str:
    """Two nodes of eight rails on two leaves, and one cable between these."""
    leaves = [("S-a0", "ib-leaf-01"), ("S-b0", "ib-leaf-02")]
    lines: dict[str, list[str]] = {"ib-leaf-01": [], "ib-leaf-02": []}
    adapters = []
    for node in (1, 2):
        for rail in range(8):
            leaf, leaf_name = leaves[rail // 4]
            port = (node - 1) * 4 + rail % 4 + 1
            own = (f"H-{node}{rail}0", f"dgx-0{node} mlx5_rail{rail}", 1)
            lines[leaf_name].append(cable((leaf, leaf_name, port), own))
            adapters += [device("Ca 1", own[0], own[1]), cable(own, (leaf, leaf_name, port))]
    joint = [(identity, name, 63) for identity, name in leaves]
    lines["ib-leaf-01"].append(cable(joint[0], joint[1]))
    lines["ib-leaf-02"].append(cable(joint[1], joint[0]))
    switches = [
        line
        for identity, name in leaves
        for line in (device("Switch 64", identity, name), *lines[name])
    ]
    return "\n".join([*switches, *adapters]) + "\n"


def links(netlist: str) -> set[tuple[tuple[str, int], tuple[str, int]]]:
    """Every cable, from both ends: they must agree."""
    cables = faults.Cables(netlist)
    found = {(place, cables.far(place)) for place in cables.at}
    assert {(far, near) for near, far in found} == found
    return found


def broken(name: str) -> set[tuple[tuple[str, int], tuple[str, int]]]:
    cables = faults.Cables(small_netlist())
    faults.FAULTS[name].cables(cables)
    return links(cables.text())


HEALTHY = links(small_netlist())


def rail(node: int, number: int) -> tuple[str, int]:
    return f"dgx-0{node} mlx5_rail{number}", 1


def test_swapped_rails_are_at_each_others_ports():
    far, was = dict(broken("rail_swap")), dict(HEALTHY)
    assert far[rail(1, 1)] == was[rail(1, 6)]
    assert far[rail(1, 6)] == was[rail(1, 1)]
    assert len(broken("rail_swap") ^ HEALTHY) == 8


def test_dead_cable_is_gone_at_both_ends():
    gone = HEALTHY - broken("dead_cable")
    assert {end for link in gone for end in link} == {rail(1, 2), ("ib-leaf-01", 3)}


def test_no_empty_line_cuts_a_device_in_two():
    cables = faults.Cables(small_netlist())
    faults.FAULTS["dead_leaf"].cables(cables)
    assert cables.text().count("\n\n") == small_netlist().count("\n\n")


def test_dead_leaf_has_no_cable():
    left = broken("dead_leaf")
    assert left
    assert not [link for link in left if "ib-leaf-02" in (link[0][0], link[1][0])]


def test_nodes_in_each_others_place_have_all_cables_of_the_other():
    far, was = dict(broken("wrong_node")), dict(HEALTHY)
    for number in range(8):
        assert far[rail(1, number)] == was[rail(2, number)]
        assert far[rail(2, number)] == was[rail(1, number)]


def test_narrow_cable_keeps_its_place():
    cables = faults.Cables(small_netlist())
    faults.FAULTS["half_width"].cables(cables)
    assert links(cables.text()) == HEALTHY
    narrow = [line for line in cables.lines if line.endswith(" 2xNDR")]
    assert len(narrow) == 2
    assert len([line for line in cables.lines if line.endswith(" 4xNDR")]) == len(HEALTHY) - 2


@pytest.mark.parametrize("name", ["symbol_errors", "two_masters"])
def test_fault_that_lives_leaves_the_cables(name):
    assert broken(name) == HEALTHY
    pod = layout.Pod("x", "10.77.0.0/24", layout.default_nodes("10.77.0.0/24", "trixie", 2))
    script = faults.FAULTS[name].service(pod, faults.Cables(small_netlist()))
    assert ('"S-a0"[4] PortCounters.SymbolErrorCounter' in script) == (name == "symbol_errors")
    assert ("sm_key" in script) == (name == "two_masters")


def test_head_nodes_adapter_is_plugged_in():
    netlist = fabric.with_adapter(small_netlist(), "ib-leaf-01", 64, "head-01 mlx5_0")
    new = links(netlist) - HEALTHY
    assert {end for link in new for end in link} == {("head-01 mlx5_0", 1), ("ib-leaf-01", 64)}
    with pytest.raises(layout.PodError, match="no switch leaf-9"):
        fabric.with_adapter(small_netlist(), "leaf-9", 64, "head-01 mlx5_0")


def test_cable_that_is_not_there_is_named():
    with pytest.raises(layout.PodError, match="no cable at ib-leaf-01 port 50"):
        faults.Cables(small_netlist()).pull(("ib-leaf-01", 50))


@pytest.mark.parametrize(
    ("suite", "count", "has"),
    [("trixie", 1, True), ("trixie", 15, True), ("trixie", 16, False), ("bookworm", 4, False)],
)
def test_which_pods_have_a_fabric(suite, count, has):
    pod = layout.Pod("x", "10.77.0.0/24", layout.default_nodes("10.77.0.0/24", suite, count))
    assert fabric.has_fabric(pod) == has
