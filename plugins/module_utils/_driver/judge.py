# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Whether all parts of a node's driver have one version: what was seen in, records out. Pure."""

from __future__ import annotations

import re
from typing import Any

from .._core.record import FAIL, NOT_MEASURED, PASS, Record
from .packages import OPEN, OPEN_ONLY, Request, branch_of, wants_fabric_manager, wants_nvlsm
from .plan import Seen, cuda_of, find_package, of_branch, other_modules, upstream
from .thresholds import (
    CUDA,
    DECLARED,
    DRIVER,
    FABRIC_MANAGER,
    LIBRARY,
    MODULES,
    NCCL,
    NSCQ,
    ON_DISK,
    PARAMETER,
)

_LIBRARIES = ("libnvidia-ml", "libcuda")
# Parameters that /proc/driver/nvidia/params shows under another name: all that nv-reg.h of the open
# kernel modules has as NV_DEFINE_PARAMS_TABLE_ENTRY_CUSTOM_NAME.
_SHOWN_AS = {"RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}
_INSTALL = "declare a source with nvidia_driver_source, or install the driver"


def agree(
    seen: Seen, request: Request, node: str, gpudirect: str = "", dcgm: bool = True
) -> list[Record]:
    """Return one record for each part that has to have the version of the loaded module."""
    subject = f"node:{node}"
    records = [_driver(seen, subject)]
    if "nouveau" in seen.modules:
        records.append(
            Record(
                "stack.nouveau",
                subject,
                FAIL,
                "nouveau is loaded and keeps the driver from the GPUs",
                remedy="reboot, since it is blocked from then on",
            )
        )
    driver = seen.loaded or seen.on_disk or ""
    if not driver:
        return records
    records += _declared(seen, request, subject, driver)
    if seen.loaded:
        records += _parameters(seen, request, subject)
    records.append(_on_disk(seen, subject))
    records += [_library(seen, subject, name, driver) for name in _LIBRARIES]
    records += _fabric(seen, request, subject, driver)
    if dcgm:
        records += _dcgm(seen, subject, driver)
    records += _user_space(seen, subject, driver)
    records += _gpudirect(seen, subject, gpudirect)
    return records


def _driver(seen: Seen, subject: str) -> Record:
    if seen.loaded:
        if seen.proc and seen.proc != seen.loaded:
            text = f"sysfs says {seen.loaded} is loaded, /proc/driver/nvidia/version {seen.proc}"
            return DRIVER.judge(subject, seen.proc, seen.loaded, text=text)
        text = f"driver {seen.loaded} is loaded, {seen.loaded_flavour or 'unknown'} modules"
        return Record("stack.driver", subject, PASS, text)
    if "nouveau" in seen.modules:
        text, remedy = "no driver is loaded", "reboot, nouveau has the GPUs"
    elif seen.on_disk:
        text = f"driver {seen.on_disk} is installed and not loaded"
        remedy = "modprobe nvidia, and read the kernel log when it fails"
        if seen.secure_boot and not seen.key_enrolled:
            remedy = "Secure Boot is on: enroll the key that signs the modules, see mokutil"
    elif seen.on_disk is None:
        text, remedy = "no driver is loaded, and modinfo is not there to ask", _INSTALL
    else:
        text = f"there is no driver for kernel {seen.kernel}"
        remedy = _INSTALL
        if find_package(seen.packages, r"nvidia-.*dkms.*|kmod-nvidia-.*dkms"):
            remedy = "read `dkms status`; headers of this kernel may be missing"
    return Record("stack.driver", subject, FAIL, text, remedy=remedy)


def _declared(seen: Seen, request: Request, subject: str, driver: str) -> list[Record]:
    found = []
    wanted = request.version or branch_of(request)
    if wanted:
        fits = of_branch(driver, wanted)
        text = f"driver is {driver}, declared is {wanted}"
        found.append(DECLARED.judge(subject, wanted if fits else driver, wanted, text=text))
    flavour = seen.loaded_flavour or seen.on_disk_flavour
    needed = request.modules
    if needed == "auto":
        needed = OPEN if request.gpu.lower() in OPEN_ONLY else ""
    waits = other_modules(seen) and needed in ("", seen.on_disk_flavour)
    if waits:
        needed = seen.on_disk_flavour
    if flavour and needed:
        text = f"{flavour} kernel modules, {needed} are needed"
        remedy = ON_DISK.remedy if waits else ""
        question = MODULES.filled(needed=needed)
        found.append(question.judge(subject, flavour, needed, text=text, remedy=remedy))
    return found


def _parameters(seen: Seen, request: Request, subject: str) -> list[Record]:
    found = []
    for name, value in sorted(request.parameters.items()):
        declared = _number(value)
        if declared is None:
            continue
        own = name.partition("_")[2]
        shown = _number(seen.parameters.get(_SHOWN_AS.get(own, own)))
        question = PARAMETER.filled(parameter=name)
        text = question.what + (", which does not show it" if shown is None else "")
        found.append(question.judge(subject, shown, declared, text=text))
    return found


def _number(value: Any) -> int | None:
    """Return a number as the module prints it, without a sign; None for a text."""
    try:
        return int(str(value), 0) & 0xFFFFFFFF
    except ValueError:
        return None


def _on_disk(seen: Seen, subject: str) -> Record:
    if not seen.loaded or seen.on_disk is None:
        text = "which module the next boot loads is not known"
        text += "" if seen.on_disk is not None else ", there is no modinfo"
        status = NOT_MEASURED if seen.on_disk is None else PASS
        return Record("stack.on_disk", subject, status, text)
    if not seen.on_disk:
        return Record(
            "stack.on_disk",
            subject,
            FAIL,
            f"driver {seen.loaded} is loaded and gone from disk, the next boot has none",
            remedy=f"install it for kernel {seen.kernel}",
        )
    if seen.on_disk != seen.loaded or not seen.next_kernel:
        text = f"driver {seen.loaded} is loaded, the next boot loads {seen.on_disk}"
        return ON_DISK.judge(subject, seen.on_disk, seen.loaded, text=text)
    there = "none" if seen.next_on_disk == "" else seen.next_on_disk
    has = f"and has {there}" if there else "and its module cannot be asked"
    text = f"driver {seen.loaded} is loaded; kernel {seen.next_kernel} boots next {has}"
    remedy = f"install the module, or the headers, for kernel {seen.next_kernel}"
    return ON_DISK.judge(subject, there, seen.loaded, text=text, remedy=remedy)


def _library(seen: Seen, subject: str, name: str, driver: str) -> Record:
    versions = seen.libraries.get(name, ())
    library = LIBRARY.filled(library=name)
    if not versions:
        return Record(
            library.check,
            subject,
            FAIL,
            f"there is no {name}.so of a driver",
            threshold=library.threshold(driver),
            remedy=f"install the user-space packages of driver {driver}",
        )
    found_versions = " and ".join(versions)
    text = f"{name} is {found_versions}, the driver {driver}"
    remedy = "remove the other one (left by NVIDIA's .run file?)" if len(versions) > 1 else ""
    return library.judge(subject, found_versions, driver, text=text, remedy=remedy)


def _fabric(seen: Seen, request: Request, subject: str, driver: str) -> list[Record]:
    gpu = request.gpu.lower()
    if not wants_fabric_manager(gpu, request.nvswitches):
        return []
    parts = [(FABRIC_MANAGER, r"nvidia-fabric-?manager(-\d+)?")]
    if not wants_nvlsm(gpu, request.nvswitches):
        parts.append((NSCQ, r"libnvidia-nscq(-\d+)?"))
    found = []
    for question, pattern in parts:
        package = find_package(seen.packages, pattern)
        version = upstream(package.version) if package else "absent"
        text = f"{question.what} is {version}, the driver {driver}"
        found.append(question.filled(driver=driver).judge(subject, version, driver, text=text))
    if wants_nvlsm(gpu, request.nvswitches):
        package = find_package(seen.packages, "nvlsm")
        text = f"nvlsm is {package.version if package else 'absent'}"
        found.append(
            Record(
                "stack.nvlsm",
                subject,
                PASS if package else FAIL,
                text,
                remedy="" if package else "install nvlsm, or all NVLinks stay down",
            )
        )
    return found


def _dcgm(seen: Seen, subject: str, driver: str) -> list[Record]:
    core = find_package(seen.packages, "datacenter-gpu-manager-4-core")
    old = find_package(seen.packages, "datacenter-gpu-manager")
    major = cuda_of(driver)
    if core is None and old is None:
        return []
    if core is not None and old is not None:
        text = f"DCGM {upstream(old.version)} and {upstream(core.version)} are both installed"
        return [Record("stack.dcgm", subject, FAIL, text, remedy="remove datacenter-gpu-manager")]
    if major is None:
        text = "no table says which DCGM this driver needs"
        return [Record("stack.dcgm", subject, NOT_MEASURED, text)]
    name = f"datacenter-gpu-manager-4-cuda{major}"
    if core is None:
        # Its diagnostics have plug-ins for CUDA 10, 11 and 12.
        remedy = f"install datacenter-gpu-manager-4-core and {name} instead" if major > 12 else ""
        text = f"DCGM 3 with driver {driver}, which has CUDA {major}"
        return [Record("stack.dcgm", subject, FAIL if remedy else PASS, text, remedy=remedy)]
    package = find_package(seen.packages, name)
    remedy, text = "", f"DCGM {upstream(core.version)} with {name}"
    if package is None:
        text = f"DCGM {upstream(core.version)} lacks {name}, which driver {driver} needs"
        remedy = f"install {name}; without it diagnostics are skipped"
    elif upstream(package.version) != upstream(core.version):
        text = f"DCGM {upstream(core.version)} with {name} {upstream(package.version)}"
        remedy = "install both in one version"
    return [Record("stack.dcgm", subject, FAIL if remedy else PASS, text, remedy=remedy)]


def _user_space(seen: Seen, subject: str, driver: str) -> list[Record]:
    """CUDA and NCCL of a later major than the driver's start with the libraries of cuda-compat."""
    major = cuda_of(driver)
    found = []
    for name, package in sorted(seen.packages.items()):
        match = re.fullmatch(r"cuda-(?:libraries|runtime|toolkit)-(\d+)-(\d+)", name)
        built = match or (
            re.search(r"cuda(\d+)\.(\d+)", package.version)
            if re.fullmatch(r"libnccl2?", name)
            else None
        )
        if not package.installed or not built:
            continue
        question = CUDA if match else NCCL
        text = (
            f"{name} is for CUDA {built.group(1)}.{built.group(2)}, driver {driver} has CUDA "
            + (f"{major}" if major else "of a major that no table has")
        )
        compat = find_package(seen.packages, rf"cuda-compat-{built.group(1)}-\d+")
        if major is None:
            found.append(Record(question.check, subject, NOT_MEASURED, text))
        elif compat and int(built.group(1)) > major:
            text += f", and CUDA {built.group(1)} by cuda-compat {compat.version}"
            text += ", with its compat folder in LD_LIBRARY_PATH"
            found.append(Record(question.check, subject, PASS, text))
        else:
            found.append(question.judge(subject, int(built.group(1)), major, text=text))
    return found


_PEERMEM_MISSING = (
    "install NVIDIA's RDMA stack, then the driver again: nvidia-peermem is built against ib_core"
)


def _no_dma_buf(seen: Seen) -> list[str]:
    """Return what GPUDirect over dma-buf lacks.

    ib_core of Linux 5.12, and GPU modules that export it, which are the open ones ("GPUDirect RDMA
    and GPUDirect Storage" of NVIDIA's GPU Operator, which prefers it where both are there).
    """
    match = re.match(r"(\d+)\.(\d+)", seen.kernel)
    kernel = (int(match.group(1)), int(match.group(2))) if match else (0, 0)
    missing = []
    if kernel < (5, 12):
        missing.append(f"kernel {seen.kernel} is older than 5.12")
    if seen.loaded_flavour != OPEN:
        missing.append("the kernel modules are not the open ones")
    return missing


def gpudirect_way(seen: Seen, declared: str) -> str:
    """Return dmabuf or peermem; for auto what kernel and modules can, and nothing without any."""
    if declared != "auto":
        return declared
    if not seen.loaded:
        return ""
    return "peermem" if _no_dma_buf(seen) else "dmabuf"


def _gpudirect(seen: Seen, subject: str, declared: str) -> list[Record]:
    way = gpudirect_way(seen, declared)
    if not way or not seen.loaded:
        return []
    missing = _no_dma_buf(seen)
    if way == "peermem":
        there = "nvidia_peermem" in seen.modules
        why = f", and dma-buf is not possible: {', '.join(missing)}" if declared == "auto" else ""
        return [
            Record(
                "stack.peermem",
                subject,
                PASS if there else FAIL,
                "nvidia_peermem is loaded" if there else f"nvidia_peermem is not loaded{why}",
                remedy="" if there else _PEERMEM_MISSING,
            )
        ]
    text = "GPUDirect over dma-buf: " + (", ".join(missing) or "kernel and modules can")
    return [
        Record(
            "stack.dma_buf",
            subject,
            FAIL if missing else PASS,
            text,
            remedy="install the open modules, or declare auto or peermem" if missing else "",
        )
    ]
