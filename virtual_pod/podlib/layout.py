# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pod consists of: names, addresses, kinds of nodes. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

SUITES = ("trixie", "bookworm")
DEFAULT_SUBNET = "10.77.0.0/24"
# Where the default layout puts its nodes: offset of the address in the pod's network.
HEAD_OFFSET = 11
LOGIN_OFFSET = 21
STORAGE_OFFSET = 31
DGX_OFFSET = 101
# Machines for which no address is given take the first free one from here on.
MACHINE_OFFSET = 201
# Of a machine, unless something else is asked for; half of it is free after the boot.
MACHINE_MIB = 1536
# Their names have two digits, as has the range in the inventory.
MAX_DGX = 99
# The node that Ceph runs on, where the pod has one.
STORAGE = "stor-01"
# What a node has by the first word of its name: the simulated model of its GPUs.
MODELS = {"dgx": "h100", "mig": "h100", "debug": "a6000"}
# Layouts besides the default one; each has a folder in virtual_pod/inventories.
MIXED = "mixed"

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
    # Memory of a machine with its own kernel, and its processors; a container has none.
    machine_mib: int = 0
    machine_cpus: int = 1

    @property
    def is_machine(self) -> bool:
        """A machine is booted by QEMU, any other node is a container."""
        return self.machine_mib > 0

    @property
    def is_gpu(self) -> bool:
        """A container whose name begins with one of MODELS gets pretended GPUs."""
        return self.model != "" and not self.is_machine

    @property
    def model(self) -> str:
        """Return the model of its pretended GPUs, or ""."""
        return MODELS.get(re.split(r"[-\d]", self.name)[0], "")


@dataclass(frozen=True)
class Pod:
    """A pod as asked for.

    `custom` is true when --hosts named the nodes; `inventory` names another layout, or is "".
    """

    name: str
    subnet: str
    nodes: tuple[Node, ...]
    custom: bool = False
    inventory: str = ""

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


def mixed_nodes(subnet: str, suite: str) -> tuple[Node, ...]:
    """Return four DGX nodes, a workstation with other GPUs, and a node with divided GPUs."""
    nodes = default_nodes(subnet, suite, 4)
    net = check_subnet(subnet)
    others = (
        Node(name, str(net[DGX_OFFSET + number]), suite)
        for number, name in enumerate(("debug-01", "mig-01"), 4)
    )
    return (*nodes, *others)


def parse_hosts(text: str, subnet: str, suite: str) -> tuple[Node, ...]:
    """Return the nodes of --hosts; PodError names the entry that is wrong."""
    nodes = tuple(_parse_host(entry, subnet, suite) for entry in _entries(text))
    if not nodes:
        raise PodError("hosts: write NAME=IP[:SUITE][:bare],...")
    _check_distinct("hosts", nodes)
    return nodes


def parse_machines(text: str, subnet: str, suite: str, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the pod's nodes with the machines of `NAME[=IP][:SUITE][:MIB][:Ncpu],...` among them.

    What is not given for a machine that is known stays as it was.
    """
    found = {node.name: node for node in nodes}
    if not _entries(text):
        raise PodError("machine: write NAME[=IP][:SUITE][:MIB][:Ncpu],...")
    for entry in _entries(text):
        name = re.split("[:=]", entry)[0]
        old = found.get(name)
        if old and not old.is_machine:
            raise PodError(f"machine: {name} is a container of this pod; write another name")
        head, colon, options = entry.partition(":")
        if "=" not in head:
            head += f"={old.ip if old else _free_address(subnet, found.values())}"
        if not colon and old:
            options = f"{old.suite}:{old.machine_mib}:{old.machine_cpus}cpu"
        found[name] = _parse_host(f"{head}:machine:{options}", subnet, suite)
    _check_distinct("machine", tuple(found.values()))
    return tuple(found.values())


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _free_address(subnet: str, nodes: Iterable[Node]) -> str:
    net, taken = check_subnet(subnet), {node.ip for node in nodes}
    return next(ip for ip in map(str, list(net)[MACHINE_OFFSET:]) if ip not in taken)


def _check_distinct(option: str, nodes: tuple[Node, ...]) -> None:
    for what, values in (("name", [n.name for n in nodes]), ("address", [n.ip for n in nodes])):
        twice = sorted({v for v in values if values.count(v) > 1})
        if twice:
            raise PodError(f"{option}: the {what} {', '.join(twice)} stands twice")


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
    bare, machine = "bare" in options, "machine" in options
    sizes = [int(o) for o in options if o.isdecimal()]
    cpus = [int(o[0]) for o in options if re.fullmatch("[1-9]cpu", o)]
    known = {"", "bare", "machine", *(f"{n}cpu" for n in cpus), *map(str, sizes)}
    suites = [o for o in options if o not in known]
    if len(suites) > 1:
        raise PodError(f"hosts: {entry!r}: more than one suite")
    if bare and machine:
        raise PodError(f"hosts: {entry!r}: a machine is never bare")
    if sizes and (not machine or len(sizes) > 1 or not 512 <= sizes[0] <= 65536):
        raise PodError(
            f"hosts: {entry!r}: a number is the memory of a machine; write one from 512 to 65536"
        )
    if cpus and (not machine or len(cpus) > 1):
        raise PodError(f"hosts: {entry!r}: {cpus[0]}cpu is for a machine, once")
    memory = (*sizes, MACHINE_MIB)[0] if machine else 0
    suite = check_suite(suites[0] if suites else suite)
    return Node(name, str(ip), suite, bare, memory, (*cpus, 1)[0])


def pod_to_record(pod: Pod) -> dict[str, Any]:
    """Return what pod.json keeps of a pod."""
    nodes = [asdict(node) for node in pod.nodes]
    record = {"name": pod.name, "subnet": pod.subnet, "custom": pod.custom, "nodes": nodes}
    return {**record, **({"inventory": pod.inventory} if pod.inventory else {})}


def pod_from_record(record: dict[str, Any]) -> Pod:
    """Return the pod that pod_to_record wrote."""
    nodes = tuple(Node(**node) for node in record["nodes"])
    inventory = record.get("inventory", "")
    return Pod(record["name"], record["subnet"], nodes, record["custom"], inventory)


@dataclass(frozen=True)
class Request:
    """The options of `pod up` as given; None where the user gave none."""

    name: str
    subnet: str | None = None
    suite: str | None = None
    nodes: int | None = None
    hosts: str | None = None
    storage: bool | None = None
    machine: str | None = None
    inventory: str | None = None


def resolve(request: Request, known: Pod | None) -> Pod:
    """Return the pod that is asked for; what the user did not say stays as it was the last time."""
    pod = _without_new_machines(request, known)
    if request.machine is None:
        return pod
    suite = request.suite or next((n.suite for n in pod.nodes), SUITES[0])
    return replace(pod, nodes=parse_machines(request.machine, pod.subnet, suite, pod.nodes))


def _without_new_machines(request: Request, known: Pod | None) -> Pod:
    check_name("pod", request.name)
    if request.nodes is not None and request.hosts is not None:
        raise PodError("nodes and hosts: write one of the two")
    subnet = str(check_subnet(request.subnet or (known.subnet if known else DEFAULT_SUBNET)))
    if known and subnet != known.subnet:
        raise PodError(
            f"pod {known.name} is on {known.subnet}; take it down first to move it to {subnet}"
        )
    machines = tuple(n for n in known.nodes if n.is_machine) if known else ()
    inventory = request.inventory
    if inventory is None and known and request.nodes is None and request.hosts is None:
        inventory = known.inventory
    if inventory:
        if inventory != MIXED:
            raise PodError(f"inventory {inventory!r}: write {MIXED}, or leave it out")
        if request.hosts is not None or request.nodes is not None or request.storage:
            raise PodError(f"inventory {MIXED} has its own nodes; leave out the others")
        suite = request.suite or (known.nodes[0].suite if known else SUITES[0])
        nodes = (*mixed_nodes(subnet, check_suite(suite)), *machines)
        return Pod(request.name, subnet, nodes, False, inventory)
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
    usual = known is not None and not known.custom and not known.inventory
    old = {n.name: n.suite for n in known.nodes if not n.is_machine} if known and usual else {}
    suite = request.suite or next(iter(old.values()), SUITES[0])
    count = request.nodes
    if count is None:
        count = sum(1 for n in old if n.startswith("dgx-")) or 4
    storage = STORAGE in old if request.storage is None else request.storage
    return Pod(request.name, subnet, (*default_nodes(subnet, suite, count, storage), *machines))


def overlapping(subnet: str, others: Iterable[tuple[str, str]]) -> str | None:
    """Return the name of the first of (name, cidr) that overlaps the subnet."""
    net = ipaddress.ip_network(subnet)
    for name, cidr in others:
        other = ipaddress.ip_network(cidr, strict=False)
        if isinstance(other, ipaddress.IPv4Network) and net.overlaps(other):
            return name
    return None
