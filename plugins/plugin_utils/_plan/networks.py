# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Networks of the cluster and the addresses on them. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...module_utils._core.names import RAIL_NETWORK
from ...module_utils._core.schema import Problem, closest, words
from .._contract.contract import CLUSTER_VARIABLES
from .._contract.settings import filled
from .._inventory.values import Address, Value, parse_address

# 4096 of the InfiniBand link, less the four of IPoIB's own header (RFC 4391): the most of datagram
# mode, which the role infiniband sets.
IPOIB_MTU = 4092

AnyNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Network:
    """One network, parsed."""

    name: str
    net: AnyNetwork
    gateway: Address | None
    kind: str
    mtu: int | None
    vlan: int | None
    point_to_point: bool = False

    @property
    def step(self) -> int:
        """How far the addresses of two nodes that follow each other lie apart."""
        return 2 if self.point_to_point else 1

    def as_data(self) -> dict[str, Any]:
        """Return the network as plain values."""
        return {
            "cidr": str(self.net),
            "gateway": None if self.gateway is None else str(self.gateway),
            "kind": self.kind,
            "mtu": self.mtu,
            "vlan": self.vlan,
            "point_to_point": self.point_to_point,
        }


@dataclass(frozen=True)
class Placed:
    """One address of one node, and where it comes from."""

    host: str
    host_path: str
    network: str
    address: Address
    # Where the address, or the first one that it was counted from, is written.
    path: str
    counted: bool


def _parse_cidr(path: str, text: str) -> AnyNetwork | Problem:
    # None has a scope, which may be any text.
    plain = text.strip().replace("%", " ")
    try:
        return ipaddress.ip_network(plain)
    except ValueError:
        pass
    try:
        meant = ipaddress.ip_network(plain, strict=False)
    except ValueError:
        return Problem(
            path, f"'{text}' is not a network", "write it as ADDRESS/BITS, like 10.1.0.0/24"
        )
    wrong = f"'{text}' has address bits beyond its prefix"
    return Problem(path, wrong, f"write {meant}")


def _not_for_a_host(address: Address, net: AnyNetwork) -> str | None:
    """Return why no host of the network can have the address, None when one can."""
    if address.version != net.version or address not in net:
        return f"outside {net}"
    # Networks of one or two addresses have neither (RFC 3021, RFC 6164).
    if net.num_addresses > 2 and address == net.network_address:
        return "the address of the network itself"
    if net.num_addresses > 2 and net.version == 4 and address == net.broadcast_address:
        return f"the broadcast address of {net}"
    return None


def parse_networks(
    data: Mapping[str, Mapping[str, Any]], path: str
) -> tuple[dict[str, Network], list[Problem]]:
    """Return the networks by name and what is wrong with them."""
    networks: dict[str, Network] = {}
    problems: list[Problem] = []
    for name, item in filled(CLUSTER_VARIABLES["cluster_networks"], data).items():
        where = f"{path}.{name}"
        net = _parse_cidr(where + ".cidr", item["cidr"])
        if isinstance(net, Problem):
            problems.append(net)
            continue
        kind = item["kind"]
        gateway: Address | None = None
        if "gateway" in item:
            try:
                gateway = parse_address(item["gateway"])
                wrong = _not_for_a_host(gateway, net)
                if wrong:
                    text = f"{gateway} is {wrong}"
                    problems.append(
                        Problem(where + ".gateway", text, f"write the router's address in {net}")
                    )
            except ValueError as exc:
                problems.append(
                    Problem(where + ".gateway", str(exc), f"write the router's address in {net}")
                )
        if kind == "infiniband" and "vlan" in item:
            wrong = "an InfiniBand network has no VLAN"
            problems.append(Problem(where + ".vlan", wrong, "remove it, or write kind: ethernet"))
        if kind == "ethernet" and int(item.get("mtu", 0)) > 9216:
            wrong = "{} is more than Ethernet carries".format(item["mtu"])
            problems.append(Problem(where + ".mtu", wrong, "write 9216 at most"))
        if kind == "infiniband" and int(item.get("mtu", 0)) > IPOIB_MTU:
            wrong = "{} is more than IPoIB carries in datagram mode".format(item["mtu"])
            problems.append(Problem(where + ".mtu", wrong, f"write {IPOIB_MTU} at most"))
        problems.extend(_check_point_to_point(name, net, item, where))
        is_rail = kind == "ethernet" and RAIL_NETWORK.fullmatch(name)
        if is_rail and gateway is not None and net.version != 4 and not item["point_to_point"]:
            wrong = "routes of a rail are made for IPv4 alone"
            remedy = "remove it, or write an IPv4 network"
            problems.append(Problem(where + ".gateway", wrong, remedy))
        for other in networks.values():
            if other.net.version == net.version and other.net.overlaps(net):
                wrong = f"{net} overlaps {other.net} of {other.name}"
                remedy = "write a network without overlap"
                problems.append(Problem(where + ".cidr", wrong, remedy))
        mtu, vlan = item.get("mtu"), item.get("vlan")
        networks[name] = Network(
            name=name,
            net=net,
            gateway=gateway,
            kind=kind,
            mtu=None if mtu is None else int(mtu),
            vlan=None if vlan is None else int(vlan),
            point_to_point=item["point_to_point"],
        )
    return networks, problems


def _check_point_to_point(
    name: str, net: AnyNetwork, item: Mapping[str, Any], path: str
) -> Iterator[Problem]:
    if not item["point_to_point"]:
        return
    where = path + ".point_to_point"
    if not RAIL_NETWORK.fullmatch(name) or item["kind"] != "ethernet":
        yield Problem(where, f"{name} is not an Ethernet rail", "remove it")
    if net.version != 4:
        yield Problem(path + ".cidr", f"{net} is not of IPv4", "write the IPv4 network of the rail")
    if "gateway" in item:
        wrong = "each port has its own, the other address of its subnet"
        yield Problem(path + ".gateway", wrong, "remove it, or point_to_point")


def check_rails(networks: Mapping[str, Network], path: str) -> Iterator[Problem]:
    """Yield rails whose packets have another size than those of the first."""
    rails = [network for name, network in networks.items() if RAIL_NETWORK.fullmatch(name)]
    for rail in rails[1:]:
        if rail.mtu != rails[0].mtu:
            mtu = "missing" if rail.mtu is None else str(rail.mtu)
            wrong = f"{mtu}, but {rails[0].name} has {rails[0].mtu or 'none'}"
            yield Problem(f"{path}.{rail.name}.mtu", wrong, "write the same for all rails")


def unknown_network(path: str, name: str, known: Mapping[str, Any]) -> Problem:
    """Return the problem of a network that cluster_networks does not have."""
    remedy = "write %s" % (closest(name, known) or words(sorted(known)) or "it in cluster_networks")
    return Problem(path, f"no network is called '{name}'", remedy)


def place_node(
    host: str,
    host_path: str,
    number: int | None,
    variables: Mapping[str, Value],
    known: Mapping[str, Any],
    networks: Mapping[str, Network],
) -> tuple[list[Placed], list[Problem]]:
    """Return the node's addresses and what is wrong with how they are written.

    known are all declared networks; those that are valid are in networks.
    """
    placed: list[Placed] = []
    problems: list[Problem] = []
    own, first = variables.get("node_address"), variables.get("node_first_address")
    for value, counted in ((own, False), (first, True)):
        for name, text in (value.value if value else {}).items():
            path = "{}.{}".format(value.path if value else "", name)
            if name not in known:
                problems.append(unknown_network(path, name, known))
                continue
            if counted and own and name in own.value:
                continue
            try:
                address = parse_address(text)
            except ValueError as exc:
                problems.append(Problem(path, str(exc), "write an address like 10.1.0.11"))
                continue
            if counted and number is None:
                where = f"{host_path}.node_number"
                wrong = "the host name ends in no number to count its addresses with"
                remedy = "write node_number, or the addresses in node_address"
                problems.append(Problem(where, wrong, remedy))
                break
            # Number 0 is reported as what it is.
            if name not in networks or (counted and number == 0):
                continue
            try:
                steps = (number - 1) * networks[name].step if counted and number else 0
                address = address + steps
            except ipaddress.AddressValueError:
                wrong = f"node {number} would be beyond the last address there is"
                problems.append(Problem(path, wrong, "write a lower first address"))
                continue
            placed.append(Placed(host, host_path, name, address, path, counted))
    return placed, problems


def _so_on(more: int) -> str:
    return f" (and {more} more)" if more else ""


def _check_fit(placed: list[Placed], networks: Mapping[str, Network]) -> Iterator[Problem]:
    """Yield addresses that no host can have."""
    unfit: dict[str, list[tuple[Placed, str]]] = {}
    for item in placed:
        network = networks[item.network]
        reason = _not_for_a_host(item.address, network.net)
        if network.point_to_point and item.address in network.net:
            # Either address of a subnet of two is one for a port.
            reason = None
        if reason is None and item.address == network.gateway:
            reason = f"the gateway of {item.network}"
        if reason is not None:
            unfit.setdefault(item.path, []).append((item, reason))
    for path, found in unfit.items():
        item, reason = found[0]
        whose = f" for {item.host}" if item.counted else ""
        kind = "a first address with room" if item.counted else "a free one"
        yield Problem(
            path,
            f"{item.address}{whose} is {reason}{_so_on(len(found) - 1)}",
            f"write {kind} in {networks[item.network].net}",
        )


def check_addresses(placed: list[Placed], networks: Mapping[str, Network]) -> Iterator[Problem]:
    """Yield addresses that no host can have, and those that two nodes have.

    What one first address brings about for many nodes is one problem.
    """
    yield from _check_fit(placed, networks)
    owners: dict[tuple[str, Address], Placed] = {}
    clashes: dict[tuple[str, str], list[tuple[Placed, Placed]]] = {}
    for item in placed:
        key = item.address
        if networks[item.network].point_to_point and int(key) % 2:
            key -= 1
        owner = owners.setdefault((item.network, key), item)
        if owner is item:
            continue
        # An address written for one host is what to correct, not the range that counts past it.
        late, early = (owner, item) if item.counted and not owner.counted else (item, owner)
        same_count = late.counted and late.path == early.path
        # Two nodes of one group with one number are reported as such.
        if not (same_count and _type(late) == _type(early)):
            clashes.setdefault((late.path, early.path), []).append((late, early))
    for (path, _early_path), pairs in clashes.items():
        late, early = pairs[0]
        whose = f" for {late.host}" if late.counted else ""
        shared = "also the address" if late.address == early.address else "in the subnet"
        wrong = f"{late.address}{whose} is {shared} of {early.host_path}"
        remedy = "write another first address" if late.counted else "write a free address"
        yield Problem(path, wrong + _so_on(len(pairs) - 1), remedy)


def reach_warnings(
    placed: list[Placed], access: Network, reached: Mapping[str, str]
) -> Iterator[str]:
    """Yield hosts that SSH (`reached`, by host) has at one address of the network, and all other
    programs of the cluster at another one.

    So it is while a host moves. SSH may take a way around: an address outside of the network, or a
    name, is not compared.
    """
    wrong: dict[str, list[tuple[Placed, Address]]] = {}
    for item in placed:
        try:
            address = ipaddress.ip_address(reached.get(item.host, ""))
        except ValueError:
            continue
        if item.network == access.name and address in access.net and address != item.address:
            wrong.setdefault(item.path, []).append((item, address))
    for path, found in wrong.items():
        item, address = found[0]
        yield (
            f"{item.host_path}.ansible_host: {address}, and {path} makes its address "
            f"{item.address}{_so_on(len(found) - 1)}; unless it moves, write the same in both"
        )


def check_reached(
    placed: list[Placed], access: Network, shared: Iterable[tuple[str, tuple[str, ...]]]
) -> Iterator[Problem]:
    """Yield hosts that are one machine to SSH (`shared`): tasks of both would change it.

    Where the plan has them at one address as well, check_addresses reports it.
    """
    known = {item.host: item for item in placed if item.network == access.name}
    for address, hosts in shared:
        found = [known[host] for host in hosts if host in known]
        for item in found[1:]:
            if item.address != found[0].address:
                wrong = f"{address} is also where SSH finds {found[0].host_path}"
                remedy = "write the address of this host, or its port in ansible_port"
                yield Problem(f"{item.host_path}.ansible_host", wrong, remedy)


def _type(item: Placed) -> str:
    return item.host_path.split(".", 1)[0]
