# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import struct

import pytest

from .conftest import podlib

network = podlib("network")
names = podlib("names")

ADDRESSES = {"dgx-01": "10.77.0.101"}


def query(name, kind=1, flags=0x0100, questions=1):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return (
        struct.pack("!HHHHHH", 7, flags, questions, 0, 0, 0)
        + labels
        + struct.pack("!BHH", 0, kind, 1)
    )


def header(reply):
    return struct.unpack("!HHHHHH", reply[:12])


@pytest.mark.parametrize("name", ["demo", "eleven-char", "a-very-long-name-of-a-pod"])
def test_bridge_has_a_name_that_the_kernel_takes(name):
    assert network.bridge_name(name).startswith("pod-")
    assert len(network.bridge_name(name)) <= 15


def test_pods_with_long_names_have_different_bridges():
    assert network.bridge_name("a-very-long-name-1") != network.bridge_name("a-very-long-name-2")


def test_card_has_the_same_names_each_time():
    assert network.mac_address("10.77.0.101") == "02:d6:0a:4d:00:65"
    assert network.port_name("10.77.0.101") == "pod0a4d0065"


@pytest.mark.parametrize("name", ["dgx-01", "DGX-01"])
def test_node_is_found_by_its_name(name):
    reply = names.answer(query(name), ADDRESSES)
    assert header(reply) == (7, 0x8500, 1, 1, 0, 0)
    assert reply[-4:] == bytes([10, 77, 0, 101])


def test_node_has_no_address_of_another_kind():
    assert header(names.answer(query("dgx-01", kind=28), ADDRESSES)) == (7, 0x8500, 1, 0, 0, 0)


@pytest.mark.parametrize("name", ["dgx-02", "dgx-01.example.org", "_slurmctld._tcp"])
def test_other_names_do_not_exist(name):
    assert header(names.answer(query(name), ADDRESSES)) == (7, 0x8503, 1, 0, 0, 0)


@pytest.mark.parametrize("data", [b"", b"short", query("dgx-01", flags=0x8180)])
def test_what_is_no_query_gets_no_answer(data):
    assert names.answer(data, ADDRESSES) is None


@pytest.mark.parametrize(
    "data", [query("dgx-01", questions=2), query("dgx-01")[:16], query("x")[:12] + b"\xc0\x0c"]
)
def test_broken_query_is_called_broken(data):
    assert header(names.answer(data, ADDRESSES))[1] & 15 == 1


def test_names_come_from_the_pods_record(tmp_path):
    record = tmp_path / "pod.json"
    assert names.addresses_in(record) == {}
    record.write_text('{"nodes": [{"name": "a", "ip": "10.77.0.5"}]}')
    assert names.addresses_in(record) == {"a": "10.77.0.5"}
    record.write_text("{")
    assert names.addresses_in(record) == {}
