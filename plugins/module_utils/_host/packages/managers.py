# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Package managers: dpkg and apt-get (Debian, Ubuntu), rpm and dnf (Enterprise Linux); holds."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any, Mapping, Sequence

from ..._core.files import text_if_readable, text_if_there, write_atomic
from ..._core.run import MISSING, CommandResult, CommandRunner, ToolError
from ..._core.wait import attempts
from .plan import (
    Package,
    Wanted,
    is_locked,
    is_unknown,
    needs_update,
    parse_dpkg,
    parse_rpm,
    parse_simulation,
    parse_wanted,
    satisfied,
    surplus_removals,
)

_POLL_S = 3.0
_APT_LISTS = "/var/lib/apt/lists"
_APT_STAMPS = (
    "/var/lib/baremetal-dgx/package-lists",
    "/var/lib/apt/periodic/update-success-stamp",
    _APT_LISTS,
)
_APT_SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d", "/etc/apt/apt.conf.d")
_VERSION_LOCKS = "/etc/dnf/plugins/versionlock.list"
_PROVIDES = "--whatprovides"
_DPKG_JOURNAL = "/var/lib/dpkg/updates"
_CHANGE_HELD = ["--allow-change-held-packages"]
_APT_ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "APT_LISTCHANGES_FRONTEND": "none",
    # needrestart would restart daemons without being asked
    "NEEDRESTART_SUSPEND": "1",
}
# A configuration file that was changed stays; roles write their own afterwards.
_APT_OPTIONS = (
    "-o", "Dpkg::Options::=--force-confdef",
    "-o", "Dpkg::Options::=--force-confold",
    "-o", "Dpkg::Use-Pty=0",
)  # fmt: skip


def newest(paths: Sequence[str]) -> float:
    """When any of the paths, or what lies directly in them, last changed; 0 when none is there."""
    times = [0.0]
    for path in paths:
        try:
            times.append(os.stat(path).st_mtime)
            if os.path.isdir(path) and path != _APT_LISTS:
                times += [entry.stat().st_mtime for entry in os.scandir(path)]
        except OSError:
            continue
    return max(times)


class Apt:
    """The acts on Debian and its relatives."""

    def __init__(self, run: CommandRunner, params: Mapping[str, Any]) -> None:
        self.run = run
        self.params = params
        self.lists_updated = False

    def load(self) -> dict[str, Package]:
        """The packages of the node."""
        query = ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}\t${Package}\t${Version}\n"]
        answer = self.run(query, timeout_s=60)
        if answer.outcome == MISSING or (not answer.ok and not answer.out):
            raise ToolError(f"the package database cannot be read: {answer.describe()}")
        return parse_dpkg(answer.out)

    def interrupted(self) -> bool:
        """Whether dpkg was killed while it wrote its own records."""
        try:
            return any(name.isdigit() for name in os.listdir(_DPKG_JOURNAL))
        except OSError:
            return False

    def patiently(self, command: Sequence[str]) -> CommandResult:
        """Run a package tool; while another one holds the lock, wait."""
        for left in attempts(self.params["lock_timeout_s"], _POLL_S):
            words = list(command)
            if words[0] == "apt-get":
                words[1:1] = ["-o", f"DPkg::Lock::Timeout={max(1, int(left))}"]
            answer = self.run(words, timeout_s=self.params["timeout_s"], env=_APT_ENVIRONMENT)
            if answer.ok or not is_locked(answer.text):
                break
        return answer

    def update(self, reason: str) -> None:
        """Read the package lists again; a source that is missing shows in the install."""
        answer = self.patiently(["apt-get", "update", "-q"])
        if not answer.ok:
            raise ToolError(f"the package lists ({reason}) cannot be read: {answer.describe()}")
        write_atomic(_APT_STAMPS[0], "", sync=False)
        self.lists_updated = True

    def transact(self, words: Sequence[str], allowed: Sequence[str]) -> bool:
        """Run apt-get, after a simulation has shown that it removes nothing else; was it needed?"""
        command = ["apt-get", "-y", *_APT_OPTIONS, *words]
        rehearsal = self.patiently([*command, "--simulate"])
        if not rehearsal.ok and is_unknown(rehearsal.text) and not self.lists_updated:
            self.update("a package is unknown")
            rehearsal = self.patiently([*command, "--simulate"])
        if not rehearsal.ok:
            raise ToolError(rehearsal.describe(12))
        installs, removes = parse_simulation(rehearsal.out)
        surplus = surplus_removals(removes, allowed)
        if surplus:
            raise ToolError(
                f"`apt-get {' '.join(words)}` would remove {', '.join(surplus)} as well; nothing "
                "was changed. Declare them as absent, or allow it with removals_allowed "
                "(node_base_packages_replaceable)",
                surplus_removals=surplus,
            )
        if not installs and not removes:
            return False
        answer = self.patiently(command)
        if not answer.ok and is_unknown(answer.text) and not self.lists_updated:
            self.update("a package is gone from its source")
            answer = self.patiently(command)
        if not answer.ok:
            raise ToolError(answer.describe(12))
        return True

    def unfinished(self) -> list[str]:
        """Return the names of packages that are neither there nor gone."""
        return [package.name for package in self.load().values() if package.unfinished]

    def repair(self, change_held: bool) -> None:
        """Finish what a killed run left behind."""
        command = ["dpkg", "--configure", "-a", "--force-confdef", "--force-confold"]
        answer = self.patiently(command)
        held = _CHANGE_HELD if change_held else []
        left = self.unfinished()
        if left:
            self.transact(["--fix-broken", "install", *held], [])
            left = self.unfinished()
        if left:
            self.transact(["--reinstall", "install", *held, *left], [])
            left = self.unfinished()
        if left:
            raise ToolError(f"{', '.join(left)}: not finished; {answer.describe(12)}")

    def install(
        self, wanted: Sequence[Wanted], change_held: bool, removed: Sequence[str] = ()
    ) -> bool:
        """Install packages, and remove others in the same go; returns whether it was needed."""
        sources = newest(_APT_SOURCES)
        if needs_update(time.time(), newest(_APT_STAMPS), sources, self.params["lists_max_age_s"]):
            self.update("older than allowed")
        words = ["install"]
        words += [] if self.params["recommends"] else ["--no-install-recommends"]
        words += _CHANGE_HELD if change_held else []
        words += [f"{w.name}={w.version}" if w.version else w.name for w in wanted]
        # apt-get(8): a hyphen after the name removes.
        words += [f"{name}-" for name in removed]
        return self.transact(words, [*self.params["removals_allowed"], *self.params["absent"]])

    def remove(self, names: Sequence[str]) -> None:
        """Remove packages, and only these."""
        self.transact(["remove", *_CHANGE_HELD, *names], self.params["absent"])

    def hold(self, names: Sequence[str], held: bool) -> None:
        """Hold packages, or let them go."""
        answer = self.patiently(["apt-mark", "hold" if held else "unhold", *names])
        if not answer.ok:
            raise ToolError(answer.describe())


class Dnf:
    """The acts on Enterprise Linux."""

    def __init__(self, run: CommandRunner, params: Mapping[str, Any]) -> None:
        self.run = run
        self.params = params
        self.lists_updated = False

    def load(self) -> dict[str, Package]:
        """The packages of the node; a name that only another package provides counts as there."""
        query = "%{NAME}\t%{VERSION}-%{RELEASE}\t%{ARCH}\n"
        answer = self.run(["rpm", "-qa", "--qf", query], timeout_s=60)
        if not answer.ok:
            raise ToolError(f"the package database cannot be read: {answer.describe()}")
        packages = parse_rpm(answer.out, text_if_readable(_VERSION_LOCKS) or "")
        twice = [package for package in packages.values() if package.unfinished]
        if twice:
            duplicates = self._duplicates()
            for package in twice:
                unfinished = package.name in duplicates
                packages[package.name] = replace(package, unfinished=unfinished)
        for want in parse_wanted(self.params["present"]):
            if not want.version and not satisfied(want, packages):
                # `kernel-devel-$(uname -r)` is a name with its version: nothing provides that.
                if any(self.run(["rpm", "-q", *how, want.name]).ok for how in ([], [_PROVIDES])):
                    packages[want.name] = Package(want.name)
        return packages

    def _duplicates(self) -> list[str]:
        """Return what dnf takes for a duplicate: which names it installs only, a site may set."""
        words = ["dnf", "-q", "repoquery", "--installed", "--duplicates", "--qf", "%{name}"]
        answer = self.run(words, timeout_s=self.params["timeout_s"])
        if not answer.ok:
            raise ToolError(f"packages with two versions cannot be asked: {answer.describe()}")
        return answer.out.split()

    def interrupted(self) -> bool:
        """Scripts of packages that did not run leave nothing that could be asked for."""
        return False

    def dnf(self, words: Sequence[str]) -> None:
        """Run dnf, which waits for its own lock."""
        weak = f"--setopt=install_weak_deps={self.params['recommends']}"
        answer = self.run(["dnf", "-y", "-q", weak, *words], timeout_s=self.params["timeout_s"])
        if not answer.ok:
            raise ToolError(answer.describe(12))

    def repair(self, change_held: bool) -> None:
        """Remove the older of two versions; the newer one is installed again, with its scripts."""
        self.dnf(["remove", "--duplicates"])
        left = [package.name for package in self.load().values() if package.unfinished]
        if left:
            raise ToolError(
                f"{', '.join(left)}: not finished; two versions are installed after "
                "`dnf remove --duplicates`"
            )

    def install(
        self, wanted: Sequence[Wanted], change_held: bool, removed: Sequence[str] = ()
    ) -> bool:
        """Install packages; dnf refuses by itself what would need another removal."""
        if change_held:
            self.hold([want.name for want in wanted if want.version], held=False)
        words = [f"{w.name}-{w.version}" if w.version else w.name for w in wanted]
        if removed:
            # They would be missed where the others are not to be had, which may conflict with them.
            self.dnf(["install", "--downloadonly", "--allowerasing", *words])
            self.remove(removed)
        self.dnf(["install", *words])
        return True

    def remove(self, names: Sequence[str]) -> None:
        """Remove packages, and only these."""
        rehearsal = self.run(["rpm", "-e", "--test", *names], timeout_s=60)
        if not rehearsal.ok:
            raise ToolError(
                "other packages need what is to be removed; declare them as absent, too: "
                + rehearsal.describe(12)
            )
        self.dnf(["remove", "--noautoremove", *names])

    def hold(self, names: Sequence[str], held: bool) -> None:
        """Hold packages, or let them go."""
        # The plugin reads the sources first; `delete` ends with 0 where there is nothing to delete.
        answer = self.run(
            ["dnf", "-q", "versionlock", "add" if held else "delete", *names],
            timeout_s=self.params["timeout_s"],
        )
        if not answer.ok and "No such command" in answer.text:
            raise ToolError("dnf cannot hold packages; install python3-dnf-plugin-versionlock")
        if not answer.ok:
            raise ToolError(answer.describe())


class Holds:
    """What a role holds, and what its record says: what it holds no more is released.

    A package has one hold: that of the site ends with it. Without a path there is no record.
    OSError.
    """

    def __init__(self, path: str, held: Sequence[str]) -> None:
        self.path = path
        self.held = list(held)
        self.recorded = (text_if_there(path) or "").split() if path else self.held
        self.released = [name for name in self.recorded if name not in self.held]
        differs = self.recorded != self.held
        self.actions = [f"record in {path} what is held"] if differs else []

    def write(self) -> bool:
        """Write the record; returns whether it was another one."""
        if self.actions:
            write_atomic(self.path, "".join(f"{name}\n" for name in self.held))
        return bool(self.actions)
