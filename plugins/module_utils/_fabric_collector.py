# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The collector of the fabric's metrics: `fabric-metrics [--config FILE] [--check-config]`.

One run sweeps the subnet once, as the module fabric_verify does, judges it against the plan, and
replaces one file for the textfile collector of node_exporter. The counters are compared with those
of the run before, so that nothing has to wait. Exit status: 0, or 3 when the sweep was not made or
is not whole. What is wrong with the fabric is told by the metrics.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils import _fabric_metrics as metrics
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_answers import Reading
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_collect import (
    Answers,
    Ask,
    ask_fabric,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_judge import (
    EmptyPlanError,
    Expectation,
    FirstLook,
    OtherClusterError,
    first_look,
    judge_fabric,
    records_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_model import (
    CablePlan,
    Sweep,
    plan_from_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._health_state import (
    read_json,
    write_text,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._metrics import (
    Family,
    exposition,
    run_families,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._records import NOT_MEASURED, Record
from ansible_collections.baremetal.dgx.plugins.module_utils._run import CommandRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._run_alone import run

CONFIG = "/etc/baremetal-dgx/fabric-metrics.json"
OK, FAULT = 0, 3
# An older reading says nothing of now; of a shorter time there is too little to judge.
_OLDEST_S, _LEAST_S = 3 * 3600.0, 5.0
_READING = "fabric-metrics-reading.json"


@dataclass(frozen=True)
class Settings:
    """What the role says; `environment` and `options` are for every command."""

    plan_file: str
    metrics_file: str
    state_dir: str
    subnet_managers: Sequence[str] = ()
    other_hosts: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    timeout_s: float = 120.0


def settings_from_data(data: Any) -> Settings:
    """Return the settings of a configuration; ValueError for anything else."""
    if not isinstance(data, Mapping) or data.get("version") != 1:
        raise ValueError("version: must be 1")
    kinds: dict[str, Any] = {
        "plan_file": str, "metrics_file": str, "state_dir": str, "subnet_managers": list,
        "other_hosts": list, "environment": dict, "options": list, "timeout_s": (int, float),
    }  # fmt: skip
    given = {name: value for name, value in data.items() if name != "version"}
    for name, value in given.items():
        if name not in kinds:
            raise ValueError(f"{name}: there is no such setting")
        if not isinstance(value, kinds[name]):
            raise ValueError(f"{name}: {value!r} is of the wrong kind")
    try:
        settings = Settings(**given)
    except TypeError as error:
        raise ValueError(str(error)) from error
    if not settings.metrics_file.endswith(".prom"):
        raise ValueError("metrics_file: must end with .prom, or node_exporter does not read it")
    return settings


def load_plan(path: str) -> CablePlan:
    """Return the cable plan; ValueError where it is none, OSError where it cannot be read."""
    with open(path, encoding="utf-8") as handle:
        data = json.load(handle)
    try:
        plan = plan_from_data(data)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{path} is no cable plan: {type(error).__name__}: {error}") from error
    if not plan.cables:
        raise ValueError(f"{path} has no cables")
    return plan


def reading_to_data(reading: Reading) -> dict[str, Any]:
    """Return a reading for JSON."""
    ports = [[guid, port, values] for (guid, port), values in sorted(reading.ports.items())]
    unread = [list(place) for place in sorted(reading.unread)]
    return {"at_s": reading.at_s, "whole": reading.whole, "ports": ports, "unread": unread}


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
        return Reading(at_s, ports, unread, bool(data["whole"]))
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
        subnet_managers=tuple(settings.subnet_managers), other_hosts=tuple(settings.other_hosts)
    )
    now = _compare(answers, before, now_s)
    try:
        verdict = judge_fabric(plan, answers.observation, wanted, looks[-1] if looks else None)
    except (EmptyPlanError, OtherClusterError) as error:
        return Judged(list(metrics.plan_families(plan)), None, [*problems, str(error)])
    records = records_of(plan, verdict)
    records += [
        Record("fabric.tool", f"tool:{tool}", NOT_MEASURED, why) for tool, why in answers.lost
    ]
    families = [*metrics.plan_families(plan), *metrics.verdict_families(plan, verdict, records)]
    families += metrics.manager_families(answers.observation.sms)
    families += metrics.port_families(verdict, answers.observation.sweep, now)
    window = Family(f"{metrics.PREFIX}_window_seconds", "Time between the readings compared.")
    if before is not None and now is not None:
        window.add(round(now.at_s - before.at_s, 1))
    return Judged([*families, window], now, problems)


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
    judged = judge(plan, settings, runner, reading_from_data(read_json(kept), now_s), now_s)
    if judged.reading is not None:
        write_text(kept, json.dumps(reading_to_data(judged.reading)) + "\n")
    sound = Family(f"{metrics.PREFIX}_collector_ok", "0 when the sweep was not made, or not whole.")
    sound.add(int(not judged.problems))
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(one.ru_utime + one.ru_stime for one in used)
    took = time.monotonic() - began
    families = [
        *judged.families,
        sound,
        *run_families(metrics.PREFIX, time.time(), took, cpu_s),
    ]
    return exposition(families), judged.problems


def main(words: Sequence[str]) -> int:
    """Do one run. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="fabric-metrics", description="Metrics of the fabric")
    parser.add_argument("--config", default=CONFIG, metavar="FILE")
    parser.add_argument("--check-config", action="store_true", help="only read the configuration")
    parser.add_argument("--plan", default="", metavar="FILE", help="instead of the one configured")
    given = parser.parse_args(list(words))
    # Many small objects that all stay: to look for garbage among them would be most of the work.
    gc.disable()
    try:
        with open(given.config, encoding="utf-8") as handle:
            settings = settings_from_data(json.load(handle))
        if given.check_config:
            load_plan(given.plan or settings.plan_file)
            return OK
        text, problems = collect(settings, run)
        write_text(settings.metrics_file, text)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"fabric-metrics: {error}\n")
        return FAULT
    for line in problems:
        sys.stderr.write(f"fabric-metrics: {line}\n")
    return FAULT if problems else OK
