# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Judging units and answers of daemons: values in, records out. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    MISSING,
    TIMED_OUT,
    CommandResult,
    last_lines,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._units import UnitState

PASS, FAIL, NOT_MEASURED = "pass", "fail", "not_measured"
_SOURCE = "baremetal.dgx.service_probe"


@dataclass(frozen=True)
class Probe:
    """One question put to a daemon, and what its answer must (not) contain."""

    name: str
    command: tuple[str, ...]
    expect: str = ""
    reject: str = ""
    rc: int = 0
    timeout_s: float = 10
    remedy: str = ""


def record(
    check: str,
    subject: str,
    status: str,
    measured: str,
    threshold: Mapping[str, Any],
    evidence: str,
    remedy: str,
    at: str,
    took_s: float,
) -> dict[str, Any]:
    """One record in the shape that all checks of the collection share."""
    return {
        "check": check,
        "subject": subject,
        "status": status,
        "measured": {"value": measured, "unit": None},
        "threshold": {"op": "==", "unit": None, "source": _SOURCE, **threshold},
        "evidence": evidence,
        "remedy": remedy if status != PASS else "",
        "at": at,
        "took_s": round(took_s, 3),
    }


def judge_unit(
    unit: UnitState, must_be_enabled: bool, said: str, at: str, took_s: float
) -> list[dict[str, Any]]:
    """Records of one unit: that it runs, and, when asked for, that it comes up at boot.

    said is the last line of its journal.
    """
    name = unit.name
    if unit.load_state == "not-found":
        # an alias or a package that is missing: nothing runs, and nothing can be said about why
        status, evidence = FAIL, "there is no such unit on this host"
        remedy = "install the package that ships it, or run the role that does"
    elif unit.load_state == "masked":
        status, evidence, remedy = FAIL, "the unit is masked", f"systemctl unmask {name}"
    elif is_up(unit):
        status, evidence, remedy = PASS, said, ""
    else:
        status, evidence = FAIL, said or "its journal is empty"
        verb = "reset-failed" if unit.result == "start-limit-hit" else "restart"
        remedy = f"journalctl -u {name}, then systemctl {verb} {name}"
    running = record(
        "unit_running",
        name,
        status,
        unit.describe(),
        {"value": "active (running)"},
        evidence,
        remedy,
        at,
        took_s,
    )
    if not must_be_enabled or unit.load_state in ("not-found", "masked"):
        return [running]
    enabled = record(
        "unit_enabled",
        name,
        PASS if unit.enabled else FAIL,
        unit.unit_file_state or "unknown",
        {"value": "enabled"},
        f"UnitFileState={unit.unit_file_state}",
        f"systemctl enable {name}",
        at,
        took_s,
    )
    return [running, enabled]


def is_up(unit: UnitState) -> bool:
    """True for a unit that does its work: a process that runs, a oneshot that has done its job."""
    if unit.active_state not in ("active", "reloading", "refreshing"):
        return False
    if not unit.name.endswith(".service"):
        return True
    return unit.sub_state != "exited" or unit.kind == "oneshot"


def judge_probe(probe: Probe, result: CommandResult, at: str) -> dict[str, Any]:
    """The record of one probe. A hang or a missing tool measures nothing."""
    threshold: dict[str, Any] = {"value": f"ends with {probe.rc}"}
    if probe.expect:
        threshold = {"op": "matches", "value": probe.expect}
    elif probe.reject:
        threshold = {"op": "does not match", "value": probe.reject}
    answer = last_lines(result.text, 3)
    rejected = re.search(probe.reject, result.text, re.MULTILINE) if probe.reject else None
    if result.outcome == MISSING or result.outcome == TIMED_OUT:
        status, measured, evidence = NOT_MEASURED, "", result.describe()
    elif rejected:
        status, measured = FAIL, rejected.group(0)
        evidence = f"says {_line_of(result.text, rejected)!r}"
    elif result.rc != probe.rc:
        status, measured, evidence = FAIL, f"ended with {result.rc}", result.describe(3)
    elif probe.expect and not re.search(probe.expect, result.text, re.MULTILINE):
        status, measured = FAIL, answer
        evidence = f"says {answer!r} where {probe.expect!r} is expected"
    else:
        status, measured, evidence = PASS, answer, answer
    return record(
        "probe", probe.name, status, measured, threshold, evidence, probe.remedy, at, result.took_s
    )


def _line_of(text: str, match: re.Match[str]) -> str:
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    return text[start : end if end >= 0 else None].strip()[:300]


def finding(rec: Mapping[str, Any]) -> str:
    """One line for one record that is not a pass."""
    subject, remedy = rec["subject"], rec["remedy"]
    if rec["status"] == NOT_MEASURED:
        line = f"{subject}: not measured: {rec['evidence']}"
    elif rec["check"] == "unit_running":
        line = f"{subject} is {rec['measured']['value']}: {rec['evidence']}"
    elif rec["check"] == "unit_enabled":
        line = f"{subject} is {rec['measured']['value']}, so it does not come up at boot"
    else:
        line = f"{subject}: {rec['evidence']}"
    return line + (f"; do: {remedy}" if remedy else "")


def findings(records: Sequence[Mapping[str, Any]], not_measured_ok: bool) -> list[str]:
    """The lines of all records that make the task red."""
    red = (FAIL,) if not_measured_ok else (FAIL, NOT_MEASURED)
    return [finding(rec) for rec in records if rec["status"] in red]
