# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pod's BMCs: one for each DGX node, over TLS, in a separate network.

What they say is simulated, in the shape of a DGX H100 (tests/models/redfish_server.py). Their power
is that of the nodes: off stops the node's container, on starts it.
"""

from __future__ import annotations

import fcntl
import ipaddress
import json
import os
import pathlib
import secrets
import subprocess
import sys

from podlib import daemons, host, network, nodes
from podlib.layout import Node, Pod, PodError, expect
from podlib.progress import Progress

USER = "dgx"
PORT = 443
# What `pod bmc --fault` does to a BMC: its checks that must not pass, and a title.
FAULTS = {
    "fan": ("bmc.fans", "a fan has failed"),
    "hot": ("bmc.temperatures", "a GPU is beyond its critical temperature"),
    "silent": ("bmc.access", "the BMC does not answer"),
    "stays_on": ("bmc.switched", "the machine does not switch off"),
    "supply": ("bmc.supplies", "a power supply has failed"),
}
_NETWORKS = "cluster_networks:\n"
_ADDRESS = "node_first_address: {"


def bmc_network(pod: Pod) -> ipaddress.IPv4Network:
    """Return the network of the pod's BMCs: 10.X.Y.0/24 with another X than the pod's."""
    _first, second, third, _last = ipaddress.IPv4Network(pod.subnet).network_address.packed
    return ipaddress.IPv4Network(f"10.{second ^ 128}.{third}.0/24")


def address_of(pod: Pod, node: Node) -> str:
    """Return the address of a node's BMC: the last number is the node's own."""
    return str(bmc_network(pod)[int(node.ip.rpartition(".")[2])])


def machines_of(pod: Pod) -> list[Node]:
    """Return the nodes that have a BMC."""
    return [node for node in pod.nodes if node.is_gpu]


def start(progress: Progress, pod: Pod, fault: str | None = None, where: str = "") -> None:
    """Start the BMCs again, one of them with this fault, and name them in the inventory."""
    having = machines_of(pod)
    expect(bool(having), f"pod {pod.name} has no DGX node")
    broken = where or having[0].name
    expect(
        not fault or broken in {node.name for node in having},
        f"{broken} is not a DGX node of pod {pod.name}",
    )
    folder = host.make_folder(nodes.state_folder(pod.name) / "bmc", 0o700)
    pin, password = _certificate(folder), _password(folder)
    network.ensure_addresses(
        network.bmc_name(pod.name), [f"{address_of(pod, node)}/24" for node in having]
    )
    lock = _lock(pod.name)
    daemons.stop(lock)
    with lock.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        argv = [sys.executable, os.path.realpath(sys.argv[0]), "_bmc", pod.name]
        argv += [fault, broken] if fault else []
        daemons.spawn(argv, handle, folder / "out", dict(os.environ))
    first = address_of(pod, having[0])
    ask = ["curl", "--silent", "--insecure", f"https://{first}:{PORT}/redfish/v1"]
    host.wait_until("the BMCs answer", lambda: fault or not host.ask(ask).returncode, 30)
    what = f", {broken}: {FAULTS[fault][1]}" if fault else ""
    progress.say(f"{len(having)} simulated BMCs in {bmc_network(pod)}{what}")
    if write_inventory(pod, pin, password):
        progress.say("node_bmc is in the inventory")


def stop(name: str) -> bool:
    """Stop the BMCs of a pod, and remove their network; return whether there were any."""
    stopped = daemons.stop(_lock(name))
    _lock(name).unlink(missing_ok=True)
    return network.drop(network.bmc_name(name)) or stopped


def write_inventory(pod: Pod, pin: str, password: str) -> bool:
    """Name the BMCs in the pod's inventory, where there is one."""
    inventory = nodes.state_folder(pod.name) / "inventory"
    if not inventory.is_dir():
        return False
    first = str(bmc_network(pod)[int(machines_of(pod)[0].ip.rpartition(".")[2])])
    _insert(
        inventory / "group_vars/all/cluster.yml",
        _NETWORKS,
        f"{_NETWORKS}  bmc: {{cidr: {bmc_network(pod)}}}\n",
    )
    _insert(inventory / "group_vars/gpu_nodes/node.yml", _ADDRESS, f"{_ADDRESS}bmc: {first}, ")
    access = {"node_bmc": {"user": USER, "password": password, "certificate": pin}}
    path = inventory / "group_vars/gpu_nodes/bmc.yml"
    # JSON is YAML, too.
    host.write(path, "---\n" + json.dumps(access, indent=2) + "\n", 0o600)
    return True


def _insert(path: pathlib.Path, old: str, new: str) -> None:
    text = path.read_text()
    if new not in text:
        expect(text.count(old) == 1, f"{path} has no {old.strip()}")
        host.write(path, text.replace(old, new))


def _lock(name: str) -> pathlib.Path:
    return host.RUN / f"bmc-{name}.lock"


def _password(folder: pathlib.Path) -> str:
    path = folder / "password"
    if not path.exists():
        host.write(path, secrets.token_hex(8), 0o600)
    return path.read_text()


def _certificate(folder: pathlib.Path) -> str:
    """Make a certificate, unless there is one; return what the inventory pins."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    if not cert.exists():
        argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"]
        argv += ["ec_paramgen_curve:prime256v1", "-nodes", "-days", "3650", "-subj", "/CN=bmc"]
        done = host.ask([*argv, "-keyout", str(key), "-out", f"{cert}.new"])
        expect(not done.returncode, f"no certificate for the BMCs: {done.stderr.strip()[-300:]}")
        key.chmod(0o600)
        pathlib.Path(f"{cert}.new").replace(cert)
    argv = ["openssl", "x509", "-in", str(cert), "-noout", "-fingerprint", "-sha256"]
    text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return "sha256:" + text.partition("=")[2].strip().replace(":", "").lower()


def serve(name: str, fault: str = "", where: str = "") -> None:
    """Be the BMCs of a pod until killed."""
    from podlib import bmc_server

    pod = nodes.known_pod(name)
    if pod is None:
        raise PodError(f"there is no pod {name}")
    bmc_server.serve(pod, fault, where)
