# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Groups of nodes as steps of one Slurm job: who is free, what is run, what is kept of it."""

from __future__ import annotations

import json
from typing import Any, Mapping, Sequence

from .._core.hang import write_files
from .._core.record import NOT_MEASURED, PASS, Record, line_of, stamped, utc_text
from .._core.run import CommandRunner, ToolError
from .._slurm.commands import allocate, release
from .._slurm.nodes import parse_nodes
from .groups import (
    Outcome,
    cleared,
    left_out,
    nothing_asked,
    question_of,
    run_data,
    run_groups,
    usable,
)
from .halving import KINDS, Group, groups_of
from .run import NCCL_TESTS, SRUN, Plan, problem_of, run_tests

RECORDS = "groups-records.json"
FINDINGS = "groups-findings.txt"
RUNS = "groups-runs.jsonl"
_ASK_S = 60
_A_DAY_S = 86400


def nodes_of(options: Mapping[str, Any]) -> list[str]:
    """Return the nodes of the plan that are asked about."""
    return sorted(_planned(options) - set(options["divided"]))


def _planned(options: Mapping[str, Any]) -> set[str]:
    return {hca["node"] for hca in options["plan"]["hcas"]} - set(options["exclude"])


def ask_usable(run: CommandRunner, nodes: Sequence[str]) -> dict[str, str]:
    """Return by node why Slurm would not give it now; ToolError where Slurm does not answer."""
    shown = run(["scontrol", "show", "node", "-o"], timeout_s=_ASK_S)
    if not shown.ok:
        raise ToolError(f"Slurm cannot be asked for its nodes: {shown.describe(2)}")
    return usable(nodes, parse_nodes(shown.out))


def make_groups(options: Mapping[str, Any], refused: Mapping[str, str]) -> list[Group]:
    """Return the groups of the nodes that are not refused."""
    away = [*options["exclude"], *options["divided"], *refused]
    return groups_of(options["plan"], options["kinds"], away)


def problem_with(options: Mapping[str, Any], groups: Sequence[Group]) -> str:
    """Return why the groups cannot be run, empty where they can."""
    for node, count in options["gpus"].items():
        if not str(count).isdigit() or not int(count):
            return f"gpus.{node}: {count}; write how many GPUs it has"
    return problem_of(plan_of(options, groups[0], "0")) if groups else ""


def plan_of(options: Mapping[str, Any], group: Group, job: str) -> Plan:
    """Return how a group is run: within the job, over the adapters of its rails."""
    # A plan may have nodes of several models; the rails of a group are those that all of it have.
    hcas = [hca for hca in options["plan"]["hcas"]
            if hca["node"] in group.nodes and hca["rail"] in group.rails]  # fmt: skip
    devices = [hca["devices"][0] for hca in hcas if hca["node"] == group.nodes[0]]
    rate = float(min(hca["rate_gbps"] for hca in hcas))
    # "=" asks for these adapters, and not for all whose names begin so.
    chosen = {"NCCL_IB_HCA": "=" + ",".join(devices)}
    given = {str(key): str(value) for key, value in options["environment"].items()}
    return Plan(
        nodes=group.nodes,
        gpus_per_node=_gpus_of(options, group.nodes),
        gpu_type="",
        given=question_of(
            len(group.rails), rate, options["threshold_share"], options["threshold_source"]
        ),
        size_bytes=options["size_bytes"],
        first_size_bytes=options["size_bytes"],
        iterations=options["iterations"],
        runner=NCCL_TESTS,
        launcher=SRUN,
        tool=options["tool"],
        container_image=options["container_image"],
        container_mounts=options["container_mounts"],
        slurm_mpi=options["slurm_mpi"],
        slurm_options=[f"--jobid={job}"],
        slurm_wait_s=options["slurm_wait_s"],
        extra_arguments=[],
        environment={**chosen, **given},
        timeout_s=options["timeout_s"],
        nccl_library="",
    )


def _gpus_of(options: Mapping[str, Any], nodes: Sequence[str]) -> int:
    """Return how many GPUs each of these nodes has at least."""
    return min(int(options["gpus"].get(node, options["gpus_per_node"])) for node in nodes)


def measure_all(options: Mapping[str, Any], run: CommandRunner, groups: Sequence[Group]) -> Outcome:
    """Take the nodes, run the groups, give the nodes back; ToolError where Slurm gives none."""
    nodes = sorted({node for group in groups for node in group.nodes})
    one = options["timeout_s"] + options["slurm_wait_s"]
    limit = min(_A_DAY_S, one * min(options["most_runs"], 4 * len(groups) + 20))
    # So many each of them has. An exclusive job gets all GPUs of its nodes (salloc, --exclusive).
    gres = f"gpu:{_gpus_of(options, nodes)}"
    job = allocate(run, nodes, limit, options["slurm_wait_s"], gres, options["slurm_options"])
    try:
        outcome = run_groups(
            groups,
            lambda group: run_tests(plan_of(options, group, job), run),
            options["most_runs"],
        )
    finally:
        release(run, job)
    outcome.records += cleared(outcome.good, groups_of(options["plan"], KINDS, ()))
    return outcome


def ask_groups(
    run: CommandRunner,
    options: Mapping[str, Any],
    groups: Sequence[Group],
    refused: Mapping[str, str],
) -> Outcome:
    """Run the groups; nodes that take no part, and what kept all from being run, are records.

    Where MIG leaves fewer than two nodes whole, there is nothing to ask, of the one that is left
    either.
    """
    outcome, text, remedy = Outcome(), "", ""
    planned, whole = _planned(options), nodes_of(options)
    try:
        if groups:
            outcome = measure_all(options, run, groups)
        elif len(planned) < 2:
            text = "fewer than two nodes are planned"
            remedy = "settings: write fewer nodes into exclude, or group_tests.transport: none"
        elif len(whole) > 1:
            text = "fewer than two nodes are free"
            remedy = "look: sinfo; wait for the jobs, and run it again"
    except ToolError as error:
        text = str(error)
        remedy = "look: squeue and sinfo; give slurm_options a partition or an account"
    if remedy:
        outcome.records.append(Record("groups.run", "fabric", NOT_MEASURED, text, remedy=remedy))
    away = left_out(refused) if len(whole) > 1 else []
    outcome.records[:0] = [*away, *nothing_asked(sorted(planned - set(whole)))]
    return outcome


def keep(folder: str, outcome: Outcome) -> None:
    """Write the files, if there is a folder for them; ToolError."""
    if not folder:
        return
    dated = stamped(outcome.records, utc_text())
    lines = [line_of(record) for record in outcome.records if record.status != PASS]
    write_files(
        folder,
        {
            RECORDS: json.dumps([record.as_data() for record in dated], indent=1) + "\n",
            FINDINGS: "".join(f"{line}\n" for line in lines),
            RUNS: "".join(json.dumps(run_data(run)) + "\n" for run in outcome.runs),
        },
    )
