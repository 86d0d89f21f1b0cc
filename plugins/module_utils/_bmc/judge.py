# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Judges the answers of BMCs. Pure."""

from __future__ import annotations

import collections
import fnmatch
import itertools
import re
from typing import Any, Iterator, Mapping, Sequence

from .._core.record import Record
from . import thresholds as ask
from .event_log import News

# Entries of an event log in a record; all that are new are in the look's own file.
_MOST_LINES = 32
_PARTS = re.compile(r"[0-9]+|[A-Za-z]+")


def judge_fleet(
    bmcs: Mapping[str, Mapping[str, Any]],
    seen: Mapping[str, Mapping[str, Any]],
    lacking: Mapping[str, str],
) -> list[Record]:
    """Return the records of all nodes: `seen` as read() gives it, `lacking` why there is none."""
    records: list[Record] = []
    common, usual = _common(bmcs, seen), _usual(bmcs, seen)
    for name, bmc in bmcs.items():
        subject = f"node:{name}"
        if name in lacking:
            records.append(ask.ACCESS.judge(subject, None, text=lacking[name]))
        elif name in seen:
            records.append(ask.ACCESS.judge(subject, "open"))
            records += _judge(subject, bmc, seen[name], common, usual)
    return records


def _judge(
    subject: str,
    bmc: Mapping[str, Any],
    seen: Mapping[str, Any],
    common: Mapping[Any, str],
    usual: Mapping[str, Sequence[str]],
) -> Iterator[Record]:
    why = seen["lacking"]
    system = seen.get("system") or {}
    for question, key, wanted in (
        (ask.POWER, "power", None),
        (ask.HEALTH, "health", None),
        (ask.SERIAL, "serial", bmc["serial"]),
    ):
        if question is not ask.SERIAL or wanted:
            text = why.get("system", "the BMC does not say it") if not system.get(key) else None
            yield question.judge(subject, system.get(key) or None, wanted, text=text)
    yield _parts(ask.SUPPLIES, subject, "supplies", seen)
    yield _parts(ask.FANS, subject, "fans", seen)
    yield _temperatures(subject, seen)
    if bmc["firmware"]:
        yield _firmware(subject, bmc, seen, common, usual)
    if "news" in seen:
        yield _news(subject, seen["news"], why)


def _parts(question: Any, subject: str, name: str, seen: Mapping[str, Any]) -> Record:
    """Return the record of parts that have a status; a place without a part has none."""
    known: dict[str, str] = {}
    unread: list[str] = []
    for index, one in enumerate(seen.get(name) or ()):
        status = one.get("Status") or {}
        label = one.get("Name") or one.get("MemberId") or index
        if status.get("State") == "Absent":
            continue
        if status.get("Health"):
            known[f"{label} ({index})" if str(label) in known else str(label)] = status["Health"]
        elif status.get("State"):
            unread.append(f"{label}: {status['State']}, no health")
    if not known and not unread:
        text = seen["lacking"].get(name) or f"the BMC reports no {name}"
        return question.judge(subject, None, text=text)
    bad = {label: health for label, health in known.items() if health != "OK"}
    text = ", ".join([f"{label}: {health}" for label, health in bad.items()] or unread)
    measured = None if unread and not bad else len(bad)
    return question.judge(subject, measured, text=text or f"{len(known)} {name}")


def _temperatures(subject: str, seen: Mapping[str, Any]) -> Record:
    known = [
        (str(one.get("Name")), one["ReadingCelsius"], one["UpperThresholdCritical"])
        for one in seen.get("temperatures") or ()
        if _is_number(one.get("ReadingCelsius")) and _is_number(one.get("UpperThresholdCritical"))
    ]
    if not known:
        why = seen["lacking"].get("temperatures")
        text = why or "no sensor has a reading and a critical threshold"
        return ask.TEMPERATURES.judge(subject, None, text=text)
    hot = [f"{name}: {value:g} of {most:g} °C" for name, value, most in known if value >= most]
    text = ", ".join(hot) or f"{len(known)} sensors"
    return ask.TEMPERATURES.judge(subject, len(hot), text=text)


def _news(subject: str, news: News | None, why: Mapping[str, str]) -> Record:
    """Return the record of what is new in the event log; None is a log that was not read."""
    if news is None:
        return ask.LOG.judge(subject, None, text=why.get("log"))
    counts = collections.Counter(one["Severity"] for one in news.entries)
    since = f"new since {news.since}" if news.since else "at the first look"
    text = f"{len(news.entries)} entries {since}, {counts['Warning']} warnings"
    bad = [one for one in news.entries if one["Severity"] == "Critical"]
    lines = [f"{one['Created']} {one['Message']}" for one in bad]
    if lines:
        more = f"; and {len(lines) - 3} more" if len(lines) > 3 else ""
        text = f"{'; '.join(lines[:3])}{more} ({text})"
    if news.is_lost:
        text += "; the log was cleared or has wrapped since, and entries may be lost"
    measured = None if news.is_lost and not bad else len(bad)
    return ask.LOG.judge(subject, measured, text=text, evidence=lines[:_MOST_LINES])


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _firmware(
    subject: str,
    bmc: Mapping[str, Any],
    seen: Mapping[str, Any],
    common: Mapping[Any, str],
    usual: Mapping[str, Sequence[str]],
) -> Record:
    versions = seen.get("firmware")
    if versions is None:
        return ask.FIRMWARE.judge(subject, None, text=seen["lacking"].get("firmware"))
    wrong: list[str] = []
    unknown: list[str] = []
    for pattern, rule in bmc["firmware"].items():
        matching = fnmatch.filter(sorted(versions), pattern)
        if not matching:
            unknown.append(f"the BMC has no component {pattern}")
        elif rest := [one for one in usual[bmc["profile"]] if one not in versions]:
            unknown += [
                f"the BMC has no component {one}, which most nodes of its profile have"
                for one in fnmatch.filter(rest, pattern)
            ]
        for component in matching:
            version = versions[component]
            if not version:
                unknown.append(f"{component} names no version")
            elif "exact" in rule and version != rule["exact"]:
                wrong.append(f"{component} {version}, declared {rule['exact']}")
            elif "minimum" in rule and _order(version) < _order(rule["minimum"]):
                wrong.append(f"{component} {version}, at least {rule['minimum']}")
            elif rule.get("alike"):
                most = common.get((bmc["profile"], component), "")
                if not most:
                    unknown.append(f"no version of {component} is that of most nodes")
                elif version != most:
                    wrong.append(f"{component} {version}, most nodes have {most}")
    text = "; ".join(wrong or unknown) or f"{len(versions)} components"
    return ask.FIRMWARE.judge(subject, None if unknown and not wrong else len(wrong), text=text)


def _usual(
    bmcs: Mapping[str, Mapping[str, Any]], seen: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Return the components that more than half of each profile's nodes have."""
    lists: dict[str, list[Mapping[str, Any]]] = {}
    for name, one in seen.items():
        if one.get("firmware") is not None:
            lists.setdefault(bmcs[name]["profile"], []).append(one["firmware"])
    return {
        profile: sorted(
            component
            for component, count in collections.Counter(itertools.chain(*some)).items()
            if 2 * count > len(some)
        )
        for profile, some in lists.items()
    }


def _common(
    bmcs: Mapping[str, Mapping[str, Any]], seen: Mapping[str, Mapping[str, Any]]
) -> dict[tuple[str, str], str]:
    """Return the version of each profile's component that more nodes have than any other."""
    counts: dict[tuple[str, str], collections.Counter[str]] = {}
    for name, one in seen.items():
        for component, version in (one.get("firmware") or {}).items():
            if version:
                key = bmcs[name]["profile"], component
                counts.setdefault(key, collections.Counter())[version] += 1
    found: dict[tuple[str, str], str] = {}
    for key, counter in counts.items():
        ranked: Sequence[tuple[str, int]] = counter.most_common(2)
        if len(ranked) == 1 or ranked[0][1] > ranked[1][1]:
            found[key] = ranked[0][0]
    return found


def _order(version: str) -> list[tuple[int, int, str]]:
    """Return what sorts versions: numbers as numbers, and after words."""
    return [
        (1, int(part), "") if part.isdigit() else (0, 0, part) for part in _PARTS.findall(version)
    ]
