# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Reading what is on a node of a driver, and what its package sources have."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass
from typing import Sequence

from .._core.files import text_if_readable
from .._core.run import MISSING, CommandRunner, ToolError
from .._core.steps import running_steps, titles
from .._host.packages.plan import Package, parse_dpkg, parse_rpm
from .packages import EL, system_of
from .plan import (
    Seen,
    library_versions,
    next_boot,
    parse_modinfo,
    parse_parameters,
    parse_proc_version,
    parse_release,
)

# The last byte says whether it is on (UEFI specification, 3.3); four bytes of attributes before.
_SECURE_BOOT = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# Where DKMS and Ubuntu's shim keep the key that signs what is built on the node.
_KEYS = ("var/lib/shim-signed/mok/MOK.der", "var/lib/dkms/mok.pub")
_VERSION_LOCKS = "etc/dnf/plugins/versionlock.list"
OWN_HOLDS = "var/lib/baremetal-dgx/held/nvidia_driver"


# Where distributions and NVIDIA's installer put libraries.
LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
)


@dataclass(frozen=True)
class Places:
    """Where to look; for tests all of them are below a folder."""

    sysfs: str = "/sys"
    proc: str = "/proc"
    root: str = "/"
    libraries: tuple[str, ...] = ()


def read(path: str) -> str:
    """Return a text; empty when it cannot be read."""
    return text_if_readable(path) or ""


def load(run: CommandRunner, places: Places) -> Seen:
    """Return what is on the node; ToolError when its packages cannot be read."""
    kernel = read(os.path.join(places.proc, "sys/kernel/osrelease")).strip()
    release = parse_release(read(os.path.join(places.root, "etc/os-release")))
    dgx = parse_release(read(os.path.join(places.root, "etc/dgx-release")))
    system = system_of(release, dgx)
    loaded = read(os.path.join(places.sysfs, "module/nvidia/version")).strip()
    proc, flavour = parse_proc_version(read(os.path.join(places.proc, "driver/nvidia/version")))
    on_disk = _on_disk(run, kernel)
    next_kernel = _next_kernel(run, places, system)
    if next_kernel == kernel:
        next_kernel = ""
    secure = _secure_boot(places)
    key = next((p for p in (os.path.join(places.root, k) for k in _KEYS) if os.path.exists(p)), "")
    return Seen(
        system=system,
        kernel=kernel,
        loaded=loaded,
        proc=proc,
        loaded_flavour=flavour,
        on_disk=on_disk[0],
        on_disk_flavour=on_disk[1],
        next_kernel=next_kernel,
        next_on_disk=_on_disk(run, next_kernel)[0] if next_kernel else None,
        parameters=parse_parameters(read(os.path.join(places.proc, "driver/nvidia/params"))),
        libraries=library_versions(_libraries(places)),
        packages=_packages(run, places, system),
        modules=frozenset(_names(os.path.join(places.sysfs, "module"))),
        secure_boot=secure,
        key=key,
        key_enrolled=_enrolled(run, key) if secure and key else None,
        headers=os.path.exists(os.path.join(places.root, "lib/modules", kernel, "build/Makefile")),
        steps=tuple(running_steps(titles(places.proc))),
        own_holds=frozenset(read(os.path.join(places.root, OWN_HOLDS)).split()),
    )


def _on_disk(run: CommandRunner, kernel: str) -> tuple[str | None, str]:
    """Return version and flavour of the module for a kernel; None where that cannot be asked."""
    answer = run(["modinfo", "-k", kernel, "nvidia"])
    if answer.ok:
        return parse_modinfo(answer.out)
    return ("" if "not found" in answer.text else None), ""


def _next_kernel(run: CommandRunner, places: Places, system: str) -> str:
    """Return the kernel that boots next; empty where it is not known."""
    if system in EL:
        # With kernel-install's own layout the path ends in VERSION/linux.
        answer = run(["grubby", "--default-kernel"])
        return answer.out.strip().partition("/vmlinuz-")[2] if answer.ok else ""
    folder = os.path.join(places.root, "etc/default")
    more = sorted(glob.glob(os.path.join(folder, "grub.d/*.cfg")))
    grub = "\n".join(read(path) for path in (os.path.join(folder, "grub"), *more))
    kernels = [
        name
        for name in _names(os.path.join(places.root, "lib/modules"))
        if os.path.exists(os.path.join(places.root, "boot", f"vmlinuz-{name}"))
    ]
    return next_boot(kernels, grub) if grub.strip() else ""


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _libraries(places: Places) -> list[str]:
    """Names of real files; a link adds nothing to its target."""
    found = []
    for folder in places.libraries:
        for path in glob.glob(os.path.join(folder, "lib*.so.*")):
            if not os.path.islink(path):
                found.append(os.path.basename(path))
    return found


def _secure_boot(places: Places) -> bool:
    """Whether Secure Boot is on; without the variable the machine has not booted by UEFI."""
    try:
        with open(os.path.join(places.sysfs, _SECURE_BOOT), "rb") as handle:
            return handle.read()[-1:] == b"\x01"
    except OSError:
        return False


def _enrolled(run: CommandRunner, key: str) -> bool | None:
    """Whether the firmware knows a key; None when that cannot be asked."""
    answer = run(["mokutil", "--test-key", key])
    if "already enrolled" in answer.text:
        return True
    return False if "is not enrolled" in answer.text else None


def _packages(run: CommandRunner, places: Places, system: str) -> dict[str, Package]:
    if system in EL:
        answer = run(["rpm", "-qa", "--qf", "%{NAME}\t%{VERSION}-%{RELEASE}\n"], timeout_s=60)
        if answer.ok:
            return parse_rpm(answer.out, read(os.path.join(places.root, _VERSION_LOCKS)))
    else:
        query = "${db:Status-Abbrev}\t${Package}\t${Version}\n"
        answer = run(["dpkg-query", "-W", "-f", query], timeout_s=60)
        if answer.ok:
            return parse_dpkg(answer.out)
        if not system and answer.outcome == MISSING:
            return {}
    raise ToolError(f"the package database cannot be read: {answer.describe()}")


def refresh(run: CommandRunner, system: str, sources_file: str) -> None:
    """Read the lists of one source again, or of all; ToolError when it does not answer or sign."""
    if system in EL:
        # dnf reads what is out of date by itself
        return
    command = ["apt-get", "update", "-q", "-o", "APT::Update::Error-Mode=any"]
    if sources_file:
        command += ["-o", f"Dir::Etc::sourcelist={sources_file}", "-o", "Dir::Etc::sourceparts=-"]
        command += ["-o", "APT::Get::List-Cleanup=0"]
    answer = run(command, timeout_s=300)
    if not answer.ok:
        errors = re.findall(r"^[EW]: (.+)$", answer.text, re.M)
        raise ToolError(
            f"the packages of {sources_file or 'the sources'} cannot be listed: "
            + (" | ".join(errors[:3]) or answer.describe())
        )


def offered(run: CommandRunner, system: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the versions of each package that is to be had; ToolError when no tool answers."""
    found: dict[str, list[str]] = {}
    if not names:
        return found
    if system in EL:
        query = "%{name}\t%{version}-%{release}\t%{name}-%{version}-%{release}.%{arch}\n"
        answer = run(
            ["dnf", "-q", "repoquery", "--available", "--qf", query, *names], timeout_s=300
        )
        if not answer.ok:
            raise ToolError(f"the packages cannot be listed: {answer.describe()}")
        for line in answer.out.splitlines():
            parts = line.split("\t")
            if len(parts) == 3:
                found.setdefault(parts[0], []).append(parts[1])
                # kernel-devel is asked for by its whole name, with release and architecture
                if parts[2] in names:
                    found.setdefault(parts[2], []).append(parts[1])
        return found
    answer = run(["apt-cache", "madison", *names], timeout_s=60)
    if not answer.ok:
        raise ToolError(f"the packages cannot be listed: {answer.describe()}")
    for line in answer.out.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) >= 2:
            found.setdefault(parts[0], []).append(parts[1])
    return found
