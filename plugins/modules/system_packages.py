#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: system_packages
short_description: Keep packages installed, held and removed as declared
description:
  - Works with APT (Debian, Ubuntu) and with DNF (Enterprise Linux), without their Python bindings.
  - A node that has what is declared costs one query of the package database. Package lists are read
    anew only when something is to be installed and they are old, or older than the sources.
  - Packages that a killed run left unpacked or half configured are finished first.
  - Nothing is removed that is not declared. An install or a removal that would take other packages
    along is refused, and the error names them.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: Whether the sources have the packages is not asked.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  present:
    description: Packages that are installed; C(NAME), or C(NAME=VERSION) where the version may end
      in C(*).
    type: list
    elements: str
    default: []
  absent:
    description: Packages that are not installed. Their configuration files stay.
    type: list
    elements: str
    default: []
  held:
    description: Packages that upgrades leave alone (C(apt-mark hold), C(dnf versionlock)). One that
      is neither installed nor declared is passed over.
    type: list
    elements: str
    default: []
  unheld:
    description: Packages that are no longer held. Holds that are not named are left alone.
    type: list
    elements: str
    default: []
  removals_allowed:
    description: Packages that an install may replace.
    type: list
    elements: str
    default: []
  recommends:
    description: Whether recommended (weak) dependencies are installed, too.
    type: bool
    default: false
  lists_max_age_s:
    description: Seconds after which the package lists count as old (APT).
    type: int
    default: 3600
  lock_timeout_s:
    description: Seconds to wait for another package manager to finish.
    type: int
    default: 300
  timeout_s:
    description: Seconds one run of the package manager may take.
    type: int
    default: 1800
"""

EXAMPLES = r"""
- name: Have chrony, keep the driver where it is, and do without automatic upgrades
  baremetal.dgx.system_packages:
    present: [chrony]
    held: [nvidia-driver-570-open]
    absent: [unattended-upgrades]
    removals_allowed: [systemd-timesyncd]
"""

RETURN = r"""
actions:
  description: What was done, or would be in check mode, in order.
  returned: always
  type: list
  elements: str
  sample: ["install chrony", "hold nvidia-driver-570-open"]
lists_updated:
  description: Whether the package lists were read anew.
  returned: success
  type: bool
"""

import os
import time
from typing import Any, Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._packages import (
    Package,
    Plan,
    Wanted,
    is_locked,
    is_unknown,
    make_plan,
    needs_update,
    parse_dpkg,
    parse_rpm,
    parse_simulation,
    parse_wanted,
    satisfied,
    surplus_removals,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    MISSING,
    CommandResult,
    CommandRunner,
    ModuleRunner,
    ToolError,
)

_POLL_S = 3.0
_APT_LISTS = "/var/lib/apt/lists"
_APT_STAMPS = (
    "/var/lib/baremetal-dgx/package-lists",
    "/var/lib/apt/periodic/update-success-stamp",
    _APT_LISTS,
)
_APT_SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d", "/etc/apt/apt.conf.d")
_DPKG_JOURNAL = "/var/lib/dpkg/updates"
_VERSION_LOCKS = "/etc/dnf/plugins/versionlock.list"
_APT_ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "APT_LISTCHANGES_FRONTEND": "none",
    # needrestart would restart daemons behind everybody's back
    "NEEDRESTART_SUSPEND": "1",
}
# A configuration file that somebody has changed stays; roles write their own afterwards.
_APT_OPTIONS = (
    "-o", "Dpkg::Options::=--force-confdef",
    "-o", "Dpkg::Options::=--force-confold",
    "-o", "Dpkg::Use-Pty=0",
)  # fmt: skip

ARGUMENT_SPEC: dict[str, Any] = {
    "present": {"type": "list", "elements": "str", "default": []},
    "absent": {"type": "list", "elements": "str", "default": []},
    "held": {"type": "list", "elements": "str", "default": []},
    "unheld": {"type": "list", "elements": "str", "default": []},
    "removals_allowed": {"type": "list", "elements": "str", "default": []},
    "recommends": {"type": "bool", "default": False},
    "lists_max_age_s": {"type": "int", "default": 3600},
    "lock_timeout_s": {"type": "int", "default": 300},
    "timeout_s": {"type": "int", "default": 1800},
}


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
        deadline = time.monotonic() + self.params["lock_timeout_s"]
        while True:
            left = deadline - time.monotonic()
            words = list(command)
            if words[0] == "apt-get":
                words[1:1] = ["-o", f"DPkg::Lock::Timeout={max(1, int(left))}"]
            answer = self.run(words, timeout_s=self.params["timeout_s"], env=_APT_ENVIRONMENT)
            if answer.ok or not is_locked(answer.text) or time.monotonic() > deadline:
                return answer
            time.sleep(_POLL_S)

    def update(self, reason: str) -> None:
        """Read the package lists anew; a source that is missing shows in the install."""
        answer = self.patiently(["apt-get", "update", "-q"])
        if not answer.ok:
            raise ToolError(f"the package lists ({reason}) cannot be read: {answer.describe()}")
        os.makedirs(os.path.dirname(_APT_STAMPS[0]), mode=0o755, exist_ok=True)
        with open(_APT_STAMPS[0], "w", encoding="ascii"):
            os.utime(_APT_STAMPS[0])
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

    def repair(self, names: Sequence[str]) -> None:
        """Finish what a killed run left behind."""
        self.patiently(["dpkg", "--configure", "-a", "--force-confdef", "--force-confold"])
        left = [package.name for package in self.load().values() if package.unfinished]
        if left:
            self.transact(["--fix-broken", "install"], [])
            left = [package.name for package in self.load().values() if package.unfinished]
        if left:
            self.transact(["--reinstall", "install", *left], [])

    def install(self, wanted: Sequence[Wanted], change_held: bool) -> bool:
        """Install packages; returns whether anything had to be done."""
        sources = newest(_APT_SOURCES)
        if needs_update(time.time(), newest(_APT_STAMPS), sources, self.params["lists_max_age_s"]):
            self.update("older than allowed")
        words = ["install"]
        words += [] if self.params["recommends"] else ["--no-install-recommends"]
        words += ["--allow-change-held-packages"] if change_held else []
        words += [f"{w.name}={w.version}" if w.version else w.name for w in wanted]
        return self.transact(words, [*self.params["removals_allowed"], *self.params["absent"]])

    def remove(self, names: Sequence[str]) -> None:
        """Remove packages, and only these."""
        self.transact(["remove", "--allow-change-held-packages", *names], self.params["absent"])

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
        answer = self.run(["rpm", "-qa", "--qf", "%{NAME}\t%{VERSION}-%{RELEASE}\n"], timeout_s=60)
        if not answer.ok:
            raise ToolError(f"the package database cannot be read: {answer.describe()}")
        try:
            with open(_VERSION_LOCKS, encoding="utf-8") as handle:
                locks = handle.read()
        except OSError:
            locks = ""
        packages = parse_rpm(answer.out, locks)
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


def apply(manager: Apt | Dnf, plan: Plan, held: Sequence[str], interrupted: bool) -> bool:
    """Do all that is planned; returns whether anything really had to be done."""
    done = False
    if plan.repair or interrupted:
        manager.repair(plan.repair)
        done = True
    if plan.unhold:
        manager.hold(plan.unhold, held=False)
        done = True
    if plan.remove:
        manager.remove(plan.remove)
        done = True
    if plan.install:
        done = manager.install(plan.install, plan.change_held) or done
    hold: Sequence[str] = plan.hold
    if plan.change_held:
        # the change took the hold away
        packages = manager.load()
        hold = [name for name in held if name in packages and not packages[name].held]
    if hold:
        manager.hold(hold, held=True)
        done = True
    return done


def main() -> None:
    """Load, plan, apply, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    run = ModuleRunner(module)
    manager: Apt | Dnf = Apt(run, params) if module.get_bin_path("dpkg-query") else Dnf(run, params)
    actions: list[str] = []
    try:
        plan = make_plan(
            manager.load(),
            parse_wanted(params["present"]),
            params["absent"],
            params["held"],
            params["unheld"],
        )
        if plan.errors:
            raise ToolError("; ".join(plan.errors), errors=list(plan.errors))
        interrupted = manager.interrupted()
        actions = list(plan.actions)
        if interrupted and not plan.repair:
            actions.insert(0, "finish an interrupted run of dpkg")
        changed = bool(actions)
        if not module.check_mode:
            changed = apply(manager, plan, params["held"], interrupted)
    except ToolError as error:
        module.fail_json(msg=str(error), actions=actions, **error.details)
    except OSError as error:
        module.fail_json(msg=f"cannot use {error.filename}: {error.strerror}", actions=actions)
    actions = actions if changed else []
    result: dict[str, Any] = {
        "changed": changed,
        "actions": actions,
        "lists_updated": manager.lists_updated,
    }
    if module._diff and actions:
        result["diff"] = {"prepared": "\n".join(actions) + "\n"}
    module.exit_json(**result)


if __name__ == "__main__":
    main()
