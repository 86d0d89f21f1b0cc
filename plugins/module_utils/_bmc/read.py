# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Reads from one BMC what is judged: plain values, and for what is lacking the reason."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from .event_log import entries_of
from .ipmi import Ipmi
from .redfish import BmcError, LackError, Session, link, session

_LISTS = (
    ("supplies", "power", "PowerSupplies"),
    ("fans", "thermal", "Fans"),
    ("temperatures", "thermal", "Temperatures"),
)

# What keeps events of the hardware, of a machine or a manager the first that is there: OpenBMC has
# both, and the second repeats the first. Others are about logins, or for the maker. iDRAC writes
# Sel, iLO IML, XCC PlatformLog or StandardLog, Supermicro Log1.
_LOGS = ("SEL", "EventLog", "IML", "PlatformLog", "StandardLog", "Log1")
# Of a manager of Supermicro that is about logins.
_MANAGER_LOGS = _LOGS[:-1]
# 3,639 entries of an AMI BMC in pages of 50.
_MOST_LOG_PAGES = 128


def read(bmc: Mapping[str, Any], timeout_s: float, log: bool = False) -> dict[str, Any]:
    """Return what a BMC says, by part; BmcError if there is no session.

    `system` has power, health and serial; `supplies`, `fans` and `temperatures` are lists, and
    `firmware` the version of each component. With `log` there are the entries of its event log. A
    part that is lacking is a key of `lacking`.
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
            part("power", lambda: _power(opened, chassis))
            part("thermal", lambda: _thermal(opened, chassis))
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
            part("firmware", opened.firmware)
        if log and system:
            part("log", lambda: _log(opened, system))
        elif log:
            lacking["log"] = lacking["system"]
        return found


def read_ipmi(bmc: Mapping[str, Any], timeout_s: float, log: bool = False) -> dict[str, Any]:
    """Return what a BMC says over IPMI, as read() does; BmcError if it does not answer."""
    machine = Ipmi(bmc, timeout_s)
    lacking = dict.fromkeys(("log", *(one[0] for one in _LISTS)), "not read over IPMI")
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


def _power(opened: Session, chassis: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the resources Power; the same of PowerSubsystem, which has replaced it."""
    if _has(chassis, "Power") or not _has(chassis, "PowerSubsystem"):
        return _all(opened, chassis, "Power")
    return _members(opened, _all(opened, chassis, "PowerSubsystem"), "PowerSupplies")


def _thermal(opened: Session, chassis: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the resources Thermal; the same of ThermalSubsystem and Sensors."""
    if _has(chassis, "Thermal") or not _has(chassis, "ThermalSubsystem", "Sensors"):
        return _all(opened, chassis, "Thermal")
    having = [one for one in chassis if "ThermalSubsystem" in one]
    systems = [opened.linked(one, "ThermalSubsystem") for one in having]
    sensors = [one for answer in _members(opened, chassis, "Sensors") for one in answer["Sensors"]]
    warm = [
        {
            "Name": one.get("Name"),
            "ReadingCelsius": one.get("Reading"),
            "UpperThresholdCritical": (
                (one.get("Thresholds") or {}).get("UpperCritical") or {}
            ).get("Reading"),
        }
        for one in sensors
        if one.get("ReadingType") == "Temperature"
    ]
    return [*_members(opened, systems, "Fans"), {"Temperatures": warm}]


def _has(chassis: list[dict[str, Any]], *names: str) -> bool:
    return any(name in one for one in chassis for name in names)


def _members(opened: Session, owners: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the members of each collection of that name, under that name."""
    return [{name: opened.members(link(one, name))} for one in owners if name in one]


def _all(opened: Session, chassis: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return what each chassis that has it links to; BmcError if none has."""
    if not _has(chassis, name):
        raise BmcError(f"{chassis[0].get('@odata.id')} has no {name}")
    return [opened.linked(one, name) for one in chassis if name in one]


def _log(opened: Session, system: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the entries of the event logs of a machine and its managers; BmcError if none has."""
    managers = (system.get("Links") or {}).get("ManagedBy") or []
    entries: list[dict[str, str]] = []
    is_there = False
    for owner in (system, *(opened.get(one.get("@odata.id")) for one in managers)):
        if "LogServices" not in owner:
            continue
        names = _LOGS if owner is system else _MANAGER_LOGS
        service = _event_log(opened.members(link(owner, "LogServices")), names)
        if service is not None:
            path = link(service, "Entries")
            entries += entries_of(opened.members(path, _MOST_LOG_PAGES), path)
            is_there = True
    if not is_there:
        raise LackError(f"{system.get('@odata.id')} has no event log ({', '.join(_LOGS)})")
    return entries


def _event_log(services: list[dict[str, Any]], names: Sequence[str]) -> dict[str, Any] | None:
    """Return the first of these names, whatever its case; else the only one of entries SEL."""
    known = {str(one.get("Id")).lower(): one for one in services}
    for name in names:
        if name.lower() in known:
            return known[name.lower()]
    sel = [one for one in services if one.get("LogEntryType") == "SEL"]
    return sel[0] if len(sel) == 1 else None
