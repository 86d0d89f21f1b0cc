# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Runs NVIDIA's diagnostics, unless a process holds a GPU."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from .._core.record import NOT_MEASURED, Record
from .._core.run import ENDED, CommandRunner
from .dcgm import TIME_LIMITS, Report, command, judge, judge_run, parse, worst
from .idle import Gpus, busy_record, evidence_of, look


def command_of(options: Mapping[str, Any]) -> list[str]:
    """Return the command line for the options of dcgm_diag."""
    return command(
        options["tool"],
        options["level"],
        options["parameters"],
        options["host_engine"],
        options["gpus"],
        options["extra_arguments"],
    )


def diagnose(
    run: CommandRunner, node: str, options: Mapping[str, Any]
) -> tuple[list[Record], Report]:
    """Return the records of the diagnostics, and what they answered."""
    gpus = look(options["nvml_library"], options["pci"])
    # Level 1 looks at software only; NVIDIA made it for prologs of jobs.
    busy = busy_record("dcgm.idle", node, gpus) if options["level"] > 1 else None
    if busy is not None and not options["busy_ok"]:
        return [busy], Report()
    return _measure(run, node, options, gpus)


def _measure(
    run: CommandRunner, node: str, options: Mapping[str, Any], gpus: Gpus
) -> tuple[list[Record], Report]:
    level = options["level"]
    result = run(command_of(options), options["timeout_s"] or TIME_LIMITS[level])
    if result.outcome != ENDED:
        return judge_run(result, None, node), Report()
    report = parse(result.out)
    about_run = judge_run(result, report, node)
    # An answer that is not there needs no second record that says so.
    if about_run and not report.version:
        return about_run, report
    known = gpus.names(dict(report.serials), [*report.gpus, *options["gpus"]])
    names = {
        number: (f"gpu:{node}/{place}", evidence_of(gpu)) for number, (place, gpu) in known.items()
    }
    records = judge(report, node, level, names, options["expected_gpus"], options["gpus"])
    return worst([*records, *about_run]), report


def without_skips(
    records: Sequence[Record], skips_ok: Sequence[str]
) -> tuple[list[Record], list[Record]]:
    """Return the records less those of tests that may be skipped and were, and these."""
    allowed = {f"dcgm.{name}" for name in skips_ok}
    left = [one for one in records if one.check in allowed and one.status == NOT_MEASURED]
    return [one for one in records if one not in left], left
