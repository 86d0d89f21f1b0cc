# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The collector of the fabric's metrics: `fabric-metrics [--config FILE]`, or a check by an option.

One run sweeps the subnet once, as the module fabric_verify does, judges it against the plan, and
replaces one file for the textfile collector of node_exporter. The counters are compared with those
of the run before, so that nothing has to wait. Exit status: 0, or 3 when the sweep was not made or
is not whole. What is wrong with the fabric is reported by the metrics.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping, Sequence

from .._core.files import json_if_readable, read_json, write_atomic
from .._core.prometheus_text import COUNTER, Family, exposition, run_families
from .._core.record import FAIL, NOT_MEASURED, PASS, Record
from .._core.run import CommandRunner, cpu_seconds, run
from .._fabric.ask import Answers, Ask, ask_fabric
from .._fabric.findings import Finding
from .._fabric.judge import (
    EmptyPlanError,
    Expectation,
    FirstLook,
    OtherClusterError,
    Verdict,
    first_look,
    judge_fabric,
    records_of,
)
from .._fabric.judge_counters import JUDGED, TOLD
from .._fabric.judge_subnet_managers import OPENSM, PROVIDERS, Managers
from .._fabric.judge_switches import add_findings, ask_switches
from .._fabric.model import SWITCH, CablePlan, End, Sweep, plan_from_data
from .._fabric.parse_counters import FoundSms, Reading
from .._fabric.thresholds import TEMPERATURE
from .collector import finish, last_run, parser_of, read_settings

PREFIX = "baremetal_dgx_fabric"
_STATUSES = (PASS, FAIL, NOT_MEASURED)
_MANAGERS = {"master": "MASTER", "standby": "STANDBY"}


def plan_families(plan: CablePlan) -> Iterator[Family]:
    """Yield what is known of the plan alone: where each rail of a node goes to."""
    info = Family(f"{PREFIX}_cable_info", "1 for each planned cable of a node.")
    for cable in plan.cables:
        rail, leaf = (cable.b, cable.a) if cable.a.is_switch else (cable.a, cable.b)
        hca = plan.hcas.get((rail.host, rail.rail))
        if rail.is_switch or hca is None or not hca.devices:
            continue
        info.add(
            1,
            node=rail.host,
            device=hca.devices[0],
            rail=str(rail.rail),
            switch=leaf.host,
            port=str(leaf.port),
        )
    yield info


def verdict_families(
    plan: CablePlan, verdict: Verdict, records: Sequence[Record]
) -> Iterator[Family]:
    """Yield what was judged: records, findings, and cables by tier, rail and status."""
    counts = Counter(record.status for record in records)
    status = Family(f"{PREFIX}_records", "Records of the last run by status.")
    for name in _STATUSES:
        status.add(counts[name], status=name)
    yield status
    findings = Family(f"{PREFIX}_finding", "1 for each thing that has to be done.")
    for finding in [*verdict.findings, *verdict.doubts]:
        node, switch, rail = _place(finding)
        findings.add(
            1, kind=finding.kind, subject=finding.subject, status=finding.status,
            severity=finding.cost.severity, node=node, switch=switch, rail=rail,
        )  # fmt: skip
    yield findings
    cables = Family(f"{PREFIX}_cables", "Planned cables by status.")
    number: Counter[tuple[str, str, str]] = Counter()
    groups = set()
    for cable, (found, _text) in verdict.cables.items():
        rails = {str(end.rail) for end in (cable.a, cable.b) if not end.is_switch}
        rail = rails.pop() if rails else ""
        groups.add((cable.kind, rail))
        number[cable.kind, rail, found] += 1
    for tier, rail in sorted(groups):
        for name in _STATUSES:
            cables.add(number[tier, rail, name], tier=tier, rail=rail, status=name)
    yield cables
    devices = Family(f"{PREFIX}_devices", "Nodes and switches, as planned and as found.")
    switches = [one for one in verdict.wiring.sweep.devices.values() if one.kind == SWITCH]
    devices.add(len({node for node, _rail in plan.hcas}), device="node", source="planned")
    seen = {key[0] for key in verdict.matches.by_key if key[1] >= 0}
    devices.add(len(seen), device="node", source="found")
    devices.add(len(plan.switches), device="switch", source="planned")
    devices.add(len(switches), device="switch", source="found")
    yield devices


def _place(finding: Finding) -> tuple[str, str, str]:
    """Return node, switch and rail of a finding; empty for what it has none of, or several."""
    ends: list[End] = [end for cable in finding.cables for end in (cable.a, cable.b)]
    kind, _colon, rest = finding.subject.partition(":")
    nodes = {end.host for end in ends if not end.is_switch}
    switches = {end.host for end in ends if end.is_switch}
    rails = {str(end.rail) for end in ends if not end.is_switch}
    if kind == "node":
        nodes = {rest}
        switches = set()
    elif kind == "switch":
        nodes, switches = set(), {rest}
    return _only(nodes), _only(switches), _only(rails)


def _only(values: set[str]) -> str:
    return next(iter(values)) if len(values) == 1 else ""


def manager_families(sms: FoundSms) -> Iterator[Family]:
    """Yield how many subnet managers there are; nothing where that is not known."""
    family = Family(f"{PREFIX}_subnet_managers", "Subnet managers by state.")
    if sms.asked and not sms.complaints:
        for name, state in _MANAGERS.items():
            family.add(sum(one.state == state for one in sms.sms), state=name)
    yield family


def switch_families(records: Sequence[Record]) -> Iterator[Family]:
    """Yield the temperature of each switch that reported one; faults of it are findings."""
    family = Family(f"{PREFIX}_switch_temperature_celsius", "Temperature of a switch's chip.")
    for record in records:
        if record.check == TEMPERATURE.check and record.measured is not None:
            family.add(record.measured["value"], switch=record.subject.partition(":")[2])
    yield family


def port_families(verdict: Verdict, sweep: Sweep, reading: Reading | None) -> Iterator[Family]:
    """Yield the counters of ports that are not zero."""
    family = Family(
        f"{PREFIX}_port_errors_total", "Error counters of ports, where they are not 0.", COUNTER
    )
    wanted = {*JUDGED, *TOLD}
    described = Counter(device.description.strip() for device in sweep.devices.values())
    for (guid, port), values in sorted(reading.ports.items() if reading else ()):
        end = verdict.matches.end(guid, port)
        device = sweep.devices.get(guid)
        if end is not None:
            name, rail = end.host, "" if end.is_switch else str(end.rail)
        elif device is not None:
            name, rail = device.description.strip() or guid, ""
            # Nodes of SHARP, and adapters that have no name yet, are all described alike.
            name = f"{name} (0x{guid})" if described[name] > 1 else name
        else:
            name, rail = guid, ""
        for counter, value in sorted(values.items()):
            if counter in wanted and value:
                family.add(value, device=name, port=str(port), rail=rail, counter=counter)
    yield family


CONFIG = "/etc/baremetal-dgx/fabric-metrics.json"
# An older reading shows nothing about now; of a shorter time there is too little to judge.
_OLDEST_S, _LEAST_S = 3 * 3600.0, 5.0
# Of one switch: the next is not asked after one that hangs.
_SWITCH_S = 20.0
_READING = "fabric-metrics-reading.json"


@dataclass(frozen=True)
class Settings:
    """What the role says; `environment` and `options` are for every command."""

    plan_file: str
    metrics_file: str
    state_dir: str
    subnet_managers: Sequence[str] = ()
    subnet_manager_provider: str = OPENSM
    subnet_manager_guids: Sequence[str] = ()
    other_hosts: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    timeout_s: float = 120.0
    # Whether each switch is asked for its power supplies, fans and temperature.
    switch_health: bool = False


def settings_from_data(data: Any) -> Settings:
    """Return the settings of a configuration; ValueError for anything else."""
    kinds: dict[str, Any] = {
        "plan_file": str, "metrics_file": str, "state_dir": str, "subnet_managers": list,
        "subnet_manager_provider": str, "subnet_manager_guids": list, "other_hosts": list,
        "environment": dict, "options": list, "timeout_s": (int, float),
        "switch_health": bool,
    }  # fmt: skip
    settings = read_settings(data, Settings, kinds)
    if settings.subnet_manager_provider not in PROVIDERS:
        raise ValueError(f"subnet_manager_provider: write {', '.join(PROVIDERS)}")
    return settings


def load_plan(path: str) -> CablePlan:
    """Return the cable plan; ValueError if it is not one, OSError where it cannot be read."""
    data = read_json(path)
    try:
        plan = plan_from_data(data)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{path} is not a cable plan: {type(error).__name__}: {error}") from error
    if not plan.cables:
        raise ValueError(f"{path} has no cables")
    return plan


def reading_to_data(reading: Reading) -> dict[str, Any]:
    """Return a reading for JSON."""
    ports = [[guid, port, values] for (guid, port), values in sorted(reading.ports.items())]
    unread = [list(place) for place in sorted(reading.unread)]
    return {
        "at_s": reading.at_s,
        "whole": reading.whole,
        "left_out": reading.left_out,
        "ports": ports,
        "unread": unread,
        "asked": None if reading.asked is None else sorted(reading.asked),
    }


def reading_from_data(data: Any, now_s: float) -> Reading | None:
    """Return the reading that was kept, None where there is none that is of use now."""
    try:
        at_s = float(data["at_s"])
        if not _LEAST_S <= now_s - at_s <= _OLDEST_S:
            return None
        ports = {
            (str(guid), int(port)): {str(name): int(value) for name, value in values.items()}
            for guid, port, values in data["ports"]
        }
        unread = {(str(guid), int(port)) for guid, port in data["unread"]}
        whole, left_out = bool(data["whole"]), bool(data["left_out"])
        asked = data.get("asked")
        asked = None if asked is None else set(map(str, asked))
        return Reading(at_s, ports, unread, whole, left_out=left_out, asked=asked)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


@dataclass
class Judged:
    """The metrics of a run, the reading to keep, and lines on what was not measured."""

    families: list[Family]
    reading: Reading | None = None
    problems: list[str] = field(default_factory=list)


def judge(
    plan: CablePlan, settings: Settings, runner: CommandRunner, before: Reading | None, now_s: float
) -> Judged:
    """Sweep the fabric, and judge it. `now_s` is Unix time."""
    looks: list[FirstLook] = []

    def states_matter(sweep: Sweep) -> bool:
        looks.append(first_look(plan, sweep))
        return not looks[-1].wiring.whole

    ask = Ask(
        timeout_s=settings.timeout_s,
        environment=settings.environment,
        options=tuple(settings.options),
    )
    answers = ask_fabric(runner, ask, states_matter=states_matter)
    problems = [f"{tool}: {why}" for tool, why in answers.lost]
    wanted = Expectation(
        subnet_managers=Managers(
            tuple(settings.subnet_managers),
            settings.subnet_manager_provider,
            tuple(settings.subnet_manager_guids),
        ),
        other_hosts=tuple(settings.other_hosts),
    )
    now = _compare(answers, before, now_s)
    problems += _not_whole(answers, now)
    try:
        verdict = judge_fabric(plan, answers.observation, wanted, looks[-1] if looks else None)
    except (EmptyPlanError, OtherClusterError) as error:
        return Judged(list(plan_families(plan)), None, [*problems, str(error)])
    passed: list[Record] = []
    if settings.switch_health and looks:
        limit_s = min(settings.timeout_s, _SWITCH_S)
        asked, _raw = ask_switches(runner, looks[-1], limit_s, settings.environment)
        passed = add_findings(verdict, asked)
        temperatures = list(switch_families(asked))
    else:
        temperatures = []
    records = [*records_of(verdict), *passed]
    records += [
        Record("fabric.tool", f"tool:{tool}", NOT_MEASURED, why) for tool, why in answers.lost
    ]
    families = [*plan_families(plan), *verdict_families(plan, verdict, records)]
    families += manager_families(answers.observation.sms)
    families += temperatures
    families += port_families(verdict, answers.observation.sweep, now)
    window = Family(f"{PREFIX}_window_seconds", "Time between the readings compared.")
    if before is not None and now is not None:
        window.add(round(now.at_s - before.at_s, 1))
    return Judged([*families, window], now, problems)


def _not_whole(answers: Answers, now: Reading | None) -> Iterator[str]:
    """Yield why the sweep or the counters are not whole; to be asked before they are judged.

    What is silent is then no complaint: it has a finding, and the rest of the fabric has answered.
    """
    known = [why for _tool, why in answers.lost]
    for complaint in answers.observation.sweep.complaints:
        if not any(why in complaint for why in known):
            yield complaint
    if now is not None and not now.whole:
        yield from now.complaints


def _compare(answers: Answers, before: Reading | None, now_s: float) -> Reading | None:
    """Put the reading of the run before in front of the one of this run; returns the latter."""
    now = answers.observation.before
    if now is None:
        return None
    # Of a clock that both runs share.
    now.at_s = now_s
    if before is not None:
        answers.observation.before, answers.observation.after = before, now
    return now


def collect(settings: Settings, runner: CommandRunner) -> tuple[str, list[str]]:
    """Return the text of the file, and lines on what was not measured. OSError, ValueError."""
    began, now_s = time.monotonic(), time.time()
    plan = load_plan(settings.plan_file)
    kept = os.path.join(settings.state_dir, _READING)
    judged = judge(plan, settings, runner, reading_from_data(json_if_readable(kept), now_s), now_s)
    if judged.reading is not None:
        write_atomic(kept, json.dumps(reading_to_data(judged.reading)) + "\n", sync=False)
    healthy = Family(f"{PREFIX}_collector_ok", "0 when the sweep was not made, or not whole.")
    healthy.add(int(not judged.problems))
    took = time.monotonic() - began
    families = [
        *judged.families,
        healthy,
        *run_families(PREFIX, time.time(), took, cpu_seconds()),
    ]
    return exposition(families), judged.problems


def main(words: Sequence[str]) -> int:
    """Do one run. Returns the exit status."""
    parser = parser_of("fabric-metrics", "Metrics of the fabric", CONFIG)
    parser.add_argument("--plan", default="", metavar="FILE", help="instead of the one configured")
    given = parser.parse_args(list(words))
    # Many small objects that all stay: to look for garbage among them would be most of the work.
    gc.disable()

    def work() -> list[str]:
        settings = settings_from_data(read_json(given.config))
        if given.check_config:
            load_plan(given.plan or settings.plan_file)
            return []
        if given.check_metrics is not None:
            return last_run(settings.metrics_file, PREFIX, given.check_metrics)
        text, problems = collect(settings, run)
        write_atomic(settings.metrics_file, text, sync=False)
        return problems

    return finish(parser.prog, work)
