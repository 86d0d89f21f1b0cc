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

from .._core.question import Question
from .._core.record import FAIL, NOT_MEASURED, PASS, Record
from .._core.run import MISSING, TIMED_OUT, CommandRunner
from .findings import Finding, by_cost
from .judge import FirstLook, Verdict
from .thresholds import FANS, SUPPLIES, TEMPERATURE

TOOL = "ibswinfo"

_LINE = re.compile(r"\s*(\S.*?)\s*\|\s*(.*?)\s*$")
_PSU = re.compile(r"(PSU\d+) status\Z")
_FAN = re.compile(r"fan#(\d+) \(rpm\)\Z")
# Of a GUID, too, 0 is what it could not read.
_GUID = re.compile(r"0x(?!0+\Z)([0-9a-f]{1,16})\Z", re.I)


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

    guid: str | None = None  # as in a sweep
    serial: str | None = None
    supplies: list[Supply] = field(default_factory=list)
    temperature_c: float | None = None
    fan_status: str | None = None
    # rpm by number; None is a value that is not a number. 0 is also that of a fan it could not read
    fans: dict[int, float | None] = field(default_factory=dict)


def _number(text: str) -> float | None:
    return float(text) if re.match(r"\d+(\.\d+)?\Z", text) else None


def parse_ibswinfo(text: str) -> SwitchHealth:
    """Return what the answer says; ValueError if it is none, or truncated."""
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
        elif name == "GUID":
            digits = _GUID.match(value)
            health.guid = digits.group(1).lower().zfill(16) if digits else None
        elif name == "serial number":
            health.serial = value or None
        elif name == "temperature (C)":
            # As with fans, 0 is what it could not read.
            health.temperature_c = _number(value) or None
        elif name == "fan status":
            health.fan_status = value or None
        elif fan:
            health.fans[int(fan.group(1))] = _number(value)
    if not known:
        raise ValueError(f"{TOOL} printed nothing on a switch")
    if not lines[-1].startswith("---"):
        raise ValueError(f"{TOOL}'s answer is truncated")
    return health


def judge_switch(name: str, health: SwitchHealth) -> Iterator[Record]:
    """Yield the records of a switch."""
    subject = f"switch:{name}"
    serial = f" (serial {health.serial})" if health.serial else ""
    bad, unread = [], []
    for supply in health.supplies:
        for what in ("status", "DC power", "fan status"):
            state = supply.states.get(what)
            # Left out of a managed switch, which does not show it.
            if what == "fan status" and what not in supply.states:
                continue
            if state is None:
                unread.append(f"{supply.name} {what}")
            elif state != "OK":
                whose = f"{supply.name} (serial {supply.serial or 'not reported'})"
                bad.append(f"{whose} {what} is {state}")
    at = f"{name}{serial}"
    supplies, fans = SUPPLIES.filled(switch=name), FANS.filled(switch=name)
    yield _counted(supplies, subject, bad, unread, health.supplies, at)
    bad, unread = [], []
    if health.fan_status is None:
        unread.append("fan status")
    elif health.fan_status != "OK":
        bad.append(f"fan status is {health.fan_status}")
    for number, rpm in sorted(health.fans.items()):
        if rpm == 0 and health.fan_status == "ERROR":
            bad.append(f"fan {number} does not turn")
        elif not rpm:
            unread.append(f"fan {number}")
    yield _counted(fans, subject, bad, unread, health.fans, at)
    text = f"{at}: {TEMPERATURE.what}"
    yield TEMPERATURE.filled(switch=name).judge(subject, health.temperature_c, text=text)


def _counted(
    question: Question, subject: str, bad: list[str], unread: list[str], all_of: object, at: str
) -> Record:
    if not bad and (unread or not all_of):
        text = f"{at}: not reported: {', '.join(unread) or 'any'}"
        threshold = question.threshold()
        return Record(question.check, subject, NOT_MEASURED, text, threshold=threshold)
    text = f"{at}: " + ("; ".join(bad) or "all are OK")
    return question.judge(subject, len(bad), text=text, evidence=bad)


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
                remedy = f"install {TOOL}"
                return [Record(SUPPLIES.check, "fabric", NOT_MEASURED, text, remedy=remedy)], raw
            raw[f"{TOOL}-{name}"] = answer.out
            if not answer.ok:
                why = answer.describe(2)
                hung = f"not asked: {why}" if answer.outcome == TIMED_OUT else ""
            else:
                try:
                    health = parse_ibswinfo(answer.out)
                    if health.guid in (None, guid):
                        records += judge_switch(name, health)
                        continue
                    # It asks through the first active port of this host, whatever the sweep used.
                    why = f"another switch answered at LID {lid}: 0x{health.guid}"
                except ValueError as error:
                    why = str(error)
        records += [
            Record(question.check, f"switch:{name}", NOT_MEASURED, why)
            for question in (SUPPLIES, FANS, TEMPERATURE)
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
    verdict.findings, verdict.doubts = by_cost(verdict.findings), by_cost(verdict.doubts)
    return [record for record in records if record.status == PASS]
