# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The collector of Slurm's metrics: `slurm-metrics [--config FILE]`, or a check by an option.

One run asks the controller, each command with its own limit, and replaces one file for the
textfile collector of node_exporter. Only the controller that schedules publishes what is of the
whole cluster. Exit status: 0, or 3 when something was not understood or did not answer.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

from .._core.files import read_json, write_atomic
from .._core.prometheus_text import Family, exposition, run_families
from .._core.run import ENDED, CommandResult, CommandRunner, cpu_seconds, run
from . import slurm_metrics as metrics
from . import slurm_parse as use
from .collector import finish, last_run, parser_of, read_settings

CONFIG = "/etc/baremetal-dgx/slurm-metrics.json"
_NO_DATABASE = "Only 'accounting_storage/slurmdbd' is supported"


@dataclass(frozen=True)
class Settings:
    """What the role says; `native` leaves slurm_* to slurmctld. `timeout_s` is of one command."""

    host: str
    metrics_file: str
    native: bool = False
    accounting: bool = True
    slurm_user: str = "slurm"
    timeout_s: float = 15.0


def settings_from_data(data: Any) -> Settings:
    """Return the settings of a configuration; ValueError for anything else."""
    kinds = {"host": str, "metrics_file": str, "native": bool, "accounting": bool,
             "slurm_user": str, "timeout_s": (int, float)}  # fmt: skip
    settings = read_settings(data, Settings, kinds)
    if settings.timeout_s <= 0:
        raise ValueError("timeout_s: must be above 0")
    return settings


class NotMeasuredError(Exception):
    """A command did not answer, or printed something that is not understood."""


@dataclass
class Collector:
    """One run. `problems` are lines for the log."""

    settings: Settings
    run: CommandRunner
    now_s: float
    problems: list[str] = field(default_factory=list)
    answered: Family = field(
        default_factory=lambda: Family(
            f"{metrics.PREFIX}_command_ok", "1 when the command answered, and was understood."
        )
    )
    took: Family = field(
        default_factory=lambda: Family(
            f"{metrics.PREFIX}_command_duration_seconds", "How long the command took."
        )
    )

    def ask(self, name: str, argv: Sequence[str], read: Callable[[CommandResult], Any]) -> Any:
        """Return what `read` makes of a command's answer, None where it makes nothing of it."""
        # A list of tasks that is truncated would be counted wrongly.
        result = self.run(
            argv,
            timeout_s=self.settings.timeout_s,
            env={"SLURM_BITSTR_LEN": "0", "SLURM_TIME_FORMAT": "standard", "TZ": "UTC"},
        )
        self.took.add(round(result.took_s, 3), command=name)
        try:
            answer = read(result)
        except (NotMeasuredError, ValueError) as error:
            self.problems.append(f"{name}: {error}")
            self.answered.add(0, command=name)
            return None
        self.answered.add(1, command=name)
        return answer

    def families(self) -> list[Family]:
        """Ask everything; returns all metrics but those of the run itself."""
        up = Family(f"{metrics.PREFIX}_controller_up", "1 for a slurmctld that answers.")
        active = Family(f"{metrics.PREFIX}_collector_active", "1 on the controller that schedules.")
        found: list[Family] = []
        # Its status is that of one controller; what it prints is of all.
        ping = self.ask("scontrol_ping", ["scontrol", "ping"], _printed(use.parse_ping))
        for role, host, is_up in ping or ():
            up.add(int(is_up), controller=host, role=role)
        if ping is not None:
            first = next((host for _role, host, is_up in ping if is_up), None)
            is_ours = first is not None and first in self._own_names()
            active.add(int(is_ours))
            # One that is down is waited for by every command.
            found = self._cluster() if is_ours else []
        healthy = Family(f"{metrics.PREFIX}_collector_ok", "0 when something was not measured.")
        healthy.add(int(not self.problems))
        return [up, active, *found, self.answered, self.took, healthy]

    def _own_names(self) -> set[str]:
        name = socket.gethostname()
        return {self.settings.host, name, name.split(".")[0]}

    def _cluster(self) -> list[Family]:
        native = self.settings.native
        found: list[Family] = []
        nodes = self.ask(
            "scontrol_node", ["scontrol", "show", "node", "-o"], _succeeded(use.parse_node_uses)
        )
        jobs = self.ask(
            "squeue",
            ["squeue", "-h", "-a", "-t", "all", "-O", use.JOB_FORMAT],
            _succeeded(use.parse_job_uses),
        )
        if nodes is not None:
            found += [] if native else metrics.node_families(nodes)
            found += metrics.own_node_families(nodes, self.settings.slurm_user)
        if jobs is not None:
            found += [] if native else metrics.job_families(jobs)
            found += metrics.own_job_families(jobs, self.now_s)
        if nodes is not None and jobs is not None and not native:
            found += metrics.partition_families(nodes, jobs)
        if not native:
            numbers = self.ask("sdiag", ["sdiag"], _succeeded(use.parse_sdiag))
            found += metrics.scheduler_families(numbers or {})
        if self.settings.accounting:
            found += self._database()
        return found

    def _database(self) -> list[Family]:
        up = Family(f"{metrics.PREFIX}_database_up", "1 when slurmdbd answers.")
        argv = ["sacctmgr", "-nP", "show", "cluster", "format=cluster"]
        up.add(self.ask("sacctmgr", argv, _database_up))
        argv = ["sshare", "-nP", "-a", "-o", use.SHARE_FORMAT]
        shares = self.ask("sshare", argv, _succeeded(use.parse_shares))
        return [up, *metrics.share_families(shares or [])]


def _printed(parse: Callable[[str], Any]) -> Callable[[CommandResult], Any]:
    """Read what a command prints, whatever its status."""

    def read(result: CommandResult) -> Any:
        if result.outcome != ENDED:
            raise NotMeasuredError(result.describe(2))
        return parse(result.out)

    return read


def _succeeded(parse: Callable[[str], Any]) -> Callable[[CommandResult], Any]:
    """Read what a command prints that ended well and complained of nothing."""

    def read(result: CommandResult) -> Any:
        if not result.ok or "error:" in result.err:
            raise NotMeasuredError(result.describe(2))
        return parse(result.out)

    return read


def _database_up(result: CommandResult) -> int | None:
    if _NO_DATABASE in result.text:
        return None
    if result.outcome != ENDED:
        raise NotMeasuredError(result.describe(2))
    return int(result.ok and bool(result.out.strip()))


def collect(settings: Settings, runner: CommandRunner) -> tuple[str, list[str]]:
    """Return the text of the file, and lines on what was not measured."""
    began = time.monotonic()
    collector = Collector(settings, runner, time.time())
    families = collector.families()
    took = time.monotonic() - began
    families += run_families(metrics.PREFIX, time.time(), took, cpu_seconds())
    return exposition(families), collector.problems


def main(words: Sequence[str]) -> int:
    """Do one run. Returns the exit status."""
    parser = parser_of("slurm-metrics", "Metrics of Slurm", CONFIG)
    given = parser.parse_args(list(words))

    def work() -> list[str]:
        settings = settings_from_data(read_json(given.config))
        if given.check_config:
            return []
        if given.check_metrics is not None:
            return last_run(settings.metrics_file, metrics.PREFIX, given.check_metrics)
        text, problems = collect(settings, run)
        write_atomic(settings.metrics_file, text, sync=False)
        return problems

    return finish(parser.prog, work)
