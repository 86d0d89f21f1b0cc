# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network of hosts, changed with a way back: in its own small pod, service by service.

netplan needs udev, which no container has: tests/pod/test_machine.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import CHECKOUT, Run, environment, pod, recap

NAME = "network"
SUBNET = os.environ.get("OWN_SUBNET", "10.78.251.0/24").removesuffix(".0/24")
HOSTS = {"net-01": f"{SUBNET}.21", "net-02": f"{SUBNET}.22"}
CONFIRM_S = 45
CONSENT = json.dumps({"node_network_change_allowed": True})
# By service: its package, the file that is in force, and an MTU there.
SERVICES = {
    "networkd": ("", "/etc/systemd/network/60-baremetal-dgx-host-eth0.network", "MTUBytes={}"),
    "networkmanager": (
        "network-manager",
        "/etc/NetworkManager/system-connections/baremetal-dgx-host-eth0.nmconnection",
        "mtu={}",
    ),
}
OUTCOME = "/var/lib/baremetal-dgx/network/returned/outcome"


def shell(host: str, script: str) -> str:
    """Run a script on a host, without SSH."""
    return pod("exec", "--name", NAME, host, "sh", "-c", script)


@dataclass
class Site:
    """An inventory of the two hosts, whose interfaces a test exchanges."""

    folder: Path
    live: str
    mtu: str

    def interfaces(self, **eth0: Any) -> None:
        """Declare eth0."""
        text = yaml.safe_dump({"node_interfaces": [{"name": "eth0", **eth0}]})
        (self.folder / "group_vars" / "cluster" / "network.yml").write_text(text)

    def run(self, *arguments: str) -> Run:
        """Run configure_network to its end."""
        name = "baremetal.dgx.configure_network"
        done = subprocess.run(
            ["ansible-playbook", name, "-i", str(self.folder), *arguments],
            env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
        )  # fmt: skip
        return Run(done.returncode, done.stdout, recap(done.stdout))


@pytest.fixture(scope="module", name="site", params=SERVICES)
def the_site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    package, live, mtu = SERVICES[request.param]
    folder = tmp_path_factory.mktemp("site")
    hosts = ",".join(f"{host}={address}" for host, address in HOSTS.items())
    pod("down", "--force", "--name", NAME)
    pod("up", "--name", NAME, "--subnet", f"{SUBNET}.0/24", "--hosts", hosts)
    for host in HOSTS if package else ():
        shell(host, f"apt-get -q update && apt-get -q install -y {package}")
    head, node = ({"hosts": {host: {"ansible_host": HOSTS[host]}}} for host in HOSTS)
    groups = {"slurm_controllers": head, "slurm_databases": head, "gpu_nodes": node}
    write = {
        "hosts.yml": {"cluster": {"children": groups}},
        "group_vars/all/cluster.yml": {
            "cluster_name": "net",
            "cluster_networks": {"management": {"cidr": f"{SUBNET}.0/24"}},
            "slurm_base_version": "24.11",
        },
        "group_vars/gpu_nodes/node.yml": {"node_profile": "dgx_h100"},
        "group_vars/cluster/node.yml": {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(CHECKOUT / ".pod" / NAME / "id"),
            "ansible_ssh_extra_args": "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null",
            "ansible_python_interpreter": "/usr/bin/python3",
            "node_network_backend": request.param,
            "node_network_confirm_s": CONFIRM_S,
            "node_first_address": {"management": f"{SUBNET}.21"},
            "node_number": "{{ inventory_hostname[-1] | int }}",
        },
    }  # fmt: skip
    for name, data in write.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(data))
    yield Site(folder, live, mtu)
    pod("down", "--force", "--name", NAME)


def test_check_mode_on_virgin_hosts(site: Site) -> None:
    site.interfaces(network="management", mtu=1400)
    run = site.run("--check", "--diff")
    assert run.rc == 0, run.why
    assert "+" + site.mtu.format(1400) in run.output


def test_without_consent_nothing_is_changed(site: Site) -> None:
    site.interfaces(network="management", mtu=1400)
    run = site.run()
    assert run.rc != 0
    assert (
        f"node_network_change_allowed: false, and this host's network differs: write {site.live};"
        in run.why
    )
    for host in HOSTS:
        assert shell(host, f"cat /sys/class/net/eth0/mtu; test ! -e {site.live}").strip() == "1500"


def test_a_change_is_confirmed_and_stays(site: Site) -> None:
    site.interfaces(network="management", mtu=1400)
    run = site.run("-e", CONSENT)
    assert run.rc == 0, run.why
    time.sleep(CONFIRM_S)
    for host, address in HOSTS.items():
        assert shell(host, "cat /sys/class/net/eth0/mtu").strip() == "1400"
        assert f"inet {address}/24" in shell(host, "ip address show dev eth0")
    again = site.run()
    assert (again.rc, again.changed) == (0, dict.fromkeys([*HOSTS, "localhost"], 0)), again.output


def test_a_change_that_cuts_the_connection_is_taken_back(site: Site) -> None:
    before = shell("net-02", f"cat {site.live}")
    # net-02 leaves its network; Ansible asks for it where it was.
    site.interfaces(network="management", mtu=1400, addresses=[f"{SUBNET}.99/24"])
    text = site.folder / "group_vars" / "gpu_nodes" / "node.yml"
    healthy = text.read_text()
    text.write_text(healthy + f"node_address: {{management: {SUBNET}.200}}\n")
    begun = time.monotonic()
    run = site.run("--limit", "net-02", "-e", CONSENT)
    text.write_text(healthy)
    assert run.rc != 0
    assert "Wait for a connection over the new network" in run.why
    while not shell("net-02", f"cat {OUTCOME} 2>&1 || :").rstrip().endswith("in time"):
        assert time.monotonic() - begun < CONFIRM_S + 60
        time.sleep(2)
    assert shell("net-02", f"cat {site.live}") == before
    site.interfaces(network="management", mtu=1400)
    again = site.run()
    assert again.rc == 0, again.why
    assert again.changed["net-01"] == 0


def test_a_boot_takes_an_unconfirmed_change_back(site: Site) -> None:
    before = shell("net-02", f"cat {site.live}")
    site.interfaces(network="management", mtu=1300)
    assert site.run("--limit", "net-02").rc != 0, "without consent it only writes what is wanted"
    shell("net-02", "/usr/local/sbin/baremetal-dgx-network change 600; sleep 5")
    assert site.mtu.format(1300) in shell("net-02", f"cat {site.live}")
    pod("podman", "restart", "--time", "10", f"{NAME}-net-02")
    deadline = time.monotonic() + 90
    while "booted before" not in shell("net-02", f"cat {OUTCOME} 2>&1 || :"):
        assert time.monotonic() < deadline, shell(
            "net-02", "systemctl status --no-pager baremetal-dgx-network-return || :"
        )
        time.sleep(2)
    assert shell("net-02", f"cat {site.live}") == before
