# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ethernet rails in a small pod: real lldpd over veth, and an exchanged cable that is named.

Simulated are the switches, which are two hosts with lldpd and interfaces called swp1 and so on, and
the rate of the links: a veth shows 10 Gb/s.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from .conftest import CHECKOUT, Run, environment, recap

NAME = "lldp"
SUBNET = os.environ.get("OWN_SUBNET", "10.78.249.0/24").removesuffix(".0/24")
LEAVES = {"leaf-01": f"{SUBNET}.11", "leaf-02": f"{SUBNET}.12"}
NODES = {"dgx-01": f"{SUBNET}.21", "dgx-02": f"{SUBNET}.22"}
RAILS = 8
STAND_IN = (CHECKOUT / "tests/unit/fixtures/pairs/perftest.py").read_text(encoding="utf-8")
INSTALL = (
    "apt-get install -y --no-install-recommends lldpd >/dev/null && "
    "echo 'configure lldp portidsubtype ifname' > /etc/lldpd.d/x.conf && systemctl restart lldpd"
)


def command(*words: str, timeout_s: float = 300) -> str:
    """Run a command; return what it prints."""
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pod(*arguments: str) -> str:
    return command(str(CHECKOUT / "virtual_pod" / "pod"), *arguments)


def shell(host: str, script: str) -> str:
    return pod("exec", "--name", NAME, host, "sh", "-c", script)


@dataclass
class Cabling:
    """Veth pairs between the hosts; a cable's ends are (host, interface)."""

    folder: Path
    pids: dict[str, str] = field(default_factory=dict)

    def plug(self, node: str, rail: int, leaf: str, port: int) -> None:
        """Lay a cable, and give the rail the rate that an adapter would show."""
        own, far = f"rail{rail}", f"swp{port}"
        node_pid, leaf_pid = self.pids[node], self.pids[leaf]
        command("ip", "link", "add", own, "netns", node_pid, "type", "veth",
                "peer", "name", far, "netns", leaf_pid)  # fmt: skip
        for pid, name in ((node_pid, own), (leaf_pid, far)):
            command("nsenter", "-t", pid, "-n", "ip", "link", "set", name, "up")
        rate = f"echo 400000 > /run/rate; mount --bind /run/rate /sys/class/net/{own}/speed"
        command("nsenter", "-t", node_pid, "-m", "-n", "sh", "-c", rate)

    def pull(self, node: str, rail: int) -> None:
        """Take a cable out, with the interfaces of both ends."""
        pid, name = self.pids[node], f"rail{rail}"
        command("nsenter", "-t", pid, "-n", "ip", "link", "delete", name)

    def received(self) -> None:
        """Wait until each node hears the switch at each of its rails."""
        until = time.monotonic() + 90
        for node in NODES:
            while True:
                text = shell(node, "lldpcli -f keyvalue show neighbors")
                if all(f"lldp.rail{rail}.chassis.name=leaf" in text for rail in range(RAILS)):
                    break
                assert time.monotonic() < until, text
                time.sleep(1)

    def validate(self, **variables: object) -> Run:
        """Run validate_fabric to its end."""
        done = subprocess.run(
            ["ansible-playbook", "baremetal.dgx.validate_fabric", "-i", str(self.folder),
             "-e", json.dumps(variables)],
            env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
        )  # fmt: skip
        return Run(done.returncode, done.stdout, recap(done.stdout))

    def findings(self) -> str:
        return (self.folder / ".dgx" / "fabric" / "findings.txt").read_text()


def write_inventory(folder: Path) -> None:
    head = {"hosts": {"head-01": {"ansible_host": f"{SUBNET}.10"}}}
    nodes = {"hosts": {name: {"ansible_host": address} for name, address in NODES.items()}}
    networks = {f"rail{rail}": {"cidr": f"10.79.{rail}.0/24"} for rail in range(RAILS)}
    first = {"management": f"{SUBNET}.21", **{f"rail{r}": f"10.79.{r}.1" for r in range(RAILS)}}
    write = {
        "hosts.yml": {
            "cluster": {
                "children": {"slurm_controllers": head, "slurm_databases": head, "gpu_nodes": nodes}
            }
        },
        "group_vars/all/cluster.yml": {
            "cluster_name": "roce",
            "cluster_networks": {"management": {"cidr": f"{SUBNET}.0/24"}, **networks},
            "cluster_fabric": {
                "topology": "basepod", "leaf_switches": list(LEAVES), "radix": 32,
            },
            "slurm_base_version": "24.11",
        },
        "group_vars/gpu_nodes/node.yml": {
            "node_profile": "dgx_h100",
            "node_first_address": first,
            "infiniband_hardware": False,
        },
        "group_vars/slurm_controllers/node.yml": {
            "node_first_address": {"management": f"{SUBNET}.10"},
        },
        "group_vars/cluster/node.yml": {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(CHECKOUT / ".pod" / NAME / "id"),
            "ansible_ssh_extra_args": "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null",
            "ansible_python_interpreter": "/usr/bin/python3",
            "node_number": "{{ inventory_hostname[-1] | int }}",
        },
    }  # fmt: skip
    for name, data in write.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(data))


@pytest.fixture(scope="module", name="cabling")
def the_cabling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cabling]:
    folder = tmp_path_factory.mktemp("site")
    write_inventory(folder)
    addresses = ",".join(f"{host}={address}" for host, address in {**LEAVES, **NODES}.items())
    pod("down", "--force", "--name", NAME)
    pod("up", "--name", NAME, "--subnet", f"{SUBNET}.0/24", "--hosts", addresses)
    cabling = Cabling(folder)
    for host in (*LEAVES, *NODES):
        cabling.pids[host] = pid_of(host)
    for leaf in LEAVES:
        shell(leaf, INSTALL)
    yield cabling
    pod("down", "--force", "--name", NAME)


def pid_of(host: str) -> str:
    names = command("podman", "ps", "--format", "{{.Names}}").split()
    (name,) = [one for one in names if NAME in one and one.endswith(host)]
    return command("podman", "inspect", "--format", "{{.State.Pid}}", name).strip()


def planned(cabling: Cabling) -> list[tuple[str, int, str, int]]:
    """The cables of nodes in the plan: node, rail, leaf, port."""
    path = cabling.folder / ".dgx" / "plan" / "fabric" / "cables.json"
    cables = json.loads(path.read_text())["cables"]
    return [
        (one["a"][0], one["a"][1], one["b"][0], one["b"][2])
        for one in cables
        if one["kind"] == "node-leaf"
    ]


def test_nodes_without_lldpd_are_not_measured(cabling: Cabling) -> None:
    run = cabling.validate()
    assert run.rc != 0
    assert "lldpcli is not installed" in run.output


def test_the_role_starts_lldpd(cabling: Cabling) -> None:
    play = [
        {
            "hosts": "gpu_nodes",
            "gather_facts": False,
            "vars": {"roce_rails": list(range(RAILS)), "roce_hardware": False},
            "roles": ["baremetal.dgx.roce"],
        }
    ]
    path = cabling.folder.parent / "play.yml"
    path.write_text(yaml.safe_dump(play))
    for changed in (True, False):
        done = subprocess.run(
            ["ansible-playbook", str(path), "-i", str(cabling.folder)],
            env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert ("changed=0 " not in done.stdout) is changed, done.stdout


def test_every_cable_of_the_nodes_passes(cabling: Cabling) -> None:
    for cable in planned(cabling):
        cabling.plug(*cable)
    cabling.received()
    run = cabling.validate()
    assert run.rc == 0, run.why
    assert f"{2 * RAILS} of " in run.output
    assert "cables between switches were not received" in cabling.findings()


def test_pairs_load_the_cables_of_each_leaf(cabling: Cabling) -> None:
    """The figures are a stand-in's, since a veth has no RDMA; the way to them is the real one."""
    sysfs, tool = "/run/pairs/sys", "/usr/local/bin/ib_write_bw"
    rails = " ".join(f"{sysfs}/class/infiniband/mlx5_rail{rail}" for rail in range(RAILS))
    for node in NODES:
        shell(node, f"mkdir -p {rails}; cat > /run/pairs/perftest.py <<'END'\n{STAND_IN}\nEND")
        state = "export FABRIC_PAIRS_STATE=/run/pairs/state.json FABRIC_PAIRS_NODE=" + node
        shell(
            node,
            f"""cat > {tool} <<'END'
#!/bin/sh
{state}
echo "$*" >> /run/pairs/arguments
exec python3 -E -S /run/pairs/perftest.py "$@"
END
chmod 755 {tool}; echo '{{"figures": {{}}}}' > /run/pairs/state.json""",
        )
    options = {"transport": "ssh", "duration_s": 3, "pairs_per_link": 1, "sysfs_root": sysfs}
    healthy = cabling.validate(pair_tests=options)
    assert healthy.rc == 0, healthy.why
    assert "0 failed, 0 were not measured" in healthy.output
    assert " -x 3" in shell("dgx-01", "cat /run/pairs/arguments")
    ways = {f"dgx-0{a}/mlx5_rail5>dgx-0{b}/mlx5_rail5": 150.0 for a, b in ((1, 2), (2, 1))}
    for node in NODES:
        shell(node, f"echo '{json.dumps({'figures': ways})}' > /run/pairs/state.json")
    slow = cabling.validate(pair_tests=options)
    assert slow.rc != 0
    # Two nodes alone: either cable may be the slow one, and no part is blamed for it.
    assert "pair:dgx-01/rail5--dgx-02/rail5" in slow.output, slow.output


def test_an_exchanged_cable_is_named(cabling: Cabling) -> None:
    cables = {(node, rail): (leaf, port) for node, rail, leaf, port in planned(cabling)}
    one, two = ("dgx-01", 2), ("dgx-02", 2)
    for end in (one, two):
        cabling.pull(*end)
    # lldpd forgets a neighbour once it sees the link go; no hand is faster.
    time.sleep(5)
    cabling.plug(*one, *cables[two])
    cabling.plug(*two, *cables[one])
    cabling.received()
    run = cabling.validate()
    assert run.rc != 0
    first = cabling.findings().splitlines()
    assert "1 finding" in first[0]
    assert "swapped" in first[2]
    for end, (leaf, port) in ((one, cables[one]), (two, cables[two])):
        assert f"{end[0]} rail {end[1]}" in cabling.findings()
        assert f"{leaf} port {port}" in cabling.findings()


def test_a_pulled_cable_is_named(cabling: Cabling) -> None:
    (leaf, port) = next(one[2:] for one in planned(cabling) if one[:2] == ("dgx-01", 1))
    command("nsenter", "-t", cabling.pids[leaf], "-n", "ip", "link", "set", f"swp{port}", "down")
    run = cabling.validate()
    assert run.rc != 0
    assert "dgx-01 rail 1" in cabling.findings()
