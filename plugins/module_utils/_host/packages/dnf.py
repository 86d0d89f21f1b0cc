# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The packages of Enterprise Linux: rpm and dnf."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ..._core.files import text_if_readable
from ..._core.run import CommandRunner, ToolError
from .plan import Package, Wanted, parse_rpm, parse_wanted, satisfied

_VERSION_LOCKS = "/etc/dnf/plugins/versionlock.list"


class Dnf:
    """The acts on Enterprise Linux."""

    def __init__(self, run: CommandRunner, params: Mapping[str, Any]) -> None:
        self.run = run
        self.params = params
        self.lists_updated = False

    def load(self) -> dict[str, Package]:
        """The packages of the node; a name that only another package provides counts as there."""
        answer = self.run(["rpm", "-qa", "--qf", "%{NAME}\t%{VERSION}-%{RELEASE}\n"], timeout_s=60)
        if not answer.ok:
            raise ToolError(f"the package database cannot be read: {answer.describe()}")
        packages = parse_rpm(answer.out, text_if_readable(_VERSION_LOCKS) or "")
        for want in parse_wanted(self.params["present"]):
            if not want.version and not satisfied(want, packages):
                query = ["rpm", "-q", "--whatprovides", want.name]
                if self.run(query).ok:
                    packages[want.name] = Package(want.name)
        return packages

    def interrupted(self) -> bool:
        """An interrupted transaction leaves no trace that rpm itself would not mend."""
        return False

    def dnf(self, words: Sequence[str]) -> None:
        """Run dnf, which waits for its own lock."""
        weak = f"--setopt=install_weak_deps={self.params['recommends']}"
        answer = self.run(["dnf", "-y", "-q", weak, *words], timeout_s=self.params["timeout_s"])
        if not answer.ok:
            raise ToolError(answer.describe(12))

    def repair(self, names: Sequence[str]) -> None:
        """Nothing to do: rpm has no half-configured packages."""

    def install(self, wanted: Sequence[Wanted], change_held: bool) -> bool:
        """Install packages; dnf refuses by itself what would need a removal."""
        if change_held:
            self.hold([want.name for want in wanted if want.version], held=False)
        self.dnf(["install", *[f"{w.name}-{w.version}" if w.version else w.name for w in wanted]])
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
        answer = self.run(["dnf", "-q", "versionlock", "add" if held else "delete", *names])
        if not answer.ok and "No such command" in answer.text:
            raise ToolError("dnf cannot hold packages; install python3-dnf-plugin-versionlock")
        if not answer.ok and held:
            raise ToolError(answer.describe())
