# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What needs its own kernel: in machines under QEMU, with processors that are emulated.

`tests/soak/machines` runs it; KEEP=1 leaves the pod as it is at the end. Times are not those of a
real node. What was seen is noted in .cache/machines.log, and in docs/virtual_pod.md.
"""

from __future__ import annotations

import json
import os
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
HOSTS = {"vm-01": f"{SUBNET}.21", "vm-02": f"{SUBNET}.22"}
TAGGED = ["10.79.20.21", "10.79.20.22"]
CACHE = Path(os.environ.get("BAREMETAL_POD_CACHE") or "/var/cache/baremetal-dgx-pod")
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
        path = self.folder / "host_vars" / f"{host}.yml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(values))

    def run(self, name: str, *arguments: str, target: str = "vm-01") -> Run:
        """Run a playbook to its end."""
        argv = ["ansible-playbook", f"baremetal.dgx.{name}", "-i", str(self.folder)]
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
    first = f"vm-01={HOSTS['vm-01']}:machine"
    pod("up", "--name", NAME, "--subnet", f"{SUBNET}.0/24", "--hosts", first)
    node, head = (
        {"hosts": {host: {"ansible_host": ip, "node_address": {"management": ip, "storage": tag}}}}
        for host, ip, tag in zip(HOSTS, HOSTS.values(), TAGGED, strict=True)
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
        "group_vars/cluster/node.yml": {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(CHECKOUT / ".pod" / NAME / "id"),
            "ansible_ssh_extra_args": f"-F {CHECKOUT / '.pod' / NAME / 'ssh_config'}",
            "ansible_python_interpreter": "/usr/bin/python3",
        },
    }  # fmt: skip
    for name, data in write.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(data))
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
        kernels = [shell(host, "uname -r", check=False).strip() for host in ("vm-01", "vm-03")]
        with (CHECKOUT / ".cache" / "machines.log").open("a") as log:
            log.write(f"{day} | {max(kernels)} | {took:.0f} s | {request.node.name}\n")


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


@pytest.fixture(name="ceph")
def the_ceph(site: Site) -> str:
    """A real Ceph of one node beside the machine; its address."""
    address = f"{SUBNET}.31"
    hosts = f"vm-01={HOSTS['vm-01']}:machine,stor-01={address}"
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
    for name, data in write.items():
        path = site.folder / "group_vars" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(data))
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
