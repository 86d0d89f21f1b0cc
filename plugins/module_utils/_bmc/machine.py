# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""One BMC as what it can do, be it over Redfish or IPMI."""

from __future__ import annotations

import contextlib
import re
from typing import Any, Callable, ContextManager, Iterator, Mapping, Protocol

from .ipmi import Ipmi
from .redfish import BmcError, LackError, RefusedError, Session, link, session
from .taken import Taken, read_taken

ON, SOFT_OFF, OFF, AC_CYCLE = "on", "soft_off", "off", "ac_cycle"
# What a system accepts for each, the best first (Redfish, Resource, ResetType). PowerCycle and
# ForceRestart are not among them: they end as they began, and nothing shows that they happened.
_RESETS = {
    ON: ("On", "ForceOn"),
    SOFT_OFF: ("GracefulShutdown",),
    OFF: ("ForceOff",),
    AC_CYCLE: ("FullPowerCycle",),
}
# NVIDIA DGX GB200 user guide, Redfish commands: a chassis drops its power with the BMC's own.
_AC_ACTION, _AC_TYPES = "#NvidiaChassis.AuxPowerReset", ("AuxPowerCycleForce", "AuxPowerCycle")
# Seconds that a BMC may take to accept a whole package.
_PUSH_S = 1800.0
# A task itself, not its monitor.
_TASK = re.compile(r"/Tasks/[^/]+/?$")
# Redfish, Task, TaskState: what ends a task otherwise than well.
_FAILED = ("Exception", "Killed", "Cancelled", "Cancelling", "Interrupted")


class Machine(Protocol):
    """What can be asked of a BMC; LackError for what it has no way to do, BmcError for the rest."""

    def serial(self) -> str | None:
        """Return the serial number of the machine; None if the BMC does not say it."""

    def power(self) -> str:
        """Return On, Off, or a state on the way there."""

    def reset(self, kind: str) -> None:
        """Do one of ON, SOFT_OFF, OFF and AC_CYCLE, as far as the BMC accepts it."""

    def firmware(self) -> dict[str, str]:
        """Return the version of each component, empty where the BMC names none."""

    def tasks(self) -> list[str]:
        """Return the paths of all tasks, those that have ended among them."""

    def push(self, package: Mapping[str, Any]) -> Taken:
        """Send a package of firmware; return the answer, which was accepted."""

    def task(self, path: str) -> tuple[str, str]:
        """Return `running`, `ended` or `failed` of a task, and what the BMC says about it."""


Opener = Callable[[], ContextManager[Machine]]


class RedfishMachine:
    """A machine over a session of Redfish."""

    def __init__(self, opened: Session, name: str) -> None:
        self.session = opened
        self._system = opened.system(name)
        self._is_fresh = True

    def system(self) -> dict[str, Any]:
        """Return the system as it is now."""
        if not self._is_fresh:
            self._system = self.session.get(self._system["@odata.id"])
        self._is_fresh = False
        return self._system

    def serial(self) -> str | None:
        """Return the serial number of the machine; None if the BMC does not say it."""
        found: str | None = self._system.get("SerialNumber")
        return found

    def power(self) -> str:
        """Return On, Off, or a state on the way there."""
        state = self.system().get("PowerState")
        if not isinstance(state, str):
            raise BmcError(f"{self._system['@odata.id']} has no PowerState")
        return state

    def reset(self, kind: str) -> None:
        """Do one of ON, SOFT_OFF, OFF and AC_CYCLE, as far as the BMC accepts it."""
        action = _action(self._system, "#ComputerSystem.Reset")
        known = action.get("ResetType@Redfish.AllowableValues")
        # Without a list the BMC tells when it is asked.
        wanted = [one for one in _RESETS[kind] if known is None or one in known]
        if action and wanted and not (kind == AC_CYCLE and known is None):
            self.session.send("post", action.get("target"), {"ResetType": wanted[0]})
        elif kind == AC_CYCLE:
            self._ac_cycle()
        else:
            raise LackError(f"{self._system['@odata.id']} has no reset {_RESETS[kind][0]}")
        self._is_fresh = False

    def firmware(self) -> dict[str, str]:
        """Return the version of each component, empty where the BMC names none."""
        return self.session.firmware()

    def tasks(self) -> list[str]:
        """Return the paths of all tasks, those that have ended among them."""
        try:
            path = link(self.session.linked(self.session.root, "Tasks"), "Tasks")
            members = self.session.get(path).get("Members")
        except RefusedError as error:
            raise LackError(str(error)) from error
        return [str(one["@odata.id"]) for one in members or () if one.get("@odata.id")]

    def push(self, package: Mapping[str, Any]) -> Taken:
        """Send a package of firmware; return the answer, which was accepted."""
        service = self.session.linked(self.session.root, "UpdateService")
        targets = list(package["targets"])
        simple = _action(service, "#UpdateService.SimpleUpdate")
        if service.get("MultipartHttpPushUri"):
            return self.session.push(
                service["MultipartHttpPushUri"], package["file"], {"Targets": targets}, _PUSH_S
            )
        if simple and package["uri"]:
            body = {"ImageURI": package["uri"], **({"Targets": targets} if targets else {})}
            answer = self.session.send("post", simple.get("target"), body)
            return read_taken(answer.status, answer.text, answer.getheader("Location"))
        raise LackError("the BMC takes no file (MultipartHttpPushUri), and the package has no uri "
                        "for SimpleUpdate")  # fmt: skip

    def task(self, path: str) -> tuple[str, str]:
        """Return `running`, `ended` or `failed` of a task, and what the BMC says about it."""
        data = self.session.get(path)
        # The monitor of a task that is over answers as what was asked would have (DMTF DSP0266).
        state = data.get("TaskState") or (None if _TASK.search(path) else "Completed")
        messages = [
            str(one.get("Message")) for one in data.get("Messages") or () if one.get("Message")
        ]
        text = f"{state} {data.get('PercentComplete', '')}".strip()
        text = ": ".join([text, *messages[-1:]])[:200]
        if state in _FAILED or data.get("TaskStatus") == "Critical":
            return "failed", text
        return ("ended" if state == "Completed" else "running"), text

    def _ac_cycle(self) -> None:
        for chassis in self.session.members(link(self.session.root, "Chassis")):
            action = _action(chassis, _AC_ACTION, "Oem")
            known = action.get("ResetType@Redfish.AllowableValues", _AC_TYPES)
            wanted = [one for one in _AC_TYPES if one in known]
            if action and wanted:
                self.session.send("post", action.get("target"), {"ResetType": wanted[0]})
                return
        raise LackError("the BMC has no way to cycle AC power (FullPowerCycle, AuxPowerReset)")


def _action(resource: Mapping[str, Any], name: str, group: str = "") -> Mapping[str, Any]:
    found = resource.get("Actions") or {}
    action = (found.get(group) or {} if group else found).get(name)
    return action if isinstance(action, Mapping) else {}


def require_declared(bmc: Mapping[str, Any], serial: str | None) -> None:
    """RefusedError unless this is the machine that is declared, where a serial number is.

    An address leads to another machine when two have changed places: that one may have a job.
    """
    if not bmc["serial"] or serial == bmc["serial"]:
        return
    place, declared = f"the machine at {bmc['address']}", f"declared is {bmc['serial']}"
    if serial:
        raise RefusedError(f"{place} is {serial}, {declared}; correct node_address or node_serial")
    raise RefusedError(f"{place} says no serial number, {declared}; leave node_serial out")


@contextlib.contextmanager
def machine(bmc: Mapping[str, Any], timeout_s: float) -> Iterator[Machine]:
    """Yield the machine behind a BMC, by the declared protocol; BmcError if there is none."""
    if bmc["protocol"] == "ipmi":
        yield Ipmi(bmc, timeout_s)
        return
    with session(bmc, timeout_s) as opened:
        yield RedfishMachine(opened, bmc["system"])
