# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cable lists of both forms: what is written is read, and what is wrong is reported in one line."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cable_plans import plan_data
from fabric_texts import fixture

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.cable_lists import (
    COLUMNS,
    cables_csv,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    CablePlan,
    Place,
    cage_label,
    near_text,
    ports_per_cage,
    rail_end,
    switch_end,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._cables.files import read_cables
from ansible_collections.baremetal.dgx.plugins.plugin_utils._cables.ufm import ufm_csv
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cables import (
    plan_cables,
    plan_devices,
)

PLANS: dict[str, dict[str, Any]] = {
    "basepod": plan_data(4),
    "odd": plan_data(3, rails=3),
    "ndr200": plan_data(12, radix=128, rate_gbps=200),
    "superpod": plan_data(31, (8, 4), ufm_unit=1),
    "three_tiers": plan_data([1, 40, 512], (128, 128, 64)),
    "known_guids": plan_data(2, switch_guids={"leaf-002": "fc6a1c0301000000"}),
    "reserved": plan_data(2, reserved_ports={"leaf-002": [64, 9]}),
    "hdr": plan_data(4, radix=40, rate_gbps=200),
}


def read(data: dict[str, Any], text: str) -> CablePlan:
    plan, problems = read_cables(plan_devices(data), text.encode(), "cables.csv")
    assert [str(problem) for problem in problems] == []
    assert plan is not None
    return plan


@pytest.mark.parametrize("name", PLANS)
def test_what_is_written_is_read(name: str) -> None:
    plan = plan_cables(PLANS[name])
    places = {"dgx-0001": Place("r01", 3), "leaf-001": Place("r02", None)}
    text = cables_csv(plan, places)
    again = read(PLANS[name], text)
    assert again == plan
    assert cables_csv(again, places) == text


@pytest.mark.parametrize("name", PLANS)
def test_ufm_form_is_read_as_it_is_written(name: str) -> None:
    plan = plan_cables(PLANS[name])
    again = read(PLANS[name], ufm_csv(plan))
    assert (again.cables, again.hcas) == (plan.cables, plan.hcas)
    assert ufm_csv(again) == ufm_csv(plan)


def test_columns() -> None:
    plan = plan_cables(PLANS["superpod"])
    text = cables_csv(plan, {"dgx-0017": Place("r05", 13), "leaf-001": Place("r40", 41)})
    rows = list(csv.DictReader(io.StringIO(text)))
    assert tuple(rows[0]) == COLUMNS
    (row,) = [row for row in rows if row["from"] == "dgx-0017" and row["from_rail"] == "0"]
    assert row == {
        "kind": "node-leaf",
        "from": "dgx-0017",
        "from_rail": "0",
        "from_port": "",
        "from_pci": "0000:10:00.0",
        "from_cage": "OSFP0 P1",
        "from_rack": "r05",
        "from_unit": "13",
        "from_guid": "",
        "to": "leaf-001",
        "to_port": "17",
        "to_cage": "1/9/1",
        "to_rack": "r40",
        "to_unit": "41",
        "to_guid": "",
        "rate_gbps": "400",
        "from_label": "dgx-0017 OSFP0 P1 rail 0 > leaf-001 1/9/1 port 17",
        "to_label": "leaf-001 1/9/1 port 17 > dgx-0017 OSFP0 P1 rail 0",
    }
    assert Counter(row["kind"] for row in rows) == {
        "node-leaf": 248,
        "leaf-spine": 256,
        "reserved": 4,
    }


@pytest.mark.parametrize(
    ("port", "radix", "text"),
    [
        (1, 64, "1/1/1"),
        (2, 64, "1/1/2"),
        (17, 64, "1/9/1"),
        (18, 64, "1/9/2"),
        (64, 64, "1/32/2"),
        (144, 144, "1/72/2"),
        (17, 40, "1/17"),
    ],
)
def test_what_stands_beside_a_port(port: int, radix: int, text: str) -> None:
    assert cage_label(port, ports_per_cage(radix)) == text


@pytest.mark.parametrize(
    ("port", "text"),
    [(1, "1/1/1/1"), (17, "1/5/1/1"), (20, "1/5/2/2"), (65, "1/17/1/1"), (128, "1/32/2/2")],
)
def test_ndr200_has_four_ports_a_cage(port: int, text: str) -> None:
    """A QM9700 has 32 cages, also where each of its ports is divided."""
    assert cage_label(port, ports_per_cage(128, 200)) == text
    assert plan_cables(PLANS["ndr200"]).switches["leaf-001"].label(port) == text
    # Nothing is known of the cages of Ethernet.
    ethernet = {**PLANS["ndr200"], "cluster": {**PLANS["ndr200"]["cluster"]}}
    ethernet["cluster"]["fabric_kind"] = "ethernet"
    assert plan_cables(ethernet).switches["leaf-001"].per_cage == 2


def test_a_label_without_a_cage() -> None:
    data = plan_data(1)
    for rail in data["profiles"]["dgx"]["rails"]:
        rail.update(cage=None, port=None)
    plan = plan_cables(data)
    assert near_text(plan, plan.cables[0].a) == "dgx-0001 rail 0"
    assert near_text(plan, plan.cables[0].b) == "leaf-001 1/1/1 port 1"


SMALL = plan_data(1, rails=2, switch_guids={"leaf-001": "fc6a1c0301000000"})
# The least that a list needs: three columns, and the rail or port of the other end.
LIST = """\
from,from_rail,from_port,to,to_port
dgx-0001,0,,leaf-001,1
dgx-0001,1,,leaf-002,1
leaf-001,,64,leaf-002,64
"""


def test_the_least_that_a_list_needs() -> None:
    plan = read(SMALL, LIST)
    assert [cable.subject for cable in plan.cables] == [
        "cable:dgx-0001/rail0--leaf-001/1",
        "cable:dgx-0001/rail1--leaf-002/1",
        "cable:leaf-001/64--leaf-002/64",
    ]
    assert {cable.rate_gbps for cable in plan.cables} == {400}


@pytest.mark.parametrize(
    "text",
    [
        LIST.replace("leaf-001,,64,leaf-002,64", "leaf-002,,64,leaf-001,64"),
        LIST.replace("dgx-0001", "DGX-0001"),
        "# our list\n\n" + LIST.replace("\n", "\r\n"),
        LIST.replace("to_port\n", "to_port,note\n")
        .replace("1\n", "1,blue\n")
        .replace("64\n", '64,"red, long"\n'),
        "\ufeff" + LIST,
    ],
    ids=["other_way_round", "letter_case", "comments", "own_columns", "byte_order_mark"],
)
def test_lists_that_differ_in_nothing_that_counts(text: str) -> None:
    assert read(SMALL, text) == read(SMALL, LIST)


def test_guids_of_a_list_are_taken_over() -> None:
    text = LIST.replace("to_port\n", "to_port,from_guid,to_guid\n")
    text = text.replace("leaf-001,1\n", "leaf-001,1,0x946DAE0300A1B2C4,fc6a:1c03:0100:0000\n")
    text = text.replace("leaf-002,1\n", "leaf-002,1,946dae0300a1b2c5,\n")
    plan = read(SMALL, text.replace("leaf-002,64\n", "leaf-002,64,,fc6a1c0301000040\n"))
    assert [hca.guid for hca in plan.hcas.values()] == ["946dae0300a1b2c4", "946dae0300a1b2c5"]
    assert plan.switches["leaf-002"].guid == "fc6a1c0301000040"


GUIDS = (
    LIST.replace("to_port\n", "to_port,from_guid,to_guid\n")
    .replace("1\n", "1,,\n")
    .replace("64\n", "64,,\n")
)

UFM = "#StartDevice,StartPort,EndDevice,EndPort,LinkType\n"

# What is wrong with the list, and the one line that it must lead to.
BROKEN = {
    "empty": (
        "",
        "cables.csv: empty; write a line with the names of the columns, and one for each cable",
    ),
    "header_only": (
        LIST.splitlines()[0] + "\n",
        "cables.csv: rails 0 and 1 of dgx-0001 have no cable; write a line for each",
    ),
    "semicolons": (
        LIST.replace(",", ";"),
        "cables.csv:1: columns are not separated by commas; write commas",
    ),
    "no_such_column": (
        LIST.replace("to_port", "to_prt"),
        "cables.csv:1: the column 'to_port' is missing; write it instead of 'to_prt'",
    ),
    "column_twice": (
        LIST.replace("from_port", "from_rail"),
        "cables.csv:1: the column 'from_rail' stands here twice; leave one of the two",
    ),
    "value_missing": (
        LIST.replace("leaf-002,1\n", "leaf-002\n"),
        "cables.csv:3: 4 values for 5 columns; write one for each, empty ones too",
    ),
    "open_quote": (
        LIST.replace("leaf-002,1\n", '"leaf-002,1\n'),
        "cables.csv:4: is not CSV (unexpected end of data); correct the quotes of this line",
    ),
    "no_such_node": (
        LIST.replace("dgx-0001,1", "dgx-0002,1"),
        "cables.csv:3:from: no node or switch is called 'dgx-0002'; write dgx-0001",
    ),
    "no_such_switch": (
        LIST.replace("leaf-002,1\n", "spine-9,1\n"),
        "cables.csv:3:to: no switch is called 'spine-9'; write a switch of the inventory",
    ),
    "node_for_switch": (
        LIST.replace("leaf-002,1\n", "dgx-0001,1\n"),
        "cables.csv:3:to: 'dgx-0001' is a node; write the switch here",
    ),
    "nobody": (
        LIST.replace("leaf-002,1\n", ",1\n"),
        "cables.csv:3:to: empty; write the name of a switch or node",
    ),
    "no_such_rail": (
        LIST.replace("dgx-0001,1", "dgx-0001,2"),
        "cables.csv:3:from_rail: '2' is not a rail of dgx-0001; write a number from 0 to 1",
    ),
    "no_rail": (
        LIST.replace("dgx-0001,1", "dgx-0001,"),
        "cables.csv:3:from_rail: empty; write a number from 0 to 1",
    ),
    "port_beyond_the_last": (
        LIST.replace("leaf-002,1\n", "leaf-002,65\n"),
        "cables.csv:3:to_port: '65' is not a port of leaf-002; write a number from 1 to 64",
    ),
    "port_zero": (
        LIST.replace("leaf-001,,64", "leaf-001,,0"),
        "cables.csv:4:from_port: '0' is not a port of leaf-001; write a number from 1 to 64",
    ),
    "port_in_words": (
        LIST.replace("leaf-002,1\n", "leaf-002,1/1/1\n"),
        "cables.csv:3:to_port: '1/1/1' is not a port of leaf-002; write a number from 1 to 64",
    ),
    "port_twice": (
        LIST.replace("leaf-002,1\n", "leaf-001,1\n"),
        (
            "cables.csv:3:to_port: leaf-001/1 has the cable of line 2 already; write where this "
            "cable ends"
        ),
    ),
    "rail_twice": (
        LIST.replace("dgx-0001,1,", "dgx-0001,0,"),
        (
            "cables.csv:3:from_rail: dgx-0001/rail0 has the cable of line 2 already; write where "
            "this cable ends"
        ),
    ),
    "cable_twice": (
        LIST + "dgx-0001,1,,leaf-002,1\n",
        "cables.csv:5:from_rail: the cable of line 3 once more; leave one of the two lines",
    ),
    "cable_twice_from_the_other_end": (
        LIST + "leaf-002,,64,leaf-001,64\n",
        "cables.csv:5:from_port: the cable of line 4 once more; leave one of the two lines",
    ),
    "switch_to_itself": (
        LIST.replace("leaf-002,64", "leaf-001,63"),
        (
            "cables.csv:4:to_port: a cable from the leaf leaf-001 to the leaf leaf-001; write one "
            "from node to leaf, leaf to leaf, leaf to spine or spine to core"
        ),
    ),
    "rail_without_a_cable": (
        LIST.replace("dgx-0001,1,,leaf-002,1\n", ""),
        "cables.csv: rail 1 of dgx-0001 has no cable; write a line for each",
    ),
    "another_kind": (
        LIST.replace("to_port\n", "to_port,kind\n")
        .replace("1\n", "1,node-leaf\n")
        .replace("64\n", "64,leaf-spine\n"),
        "cables.csv:4:kind: 'leaf-spine', but this is leaf-leaf; write leaf-leaf",
    ),
    "no_such_rate": (
        LIST.replace("to_port\n", "to_port,rate_gbps\n")
        .replace("1\n", "1,\n")
        .replace("64\n", "64,NDR\n"),
        "cables.csv:4:rate_gbps: 'NDR' is not a rate; write 100, 200, 400 or 800",
    ),
    "another_adapter": (
        LIST.replace("from_port,", "from_port,from_pci,")
        .replace("1,,leaf-002", "1,,10:00.0,leaf-002")
        .replace("0,,leaf", "0,,10:00.0,leaf")
        .replace(",,64", ",,64,"),
        (
            "cables.csv:3:from_pci: 10:00.0, but the profile has rail 1 at 0000:11:00.0; correct "
            "the "
            "rail or the address"
        ),
    ),
    "no_guid": (
        GUIDS.replace("leaf-002,1,,", "leaf-002,1,946dae,"),
        (
            "cables.csv:3:from_guid: '946dae' is not a GUID; write 16 hexadecimal digits, or leave "
            "it empty"
        ),
    ),
    "another_guid": (
        GUIDS.replace("leaf-001,1,,", "leaf-001,1,,fc6a1c0301000001"),
        (
            "cables.csv:2:to_guid: fc6a1c0301000001, but it was fc6a1c0301000000 before; write "
            "fc6a1c0301000000"
        ),
    ),
    "guid_of_another": (
        GUIDS.replace("leaf-002,1,,", "leaf-002,1,,fc6a1c0301000000"),
        (
            "cables.csv:3:to_guid: fc6a1c0301000000 is the GUID of leaf-001; write the one of "
            "this device"
        ),
    ),
    "reserved_port_in_use": (
        LIST.replace("from,", "kind,from,").replace("\ndgx", "\n,dgx").replace("\nleaf", "\n,leaf")
        + "reserved,,,,leaf-001,1\n",
        (
            "cables.csv:5:to_port: leaf-001/1 has the cable of line 2 already; write where this "
            "cable ends"
        ),
    ),
    "ufm_adapter": (
        UFM + "dgx-0001,dgx-0001 mlx5_9,leaf-001,Port 1,Data\n",
        (
            "cables.csv:2:startport: 'mlx5_9' is not an adapter of dgx-0001; write its device on a "
            "rail, like mlx5_rail0"
        ),
    ),
    "ufm_director": (
        UFM + "leaf-001,Port 64,leaf-002,Blade 16_Port 2/20,Data\n",
        (
            "cables.csv:2:endport: 'Blade 16_Port 2/20' is not a port of leaf-002; write a number "
            "from 1 to 64"
        ),
    ),
    "ufm_column": (
        "#StartDevice,StartPort,EndDevice,LinkType\n",
        (
            "cables.csv:1: the column 'endport' is missing; write "
            "startdevice,startport,enddevice,endport"
        ),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_one_line_for_one_mistake(name: str) -> None:
    text, says = BROKEN[name]
    plan, problems = read_cables(plan_devices(SMALL), text.encode(), "cables.csv")
    assert plan is None
    assert [str(problem) for problem in problems] == [says]


def test_ports_that_the_inventory_reserves() -> None:
    data = plan_data(1, rails=2, reserved_ports={"leaf-001": [40, 1]})
    _plan, problems = read_cables(plan_devices(data), LIST.encode(), "cables.csv")
    assert [str(problem) for problem in problems] == [
        (
            "cables.csv:2:to_port: leaf-001/1 is one of reserved_ports in the inventory; write "
            "another port here, or there"
        )
    ]


def test_what_is_no_text() -> None:
    content = LIST.encode() + b"caf\xe9,,,,\n"
    plan, problems = read_cables(plan_devices(SMALL), content, "cables.csv")
    assert plan is None
    (problem,) = problems
    assert str(problem) == "cables.csv:5: is not UTF-8 text; save the list as UTF-8"


def test_many_mistakes_are_cut_short() -> None:
    text = LIST + "nobody,0,,leaf-001,5\n" * 100
    _plan, problems = read_cables(plan_devices(SMALL), text.encode(), "cables.csv")
    assert len(problems) == 21
    assert str(problems[-1]) == "cables.csv: 80 more mistakes; correct these first"
    assert len({problem.path for problem in problems}) == 21


@pytest.mark.parametrize("name", ["ufm-6.csv", "ufm-6-export.csv"])
def test_the_lists_that_ufm_writes(name: str) -> None:
    """By RDMA device, by network device, by description, and a switch with a long description."""
    assert set(read(SMALL, fixture(f"ufm_ndt/{name}")).cables) == set(read(SMALL, LIST).cables)


def test_a_list_of_a_real_fabric(captures: Path) -> None:
    """NVIDIA's own example: 2,223 hosts' cables on switches with 40 ports."""
    file = captures / "ufm-ndt" / "switch_to_host_topo1.ndt"
    with file.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))[1:]
    adapters: dict[str, list[str]] = {}
    for device, port, _switch, _number, _kind in rows:
        adapters.setdefault(device, []).append(port.split(" ")[1])
    data = plan_data(0, radix=41)
    data["cluster"]["fabric"].update(
        leaf_switches=sorted({row[2] for row in rows}), cabling={"source": "csv", "file": "x"}
    )
    for name, found in adapters.items():
        data["profiles"][name] = {
            "link_rate_gbps": 200,
            "rails": [
                {"rail": rail, "hca_pci": None, "cage": None, "port": None, "device": device}
                for rail, device in enumerate(found)
            ],
        }
        data["nodes"].append(
            {
                "name": name,
                "state": "present",
                "groups": ["gpu_nodes"],
                "profile": name,
                "hca_guids": {},
            }
        )
    plan, problems = read_cables(plan_devices(data), file.read_bytes(), file.name)
    assert [str(problem) for problem in problems] == []
    assert plan is not None
    assert len(plan.cables) == len(rows) == 2223
    by_end = plan.by_end()
    device, port, switch, number, _kind = rows[9]
    cable = by_end[rail_end(device, adapters[device].index(port.split(" ")[1]))]
    assert cable.b == switch_end(switch, int(number.split(" ")[1]))
