# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""How an all_reduce is run: nccl-tests on this node or by srun, or ctypes on this node."""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from .._core.question import Question
from .._core.record import NOT_MEASURED, Record
from .._core.run import CommandRunner
from .._gpu.idle import Gpus, busy_record, evidence_of, look
from .._gpu.load import loading
from .nccl_tests import finish, judge, judge_run, parse, published_for
from .thresholds import BUSBW
from .without_mpi import parent as _nccl_ctypes
from .without_mpi.rank import UNIT

AUTO, NCCL_TESTS, CTYPES = "auto", "nccl_tests", "ctypes"
LOCAL, SRUN = "local", "srun"
_WARMUPS = 5


class Plan(NamedTuple):
    """What to run, by the names of the module's options; sizes in bytes, times in seconds."""

    nodes: Sequence[str]
    gpus_per_node: int
    gpu_type: str
    given: Question | None
    size_bytes: int
    first_size_bytes: int
    iterations: int
    runner: str
    launcher: str
    tool: str
    container_image: str
    container_mounts: str
    slurm_mpi: str
    slurm_options: Sequence[str]
    slurm_wait_s: int
    extra_arguments: Sequence[str]
    environment: Mapping[str, str]
    timeout_s: float
    nccl_library: str

    @property
    def program(self) -> str:
        """Name or path of the program of nccl-tests."""
        return self.tool or ("all_reduce_perf_mpi" if self.launcher == SRUN else "all_reduce_perf")

    @property
    def subject(self) -> str:
        """What the records are about."""
        if len(self.nodes) == 1:
            return f"node:{self.nodes[0]}"
        return f"nodes:{','.join(self.nodes)}"

    @property
    def question(self) -> Question | None:
        """With the threshold that was given, else the published one, for eight GPUs a node."""
        if self.given is not None or self.gpus_per_node != 8:
            return self.given
        return published_for(self.gpu_type, len(self.nodes), self.size_bytes)


def problem_of(plan: Plan) -> str:
    """Return why a plan cannot be run, empty where it can."""
    if not plan.nodes or len(set(plan.nodes)) != len(plan.nodes):
        return "nodes must name each node once"
    if plan.launcher == LOCAL and len(plan.nodes) > 1:
        return "several nodes need launcher: srun"
    if plan.launcher == SRUN and plan.runner == CTYPES:
        return "runner ctypes works on this node only; use launcher: local"
    if not 0 < plan.first_size_bytes <= plan.size_bytes:
        # nccl-tests would print no line of the size that is judged.
        return "first_size_bytes must be positive and not above size_bytes"
    size = plan.first_size_bytes
    while size < plan.size_bytes:
        size *= 2
    if size != plan.size_bytes and plan.runner != CTYPES:
        return "size_bytes must be first_size_bytes doubled some times, or it is never measured"
    if plan.runner == CTYPES and plan.size_bytes % UNIT:
        return f"size_bytes must be a multiple of {UNIT} for runner ctypes"
    if plan.iterations < 1 or plan.gpus_per_node < 1 or plan.timeout_s <= 0:
        return "iterations, gpus_per_node and timeout_s must be positive"
    return ""


def choose(plan: Plan, find: Callable[[str], str | None]) -> str:
    """Return the runner: `find` tells where a program is, None where it is not."""
    if plan.runner != AUTO:
        return plan.runner
    return NCCL_TESTS if plan.launcher == SRUN or find(plan.program) else CTYPES


def command(plan: Plan) -> list[str]:
    """Return the command line of nccl-tests."""
    sizes = ["-b", str(plan.first_size_bytes), "-e", str(plan.size_bytes), "-f", "2"]
    counts = ["-n", str(plan.iterations), "-w", str(_WARMUPS), "-c", "1"]
    if plan.launcher != SRUN:
        gpus = ["-g", str(plan.gpus_per_node)]
        return [plan.program, *sizes, *gpus, *counts, *plan.extra_arguments]
    argv = [
        "srun",
        f"--nodes={len(plan.nodes)}",
        f"--nodelist={','.join(plan.nodes)}",
        f"--ntasks-per-node={plan.gpus_per_node}",
        f"--gres=gpu:{plan.gpus_per_node}",
        "--exclusive",
        "--kill-on-bad-exit=1",
        f"--immediate={plan.slurm_wait_s}",
        # Slurm ends what is left when this host is gone.
        f"--time={math.ceil(plan.timeout_s / 60) + 1}",
        f"--mpi={plan.slurm_mpi}",
    ]
    if plan.container_image:
        argv.append(f"--container-image={plan.container_image}")
    if plan.container_mounts:
        argv.append(f"--container-mounts={plan.container_mounts}")
    program = [plan.program, *sizes, "-g", "1", *counts, *plan.extra_arguments]
    return [*argv, *plan.slurm_options, *program]


def run_tests(plan: Plan, run: CommandRunner) -> list[Record]:
    """Run nccl-tests and judge their table."""
    wait = plan.slurm_wait_s if plan.launcher == SRUN else 0
    result = run(command(plan), plan.timeout_s + wait, plan.environment)
    table = parse(result.text)
    broken = judge_run(result, table, plan.subject)
    ranks = len(plan.nodes) * plan.gpus_per_node
    found = judge(table, plan.subject, plan.size_bytes, plan.question, ranks)
    return finish([*broken, *found])


def run_ctypes(plan: Plan, gpus: Gpus) -> list[Record]:
    """Run a process for each GPU of this node and judge what they say."""
    node = plan.nodes[0]
    usable = {place: gpu for place, gpu in sorted(gpus.found.items()) if gpu.pci and not gpu.lost}
    if len(usable) != plan.gpus_per_node:
        why = f": {'; '.join(gpus.problems[:4])}" if gpus.problems else ""
        text = f"{len(usable)} of {plan.gpus_per_node} GPUs can be used{why}"
        remedy = "look: run gpu_health, which tells which GPU is missing and why"
        return [Record("nccl.run", f"node:{node}", NOT_MEASURED, text, remedy=remedy)]
    states = _nccl_ctypes.run(
        _nccl_ctypes.Settings(
            addresses=[str(gpu.pci) for gpu in usable.values()],
            sizes=[plan.size_bytes],
            iterations=plan.iterations,
            warmups=_WARMUPS,
            time_limit_s=plan.timeout_s,
            library=plan.nccl_library,
            environment=plan.environment,
        )
    )
    return _nccl_ctypes.judge(
        states,
        node,
        [f"gpu:{node}/{place}" for place in usable],
        plan.size_bytes,
        plan.question,
        [evidence_of(gpu) for gpu in usable.values()],
    )


def plan_of(options: Mapping[str, Any]) -> Plan:
    """Return what the options of nccl_all_reduce ask for."""
    given, least = None, options["busbw_threshold_gbps"]
    if least is not None:
        given = BUSBW._replace(value=least, source=options["threshold_source"])
    names = set(Plan._fields) - {"given", "environment"}
    environment = {str(key): str(value) for key, value in options["environment"].items()}
    return Plan(given=given, environment=environment, **{name: options[name] for name in names})


def run_if_free(
    plan: Plan, runner: str, run: CommandRunner, options: Mapping[str, Any]
) -> list[Record]:
    """Run it, unless a process holds a GPU of this node; `options` as for plan_of."""
    # What Slurm gives to a job is not this node, and it gives no GPU to two jobs.
    gpus = None if plan.launcher == SRUN else look(options["nvml_library"], options["pci"])
    busy = None if gpus is None else busy_record("nccl.idle", plan.nodes[0], gpus)
    if busy is not None and not options["busy_ok"]:
        return [busy]
    with loading():
        if runner == CTYPES and gpus is not None:
            return run_ctypes(plan, gpus)
        return run_tests(plan, run)
