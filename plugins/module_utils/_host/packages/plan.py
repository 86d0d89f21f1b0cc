# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Packages installed, held and removed: what the tools print in, a plan out, and its order."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field
from typing import Iterable, Mapping, Protocol, Sequence

from ..._core.run import ToolError

NAME_PATTERN = re.compile(r"^[A-Za-z0-9][A-Za-z0-9+._:-]*$")
# dpkg-query(1), db:Status-Abbrev: half-installed, unpacked, half-configured, triggers.
_UNFINISHED = "HUFWt"
# Several versions of these are installed side by side; dnf.conf(5), installonlypkgs, may name more.
_INSTALL_ONLY = re.compile(r"kernel|gpg-pubkey$")
_LOCKED = re.compile(
    r"could not get lock|lock was locked by another process|is another process using it"
    r"|unable to (?:acquire|lock)|waiting for cache lock",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(
    r"Unable to locate package|has no installation candidate|Version .* for .* was not found"
    r"|404 +Not Found|Couldn't find any package",
)


@dataclass(frozen=True)
class Package:
    """A package that is on the node in some way."""

    name: str
    version: str = ""
    installed: bool = True
    held: bool = False
    unfinished: bool = False


@dataclass(frozen=True)
class Wanted:
    """One entry of the list of packages: a name, and a version pattern or none."""

    name: str
    version: str = ""


@dataclass(frozen=True)
class Plan:
    """What has to be done, and why it cannot be done when there are errors."""

    errors: tuple[str, ...] = ()
    repair: tuple[str, ...] = ()
    install: tuple[Wanted, ...] = ()
    remove: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    unhold: tuple[str, ...] = ()
    change_held: bool = False
    actions: tuple[str, ...] = field(default=())


class Manager(Protocol):
    """The tools of a family of distributions; its methods raise ToolError, OSError."""

    lists_updated: bool

    def load(self) -> dict[str, Package]:
        """Return the packages of the node."""

    def interrupted(self) -> bool:
        """Return whether a killed run left the tools' own records unfinished."""

    def repair(self, change_held: bool) -> None:
        """Finish what a killed run left behind."""

    def install(
        self, wanted: Sequence[Wanted], change_held: bool, removed: Sequence[str] = ()
    ) -> bool:
        """Install packages in place of others, which stay where it cannot be done.

        Return whether anything had to be done.
        """

    def remove(self, names: Sequence[str]) -> None:
        """Remove packages, and only these."""

    def hold(self, names: Sequence[str], held: bool) -> None:
        """Hold packages, or let them go."""


def parse_wanted(entries: Iterable[str]) -> list[Wanted]:
    """Return names and versions of entries like `slurmd` or `slurmd=24.11*`."""
    wanted = []
    for entry in entries:
        name, _sign, version = entry.strip().partition("=")
        wanted.append(Wanted(name.strip(), version.strip()))
    return wanted


def parse_dpkg(text: str) -> dict[str, Package]:
    """Return the packages by name from lines of `Status-Abbrev`, `Package`, `Version` with tabs.

    A package of two architectures counts as unfinished or held when either is.
    """
    packages: dict[str, Package] = {}
    for line in text.splitlines():
        parts = line.split("\t")
        if len(parts) != 3 or len(parts[0]) < 2:
            continue
        status, name, version = parts
        other = packages.get(name, Package(name, installed=False))
        packages[name] = Package(
            name=name,
            version=version if status[1] == "i" else other.version,
            installed=other.installed or status[1] == "i",
            held=other.held or status[0] == "h",
            unfinished=other.unfinished or status[1] in _UNFINISHED or status[2:3] == "R",
        )
    return packages


def parse_rpm(text: str, locks: str = "") -> dict[str, Package]:
    """Return the packages by name from lines of name, version and maybe architecture with tabs.

    A killed upgrade leaves two versions for one architecture, and such a package is unfinished.
    locks is versionlock.list; its lines are like `slurm-0:23.11.1-1.el9.*`.
    """
    held = {
        match.group(1)
        for match in re.finditer(r"^\s*([^#!\s][^\s]*?)-(?:\d+:)?\d[^\s-]*-[^\s-]+$", locks, re.M)
    }
    packages: dict[str, Package] = {}
    seen, twice = set(), set()
    for line in text.splitlines():
        name, tab, rest = line.partition("\t")
        version, _tab, arch = rest.partition("\t")
        if (name, arch) in seen and arch and not _INSTALL_ONLY.match(name):
            twice.add(name)
        seen.add((name, arch))
        if tab:
            packages[name] = Package(
                name, version.strip(), held=name in held, unfinished=name in twice
            )
    return packages


def satisfied(want: Wanted, packages: Mapping[str, Package]) -> bool:
    """Whether an installed package answers an entry of the list."""
    package = packages.get(want.name.split(":", 1)[0])
    if package is None or not package.installed:
        return False
    return not want.version or fnmatch.fnmatchcase(package.version, want.version)


def make_plan(
    packages: Mapping[str, Package],
    present: Sequence[Wanted],
    absent: Sequence[str],
    held: Sequence[str],
    unheld: Sequence[str],
) -> Plan:
    """Return what has to be done to bring the node's packages to what is declared."""
    errors: list[str] = []
    names = {want.name for want in present}
    for name in [*names, *absent, *held, *unheld]:
        if not NAME_PATTERN.match(name):
            errors.append(f"{name!r} is not a package name")
    for first, second, what in (
        (names, absent, "both installed and removed"),
        (held, unheld, "both held and released"),
        (held, absent, "both held and removed"),
    ):
        for name in sorted(set(first) & set(second)):
            errors.append(f"package {name} is declared to be {what}; keep one")
    repair = tuple(sorted(package.name for package in packages.values() if package.unfinished))
    install = tuple(want for want in present if not satisfied(want, packages))
    remove = tuple(name for name in absent if name in packages and packages[name].installed)
    there = {package.name for package in packages.values() if package.installed} | names
    locked = {package.name for package in packages.values() if package.held}
    release = tuple(name for name in dict.fromkeys([*unheld, *remove]) if name in locked)
    hold = tuple(name for name in held if name in there and name not in locked)
    actions = [f"finish {name}" for name in repair]
    actions += [f"release {name}" for name in release]
    actions += [f"remove {name}" for name in remove]
    actions += [
        f"install {want.name}" + (f" {want.version}" if want.version else "") for want in install
    ]
    actions += [f"hold {name}" for name in hold]
    return Plan(
        errors=tuple(errors),
        repair=repair,
        install=install,
        remove=remove,
        hold=hold,
        unhold=release,
        # a version that is declared together with a hold is meant to replace what is held
        change_held=any(want.version and want.name in held for want in install),
        actions=tuple(actions),
    )


def parse_simulation(text: str) -> tuple[list[str], list[str]]:
    """Return what `apt-get --simulate` would install and what it would remove."""
    installs = re.findall(r"^Inst (\S+)", text, re.M)
    removes = re.findall(r"^(?:Remv|Purg) (\S+)", text, re.M)
    return installs, removes


def surplus_removals(removes: Iterable[str], allowed: Iterable[str]) -> list[str]:
    """Return the packages that would be removed though that was not allowed."""
    permitted = set(allowed)
    return sorted({name for name in removes if name.split(":", 1)[0] not in permitted})


def is_locked(text: str) -> bool:
    """Whether a package tool gave up because another one is at work."""
    return bool(_LOCKED.search(text))


def is_unknown(text: str) -> bool:
    """Whether a package tool does not know a package or lost its file: the lists may be old."""
    return bool(_UNKNOWN.search(text))


def needs_update(now: float, updated_at: float, sources_at: float, max_age_s: float) -> bool:
    """Whether the package lists are older than allowed, or than the list of sources.

    Lists from the future were fetched while the clock was wrong: how old they are is not known.
    """
    return updated_at <= 0 or sources_at > updated_at or not 0 <= now - updated_at <= max_age_s


def apply(manager: Manager, plan: Plan, held: Sequence[str], interrupted: bool) -> bool:
    """Do all that is planned; returns whether anything really had to be done."""
    done = False
    if plan.repair or interrupted:
        manager.repair(plan.change_held)
        done = True
    if plan.unhold:
        manager.hold(plan.unhold, held=False)
        done = True
    try:
        if plan.install:
            done = manager.install(plan.install, plan.change_held, plan.remove) or done
        elif plan.remove:
            manager.remove(plan.remove)
            done = True
    except ToolError:
        there = {name for name, package in manager.load().items() if package.installed}
        stay = [name for name in plan.unhold if name in plan.remove and name in there]
        if stay:
            manager.hold(stay, held=True)
        raise
    hold: Sequence[str] = plan.hold
    if plan.change_held:
        # the change took the hold away
        packages = manager.load()
        hold = [name for name in held if name in packages and not packages[name].held]
    if hold:
        manager.hold(hold, held=True)
        done = True
    return done
