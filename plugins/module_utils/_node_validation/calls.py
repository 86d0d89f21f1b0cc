# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The checks of validate_nodes as the program of a node calls them.

By the name of its module, with all of its options: the answer is what the module would return.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping

from .._burn import control as burn
from .._burn.parent import is_running
from .._burn.state import load as load_burn
from .._core.check_module import result_of
from .._core.names import short_name
from .._core.run import CommandRunner, find
from .._gpu.ask import ask_gpus, wanted_from_options
from .._gpu.dcgm import diagnose, without_skips
from .._host.cpu_memory_load import ask_cpus
from .._ib.ask import ask_rails
from .._ib.judge import wanted_from_data
from .._nccl import run as nccl
from .._storage.ask_fio import ask_fio
from .._storage.ask_mounts import ask_mounts
from .parts import left_out

_BURN = "gpu_burn"
# How often Slurm is asked whether it still keeps jobs away.
_LOOK_S = 60.0

Options = Mapping[str, Any]


def _gpu_health(run: CommandRunner, node: str, options: Options) -> dict[str, Any]:
    started = time.monotonic()
    records = ask_gpus(run, node, wanted_from_options(options), options)
    return result_of(records, took_s=time.monotonic() - started)


def _ib_health(run: CommandRunner, node: str, options: Options) -> dict[str, Any]:
    wanted = wanted_from_data(options["rails"])
    started = time.monotonic()
    records, links, _warning = ask_rails(run, node, wanted, options)
    return result_of(records, took_s=time.monotonic() - started, links=links)


def _mount_check(_run: CommandRunner, node: str, options: Options) -> dict[str, Any]:
    stage, word = options["stage"], options["run"]
    return result_of(ask_mounts(options["mounts"], node, stage, word, False))


def _cpu_memory_check(_run: CommandRunner, node: str, options: Options) -> dict[str, Any]:
    return result_of(ask_cpus(node, options, False)[0])


def _dcgm_diag(run: CommandRunner, node: str, options: Options) -> dict[str, Any]:
    records, _report = diagnose(run, node, options)
    return result_of(without_skips(records, options["skips_ok"])[0])


def _gpu_burn(
    _run: CommandRunner, node: str, options: Options, lost: Callable[[], str]
) -> dict[str, Any]:
    result: dict[str, Any] = {"changed": False}
    folder = options["folder"]
    burn.begin(options, burn.settings_of(options), result, False)
    if options["state"] == "finished":
        until = time.monotonic() + (options["wait_s"] or 2 * options["duration_s"] + 600)
        while is_running(folder) and time.monotonic() < until:
            burn.follow(folder, min(until, time.monotonic() + _LOOK_S))
            why = lost() if is_running(folder) else ""
            if why:
                stop_burn(options)
                return left_out(why)
    return burn.report(options, node, load_burn(folder), result)


def _nccl_all_reduce(run: CommandRunner, _node: str, options: Options) -> dict[str, Any]:
    plan = nccl.plan_of(options)
    problem = nccl.problem_of(plan)
    if problem:
        raise ValueError(problem)
    return result_of(nccl.run_if_free(plan, nccl.choose(plan, find), run, options))


def _fio_check(run: CommandRunner, node: str, options: Options) -> dict[str, Any]:
    result: dict[str, Any] = {"commands": [], "removed": []}
    return result_of(ask_fio(run, node, options, find, result, False), **result)


CALLS: dict[str, Callable[..., dict[str, Any]]] = {
    "gpu_health": _gpu_health,
    "ib_health": _ib_health,
    "mount_check": _mount_check,
    "cpu_memory_check": _cpu_memory_check,
    "dcgm_diag": _dcgm_diag,
    _BURN: _gpu_burn,
    "nccl_all_reduce": _nccl_all_reduce,
    "fio_check": _fio_check,
}


def call(
    run: CommandRunner, module: str, options: Options, lost: Callable[[], str]
) -> dict[str, Any]:
    """Return what the module of this name returns; KeyError, and what a check raises.

    A burn-in ends as soon as `lost` says why the node must not be loaded any more.
    """
    more = (lost,) if module == _BURN else ()
    return CALLS[module](run, options.get("node") or short_name(), options, *more)


def stop_burn(options: Options) -> None:
    """Interrupt a burn-in that still runs; it can be resumed. BurnError, OSError."""
    burn.halt(options["folder"], {}, False)
