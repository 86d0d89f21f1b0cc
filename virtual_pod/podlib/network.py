# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod's network: a bridge on the host, and for each node a network namespace with one card.

A machine has two tap devices on the bridge instead, and others on a second bridge, the rails.

Made by hand and not by podman: its address book keeps the addresses of nodes whose start was
killed, and then refuses them for good. Here everything has a name that follows from the pod, so
that it can always be rebuilt. Nothing routes, so the outside cannot be reached.
"""

from __future__ import annotations

import hashlib
import ipaddress
import pathlib
from collections.abc import Sequence

from podlib import host
from podlib.layout import Node, Pod, PodError

NETNS = pathlib.Path("/run/netns")
# Cards of a machine on the bridge of the rails, besides two on the pod's.
RAILS = 2
_BRIDGE_NF = pathlib.Path("/proc/sys/net/bridge/bridge-nf-call-iptables")


def bridge_name(pod_name: str) -> str:
    """Return the name of the pod's bridge; the kernel allows 15 characters."""
    plain = f"pod-{pod_name}"
    return plain if len(plain) <= 15 else f"pod-{hashlib.sha256(plain.encode()).hexdigest()[:11]}"


def port_name(ip: str) -> str:
    """Return the name of the host's end of a node's cable."""
    return f"pod{int(ipaddress.IPv4Address(ip)):08x}"


def mac_address(ip: str) -> str:
    """Return the address of a card: the same each time, so that no ARP entry goes stale."""
    return "02:d6:" + ":".join(f"{b:02x}" for b in ipaddress.IPv4Address(ip).packed)


def rail_name(pod_name: str) -> str:
    """Return the name of the bridge that the other cards of machines are on, and nothing else."""
    return bridge_name(f"{pod_name}-rail")


def bmc_name(pod_name: str) -> str:
    """Return the name of the bridge that has the addresses of the BMCs, and no port."""
    return bridge_name(f"{pod_name}-bmc")


def ensure_addresses(name: str, addresses: Sequence[str]) -> None:
    """Make a bridge with these addresses of the host."""
    taken = {cidr: where for where, cidr in host.host_addresses()}
    for address in addresses:
        if taken.get(address, name) != name:
            raise PodError(f"{address} is an address of {taken[address]} on this host")
        _ensure(name, address, mac_address(address.partition("/")[0]))


def ensure_bridge(pod: Pod) -> bool:
    """Make the bridge, with the gateway's address; return whether it was missing."""
    return _ensure(bridge_name(pod.name), f"{pod.gateway}/24", mac_address(pod.gateway))


def _ensure(name: str, address: str, mac: str) -> bool:
    missing = not pathlib.Path(f"/sys/class/net/{name}").exists()
    script = """
        ip link show "$1" >/dev/null 2>&1 || ip link add "$1" address "$3" type bridge
        [ -z "$2" ] || ip addr replace "$2" dev "$1"
        ip link set "$1" up"""
    _run(script, name, address, mac)
    if _BRIDGE_NF.exists() and _BRIDGE_NF.read_text().strip() == "1":
        # Docker sends what crosses a bridge through a FORWARD chain that drops by default.
        rule = ["FORWARD", "-i", name, "-o", name, "-j", "ACCEPT"]
        if host.ask(["iptables", "-w", "-C", *rule]).returncode:
            host.ask(["iptables", "-w", "-I", *rule])
    return missing


def drop_bridge(pod_name: str) -> bool:
    """Remove the pod's bridges; return whether one was there."""
    return any([drop(bridge_name(pod_name)), drop(rail_name(pod_name))])


def drop(name: str) -> bool:
    """Remove a bridge; return whether it was there."""
    if not pathlib.Path(f"/sys/class/net/{name}").exists():
        return False
    rule = ["FORWARD", "-i", name, "-o", name, "-j", "ACCEPT"]
    if _BRIDGE_NF.exists():
        host.ask(["iptables", "-w", "-D", *rule])
    _run('ip link del "$1"', name)
    return True


def connect(pod: Pod, node: Node) -> str:
    """Make the node's network namespace and its card again; return the path podman wants."""
    container = pod.container(node.name)
    script = """
        ns=$1 port=$2 mac=$3 address=$4 bridge=$5
        ip link del "$port" 2>/dev/null || true
        ip netns del "$ns" 2>/dev/null || rm -f "$6/$ns"
        ip netns add "$ns"
        ip link add "$port" type veth peer name "$port-n"
        ip link set "$port-n" netns "$ns" name eth0 address "$mac"
        ip -n "$ns" link set lo up
        ip -n "$ns" addr add "$address" dev eth0
        ip -n "$ns" link set eth0 up
        ip link set "$port" master "$bridge" up"""
    values = (mac_address(node.ip), f"{node.ip}/24", bridge_name(pod.name), str(NETNS))
    _run(script, container, port_name(node.ip), *values)
    return str(NETNS / container)


def cards(node: Node) -> dict[str, str]:
    """Return {the host's end: address} of a machine's cards, in their order."""
    port, mac = port_name(node.ip), mac_address(node.ip)
    names = (port, f"{port}-b", *(f"{port}-r{n}" for n in range(RAILS)))
    return {name: mac.replace("02:d6", f"02:{0xD6 + n:x}", 1) for n, name in enumerate(names)}


def plug(pod: Pod, node: Node) -> None:
    """Make the cables of a machine again: two to the pod's bridge, the others to the rails'."""
    rail = rail_name(pod.name)
    _ensure(rail, "", mac_address(pod.gateway).replace("02:d6", "02:d7", 1))
    script = """
        ip link del "$1" 2>/dev/null || true
        ip tuntap add "$1" mode tap
        ip link set "$1" master "$2" up"""
    for number, port in enumerate(cards(node)):
        _run(script, port, bridge_name(pod.name) if number < 2 else rail)


def unplug(node: Node) -> None:
    """Remove the cables of a machine."""
    for port in cards(node):
        _run('ip link del "$1" 2>/dev/null || true', port)


def disconnect(container: str, ip: str) -> None:
    """Remove a node's network namespace and card."""
    script = """
        [ -z "$2" ] || ip link del "$2" 2>/dev/null || true
        ip netns del "$1" 2>/dev/null || rm -f "$3/$1" """
    _run(script, container, port_name(ip) if ip else "", str(NETNS))


def _run(script: str, *values: str) -> None:
    """Run a script where podman's mounts are: a network namespace is known by a mount."""
    argv = [*host.namespace_prefix(), "sh", "-ec", script, "sh", *values]
    done = host.ask(argv)
    if done.returncode:
        raise PodError(f"network of {values[0]}: {done.stderr.strip()}")
