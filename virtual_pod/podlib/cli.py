# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import sys
from collections.abc import Callable, Sequence

from podlib import bmc, cache, ceph, directory, fabric, faults, gpus, host, nodes
from podlib.layout import DEFAULT_SUBNET, Node, Pod, PodError, Request, check_name
from podlib.progress import Progress


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pod", description="Boots machines that behave like a cluster's nodes."
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument("--name", default="demo", help="the pod (default: demo)")
        return sub

    up = command("up", "Bring a pod up; what runs already stays as it is.")
    up.add_argument("--subnet", help=f"a private /24 (default: {DEFAULT_SUBNET})")
    up.add_argument("--suite", help="trixie (default) or bookworm")
    up.add_argument("--nodes", type=int, help="number of DGX nodes (default: 4)")
    up.add_argument("--hosts", help="other nodes: NAME=IP[:SUITE][:bare|:machine],...")
    up.add_argument(
        "--machine",
        help="also machines with their own kernel, emulated: NAME[=IP][:SUITE][:MIB][:Ncpu],...",
    )
    up.add_argument("--inventory", help="another layout with its inventory: mixed")
    up.add_argument(
        "--storage",
        action=argparse.BooleanOptionalAction,
        help="with or without a node for Ceph (default: without)",
    )
    down = command("down", "Remove a pod, or only the nodes named.")
    down.add_argument("--purge", action="store_true", help="also its state, and images and cache")
    down.add_argument("--force", action="store_true", help="even if another checkout runs it")
    down.add_argument("nodes", nargs="*", metavar="NODE")
    status = command("status", "Show the nodes of all pods, or of one.")
    status.set_defaults(name=None)
    ssh = command("ssh", "SSH to a node as root, or as USER@NODE.")
    ssh.add_argument("node", metavar="[USER@]NODE")
    ssh.add_argument("rest", nargs=argparse.REMAINDER, metavar="CMD")
    run = command("exec", "Run a command in a node without SSH.")
    run.add_argument("node", metavar="NODE")
    run.add_argument("rest", nargs=argparse.REMAINDER, metavar="CMD")
    podman = command("podman", "Call podman where the pods' containers are.")
    podman.add_argument("rest", nargs=argparse.REMAINDER, metavar="ARG")
    inventory = command("inventory", "Write .pod/NAME/inventory for ansible-playbook -i.")
    inventory.add_argument("--nodes", type=int, help="write hosts.yml again with so many DGX nodes")
    cables = command("fabric", "Start the simulated InfiniBand fabric of the pod's plan.")
    cables.add_argument("--fault", choices=sorted(faults.FAULTS), help="with this fault in it")
    packages = command("packages", "Open or shut the way of a pod's nodes to packages.")
    packages.add_argument("state", choices=("on", "off"))
    command("ceph", "Make the storage node a Ceph cluster with a CephFS.")
    people = command("directory", "Make two directories of people, and name them in the inventory.")
    people.add_argument("--people", type=int, default=0, help="with so many people more")
    people.add_argument("--groups", type=int, default=0, help="in so many groups more")
    gpu = command("gpus", "Simulate healthy GPUs on every DGX node.")
    gpu.add_argument("--fault", choices=sorted(gpus.faults()), help="with this fault in one node")
    gpu.add_argument("--node", default="", help="the node with the fault (default: the first)")
    boards = command("bmc", "Simulate a BMC for each DGX node; its power is the node's.")
    boards.add_argument("--fault", choices=sorted(bmc.FAULTS), help="with this fault in one BMC")
    boards.add_argument("--node", default="", help="the node with the fault (default: the first)")
    return parser


def _pod(name: str) -> Pod:
    pod = nodes.known_pod(check_name("pod", name))
    if pod is None:
        raise PodError(f"there is no pod {name} in this checkout; bring it up first: pod up")
    return pod


def _node(pod: Pod, name: str) -> Node:
    for node in pod.nodes:
        if node.name == name:
            return node
    raise PodError(f"pod {pod.name} has no node {name}: {', '.join(n.name for n in pod.nodes)}")


def _up(args: argparse.Namespace) -> int:
    options = (args.subnet, args.suite, args.nodes, args.hosts, args.storage, args.machine)
    request = Request(args.name, *options, args.inventory)
    nodes.up(Progress(f"pod {args.name}"), request)
    return 0


def _down(args: argparse.Namespace) -> int:
    check_name("pod", args.name)
    nodes.down(Progress(f"pod {args.name}"), args.name, args.nodes, args.purge, args.force)
    if not args.nodes:
        bmc.stop(args.name)
    return 0


def _status(args: argparse.Namespace) -> int:
    rows = nodes.status_rows(args.name)
    if not rows:
        print("no pod is up")
        return 1
    header = {key: key for key in rows[0]}
    widths = {key: max(len(str(row[key])) for row in (header, *rows)) for key in header}
    for row in (header, *rows):
        print("  ".join(str(row[key]).ljust(widths[key]) for key in header).rstrip())
    healthy = all(row["systemd"] in ("running", "degraded") for row in rows)
    return 0 if healthy else 1


def _ssh(args: argparse.Namespace) -> int:
    pod = _pod(args.name)
    user, _, name = args.node.rpartition("@")
    node = _node(pod, name)
    folder = nodes.state_folder(pod.name)
    if node.bare:
        print(f"{name} takes a password: {folder / 'bare_password'}", file=sys.stderr)
    argv = ["ssh", *nodes.ssh_options(folder), f"{user or 'root'}@{node.ip}", *args.rest]
    sys.stdout.flush()
    os.execvp("ssh", argv)


def _exec(args: argparse.Namespace) -> int:
    pod = _pod(args.name)
    node = _node(pod, args.node)
    if not args.rest:
        raise PodError("exec: which command?")
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if node.is_machine:
        options = nodes.ssh_options(nodes.state_folder(pod.name))
        argv = ["ssh", *options, "-t" if terminal else "-T", f"root@{node.ip}"]
        argv.append(shlex.join(args.rest))
    else:
        inside = ["exec", "-it" if terminal else "-i", pod.container(node.name), *args.rest]
        argv = host.podman_argv(inside)
    os.execvp(argv[0], argv)


def _podman(args: argparse.Namespace) -> int:
    argv = host.podman_argv(args.rest)
    os.execvp(argv[0], argv)


def _inventory(args: argparse.Namespace) -> int:
    from podlib import inventory

    for line in inventory.write(_pod(args.name), args.nodes):
        print(line)
    return 0


def _fabric(args: argparse.Namespace) -> int:
    pod = _pod(args.name)
    if not fabric.has_fabric(pod):
        raise PodError(
            f"pod {pod.name} has no InfiniBand: that needs {fabric.HOST} with "
            f"{' or '.join(fabric.SUITES)} and 1 to {fabric.MOST_NODES} DGX nodes"
        )
    faults.pretend(Progress(f"pod {pod.name}"), pod, args.fault)
    return 0


def _ceph(args: argparse.Namespace) -> int:
    pod = _pod(args.name)
    ceph.start(Progress(f"pod {pod.name}"), pod)
    return 0


def _directory(args: argparse.Namespace) -> int:
    pod = _pod(args.name)
    directory.start(Progress(f"pod {pod.name}"), pod, args.people, args.groups)
    return 0


def _packages(args: argparse.Namespace) -> int:
    pod = _pod(args.name)
    cache.set_packages(pod.name, args.state == "on")
    return 0


def _gpus(args: argparse.Namespace) -> int:
    pod = _pod(args.name)
    # A node that was taken down stays in the pod's plan, for the next `pod up`.
    there = {container.node for container in nodes.containers(pod.name)}
    pod = dataclasses.replace(pod, nodes=tuple(n for n in pod.nodes if n.name in there))
    gpus.simulate(Progress(f"pod {pod.name}"), pod, args.fault, args.node)
    return 0


def _bmc(args: argparse.Namespace) -> int:
    pod = _pod(args.name)
    bmc.start(Progress(f"pod {pod.name}"), pod, args.fault, args.node)
    return 0


# What needs no root: the checkout's own files, and ssh.
_AS_USER = ("ssh", "inventory")
_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "up": _up,
    "down": _down,
    "status": _status,
    "ssh": _ssh,
    "exec": _exec,
    "podman": _podman,
    "inventory": _inventory,
    "fabric": _fabric,
    "ceph": _ceph,
    "directory": _directory,
    "packages": _packages,
    "gpus": _gpus,
    "bmc": _bmc,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["_relay"]:
        cache.serve_relay(argv[1], argv[2])
        return 0
    if argv[:1] == ["_bmc"]:
        bmc.serve(*argv[1:])
        return 0
    args = _parser().parse_args(argv)
    try:
        if args.command not in _AS_USER:
            host.become_root(argv)
        return _COMMANDS[args.command](args)
    except (PodError, PermissionError) as exc:
        print(f"pod: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("pod: interrupted; run the same command again", file=sys.stderr)
        return 130
