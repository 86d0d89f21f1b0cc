# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from .conftest import podlib

layout = podlib("layout")


def test_default_layout_has_one_head_one_login_and_the_dgx_nodes():
    nodes = layout.default_nodes("10.78.3.0/24", "trixie", 8)
    assert [(n.name, n.ip) for n in nodes[:4]] == [
        ("head-01", "10.78.3.11"),
        ("login-01", "10.78.3.21"),
        ("dgx-01", "10.78.3.101"),
        ("dgx-02", "10.78.3.102"),
    ]
    assert nodes[-1].name == "dgx-08"
    assert nodes[-1].ip == "10.78.3.108"
    assert [n.name for n in nodes if n.is_gpu] == [f"dgx-{i:02d}" for i in range(1, 9)]


def test_largest_layout_stays_inside_the_subnet_with_names_of_one_width():
    nodes = layout.default_nodes("10.78.3.0/24", "trixie", layout.MAX_DGX)
    assert nodes[-1].ip == "10.78.3.199"
    assert {len(n.name) for n in nodes if n.is_gpu} == {6}


@pytest.mark.parametrize("count", [0, -1, 100])
def test_number_of_nodes_out_of_range_is_refused(count):
    with pytest.raises(layout.PodError, match="write a number from 1 to 99"):
        layout.default_nodes("10.77.0.0/24", "trixie", count)


@pytest.mark.parametrize(
    "subnet", ["10.77.0.1/24", "10.77.0.0/16", "8.8.8.0/24", "demo", "fd00::/64"]
)
def test_subnet_that_is_no_private_24_is_refused(subnet):
    with pytest.raises(layout.PodError, match="subnet"):
        layout.check_subnet(subnet)


def test_hosts_take_suite_and_bare_in_any_order():
    nodes = layout.parse_hosts(
        "a=10.77.0.5, b=10.77.0.6:bookworm,c=10.77.0.7:trixie:bare,d=10.77.0.8:bare",
        "10.77.0.0/24",
        "bookworm",
    )
    assert [(n.name, n.suite, n.bare) for n in nodes] == [
        ("a", "bookworm", False),
        ("b", "bookworm", False),
        ("c", "trixie", True),
        ("d", "bookworm", True),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "write NAME=IP"),
        ("a", "write NAME=IP"),
        ("A=10.77.0.5", "lower-case"),
        ("a_b=10.77.0.5", "lower-case"),
        ("a=10.77.0.500", "10.77.0.500"),
        ("a=10.78.0.5", "not free for a node"),
        ("a=10.77.0.1", "not free for a node"),
        ("a=10.77.0.255", "not free for a node"),
        ("a=10.77.0.5:sid", "write one of trixie, bookworm"),
        ("a=10.77.0.5:trixie:bookworm", "more than one suite"),
        ("a=10.77.0.5,a=10.77.0.6", "the name a stands twice"),
        ("a=10.77.0.5,b=10.77.0.5", "the address 10.77.0.5 stands twice"),
    ],
)
def test_wrong_hosts_are_refused_with_the_entry(text, message):
    with pytest.raises(layout.PodError, match=message):
        layout.parse_hosts(text, "10.77.0.0/24", "trixie")


def test_nothing_said_gives_the_default_pod():
    pod = layout.resolve(layout.Request("demo"), None)
    assert (pod.subnet, pod.gateway) == ("10.77.0.0/24", "10.77.0.1")
    assert len(pod.nodes) == 6
    assert {n.suite for n in pod.nodes} == {"trixie"}
    assert pod.container("dgx-01") == "demo-dgx-01"


def test_what_was_asked_the_last_time_holds_until_said_otherwise():
    first = layout.resolve(layout.Request("demo", "10.78.1.0/24", "bookworm", 2), None)
    assert layout.resolve(layout.Request("demo"), first) == first
    grown = layout.resolve(layout.Request("demo", nodes=3), first)
    assert grown.nodes[:-1] == first.nodes
    assert grown.nodes[-1].suite == "bookworm"


def test_pod_of_named_hosts_stays_one_until_a_number_is_given():
    named = layout.resolve(layout.Request("x", hosts="a=10.77.0.5"), None)
    assert layout.resolve(layout.Request("x"), named) == named
    with pytest.raises(layout.PodError, match="name the suites there"):
        layout.resolve(layout.Request("x", suite="bookworm"), named)
    assert len(layout.resolve(layout.Request("x", nodes=1), named).nodes) == 3


def test_pod_cannot_move_to_another_subnet():
    pod = layout.resolve(layout.Request("demo"), None)
    with pytest.raises(layout.PodError, match="take it down first"):
        layout.resolve(layout.Request("demo", "10.78.1.0/24"), pod)


def test_number_and_hosts_exclude_each_other():
    with pytest.raises(layout.PodError, match="one of the two"):
        layout.resolve(layout.Request("demo", nodes=1, hosts="a=10.77.0.5"), None)


def test_record_gives_back_the_same_pod():
    pod = layout.resolve(
        layout.Request("x", hosts="a=10.77.0.5:bookworm:bare,dgx-1=10.77.0.6"), None
    )
    assert layout.pod_from_record(layout.pod_to_record(pod)) == pod


def test_overlap_is_found_whatever_the_prefix_length():
    others = [("lo", "127.0.0.1/8"), ("eth0", "10.0.0.5/8"), ("v6", "fd00::1/64")]
    assert layout.overlapping("10.77.0.0/24", others) == "eth0"
    assert layout.overlapping("192.168.1.0/24", others) is None


def test_a_node_for_storage_is_there_only_when_asked_for_and_stays():
    assert layout.STORAGE not in {n.name for n in layout.resolve(layout.Request("x"), None).nodes}
    pod = layout.resolve(layout.Request("x", storage=True), None)
    assert [n.ip for n in pod.nodes if n.name == layout.STORAGE] == ["10.77.0.31"]
    assert layout.resolve(layout.Request("x"), pod) == pod
    assert layout.resolve(layout.Request("x", nodes=2), pod).nodes[2].name == layout.STORAGE
    without = layout.resolve(layout.Request("x", storage=False), pod)
    assert layout.STORAGE not in {n.name for n in without.nodes}


def test_named_hosts_say_themselves_whether_there_is_storage():
    with pytest.raises(layout.PodError, match="stor-01=IP among the hosts"):
        layout.resolve(layout.Request("x", hosts="a=10.77.0.5", storage=True), None)


def test_the_mixed_layout_has_nodes_of_three_kinds() -> None:
    pod = layout.resolve(layout.Request("t", inventory="mixed"), None)
    models = {node.name: node.model for node in pod.nodes if node.is_gpu}
    assert models == {
        **{f"dgx-0{n}": "h100" for n in range(1, 5)},
        "debug-01": "a6000",
        "mig-01": "h100",
    }
    assert layout.pod_from_record(layout.pod_to_record(pod)) == pod
    assert layout.resolve(layout.Request("t"), pod) == pod
    assert layout.resolve(layout.Request("t", nodes=2), pod).inventory == ""
    with pytest.raises(layout.PodError, match="write mixed"):
        layout.resolve(layout.Request("t", inventory="minimal"), None)
    with pytest.raises(layout.PodError, match="its own nodes"):
        layout.resolve(layout.Request("t", inventory="mixed", nodes=3), None)
