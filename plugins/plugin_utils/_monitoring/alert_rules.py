# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Changes of a site to the alert rules of the collection. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

CHANGES = ("enabled", "expr", "for", "severity")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
_DURATION = re.compile(r"([0-9]+)(ms|[smhdwy])")


def seconds_of(duration: str) -> float:
    """Return the seconds of a duration as Prometheus writes it, `1h30m`; ValueError if none."""
    if not re.fullmatch(rf"(?:{_DURATION.pattern})+", duration):
        raise ValueError(f"'{duration}' is not a duration; write one like 5m")
    return sum(int(number) * _UNITS[unit] for number, unit in _DURATION.findall(duration))


def alerts_of(files: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return all alert rules of the files (name -> what Prometheus' YAML holds), in order."""
    return [
        rule
        for content in files.values()
        for group in content["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]


def _check(files: Mapping[str, Mapping[str, Any]], changes: Mapping[str, Any]) -> None:
    known = {rule["alert"] for rule in alerts_of(files)}
    unknown = sorted(set(changes) - known)
    if unknown:
        raise ValueError(f"no rule is called {', '.join(unknown)}")
    for name, change in changes.items():
        if not isinstance(change, Mapping):
            raise ValueError(f"{name}: write some of {', '.join(CHANGES)}")
        strange = sorted(set(change) - set(CHANGES))
        if strange:
            words = f"{', '.join(strange)} cannot be changed"
            raise ValueError(f"{name}: {words}; write some of {', '.join(CHANGES)}")
        if "for" in change:
            seconds_of(str(change["for"]))


def _changed(rule: Mapping[str, Any], change: Mapping[str, Any], factor: float) -> dict[str, Any]:
    found = dict(rule)
    if "expr" in change:
        found["expr"] = change["expr"]
    if "severity" in change:
        found["labels"] = {**found["labels"], "severity": change["severity"]}
    waits = change.get("for", found.get("for"))
    if waits is not None:
        # What a site writes is meant as it is written.
        scaled = seconds_of(str(waits)) * (1 if "for" in change else factor)
        found["for"] = f"{round(scaled * 1000)}ms" if scaled % 1 else f"{round(scaled)}s"
    return found


def changed_rules(
    files: Mapping[str, Mapping[str, Any]],
    changes: Mapping[str, Any],
    wait_factor: float = 1.0,
    used: Sequence[str] | None = None,
) -> dict[str, dict[str, Any]]:
    """Return the files with the changes of a site.

    Args:
        files: name -> what a rule file of Prometheus holds, all of the collection's, so that a
            change to a rule of a file that is not used is not a mistake.
        changes: name of an alert -> `enabled`, `expr`, `for` or `severity`.
        wait_factor: multiple of each `for` that is not changed.
        used: names of the files to return; all of them without it.

    Raises:
        ValueError: for names that no rule has, and for what cannot be changed.
    """
    if wait_factor <= 0:
        raise ValueError(f"a wait factor of {wait_factor} is not above 0")
    _check(files, changes)
    found = {}
    for name in files if used is None else used:
        groups = []
        for group in files[name]["groups"]:
            rules = list(_kept(group["rules"], changes, wait_factor))
            if rules:
                groups.append({**group, "rules": rules})
        found[name] = {"groups": groups}
    return found


def _kept(
    rules: Iterable[Mapping[str, Any]], changes: Mapping[str, Any], factor: float
) -> Iterable[dict[str, Any]]:
    for rule in rules:
        change = changes.get(rule.get("alert", ""), {})
        if change.get("enabled", True):
            yield _changed(rule, change, factor)
