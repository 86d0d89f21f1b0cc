#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_all_reduce
short_description: Sum over all GPUs of a node or of several, and judge the speed and every value
description:
  - Runs C(all_reduce_perf) of nccl-tests on this node, or through C(srun) on several, optionally in
    a container, and judges the bus bandwidth at one stated size. The average that nccl-tests print
    says little and is not judged.
  - Values that are wrong are a failure at any speed. A hang, a table that is cut short, missing
    ranks and errors of NCCL are C(not_measured) and blame nobody.
  - Without nccl-tests it runs on the GPUs of this node by C(libnccl.so.2) alone, with neither MPI
    nor Slurm nor a compiler. All elements are verified then, and a wrong one is found by its GPU.
  - It loads the GPUs. On this node it does not start while a process holds one of them.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: In check mode the command that would run is returned. Nothing is run.
  diff_mode:
    support: none
    details: Nothing is ever changed.
  idempotent:
    support: full
options:
  nodes:
    description:
      - Names of the nodes in the records. With O(launcher=srun) Slurm runs on these nodes. One name
        is this node.
    type: list
    elements: str
    required: true
  gpus_per_node:
    description: How many GPUs each node has.
    type: int
    default: 8
  gpu_type:
    description:
      - V(a100), V(h100), V(h200) or V(b200), which choose a published mark. For other types give
        O(busbw_mark_gbps).
    type: str
    default: ""
  busbw_mark_gbps:
    description: Bus bandwidth that O(size_bytes) must reach, in GB/s. By default what is published.
    type: float
  mark_source:
    description: Where O(busbw_mark_gbps) comes from; it is kept in the records.
    type: str
    default: set in the inventory
  size_bytes:
    description:
      - Size that is judged. Published marks are for 8 GiB and more. With the runner V(ctypes) a
        multiple of 32 KiB.
    type: int
    default: 8589934592
  first_size_bytes:
    description: Smallest size that nccl-tests measure; they double it up to O(size_bytes).
    type: int
    default: 1073741824
  iterations:
    description: How often each size is measured.
    type: int
    default: 20
  runner:
    description:
      - V(nccl_tests) runs O(tool), V(ctypes) needs C(libnccl.so.2) only and works on one node.
      - V(auto) takes nccl-tests where O(tool) is installed, else V(ctypes).
    type: str
    choices: [auto, nccl_tests, ctypes]
    default: auto
  launcher:
    description: Whether nccl-tests run on this node or by Slurm on O(nodes).
    type: str
    choices: [local, srun]
    default: local
  tool:
    description:
      - Name or path of the program. By default C(all_reduce_perf), and with O(launcher=srun)
        C(all_reduce_perf_mpi), which is what NVIDIA's containers call the one with MPI.
    type: str
    default: ""
  container_image:
    description: Image for C(srun --container-image) (pyxis), for example a squashfs file.
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
    description: More arguments for C(srun), for example a partition or a reservation.
    type: list
    elements: str
    default: []
  slurm_wait_s:
    description: Seconds to wait for the nodes.
    type: int
    default: 60
  extra_arguments:
    description: More arguments for nccl-tests.
    type: list
    elements: str
    default: []
  environment:
    description: Environment variables, for example C(NCCL_ALGO).
    type: dict
    default: {}
  time_limit_s:
    description: Seconds until the run is ended.
    type: float
    default: 300
  busy_ok:
    description: Whether to run although processes hold GPUs, or it is not known whether.
    type: bool
    default: false
  pci:
    description: PCI addresses of the GPUs by the profile; records number them in this order.
    type: list
    elements: str
    default: []
  nvml_library:
    description: Path of NVML. By default the loader finds it.
    type: str
    default: ""
  nccl_library:
    description: Path of NCCL for the runner V(ctypes). By default the loader finds it.
    type: str
    default: ""
  findings_ok:
    description: Whether findings leave the task green.
    type: bool
    default: false
  not_measured_ok:
    description: Whether the task stays green where something was not measured.
    type: bool
    default: false
seealso:
  - module: baremetal.dgx.dcgm_diag
  - module: baremetal.dgx.fabric_pairs
"""

EXAMPLES = r"""
- name: NVLink of this node, before Slurm is there
  baremetal.dgx.nccl_all_reduce:
    nodes: ["{{ inventory_hostname }}"]
    gpu_type: h100

- name: Two nodes through Slurm, in NVIDIA's container
  baremetal.dgx.nccl_all_reduce:
    nodes: [dgx-01, dgx-02]
    gpu_type: h100
    launcher: srun
    container_image: /shared/images/pytorch.sqsh
  run_once: true
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
runner:
  description: V(nccl_tests) or V(ctypes), whichever ran.
  returned: always
  type: str
command:
  description: What was run, or would be in check mode; empty for V(ctypes).
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_free import (
    Gpus,
    busy_record,
    look,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_tool_report import (
    add_result,
    end,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._nccl_run import (
    CTYPES,
    SRUN,
    Plan,
    choose,
    command,
    problem_of,
    run_ctypes,
    run_tests,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    NOT_MEASURED,
    Record,
    Threshold,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import ModuleRunner

ARGUMENT_SPEC: dict[str, Any] = {
    "nodes": {"type": "list", "elements": "str", "required": True},
    "gpus_per_node": {"type": "int", "default": 8},
    "gpu_type": {"type": "str", "default": ""},
    "busbw_mark_gbps": {"type": "float"},
    "mark_source": {"type": "str", "default": "set in the inventory"},
    "size_bytes": {"type": "int", "default": 8589934592},
    "first_size_bytes": {"type": "int", "default": 1073741824},
    "iterations": {"type": "int", "default": 20},
    "runner": {"type": "str", "choices": ["auto", "nccl_tests", "ctypes"], "default": "auto"},
    "launcher": {"type": "str", "choices": ["local", "srun"], "default": "local"},
    "tool": {"type": "str", "default": ""},
    "container_image": {"type": "str", "default": ""},
    "container_mounts": {"type": "str", "default": ""},
    "slurm_mpi": {"type": "str", "default": "pmix"},
    "slurm_options": {"type": "list", "elements": "str", "default": []},
    "slurm_wait_s": {"type": "int", "default": 60},
    "extra_arguments": {"type": "list", "elements": "str", "default": []},
    "environment": {"type": "dict", "default": {}},
    "time_limit_s": {"type": "float", "default": 300},
    "busy_ok": {"type": "bool", "default": False},
    "pci": {"type": "list", "elements": "str", "default": []},
    "nvml_library": {"type": "str", "default": ""},
    "nccl_library": {"type": "str", "default": ""},
    "findings_ok": {"type": "bool", "default": False},
    "not_measured_ok": {"type": "bool", "default": False},
}


def make_plan(params: dict[str, Any]) -> Plan:
    """Return what the options ask for."""
    mark = params["busbw_mark_gbps"]
    given = None if mark is None else Threshold(">=", mark, "GB/s", params["mark_source"])
    names = set(Plan._fields) - {"mark", "environment"}
    environment = {str(key): str(value) for key, value in params["environment"].items()}
    return Plan(mark=given, environment=environment, **{name: params[name] for name in names})


def measure(plan: Plan, runner: str, run: ModuleRunner, gpus: Gpus | None) -> list[Record]:
    """Run it and judge what came."""
    if runner == CTYPES and gpus is not None:
        return run_ctypes(plan, gpus)
    return run_tests(plan, run)


def main() -> None:
    """Choose how, look whether the GPUs are free, run, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    plan = make_plan(params)
    problem = problem_of(plan)
    if problem:
        module.fail_json(msg=problem)
    runner = choose(plan, module.get_bin_path)
    argv = [] if runner == CTYPES else command(plan)
    result: dict[str, Any] = {"changed": False, "runner": runner, "command": argv}
    if module.check_mode:
        module.exit_json(**result, verdict=NOT_MEASURED, counts={}, records=[], findings=[])
    # What Slurm gives to a job is not this node, and it gives no GPU to two jobs.
    gpus = None if plan.launcher == SRUN else look(params["nvml_library"], params["pci"])
    busy = None if gpus is None else busy_record("nccl.idle", plan.nodes[0], gpus)
    if busy is not None and not params["busy_ok"]:
        records = [busy]
    else:
        records = measure(plan, runner, ModuleRunner(module), gpus)
    add_result(result, records)
    end(module, result, records)


if __name__ == "__main__":
    main()
