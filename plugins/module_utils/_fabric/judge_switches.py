# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Power supplies, fans and temperature of the switches, as ibswinfo prints them.

A switch runs on with one power supply or a dead fan, and no counter of the fabric shows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Iterator, Mapping, Sequence

from .._core.record import FAIL, NOT_MEASURED, PASS, Record, Threshold, judge
from .._core.run import MISSING, TIMED_OUT, CommandRunner
from .findings import Finding
from .judge import FirstLook, Verdict

TOOL = "ibswinfo"
PSU, FAN, TEMPERATURE = "fabric.switch_psu", "fabric.switch_fan", "fabric.switch_temperature"

_LINE = re.compile(r"\s*(\S.*?)\s*\|\s*(.*?)\s*$")
_PSU = re.compile(r"(PSU\d+) status\Z")
_FAN = re.compile(r"fan#(\d+) \(rpm\)\Z")
# The ASIC; beyond this the kernel's own driver of these chips speeds up all fans.
_HOT_C = 85
_HOT_SOURCE = "Linux, mlxsw core_thermal.c: MLXSW_THERMAL_ASIC_TEMP_HIGH"
_TOOL_SOURCE = "ibswinfo: OK is sound"


@dataclass
class Supply:
    """A power supply; None is what the tool did not print."""

    name: str
    serial: str | None = None
    # status, DC power and fan status, by these names
    states: dict[str, str | None] = field(default_factory=dict)


@dataclass
class SwitchHealth:
    """What ibswinfo prints of a switch."""

    serial: str | None = None
    supplies: list[Supply] = field(default_factory=list)
    temperature_c: float | None = None
    fan_status: str | None = None
    # rpm by number; None is a value that is no number
    fans: dict[int, float | None] = field(default_factory=dict)


def _number(text: str) -> float | None:
    return float(text) if re.match(r"\d+(\.\d+)?\Z", text) else None


def parse_ibswinfo(text: str) -> SwitchHealth:
    """Return what the answer says; ValueError if it is none, or cut short."""
    health = SwitchHealth()
    supply: Supply | None = None
    known = False
    lines = text.splitlines()
    for line in lines:
        found = _LINE.match(line)
        if not found:
            if line.startswith("---"):
                supply = None
            continue
        name, value = found.groups()
        known = True
        psu, fan = _PSU.match(name), _FAN.match(name)
        if psu:
            supply = Supply(psu.group(1), states={"status": value or None})
            health.supplies.append(supply)
        elif supply is not None and line.startswith(" "):
            if name == "S/N":
                supply.serial = value or None
            elif name in ("DC power", "fan status"):
                supply.states[name] = value or None
        elif name == "serial number":
            health.serial = value or None
        elif name == "temperature (C)":
            health.temperature_c = _number(value)
        elif name == "fan status":
            health.fan_status = value or None
        elif fan:
            health.fans[int(fan.group(1))] = _number(value)
    if not known:
        raise ValueError(f"{TOOL} printed nothing on a switch")
    if not lines[-1].startswith("---"):
        raise ValueError(f"{TOOL}'s answer is cut short")
    return health


def judge_switch(name: str, health: SwitchHealth) -> Iterator[Record]:
    """Yield the records of a switch."""
    subject = f"switch:{name}"
    serial = f" (serial {health.serial})" if health.serial else ""
    bad, unread = [], []
    for supply in health.supplies:
        for what in ("status", "DC power", "fan status"):
            state = supply.states.get(what)
            if state is None:
                unread.append(f"{supply.name} {what}")
            elif state != "OK":
                whose = f"{supply.name} (serial {supply.serial or 'not reported'})"
                bad.append(f"{whose} {what} is {state}")
    mark = Threshold("==", 0, "power supplies with a fault", _TOOL_SOURCE)
    remedy = f"look at the power supplies of {name} and their feeds; replace the one that is named"
    yield _counted(PSU, subject, bad, unread, health.supplies, mark, f"{name}{serial}", remedy)
    bad, unread = [], []
    if health.fan_status is None:
        unread.append("fan status")
    elif health.fan_status != "OK":
        bad.append(f"fan status is {health.fan_status}")
    for number, rpm in sorted(health.fans.items()):
        if rpm is None:
            unread.append(f"fan {number}")
        elif rpm == 0:
            bad.append(f"fan {number} stands still")
    mark = Threshold("==", 0, "fans with a fault", _TOOL_SOURCE)
    remedy = f"look at the fans of {name}, and replace the module that is named or shows amber"
    yield _counted(FAN, subject, bad, unread, health.fans, mark, f"{name}{serial}", remedy)
    yield judge(
        TEMPERATURE,
        subject,
        health.temperature_c,
        Threshold("<", _HOT_C, "C", _HOT_SOURCE),
        f"{name}{serial}: temperature of the switch chip",
        f"look at the airflow and the fans of {name}",
    )


def _counted(
    check: str,
    subject: str,
    bad: list[str],
    unread: list[str],
    all_of: object,
    mark: Threshold,
    name: str,
    remedy: str,
) -> Record:
    if not bad and (unread or not all_of):
        text = f"{name}: not reported: {', '.join(unread) or 'any'}"
        return Record(check, subject, NOT_MEASURED, text, threshold=mark)
    text = f"{name}: " + ("; ".join(bad) or "all are OK")
    return judge(check, subject, len(bad), mark, text, remedy, bad)


def ask_switches(
    run: CommandRunner, look: FirstLook, timeout_s: float, environment: Mapping[str, str]
) -> tuple[list[Record], dict[str, str]]:
    """Ask each switch of the plan that the sweep has; returns the records, and the raw answers.

    A tool that hangs on one switch is not started for the others.
    """
    records: list[Record] = []
    raw: dict[str, str] = {}
    hung = ""
    matches, sweep = look.matches, look.wiring.sweep
    for name in sorted(look.wiring.plan.switches):
        guid = matches.by_key.get((name, -1))
        lid = sweep.devices[guid].lid if guid is not None else None
        why = hung or ("" if lid else "the sweep does not know its address")
        if not why:
            answer = run([TOOL, "-d", f"lid-{lid}"], timeout_s=timeout_s, env=environment)
            if answer.outcome == MISSING:
                text = f"{TOOL} is not installed"
                return [Record(PSU, "fabric", NOT_MEASURED, text, remedy=f"install {TOOL}")], raw
            raw[f"{TOOL}-{name}"] = answer.out
            if not answer.ok:
                why = answer.describe(2)
                hung = f"not asked: {why}" if answer.outcome == TIMED_OUT else ""
            else:
                try:
                    records += judge_switch(name, parse_ibswinfo(answer.out))
                    continue
                except ValueError as error:
                    why = str(error)
        records += [
            Record(check, f"switch:{name}", NOT_MEASURED, why) for check in (PSU, FAN, TEMPERATURE)
        ]
    return records, raw


def add_findings(verdict: Verdict, records: Sequence[Record]) -> list[Record]:
    """Add what did not pass to the findings and doubts of the fabric; returns what passed."""
    for record in records:
        if record.status != PASS:
            found = verdict.findings if record.status == FAIL else verdict.doubts
            found.append(
                Finding(
                    record.check.partition(".")[2],
                    record.subject,
                    record.text,
                    record.remedy or f"see that {TOOL} answers on this host",
                    evidence=record.evidence,
                    status=record.status,
                    measured=(record.measured or {}).get("value"),
                    threshold=record.threshold,
                )
            )
    return [record for record in records if record.status == PASS]
