# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asks the GPUs of a node, PCI, the kernel log and the fabric manager, and judges what they say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Mapping

from .._core.names import full_pci
from .._core.record import Record
from .._core.run import CommandRunner
from .._host.kernel_log import read_log
from .host import fabric_manager, load_host, with_instances
from .judge_device import Wanted
from .judge_node import judge_node, wanted_from_profile
from .load import is_loaded
from .nvml.sweep import sweep

_WANTED = ("driver_version", "mig", "ecc", "idle", "since_s")


def wanted_from_options(options: Mapping[str, Any]) -> Wanted:
    """Return what the options of gpu_health ask for; TypeError, ValueError for a bad profile."""
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
