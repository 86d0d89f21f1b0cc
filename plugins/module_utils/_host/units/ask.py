# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asks systemd for units and daemons for an answer, again while that may help, and judges both."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

from ansible.module_utils.parsing.convert_bool import boolean

from ..._core.record import FAIL, NOT_MEASURED, PASS, Record, stamped, utc_text
from ..._core.run import MISSING, TIMED_OUT, CommandResult, CommandRunner, ToolError, last_lines
from .plan import STEADY_S, OnDisk, Stamp, UnitState, Wanted, full_name, what_it_lacks
from .systemd import last_words, on_disk, read_stamp, show

_POLL_S = 1.0


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


def judge_unit(unit: UnitState, must_be_enabled: bool, last_line: str) -> list[Record]:
    """Records of one unit: that it runs, and, when asked for, that it comes up at boot.

    `last_line` is the last line of its journal.
    """
    name, subject = unit.name, f"unit:{unit.name}"
    status = FAIL
    if unit.load_state == "not-found":
        # an alias or a package that is missing: nothing runs, and the reason is unknown
        text = "there is no such unit on this host"
        remedy = "install the package that ships it, or run the role that does"
    elif unit.load_state == "masked":
        text, remedy = "the unit is masked", f"systemctl unmask {name}"
    elif is_up(unit) and unit.unsteady:
        # whatever it is that kills it: in a moment it may be dead again
        text = (
            f"systemd had to start it again {unit.restarts} times, the last time"
            f" {unit.up_s:.0f} s ago; it is believed after {STEADY_S:.0f} s; {last_line}"
        )
        remedy = f"journalctl -u {name}"
    elif is_up(unit):
        status, text, remedy = PASS, last_line, ""
    else:
        text = last_line or "its journal is empty"
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
            remedy="run the playbook that configures it again"
            + (", or restart it; drain a node with jobs before that" if stamp.pending else ""),
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


def parse_units(entries: Sequence[Any]) -> dict[str, bool]:
    """Unit name → whether it must be enabled; raises ToolError for anything else."""
    units: dict[str, bool] = {}
    for entry in entries:
        if isinstance(entry, str):
            units[full_name(entry)] = True
        elif isinstance(entry, dict) and set(entry) <= {"name", "enabled"} and "name" in entry:
            units[full_name(str(entry["name"]))] = boolean(entry.get("enabled", True))
        else:
            raise ToolError(f"units: {entry!r} is neither a name nor a dict of name and enabled")
    return units


def parse_probes(entries: Sequence[dict[str, Any]]) -> list[Probe]:
    """The probes; raises ToolError for an invalid pattern."""
    probes = []
    for entry in entries:
        for option in ("expect", "reject"):
            try:
                re.compile(entry[option])
            except re.error as error:
                raise ToolError(
                    f"probes: {entry['name']}: {option} is not a regular expression: {error}"
                ) from error
        probes.append(Probe(**{**entry, "command": tuple(entry["command"])}))
    return probes


def measure(
    run: CommandRunner, units: Mapping[str, bool], probes: Iterable[Probe]
) -> tuple[list[Record], dict[str, UnitState]]:
    """One record for each question, and the states of the units."""
    records: list[Record] = []
    started = time.monotonic()
    try:
        states = show(run, list(units))
    except ToolError as error:
        # systemd itself does not answer: that shows nothing about the units
        states = {}
        records += [
            Record("service.running", f"unit:{name}", NOT_MEASURED, str(error)) for name in units
        ]
    took_s = time.monotonic() - started
    for name, state in states.items():
        last_line = "" if is_up(state) and not state.unsteady else last_words(run, name)
        records += judge_unit(state, units[name], last_line)
        records += judge_files(state, *known_files(state))
    records = stamped(records, utc_text(), took_s)
    for probe in probes:
        at = utc_text()
        answer = run(probe.command, timeout_s=probe.timeout_s)
        records += stamped([judge_probe(probe, answer)], at)
    return records, states


def known_files(state: UnitState) -> tuple[Stamp | None, OnDisk | None]:
    """What service_sync has on record of a unit, and the same files as they are on disk now."""
    stamp = read_stamp(state.name)
    if stamp is None:
        return None, None
    return stamp, on_disk(Wanted(state.name, restart_on=tuple(stamp.paths)), state)


def may_recover(
    records: Iterable[Record], states: Mapping[str, UnitState], restarts: dict[str, int]
) -> bool:
    """True when nothing is bad but units that systemd started again, and no more than at first.

    restarts has how often, by unit, and learns of those that are new.
    """
    for bad in records:
        if bad.status == PASS:
            continue
        state = states.get(bad.subject.partition(":")[2])
        if bad.check != "service.running" or state is None or not state.unsteady:
            return False
        if state.restarts > restarts.setdefault(state.name, state.restarts):
            return False
    return True


def ask_again(
    run: CommandRunner, units: Mapping[str, bool], probes: Sequence[Probe], wait_s: float
) -> list[Record]:
    """Return the records, asked again for so many seconds while one of them did not pass.

    For longer where a unit was started again a moment ago, and may be believed after a while. A
    negative `wait_s` asks once.
    """
    started = time.monotonic()
    restarts: dict[str, int] = {}
    while True:
        records, states = measure(run, units, probes)
        patience_s = wait_s
        if wait_s >= 0 and may_recover(records, states, restarts):
            patience_s = max(wait_s, STEADY_S + _POLL_S)
        passed = all(record.status == PASS for record in records)
        if passed or time.monotonic() - started >= patience_s:
            return records
        time.sleep(_POLL_S)
