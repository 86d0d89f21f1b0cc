# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pod consists of: names, addresses, kinds of nodes. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

SUITES = ("trixie", "bookworm")
DEFAULT_SUBNET = "10.77.0.0/24"
# Where the default layout puts its nodes: offset of the address in the pod's network.
HEAD_OFFSET = 11
LOGIN_OFFSET = 21
STORAGE_OFFSET = 31
DGX_OFFSET = 101
# Their names have two digits, as has the range in the inventory.
MAX_DGX = 99
# The node that Ceph runs on, where the pod has one.
STORAGE = "stor-01"

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


class PodError(Exception):
    """Something the user must know; its text is the whole message."""


def expect(condition: bool, message: str) -> None:
    """Raise PodError with the message unless the condition holds."""
    if not condition:
        raise PodError(message)


@dataclass(frozen=True)
class Node:
    """One machine of a pod."""

    name: str
    ip: str
    suite: str
    bare: bool = False

    @property
    def is_gpu(self) -> bool:
        """A node named dgx... gets pretended GPUs."""
        return self.name.startswith("dgx")


@dataclass(frozen=True)
class Pod:
    """A pod as asked for. `custom` is true when --hosts named the nodes."""

    name: str
    subnet: str
    nodes: tuple[Node, ...]
    custom: bool = False

    @property
    def gateway(self) -> str:
        """Return the host's address on the pod's network."""
        return str(ipaddress.ip_network(self.subnet)[1])

    def container(self, node: str) -> str:
        """Return the container's name of a node."""
        return f"{self.name}-{node}"


def check_name(what: str, name: str) -> str:
    """Return the name; PodError when it cannot be part of a host name."""
    if not _NAME.fullmatch(name) or len(name) > 40:
        raise PodError(
            f"{what} {name!r}: write lower-case letters, digits and inner hyphens, 40 at most"
        )
    return name


def check_suite(suite: str) -> str:
    """Return the suite; PodError when there is no image for it."""
    if suite not in SUITES:
        raise PodError(f"suite {suite!r}: write one of {', '.join(SUITES)}")
    return suite


def check_subnet(subnet: str) -> ipaddress.IPv4Network:
    """Return the network; PodError unless it is a private IPv4 /24."""
    try:
        net = ipaddress.IPv4Network(subnet)
    except ValueError as exc:
        raise PodError(f"subnet {subnet!r}: {exc}; write one like {DEFAULT_SUBNET}") from exc
    if net.prefixlen != 24 or not net.is_private:
        raise PodError(f"subnet {subnet!r}: write a private /24 network like {DEFAULT_SUBNET}")
    return net


def default_nodes(subnet: str, suite: str, count: int, storage: bool = False) -> tuple[Node, ...]:
    """Return head-01, login-01, stor-01 where asked for, and dgx-01 to dgx-<count>."""
    net = check_subnet(subnet)
    check_suite(suite)
    if not 1 <= count <= MAX_DGX:
        raise PodError(f"nodes {count}: write a number from 1 to {MAX_DGX}")
    dgx = (Node(f"dgx-{n:02d}", str(net[DGX_OFFSET + n - 1]), suite) for n in range(1, count + 1))
    return (
        Node("head-01", str(net[HEAD_OFFSET]), suite),
        Node("login-01", str(net[LOGIN_OFFSET]), suite),
        *((Node(STORAGE, str(net[STORAGE_OFFSET]), suite),) if storage else ()),
        *dgx,
    )


def parse_hosts(text: str, subnet: str, suite: str) -> tuple[Node, ...]:
    """Return the nodes of `NAME=IP[:SUITE][:bare],...`; PodError names the entry that is wrong."""
    nodes = tuple(
        _parse_host(entry.strip(), subnet, suite) for entry in text.split(",") if entry.strip()
    )
    if not nodes:
        raise PodError("hosts: write NAME=IP[:SUITE][:bare],...")
    for what, values in (("name", [n.name for n in nodes]), ("address", [n.ip for n in nodes])):
        twice = sorted({v for v in values if values.count(v) > 1})
        if twice:
            raise PodError(f"hosts: the {what} {', '.join(twice)} stands twice")
    return nodes


def _parse_host(entry: str, subnet: str, suite: str) -> Node:
    net = check_subnet(subnet)
    name, equals, rest = entry.partition("=")
    if not equals:
        raise PodError(f"hosts: {entry!r}: write NAME=IP[:SUITE][:bare]")
    check_name("host", name)
    address, *options = rest.split(":")
    try:
        ip = ipaddress.IPv4Address(address)
    except ValueError as exc:
        raise PodError(f"hosts: {entry!r}: {exc}") from exc
    if ip not in net or ip in (net[0], net[1], net[-1]):
        raise PodError(
            f"hosts: {entry!r}: {ip} is not free for a node; write one of {net[2]} to {net[-2]}"
        )
    bare = "bare" in options
    suites = [o for o in options if o and o != "bare"]
    if len(suites) > 1:
        raise PodError(f"hosts: {entry!r}: more than one suite")
    return Node(name, str(ip), check_suite(suites[0] if suites else suite), bare)


def pod_to_record(pod: Pod) -> dict[str, Any]:
    """Return what pod.json keeps of a pod."""
    nodes = [{"name": n.name, "ip": n.ip, "suite": n.suite, "bare": n.bare} for n in pod.nodes]
    return {"name": pod.name, "subnet": pod.subnet, "custom": pod.custom, "nodes": nodes}


def pod_from_record(record: dict[str, Any]) -> Pod:
    """Return the pod that pod_to_record wrote."""
    nodes = tuple(Node(n["name"], n["ip"], n["suite"], n["bare"]) for n in record["nodes"])
    return Pod(record["name"], record["subnet"], nodes, record["custom"])


@dataclass(frozen=True)
class Request:
    """The options of `pod up` as given; None where the user said nothing."""

    name: str
    subnet: str | None = None
    suite: str | None = None
    nodes: int | None = None
    hosts: str | None = None
    storage: bool | None = None


def resolve(request: Request, known: Pod | None) -> Pod:
    """Return the pod that is asked for; what the user did not say stays as it was the last time."""
    check_name("pod", request.name)
    if request.nodes is not None and request.hosts is not None:
        raise PodError("nodes and hosts: write one of the two")
    subnet = str(check_subnet(request.subnet or (known.subnet if known else DEFAULT_SUBNET)))
    if known and subnet != known.subnet:
        raise PodError(
            f"pod {known.name} is on {known.subnet}; take it down first to move it to {subnet}"
        )
    if request.hosts is not None:
        if request.storage is not None:
            raise PodError(
                f"hosts and storage: write {STORAGE}=IP among the hosts, or leave it out"
            )
        nodes = parse_hosts(request.hosts, subnet, request.suite or SUITES[0])
        return Pod(request.name, subnet, nodes, custom=True)
    if known and known.custom and request.nodes is None and request.storage is None:
        if request.suite is not None:
            raise PodError(f"pod {known.name} was made with --hosts; name the suites there")
        return known
    old = {} if known is None or known.custom else {n.name: n.suite for n in known.nodes}
    suite = request.suite or next(iter(old.values()), SUITES[0])
    count = request.nodes
    if count is None:
        count = sum(1 for n in old if n.startswith("dgx-")) or 4
    storage = STORAGE in old if request.storage is None else request.storage
    return Pod(request.name, subnet, default_nodes(subnet, suite, count, storage))


def overlapping(subnet: str, others: Iterable[tuple[str, str]]) -> str | None:
    """Return the name of the first of (name, cidr) that overlaps the subnet."""
    net = ipaddress.ip_network(subnet)
    for name, cidr in others:
        other = ipaddress.ip_network(cidr, strict=False)
        if isinstance(other, ipaddress.IPv4Network) and net.overlaps(other):
            return name
    return None
