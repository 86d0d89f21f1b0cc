# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""What has to be done to a node's driver, and what blocks it. Pure.

A driver is many parts: the loaded kernel module, the one on disk, libraries, fabric manager, NSCQ.
Any two of different versions stop CUDA on the whole node, so each is compared with the loaded one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Iterable, Mapping, Sequence

from .._host.packages.plan import Package, parse_wanted, satisfied
from .packages import (
    BRANCHES,
    OPEN,
    PROPRIETARY,
    UBUNTU,
    Request,
    Selection,
    branch_of,
    headers_package,
    is_driver_package,
)

_DRIVER_VERSION = r"\d{3,}\.\d+(?:\.\d+)?"
_PROC = re.compile(
    rf"^NVRM version:.*?(?P<open>Open )?Kernel Module(?: for \S+)?\s+(?P<v>{_DRIVER_VERSION})\b",
    re.M,
)
_LIBRARY = re.compile(rf"^(lib[A-Za-z0-9-]+)\.so\.({_DRIVER_VERSION})$")
# Flavour -> what conflicts with it by NVIDIA's spec files: dnf erases neither for the other.
_CONFLICTS = {OPEN: "kmod-nvidia-latest-dkms", PROPRIETARY: "kmod-nvidia-open-dkms"}
_DRAIN = "drain this node and run again, or let upgrade_nodes do both"
# Their version is that of a kernel or their own, not the driver's.
_OWN_VERSION = re.compile(r"^(linux-modules-nvidia-|nvlsm$|libnvsdm$)")


@dataclass(frozen=True)
class Seen:
    """What is on a node. None: could not be asked."""

    system: str = ""
    kernel: str = ""
    # Version and flavour of the loaded module; empty when none is loaded.
    loaded: str = ""
    proc: str = ""
    loaded_flavour: str = ""
    # The module that the running kernel would load; empty when there is none.
    on_disk: str | None = None
    on_disk_flavour: str = ""
    # Library -> versions of its files, libcuda -> (580.126.20,)
    libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    packages: Mapping[str, Package] = field(default_factory=dict)
    modules: frozenset = frozenset()
    secure_boot: bool | None = False
    key: str = ""
    key_enrolled: bool | None = None
    headers: bool = True
    # The kernel that boots next, where that is known and not the running one, and what it loads.
    next_kernel: str = ""
    next_on_disk: str | None = None
    # Parameters of the loaded module by the names that it shows them under.
    parameters: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    # Why a job may start here any moment, or that this is not known; asked where it matters.
    in_service: str = ""
    # Packages that earlier runs of the role have held.
    own_holds: frozenset = frozenset()


@dataclass(frozen=True)
class Consent:
    """What the inventory allows."""

    reload: bool = False
    reboot: bool = False


@dataclass(frozen=True)
class Work:
    """What system_packages is given, and whether the driver itself changes."""

    present: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    removals: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    changes_driver: bool = False


def parse_release(text: str) -> dict[str, str]:
    """Return the assignments of os-release(5) or dgx-release."""
    found = {}
    for line in text.splitlines():
        key, sign, value = line.strip().partition("=")
        if sign and not key.startswith("#"):
            found[key] = value.strip().strip("\"'")
    return found


def parse_proc_version(text: str) -> tuple[str, str]:
    """Return version and flavour out of /proc/driver/nvidia/version; two empty texts for none."""
    match = _PROC.search(text)
    if not match:
        return "", ""
    return match.group("v"), OPEN if match.group("open") else PROPRIETARY


def parse_modinfo(text: str) -> tuple[str, str]:
    """Return version and flavour out of `modinfo nvidia`. The open one has two licences."""
    fields = dict(re.findall(r"^(version|license):\s+(.+?)\s*$", text, re.M))
    version = fields.get("version", "")
    if not re.fullmatch(_DRIVER_VERSION, version):
        return "", ""
    return version, OPEN if "GPL" in fields.get("license", "") else PROPRIETARY


def parse_parameters(text: str) -> dict[str, str]:
    """Return name and value of each line of /proc/driver/nvidia/params; texts keep their quotes."""
    return dict(re.findall(r"^(\w+): (.*)$", text, re.M))


def next_boot(names: Iterable[str], grub: str) -> str:
    """Return the newest of the kernels, which GRUB boots; empty where its configuration differs.

    `grub` is that configuration; another entry than the first, and an order of flavours, are not
    followed.
    """
    chosen = parse_release(grub)
    if chosen.get("GRUB_DEFAULT") not in (None, "", "0") or chosen.get("GRUB_FLAVOUR_ORDER"):
        return ""
    return max(names, key=lambda name: [int(n) for n in re.findall(r"\d+", name)], default="")


def library_versions(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the versions of each library from names of files such as libcuda.so.580.126.20."""
    found: dict[str, set[str]] = {}
    for name in names:
        match = _LIBRARY.match(name)
        if match:
            found.setdefault(match.group(1), set()).add(match.group(2))
    return {name: tuple(sorted(versions, key=order)) for name, versions in sorted(found.items())}


def upstream(version: str) -> str:
    """Return 580.126.20 for 1:580.126.20-1ubuntu1; the text itself where it has no such part."""
    match = re.match(r"(?:\d+:)?(\d[\d.]*\d|\d)", version)
    return match.group(1) if match else version


def order(version: str) -> tuple[int, ...]:
    """Return what versions are compared by."""
    return tuple(int(number) for number in re.findall(r"\d+", upstream(version)))


def of_branch(version: str, wanted: str) -> bool:
    """Return whether a version is a wanted one, or of a wanted branch."""
    version = upstream(version)
    return version == wanted or version.startswith(wanted + ".")


def find_package(packages: Mapping[str, Package], pattern: str) -> Package | None:
    """Return the first installed package whose whole name matches."""
    for name in sorted(packages):
        if packages[name].installed and re.fullmatch(pattern, name):
            return packages[name]
    return None


def _has_own_version(name: str, selection: Selection) -> bool:
    return name in selection.own_version or bool(_OWN_VERSION.match(name))


def exact_version(seen: Seen, request: Request, selection: Selection) -> str:
    """Return the version that all parts get: the declared one, or that of the branch's driver here.

    Empty when only a branch is declared, nothing of it is installed, and no source was asked.
    """
    if request.version:
        return request.version
    for name in selection.driver:
        package = seen.packages.get(name)
        if (
            package
            and package.installed
            and not _has_own_version(name, selection)
            and of_branch(package.version, branch_of(request))
        ):
            return upstream(package.version)
    return request.newest


def newest_of_all(
    request: Request, selection: Selection, on_offer: Mapping[str, Sequence[str]]
) -> str:
    """Return the newest version of the branch that all parts have on offer; empty for none."""
    branch = branch_of(request)
    offers = [
        {upstream(one) for one in on_offer.get(name, ()) if of_branch(one, branch)}
        for name in selection.locked
        if not _has_own_version(name, selection)
    ]
    return max(set.intersection(*offers), key=order, default="") if offers else ""


def pin(seen: Seen, request: Request, selection: Selection) -> str:
    """Return the pattern of versions that all parts are kept at, in apt's and dnf's notation."""
    version = exact_version(seen, request, selection)
    return f"{version}-*" if version else f"{branch_of(request)}.*"


def _follows_kernels(name: str, kernel: str) -> bool:
    """Whether a package brings the modules of each new kernel: held, it would leave that without.

    That of one kernel ends with its release.
    """
    return name.startswith("linux-modules-nvidia-") and not name.endswith(f"-{kernel}")


def plan(seen: Seen, request: Request, selection: Selection, extra: Sequence[str] = ()) -> Work:
    """Return the packages of a request; extra are user-space packages, with versions or without."""
    version = exact_version(seen, request, selection)
    pattern = pin(seen, request, selection)
    present, missing, changes = [], [], False
    for name in (*selection.locked, *selection.nvlink):
        own = _has_own_version(name, selection)
        present.append(name if own else f"{name}={pattern}")
        package = seen.packages.get(name)
        there = bool(package and package.installed)
        if not there or (
            package and not own and not of_branch(package.version, version or branch_of(request))
        ):
            missing.append(name)
            changes = changes or (name in selection.driver and name not in selection.own_version)
    beside = parse_wanted(extra)
    present += extra
    missing += [want.name for want in beside if not satisfied(want, seen.packages)]
    headers = headers_package(seen.system, seen.kernel) if selection.dkms else ()
    if headers and not seen.headers:
        present += headers
        missing += headers
    # A driver of another branch, or with the other modules, has other names, and the new one takes
    # its place.
    stays = version or branch_of(request)
    swapped = (seen.on_disk_flavour or seen.loaded_flavour) not in ("", selection.flavour)
    removals = [
        package.name
        for package in seen.packages.values()
        if package.installed
        and is_driver_package(package.name)
        and package.name not in selection.locked
        and (swapped or not of_branch(package.version, stays))
    ]
    held = [
        name
        for name in (*selection.locked, *selection.nvlink)
        if not _follows_kernels(name, seen.kernel)
    ]
    held += [want.name for want in beside if want.version]
    return Work(
        present=tuple(dict.fromkeys(present)),
        held=tuple(held),
        removals=tuple(sorted(removals)) if changes else (),
        missing=tuple(dict.fromkeys(missing)),
        changes_driver=changes,
    )


def obstacles(
    seen: Seen, request: Request, selection: Selection, work: Work, consent: Consent
) -> list[str]:
    """Return what keeps the work from succeeding, one line each; nothing was changed yet."""
    if selection.errors:
        return list(selection.errors)
    older = _older(seen, request, selection, work)
    messages = [*_held(seen, request, selection, work), *older]
    replaced = [name for name in selection.locked if name in work.missing]
    if seen.steps and (replaced or "nouveau" in seen.modules):
        what = f"{replaced[0]} is to be installed" if replaced else "nouveau has the GPUs"
        messages.append(
            f"{what}, and job steps run here ({', '.join(seen.steps)}); drain this node and run "
            "again"
        )
    elif work.changes_driver and seen.loaded and not older:
        messages += filter(None, [_under_use(seen, request, selection, consent)])
    other = _CONFLICTS[selection.flavour]
    if work.changes_driver and other in seen.packages and not request.packages:
        messages.append(
            f"{other} is installed, and dnf does not replace it by {selection.flavour} modules; "
            f"drain this node, run `dnf remove {other}` on it, and run again"
        )
    if "nouveau" in seen.modules and not consent.reboot:
        messages.append(
            "nouveau is loaded, and lets go of the GPUs only in a reboot; allow it with "
            "nvidia_driver_reboot_allowed: true"
        )
    if selection.dkms and seen.secure_boot and not seen.key_enrolled:
        messages.append(_unsigned(seen))
    return messages


def _held(seen: Seen, request: Request, selection: Selection, work: Work) -> list[str]:
    declared = exact_version(seen, request, selection) or branch_of(request)
    beside = {
        one.name: one.version
        for one in parse_wanted(work.present)
        if one.version and not is_driver_package(one.name)
    }
    messages = []
    for package in sorted(seen.packages.values(), key=lambda package: package.name):
        in_the_way = package.name in work.missing or package.name in work.removals
        if package.held and in_the_way and package.name not in seen.own_holds:
            messages.append(
                f"{package.name} is held at {package.version or 'not installed'} and "
                f"blocks {beside.get(package.name, declared)}; release it where it was held "
                "(apt-mark unhold, dnf versionlock delete), or declare its version"
            )
    return messages


def _older(seen: Seen, request: Request, selection: Selection, work: Work) -> list[str]:
    """Return that parts are newer than the version that all get, in one line.

    A branch alone does not go below the driver of it that is loaded.
    """
    version = exact_version(seen, request, selection)
    if not version:
        return []
    newer = [
        f"{name} {seen.packages[name].version}"
        for name in selection.locked
        if name in seen.packages
        and seen.packages[name].installed
        and not _has_own_version(name, selection)
        and order(seen.packages[name].version) > order(version)
    ]
    of_loaded = not request.version and of_branch(seen.loaded, branch_of(request))
    if work.changes_driver and of_loaded and order(seen.loaded) > order(version):
        newer.append(f"the loaded driver {seen.loaded}")
    if not newer:
        return []
    why = (
        f"declared {version}, and a package manager does not go back by itself; remove the driver "
        "first, or declare the newer version"
    )
    if not request.version:
        why = (
            f"{'offered' if version == request.newest else 'installed'} driver {version}, and "
            "without a version nothing goes back; declare the newer one as nvidia_driver_version"
        )
    return [f"{', '.join(newer)}: newer than the {why}"]


def _under_use(seen: Seen, request: Request, selection: Selection, consent: Consent) -> str:
    """Return what the packages of another driver than the loaded one wait for.

    Of a branch alone it may be any of it until the sources were asked.
    """
    version = exact_version(seen, request, selection)
    swapped = seen.loaded_flavour not in ("", selection.flavour)
    if version and of_branch(seen.loaded, version) and not swapped:
        return ""
    declared = version or f"the newest of {branch_of(request)}"
    what = f"driver {seen.loaded} is loaded and {declared} is declared"
    if swapped:
        what += f", {selection.flavour} modules instead of {seen.loaded_flavour} ones"
    if consent.reload or consent.reboot:
        return f"{what}, and {seen.in_service}; {_DRAIN}" if seen.in_service else ""
    return (
        f"{what}; the change needs a reload or a reboot: allow it with "
        "nvidia_driver_reload_allowed: true or nvidia_driver_reboot_allowed: true"
    )


def _unsigned(seen: Seen) -> str:
    if not seen.key:
        act = (
            "there is none in /var/lib/dkms/mok.pub: install dkms, then mokutil --import it, "
            "reboot and confirm it at the console"
        )
    elif seen.key_enrolled is None:
        act = f"whether it knows {seen.key} cannot be asked without mokutil; install that"
    else:
        act = (
            f"it does not know {seen.key}: mokutil --import {seen.key}, reboot and confirm it at "
            "the console"
        )
    other = ", or declare distribution, whose modules are signed" if seen.system in UBUNTU else ""
    return (
        "Secure Boot is on, and modules that are built on this node must be signed by a key that "
        f"the machine knows; {act}{other}"
    )


def absent_packages(
    wanted: Sequence[str], on_offer: Mapping[str, Sequence[str]], headers: Sequence[str]
) -> list[str]:
    """Return one line for each wanted package that no source has.

    wanted are NAME or NAME=PATTERN; on_offer has the versions of each name that is to be had.
    """
    messages = []
    for entry in wanted:
        name, _sign, pattern = entry.partition("=")
        versions = list(on_offer.get(name, ()))
        prefix = pattern.rstrip("*").rstrip(".-")
        if name in headers:
            if not versions:
                messages.append(
                    f"kernel headers are missing and no source has {name}, so that modules for the "
                    "running kernel cannot be built; add it to the source, or boot a kernel whose "
                    "headers are to be had"
                )
        elif not versions:
            messages.append(f"no source has {name}; look at branch and source that are declared")
        elif prefix and not any(version_fits(version, pattern) for version in versions):
            have = ", ".join(sorted({upstream(v) for v in versions}, key=order, reverse=True)[:5])
            messages.append(f"no source has {name} {prefix}; they have {have}")
    return messages


def version_fits(version: str, pattern: str) -> bool:
    """Return whether a package's version answers a pattern like 580.126.20* or 580.*."""
    plain = re.sub(r"^\d+:", "", version)
    stem = re.sub(r"^\d+:", "", pattern).rstrip("*")
    return plain.startswith(stem) if pattern.endswith("*") else version == pattern


def cuda_of(driver: str) -> int | None:
    """Return the CUDA major of a driver's branch; None for a branch that the table lacks."""
    return BRANCHES.get(driver.split(".")[0])


def next_step(seen: Seen) -> str:
    """Return load, reload or reboot where the module on disk is not the loaded one; else empty."""
    if "nouveau" in seen.modules:
        return "reboot"
    if not seen.on_disk or (seen.on_disk == seen.loaded and not other_modules(seen)):
        return ""
    return "reload" if seen.loaded else "load"


def other_modules(seen: Seen) -> bool:
    """Return whether the modules on disk are of another flavour than the loaded ones."""
    return len({seen.loaded_flavour, seen.on_disk_flavour} - {""}) > 1
