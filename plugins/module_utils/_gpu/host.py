# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the node itself shows of its GPUs, without NVML: PCI, kernel modules, fabric manager.

This still answers where the driver does not.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from typing import Any, Mapping

from .._core.run import CommandRunner
from .._host.pci import PciFunction, Tree, links_of, load_path, whole
from .read import Sweep

# The GPUs with their MIG instances.
LISTED = ("nvidia-smi", "-L")
_GPUS = re.compile(r"^GPU (?=\d+: )", re.M)
_MIG = re.compile(r"^[ \t]+MIG (\S+) +Device +\d+:", re.M)
_NVIDIA = "0x10de"
# Class codes of the PCI Code and ID Assignment Specification: VGA and 3D controllers, and bridges
# of the kind "other", which NVSwitches are.
_GPU_CLASSES = ("0x0300", "0x0302")
_SWITCH_CLASS = "0x0680"
_FABRIC_MANAGER = re.compile(r"version is *: *(\S+)")
_MODULE = re.compile(r"NVRM version: NVIDIA UNIX (?P<kind>.*?) +(?P<version>\d+\.[0-9.]+) ")


@dataclass(frozen=True)
class PciGpu:
    """A GPU on the PCI bus."""

    pci: str
    driver: str | None
    numa: int | None
    path: tuple[PciFunction, ...] = ()


@dataclass(frozen=True)
class Host:
    """The node's side; `has_pci` is False where the tree shows no PCI bus at all.

    `open_module` is None where the driver does not tell. `fabric_manager` is its release; None
    comes with a reason in `fabric_manager_absent`. `instances` are the MIG instances of each GPU by
    NVML's index; `instances_absent` is why one is not there.
    """

    has_pci: bool = False
    gpus: tuple[PciGpu, ...] = ()
    switches: tuple[str, ...] = ()
    module_version: str | None = None
    open_module: bool | None = None
    nouveau: bool = False
    fabric_manager: str | None = None
    fabric_manager_absent: str = "not asked"
    instances: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    instances_absent: str = "not asked"


def _gpu(tree: Tree, address: str, base: str) -> PciGpu:
    numa = whole(tree.text(base, "numa_node"))
    driver = os.path.join(base, "driver")
    bound = os.path.islink(tree.path(driver))
    return PciGpu(
        pci=address,
        driver=os.path.basename(tree.real(driver)) if bound else None,
        numa=None if numa is None or numa < 0 else numa,
        path=load_path(tree, tree.real(base)),
    )


def load_host(sysfs: str, proc: str) -> Host:
    """Read the trees; `sysfs` is /sys and `proc` /proc, or copies of them."""
    # Real paths are taken apart again below the root, which must be real itself.
    tree = Tree(os.path.realpath(sysfs))
    gpus, switches = [], []
    addresses = tree.names("bus", "pci", "devices")
    for address in addresses:
        base = os.path.join("bus", "pci", "devices", address)
        if tree.text(base, "vendor") != _NVIDIA:
            continue
        kind = (tree.text(base, "class") or "")[:6]
        if kind in _GPU_CLASSES:
            gpus.append(_gpu(tree, address, base))
        elif kind == _SWITCH_CLASS:
            switches.append(address)
    reported = Tree(proc).text("driver", "nvidia", "version") or ""
    found = _MODULE.search(reported)
    loaded = tree.text("module", "nvidia", "version")
    return Host(
        has_pci=bool(addresses),
        gpus=tuple(gpus),
        switches=tuple(switches),
        module_version=loaded or (found["version"] if found else None),
        open_module="Open" in found["kind"] if found else None,
        nouveau=os.path.isdir(tree.path("module", "nouveau")),
    )


def fabric_manager(run: CommandRunner, command: str, timeout_s: float) -> tuple[str | None, str]:
    """Return (release, why there is none) of the fabric manager that is installed."""
    result = run([command, "--version"], timeout_s)
    found = _FABRIC_MANAGER.search(result.out) if result.ok else None
    if found is None:
        return None, result.describe()
    return found.group(1), ""


def parse_instances(text: str) -> dict[int, tuple[str, ...]]:
    """Return the MIG instances of each GPU out of `nvidia-smi -L`, sorted by name."""
    return {
        int(one.partition(":")[0]): tuple(sorted(_MIG.findall(one)))
        for one in _GPUS.split(text)[1:]
    }


def with_instances(host: Host, run: CommandRunner, timeout_s: float) -> Host:
    """Return the node's side with its MIG instances, or why they are not known."""
    result = run(LISTED, timeout_s)
    if result.ok:
        return replace(host, instances=parse_instances(result.out), instances_absent="not listed")
    return replace(host, instances_absent=result.describe())


def info_result(sweep: Sweep, host: Host) -> dict[str, Any]:
    """Return a reading as mappings, lists and scalars."""
    seen = {gpu.pci: gpu for gpu in host.gpus}
    gpus = []
    for gpu in sweep.gpus:
        # By hand: asdict copies deeply, which takes longer than the reading.
        data = dict(vars(gpu))
        data["links"] = [dict(vars(link)) for link in gpu.links]
        data["processes"] = [dict(vars(one)) for one in gpu.processes or ()]
        data["absent"] = dict(gpu.absent)
        found = seen.get(gpu.pci or "")
        data["numa"] = found.numa if found else None
        data["kernel_driver"] = found.driver if found else None
        data["pcie_links"] = [dict(vars(link)) for link in links_of(found.path)] if found else []
        gpus.append(data)
    return {
        "changed": False,
        "driver_version": sweep.driver_version or host.module_version,
        "nvml_version": sweep.nvml_version,
        "cuda_version": sweep.cuda_version,
        "module_version": host.module_version,
        "open_module": host.open_module,
        "nouveau": host.nouveau,
        "count": sweep.count,
        "gpus": gpus,
        "pci": [{"pci": gpu.pci, "driver": gpu.driver, "numa": gpu.numa} for gpu in host.gpus],
        "nvswitches": list(host.switches),
        "error": sweep.error,
        "stuck": {str(index): text for index, text in sweep.stuck.items()},
    }
