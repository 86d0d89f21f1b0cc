#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_groups
short_description: Sum over the GPUs of groups of nodes, and halve a bad group down to the culprit
description:
  - Runs C(all_reduce_perf_mpi) as steps of one Slurm job over the nodes of each leaf, unit and rail
    of the cable plan, and over all, the small groups first. To be run where C(salloc) and C(srun)
    are.
  - A group that is not good is run again; two of three runs count. Then it is halved. One node with
    which nothing is good is the culprit, and takes no part in later groups. Two sides that are good
    by themselves and bad together are told as an interaction, and no node is blamed.
  - Where no part of a group is good the checker is asked first. Runs that hang, or do not start,
    are C(not_measured), also when they are traced to one node.
  - Nodes that have jobs, are drained or down take no part, and are told. It loads GPUs and fabric.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: In check mode the groups are returned. Nothing is run.
  diff_mode:
    support: none
    details: Nothing is ever changed.
  idempotent:
    support: full
options:
  plan:
    description: The cable plan, C(cables.json).
    type: dict
    required: true
  output:
    description: Folder for records, findings and all runs. Nothing is kept without it.
    type: path
  kinds:
    description: Which groups.
    type: list
    elements: str
    choices: [leaf, su, rail, all]
    default: [leaf, su, rail, all]
  exclude:
    description: Nodes that take no part.
    type: list
    elements: str
    default: []
  gpus_per_node:
    description: How many GPUs each node has.
    type: int
    default: 8
  mark_share:
    description: Share of the line rate of the rails in use that the bus bandwidth must reach.
    type: float
    default: 0.75
  mark_source:
    description: Where O(mark_share) comes from; it is kept in the records.
    type: str
  size_bytes:
    description: Size that is judged.
    type: int
    default: 8589934592
  iterations:
    description: How often it is measured in one run.
    type: int
    default: 20
  tool:
    description: Name or path of the program. By default C(all_reduce_perf_mpi).
    type: str
    default: ""
  container_image:
    description: Image for C(srun --container-image) (pyxis).
    type: str
    default: ""
  container_mounts:
    description: Mounts for C(srun --container-mounts).
    type: str
    default: ""
  slurm_mpi:
    description: What C(srun --mpi) gets.
    type: str
    default: pmix
  slurm_options:
    description: More arguments for C(salloc), for example a partition or a reservation.
    type: list
    elements: str
    default: []
  slurm_wait_s:
    description: Seconds to wait for the nodes.
    type: int
    default: 60
  environment:
    description: Environment variables. The rails are chosen with C(NCCL_IB_HCA).
    type: dict
    default: {NCCL_ALGO: Ring}
  time_limit_s:
    description: Seconds until one run is ended.
    type: float
    default: 300
  most_runs:
    description: Runs in all.
    type: int
    default: 200
  findings_ok:
    description: Whether findings leave the task green.
    type: bool
    default: false
  not_measured_ok:
    description: Whether the task stays green where something was not measured.
    type: bool
    default: false
seealso:
  - module: baremetal.dgx.nccl_all_reduce
  - module: baremetal.dgx.fabric_pairs
"""

EXAMPLES = r"""
- name: All groups of the plan
  baremetal.dgx.nccl_groups:
    plan: "{{ lookup('ansible.builtin.file', cluster_state_dir ~ '/plan/fabric/cables.json')
      | from_json }}"
    output: /var/lib/baremetal-dgx/groups
    container_image: /shared/images/pytorch.sqsh
"""

RETURN = r"""
verdict:
  description: V(pass), V(fail) or V(not_measured); not_measured in check mode.
  returned: always
  type: str
counts:
  description: How many records there are of each status.
  returned: always
  type: dict
records:
  description: All records.
  returned: always
  type: list
  elements: dict
findings:
  description: A line for each record that is no pass.
  returned: always
  type: list
  elements: str
groups:
  description: The groups, with C(kind), C(name), C(nodes) and C(rails).
  returned: always
  type: list
  elements: dict
runs:
  description: How many runs there were.
  returned: always
  type: int
"""

import json
import signal
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_tool_report import (
    add_result,
    end,
    line_of,
    now_text,
    stamped,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._group_halving import (
    KINDS,
    Group,
    groups_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._nccl_groups import (
    MARK_SOURCE,
    Outcome,
    left_out,
    run_data,
    run_groups,
    threshold,
    usable,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._nccl_run import (
    NCCL_TESTS,
    SRUN,
    Plan,
    problem_of,
    run_tests,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs_session import write_folder
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs_transport import (
    allocate,
    release,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    NOT_MEASURED,
    PASS,
    Record,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import ModuleRunner, ToolError
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_state import parse_nodes

ARGUMENT_SPEC: dict[str, Any] = {
    "plan": {"type": "dict", "required": True},
    "output": {"type": "path"},
    "kinds": {
        "type": "list",
        "elements": "str",
        "choices": list(KINDS),
        "default": list(KINDS),
    },
    "exclude": {"type": "list", "elements": "str", "default": []},
    "gpus_per_node": {"type": "int", "default": 8},
    "mark_share": {"type": "float", "default": 0.75},
    "mark_source": {"type": "str"},
    "size_bytes": {"type": "int", "default": 8589934592},
    "iterations": {"type": "int", "default": 20},
    "tool": {"type": "str", "default": ""},
    "container_image": {"type": "str", "default": ""},
    "container_mounts": {"type": "str", "default": ""},
    "slurm_mpi": {"type": "str", "default": "pmix"},
    "slurm_options": {"type": "list", "elements": "str", "default": []},
    "slurm_wait_s": {"type": "int", "default": 60},
    "environment": {"type": "dict", "default": {"NCCL_ALGO": "Ring"}},
    "time_limit_s": {"type": "float", "default": 300},
    "most_runs": {"type": "int", "default": 200},
    "findings_ok": {"type": "bool", "default": False},
    "not_measured_ok": {"type": "bool", "default": False},
}
RECORDS = "groups-records.json"
FINDINGS = "groups-findings.txt"
RUNS = "groups-runs.jsonl"
_ASK_S = 60
_A_DAY_S = 86400


def make_plan(params: dict[str, Any], cables: dict[str, Any], group: Group, job: str) -> Plan:
    """Return how a group is run: within the job, over the adapters of its rails."""
    first = cables["hcas"][0]["node"]
    devices = [hca["devices"][0] for hca in cables["hcas"]
               if hca["node"] == first and hca["rail"] in group.rails]  # fmt: skip
    rate = float(min(hca["rate_gbps"] for hca in cables["hcas"]))
    # "=" asks for these adapters, and not for all whose names begin so.
    chosen = {"NCCL_IB_HCA": "=" + ",".join(devices)}
    given = {str(key): str(value) for key, value in params["environment"].items()}
    source = params["mark_source"] or MARK_SOURCE
    return Plan(
        nodes=group.nodes,
        gpus_per_node=params["gpus_per_node"],
        gpu_type="",
        mark=threshold(len(group.rails), rate, params["mark_share"], source),
        size_bytes=params["size_bytes"],
        first_size_bytes=params["size_bytes"],
        iterations=params["iterations"],
        runner=NCCL_TESTS,
        launcher=SRUN,
        tool=params["tool"],
        container_image=params["container_image"],
        container_mounts=params["container_mounts"],
        slurm_mpi=params["slurm_mpi"],
        slurm_options=[f"--jobid={job}"],
        slurm_wait_s=params["slurm_wait_s"],
        extra_arguments=[],
        environment={**chosen, **given},
        time_limit_s=params["time_limit_s"],
        nccl_library="",
    )


def measure_all(params: dict[str, Any], run: ModuleRunner, groups: list[Group]) -> Outcome:
    """Take the nodes, run the groups, give the nodes back; ToolError where Slurm gives none."""
    nodes = sorted({node for group in groups for node in group.nodes})
    one = params["time_limit_s"] + params["slurm_wait_s"]
    limit = min(_A_DAY_S, one * min(params["most_runs"], 4 * len(groups) + 20))
    gres = f"gpu:{params['gpus_per_node']}"
    job = allocate(run, nodes, limit, params["slurm_wait_s"], gres, params["slurm_options"])
    try:
        return run_groups(
            groups,
            lambda group: run_tests(make_plan(params, params["plan"], group, job), run),
            params["most_runs"],
        )
    finally:
        release(run, job)


def keep(folder: str, records: list[Record], outcome: Outcome) -> None:
    """Write the files; ToolError."""
    dated = stamped(records, now_text())
    lines = [line_of(record) for record in records if record.status != PASS]
    write_folder(
        folder,
        {
            RECORDS: json.dumps([record.as_data() for record in dated], indent=1) + "\n",
            FINDINGS: "".join(f"{line}\n" for line in lines),
            RUNS: "".join(json.dumps(run_data(run)) + "\n" for run in outcome.runs),
        },
    )


def main() -> None:
    """Make groups, look who is free, run, search, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    # Else the nodes stay held until the job's limit.
    signal.signal(signal.SIGTERM, lambda *_which: module.fail_json(msg="was told to end (TERM)"))
    params, run = module.params, ModuleRunner(module)
    every = sorted({hca["node"] for hca in params["plan"]["hcas"]} - set(params["exclude"]))
    refused: dict[str, str] = {}
    if not module.check_mode:
        shown = run(["scontrol", "show", "node", "-o"], timeout_s=_ASK_S)
        if not shown.ok:
            module.fail_json(msg=f"Slurm cannot be asked for its nodes: {shown.describe(2)}")
        refused = usable(every, parse_nodes(shown.out))
    groups = groups_of(params["plan"], params["kinds"], [*params["exclude"], *refused])
    result: dict[str, Any] = {
        "changed": False,
        "runs": 0,
        "groups": [dict(vars(group)) for group in groups],
    }
    if groups:
        problem = problem_of(make_plan(params, params["plan"], groups[0], "0"))
        if problem:
            module.fail_json(msg=problem, **result)
    if module.check_mode:
        module.exit_json(**result, verdict=NOT_MEASURED, counts={}, records=[], findings=[])
    records, outcome = left_out(refused), Outcome()
    try:
        if groups:
            outcome = measure_all(params, run, groups)
        records += outcome.records
    except ToolError as error:
        remedy = "look: squeue and sinfo; give slurm_options a partition or an account"
        records.append(Record("groups.run", "fabric", NOT_MEASURED, str(error), remedy=remedy))
    if not groups:
        text = "fewer than two nodes are free"
        remedy = "look: sinfo; wait for the jobs, and run it again"
        records.append(Record("groups.run", "fabric", NOT_MEASURED, text, remedy=remedy))
    result["runs"] = len(outcome.runs)
    add_result(result, records)
    if params["output"]:
        try:
            keep(params["output"], records, outcome)
        except ToolError as error:
            module.fail_json(msg=str(error), **result)
    end(module, result, records)


if __name__ == "__main__":
    main()
