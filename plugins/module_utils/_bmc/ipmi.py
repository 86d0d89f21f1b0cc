# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A BMC over IPMI 2.0, by ipmitool. It has no certificates: for BMCs without Redfish alone."""

from __future__ import annotations

import re
from typing import Any, Mapping

from .._core.run import MISSING, TIMED_OUT, CommandRunner, last_lines, run
from .redfish import BmcError, LackError
from .taken import Taken

_WORDS = {"on": "on", "off": "off", "soft_off": "soft"}
_POWER = re.compile(r"Chassis Power is (on|off)")
_SERIAL = re.compile(r"^ *Product Serial *: *(\S+)", re.M)
_VERSION = re.compile(r"^Firmware Revision *: *(\S+)", re.M)


class Ipmi:
    """A machine over IPMI; each question is a session of ipmitool's own."""

    def __init__(
        self, bmc: Mapping[str, Any], timeout_s: float, runner: CommandRunner = run
    ) -> None:
        self._argv = [
            "ipmitool", "-I", "lanplus", "-H", bmc["address"], "-p", str(bmc["port"]),
            "-U", bmc["user"], "-E", "-C", str(bmc["cipher"]), "-N", "2", "-R", "2",
        ]  # fmt: skip
        # Of the child alone; every user can read argv.
        self._env = {"IPMI_PASSWORD": bmc["password"]}
        self._timeout_s, self._run = timeout_s, runner

    def ask(self, *words: str) -> str:
        """Return what a command of ipmitool prints; BmcError with its last line."""
        result = self._run([*self._argv, *words], timeout_s=self._timeout_s, env=self._env)
        if result.ok:
            return result.out
        if result.outcome == MISSING:
            raise BmcError("the control machine lacks ipmitool: apt-get install ipmitool")
        if result.outcome == TIMED_OUT:
            raise BmcError("no answer in time")
        raise BmcError(f"ipmitool {' '.join(words)}: {last_lines(result.text, 1) or result.rc}")

    def power(self) -> str:
        """Return On or Off."""
        found = _POWER.search(self.ask("chassis", "power", "status"))
        if not found:
            raise BmcError("ipmitool chassis power status: prints no state")
        return found[1].capitalize()

    def reset(self, kind: str) -> None:
        """Switch the machine on or off."""
        if kind not in _WORDS:
            raise LackError("IPMI has no command that cycles AC power")
        self.ask("chassis", "power", _WORDS[kind])

    def tasks(self) -> list[str]:
        """Refuse: IPMI has no tasks."""
        raise LackError("IPMI has no tasks")

    def push(self, package: Mapping[str, Any]) -> Taken:
        """Refuse: IPMI has no command for it."""
        raise LackError("IPMI has no command that updates firmware")

    def task(self, path: str) -> tuple[str, str]:
        """Refuse: IPMI has no tasks."""
        raise LackError("IPMI has no tasks")

    def serial(self) -> str | None:
        """Return the serial number of the machine."""
        found = _SERIAL.search(self.ask("fru", "print", "0"))
        return found[1] if found else None

    def firmware(self) -> dict[str, str]:
        """Return the version of the only component that IPMI knows."""
        found = _VERSION.search(self.ask("mc", "info"))
        return {"BMC": found[1]} if found else {}
