#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Read the GPUs of a node
description:
  - Reads through NVML and sysfs what GPUs a node has and what they say of themselves.
    It changes nothing and judges nothing; M(baremetal.dgx.gpu_health) does that.
  - A value that could not be had is null, and C(absent) of its GPU says why.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: Nothing is ever changed.
  diff_mode:
    support: none
    details: Nothing is ever changed.
  idempotent:
    support: full
options:
  library:
    description: Path of libnvidia-ml.so.1; the one that the loader finds when empty.
    type: str
    default: ""
  timeout_s:
    description: Seconds that one GPU may take to answer.
    type: float
    default: 10
  sysfs:
    description: The tree to read.
    type: path
    default: /sys
  proc:
    description: The tree to read C(driver/nvidia/version) from.
    type: path
    default: /proc
seealso:
  - module: baremetal.dgx.gpu_health
"""

EXAMPLES = r"""
- name: Read the GPUs
  baremetal.dgx.gpu_info:
  register: found

- name: Record which GPU is where
  ansible.builtin.debug:
    msg: "{{ found.gpus | items2dict(key_name='pci', value_name='serial') }}"
"""

RETURN = r"""
gpus:
  description: The GPUs that NVML knows, in its order; those that are lost have C(lost) set.
  returned: always
  type: list
  elements: dict
  contains:
    index:
      description: NVML's number.
      type: int
    pci:
      description: PCI address.
      type: str
    uuid:
      description: UUID.
      type: str
    serial:
      description: Serial number.
      type: str
    name:
      description: Model.
      type: str
    lost:
      description: Why there is no access to it; empty where there is.
      type: str
    links:
      description: The NVLinks, with their state, speed and error counters.
      type: list
      elements: dict
    pcie_links:
      description: The PCIe links from the GPU up to the root.
      type: list
      elements: dict
    processes:
      description: The processes that hold it.
      type: list
      elements: dict
    absent:
      description: For each value that is null, why.
      type: dict
count:
  description: How many GPUs the driver knows.
  returned: always
  type: int
driver_version:
  description: Release of the driver.
  returned: always
  type: str
nvml_version:
  description: Release of NVML.
  returned: always
  type: str
cuda_version:
  description: Newest CUDA that the driver serves, 13000 for 13.0.
  returned: always
  type: int
module_version:
  description: Release of the kernel module that is loaded.
  returned: always
  type: str
open_module:
  description: Whether the kernel module is the open one.
  returned: always
  type: bool
nouveau:
  description: Whether the module nouveau is loaded.
  returned: always
  type: bool
pci:
  description: The GPUs on the PCI bus, whether or not the driver knows them.
  returned: always
  type: list
  elements: dict
nvswitches:
  description: PCI addresses of the NVSwitches.
  returned: always
  type: list
  elements: str
error:
  description: Why NVML gave nothing; empty where it answered.
  returned: always
  type: str
stuck:
  description: For each GPU whose reading hung or crashed, the last function that was called.
  returned: always
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.host import info_result, load_host
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.nvml.sweep import sweep

ARGUMENT_SPEC: dict[str, Any] = {
    "library": {"type": "str", "default": ""},
    "timeout_s": {"type": "float", "default": 10},
    "sysfs": {"type": "path", "default": "/sys"},
    "proc": {"type": "path", "default": "/proc"},
}


def main() -> None:
    """Load and report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    host = load_host(params["sysfs"], params["proc"])
    module.exit_json(**info_result(sweep(params["library"], params["timeout_s"]), host))


if __name__ == "__main__":
    main()
