#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_health
short_description: Judge the GPUs of a node
description:
  - Compares the GPUs of a node with its profile and with what the devices state for themselves, and
    gives one record for each question.
    What can be asked are presence, model, identity, PCIe speed and width up to the root, ECC, row
    remaps, NVLinks, fabric, clocks, throttling, temperature, power limit, settings, leftover
    processes, Xid and SXid errors since boot, and whether driver, NVML and fabric manager are of
    one release.
  - It reads NVML through a binding of its own, in a child process. A library that hangs or crashes
    costs the GPU that was being asked; the others are still read.
  - What a driver does not have, and what could not be read, is C(not_measured), never a pass and
    never a fault of the GPU.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: Findings do not fail the task.
  diff_mode:
    support: none
    details: Nothing on the node is changed.
  idempotent:
    support: full
options:
  node:
    description: Name of the node in the records; its host name when not given.
    type: str
    default: ""
  profile:
    description:
      - What the node must be, as its profile says. C(gpus) with C(count), C(type), C(memory_mib),
        C(pci) and C(numa), and C(nvlink) with C(links_per_gpu) and C(nvswitches) are read.
      - What is not given is not asked.
    type: dict
    default: {}
  driver_version:
    description: Release that the driver must have; empty does not ask.
    type: str
    default: ""
  mig:
    description: Whether MIG must be on.
    type: bool
    default: false
  ecc:
    description: Whether ECC must be on.
    type: bool
    default: true
  idle:
    description:
      - Whether the node has no job, so that no process may hold a GPU and no memory may be in use.
    type: bool
    default: true
  identities:
    description: UUID and serial number that were recorded for the GPU at each PCI address.
    type: list
    elements: dict
    default: []
    suboptions:
      pci:
        description: PCI address.
        type: str
        required: true
      uuid:
        description: UUID.
        type: str
        required: true
      serial:
        description: Serial number.
        type: str
        required: true
  marks:
    description:
      - Marks of a site's own, by the name of the check, such as C(gpu.power_limit).
    type: dict
    default: {}
  since_s:
    description: Seconds after boot from which on Xids count, such as the time of a GPU reset.
    type: float
    default: 0
  library:
    description: Path of libnvidia-ml.so.1; the one that the loader finds when empty.
    type: str
    default: ""
  timeout_s:
    description: Seconds that one GPU, or a tool, may take to answer.
    type: float
    default: 10
  kernel_log:
    description:
      - File with the kernel's messages since boot. When empty, the kernel's buffer is read, or the
        journal where the beginning of the buffer has been overwritten.
    type: str
    default: ""
  fabric_manager:
    description: Command that tells the release of the fabric manager.
    type: str
    default: nv-fabricmanager
  sysfs:
    description: The tree to read.
    type: path
    default: /sys
  proc:
    description: The tree to read C(driver/nvidia/version) from.
    type: path
    default: /proc
  fail:
    description: Whether the task fails when a record does. With V(false) the caller decides.
    type: bool
    default: true
seealso:
  - module: baremetal.dgx.gpu_info
"""

EXAMPLES = r"""
- name: Judge the GPUs of a DGX H100
  baremetal.dgx.gpu_health:
    profile:
      gpus: {count: 8, type: h100, memory_mib: 81559}
      nvlink: {links_per_gpu: 18, nvswitches: 4}

- name: Judge while a job runs, and decide later
  baremetal.dgx.gpu_health:
    profile: "{{ node.profile }}"
    idle: false
    fail: false
  register: gpus
"""

RETURN = r"""
records:
  description: One record for each question.
  returned: always
  type: list
  elements: dict
  contains:
    check:
      description: The question, such as C(gpu.remap_pending).
      type: str
    subject:
      description: The GPU as C(gpu:NODE/INDEX), numbered by PCI address, or the node.
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
      description: What was looked at.
      type: str
    evidence:
      description: PCI address, UUID and serial number, and what the tools said.
      type: list
      elements: str
    remedy:
      description: What to do, the kind of action first; empty for a pass.
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
actions:
  description:
    - For each subject with a finding the most that one of its findings asks for; V(settings),
      V(job), V(look), V(reset), V(reboot) or V(replace).
  returned: always
  type: dict
"""

import socket
import time
from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_health import (
    full_pci,
    judge_node,
    wanted_from_profile,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_host import (
    fabric_manager,
    load_host,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_report import health_result
from ansible_collections.baremetal.dgx.plugins.module_utils._kernel_log import read_log
from ansible_collections.baremetal.dgx.plugins.module_utils._nvml_sweep import sweep
from ansible_collections.baremetal.dgx.plugins.module_utils._run import ModuleRunner

ARGUMENT_SPEC: dict[str, Any] = {
    "node": {"type": "str", "default": ""},
    "profile": {"type": "dict", "default": {}},
    "driver_version": {"type": "str", "default": ""},
    "mig": {"type": "bool", "default": False},
    "ecc": {"type": "bool", "default": True},
    "idle": {"type": "bool", "default": True},
    "identities": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "pci": {"type": "str", "required": True},
            "uuid": {"type": "str", "required": True},
            "serial": {"type": "str", "required": True},
        },
    },
    "marks": {"type": "dict", "default": {}},
    "since_s": {"type": "float", "default": 0},
    "library": {"type": "str", "default": ""},
    "timeout_s": {"type": "float", "default": 10},
    "kernel_log": {"type": "str", "default": ""},
    "fabric_manager": {"type": "str", "default": "nv-fabricmanager"},
    "sysfs": {"type": "path", "default": "/sys"},
    "proc": {"type": "path", "default": "/proc"},
    "fail": {"type": "bool", "default": True},
}


def main() -> None:
    """Load, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    options = {name: params[name] for name in ("driver_version", "mig", "ecc", "idle", "since_s")}
    identities = {
        full_pci(one["pci"]): (one["uuid"], one["serial"]) for one in params["identities"]
    }
    try:
        wanted = wanted_from_profile(
            params["profile"], marks=params["marks"], identities=identities, **options
        )
    except (TypeError, ValueError) as error:
        module.fail_json(msg=str(error))
    run, limit = ModuleRunner(module), params["timeout_s"]
    started = time.monotonic()
    # First, since it forks, and what runs commands leaves threads behind for a moment.
    found = sweep(params["library"], limit)
    host = load_host(params["sysfs"], params["proc"])
    if wanted.nvswitches:
        release, absent = fabric_manager(run, params["fabric_manager"], limit)
        host = replace(host, fabric_manager=release, fabric_manager_absent=absent)
    log = read_log(params["kernel_log"], run, limit)
    node = params["node"] or socket.gethostname().split(".")[0]
    records = list(judge_node(node, wanted, found, host, log))
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    result = health_result(records, at, time.monotonic() - started)
    if result["findings"] and params["fail"] and not module.check_mode:
        module.fail_json(msg="\n".join(result["findings"]), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
