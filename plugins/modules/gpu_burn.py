#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_burn
short_description: Load all GPUs of a node with known results, and find those that compute wrongly
description:
  - Runs matrix products in bf16, fp8, fp16, tf32 and fp64 through cuBLASLt near the peak of each
    GPU. Every row of every product is checked on the GPU against an answer that is known before;
    one wrong bit of one element is found and named by row and column.
  - Products of random data are compared bit for bit with each other and between the GPUs of the
    node. Nearly all memory is written, read and verified. Transfers to the host and back and
    between all pairs of GPUs are verified and measured.
  - One process for each GPU does the work. The parent reads NVML once a second through another
    process, gives up what hangs, and stops all load at the slowdown temperature.
  - Needs Python, the driver and libcublasLt on the node, nothing else. The burn-in outlives the
    connection. The same task again follows a running burn-in, resumes one that was interrupted, and
    reports one that is over without burning again, unless it left GPUs unburned. One that was
    interrupted more than a day ago and found no fault, or in which a GPU was exchanged meanwhile,
    begins again.
  - A GPU in use, MIG, a missing driver or library, a fabric manager that is not running (CUDA error
    802), too little memory and a hang give V(not_measured), never V(pass) and never V(fail).
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.check
  - baremetal.dgx.check.thresholds
  - baremetal.dgx.check.node
attributes:
  check_mode:
    details: Tells what it would do, and reports what is on disk.
  idempotent:
    details: A burn-in that is over is not run again, unless O(again=true), it is older than
      O(again_after_days), or it left GPUs unburned.
options:
  state:
    description:
      - V(finished) starts or resumes a burn-in and waits for its end.
      - V(started) does not wait.
      - V(stopped) interrupts it. It can be resumed.
    type: str
    choices: [finished, started, stopped]
    default: finished
  duration_s:
    description: Seconds of load, from 30 to days.
    type: float
    default: 600
  phases:
    description: What to run. What takes no part is not judged.
    type: list
    elements: str
    choices:
      - hbm
      - hbm_rate
      - host
      - gemm_bf16
      - entropy_bf16
      - gemm_fp8
      - entropy_fp8
      - gemm_fp16
      - gemm_tf32
      - gemm_fp64
      - pulse
      - peers
    default:
      - hbm
      - hbm_rate
      - host
      - gemm_bf16
      - entropy_bf16
      - gemm_fp8
      - entropy_fp8
      - gemm_fp16
      - gemm_tf32
      - gemm_fp64
      - pulse
      - peers
  gpus:
    description: PCI addresses of the GPUs to burn, such as V(0000:1b:00.0). All when empty.
    type: list
    elements: str
    default: []
  slots:
    description:
      - PCI addresses of all GPUs that the node should have, in the order of its profile. A GPU is
        then numbered by its slot, whichever others are missing; else as NVML numbers it.
      - A slot without a GPU is V(not_measured). Not used for that with O(gpus).
    type: list
    elements: str
    default: []
  count:
    description:
      - How many GPUs the node should have; V(0) for any number. Without O(slots) and O(gpus), the
        node is V(not_measured) while there are fewer.
    type: int
    default: 0
  n:
    description: Rows and columns of the matrices. Rates of sizes below 4096 are not judged.
    type: int
    choices: [64, 256, 1024, 4096, 8192]
    default: 8192
  memory_share:
    description: Share of the free memory of each GPU to use.
    type: float
    default: 0.9
  memory_mib:
    description: At most so much of it; V(0) for no limit but O(memory_share).
    type: int
    default: 0
  most_batch:
    description: Products between two looks at their results.
    type: int
    default: 32
  pulse_s:
    description: Seconds of load and of rest in turn in the phase V(pulse), on all GPUs together.
    type: float
    default: 0.1
  cublaslt:
    description:
      - Path of libcublasLt. When empty, libcublasLt.so.13 and .so.12 are looked for where the
        loader looks, in C(/usr/local/cuda*) and in C(/opt/baremetal-dgx/lib), not newer than what
        the driver serves.
    type: path
    default: ""
  nvml:
    description: Path of libnvidia-ml.so.1. When empty, where the loader looks.
    type: path
    default: ""
  busy_ok:
    description: Whether GPUs that have processes on them are burned in all the same.
    type: bool
    default: false
  stop_c:
    description: Temperature at which all load ends. V(0) takes each GPU's slowdown temperature.
    type: float
    default: 0
  start_timeout_s:
    description: Seconds until every GPU must be ready.
    type: float
    default: 120
  silent_s:
    description: Seconds after which a GPU, or NVML, that does not answer is given up.
    type: float
    default: 120
  wait_s:
    description: Seconds to wait for the end; V(0) for twice O(duration_s) and ten minutes.
    type: float
    default: 0
  again:
    description: Whether to repeat a burn-in with these settings that is over.
    type: bool
    default: false
  again_after_days:
    description: Age in days from which on it is repeated; V(0) is never.
    type: float
    default: 0
  again_if_unburned:
    description:
      - Whether it is repeated if it left GPUs unburned, because they were in use or the driver did
        not work for instance, or if O(slots) or O(count) lacked a GPU and NVML lists one that was
        not there. One that found a fault is reported nevertheless, as is one that left only GPUs
        with MIG, or GPUs that are gone.
      - V(false) is for a task that waits for the burn-in of the task before it.
    type: bool
    default: true
  thresholds:
    description:
      - The site's own least figures instead of the collection's, by V(bf16), V(fp8), V(fp16),
        V(tf32), V(fp64) in TFLOP/s and V(hbm), V(down), V(up), V(peer) in GB/s.
  folder:
    description: Where program, state, results and logs are.
    type: path
    default: /var/lib/baremetal-dgx/burn
seealso:
  - module: baremetal.dgx.gpu_health
"""

EXAMPLES = r"""
- name: Burn all GPUs for ten minutes
  baremetal.dgx.gpu_burn:

- name: Burn for two days and go away
  baremetal.dgx.gpu_burn:
    state: started
    duration_s: 172800

- name: Wait for the end and judge
  baremetal.dgx.gpu_burn:
    duration_s: 172800
    again_if_unburned: false

- name: Look for wrong bits in a minute
  baremetal.dgx.gpu_burn:
    duration_s: 60
    phases: [gemm_bf16, entropy_bf16, hbm]
    fail_on: []
  register: burn
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
action:
  description: What was done, or would be, as C(start), C(resume), C(follow), C(report) or C(stop).
  returned: always
  type: str
text:
  description: The action in words.
  returned: when O(state) is not V(stopped)
  type: str
runs_as:
  description: What the program was started as, a unit of systemd or its own process.
  returned: when it was started
  type: str
run:
  description: How far the burn-in is, with C(state), C(phase), C(step), C(steps) and C(burnt_s).
  returned: when there is one
  type: dict
"""

import os
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._burn.control import (
    START,
    BurnError,
    begin,
    follow,
    halt,
    report,
    settings_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.plan import NAMES, SIZES
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.state import ENDED, load
from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    end,
    node_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import look_in_time

ARGUMENT_SPEC: dict[str, Any] = {
    **check_options("node", "thresholds"),
    "state": {"type": "str", "choices": ["finished", "started", "stopped"], "default": "finished"},
    "duration_s": {"type": "float", "default": 600},
    "phases": {"type": "list", "elements": "str", "choices": list(NAMES), "default": list(NAMES)},
    "gpus": {"type": "list", "elements": "str", "default": []},
    "slots": {"type": "list", "elements": "str", "default": []},
    "count": {"type": "int", "default": 0},
    "n": {"type": "int", "choices": list(SIZES), "default": 8192},
    "memory_share": {"type": "float", "default": 0.9},
    "memory_mib": {"type": "int", "default": 0},
    "most_batch": {"type": "int", "default": 32},
    "pulse_s": {"type": "float", "default": 0.1},
    "cublaslt": {"type": "path", "default": ""},
    "nvml": {"type": "path", "default": ""},
    "busy_ok": {"type": "bool", "default": False},
    "stop_c": {"type": "float", "default": 0},
    "start_timeout_s": {"type": "float", "default": 120},
    "silent_s": {"type": "float", "default": 120},
    "wait_s": {"type": "float", "default": 0},
    "again": {"type": "bool", "default": False},
    "again_after_days": {"type": "float", "default": 0},
    "again_if_unburned": {"type": "bool", "default": True},
    "folder": {"type": "path", "default": "/var/lib/baremetal-dgx/burn"},
}


def main() -> None:
    """Begin or stop, follow, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, check, folder = module.params, module.check_mode, module.params["folder"]
    look_in_time(module, [folder, params["cublaslt"], params["nvml"]])
    result: dict[str, Any] = {"changed": False}
    action, waits = "", params["state"] == "finished" and not check
    with reported(module, result, ValueError, BurnError):
        settings = settings_of(params)
        if params["state"] == "stopped":
            halt(folder, result, check)
        else:
            action = begin(params, settings, result, check)
        if waits:
            follow(folder, time.monotonic() + (params["wait_s"] or 2 * params["duration_s"] + 600))
        state = load(folder) if os.path.isdir(folder) else None
    answer = report(params, node_of(module), None if check and action == START else state, result)
    if not waits:
        module.exit_json(**answer)
    over = state is not None and state.state in ENDED
    if params["fail_on"] and not over and not answer["findings"]:
        module.fail_json(msg="the burn-in is not over: see `run`", **answer)
    end(module, answer)


if __name__ == "__main__":
    main()
