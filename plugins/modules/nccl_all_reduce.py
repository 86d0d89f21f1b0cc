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
  - Values that are wrong are a failure at any speed. A hang, a truncated table, missing
    ranks and errors of NCCL are C(not_measured) and blame no GPU.
  - Without nccl-tests it runs on the GPUs of this node by C(libnccl.so.2) alone, with neither MPI
    nor Slurm nor a compiler. All elements are verified then, and a wrong one is found by its GPU.
  - It loads the GPUs. On this node it does not start while a process holds one of them.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.check
  - baremetal.dgx.check.timeout
attributes:
  check_mode:
    details: In check mode the command that would run is returned. Nothing is run.
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
      - V(a100), V(h100), V(h200) or V(b200), which choose a published threshold. For other types
        give O(busbw_threshold_gbps).
    type: str
    default: ""
  busbw_threshold_gbps:
    description: Bus bandwidth that O(size_bytes) must reach, in GB/s. By default what is published.
    type: float
  threshold_source:
    description: Where O(busbw_threshold_gbps) comes from; it is kept in the records.
    type: str
    default: set in the inventory
  size_bytes:
    description:
      - Size that is judged. Published thresholds are for 8 GiB and more. With the runner V(ctypes)
        a multiple of 32 KiB.
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
  timeout_s:
    description: Seconds until the run is ended.
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
records:
  description:
    - One record for each question; C(verdict) folds them into one, C(counts) has how many there are
      of each status, C(findings) and C(not_measured) a line for each that did not pass.
      C(docs/records.md) describes them all.
  returned: always
  type: list
  elements: dict
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

from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._nccl import run as nccl

ARGUMENT_SPEC: dict[str, Any] = {
    **check_options(timeout_s=300),
    "nodes": {"type": "list", "elements": "str", "required": True},
    "gpus_per_node": {"type": "int", "default": 8},
    "gpu_type": {"type": "str", "default": ""},
    "busbw_threshold_gbps": {"type": "float"},
    "threshold_source": {"type": "str", "default": "set in the inventory"},
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
    "busy_ok": {"type": "bool", "default": False},
    "pci": {"type": "list", "elements": "str", "default": []},
    "nvml_library": {"type": "str", "default": ""},
    "nccl_library": {"type": "str", "default": ""},
}


def main() -> None:
    """Choose how, run if the GPUs are free, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    plan = nccl.plan_of(module.params)
    problem = nccl.problem_of(plan)
    if problem:
        module.fail_json(msg=problem)
    runner = nccl.choose(plan, module.get_bin_path)
    result: dict[str, Any] = {
        "runner": runner,
        "command": [] if runner == nccl.CTYPES else nccl.command(plan),
    }
    if module.check_mode:
        finish(module, [], **result)
    finish(module, nccl.run_if_free(plan, runner, ModuleRunner(module), module.params), **result)


if __name__ == "__main__":
    main()
