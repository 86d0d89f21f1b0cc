# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Which packages are a driver branch, by operating system, source and GPU. Tables and look-ups.

Letters: (c) NVIDIA's installation guide or production automation that was read; (i) the package
index of the distribution was read; (f) one field report; (?) from memory, to be seen on a machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Mapping

OPEN = "open"
PROPRIETARY = "proprietary"
DISTRIBUTION = "distribution"
NVIDIA = "nvidia_repository"
DIRECTORY = "directory"

# Branch -> CUDA major of its user-space driver. (c) NVIDIA's table of drivers and toolkits; 590 to
# 610 (f) tags and images of 2026.
BRANCHES: dict[str, int] = {
    "535": 12,
    "550": 12,
    "570": 12,
    "580": 13,
    "590": 13,
    "595": 13,
    "610": 13,
}

# (c) NVIDIA's notes on open kernel modules: Blackwell has no others, Volta and older have none.
OPEN_ONLY = ("b200", "b300", "gb200", "gb300")
PROPRIETARY_ONLY = ("v100", "p100", "p40", "m60", "k80")
# (c) Their NVSwitches are reached through a bridge that the NVLink subnet manager runs.
NVLINK_MANAGED = ("b200", "b300")
# (c) Fabric manager runs on the NVLink switches there, not on the node.
FABRIC_ELSEWHERE = ("gb200", "gb300")

UBUNTU = ("ubuntu22.04", "ubuntu24.04")
DEBIAN = ("debian12", "debian13")
DGX_OS = ("dgxos6", "dgxos7")
EL = ("rhel9",)
SYSTEMS = UBUNTU + DEBIAN + DGX_OS + EL

# Packages that belong to a driver. What containers and toolkits have keeps its own versions.
_FAMILY = re.compile(
    r"^(nvidia-(driver|open|dkms|kernel|kmod|headless|utils|compute-utils|firmware|persistenced|modprobe"
    r"|smi|settings|fabricmanager|fabric-manager|imex|legacy|alternative|suspend|egl|vdpau"
    r"|xconfig|libXNVCtrl|libs|opencl|vulkan)"
    r"|libnvidia-(?!container)|libnvsdm|linux-(modules|objects|signatures)-nvidia|cuda-drivers"
    r"|xserver-xorg-video-nvidia|libcuda1$|libnvcuvid|kmod-nvidia|dkms-nvidia|firmware-nvidia)"
)


@dataclass(frozen=True)
class Row:
    """The package names of some branches on some systems; `{b}` is the branch.

    `{k}` is the release of the running kernel, `{f}` its flavour with the suffix of a hardware
    enablement kernel. `nvlink` is empty where NVIDIA's NVLink subnet manager is not to be had.
    """

    systems: tuple[str, ...]
    source: str
    flavour: str
    driver: tuple[str, ...]
    fabric_manager: str = ""
    nscq: str = ""
    nvlink: tuple[str, ...] = ()
    # Modules are compiled on the node, so that headers are needed, and a key under Secure Boot.
    dkms: bool = True
    stream: str = ""
    # Names of `driver` whose version is not the driver's.
    own_version: tuple[str, ...] = ()
    first: int = 0
    last: int = 9999


def _ubuntu_archive(flavour: str, suffix: str) -> Row:
    # (i) headless, utils and compute-utils; -server branches 580, 595 and 610 are in the archive.
    # (?) the names of the modules of a running kernel. nvidia-persistenced is in compute-utils.
    return Row(
        UBUNTU,
        DISTRIBUTION,
        flavour,
        (
            f"nvidia-headless-no-dkms-{{b}}-server{suffix}",
            f"linux-modules-nvidia-{{b}}-server{suffix}-{{f}}",
            f"linux-modules-nvidia-{{b}}-server{suffix}-{{k}}",
            "nvidia-utils-{b}-server",
            "nvidia-compute-utils-{b}-server",
        ),
        fabric_manager="nvidia-fabricmanager-{b}",
        nscq="libnvidia-nscq-{b}",
        dkms=False,
    )


def _debian_archive(system: str, branch: int, flavour: str, modules: str) -> Row:
    # (i) Debian 12 has 535, Debian 13 has 550, in non-free. There is no fabric manager, and
    # nvidia-persistenced is a source package that not each point release follows: 535.171.04 beside
    # a driver 535.261.03.
    return Row(
        (system,),
        DISTRIBUTION,
        flavour,
        (modules, "nvidia-driver-bin", "nvidia-smi", "libcuda1", "nvidia-persistenced"),
        own_version=("nvidia-persistenced",),
        first=branch,
        last=branch,
    )


_NVLINK = ("nvlsm", "libnvsdm")


def _enterprise(module: str, meta: str) -> tuple[str, ...]:
    # (c) The spec files: each branch has these names, and they require their libraries in one
    # version. (c) The metapackages take a newer driver as well, so that the guide locks all parts,
    # and the first name is that of the driver: its version is what a branch alone keeps.
    return (
        "nvidia-driver",
        "nvidia-driver-libs",
        "nvidia-driver-cuda",
        "nvidia-driver-cuda-libs",
        "nvidia-kmod-common",
        module,
        "nvidia-persistenced",
        meta,
    )


_EL_OPEN = _enterprise("kmod-nvidia-open-dkms", "nvidia-open")
_EL_PROPRIETARY = _enterprise("kmod-nvidia-latest-dkms", "cuda-drivers")


def _enterprise_before_560(module: str) -> tuple[str, ...]:
    # (f) What the default profile of 535-dkms installs, but for what draws on a screen: NVML is
    # another package, which nvidia-smi does not require. (c) nvidia-open came with 560.
    return (
        "nvidia-driver",
        "nvidia-driver-libs",
        "nvidia-driver-cuda",
        "nvidia-driver-cuda-libs",
        "nvidia-driver-NVML",
        "nvidia-kmod-common",
        module,
        "nvidia-modprobe",
        "nvidia-persistenced",
    )


ROWS: tuple[Row, ...] = (
    _ubuntu_archive(OPEN, "-open"),
    _ubuntu_archive(PROPRIETARY, ""),
    _debian_archive("debian12", 535, OPEN, "nvidia-open-kernel-dkms"),
    _debian_archive("debian12", 535, PROPRIETARY, "nvidia-kernel-dkms"),
    _debian_archive("debian13", 550, OPEN, "nvidia-open-kernel-dkms"),
    _debian_archive("debian13", 550, PROPRIETARY, "nvidia-kernel-dkms"),
    # (c) NVIDIA's own automation for DGX OS. (?) The open flavour of DGX OS 6.
    Row(
        ("dgxos6",), DISTRIBUTION, PROPRIETARY,
        ("nvidia-driver-{b}-server", "linux-modules-nvidia-{b}-server-nvidia"),
        "nvidia-fabricmanager-{b}", "libnvidia-nscq-{b}", dkms=False,
    ),
    Row(
        ("dgxos6",), DISTRIBUTION, OPEN,
        ("nvidia-driver-{b}-server-open", "linux-modules-nvidia-{b}-server-open-nvidia"),
        "nvidia-fabricmanager-{b}", "libnvidia-nscq-{b}", dkms=False,
    ),
    Row(
        ("dgxos7",), DISTRIBUTION, OPEN, ("nvidia-driver-{b}-open",),
        "nvidia-fabricmanager", "libnvidia-nscq", _NVLINK, first=580,
    ),
    Row(
        ("dgxos7",), DISTRIBUTION, OPEN, ("nvidia-driver-{b}-open",),
        "nvidia-fabricmanager-{b}", "libnvidia-nscq-{b}", _NVLINK, last=579,
    ),
    # (c) Production images: names with the branch up to 580, without it from 590 on; the fabric
    # manager lost its branch at 580 already. (?) nscq at 580.
    Row(
        UBUNTU, NVIDIA, OPEN, ("nvidia-driver-{b}-open", "nvidia-dkms-{b}-open"),
        "nvidia-fabricmanager-{b}", "libnvidia-nscq-{b}", _NVLINK, last=579,
    ),
    Row(
        UBUNTU, NVIDIA, OPEN, ("nvidia-driver-{b}-open", "nvidia-dkms-{b}-open"),
        "nvidia-fabricmanager", "libnvidia-nscq", _NVLINK, first=580, last=589,
    ),
    Row(
        UBUNTU, NVIDIA, OPEN, ("nvidia-driver-open", "nvidia-dkms-open", "nvidia-persistenced"),
        "nvidia-fabricmanager", "libnvidia-nscq", _NVLINK, first=590,
    ),
    Row(
        UBUNTU, NVIDIA, PROPRIETARY, ("cuda-drivers-{b}",),
        "nvidia-fabricmanager-{b}", "libnvidia-nscq-{b}", _NVLINK, last=579,
    ),
    Row(
        UBUNTU, NVIDIA, PROPRIETARY, ("cuda-drivers-{b}",),
        "nvidia-fabricmanager", "libnvidia-nscq", _NVLINK, first=580, last=589,
    ),
    Row(
        UBUNTU, NVIDIA, PROPRIETARY, ("cuda-drivers", "nvidia-driver", "nvidia-persistenced"),
        "nvidia-fabricmanager", "libnvidia-nscq", _NVLINK, first=590,
    ),
    # (c) The guide's commands for Debian. (?) fabric manager and nscq there.
    Row(
        DEBIAN, NVIDIA, OPEN, ("nvidia-open", "nvidia-persistenced"),
        "nvidia-fabricmanager", "libnvidia-nscq", _NVLINK, first=580,
    ),
    Row(
        DEBIAN, NVIDIA, OPEN, ("nvidia-open", "nvidia-persistenced"),
        "nvidia-fabricmanager-{b}", "libnvidia-nscq-{b}", _NVLINK, first=560, last=579,
    ),
    # (f) The commands of NVIDIA's page of CUDA 12.4 for Debian, as scripts have them.
    Row(
        DEBIAN, NVIDIA, OPEN, ("cuda-drivers", "nvidia-kernel-open-dkms", "nvidia-persistenced"),
        "nvidia-fabricmanager-{b}", "libnvidia-nscq-{b}", _NVLINK, last=559,
    ),
    Row(
        DEBIAN, NVIDIA, PROPRIETARY, ("cuda-drivers", "nvidia-persistenced"),
        "nvidia-fabricmanager", "libnvidia-nscq", _NVLINK, first=580,
    ),
    Row(
        DEBIAN, NVIDIA, PROPRIETARY, ("cuda-drivers", "nvidia-persistenced"),
        "nvidia-fabricmanager-{b}", "libnvidia-nscq-{b}", _NVLINK, last=579,
    ),
    # (c) The guide: `dnf module enable nvidia-driver:580-open; dnf install nvidia-open`.
    Row(
        EL, NVIDIA, OPEN, _EL_OPEN,
        "nvidia-fabricmanager", "libnvidia-nscq", _NVLINK, stream="{b}-open", first=580,
    ),
    Row(
        EL, NVIDIA, OPEN, _EL_OPEN,
        "nvidia-fabric-manager", "libnvidia-nscq-{b}", _NVLINK, stream="{b}-open",
        first=560, last=579,
    ),
    # (c) NVIDIA's README of its DKMS packages: a stream for each branch and flavour from 515 on.
    Row(
        EL, NVIDIA, OPEN, _enterprise_before_560("kmod-nvidia-open-dkms"),
        "nvidia-fabric-manager", "libnvidia-nscq-{b}", _NVLINK, stream="{b}-open", last=559,
    ),
    Row(
        EL, NVIDIA, PROPRIETARY, _EL_PROPRIETARY,
        "nvidia-fabricmanager", "libnvidia-nscq", _NVLINK, stream="{b}-dkms", first=580,
    ),
    Row(
        EL, NVIDIA, PROPRIETARY, _EL_PROPRIETARY,
        "nvidia-fabric-manager", "libnvidia-nscq-{b}", _NVLINK, stream="{b}-dkms",
        first=560, last=579,
    ),
    Row(
        EL, NVIDIA, PROPRIETARY, _enterprise_before_560("kmod-nvidia-latest-dkms"),
        "nvidia-fabric-manager", "libnvidia-nscq-{b}", _NVLINK, stream="{b}-dkms", last=559,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """What the inventory declares about the driver of a node."""

    source: str
    branch: str = ""
    version: str = ""
    # Of a branch alone: the newest version that all parts have on offer, where that was asked.
    newest: str = ""
    # auto, open or proprietary
    modules: str = "auto"
    gpu: str = ""
    nvswitches: int = 0
    # Instead of the tables' names; with a version each gets it.
    packages: tuple[str, ...] = ()
    # Parameters of the module, by their names in modprobe.d(5).
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Selection:
    """The packages of a request; `errors` when there are none to be had."""

    flavour: str = OPEN
    driver: tuple[str, ...] = ()
    fabric_manager: str = ""
    nscq: str = ""
    nvlink: tuple[str, ...] = ()
    dkms: bool = False
    stream: str = ""
    own_version: tuple[str, ...] = ()
    errors: tuple[str, ...] = field(default=())

    @property
    def locked(self) -> tuple[str, ...]:
        """Names that are held; their version is the driver's, but for `own_version`."""
        names = [*self.driver, self.fabric_manager, self.nscq]
        return tuple(name for name in names if name)


def wants_fabric_manager(gpu: str, nvswitches: int) -> bool:
    """Whether the node's own fabric manager has to run."""
    return nvswitches > 0 and gpu not in FABRIC_ELSEWHERE


def wants_nvlsm(gpu: str, nvswitches: int) -> bool:
    """Whether its fabric manager needs the NVLink subnet manager."""
    return nvswitches > 0 and gpu in NVLINK_MANAGED


def system_of(release: Mapping[str, str], dgx: Mapping[str, str]) -> str:
    """Return the key of an operating system from os-release and dgx-release; empty: not known."""
    name, version = release.get("ID", ""), release.get("VERSION_ID", "")
    like = release.get("ID_LIKE", "").split()
    if dgx and name == "ubuntu":
        return {"22.04": "dgxos6", "24.04": "dgxos7"}.get(version, "")
    major = version.split(".")[0]
    if name == "ubuntu":
        key = f"ubuntu{version}"
    elif name == "debian":
        key = f"debian{major}"
    elif name == "rhel" or "rhel" in like:
        key = f"rhel{major}"
    else:
        key = ""
    return key if key in SYSTEMS else ""


def kernel_flavour(system: str, kernel: str) -> str:
    """Return what Ubuntu's packages call the line of a kernel: generic, or generic-hwe-24.04.

    kernel is like 6.8.0-60-generic. The first kernels are 5.15 in 22.04 and 6.8 in 24.04.
    """
    flavour = kernel.split("-", 2)[-1]
    first = {"ubuntu22.04": (5, 15), "ubuntu24.04": (6, 8)}.get(system)
    match = re.match(r"(\d+)\.(\d+)", kernel)
    if first and match and (int(match.group(1)), int(match.group(2))) > first:
        return f"{flavour}-hwe-{system[-5:]}"
    return flavour


def flavour_of(request: Request) -> tuple[str, str]:
    """Return the flavour of the kernel modules, and why it cannot be when it cannot."""
    gpu = request.gpu.lower()
    if request.modules == PROPRIETARY and gpu in OPEN_ONLY:
        return OPEN, f"{gpu.upper()} runs with open kernel modules only; proprietary are declared"
    if request.modules == OPEN and gpu in PROPRIETARY_ONLY:
        return PROPRIETARY, f"{gpu.upper()} has no open kernel modules; open are declared"
    if request.modules != "auto":
        return request.modules, ""
    return (PROPRIETARY if gpu in PROPRIETARY_ONLY else OPEN), ""


def branch_of(request: Request) -> str:
    """Return the branch, from the version where only that is declared."""
    return request.branch or request.version.split(".")[0]


def select(system: str, request: Request, kernel: str) -> Selection:
    """Return the packages of a request on a system."""
    flavour, problem = flavour_of(request)
    branch = branch_of(request)
    errors = [problem] if problem else []
    if branch not in BRANCHES:
        errors.append(
            f"driver branch {branch or '(none)'} is not known; known are {', '.join(BRANCHES)}"
        )
    if request.version and request.version.split(".")[0] != branch:
        errors.append(f"driver version {request.version} is not of branch {branch}")
    if request.source == NVIDIA and system in DGX_OS:
        errors.append("DGX OS brings NVIDIA's repositories itself; declare distribution")
    if not system:
        errors.append("this operating system is not known; known are " + ", ".join(SYSTEMS))
    if errors:
        return Selection(flavour=flavour, errors=tuple(errors))
    # A directory holds what NVIDIA's repository has; on DGX OS, what its own has.
    source = DISTRIBUTION if system in DGX_OS else request.source
    source = NVIDIA if source == DIRECTORY else source
    rows = [row for row in ROWS if system in row.systems and row.source == source]
    fitting = [
        row for row in rows if row.flavour == flavour and row.first <= int(branch) <= row.last
    ]
    if not fitting:
        have = sorted({b for row in rows for b in BRANCHES if row.first <= int(b) <= row.last})
        others = f"; it has {', '.join(have)}" if have else ""
        problem = (
            f"{source} of {system} has no driver {branch} with {flavour} modules{others}; declare "
            "another source or branch"
        )
        return Selection(flavour=flavour, errors=(problem,))
    return _fill(fitting[0], system, request, kernel, branch)


def _fill(row: Row, system: str, request: Request, kernel: str, branch: str) -> Selection:
    def name(template: str) -> str:
        return template.format(b=branch, k=kernel, f=kernel_flavour(system, kernel))

    gpu = request.gpu.lower()
    managed = wants_fabric_manager(gpu, request.nvswitches)
    nvlsm = wants_nvlsm(gpu, request.nvswitches)
    errors = []
    if managed and not row.fabric_manager:
        errors.append(
            f"{row.source} of {system} has no fabric manager, and this node has NVSwitches; "
            "declare nvidia_repository or directory"
        )
    if nvlsm and not row.nvlink:
        errors.append(
            f"{row.source} of {system} has no nvlsm, without which the NVLinks of {gpu.upper()} "
            "stay down; declare nvidia_repository or directory"
        )
    return Selection(
        flavour=row.flavour,
        driver=request.packages or tuple(name(package) for package in row.driver),
        fabric_manager=name(row.fabric_manager) if managed else "",
        # (c) NSCQ reads the NVSwitches of Hopper and before; libnvsdm takes its place after.
        nscq=name(row.nscq) if managed and not nvlsm else "",
        nvlink=row.nvlink if nvlsm else (),
        dkms=row.dkms,
        stream=name(row.stream),
        own_version=row.own_version,
        errors=tuple(errors),
    )


def headers_package(system: str, kernel: str) -> tuple[str, ...]:
    """Return what compiling modules for the running kernel needs."""
    if system in EL:
        return (f"kernel-devel-{kernel}",)
    return (f"linux-headers-{kernel}",)


def is_driver_package(name: str) -> bool:
    """Return whether a package is part of a driver, of whatever branch."""
    return bool(_FAMILY.match(name.split(":", 1)[0]))
