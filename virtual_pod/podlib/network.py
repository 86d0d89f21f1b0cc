# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod's network: a bridge on the host, and for each node a network namespace with one card.

Made by hand and not by podman: its address book keeps the addresses of nodes whose start was
killed, and then refuses them for good. Here everything has a name that follows from the pod, so
that it can always be made again. Nothing routes, so there is no way out.
"""

from __future__ import annotations

import hashlib
import ipaddress
import pathlib

from podlib import host
from podlib.layout import Node, Pod, PodError

NETNS = pathlib.Path("/run/netns")
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


def ensure_bridge(pod: Pod) -> bool:
    """Make the bridge, with the gateway's address; return whether it was missing."""
    name = bridge_name(pod.name)
    missing = not pathlib.Path(f"/sys/class/net/{name}").exists()
    script = """
        ip link show "$1" >/dev/null 2>&1 || ip link add "$1" address "$3" type bridge
        ip addr replace "$2" dev "$1"
        ip link set "$1" up"""
    _run(script, name, f"{pod.gateway}/24", mac_address(pod.gateway))
    if _BRIDGE_NF.exists() and _BRIDGE_NF.read_text().strip() == "1":
        # Docker sends what crosses a bridge through a FORWARD chain that drops by default.
        rule = ["FORWARD", "-i", name, "-o", name, "-j", "ACCEPT"]
        if host.ask(["iptables", "-w", "-C", *rule]).returncode:
            host.ask(["iptables", "-w", "-I", *rule])
    return missing


def drop_bridge(pod_name: str) -> bool:
    """Remove the bridge; return whether it was there."""
    name = bridge_name(pod_name)
    if not pathlib.Path(f"/sys/class/net/{name}").exists():
        return False
    rule = ["FORWARD", "-i", name, "-o", name, "-j", "ACCEPT"]
    if _BRIDGE_NF.exists():
        host.ask(["iptables", "-w", "-D", *rule])
    _run('ip link del "$1"', name)
    return True


def connect(pod: Pod, node: Node) -> str:
    """Make the node's network namespace and its card anew; return the path podman wants."""
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
