# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asks the GPUs of a node, PCI, the kernel log and the fabric manager, and judges what they say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Iterator, Mapping

from .._core.names import full_pci
from .._core.question import Question
from .._core.record import Record
from .._core.run import CommandRunner
from .._core.schema import Option, Problem, check_value, closest
from .._host.kernel_log import read_log
from .host import fabric_manager, load_host, with_instances
from .judge_device import Wanted
from .judge_node import judge_node, wanted_from_profile
from .load import is_loaded
from .nvml.sweep import sweep
from .thresholds import QUESTIONS

_WANTED = ("driver_version", "mig", "ecc", "idle", "since_s")


def check_own(path: str, thresholds: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong in the site's own thresholds: names of checks, and kinds of values.

    An empty value is the table's.
    """
    for check, value in thresholds.items():
        if check in QUESTIONS:
            option = Option(type=_type(QUESTIONS[check]), nullable=True)
            yield from check_value(f"{path}.{check}", value, option)
        else:
            near = closest(str(check), QUESTIONS)
            remedy = f"write {near}" if near else "write a check of docs/thresholds.md"
            yield Problem(f"{path}.{check}", "no check of gpu_health is called so", remedy)


def _type(question: Question) -> str:
    """Return what a threshold of it is: what it is compared with has the same type."""
    for kind, name in ((bool, "bool"), (str, "str")):
        if isinstance(question.value, kind):
            return name
    is_number = question.value is not None or question.unit or question.op != "=="
    return "float" if is_number else "scalar"


def wanted_from_options(options: Mapping[str, Any]) -> Wanted:
    """Return what the options of gpu_health ask for; TypeError, ValueError for what is wrong."""
    for problem in check_own("thresholds", options["thresholds"] or {}):
        raise ValueError(str(problem))
    return wanted_from_profile(
        options["profile"],
        thresholds=options["thresholds"],
        identities={
            full_pci(one["pci"]): (one["uuid"], one["serial"]) for one in options["identities"]
        },
        **{name: options[name] for name in _WANTED},
    )


def ask_gpus(
    run: CommandRunner, node: str, wanted: Wanted, options: Mapping[str, Any]
) -> list[Record]:
    """Return the records of a node's GPUs; `options` are those of gpu_health."""
    limit = options["timeout_s"]
    if wanted.idle and is_loaded():
        # Such as the burn-in of a run that was killed.
        wanted = replace(wanted, idle=False)
    # First, since it forks, and what runs commands leaves threads behind for a moment.
    found = sweep(options["library"], limit)
    host = load_host(options["sysfs"], options["proc"])
    if wanted.nvswitches:
        release, absent = fabric_manager(run, options["fabric_manager"], limit)
        host = replace(host, fabric_manager=release, fabric_manager_absent=absent)
    if wanted.instances:
        host = with_instances(host, run, limit)
    log = read_log(options["kernel_log"], run, limit)
    return list(judge_node(node, wanted, found, host, log))
