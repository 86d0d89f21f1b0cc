# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Reads from one BMC what is judged: plain values, and for what is lacking the reason."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from .ipmi import Ipmi
from .redfish import BmcError, Session, link, session

_LISTS = (
    ("supplies", "power", "PowerSupplies"),
    ("fans", "thermal", "Fans"),
    ("temperatures", "thermal", "Temperatures"),
)


def read(bmc: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """Return what a BMC says, by part; BmcError if there is no session.

    `system` has power, health and serial; `supplies`, `fans` and `temperatures` are lists, and
    `firmware` the version of each component. A part that is lacking is a key of `lacking`.
    """
    with session(bmc, timeout_s) as opened:
        lacking: dict[str, str] = {}
        found: dict[str, Any] = {"lacking": lacking}

        def part(name: str, ask: Callable[[], Any]) -> None:
            try:
                found[name] = ask()
            except BmcError as error:
                lacking[name] = str(error)

        system: dict[str, Any] = {}
        part("system", lambda: _system(opened, bmc["system"], system))
        if system:
            part("chassis", lambda: _chassis(opened, system))
        if system and "chassis" in found:
            chassis = found.pop("chassis")
            part("power", lambda: _all(opened, chassis, "Power"))
            part("thermal", lambda: _all(opened, chassis, "Thermal"))
        why = lacking.get("chassis") or lacking.get("system", "")
        for name, resource, items in _LISTS:
            if resource in found:
                found[name] = [
                    one
                    for answer in found[resource]
                    for one in answer.get(items) or ()
                    if isinstance(one, dict)
                ]
            else:
                lacking[name] = lacking.get(resource) or why
        if bmc["firmware"]:
            part("firmware", lambda: _firmware(opened))
        return found


def read_ipmi(bmc: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """Return what a BMC says over IPMI, as read() does; BmcError if it does not answer."""
    machine = Ipmi(bmc, timeout_s)
    lacking = {name: "not read over IPMI" for name, _resource, _items in _LISTS}
    found: dict[str, Any] = {"lacking": lacking, "system": {"power": machine.power()}}
    if bmc["serial"]:
        found["system"]["serial"] = machine.serial()
    if bmc["firmware"]:
        found["firmware"] = machine.firmware()
    return found


def _system(opened: Session, name: str, kept: dict[str, Any]) -> dict[str, Any]:
    kept.update(opened.system(name))
    status = kept.get("Status") or {}
    return {
        "power": kept.get("PowerState"),
        "health": status.get("HealthRollup") or status.get("Health"),
        "serial": kept.get("SerialNumber"),
    }


def _chassis(opened: Session, system: Mapping[str, Any]) -> list[dict[str, Any]]:
    named = (system.get("Links") or {}).get("Chassis") or []
    if not named:
        raise BmcError(f"{system.get('@odata.id')} names no chassis")
    return [opened.get(one.get("@odata.id")) for one in named]


def _all(opened: Session, chassis: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return what each chassis that has it links to; BmcError if none has."""
    having = [one for one in chassis if name in one]
    if not having:
        raise BmcError(f"{chassis[0].get('@odata.id')} has no {name}")
    return [opened.linked(one, name) for one in having]


def _firmware(opened: Session) -> dict[str, str]:
    inventory = link(opened.linked(opened.root, "UpdateService"), "FirmwareInventory")
    return {
        str(one.get("Id")): str(one["Version"])
        for one in opened.members(inventory)
        if one.get("Version")
    }
