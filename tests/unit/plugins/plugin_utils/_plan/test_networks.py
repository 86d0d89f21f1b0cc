# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import Value
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.networks import (
    Network,
    Placed,
    check_addresses,
    check_rails,
    parse_networks,
    place_node,
    reach_warnings,
    unknown_network,
)

PATH = "all.cluster_networks"


def networks(**data: Mapping[str, Any]) -> dict[str, Network]:
    found, problems = parse_networks(data, PATH)
    assert problems == []
    return found


def wrong(**data: Mapping[str, Any]) -> list[str]:
    return [str(problem) for problem in parse_networks(data, PATH)[1]]


@pytest.mark.parametrize(
    ("cidr", "gateway", "why"),
    [
        ("10.0.0.0/30", "10.0.0.0", "the address of the network itself"),
        ("10.0.0.0/30", "10.0.0.1", None),
        ("10.0.0.0/30", "10.0.0.2", None),
        ("10.0.0.0/30", "10.0.0.3", "the broadcast address of 10.0.0.0/30"),
        ("10.0.0.0/30", "10.0.0.4", "outside 10.0.0.0/30"),
        # RFC 3021: both addresses of a point-to-point link are for hosts.
        ("10.0.0.0/31", "10.0.0.0", None),
        ("10.0.0.0/31", "10.0.0.1", None),
        ("10.0.0.7/32", "10.0.0.7", None),
        ("fd00::/126", "fd00::", "the address of the network itself"),
        ("fd00::/126", "fd00::1", None),
        # IPv6 has no broadcast.
        ("fd00::/126", "fd00::3", None),
        ("fd00::/127", "fd00::", None),
        ("fd00::/127", "fd00::1", None),
        ("fd00::/126", "10.0.0.1", "outside fd00::/126"),
        ("10.0.0.0/30", "fd00::1", "outside 10.0.0.0/30"),
    ],
)
def test_addresses_at_the_edges_of_a_network(cidr: str, gateway: str, why: str | None) -> None:
    lines = wrong(one={"cidr": cidr, "gateway": gateway})
    line = f"{PATH}.one.gateway: {gateway} is {why}; write the router's address in {cidr}"
    assert lines == ([] if why is None else [line])


@pytest.mark.parametrize(
    ("kind", "mtu", "line"),
    [
        ("ethernet", None, None),
        ("ethernet", 9216, None),
        ("ethernet", 9217, "9217 is more than Ethernet carries; write 9216 at most"),
        ("infiniband", None, None),
        ("infiniband", 4092, None),
        (
            "infiniband",
            4093,
            "4093 is more than IPoIB carries in datagram mode; write 4092 at most",
        ),
        (
            "infiniband",
            9217,
            "9217 is more than IPoIB carries in datagram mode; write 4092 at most",
        ),
    ],
)
def test_the_largest_mtu_of_each_kind(kind: str, mtu: int | None, line: str | None) -> None:
    item = {"cidr": "10.0.0.0/24", "kind": kind, **({} if mtu is None else {"mtu": mtu})}
    assert wrong(one=item) == ([] if line is None else [f"{PATH}.one.mtu: {line}"])


def test_only_ethernet_has_vlans() -> None:
    vlan = {"cidr": "10.0.0.0/24", "vlan": 20}
    assert wrong(one=vlan) == []
    assert wrong(one={**vlan, "kind": "ethernet"}) == []
    assert wrong(one={**vlan, "kind": "infiniband"}) == [
        f"{PATH}.one.vlan: an InfiniBand network has no VLAN; remove it, or write kind: ethernet"
    ]


def test_networks_may_touch_but_not_overlap() -> None:
    lower, upper = {"cidr": "10.0.0.0/25"}, {"cidr": "10.0.0.128/25"}
    assert wrong(lower=lower, upper=upper, six={"cidr": "fd00::/64"}) == []
    # One that begins inside of the first, one around both.
    assert wrong(lower=lower, inside={"cidr": "10.0.0.64/26"}) == [
        (
            f"{PATH}.inside.cidr: 10.0.0.64/26 overlaps 10.0.0.0/25 of lower; "
            "write a network without overlap"
        )
    ]
    assert wrong(lower=lower, upper=upper, around={"cidr": "10.0.0.0/24"}) == [
        (
            f"{PATH}.around.cidr: 10.0.0.0/24 overlaps 10.0.0.0/25 of lower; "
            "write a network without overlap"
        ),
        (
            f"{PATH}.around.cidr: 10.0.0.0/24 overlaps 10.0.0.128/25 of upper; "
            "write a network without overlap"
        ),
    ]


def test_a_network_that_cannot_be_read_hides_no_other() -> None:
    found, problems = parse_networks(
        {
            "none": {"cidr": "10.0.0/24"},
            "bits": {"cidr": "10.0.1.9/24"},
            "good": {
                "cidr": " 10.0.2.0/24 ",
                "gateway": " 10.0.2.1 ",
                "mtu": "9000",
                "vlan": "7",
            },
            "plain": {"cidr": "10.0.3.0/24"},
        },
        PATH,
    )
    assert [str(problem) for problem in problems] == [
        (
            f"{PATH}.none.cidr: '10.0.0/24' is not a network; write it as ADDRESS/BITS, "
            "like 10.1.0.0/24"
        ),
        f"{PATH}.bits.cidr: '10.0.1.9/24' has address bits beyond its prefix; write 10.0.1.0/24",
    ]
    assert {name: network.as_data() for name, network in found.items()} == {
        "good": {
            "cidr": "10.0.2.0/24",
            "gateway": "10.0.2.1",
            "kind": "ethernet",
            "mtu": 9000,
            "vlan": 7,
            "point_to_point": False,
        },
        "plain": {
            "cidr": "10.0.3.0/24",
            "gateway": None,
            "kind": "ethernet",
            "mtu": None,
            "vlan": None,
            "point_to_point": False,
        },
    }


def test_what_to_write_for_an_unknown_network() -> None:
    known = {"storage": 0, "management": 0}
    assert unknown_network("p", "storag", known).remedy == "write storage"
    assert unknown_network("p", "bmc", known).remedy == "write management or storage"
    assert unknown_network("p", "bmc", {}).remedy == "write it in cluster_networks"


NETS = networks(
    four={"cidr": "255.255.255.0/24"}, six={"cidr": "fd00::/64"}, ten={"cidr": "10.0.0.0/24"}
)


def place(
    number: int | None,
    own: Mapping[str, str] | None = None,
    first: Mapping[str, str] | None = None,
    known: tuple[str, ...] = ("four", "six", "ten", "broken"),
) -> tuple[list[tuple[str, str, str, bool]], list[str]]:
    """Network, address, path and whether it was counted, of all of a node's addresses."""
    variables = {
        name: Value(value, path)
        for name, value, path in (
            ("node_address", own, "gpu_nodes.n.node_address"),
            ("node_first_address", first, "gpu_nodes.node_first_address"),
        )
        if value is not None
    }
    placed, problems = place_node("n", "gpu_nodes.n", number, variables, dict.fromkeys(known), NETS)
    assert {(one.host, one.host_path) for one in placed} <= {("n", "gpu_nodes.n")}
    return (
        [(one.network, str(one.address), one.path, one.counted) for one in placed],
        [str(problem) for problem in problems],
    )


FIRST = "gpu_nodes.node_first_address"


@pytest.mark.parametrize(
    ("number", "address"), [(1, "10.0.0.11"), (2, "10.0.0.12"), (9, "10.0.0.19")]
)
def test_the_first_address_is_that_of_number_1(number: int, address: str) -> None:
    assert place(number, first={"ten": "10.0.0.11"}) == (
        [("ten", address, FIRST + ".ten", True)],
        [],
    )


def test_an_own_address_is_not_counted_and_wins_on_its_network_only() -> None:
    own, first = {"ten": "10.0.0.99"}, {"ten": "10.0.0.11", "six": "fd00::1"}
    assert place(7, own, first) == (
        [
            ("ten", "10.0.0.99", "gpu_nodes.n.node_address.ten", False),
            ("six", "fd00::7", FIRST + ".six", True),
        ],
        [],
    )
    # Nothing is counted for it, so that it needs no number.
    assert place(None, own)[1] == []
    assert place(None, own, {"ten": "10.0.0.11"})[1] == []


def test_a_host_without_a_number_is_asked_for_it_once() -> None:
    own = {"ten": "10.0.0.99"}
    assert place(None, own, {"four": "255.255.255.1", "six": "fd00::1"}) == (
        [("ten", "10.0.0.99", "gpu_nodes.n.node_address.ten", False)],
        [
            (
                "gpu_nodes.n.node_number: the host name ends in no number to count its addresses "
                "with; write node_number, or the addresses in node_address"
            )
        ],
    )


def test_what_is_wrong_with_one_address_hides_no_other() -> None:
    ten = ("ten", "10.0.0.12", FIRST + ".ten", True)
    assert place(2, first={"tan": "10.0.0.11", "ten": "10.0.0.11"}) == (
        [ten],
        [f"{FIRST}.tan: no network is called 'tan'; write ten"],
    )
    assert place(2, first={"six": "fd00::x", "ten": "10.0.0.11"}) == (
        [ten],
        [f"{FIRST}.six: 'fd00::x' is not an IP address; write an address like 10.1.0.11"],
    )
    # Declared, but it cannot be judged: the network itself has been reported.
    assert place(2, first={"broken": "10.9.0.1", "ten": "10.0.0.11"}) == ([ten], [])


def test_number_0_has_no_counted_address() -> None:
    own, first = {"ten": "10.0.0.99"}, {"six": "fd00::1"}
    assert place(0, own, first) == (
        [("ten", "10.0.0.99", "gpu_nodes.n.node_address.ten", False)],
        [],
    )


def test_counting_ends_with_the_last_address_there_is() -> None:
    last = f"{ipaddress.IPv6Address(2**128 - 1)}"
    first = {"four": "255.255.255.250", "six": last, "ten": "10.0.0.11"}
    (four, ten), problems = place(6, first=first)
    assert four == ("four", "255.255.255.255", FIRST + ".four", True)
    assert ten == ("ten", "10.0.0.16", FIRST + ".ten", True)
    beyond = "would be beyond the last address there is; write a lower first address"
    assert problems == [f"{FIRST}.six: node 6 {beyond}"]
    (ten,), problems = place(7, first=first)
    assert ten[1] == "10.0.0.17"
    assert problems == [f"{FIRST}.four: node 7 {beyond}", f"{FIRST}.six: node 7 {beyond}"]


PAIRS = {"cidr": "172.16.0.0/24", "point_to_point": True}


def test_ports_with_a_subnet_of_two_are_counted_by_two() -> None:
    nets = networks(rail0=PAIRS)
    for first, seventh in (("172.16.0.1", "172.16.0.13"), ("172.16.0.0", "172.16.0.12")):
        value = Value({"rail0": first}, FIRST)
        placed, problems = place_node("n", "h", 7, {"node_first_address": value}, nets, nets)
        assert problems == []
        assert str(placed[0].address) == seventh
        # The first and the last address of the network are for ports, too.
        assert list(check_addresses(placed, nets)) == []
    assert lines_of([at("a", "172.16.0.255", network="rail0")], nets) == []
    (line,) = lines_of([at("a", "172.16.1.1", network="rail0")], nets)
    where = "gpu_nodes.a.node_address.rail0"
    assert line == (
        f"{where}: 172.16.1.1 is outside 172.16.0.0/24; write a free one in 172.16.0.0/24"
    )
    four, five, six = (
        at(host, f"172.16.0.{last}", network="rail0")
        for host, last in (("a", 4), ("b", 5), ("c", 6))
    )
    (line,) = lines_of([four, five], nets)
    where = "gpu_nodes.b.node_address.rail0"
    assert line == (f"{where}: 172.16.0.5 is in the subnet of gpu_nodes.a; write a free address")
    # 172.16.0.5 and .6 are in two subnets.
    assert lines_of([five, six], nets) == []
    for even in range(0, 12, 2):
        two = [at(f"n{last}", f"172.16.0.{last}", network="rail0") for last in (even, even + 1)]
        assert len(lines_of(two, nets)) == 1
        assert lines_of([two[1], at("x", f"172.16.0.{even + 2}", network="rail0")], nets) == []


def test_only_ethernet_rails_have_subnets_of_two() -> None:
    assert wrong(storage=PAIRS) == [
        f"{PATH}.storage.point_to_point: storage is not an Ethernet rail; remove it"
    ]
    assert wrong(rail0={**PAIRS, "kind": "infiniband"}) == [
        f"{PATH}.rail0.point_to_point: rail0 is not an Ethernet rail; remove it"
    ]
    assert wrong(rail0={**PAIRS, "cidr": "fd00::/64", "gateway": "fd00::1"}) == [
        f"{PATH}.rail0.cidr: fd00::/64 is not of IPv4; write the IPv4 network of the rail",
        (
            f"{PATH}.rail0.gateway: each port has its own, the other address of its subnet; "
            "remove it, or point_to_point"
        ),
    ]


def test_routers_of_rails_are_of_ipv4() -> None:
    gateway = {"cidr": "fd00::/64", "gateway": "fd00::1"}
    assert wrong(rail0=gateway) == [
        (
            f"{PATH}.rail0.gateway: routes of a rail are made for IPv4 alone; remove it, or write "
            "an IPv4 network"
        )
    ]
    assert wrong(rail0={"cidr": "fd00::/64"}) == []
    assert wrong(rail0={"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"}) == []
    assert wrong(rail0={**gateway, "kind": "infiniband"}) == []
    assert wrong(storage=gateway) == []


def test_packets_of_all_rails_have_one_size() -> None:
    def found(*sizes: int | None, other: int | None = None) -> list[str]:
        rails = {
            f"rail{rail}": {"cidr": f"10.{rail}.0.0/24", **({"mtu": mtu} if mtu else {})}
            for rail, mtu in enumerate(sizes)
        }
        data = {"storage": {"cidr": "10.99.0.0/24", **({"mtu": other} if other else {})}, **rails}
        return [str(problem) for problem in check_rails(networks(**data), PATH)]

    assert found() == found(9000) == found(None, None) == found(9000, 9000, other=1500) == []
    write = "write the same for all rails"
    assert found(9000, None, 4000, 9000) == [
        f"{PATH}.rail1.mtu: missing, but rail0 has 9000; {write}",
        f"{PATH}.rail2.mtu: 4000, but rail0 has 9000; {write}",
    ]
    assert found(None, 9000) == [f"{PATH}.rail1.mtu: 9000, but rail0 has none; {write}"]


def at(
    host: str,
    address: str,
    path: str = "",
    kind: str = "gpu_nodes",
    network: str = "ten",
) -> Placed:
    """An address of the host: counted from the one at the path, its own without a path."""
    return Placed(
        host=host,
        host_path=f"{kind}.{host}",
        network=network,
        address=ipaddress.ip_address(address),
        path=path or f"{kind}.{host}.node_address.{network}",
        counted=bool(path),
    )


def lines_of(placed: list[Placed], nets: Mapping[str, Network] | None = None) -> list[str]:
    return [str(problem) for problem in check_addresses(placed, NETS if nets is None else nets)]


def test_no_host_can_have_the_gateways_address() -> None:
    nets = networks(ten={"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"}, six={"cidr": "fd00::/64"})
    assert lines_of([at("a", "10.0.0.2"), at("a", "fd00::1", network="six")], nets) == []
    assert lines_of([at("a", "10.0.0.1")], nets) == [
        (
            "gpu_nodes.a.node_address.ten: 10.0.0.1 is the gateway of ten; "
            "write a free one in 10.0.0.0/24"
        )
    ]
    # A gateway elsewhere is reported as that; for the host the same is wrong.
    nets, problems = parse_networks({"ten": {"cidr": "10.0.0.0/24", "gateway": "10.9.0.1"}}, PATH)
    assert len(problems) == 1
    assert lines_of([at("a", "10.9.0.1")], nets) == [
        (
            "gpu_nodes.a.node_address.ten: 10.9.0.1 is outside 10.0.0.0/24; "
            "write a free one in 10.0.0.0/24"
        )
    ]


def test_a_range_that_does_not_fit_is_one_problem() -> None:
    def counted(*last: int) -> list[Placed]:
        return [at(f"n{number}", f"10.0.{number // 256}.{number % 256}", FIRST) for number in last]

    assert lines_of(counted(253, 254)) == []
    assert lines_of(counted(254, 255)) == [
        (
            f"{FIRST}: 10.0.0.255 for n255 is the broadcast address of 10.0.0.0/24; "
            "write a first address with room in 10.0.0.0/24"
        )
    ]
    assert lines_of(counted(254, 255, 256, 257)) == [
        (
            f"{FIRST}: 10.0.0.255 for n255 is the broadcast address of 10.0.0.0/24 (and 2 more); "
            "write a first address with room in 10.0.0.0/24"
        )
    ]


def test_one_address_on_two_networks_is_no_clash() -> None:
    nets = {"ten": NETS["ten"], "again": NETS["ten"]}
    assert lines_of([at("a", "10.0.0.5"), at("b", "10.0.0.5", network="again")], nets) == []


def test_the_address_written_for_one_host_is_to_be_corrected_not_the_range() -> None:
    own, counted = at("a", "10.0.0.5"), at("b", "10.0.0.5", FIRST)
    line = (
        "gpu_nodes.a.node_address.ten: 10.0.0.5 is also the address of gpu_nodes.b; "
        "write a free address"
    )
    assert lines_of([own, counted]) == [line]
    assert lines_of([counted, own]) == [line]
    # Of two that are written, and of two that are counted, the later one.
    assert lines_of([at("a", "10.0.0.5"), at("b", "10.0.0.5")]) == [
        (
            "gpu_nodes.b.node_address.ten: 10.0.0.5 is also the address of gpu_nodes.a; "
            "write a free address"
        )
    ]
    assert lines_of([at("a", "10.0.0.5", "racks.one"), at("b", "10.0.0.5", "racks.two")]) == [
        "racks.two: 10.0.0.5 for b is also the address of gpu_nodes.a; write another first address"
    ]


def test_two_numbers_that_are_the_same_are_not_told_as_addresses() -> None:
    assert lines_of([at("a", "10.0.0.5", FIRST), at("b", "10.0.0.5", FIRST)]) == []
    # Hosts of two groups may have one number, so that a range for both meets itself.
    shared = "all.node_first_address.ten"
    assert lines_of(
        [at("h1", "10.0.0.5", shared, "login_nodes"), at("n1", "10.0.0.5", shared)]
    ) == [
        (
            f"{shared}: 10.0.0.5 for n1 is also the address of login_nodes.h1; "
            "write another first address"
        )
    ]


def test_an_own_address_written_for_a_whole_group_is_one_problem() -> None:
    path = "gpu_nodes.node_address.ten"
    same = [
        Placed(host, f"gpu_nodes.{host}", "ten", ipaddress.ip_address("10.0.0.5"), path, False)
        for host in ("a", "b", "c", "d")
    ]
    assert lines_of([at("z", "10.0.0.4"), *same]) == [
        f"{path}: 10.0.0.5 is also the address of gpu_nodes.a (and 2 more); write a free address"
    ]


def test_the_way_of_ssh_may_lead_around_the_network() -> None:
    """Addresses elsewhere, names, and other networks of the host are not compared."""
    known = networks(access={"cidr": "10.0.0.0/24"}, storage={"cidr": "10.0.1.0/24"})
    placed = [
        Placed(f"dgx-0{number}", f"gpu_nodes.dgx-0{number}", name, address, "gpu_nodes.first", True)
        for number in range(1, 5)
        for name, address in (
            ("access", ipaddress.ip_address(f"10.0.0.{number}")),
            ("storage", ipaddress.ip_address(f"10.0.1.{number}")),
        )
    ]
    around = {
        "dgx-01": "10.0.0.1",
        "dgx-02": "198.51.100.2",
        "dgx-03": "dgx-03",
        "dgx-04": "fd00::4",
    }
    assert list(reach_warnings(placed, known["access"], around)) == []
    swapped = {"dgx-01": "10.0.0.2", "dgx-02": "no", "dgx-03": "10.0.1.3", "dgx-04": "10.0.0.5"}
    (warning,) = reach_warnings(placed, known["access"], swapped)
    assert warning == (
        "gpu_nodes.dgx-01.ansible_host: 10.0.0.2, and gpu_nodes.first makes its address 10.0.0.1 "
        "(and 1 more); unless it moves, write the same in both"
    )
