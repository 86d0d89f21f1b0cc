#!/usr/bin/env python3
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the part of /sys and /proc that shows the simulated GPUs of a node, below another root.

sysfs.py --root DIR makes DIR/sys and DIR/proc. It reads the state file that the simulated libraries
read (SIMULATED_HARDWARE, else /run/simulated-hardware/state), so that PCI and NVML tell one story.
Keys of a GPU: absent, pcie_width, pcie_generation, pcie_generation_max, pcie_switch_width (the link
above its switch), pci_id, pci_class, numa, kernel_driver, minor, mig_instances. Keys of the node:
gpus (PCI addresses), numa, driver_loaded, driver_version, module_version, nouveau, nvswitches. Run
it again after a change.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

DRIVER = "580.105.08"
GPUS = "1b:00.0,43:00.0,52:00.0,61:00.0,9d:00.0,c3:00.0,d1:00.0,df:00.0"
SWITCHES = tuple(f"{bus:02x}:00.0" for bus in range(5, 15))
SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}
ENDPOINT, ROOT_PORT, UPSTREAM, DOWNSTREAM = 0, 4, 5, 6


class State:
    """The state file; the last line of a key counts."""

    def __init__(self, path: Path) -> None:
        self._values: dict[str, str] = {}
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        for line in text.splitlines():
            key, equals, value = line.partition("=")
            if equals and not key.lstrip().startswith("#"):
                self._values[key.strip()] = value.strip()

    def of_node(self, key: str, fallback: str) -> str:
        """Return a key of the node."""
        return self._values.get(key, fallback)

    def of_gpu(self, gpu: int, key: str, fallback: str) -> str:
        """Return a key of a GPU: its own, that of all GPUs, or the fallback."""
        every = self._values.get(f"gpu.*.{key}", fallback)
        return self._values.get(f"gpu.{gpu}.{key}", every)


def config_space(port: int) -> bytes:
    """Return a configuration space that says what kind of PCI Express port a function is."""
    config = bytearray(256)
    config[0x06] = 0x10
    config[0x34] = 0x60
    config[0x60:0x62] = bytes([0x10, 0x00])
    config[0x62:0x64] = (port << 4 | 2).to_bytes(2, "little")
    return bytes(config)


class Writer:
    """Writes functions into the tree."""

    def __init__(self, sys: Path) -> None:
        self.sys = sys
        self.devices = sys / "bus/pci/devices"
        self.devices.mkdir(parents=True)

    def function(self, folder: Path, port: int, ids: tuple[str, str, str], link: dict) -> None:
        """Write a function; ids are vendor, device and class, link what both its ends can do."""
        folder.mkdir(parents=True, exist_ok=True)
        speed = SPEEDS[int(link.get("generation", 5))]
        files = {
            "vendor": ids[0],
            "device": ids[1],
            "class": ids[2],
            "numa_node": link.get("numa", "-1"),
            "current_link_speed": f"{speed} GT/s PCIe",
            "max_link_speed": f"{SPEEDS[int(link.get('able', 5))]} GT/s PCIe",
            "current_link_width": link.get("width", "16"),
            "max_link_width": "16",
        }
        for name, value in files.items():
            (folder / name).write_text(f"{value}\n", encoding="ascii")
        (folder / "config").write_bytes(config_space(port))
        (self.devices / folder.name).symlink_to(os.path.relpath(folder, self.devices))

    def bind(self, folder: Path, driver: str) -> None:
        """Give a function its driver."""
        if driver == "none":
            return
        target = self.sys / "bus/pci/drivers" / driver
        target.mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(os.path.relpath(target, folder))


def make_gpu(writer: Writer, state: State, number: int, address: str, numa: str) -> None:
    """Write a GPU below a downstream port of a switch, which is below a root port."""
    bus = int(address.split(":")[0], 16)
    # Slots that no card has, so that a bridge never takes the address of another device.
    names = [f"0000:{(bus - 3 + step) % 256:02x}:{0x1C + step:02x}.0" for step in range(3)]
    root = writer.sys / f"devices/pci{names[0][:7]}" / names[0]
    above = state.of_gpu(number, "pcie_switch_width", "16")
    bridge = ("0x1000", "0xc030", "0x060400")
    writer.function(root, ROOT_PORT, ("0x8086", "0x352a", "0x060400"), {"width": above})
    writer.function(root / names[1], UPSTREAM, bridge, {"width": above})
    narrow = {
        "width": state.of_gpu(number, "pcie_width", "16"),
        "generation": state.of_gpu(number, "pcie_generation", "5"),
        "able": state.of_gpu(number, "pcie_generation_max", "5"),
    }
    writer.function(root / names[1] / names[2], DOWNSTREAM, bridge, narrow)
    gpu = root / names[1] / names[2] / f"0000:{address}"
    device = state.of_gpu(number, "pci_id", "0x233010de").lower()[:6]
    ids = ("0x10de", device, state.of_gpu(number, "pci_class", "0x030200"))
    place = {**narrow, "numa": state.of_gpu(number, "numa", numa)}
    writer.function(gpu, ENDPOINT, ids, place)
    loaded = state.of_node("driver_loaded", "1") == "1"
    writer.bind(gpu, state.of_gpu(number, "kernel_driver", "nvidia" if loaded else "none"))


def make_numbers(proc: Path, address: str, number: int, instances: str) -> None:
    """Write the number of a GPU's device file, and those of MIG instances.

    `mig_instances = 9:1g.10gb,…`; their numbers are the driver's: 135 for each GPU, 9 for each GPU
    instance, from 3 on.
    """
    about = proc / "gpus" / f"0000:{address}"
    about.mkdir(parents=True)
    text = f"Bus Location: \t 0000:{address}\nDevice Minor: \t {number}\nGPU Excluded:\t No\n"
    (about / "information").write_text(text, encoding="ascii")
    for instance in instances.split(",") if instances else ():
        own = int(instance.split(":")[0])
        folder = proc / f"capabilities/gpu{number}/mig/gi{own}"
        first = 3 + 135 * number + 9 * own
        for place, minor in ((folder, first), (folder / "ci0", first + 1)):
            place.mkdir(parents=True)
            text = f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
            (place / "access").write_text(text, encoding="ascii")


def make(root: Path, state: State, gpus: list[str], numa: list[str]) -> None:
    """Make both trees new."""
    for name in ("sys", "proc"):
        shutil.rmtree(root / name, ignore_errors=True)
    writer = Writer(root / "sys")
    for number, address in enumerate(gpus):
        if state.of_gpu(number, "absent", "0") == "0":
            make_gpu(writer, state, number, address, numa[number])
    free = [address for address in SWITCHES if address not in gpus]
    for address in free[: int(state.of_node("nvswitches", "4"))]:
        folder = root / "sys/devices/pci0000:00" / f"0000:{address}"
        writer.function(folder, ENDPOINT, ("0x10de", "0x22a3", "0x068000"), {"numa": "0"})
        writer.bind(folder, "nvidia-nvswitch")
    if state.of_node("nouveau", "0") == "1":
        (root / "sys/module/nouveau").mkdir(parents=True)
    if state.of_node("driver_loaded", "1") == "1":
        version = state.of_node("module_version", state.of_node("driver_version", DRIVER))
        module = root / "sys/module/nvidia"
        module.mkdir(parents=True)
        (module / "version").write_text(f"{version}\n", encoding="ascii")
        proc = root / "proc/driver/nvidia"
        proc.mkdir(parents=True)
        line = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  (simulated)"
        (proc / "version").write_text(f"{line}\n", encoding="ascii")
        for number, address in enumerate(gpus):
            minor = int(state.of_gpu(number, "minor", str(number)))
            make_numbers(proc, address, minor, state.of_gpu(number, "mig_instances", ""))


def main() -> None:
    """Read the arguments and the state, and write."""
    default = os.environ.get("SIMULATED_HARDWARE") or "/run/simulated-hardware/state"
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--root", type=Path, default=Path("/run/simulated-hardware"))
    parser.add_argument("--state", type=Path, default=Path(default))
    parser.add_argument("--gpus", help="PCI addresses, with commas")
    parser.add_argument("--numa", help="their NUMA nodes")
    given = parser.parse_args()
    state = State(given.state)
    gpus = (given.gpus or state.of_node("gpus", GPUS)).split(",")
    numa = (given.numa or state.of_node("numa", "0,0,0,0,1,1,1,1")).split(",")
    if len(gpus) != len(numa):
        parser.error(f"{len(gpus)} addresses, but {len(numa)} NUMA nodes")
    make(given.root, state, gpus, numa)


if __name__ == "__main__":
    main()
