# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines with their own kernel: QEMU, its processor emulated, so that any host will do.

A machine is a folder with the layer of its root disk, two NVMe disks, and the lock that its QEMU
holds for as long as it lives. What is only half there has no machine.json yet.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import pathlib
import shlex
import shutil
from typing import Any

from podlib import daemons, disk, host, network
from podlib.layout import Node, Pod, PodError

# program: package
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mke2fs": "e2fsprogs",
}
NVME_DISKS = 2
_NVME_BYTES = 1 << 30
_BOOT = [host.CHECKOUT / "virtual_pod" / name for name in ("node-identity.sh", "machine-boot.sh")]


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine as its folder shows it."""

    pod: str
    node: str
    state: str
    record: dict[str, Any]


def folder(pod_name: str, node: str) -> pathlib.Path:
    """Return where a machine's disks are."""
    return disk.FOLDER / pod_name / node


def found(pod_name: str | None = None) -> list[Machine]:
    """Return the machines of a pod, or of all pods: running, exited, or created and not whole."""
    machines = []
    for path in disk.FOLDER.glob(f"{pod_name or '*'}/*/"):
        note = path / "machine.json"
        state = "running" if daemons.lives(path / "lock") else "exited"
        record = json.loads(note.read_text()) if note.exists() else {}
        machines.append(
            Machine(path.parent.name, path.name, state if record else "created", record)
        )
    return machines


def lives(pod_name: str, node: str) -> bool:
    """Return whether a machine runs."""
    return daemons.lives(folder(pod_name, node) / "lock")


def boot_text(pod: Pod, node: Node, proxy: str, key: str) -> str:
    """Return the shell script of the first boot."""
    values = shlex.join([node.name, node.ip, proxy, key, "0", node.ip])
    return f"set -- {values}\n" + "".join(path.read_text() for path in _BOOT)


def make(pod: Pod, node: Node, base: pathlib.Path, boot: str, record: dict[str, str]) -> None:
    """Make a machine's folder; what is there of an earlier one goes."""
    path = folder(pod.name, node.name)
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(base), "-F", "raw"]
    done = host.ask([*argv, str(path / "root.qcow2")])
    if done.returncode:
        raise PodError(f"qemu-img: {done.stderr.strip()}")
    for number in range(NVME_DISKS):
        with (path / f"nvme{number}.img").open("w") as stream:
            stream.truncate(_NVME_BYTES)
    (path / "boot.sh").write_text(boot)
    (path / "machine.json.new").write_text(json.dumps({**record, "disk": base.name}))
    (path / "machine.json.new").rename(path / "machine.json")


def start(pod: Pod, node: Node) -> None:
    """Switch a machine on."""
    path = folder(pod.name, node.name)
    network.plug(pod, node)
    with (path / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        daemons.spawn(qemu_argv(node, path), lock, path / "qemu.out")


def remove(pod_name: str, node: str) -> None:
    """Switch a machine off and remove it with its disks and cables."""
    path = folder(pod_name, node)
    daemons.stop(path / "lock")
    note = path / "machine.json"
    if note.exists():
        network.unplug(Node(**json.loads(json.loads(note.read_text())["spec"])))
    shutil.rmtree(path, ignore_errors=True)


def console(pod_name: str, node: str) -> str:
    """Return the last line of a machine's console, or of QEMU's output."""
    for name in ("qemu.out", "console"):
        path = folder(pod_name, node) / name
        lines = path.read_text(errors="replace").split("\n") if path.exists() else []
        text = [line.strip() for line in lines if line.strip()]
        if text:
            return "".join(c for c in text[-1] if c.isprintable())[-100:]
    return "nothing on its console yet"


def qemu_argv(node: Node, path: pathlib.Path) -> list[str]:
    """Return QEMU's command line."""
    # Never KVM: what is written here as seen must be seen on every host. Without la57, page tables
    # of five levels cost each access of memory a further step; without svm, no KVM is loaded.
    argv = ["qemu-system-x86_64", "-name", node.name, "-accel", "tcg,thread=multi,tb-size=512"]
    argv += [
        "-cpu",
        "max,la57=off,svm=off",
        "-smp",
        str(node.machine_cpus),
        "-m",
        str(node.machine_mib),
        "-nodefaults",
    ]
    argv += ["-display", "none", "-serial", f"file:{path / 'console'}"]
    argv += ["-device", "virtio-rng-pci", "-fw_cfg"]
    argv += [f"name=opt/baremetal-dgx/boot,file={path / 'boot.sh'}"]
    argv += ["-drive", f"file={path / 'root.qcow2'},if=virtio,cache=writeback,discard=unmap"]
    for number in range(NVME_DISKS):
        image = f"file={path / f'nvme{number}.img'},format=raw,cache=writeback"
        argv += ["-drive", f"{image},if=none,id=nvme{number}"]
        serial = f"POD-{node.name}-{number}"[-20:]
        argv += ["-device", f"nvme,drive=nvme{number},serial={serial}"]
    for number, (port, mac) in enumerate(network.cards(node).items()):
        argv += ["-netdev", f"tap,id=net{number},ifname={port},script=no,downscript=no"]
        argv += ["-device", f"virtio-net-pci,netdev=net{number},mac={mac},romfile="]
    return argv
