# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from fabric_netlist import (
    discovery_text,
    states_text,
    whole_links,
)
from fabric_texts import DISCOVERY, ROWS, STATES, fixture

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    CA,
    SWITCH,
    FoundPort,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.parse_discovery import (
    add_link_states,
    port_index,
    read_ibnetdiscover,
    resolve_path,
)

LEAF_1, LEAF_2 = "fc6a1c0301000000", "fc6a1c0301000001"
DGX_2 = "046dae0300002000"


def test_records_are_read() -> None:
    sweep = read_ibnetdiscover(DISCOVERY)
    assert sweep.complaints == []
    assert sweep.start == "946dae0300001000"
    assert {device.kind for device in sweep.devices.values()} == {CA, SWITCH}
    leaf = sweep.devices[LEAF_2]
    assert (leaf.description, leaf.port_count, leaf.lid) == ("MF0;leaf-02:MQM9700/U1", 64, 3)
    assert (leaf.device_id, leaf.system_guid) == ("d2f2", LEAF_2)
    slow = leaf.ports[2]
    assert (slow.peer, slow.width, slow.speed) == (("946dae0300002010", 1), "1x", "HDR")
    # GUIDs are printed with and without their leading zeros.
    assert sweep.devices[DGX_2].ports[1].guid == "046dae0300002001"
    assert len(sweep.links()) == 5
    assert ((DGX_2, 1), (LEAF_1, 2)) in sweep.links()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("\t", ""),
        lambda text: text.replace("\t", "   "),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("4xNDR\n", "4xNDR s=7 w=2 v=4 e=15\n"),
        lambda text: text.replace("[33]\t", "[33][ext 12]\t"),
        lambda text: text.replace("[33]\t\t#", "[33][ext 3]\t\t#"),
    ],
)  # fmt: skip
def test_what_terminals_do_to_the_text_does_no_harm(damage) -> None:
    sweep = read_ibnetdiscover(damage(DISCOVERY))
    assert sweep.complaints == []
    assert sweep.links() == read_ibnetdiscover(DISCOVERY).links()


def test_no_cut_goes_unnoticed() -> None:
    whole = read_ibnetdiscover(DISCOVERY)
    last = DISCOVERY.rstrip().rindex("\n")
    for end in range(len(DISCOVERY) - 1):
        sweep = read_ibnetdiscover(DISCOVERY[:end])
        if not sweep.complaints:
            # Only blanks, or the last digits of a name that is printed a second time, are gone.
            assert end > last
            assert sweep.links() == whole.links()


def test_a_link_that_its_ends_tell_differently_is_believed_at_neither() -> None:
    text = DISCOVERY.replace('\t"S-fc6a1c0301000001"[1]\t', '\t"S-fc6a1c0301000001"[9]\t')
    sweep = read_ibnetdiscover(text)
    assert len(sweep.complaints) == 2
    assert "contradicts itself" in sweep.complaints[1]
    twisted = text.replace('[2]\t"H-046dae0300002000"', '[2]\t"H-946dae0300001000"')
    sweep = read_ibnetdiscover(twisted)
    assert sweep.devices[LEAF_1].ports[2].peer is None


def test_a_line_in_a_record_that_cannot_be_read_is_a_complaint() -> None:
    sweep = read_ibnetdiscover(DISCOVERY.replace('[33]\t"S-fc6a1c0301000000"', '[33]\t"X-'))
    assert any("cannot be read" in complaint for complaint in sweep.complaints)


def test_nothing_is_a_complaint() -> None:
    assert read_ibnetdiscover("").complaints == ["the answer of ibnetdiscover holds no device"]
    assert read_ibnetdiscover("Usage: ibnetdiscover [options]\n").complaints


def test_rows_are_read() -> None:
    sweep = read_ibnetdiscover(ROWS)
    assert sweep.complaints == []
    adapter = sweep.devices["946dae0300002011"]
    assert (adapter.kind, adapter.description, adapter.lid) == (CA, "dgx-02 mlx5_3", 6)
    assert adapter.ports[1].peer == (LEAF_2, 2)
    leaf = sweep.devices[LEAF_2]
    # "4x SDR" without a peer is how a port without a link is printed.
    assert leaf.ports[64] == FoundPort(64, guid=LEAF_2, lid=3)
    assert leaf.ports[63].speed is None
    assert sweep.devices["946dae0300618c83"].description == " spine with blanks "
    assert sweep.devices["046dae0300618c84"].description == "no quotes at all"


def test_a_missing_row_is_a_complaint() -> None:
    sweep = read_ibnetdiscover("".join(ROWS.splitlines(keepends=True)[:1]))
    assert "cut off" in sweep.complaints[0]


def test_states_are_added() -> None:
    sweep = read_ibnetdiscover(DISCOVERY)
    add_link_states(sweep, STATES)
    assert sweep.complaints == []
    leaf = sweep.devices[LEAF_2]
    assert (leaf.ports[3].state, leaf.ports[3].physical_state) == ("Down", "Polling")
    assert leaf.ports[4].physical_state == "Disabled"
    silent = sweep.devices[LEAF_1].ports[7]
    assert (silent.state, silent.peer, silent.speed) == ("Active", None, "NDR")
    # An adapter goes by the GUID of its port there.
    assert sweep.devices[DGX_2].ports[1].state == "Active"


def test_states_of_what_the_discovery_does_not_know_are_a_complaint() -> None:
    sweep = read_ibnetdiscover(DISCOVERY)
    strange = STATES.replace('0xfc6a1c0301000001 "        MF0', '0xfc6a1c0301000009 "        MF0')
    add_link_states(sweep, strange + "half a li")
    assert len(sweep.complaints) == 2
    # The line of a link whose far end ibnetdiscover does not show.
    sweep = read_ibnetdiscover(DISCOVERY)
    row = STATES.splitlines()[1].replace('"                 dgx-02 mlx5_0"', '"x"')
    add_link_states(sweep, row.replace("0x46dae0300002001", f"0x{LEAF_1}").replace(" 1[", " 9[", 1))
    assert "shows what" in sweep.complaints[0]


def test_a_directed_route_is_followed() -> None:
    sweep = read_ibnetdiscover(DISCOVERY)
    assert resolve_path(sweep, (1, 33, 7)) == (LEAF_2, 7)
    assert resolve_path(sweep, (1, 34, 7)) is None
    assert resolve_path(sweep, ()) is None
    sweep.start = None
    assert resolve_path(sweep, (1,)) is None


def test_ports_are_known_by_both_guids() -> None:
    index = port_index(read_ibnetdiscover(DISCOVERY))
    assert index["046dae0300002001", 1] == index[DGX_2, 1] == (DGX_2, 1)


def test_what_is_printed_is_read_back() -> None:
    sweep = read_ibnetdiscover(DISCOVERY)
    again = read_ibnetdiscover(discovery_text(sweep))
    assert again == sweep
    add_link_states(sweep, STATES)
    states = states_text(sweep)
    add_link_states(again, states)
    assert again.complaints == []
    assert again.devices[LEAF_2].ports[4].physical_state == "Disabled"
    assert again.devices[LEAF_1].ports[7].state == "Active"


# Releases: switches and adapters, and the links of each width and speed.
RELEASES = {
    "rdma-core-39": (2, 3, {"4xHDR": 2, "2xHDR": 1, "4xEDR": 1, "4xFDR10": 1}),
    "rdma-core-44": (2, 4, {"4xNDR": 4, "1xHDR": 1}),
    "rdma-core-56": (2, 4, {"4xXDR": 4, "4xNDR": 1}),
    "mlnx-ofed-5.8-terminal": (2, 3, {"4xHDR": 2, "2xHDR": 1, "4xEDR": 1, "4xFDR10": 1}),
}


@pytest.mark.parametrize("name", RELEASES)
def test_the_form_of_every_supported_release(name: str) -> None:
    sweep = read_ibnetdiscover(fixture(f"ibnetdiscover/{name}.txt"))
    assert sweep.complaints == []
    kinds = [device.kind for device in sweep.devices.values()]
    ports = [sweep.devices[guid].ports[number] for (guid, number), _far in sweep.links()]
    speeds = Counter(f"{port.width}{port.speed}" for port in ports)
    assert (kinds.count(SWITCH), kinds.count(CA), speeds) == RELEASES[name]


# Ports whose state or speed only iblinkinfo says.
STATES_OF = {
    "rdma-core-39": ("b8cef60300bb0000", 3, ("Down", "Polling", None)),
    "rdma-core-44": (LEAF_1, 7, ("Active", "LinkUp", "NDR")),
    "rdma-core-56": (LEAF_1, 7, ("Active", "LinkUp", "XDR")),
}


@pytest.mark.parametrize("name", STATES_OF)
def test_the_states_of_every_supported_release(name: str) -> None:
    sweep = read_ibnetdiscover(fixture(f"ibnetdiscover/{name}.txt"))
    add_link_states(sweep, fixture(f"iblinkinfo/{name}.txt"))
    assert sweep.complaints == []
    guid, number, report = STATES_OF[name]
    port = sweep.devices[guid].ports[number]
    assert (port.state, port.physical_state, port.speed) == report


# Devices, links and complaints of each capture. Counted by hand: lines that begin with Switch and
# Ca (grep -c), and half of the lines that begin with a bracket.
COUNTS = {
    "azure-director-cs8500-hdr.txt": (400, 2328, 8723, 0),
    "selene-compute-hdr.txt": (666, 4341, 12852, 0),
    "selene-storage-hdr.txt": (160, 1247, 3286, 0),
    "small-topo.txt": (2, 13, 16, 0),
    # One adapter has no own record.
    "hdr-cs8500-faked.txt": (8, 11, 18, 1),
    # Extracts: far ends are not in them.
    "edr-osc-p-test.out": (4, 3, 4, 1),
    "edr-osc-p-test2.out": (5, 2, 2, 2),
    "edr-osc-p-test3.out": (1, 0, 0, 0),
}


@pytest.mark.parametrize("name", COUNTS)
def test_captures_are_read(name: str, captures: Path) -> None:
    with (captures / "ibnetdiscover" / name).open(newline="", errors="replace") as handle:
        sweep = read_ibnetdiscover(handle.read())
    kinds = [device.kind for device in sweep.devices.values()]
    counts = (kinds.count(SWITCH), kinds.count(CA), len(sweep.links()), len(sweep.complaints))
    assert counts == COUNTS[name]
    whole = whole_links(sweep)
    again = read_ibnetdiscover(discovery_text(whole))
    assert again.links() == whole.links()
