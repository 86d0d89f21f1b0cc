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
    connection. The same task again follows a running burn-in, resumes one that was cut short, and
    reports one that is over without burning again.
  - A GPU in use, MIG, a missing driver or library, a fabric manager that is not running (CUDA error
    802), too little memory and a hang give V(not_measured), never V(pass) and never V(fail).
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: Tells what it would do, and reports what is on disk.
  diff_mode:
    support: none
    details: Results are no configuration.
  idempotent:
    support: full
    details: A burn-in that is over is not run again, unless O(again=true).
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
    type: list
    elements: str
    default: []
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
    description: Whether GPUs that have processes on them are burnt all the same.
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
    description: Seconds after which a GPU that tells nothing is given up.
    type: float
    default: 120
  wait_s:
    description: Seconds to wait for the end; V(0) for twice O(duration_s) and ten minutes.
    type: float
    default: 0
  again:
    description: Whether to burn anew where a burn-in with these settings is over.
    type: bool
    default: false
  again_after_days:
    description: Age in days from which on it is burnt anew; V(0) is never.
    type: float
    default: 0
  marks:
    description:
      - The site's own least figures instead of the collection's, by V(bf16), V(fp8), V(fp16),
        V(tf32), V(fp64) in TFLOP/s and V(hbm), V(down), V(up), V(peer) in GB/s.
    type: dict
    default: {}
  node:
    description: Name of the node in the records; its host name when not given.
    type: str
    default: ""
  folder:
    description: Where program, state, results and logs are.
    type: path
    default: /var/lib/baremetal-dgx/burn
  fail:
    description: Whether the task fails when a record does. With V(false) the caller decides.
    type: bool
    default: true
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

- name: Look for wrong bits in a minute
  baremetal.dgx.gpu_burn:
    duration_s: 60
    phases: [gemm_bf16, entropy_bf16, hbm]
    fail: false
  register: burn
"""

RETURN = r"""
records:
  description: One record for each question.
  returned: always
  type: list
  elements: dict
  contains:
    check:
      description: The question, such as C(burn.gemm_bf16), C(burn.rate_hbm) or C(burn.run).
      type: str
    subject:
      description: The GPU as C(gpu:NODE/INDEX), or the node.
      type: str
    status:
      description: V(pass), V(fail) or V(not_measured).
      type: str
    measured:
      description: C(value) and C(unit) of what was found.
      type: dict
    threshold:
      description: C(op), C(value), C(unit) and C(source) of what it was compared with.
      type: dict
    text:
      description: What was seen, with the first wrong row and column.
      type: str
    evidence:
      description: PCI address, UUID and serial of the GPU, and the last that a lost worker told.
      type: list
      elements: str
    remedy:
      description: What to do; empty for a pass.
      type: str
verdict:
  description: The records folded into one; V(pass), V(fail) or V(not_measured).
  returned: always
  type: str
findings:
  description: One line for each record that failed.
  returned: always
  type: list
  elements: str
not_measured:
  description: One line for each record that measured nothing.
  returned: always
  type: list
  elements: str
action:
  description: What was done, or would be, as C(start), C(resume), C(follow), C(report) or C(stop).
  returned: always
  type: str
text:
  description: The action in words.
  returned: when O(state) is not V(stopped)
  type: str
runs_as:
  description: What the program was started as, a unit of systemd or a process of its own.
  returned: when it was started
  type: str
run:
  description: How far the burn-in is, with C(state), C(phase), C(step), C(steps) and C(burnt_s).
  returned: when there is one
  type: dict
"""

import hashlib
import os
import socket
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._burn_app import (
    FOLLOW,
    REPORT,
    START,
    BurnError,
    follow,
    lines,
    next_action,
    prepare,
    read_sums,
    start,
    stop,
    summary,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._burn_judge import judge_burn
from ansible_collections.baremetal.dgx.plugins.module_utils._burn_parent import is_running
from ansible_collections.baremetal.dgx.plugins.module_utils._burn_plan import (
    NAMES,
    SIZES,
    Settings,
    settings_from_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._burn_state import (
    ENDED,
    State,
    load,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_tool_report import (
    now_text,
    stamped,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._lock import BusyError, host_lock
from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    FAIL,
    NOT_MEASURED,
    Tally,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["finished", "started", "stopped"], "default": "finished"},
    "duration_s": {"type": "float", "default": 600},
    "phases": {"type": "list", "elements": "str", "choices": list(NAMES), "default": list(NAMES)},
    "gpus": {"type": "list", "elements": "str", "default": []},
    "slots": {"type": "list", "elements": "str", "default": []},
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
    "marks": {"type": "dict", "default": {}},
    "node": {"type": "str", "default": ""},
    "folder": {"type": "path", "default": "/var/lib/baremetal-dgx/burn"},
    "fail": {"type": "bool", "default": True},
}
_SETTINGS = tuple(Settings.__dataclass_fields__)
_LOCK_S = 30


def report(params: dict[str, Any], state: State | None) -> dict[str, Any]:
    """Judge what is on disk."""
    if state is None:
        return {"records": [], "verdict": NOT_MEASURED, "findings": [], "not_measured": []}
    node = params["node"] or socket.gethostname().split(".")[0]
    sums = read_sums(params["folder"])
    # Told again, it still counts by the time of the burn.
    at = now_text(state.updated or None)
    records = stamped(judge_burn(node, state, sums, params["marks"], params["slots"]), at)
    return {
        "records": [record.as_data() for record in records],
        "verdict": Tally.of(records).verdict,
        "findings": lines(records, FAIL),
        "not_measured": lines(records, NOT_MEASURED),
        "run": summary(state),
    }


def is_again(params: dict[str, Any], state: State | None, now: float) -> bool:
    """Tell whether a burn-in that is over does not count any more."""
    days = params["again_after_days"]
    old = state is not None and state.state in ENDED and now - state.updated > days * 86400
    return params["again"] or bool(days and old)


def main() -> None:
    """Plan, start or follow, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    folder = params["folder"]
    result: dict[str, Any] = {"changed": False}
    try:
        settings = settings_from_data({name: params[name] for name in _SETTINGS})
        if params["state"] == "stopped":
            running = is_running(folder)
            result.update(action="stop", changed=running)
            if running and not module.check_mode:
                stop(folder)
            module.exit_json(**result, **report(params, load(folder)))
        place = hashlib.sha256(folder.encode("utf-8")).hexdigest()[:12]
        with host_lock(f"gpu_burn-{place}", _LOCK_S):
            found = load(folder)
            again = is_again(params, found, time.time())
            action, text = next_action(found, is_running(folder), settings, again)
            result.update(action=action, text=text, changed=action not in (FOLLOW, REPORT))
            if result["changed"] and not module.check_mode:
                prepare(folder, settings, action == START)
                result["runs_as"] = start(folder)
        if params["state"] == "finished" and not module.check_mode:
            limit = params["wait_s"] or 2 * params["duration_s"] + 600
            follow(folder, time.monotonic() + limit)
        state = load(folder) if os.path.isdir(folder) else None
    except (ValueError, BurnError) as error:
        module.fail_json(msg=str(error), **result)
    except BusyError as error:
        module.fail_json(msg=f"another gpu_burn holds the lock: process {error.holder}", **result)
    except OSError as error:
        module.fail_json(msg=f"{folder}: {error}", **result)
    if action == START and module.check_mode:
        state = None
    result.update(report(params, state))
    judged = state is not None and state.state in ENDED
    if params["fail"] and not module.check_mode and params["state"] == "finished":
        if result["findings"]:
            module.fail_json(msg="\n".join(result["findings"]), **result)
        if not judged:
            module.fail_json(msg="the burn-in is not over: see `run`", **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
