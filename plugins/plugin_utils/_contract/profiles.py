# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Profiles: what a node model must look like, built in and from the inventory. Pure.

A built-in profile has the same shape as one in the inventory (`cluster_profiles`), so that a site
writes only what differs. The built-in ones, with the source of each figure, are in
_contract/profiles.yml.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.baremetal.dgx.plugins.module_utils._core.names import full_pci

from ...module_utils._core.schema import (
    Opaque,
    Option,
    Problem,
    Unresolved,
    check_value,
    closest,
    words,
)
from .contract import CLUSTER_VARIABLES, load


@dataclass(frozen=True)
class Cpu:
    """The processors, as Slurm counts them."""

    sockets: int
    cores_per_socket: int
    threads_per_core: int
    numa_nodes: int

    @property
    def cores(self) -> int:
        """Physical cores of the node."""
        return self.sockets * self.cores_per_socket

    @property
    def logical(self) -> int:
        """Logical CPUs of the node."""
        return self.cores * self.threads_per_core


@dataclass(frozen=True)
class Gpus:
    """The GPUs in the order of their device files: of PCI addresses, unless the driver counts
    otherwise (docs/slurm.md, device files).
    """

    count: int
    type: str
    memory_mib: int | None
    pci: tuple[str, ...]
    numa: tuple[int, ...]
    # For each GPU the physical cores next to it, in Slurm's numbering ("0-55").
    cores: tuple[str, ...]


@dataclass(frozen=True)
class NvLink:
    """Links of one GPU, and switches between them."""

    links_per_gpu: int
    nvswitches: int


@dataclass(frozen=True)
class Rail:
    """One port of the compute fabric, named by PCI address: mlx5 numbers differ by model."""

    rail: int
    hca_pci: str | None
    cage: str | None
    port: int | None
    numa: int | None
    # The RDMA device as the kernel numbers it, before the role infiniband has named it.
    device: str | None


@dataclass(frozen=True)
class Pcie:
    """What the link of each rail's adapter to its root must have come to."""

    generation: int
    width: int


@dataclass(frozen=True)
class StoragePort:
    """A port beside the rails: for storage, or for the network of SSH and Slurm."""

    pci: str
    slot: int | None
    port: int | None
    # What it is as delivered; mlxconfig may say otherwise.
    link_layer: str
    device: str | None


@dataclass(frozen=True)
class IgnoredHcas:
    """Adapters that are not part of any network, and how they are known: either way suffices."""

    reason: str
    # A field of the vital product data, "SMDL=SW_MNG".
    vpd: str | None
    # A glob of network device names.
    netdev: str | None
    count: int | None


@dataclass(frozen=True)
class Nvme:
    """Local disks: of the operating system and for scratch, and what scratch must do."""

    os_disks: int | None
    data_disks: int | None
    read_mb_s: int | None = None
    write_mb_s: int | None = None
    read_iops: int | None = None
    write_iops: int | None = None


@dataclass(frozen=True)
class Bmc:
    """The machine as its BMC knows it, and the rule for the version of each component."""

    system: str | None
    # By id or pattern of ids one of exact, minimum, alike.
    firmware: Mapping[str, Mapping[str, Any]]
    packages: tuple[Mapping[str, Any], ...] = ()
    bios: Mapping[str, Any] = field(default_factory=dict)
    boot_order: tuple[str, ...] = ()


@dataclass(frozen=True)
class Profile:
    """What a node of one model must look like; None is what the model leaves open."""

    name: str
    product_names: tuple[str, ...]
    cpu: Cpu | None
    real_memory_mb: int | None
    gpus: Gpus | None
    nvlink: NvLink | None
    rails: tuple[Rail, ...]
    link_rate_gbps: int | None
    rail_pcie: Pcie | None
    storage_ports: tuple[StoragePort, ...]
    ignored_hcas: tuple[IgnoredHcas, ...]
    nvme: Nvme | None
    bmc: Bmc | None
    rack_units: int | None
    power_w: int | None

    @property
    def is_grace(self) -> bool:
        """Whether the processors are NVIDIA's, with ARM cores."""
        return self.gpus is not None and self.gpus.type in _GPUS_OF_GRACE

    def open_figures(self) -> list[str]:
        """Return the figures that Slurm needs and the profile lacks."""
        needed = {"cpu": self.cpu, "real_memory_mb": self.real_memory_mb}
        return [name for name, figure in needed.items() if figure is None]


# Their memory is NUMA nodes of the host, which slurmd -C counts. (c) A Grace has up to 480 GB.
_GPUS_OF_GRACE = ("gb200", "gb300")
_MOST_MIB_OF_GRACE = 512 * 1024
_SCRATCH = ("read_mb_s", "write_mb_s", "read_iops", "write_iops")

BUILT_IN: dict[str, dict[str, Any]] = load("profiles.yml")

PROFILE_OPTION = CLUSTER_VARIABLES["cluster_profiles"].each or Option()


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mappings merged key by key; lists and single values are replaced as a whole."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merge(old or {}, value) if both else value
    return merged


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _full_pci(address: str | None) -> str | None:
    """Return the address as sysfs writes it, with domain and in lower case."""
    return None if address is None else full_pci(address)


def _typed(name: str, data: Mapping[str, Any]) -> Profile:
    """Return the profile that checked data describes."""
    cpu, gpus, nvlink = data.get("cpu"), data.get("gpus"), data.get("nvlink")
    nvme, pcie, bmc = data.get("nvme"), data.get("rail_pcie"), data.get("bmc")
    return Profile(
        name=name,
        product_names=tuple(data.get("product_names") or ()),
        cpu=None if cpu is None else Cpu(**{key: int(value) for key, value in cpu.items()}),
        real_memory_mb=_whole(data.get("real_memory_mb")),
        gpus=None
        if not gpus or not int(gpus["count"])
        else Gpus(
            count=int(gpus["count"]),
            type=gpus["type"],
            memory_mib=_whole(gpus.get("memory_mib")),
            pci=tuple(str(_full_pci(address)) for address in gpus.get("pci") or ()),
            numa=tuple(int(number) for number in gpus.get("numa") or ()),
            cores=tuple(gpus.get("cores") or ()),
        ),
        nvlink=None
        if nvlink is None
        else NvLink(int(nvlink.get("links_per_gpu", 0)), int(nvlink.get("nvswitches", 0))),
        rails=tuple(
            Rail(
                rail=int(rail["rail"]),
                hca_pci=_full_pci(rail.get("hca_pci")),
                cage=rail.get("cage"),
                port=_whole(rail.get("port")),
                numa=_whole(rail.get("numa")),
                device=rail.get("device"),
            )
            for rail in data.get("rails") or ()
        ),
        link_rate_gbps=_whole(data.get("link_rate_gbps")),
        rail_pcie=None
        if pcie is None
        else Pcie(generation=int(pcie["generation"]), width=int(pcie["width"])),
        storage_ports=tuple(
            StoragePort(
                pci=str(_full_pci(port["pci"])),
                slot=_whole(port.get("slot")),
                port=_whole(port.get("port")),
                link_layer=port["link_layer"],
                device=port.get("device"),
            )
            for port in data.get("storage_ports") or ()
        ),
        ignored_hcas=tuple(
            IgnoredHcas(
                reason=item["reason"],
                vpd=item.get("vpd"),
                netdev=item.get("netdev"),
                count=_whole(item.get("count")),
            )
            for item in data.get("ignored_hcas") or ()
        ),
        nvme=None
        if nvme is None
        else Nvme(**{key: _whole(nvme.get(key)) for key in ("os_disks", "data_disks", *_SCRATCH)}),
        bmc=None
        if bmc is None
        else Bmc(
            system=bmc.get("system"),
            firmware=bmc.get("firmware") or {},
            packages=tuple(bmc.get("packages") or ()),
            bios=bmc.get("bios") or {},
            boot_order=tuple(bmc.get("boot_order") or ()),
        ),
        rack_units=_whole(data.get("rack_units")),
        power_w=_whole(data.get("power_w")),
    )


def _cores_of(text: str) -> list[int]:
    cores: list[int] = []
    for part in text.split(","):
        first, _dash, last = part.partition("-")
        cores.extend(range(int(first), int(last or first) + 1))
    return cores


def _incomplete(path: str, data: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the keys that a part of the merged profile lacks."""
    needs = {
        "cpu": ("sockets", "cores_per_socket", "threads_per_core", "numa_nodes"),
        "gpus": ("count", "type"),
    }
    for part, keys in needs.items():
        for key in keys:
            if isinstance(data.get(part), Mapping) and data[part].get(key) is None:
                where = f"{path}.{part}.{key}"
                yield Problem(where, "missing", "write it, or inherit it from another profile")


def _inconsistent(path: str, profile: Profile) -> Iterator[Problem]:
    """Yield where the parts of a profile contradict each other."""
    gpus, cpu = profile.gpus, profile.cpu
    for part in ("pci", "numa", "cores") if gpus else ():
        length = len(getattr(gpus, part))
        if gpus and length not in (0, gpus.count):
            yield Problem(
                f"{path}.gpus.{part}",
                f"{length} entries for {gpus.count} GPUs",
                "write one for each GPU",
            )
    for index, text in enumerate(gpus.cores if gpus and cpu else ()):
        cores, width = _cores_of(text), cpu.cores_per_socket if cpu else 1
        where = f"{path}.gpus.cores[{index}]"
        if cpu and max(cores) >= cpu.cores:
            wrong = f"'{text}' goes beyond core {cpu.cores - 1}, the last one"
            yield Problem(where, wrong, "write physical cores of this node")
        elif any(cores.count(core) != 1 for core in cores) or any(
            sum(1 for core in cores if core // width == socket) not in (0, width)
            for socket in {core // width for core in cores}
        ):
            wrong = f"'{text}' is only part of a socket of {width} cores, which Slurm refuses"
            yield Problem(where, wrong, "write whole sockets")
    most = cpu.sockets * _MOST_MIB_OF_GRACE if cpu and profile.is_grace else None
    if most and (profile.real_memory_mb or 0) > most:
        wrong = f"{profile.real_memory_mb} has the memory of the GPUs in it, as slurmd -C may print"
        remedy = f"write what the NUMA nodes with CPUs have (numactl -H), at most {most}"
        yield Problem(f"{path}.real_memory_mb", wrong, remedy)
    if [rail.rail for rail in profile.rails] != list(range(len(profile.rails))):
        yield Problem(
            path + ".rails", "rails are not numbered 0, 1, 2, … in order", "write each number once"
        )
    rails = [rail.hca_pci for rail in profile.rails if rail.hca_pci]
    ports = [port.pci for port in profile.storage_ports]
    for part, addresses in (
        ("gpus.pci", list(gpus.pci) if gpus else []),
        ("rails", rails),
        ("storage_ports", ports + sorted(set(rails))),
    ):
        for address in sorted({item for item in addresses if addresses.count(item) > 1}):
            also = ", once as a rail" if part == "storage_ports" and address in rails else ""
            wrong = f"PCI address {address} is written twice{also}"
            yield Problem(f"{path}.{part}", wrong, "write the address of each device")
    for index, item in enumerate(profile.ignored_hcas):
        if item.vpd is None and item.netdev is None:
            where = f"{path}.ignored_hcas[{index}]"
            yield Problem(where, "nothing to know the adapters by", "write vpd or netdev")
    for name, rule in profile.bmc.firmware.items() if profile.bmc else ():
        if len(rule) != 1 or rule.get("alike") is False:
            where = f"{path}.bmc.firmware.{name}"
            wrong = f"{len(rule)} rules" if len(rule) != 1 else "alike: false asks nothing"
            yield Problem(where, wrong, "write one of exact, minimum and alike: true")
    if profile.bmc:
        yield from _contrary_packages(f"{path}.bmc.packages", profile.bmc)


def _contrary_packages(path: str, bmc: Bmc) -> Iterator[Problem]:
    """Yield packages that bring nothing, are there twice, or undo what another one brings."""
    known: dict[str, str] = {}
    brought = [
        (name, rule["exact"], f"bmc.firmware.{name}")
        for name, rule in bmc.firmware.items()
        if "exact" in rule
    ]
    for number, package in enumerate(bmc.packages):
        where, here = f"{path}[{number}]", f"bmc.packages[{number}]"
        if not package["components"]:
            remedy = "write each component that it brings, with its version"
            yield Problem(f"{where}.components", "nothing could be read back", remedy)
        if package.get("cycle") == "next" and number == len(bmc.packages) - 1:
            wrong = "no package comes after it"
            yield Problem(f"{where}.cycle", wrong, "write own, or leave it out")
        if package["sha256"] in known:
            wrong = f"is also that of {known[package['sha256']]}"
            yield Problem(f"{where}.sha256", wrong, "write a package once, with all its components")
        known.setdefault(package["sha256"], here)
        for name, version in package["components"].items():
            for other, wanted, place in brought:
                alike = fnmatch.fnmatchcase(name, other) or fnmatch.fnmatchcase(other, name)
                if alike and wanted != version:
                    wrong = f"{version} here, {wanted} in {place}"
                    remedy = "write one version of each component"
                    yield Problem(f"{where}.components.{name}", wrong, remedy)
        brought += [(name, version, here) for name, version in package["components"].items()]


def _chain(
    name: str, site: Mapping[str, Any], broken: list[str], path: str
) -> tuple[list[Mapping[str, Any]], Problem | None]:
    """Return what the profile is made of, most general first, or what breaks the chain.

    Nothing at all comes back for a profile that inherits from one of the broken.
    """
    parts: list[Mapping[str, Any]] = []
    seen: list[tuple[str, bool]] = []
    # A site's profile may bear the name of the built-in one that it changes.
    step: tuple[str, bool] = (name, name in site)
    while True:
        seen.append(step)
        part = site[step[0]] if step[1] else BUILT_IN[step[0]]
        parts.insert(0, part)
        parent = part.get("inherit") or (step[0] if step[1] and step[0] in BUILT_IN else None)
        if parent is None:
            return parts, None
        from_site = parent in site and parent != step[0] and step[1]
        where = f"{path}.{step[0]}.inherit"
        if parent in broken:
            return [], None
        if not from_site and parent not in BUILT_IN:
            known = sorted(set(BUILT_IN) | (set(site) - {step[0]}))
            remedy = "write %s" % (closest(parent, known) or words(known))
            return [], Problem(where, f"no profile is called '{parent}'", remedy)
        step = (parent, from_site)
        if step in seen:
            wrong = "inherits from itself: " + " > ".join(item for item, _site in [*seen, step])
            return [], Problem(where, wrong, f"write a built-in profile: {words(sorted(BUILT_IN))}")


def _unusable(value: Any) -> bool:
    if isinstance(value, (Opaque, Unresolved)):
        return True
    if isinstance(value, Mapping):
        return any(_unusable(item) for item in value.values())
    return isinstance(value, (list, tuple)) and any(_unusable(item) for item in value)


def resolve_profiles(
    site: Mapping[str, Any], path: str
) -> tuple[dict[str, Profile], list[Problem], list[str]]:
    """Return all profiles by name, what is wrong with the site's, and the names of the wrong."""
    profiles: dict[str, Profile] = {}
    problems: list[Problem] = []
    broken: list[str] = []
    valid: dict[str, Any] = {}
    for name, written in site.items():
        found = list(check_value(f"{path}.{name}", written, PROFILE_OPTION))
        problems.extend(found)
        if found or _unusable(written):
            broken.append(name)
        else:
            valid[name] = written
    for name in sorted(set(BUILT_IN) | set(valid)):
        if name in broken:
            continue
        where = f"{path}.{name}"
        parts, problem = _chain(name, valid, broken, path)
        found = [problem] if problem else []
        if not parts and not problem:
            broken.append(name)
        elif not found:
            data: dict[str, Any] = {}
            for part in parts:
                data = _merge(data, part)
            found = list(_incomplete(where, data))
            if not found:
                profiles[name] = _typed(name, data)
                found = list(_inconsistent(where, profiles[name]))
        if found:
            problems.extend(found)
            broken.append(name)
    return {name: item for name, item in profiles.items() if name not in broken}, problems, broken
