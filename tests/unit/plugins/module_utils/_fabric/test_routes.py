# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from cable_plans import plan_data
from pair_plans import small_plan

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    CablePlan,
    End,
    rail_end,
    switch_end,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.routes import (
    NoRouteError,
    Routes,
    computed_routes,
    dumped_routes,
    read_tables,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cables import plan_cables

PLAN = small_plan(nodes=4, rails=1, units=2, spines=1)
GUIDS = {
    "leaf-10": "0000000000000a10",
    "leaf-20": "0000000000000a20",
    "spine-0": "0000000000000b00",
}
LIDS = {f"dgx-0{number}": 10 + number for number in (1, 2, 3, 4)}
# Leaf ports 1 and 2 go down; 9 and 10 up, to ports 1 and 2 (3 and 4) of the spine.
PORTS = {
    "leaf-10": {11: 1, 12: 2, 13: 9, 14: 10},
    "leaf-20": {11: 9, 12: 10, 13: 1, 14: 2},
    "spine-0": {11: 1, 12: 2, 13: 3, 14: 4},
}


def dump(ports: dict[str, dict[int, int]] | None = None, tool: str = "dump_fts") -> str:
    """What dump_fts, or ibroute for each switch, prints."""

    def lines() -> Iterator[str]:
        for number, (name, table) in enumerate((ports or PORTS).items(), 1):
            where = "DR path slid 0; dlid 0; 0,1" if tool == "dump_fts" else f"Lid {number}"
            yield f"Unicast lids [0x0-0xe] of switch {where} guid 0x{GUIDS[name]} ({name}):"
            yield "  Lid  Out   Destination"
            yield "       Port     Info "
            yield f"0x{number:04x} 000 : (Switch portguid 0x{GUIDS[name]}: '{name}')"
            for lid, port in table.items():
                host = f"dgx-0{lid - 10}"
                guid = f"0x0000000000000{lid:02x}1"
                kind = f"(Channel Adapter portguid {guid}: '{host} mlx5_rail0')"
                yield f"0x{lid:04x} {port:03d} : {kind}"
            yield f"{len(table) + 1} valid lids dumped "

    return "\n".join(lines()) + "\n"


@pytest.mark.parametrize("tool", ["dump_fts", "ibroute"])
def test_tables_give_routes(tool: str) -> None:
    tables = read_tables(dump(tool=tool))
    assert not tables.complaints
    routes = dumped_routes(PLAN, tables)
    assert not list(routes.problems())
    assert routes.route(rail_end("dgx-01", 0), rail_end("dgx-02", 0)) == (
        rail_end("dgx-01", 0),
        switch_end("leaf-10", 2),
    )
    assert routes.route(rail_end("dgx-01", 0), rail_end("dgx-04", 0)) == (
        rail_end("dgx-01", 0),
        switch_end("leaf-10", 10),
        switch_end("spine-0", 4),
        switch_end("leaf-20", 2),
    )
    assert routes.route(rail_end("dgx-01", 0), rail_end("dgx-01", 0)) == ()


def changed(switch: str, lid: int, port: int | None) -> dict[str, dict[int, int]]:
    ports = {name: dict(table) for name, table in PORTS.items()}
    if port is None:
        del ports[switch][lid]
    else:
        ports[switch][lid] = port
    return ports


@pytest.mark.parametrize(
    ("ports", "message"),
    [
        (changed("leaf-10", 14, None), "leaf-10 has no route to dgx-04/rail0"),
        (changed("leaf-10", 14, 255), "leaf-10 has no route to dgx-04/rail0"),
        (changed("spine-0", 14, 1), "a loop: leaf-10 - spine-0 - leaf-10 on the way to dgx-04/rai"),
        (changed("leaf-20", 14, 1), "leaf-20 sends to dgx-04/rail0 by port 1, where dgx-03/rail0"),
        (changed("leaf-10", 14, 7), "leaf-10 sends to dgx-04/rail0 by port 7, which has no cable"),
    ],
)
def test_a_packet_that_does_not_arrive(ports: dict[str, dict[int, int]], message: str) -> None:
    text = dump(ports)
    if 255 in ports["leaf-10"].values():
        # A LID that leads nowhere is not a valid one to the tool.
        text = text.replace("5 valid lids", "4 valid lids", 1)
    tables = read_tables(text)
    assert not tables.complaints
    routes = dumped_routes(PLAN, tables)
    with pytest.raises(NoRouteError) as error:
        routes.route(rail_end("dgx-01", 0), rail_end("dgx-04", 0))
    assert str(error.value).startswith(message)
    problems = list(routes.problems())
    assert len(problems) == 1
    assert problems[0].startswith("dgx-04/rail0 is not reached from ")


def test_a_lid_of_a_host_outside_the_plan_is_left_alone() -> None:
    text = dump().replace("'dgx-04 mlx5_rail0'", "'ufm-01 mlx5_0'")
    problems = list(dumped_routes(PLAN, read_tables(text)).problems())
    assert problems == [
        "dgx-04/rail0 is not reached from 2 of 2 leaves: leaf-10 has no route to dgx-04/rail0"
    ]


def test_devices_are_known_by_guid_where_names_say_nothing() -> None:
    text = dump().replace("'dgx-04 mlx5_rail0'", "'MT4129 ConnectX7'").replace("(leaf-10)", "(MF0)")
    hcas = {**PLAN.hcas}
    # The plan has the GUID of the adapter, the table that of its port.
    hcas["dgx-04", 0] = replace(hcas["dgx-04", 0], guid="00000000000000e0")
    switches = {**PLAN.switches}
    switches["leaf-10"] = replace(switches["leaf-10"], guid=GUIDS["leaf-10"])
    plan = replace(PLAN, hcas=hcas, switches=switches)
    assert not list(dumped_routes(plan, read_tables(text)).problems())


def test_managed_switches_and_other_names_of_an_adapter() -> None:
    text = (
        dump()
        .replace("(leaf-10)", "(MF0;leaf-10:MQM9700/U1)")
        .replace("dgx-02 mlx5_rail0", "dgx-02 mlx5_0")
    )
    assert not list(dumped_routes(PLAN, read_tables(text)).problems())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no forwarding table in it"),
        (dump()[:-60], "the table of spine-0 has no end"),
        (dump().replace("5 valid lids dumped", "", 1), "the table of leaf-10 has no end"),
        (dump().replace("5 valid lids", "6 valid lids", 1), "leaf-10 has 5 rows, but says 6"),
        (dump() + "ibwarn: [1] mad_rpc: timeout\n", "is not a row of a table: ibwarn: [1] mad_rpc"),
    ],
)  # fmt: skip
def test_text_that_is_not_whole(text: str, message: str) -> None:
    assert message in " ".join(read_tables(text).complaints)


def lab(nodes: int, tiers: tuple[int, ...], **more: int) -> CablePlan:
    return plan_cables(plan_data(nodes, tiers, **more))


def loads(routes: Routes) -> dict[End, int]:
    """How many (leaf, target) ways use each link between switches."""
    plan = routes.plan
    rails = [rail_end(*key) for key in plan.hcas]
    count = {e: 0 for c in plan.cables if c.a.is_switch for e in (c.a, c.b)}
    for leaf in sorted({routes.leaf_port(rail).host for rail in rails}):
        for rail in rails:
            for end in routes.tail(leaf, rail)[:-1]:
                count[end] += 1
    return count


def test_computed_routes_spread_over_all_uplinks() -> None:
    plan = lab(128, (32, 16))
    routes = computed_routes(plan)
    assert not list(routes.problems())
    # Each of 1,016 destinations takes one way down, each leaf spreads 992 of them on 32 uplinks.
    assert set(loads(routes).values()) == {31}


def test_computed_routes_of_three_tiers_reach_every_link() -> None:
    plan = plan_cables(plan_data(512, (128, 128, 64)))
    routes = computed_routes(plan)
    rails = [rail_end(*key) for key in plan.hcas]
    longest = {len(routes.tail("leaf-001", rail)) for rail in rails}
    assert longest == {1, 3, 5}


def test_a_basepod_crosses_between_its_two_switches() -> None:
    routes = computed_routes(lab(12, ()))
    assert set(loads(routes).values()) == {3}
    one, two = rail_end("dgx-0001", 0), rail_end("dgx-0012", 7)
    assert [end.host for end in routes.route(one, two)] == ["dgx-0001", "leaf-001", "leaf-002"]


def test_a_rail_without_a_cable() -> None:
    plan = replace(PLAN, cables=tuple(c for c in PLAN.cables if c.a != rail_end("dgx-01", 0)))
    with pytest.raises(NoRouteError, match="dgx-01/rail0 has no cable"):
        computed_routes(plan).route(rail_end("dgx-01", 0), rail_end("dgx-02", 0))
    with pytest.raises(NoRouteError, match="has no route to dgx-01/rail0"):
        computed_routes(plan).route(rail_end("dgx-02", 0), rail_end("dgx-01", 0))
