# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What needs its own kernel: in machines under QEMU, with processors that are emulated.

`tests/soak/machines` runs it; KEEP=1 leaves the pod as it is at the end. Times are not those of a
real node. What was seen is noted in .cache/machines.log, and in docs/virtual_pod.md.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import CHECKOUT, Run, environment, recap

NAME = os.environ.get("POD", "machines")
SUBNET = os.environ.get("SUBNET", "10.78.250.0/24").removesuffix(".0/24")
HOSTS = {f"vm-0{number}": f"{SUBNET}.2{number}" for number in (1, 2, 3)}
# Two processors, so that jobs can be confined to one.
FIRST = f"vm-01={HOSTS['vm-01']}:machine:2048:2cpu"
TAGGED = ["10.79.20.21", "10.79.20.22"]
CACHE = Path(os.environ.get("BAREMETAL_POD_CACHE") or "/var/cache/baremetal-dgx-pod")
CONNECTION = {
    "ansible_user": "root",
    "ansible_ssh_private_key_file": str(CHECKOUT / ".pod" / NAME / "id"),
    "ansible_ssh_extra_args": f"-F {CHECKOUT / '.pod' / NAME / 'ssh_config'}",
    "ansible_python_interpreter": "/usr/bin/python3",
}
REBOOT = json.dumps({"node_base_reboot_allowed": True})


def pod(*arguments: str, check: bool = True) -> str:
    """Run virtual_pod/pod; return what it prints."""
    done = subprocess.run(
        [str(CHECKOUT / "virtual_pod" / "pod"), *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1200, check=False,
    )  # fmt: skip
    assert done.returncode == 0 or not check, done.stdout[-3000:] + done.stderr
    return done.stdout


def shell(host: str, script: str, check: bool = True) -> str:
    """Run a script on a host."""
    return pod("exec", "--name", NAME, host, "sh", "-c", script, check=check)


def fresh(*others: str) -> None:
    """Make the first machine again, as its image is; beside it there are these hosts."""
    pod("down", "--force", "--name", NAME, "vm-01")
    hosts = ",".join((FIRST, *others))
    pod("up", "--name", NAME, "--subnet", f"{SUBNET}.0/24", "--hosts", hosts)


def write_yaml(folder: Path, files: dict[str, Any]) -> None:
    """Write files of an inventory."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(data))


def cut_power(host: str) -> None:
    """Kill a machine as a power cut would, and wait until it is gone."""
    lock = CACHE / "machines" / NAME / host / "lock"
    os.kill(int(lock.read_text()), signal.SIGKILL)
    time.sleep(2)


@dataclass
class Site:
    """An inventory of the two machines, whose settings a test exchanges."""

    folder: Path

    def settings(self, host: str = "vm-01", **values: Any) -> None:
        """Give a machine these variables, and no others of an earlier test."""
        write_yaml(self.folder / "host_vars", {f"{host}.yml": values})

    def run(self, name: str, *arguments: str, target: str = "vm-01") -> Run:
        """Run a playbook of the collection, or a file, to its end."""
        played = name if name.endswith(".yml") else f"baremetal.dgx.{name}"
        argv = ["ansible-playbook", played, "-i", str(self.folder)]
        done = subprocess.run(
            [*argv, "-e", f"target={target}", *arguments],
            env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=2400, check=False,
        )  # fmt: skip
        return Run(done.returncode, done.stdout, recap(done.stdout))


@pytest.fixture(scope="module", name="site")
def the_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One machine that runs, and the inventory of two."""
    keep = bool(os.environ.get("KEEP"))
    folder = tmp_path_factory.mktemp("site")
    if not keep:
        pod("down", "--force", "--name", NAME)
    pod("up", "--name", NAME, "--subnet", f"{SUBNET}.0/24", "--hosts", FIRST)
    node, head = (
        {"hosts": {host: {"ansible_host": ip, "node_address": {"management": ip, "storage": tag}}}}
        for host, ip, tag in zip(HOSTS, HOSTS.values(), TAGGED, strict=False)
    )
    stor = {"ansible_host": f"{SUBNET}.31", "node_address": {"management": f"{SUBNET}.31"}}
    groups = {
        "slurm_controllers": head, "slurm_databases": head, "gpu_nodes": node,
        "storage_nodes": {"hosts": {"stor-01": stor}},
    }  # fmt: skip
    write = {
        "hosts.yml": {"cluster": {"children": groups}},
        "group_vars/all/cluster.yml": {
            "cluster_name": "machines",
            "cluster_networks": {
                "management": {"cidr": f"{SUBNET}.0/24"},
                "storage": {"cidr": "10.79.20.0/24", "vlan": 20},
            },
            "slurm_base_version": "24.11",
            "cluster_profiles": {
                "machine": {"inherit": "dgx_h100", "nvme": {"os_disks": 0, "data_disks": 2}}
            },
        },
        "group_vars/gpu_nodes/node.yml": {"node_profile": "machine"},
        "group_vars/cluster/node.yml": CONNECTION,
    }  # fmt: skip
    write_yaml(folder, write)
    yield Site(folder)
    if not keep:
        pod("down", "--force", "--name", NAME)


@pytest.fixture(autouse=True)
def seen(request: pytest.FixtureRequest, site: Site) -> Iterator[None]:
    """Note each test that passed, with the kernel that it ran on."""
    begun = time.monotonic()
    failed = request.session.testsfailed
    yield
    if request.session.testsfailed == failed:
        took, day = time.monotonic() - begun, time.strftime("%d %B %Y").lstrip("0")
        kernel = shell("vm-01", "uname -r").strip()
        with (CHECKOUT / ".cache" / "machines.log").open("a") as log:
            log.write(f"{day} | {kernel} | {took:.0f} s | {request.node.name}\n")


def test_a_kernel_argument_needs_consent_and_a_reboot(site: Site) -> None:
    site.settings(node_base_kernel_arguments=["iommu=pt"], node_base_chrony_enabled=False)
    before = shell("vm-01", "cat /proc/sys/kernel/random/boot_id")
    refused = site.run("prepare_nodes")
    assert refused.rc != 0
    assert "reboot this node, or allow it with node_base_reboot_allowed: true" in refused.why
    assert "iommu=pt" not in shell("vm-01", "cat /proc/cmdline")
    assert shell("vm-01", "cat /proc/sys/kernel/random/boot_id") == before
    allowed = site.run("prepare_nodes", "-e", REBOOT)
    assert allowed.rc == 0, allowed.why
    assert shell("vm-01", "cat /proc/sys/kernel/random/boot_id") != before
    assert "iommu=pt" in shell("vm-01", "cat /proc/cmdline").split()
    again = site.run("prepare_nodes")
    assert (again.rc, again.changed["vm-01"]) == (0, 0), again.output[-3000:]


def test_a_striped_array_survives_a_power_cut(site: Site) -> None:
    disk = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_POD-vm-01-"
    site.settings(
        local_storage_volumes=[
            {"name": "raid", "kind": "md", "disks": [f"{disk}0", f"{disk}1"], "mountpoint": "/raid"}
        ],
    )
    made = site.run("mount_storage")
    assert made.rc == 0, made.why
    assert shell("vm-01", "findmnt -n -o FSTYPE /raid").strip() == "xfs"
    level = shell(
        "vm-01", "cat /sys/class/block/$(basename $(findmnt -n -o SOURCE /raid))/md/level"
    )
    assert level.strip() == "raid0"
    again = site.run("mount_storage")
    assert (again.rc, again.changed["vm-01"]) == (0, 0), again.output[-3000:]
    shell("vm-01", "head -c 20M /dev/urandom > /raid/data; sync; sha256sum /raid/data > /root/sum")
    shell("vm-01", "sync")
    cut_power("vm-01")
    pod("up", "--name", NAME)
    assert shell("vm-01", "findmnt -n -o FSTYPE /raid; sha256sum -c /root/sum").split()[-1] == "OK"
    # An array that appears after the boot has ceased to wait for it.
    shell(
        "vm-01", "systemctl stop raid.mount && mdadm --stop /dev/md/raid && mdadm --assemble --scan"
    )
    shell("vm-01", "for _ in $(seq 60); do ! findmnt /raid || exit 0; sleep 1; done; exit 1")
    after = site.run("mount_storage")
    assert (after.rc, after.changed["vm-01"]) == (0, 0), after.output[-3000:]


# A soft adapter's rate is what the emulated processor leaves it; tc makes it the same on all links.
CAPPED_MBIT, SLOW_MBIT = 20, 4
SOFT_ROCE = """
apt-get -q update && apt-get -q install -y --no-install-recommends perftest ibverbs-providers
modprobe rdma_rxe
[ -e /sys/class/infiniband/rxe0 ] || rdma link add rxe0 type rxe netdev eth2
ip link set eth2 up
ip address replace 10.79.30.{}/24 dev eth2
"""


def cable(host: str, rail: int) -> str:
    """Return the host's side of a rail's cable, as podlib.network names it."""
    return f"pod{int(ipaddress.IPv4Address(HOSTS[host])):08x}-r{rail}"


def cap(host: str, mbit: int) -> None:
    """Cap what a machine's first rail receives, on the host's side of its cable."""
    words = f"tbf rate {mbit}mbit burst 16kb latency 2s".split()
    subprocess.run(["tc", "qdisc", "replace", "dev", cable(host, 0), "root", *words], check=True)


def cut_rails(host: str) -> None:
    """Let nothing pass on a machine's rails, eth2 and eth3; they keep their carrier."""
    for rail in (0, 1):
        subprocess.run(["ip", "link", "set", "dev", cable(host, rail), "down"], check=True)


@pytest.fixture(name="rails")
def the_rails(site: Site) -> Iterator[dict[str, Any]]:
    """Three machines with a soft RoCE adapter each, on one switch; options of fabric_pairs."""
    added = [host for host in HOSTS if host != "vm-01"]
    for host in added:
        pod("up", "--name", NAME, "--machine", f"{host}={HOSTS[host]}")
    for number, host in enumerate(HOSTS, 21):
        shell(host, SOFT_ROCE.format(number))
        cap(host, CAPPED_MBIT)
    leaf = {"name": "leaf-01", "tier": "leaf", "unit": None, "rail": None, "radix": 8, "guid": None}
    rail = {"rail": 0, "guid": None, "pci": None, "cage": None, "cage_port": None}
    cables = [
        {"a": [host, 0, 1], "b": ["leaf-01", -1, port], "kind": "node-leaf", "rate_gbps": 0.005}
        for port, host in enumerate(HOSTS, 1)
    ]
    hcas = [{**rail, "node": host, "devices": ["rxe0"], "rate_gbps": 0.005} for host in HOSTS]
    plan = {"version": 1, "hcas": hcas, "switches": [leaf], "cables": cables, "reserved": []}
    yield {
        "plan": plan,
        "routes": "one_switch",
        "addresses": HOSTS,
        "targets": {host: f"root@{address}" for host, address in HOSTS.items()},
        "ssh_options": ["-F", str(CHECKOUT / ".pod" / NAME / "ssh_config")],
        "extra_arguments": ["-x", "1", "-u", "18"],
        "size_bytes": 4096,
        "duration_s": 5,
        "threshold_gbps": CAPPED_MBIT / 2000,
        "connect_s": 60,
        "listen_s": 60,
    }
    if not os.environ.get("KEEP"):
        pod("down", "--force", "--name", NAME, *added)


def pairs(options: dict[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    """Run fabric_pairs on this host; return its records by their subject."""
    argv = ["ansible", "localhost", "-c", "local", "-m", "baremetal.dgx.fabric_pairs"]
    done = subprocess.run(
        [*argv, "-a", json.dumps({**options, "output": str(folder)})],
        env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1200,
        check=False,
    )  # fmt: skip
    path = folder / "pairs-records.json"
    assert path.exists(), done.stdout + done.stderr
    return {record["subject"]: record for record in json.loads(path.read_text())}


def test_a_slow_soft_roce_link_is_named(rails: dict[str, Any], tmp_path: Path) -> None:
    healthy = pairs(rails, tmp_path / "healthy")
    assert {record["status"] for record in healthy.values()} == {"pass"}, healthy
    middle = healthy["fabric"]["measured"]["value"]
    assert 0.8 * CAPPED_MBIT < 1000 * middle <= CAPPED_MBIT
    cap("vm-02", SLOW_MBIT)
    records = pairs(rails, tmp_path / "slow")
    failed = {subject: one for subject, one in records.items() if one["status"] == "fail"}
    assert list(failed) == ["cable:vm-02/rail0--leaf-01/2"], records
    found = failed["cable:vm-02/rail0--leaf-01/2"]
    assert found["text"].startswith("2 of 2 flows over it from leaf-01/2 are slow")
    assert 0.5 * SLOW_MBIT < 1000 * found["measured"]["value"] <= SLOW_MBIT
    assert len(found["evidence"]) == 2
    cap("vm-02", CAPPED_MBIT)
    again = pairs(rails, tmp_path / "slow")
    assert {record["status"] for record in again.values()} == {"pass"}, again


@pytest.fixture(name="ceph")
def the_ceph(site: Site) -> str:
    """A real Ceph of one node beside the machine; its address."""
    address = f"{SUBNET}.31"
    hosts = f"{FIRST},stor-01={address}"
    pod("up", "--name", NAME, "--subnet", f"{SUBNET}.0/24", "--hosts", hosts)
    pod("ceph", "--name", NAME)
    folder = {"fs": "cephfs", "path": "/scratch"}
    write = {
        "all/ceph.yml": {
            "cephfs_fsid": shell("stor-01", "ceph fsid").strip(),
            "cephfs_monitors": [address],
        },
        "storage_nodes/ceph.yml": {
            "cephfs_admin": True,
            "cephfs_folders": [{**folder, "mode": "1777", "max_bytes": 64 << 20}],
            "cephfs_clients": [{"name": "node", "grants": [{**folder, "perms": "rw"}]}],
        },
    }
    write_yaml(site.folder / "group_vars", write)
    return address


def test_the_kernel_mounts_cephfs(site: Site, ceph: str) -> None:
    mount = {"name": "scratch", "fs": "cephfs", "path": "/scratch", "client": "node"}
    site.settings(cephfs_mounts=[{**mount, "mountpoint": "/scratch", "driver": "kernel"}])
    made = site.run("mount_storage")
    assert made.rc == 0, made.why
    kind, source, options = shell("vm-01", "findmnt -n -o FSTYPE,SOURCE,OPTIONS /scratch").split()
    assert (kind, source.partition("=")[2]) == ("ceph", "/scratch")
    assert {"ms_mode=prefer-crc", "recover_session=clean"} <= set(options.split(","))
    again = site.run("mount_storage")
    assert (again.rc, again.changed["vm-01"]) == (0, 0), again.output[-3000:]
    # The quota of the folder is Ceph's, and the kernel's client keeps to it.
    over = shell(
        "vm-01", "dd if=/dev/zero of=/scratch/large bs=1M count=80 2>&1; rm /scratch/large"
    )
    assert "Disk quota exceeded" in over
    shell("vm-01", "head -c 20M /dev/urandom > /scratch/data; sha256sum /scratch/data > /root/sum")
    shell("vm-01", "sync")
    cut_power("vm-01")
    pod("up", "--name", NAME)
    wait = "for _ in $(seq 180); do findmnt -n -t ceph /scratch && break; sleep 1; done"
    assert shell("vm-01", f"{wait}; sha256sum -c /root/sum").split()[-1] == "OK"
    after = site.run("mount_storage")
    assert (after.rc, after.changed["vm-01"]) == (0, 0), after.output[-3000:]
    assert ceph in shell("vm-01", "cat /proc/mounts")


@pytest.fixture(name="cluster")
def the_cluster(site: Site, tmp_path: Path) -> Iterator[Site]:
    """The first machine as a compute node, with AppArmor; its controller is a container."""
    head = f"{SUBNET}.11"
    fresh(f"head-01={head}")
    shell("vm-01", "apt-get -q update && apt-get -q install -y apparmor apparmor-utils")
    for host in ("vm-01", "head-01"):
        shell(host, "id alice || useradd -u 2001 -m -s /bin/bash alice")
    cpu = {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "numa_nodes": 1}
    hosts: dict[str, Any] = {
        host: {"ansible_host": ip, "node_address": {"management": ip}}
        for host, ip in (("vm-01", HOSTS["vm-01"]), ("head-01", head))
    }
    first = {"hosts": {"head-01": hosts["head-01"]}}
    node = {"hosts": {"vm-01": {**hosts["vm-01"], "node_profile": "guest"}}}
    groups = {"slurm_controllers": first, "slurm_databases": first, "cpu_nodes": node}
    folder = tmp_path / "cluster"
    write_yaml(
        folder,
        {
            "hosts.yml": {"cluster": {"children": groups}},
            "group_vars/all/cluster.yml": {
                "cluster_name": "guests",
                "cluster_networks": {"management": {"cidr": f"{SUBNET}.0/24"}},
                "slurm_base_version": "24.11",
                "cluster_profiles": {"guest": {"cpu": cpu, "real_memory_mb": 1700}},
                "slurm_controller_partitions": [
                    {"name": "batch", "nodes": ["vm-01"], "default": True, "max_time": "00:10:00"}
                ],
                "slurm_controller_accounts": [{"name": "research", "users": ["alice"]}],
            },
            "group_vars/cluster/node.yml": CONNECTION,
        },
    )
    yield Site(folder)
    if not os.environ.get("KEEP"):
        pod("down", "--force", "--name", NAME, "head-01")


def job(words: str, check: bool = True) -> str:
    """Run a job as alice; return what it prints, and its errors."""
    script = f"cd / && su alice -c {shlex.quote(f'srun -Q -t 5 {words}')} 2>&1"
    return shell("head-01", script, check=check)


def test_the_kernel_confines_jobs_in_cores_and_memory(cluster: Site) -> None:
    assert shell("vm-01", "stat -f -c %T /sys/fs/cgroup").strip() == "cgroup2fs"
    assert shell("vm-01", "aa-enabled").strip() == "Yes"
    done = cluster.run("configure_scheduler")
    assert done.rc == 0, done.why
    again = cluster.run("configure_scheduler")
    assert (again.rc, again.changed["vm-01"]) == (0, 0), again.output[-3000:]

    own = job("-c 1 --mem 300 cat /proc/self/cgroup").strip()
    assert re.fullmatch(r"0::/system\.slice/.*slurmstepd\.scope/job_\d+/step_0/user/task_0", own)
    # A job cannot take the processor that it did not ask for.
    assert job("-c 1 --mem 300 sh -c 'nproc; taskset -p -c 0,1 $$ 2>&1; nproc'").split()[-1] == "1"
    assert job("-c 2 --mem 300 nproc").strip() == "2"
    limit = "cat /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/../memory.max"
    at_most = job(f"-c 1 --mem 300 sh -c '{limit}'")
    assert int(at_most) == 300 << 20
    taken = "import sys; held = bytearray(int(sys.argv[1]) << 20); print(len(held) >> 20)"
    assert job(f'-c 1 --mem 300 python3 -c "{taken}" 200').strip() == "200"
    before = oom_kills()
    over = job(f'-c 1 --mem 300 python3 -c "{taken}" 600', check=False)
    assert re.search("oom.kill|Out Of Memory", over, re.IGNORECASE), over
    assert oom_kills() == before + 1
    assert "idle" in shell("head-01", "sinfo -h -n vm-01 -o %t")


def oom_kills() -> int:
    """How many processes the kernel of the first machine has killed for their memory cgroup."""
    return shell("vm-01", "journalctl -k --no-pager").count("Memory cgroup out of memory")


# Longer than a connection takes that an emulated processor answers.
CONFIRM_S = 150
NETWORK = "/usr/local/sbin/baremetal-dgx-network"
OUTCOME = "/var/lib/baremetal-dgx/network/returned/outcome"
# What configures eth0 at first: the service's package, a file of the site's, how it is loaded.
NETWORKD = "/etc/systemd/network/99-pod.network"
KEYFILE = f"""[connection]
id=site
type=ethernet
interface-name=eth0
[ipv4]
method=manual
address1={HOSTS["vm-01"]}/24"""
SERVICES: dict[str, tuple[str, str, str, str]] = {
    "networkd": ("", NETWORKD, "", ""),
    "netplan": (
        "netplan.io",
        "/etc/netplan/50-site.yaml",
        f"network: {{version: 2, ethernets: {{eth0: {{addresses: [{HOSTS['vm-01']}/24]}}}}}}",
        "netplan apply",
    ),
    "networkmanager": (
        "network-manager",
        "/etc/NetworkManager/system-connections/site.nmconnection",
        KEYFILE,
        "systemctl disable --now systemd-networkd; nmcli con reload; nmcli con up site",
    ),
}

# What sets the addresses of rails, and not the network of the host.
RAIL_SERVICES = {
    **SERVICES,
    "ifupdown": (
        "ifupdown",
        "/etc/network/interfaces.d/site",
        f"auto eth0\niface eth0 inet static\n    address {HOSTS['vm-01']}/24",
        # ifup adds no address that is there.
        "systemctl disable --now systemd-networkd; ip address flush dev eth0; ifup --force eth0",
    ),
}


def configured_by(service: str) -> str:
    """Give the first machine's network to a service; return the file that has eth0."""
    package, path, text, load = RAIL_SERVICES[service]
    if package:
        shell("vm-01", f"apt-get -q update && apt-get -q install -y {package}")
        write = f"umask 077; printf '%s\\n' {shlex.quote(text)} > {path}; rm {NETWORKD}"
        shell("vm-01", f"{write}; {{ {load}; }} 2>&1")
        assert HOSTS["vm-01"] in shell("vm-01", "ip -4 address show dev eth0")
    return path


def bonded(site: Site, replaces: str, *members: str) -> None:
    """Declare a bond of these members with the management network, and a VLAN on it."""
    bond = {"name": "bond0", "members": list(members), "mode": "active-backup"}
    site.settings(
        node_network_backend="auto",
        node_network_confirm_s=CONFIRM_S,
        node_network_replaces=[replaces],
        node_interfaces=[
            {**bond, "network": "management", "mtu": 1480},
            {"name": "bond0.20", "parent": "bond0", "network": "storage", "mtu": 1400},
        ],
    )


def assert_bonded() -> None:
    """The kernel has the bond of eth0 and eth1, and the VLAN carries packets."""
    bond = shell("vm-01", "cat /proc/net/bonding/bond0")
    assert "Bonding Mode: fault-tolerance (active-backup)" in bond
    assert sorted(re.findall("Slave Interface: (.*)", bond)) == ["eth0", "eth1"]
    shown = json.loads(shell("vm-01", "ip -d -j address show"))
    links = {link["ifname"]: link for link in shown}
    assert (links["bond0"]["mtu"], links["bond0.20"]["mtu"]) == (1480, 1400)
    assert links["bond0.20"]["linkinfo"]["info_data"]["id"] == 20
    addresses = {
        name: [one["local"] for one in links[name]["addr_info"] if one["family"] == "inet"]
        for name in ("bond0", "bond0.20", "eth0", "eth1")
    }
    assert addresses == {"bond0": [HOSTS["vm-01"]], "bond0.20": TAGGED[:1], "eth0": [], "eth1": []}
    shell("vm-01", f"ping -c 1 -w 10 -M do -s 1372 {TAGGED[1]}")


@pytest.fixture(scope="module", name="vlan")
def the_vlan() -> Iterator[None]:
    """Another machine on the VLAN."""
    pod("up", "--name", NAME, "--machine", f"vm-02={HOSTS['vm-02']}")
    shell("vm-02", "ip link add link eth0 name eth0.20 type vlan id 20; ip link set eth0.20 up")
    shell("vm-02", f"ip address replace {TAGGED[1]}/24 dev eth0.20")
    yield
    if not os.environ.get("KEEP"):
        pod("down", "--force", "--name", NAME, "vm-02")


@pytest.mark.parametrize("service", SERVICES)
def test_a_bond_and_a_vlan_with_a_way_back(site: Site, vlan: None, service: str) -> None:
    fresh(f"vm-02={HOSTS['vm-02']}:machine")
    replaces = configured_by(service)
    bonded(site, replaces, "eth0", "eth1")
    consent = ("-e", json.dumps({"node_network_change_allowed": True}))
    made = site.run("configure_network", *consent)
    assert made.rc == 0, made.why
    assert_bonded()
    shell("vm-01", "ip link set eth0 down")
    assert "Currently Active Slave: eth1" in shell("vm-01", "cat /proc/net/bonding/bond0")
    shell("vm-01", "ip link set eth0 up")
    again = site.run("configure_network")
    assert (again.rc, again.changed["vm-01"]) == (0, 0), again.output[-3000:]

    # Ports that lead nowhere: the control machine is cut off until the node returns by itself. With
    # their cables it would be reached: NetworkManager leaves eth0 up, which hears bond0's address,
    # and this host answers for its own on every cable.
    cut_rails("vm-01")
    bonded(site, replaces, "eth2", "eth3")
    cut = site.run("configure_network", *consent)
    assert cut.rc != 0
    assert "Wait for a connection over the new network" in cut.why
    # From here on: the node loads the old network by itself, however long the playbook took.
    begun = time.monotonic()
    while "in time" not in shell("vm-01", f"cat {OUTCOME}", check=False):
        assert time.monotonic() - begun < 4 * CONFIRM_S
        time.sleep(5)
    assert_bonded()

    # The same, and a power cut before the time is over.
    shell("vm-01", f"{NETWORK} change 1800")
    time.sleep(30)
    cut_power("vm-01")
    pod("up", "--name", NAME)
    assert "booted before" in shell("vm-01", f"cat {OUTCOME}")
    assert_bonded()
    bonded(site, replaces, "eth0", "eth1")
    assert site.run("configure_network").rc == 0
    again = site.run("configure_network")
    assert (again.rc, again.changed["vm-01"]) == (0, 0), again.output[-3000:]


# As the plan has them of a rail with its router at the other end of a /31, and of one with a router
# for all hosts.
RAIL_0 = {
    "port": "rail0", "address": "10.80.0.11/31", "mtu": 1400,
    "source": "10.80.0.11", "gateway": "10.80.0.10", "table": 1000,
    "routes": [
        {"to": "10.80.0.0/18", "via": "10.80.0.10"},
        {"to": "0.0.0.0/0", "via": "10.80.0.10", "table": 1000},
    ],
}  # fmt: skip
RAIL_1 = {
    "port": "rail1", "address": "10.80.64.11/24", "mtu": 1400,
    "source": "10.80.64.11", "gateway": "10.80.64.1", "table": 1001,
    "routes": [
        {"to": "10.80.64.0/24", "table": 1001},
        {"to": "0.0.0.0/0", "via": "10.80.64.1", "table": 1001},
    ],
}  # fmt: skip


def assert_routed() -> None:
    """What is sent from the address of a rail leaves by that rail, and the rest as before."""
    ways = {
        "10.80.1.1": "via 10.80.0.10 dev rail0 src 10.80.0.11",
        "198.51.100.9 from 10.80.0.11": "from 10.80.0.11 via 10.80.0.10 dev rail0 table 1000",
        "198.51.100.9 from 10.80.64.11": "from 10.80.64.11 via 10.80.64.1 dev rail1 table 1001",
        "10.80.64.12 from 10.80.64.11": "from 10.80.64.11 dev rail1",
        f"{SUBNET}.1": "dev eth0",
    }
    for to, way in ways.items():
        assert way in shell("vm-01", f"ip route get {to}"), to
    links = json.loads(shell("vm-01", "ip -j link show"))
    assert {link["mtu"] for link in links if link["ifname"].startswith("rail")} == {1400}


@pytest.mark.parametrize("service", RAIL_SERVICES)
def test_routed_rails_have_names_and_ways(site: Site, tmp_path: Path, service: str) -> None:
    """Interfaces are renamed by their place on the PCI bus, and each rail has its own way out."""
    fresh()
    configured_by(service)
    places = [
        re.findall("[0-9a-f]{4}(?::[0-9a-f]{2}){2}[.][0-7]", path)[-1]
        for path in shell("vm-01", "readlink -f /sys/class/net/eth[23]/device").split()
    ]
    site.settings(
        infiniband_link_layer="Ethernet",
        infiniband_rails=[
            {"rail": rail, "pci": pci, "rate_gbps": 400} for rail, pci in enumerate(places)
        ],
        infiniband_addresses=[RAIL_0, RAIL_1],
        infiniband_network_manager=service,
        # They are adapters of the emulator: no mlx5, and no PCI Express.
        infiniband_health_required=False,
        infiniband_max_read_request=0,
    )
    play = tmp_path / "rails.yml"
    write_yaml(tmp_path, {play.name: [{"hosts": "vm-01", "roles": ["baremetal.dgx.infiniband"]}]})
    renamed = site.run(str(play))
    assert renamed.rc != 0
    assert "if there is no rail0: reboot, interfaces are renamed then" in renamed.why
    reboot = [{"hosts": "vm-01", "tasks": [{"ansible.builtin.reboot": {"reboot_timeout": 900}}]}]
    write_yaml(tmp_path, {"reboot.yml": reboot})
    for _boot in range(2):
        booted = site.run(str(tmp_path / "reboot.yml"))
        assert booted.rc == 0, booted.why
        made = site.run(str(play))
        assert made.rc == 0, made.why
        assert_routed()
    # They came back by themselves.
    assert made.changed["vm-01"] == 0, made.tasks("changed")
    shell("vm-01", "ip rule del priority 1001; ip route flush table 1000")
    repaired = site.run(str(play))
    assert repaired.rc == 0, repaired.why
    assert_routed()
