# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asks systemd for units and daemons for an answer, again while that may help."""

from __future__ import annotations

import re
import time
from typing import Any, Iterable, Mapping, Sequence

from ansible.module_utils.parsing.convert_bool import boolean

from ..._core.record import NOT_MEASURED, PASS, Record, stamped, utc_text
from ..._core.run import CommandRunner, ToolError
from .plan import STEADY_S, OnDisk, Stamp, UnitState, Wanted, full_name
from .probe import Probe, is_up, judge_files, judge_probe, judge_unit
from .systemd import last_words, on_disk, read_stamp, show

_POLL_S = 1.0


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
    """The probes; raises ToolError for a pattern that is none."""
    probes = []
    for entry in entries:
        for option in ("expect", "reject"):
            try:
                re.compile(entry[option])
            except re.error as error:
                raise ToolError(
                    f"probes: {entry['name']}: {option} is no regular expression: {error}"
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
        # systemd itself does not answer: that says nothing about the units
        states = {}
        records += [
            Record("service.running", f"unit:{name}", NOT_MEASURED, str(error)) for name in units
        ]
    took_s = time.monotonic() - started
    for name, state in states.items():
        said = "" if is_up(state) and not state.unsteady else last_words(run, name)
        records += judge_unit(state, units[name], said)
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
    """Return the records, asked again for so many seconds while one of them is no pass.

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
