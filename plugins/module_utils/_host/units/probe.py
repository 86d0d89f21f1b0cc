# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Judging units and answers of daemons: values in, records out. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..._core.record import FAIL, NOT_MEASURED, PASS, Record
from ..._core.run import MISSING, TIMED_OUT, CommandResult, last_lines
from .plan import STEADY_S, OnDisk, Stamp, UnitState, Wanted, what_it_lacks


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


def judge_unit(unit: UnitState, must_be_enabled: bool, said: str) -> list[Record]:
    """Records of one unit: that it runs, and, when asked for, that it comes up at boot.

    said is the last line of its journal.
    """
    name, subject = unit.name, f"unit:{unit.name}"
    status = FAIL
    if unit.load_state == "not-found":
        # an alias or a package that is missing: nothing runs, and nothing can be said about why
        text = "there is no such unit on this host"
        remedy = "install the package that ships it, or run the role that does"
    elif unit.load_state == "masked":
        text, remedy = "the unit is masked", f"systemctl unmask {name}"
    elif is_up(unit) and unit.unsteady:
        # whatever it is that kills it: in a moment it may be dead again
        text = (
            f"systemd had to start it again {unit.restarts} times, the last time"
            f" {unit.up_s:.0f} s ago; it is believed after {STEADY_S:.0f} s; {said}"
        )
        remedy = f"journalctl -u {name}"
    elif is_up(unit):
        status, text, remedy = PASS, said, ""
    else:
        text = said or "its journal is empty"
        verb = "reset-failed" if unit.result == "start-limit-hit" else "restart"
        remedy = f"journalctl -u {name}, then systemctl {verb} {name}"
    found = {"value": unit.describe(), "unit": ""}
    records = [Record("service.running", subject, status, text, found, remedy=remedy)]
    if must_be_enabled and unit.load_state not in ("not-found", "masked"):
        found = {"value": unit.unit_file_state or "unknown", "unit": ""}
        records.append(
            Record("service.enabled", subject, PASS, "it comes up at boot", found)
            if unit.enabled
            else Record(
                "service.enabled", subject, FAIL, "it does not come up at boot", found,
                remedy=f"systemctl enable {name}",
            )
        )  # fmt: skip
    return records


def judge_files(unit: UnitState, stamp: Stamp | None, disk: OnDisk | None) -> list[Record]:
    """The record that says whether a unit runs with what is on disk, by the stamp of service_sync.

    None where the unit does not run, or where service_sync does not keep it.
    """
    if stamp is None or disk is None or not unit.running:
        return []
    want = Wanted(
        unit.name,
        restart_on=tuple(path for path in stamp.paths if path not in stamp.reloads),
        reload_on=tuple(path for path in stamp.reloads if path in stamp.paths),
    )
    lacks = [reason for reasons in what_it_lacks(want, unit, stamp, disk) for reason in reasons]
    subject = f"unit:{unit.name}"
    if not lacks:
        return [Record("service.files", subject, PASS, "it runs with the files on disk")]
    return [
        Record(
            "service.files", subject, FAIL,
            f"it may run with other files than those on disk: {'; '.join(lacks)}",
            remedy="run the playbook that configures it again",
        )
    ]  # fmt: skip


def is_up(unit: UnitState) -> bool:
    """True for a unit that does its work: a process that runs, a oneshot that has done its job."""
    if unit.active_state not in ("active", "reloading", "refreshing"):
        return False
    if not unit.name.endswith(".service"):
        return True
    return unit.sub_state != "exited" or unit.kind == "oneshot"


def judge_probe(probe: Probe, result: CommandResult) -> Record:
    """The record of one probe. A hang or a missing tool measures nothing."""
    answer = last_lines(result.text, 3)
    rejected = re.search(probe.reject, result.text, re.MULTILINE) if probe.reject else None
    if result.outcome == MISSING or result.outcome == TIMED_OUT:
        status, text = NOT_MEASURED, result.describe()
    elif rejected:
        status, text = FAIL, f"says {_line_of(result.text, rejected)!r}"
    elif result.rc != probe.rc:
        status, text = FAIL, result.describe(3)
    elif probe.expect and not re.search(probe.expect, result.text, re.MULTILINE):
        status, text = FAIL, f"says {answer!r} where {probe.expect!r} is expected"
    else:
        status, text = PASS, answer
    remedy = "" if status == PASS else probe.remedy
    return Record(
        "service.answers", f"probe:{probe.name}", status, text,
        remedy=remedy, took_s=round(result.took_s, 3),
    )  # fmt: skip


def _line_of(text: str, match: re.Match[str]) -> str:
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    return text[start : end if end >= 0 else None].strip()[:300]
