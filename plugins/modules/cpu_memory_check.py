#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cpu_memory_check
short_description: Judge processors and memory of a node, with work whose results are known
description:
  - Compares CPUs, sockets, cores, NUMA nodes and memory with the profile of the node, the NUMA
    nodes that have CPUs with each other, and the memory errors that the kernel has counted (EDAC)
    with what a healthy memory module has.
  - Then a process on each CPU computes what is known before (SHA-256, CRC, long integers, floats),
    and writes patterns through a share of the free memory and reads them back.
  - What that cannot see. It runs in user space, through the caches, in pages that were free; it
    hammers no rows and uses no vector units but those of SHA. It finds what is broken; a pass means
    nothing for the months to come. Errors that ECC has corrected are seen in EDAC only.
  - A process that is killed (no memory left) or does not end is C(not_measured).
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.check
  - baremetal.dgx.check.node
attributes:
  check_mode:
    details: In check mode only what the kernel shows is judged; nothing is loaded.
options:
  profile:
    description: The node's profile, as C(profile_data) of its plan. Uses C(cpu) and
      C(real_memory_mb).
    type: dict
    required: true
  seconds:
    description: How long the CPUs are loaded; V(0) loads nothing and asks the kernel only.
    type: float
    default: 30
  memory_share:
    description: Share of the available memory that is written, V(0) to V(0.9); V(0) writes none.
    type: float
    default: 0.25
  memory_mib:
    description: At most so much of it; V(0) for no limit but O(memory_share).
    type: int
    default: 0
  edac:
    description: Whether memory errors are asked for. Without a driver that counts them they are
      not measured.
    type: bool
    default: true
  sysfs:
    description: The tree to read.
    type: path
    default: /sys
  proc:
    description: The tree to read.
    type: path
    default: /proc
seealso:
  - module: baremetal.dgx.fio_check
  - module: baremetal.dgx.gpu_burn
"""

EXAMPLES = r"""
- name: Judge processors and memory by the profile of the node
  baremetal.dgx.cpu_memory_check:
    profile:
      cpu: {sockets: 2, cores_per_socket: 56, threads_per_core: 2, numa_nodes: 2}
      real_memory_mb: 2000000
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
cpus:
  description: How many CPUs were loaded, or would be in check mode.
  returned: always
  type: int
mib:
  description: How much memory was written, or would be in check mode, in MiB.
  returned: always
  type: int
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
    node_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._host.cpu_memory_load import ask_cpus

ARGUMENT_SPEC: dict[str, Any] = {
    **check_options("node"),
    "profile": {"type": "dict", "required": True},
    "seconds": {"type": "float", "default": 30},
    "memory_share": {"type": "float", "default": 0.25},
    "memory_mib": {"type": "int", "default": 0},
    "edac": {"type": "bool", "default": True},
    "sysfs": {"type": "path", "default": "/sys"},
    "proc": {"type": "path", "default": "/proc"},
}


def main() -> None:
    """Ask the kernel, load, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    with reported(module, None, ValueError):
        records, cpus, mib = ask_cpus(node_of(module), params, module.check_mode)
    finish(module, records, cpus=cpus, mib=mib)


if __name__ == "__main__":
    main()
