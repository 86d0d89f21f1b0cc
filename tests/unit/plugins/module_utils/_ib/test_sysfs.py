# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os

import pytest
from ib_tree import add_hca, config_space, dgx

from ansible_collections.baremetal.dgx.plugins.module_utils._host import pci as _pci
from ansible_collections.baremetal.dgx.plugins.module_utils._host.pci import Tree
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.read import (
    adapter_data,
    ask_serials,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.sysfs import (
    load_hcas,
    parse_rate,
    plain_guid,
    serial_number,
)


def load(path):
    return load_hcas(Tree(str(path)))


def test_a_rail(tmp_path):
    hca = load(dgx(tmp_path))[0]
    assert (hca.device, hca.pci, hca.vendor) == ("mlx5_rail0", "0000:18:00.0", "15b3")
    assert (hca.psid, hca.firmware, hca.model) == ("MT_0000000838", "28.39.1002", "MT4129")
    assert hca.node_guid == "946dae0300000018"
    assert hca.netdevs == ("ibmlx5_rail0",)
    assert hca.max_read_request == 4096
    assert hca.ignored == ""
    port = hca.ports[0]
    assert (port.state, port.physical_state) == ("ACTIVE", "LinkUp")
    assert (port.rate_gbps, port.width, port.speed) == (400.0, "4x", "NDR")
    assert (port.lid, port.sm_lid, port.guid) == (0x12, 1, "946dae0300000018")
    assert port.pkeys == ("0xffff",)
    assert port.counters["port_rcv_errors"] == 14


def test_links_are_those_between_chips(tmp_path):
    hca = load(dgx(tmp_path))[0]
    assert [function.kind for function in hca.path] == [0, 6, 5, 4]
    # the upstream and the downstream port of the switch are one chip
    assert [(link.lower, link.upper) for link in hca.links] == [
        ("0000:18:00.0", "0000:12:00.0"),
        ("0000:11:00.0", "0000:10:01.0"),
    ]
    assert {link.able_speed_gts for link in hca.links} == {32.0}


def test_acs(tmp_path):
    dgx(tmp_path, mlx5_rail0={"acs": 0x1D}, mlx5_rail7={"acs": 0x01})
    hcas = load(tmp_path)
    assert hcas[0].redirecting == ("0000:12:00.0", "0000:10:01.0")
    # source validation alone redirects nothing
    assert hcas[7].redirecting == ()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"vendor": "0x8086"}, "vendor 8086"),
        ({"vital": b"\x90\x20\x00V3\x0bSMDL=SW_MNGRV", "state": "1: DOWN"}, "SMDL=SW_MNG"),
        ({"state": "1: DOWN"}, ""),
        # active in a fabric: not asked, the reading takes long
        ({"vital": b"SMDL=SW_MNG"}, ""),
        ({}, ""),
    ],
)
def test_what_is_ignored(tmp_path, changes, reason):
    add_hca(tmp_path, "x0", "1a", **changes)
    assert reason in load(tmp_path)[0].ignored
    assert bool(load(tmp_path)[0].ignored) is bool(reason)


def test_a_virtual_function_is_ignored(tmp_path):
    add_hca(tmp_path, "x0", "1a")
    function = (tmp_path / "class/infiniband/x0/device").resolve()
    (function / "physfn").mkdir()
    (function / "physfn/vendor").write_text("0x15b3\n")
    assert load(tmp_path)[0].ignored == "a virtual function"


def test_what_is_missing_is_none_and_not_zero(tmp_path):
    (tmp_path / "class/infiniband/mlx5_0/ports/1").mkdir(parents=True)
    (hca,) = load(tmp_path)
    assert hca.pci is hca.firmware is hca.numa is hca.redirecting is hca.max_read_request is None
    assert hca.links == hca.path == ()
    port = hca.ports[0]
    assert port.state is port.rate_gbps is port.lid is port.guid is port.pkeys is None
    assert port.counters == {}
    assert load(tmp_path / "nothing") == []


def test_a_tree_without_configuration_space_still_has_its_lowest_link(tmp_path):
    for path in dgx(tmp_path).rglob("config"):
        path.write_bytes(path.read_bytes()[:64])
    hca = load(tmp_path)[0]
    assert len(hca.links) == 1
    assert hca.redirecting is None
    assert hca.max_read_request is None


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("400 Gb/sec (4X NDR)", (400.0, "4x", "NDR")),
        ("100 Gb/sec (1X NDR)", (100.0, "1x", "NDR")),
        ("2.5 Gb/sec (1X SDR)", (2.5, "1x", "SDR")),
        ("10 Gb/sec (4X)", (10.0, "4x", "SDR")),
        ("", (None, None, None)),
        (None, (None, None, None)),
        ("Unknown", (None, None, None)),
    ],
)
def test_rates(text, parsed):
    assert parse_rate(text) == parsed


def test_guids():
    assert plain_guid("946d:ae03:0000:1001") == "946dae0300001001"
    assert plain_guid("0000:0000:0000:0000") is None
    assert plain_guid(None) is None


def test_configuration_space():
    config = config_space(6, 256, 0x1D)
    assert _pci.port_type(config) == _pci.DOWNSTREAM_PORT
    assert _pci.max_read_request(config) == 256
    assert _pci.acs_control(config) == 0x1D
    assert _pci.acs_control(config_space(6)) == 0
    assert _pci.acs_control(config[:256]) is None
    assert _pci.port_type(config[:64]) is None
    assert _pci.port_type(b"") is None
    assert _pci.max_read_request(bytes(4096)) is None


def test_lists_that_bite_their_tails_end():
    config = bytearray(config_space(6))
    config[0x41] = 0x40
    assert _pci.port_type(bytes(config)) is None
    config = bytearray(config_space(6))
    config[0x102:0x104] = (0x100 << 4 | 1).to_bytes(2, "little")
    assert _pci.acs_control(bytes(config)) is None


def test_capture_of_an_h100_node(capture):
    root = capture("sysfs-infiniband/sys-class-infiniband-h100.0")
    tree = Tree(str(root))
    # the capture is the folder class/infiniband alone
    names = [name for name in tree.names() if name.startswith("mlx5_")]
    assert len(names) >= 9

    class Shifted(Tree):
        def path(self, *parts):
            return super().path(*parts).replace("class/infiniband/", "")

        def names(self, *parts):
            return super().names(*(() if parts == ("class", "infiniband") else parts))

    hcas = {hca.device: hca for hca in load_hcas(Shifted(str(root)))}
    assert hcas["mlx5_0"].firmware == "28.41.1000"
    assert hcas["mlx5_0"].ports[0].rate_gbps == 400
    assert hcas["mlx5_1"].ports[0].counters["link_downed"] == 255
    assert hcas["mlx5_bond_0"].ports[0].link_layer == "Ethernet"
    assert hcas["mlx5_bond_0"].ports[0].width == "2x"
    assert all(hca.pci is None for hca in hcas.values())


def vital(*fields: tuple[bytes, bytes], name: bytes = b"NVIDIA ConnectX-7") -> bytes:
    """Vital product data: the name, read-only fields, fields to write, the end."""
    held = b"".join(word + bytes([len(value)]) + value for word, value in fields)
    return (
        b"\x82" + len(name).to_bytes(2, "little") + name
        + b"\x90" + len(held).to_bytes(2, "little") + held
        + b"\x91\x05\x00SN\x02no" + b"\x78"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "serial"),
    [
        (vital((b"PN", b"MCX75310AAS-NEAT"), (b"SN", b"MT2231X00042  "), (b"RV", b"\x00")),
         "MT2231X00042"),
        # A small item before, and a field with SN in its value.
        (b"\x12AB" + vital((b"V0", b"SN\x02xx"), (b"SN", b"MT1\x00")), "MT1"),
        (vital((b"PN", b"x")), None),
        (vital((b"SN", b"")), None),
        (vital((b"SN", b"\xff\x01")), None),
        # cut off
        (vital((b"SN", b"MT2231X00042"))[:35], None),
        (b"\x78" + vital((b"SN", b"MT1")), None),
        (b"", None),
        (b"\x90", None),
        (b"\xff\xff\xff", None),
    ],
)  # fmt: skip
def test_the_serial_number_in_vital_product_data(data, serial):
    assert serial_number(data) == serial


def test_serial_numbers_are_asked_within_a_limit(tmp_path):
    for number, name in enumerate(("x0", "x1", "x2", "x3")):
        add_hca(tmp_path, name, f"1{number}", vital=vital((b"SN", f"MT{number}".encode())))
    hcas, tree = load(tmp_path), Tree(str(tmp_path))
    (tmp_path / "class/infiniband/x1/device/vpd").unlink()
    assert ask_serials(tree, hcas) == ({"x0": "MT0", "x2": "MT2", "x3": "MT3"}, "")
    # A card that does not answer: what came before it counts.
    path = tmp_path / "class/infiniband/x2/device/vpd"
    path.unlink()
    os.mkfifo(path)
    serials, why = ask_serials(tree, hcas, limit_s=0.5)
    assert serials == {"x0": "MT0"}
    assert why.startswith("vital product data of the adapters: ")
    data = [adapter_data(hca, serials.get(hca.device)) for hca in hcas]
    assert [one["serial"] for one in data] == ["MT0", None, None, None]
