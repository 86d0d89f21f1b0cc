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
    What can be asked are presence, model, identity, PCIe speed and width up to the root, ECC,
    row remaps, NVLinks, fabric, clocks, throttling, temperature, power limit, settings,
    leftover processes, Xid and SXid errors and PCIe errors since boot, and whether driver, NVML
    and fabric manager are of one release.
  - It reads NVML through its own binding, in a child process. A library that hangs or crashes
    costs the GPU that was being asked; the others are still read.
  - What a driver does not have, and what could not be read, is C(not_measured), never a pass and
    never a fault of the GPU.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.check
  - baremetal.dgx.check.node
  - baremetal.dgx.check.thresholds
  - baremetal.dgx.check.timeout
options:
  profile:
    description:
      - What the node must be, as its profile says. C(gpus) with C(count), C(type), C(memory_mib),
        C(pci), C(numa) and C(mig) (the numbers of the GPUs that must be divided, or a mapping of
        them to the names of their instances), and C(nvlink) with C(links_per_gpu) and C(nvswitches)
        are read.
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
      - While a load of this collection is on the GPUs, that is not asked.
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
  thresholds:
    description:
      - The site's own thresholds, by the name of the check, such as C(gpu.power_limit).
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
    fail_on: []
  register: gpus
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
actions:
  description:
    - For each subject with a finding the most that one of its findings asks for; V(settings),
      V(job), V(look), V(reset), V(reboot) or V(replace).
  returned: always
  type: dict
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
    node_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.ask import (
    ask_gpus,
    wanted_from_options,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.thresholds import actions

ARGUMENT_SPEC: dict[str, Any] = {
    **check_options("node", "thresholds", timeout_s=10),
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
    "since_s": {"type": "float", "default": 0},
    "library": {"type": "str", "default": ""},
    "kernel_log": {"type": "str", "default": ""},
    "fabric_manager": {"type": "str", "default": "nv-fabricmanager"},
    "sysfs": {"type": "path", "default": "/sys"},
    "proc": {"type": "path", "default": "/proc"},
}


def main() -> None:
    """Ask, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    with reported(module, {}, TypeError, ValueError):
        wanted = wanted_from_options(module.params)
    started = time.monotonic()
    records = ask_gpus(ModuleRunner(module), node_of(module), wanted, module.params)
    finish(module, records, took_s=time.monotonic() - started, actions=actions(records))


if __name__ == "__main__":
    main()
