#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ib_health
short_description: Judge the fabric adapters of a node
description:
  - Compares each rail of a node with what its profile says, and gives one record for each question.
    What can be asked are presence at its PCI address, name, link layer, state, physical state,
    rate, width, subnet manager, firmware, PSID, PKeys, PCIe speed and width up to the root, largest
    read request, ACS, link-downed and symbol-error growth, bit errors and transceiver.
  - The counters of an Ethernet port are those of C(ethtool -S), which mlx5 has for the physical
    link, with frames of wrong checksum and what was dropped of priorities with PFC.
  - Counters are judged by their growth since an earlier reading, which is kept in O(state_file).
    A counter that is full, was cleared, or was never read before has measured nothing.
  - Transceivers are judged inside the alarm range that each module states for itself. The bit error
    ratio before correction is reported in the evidence and never fails a port.
  - C(mlxlink) or C(mstlink) is asked where one is installed. A tool that is missing, hangs or
    answers with half a text gives C(not_measured).
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.check
  - baremetal.dgx.check.node
  - baremetal.dgx.check.timeout
attributes:
  check_mode:
    details: The reading of this run is not kept.
options:
  rails:
    description: What each rail must be.
    type: list
    elements: dict
    required: true
    suboptions:
      rail:
        description: Number of the rail.
        type: int
        required: true
      pci:
        description: PCI address of its adapter. Without it, the name alone says which one it is.
        type: str
      rate_gbps:
        description: Rate of its port.
        type: float
        required: true
      width:
        description: Width of its port. Without it, any that gives the rate; 200 Gb/s are 4x of HDR
          or 2x of NDR.
        type: str
      link_layer:
        description: What the port runs.
        type: str
        choices: [InfiniBand, Ethernet]
        default: InfiniBand
      pcie_generation:
        description: Generation that the PCIe links of its adapter must run at, up to the root.
        type: int
      pcie_width:
        description: Lanes that they must have.
        type: int
      devices:
        description: Names the device may have where it is not found by PCI address.
        type: list
        elements: str
        default: []
  firmware:
    description: Firmware that all rails must have. Empty asks only that they have the same.
    type: str
    default: ""
  psid:
    description: Board id that all rails must have. Empty asks only that they have the same.
    type: str
    default: ""
  names:
    description: Whether the RDMA devices must have the names that the role infiniband gives them.
    type: bool
    default: true
  max_read_request:
    description: Largest PCIe read request in bytes that each adapter must have; V(0) does not ask.
    type: int
    default: 0
  acs_off:
    description: Whether no bridge above an adapter may redirect traffic between peers.
    type: bool
    default: false
  optics:
    description: Whether transceivers and bit errors are asked for.
    type: bool
    default: true
  window_s:
    description:
      - Seconds from which on a window is long enough to prove that there are no symbol errors.
        Too many errors fail in any window.
      - A run within this time of the last kept reading does not replace it.
    type: float
    default: 720
  state_file:
    description: Where the last reading is kept.
    type: path
    default: /var/lib/baremetal-dgx/ib_health.json
  link_log:
    description:
      - Where the node keeps a reading a day of each link, for trends. The role node_health writes
        it every day, this module what is due.
    type: path
    default: /var/lib/baremetal-dgx/node-health/links.jsonl
  timeout_s:
    description: Seconds mlxlink or ethtool may take for one adapter.
    default: 20
  sysfs:
    description: The tree to read.
    type: path
    default: /sys
seealso:
  - module: baremetal.dgx.ib_info
"""

EXAMPLES = r"""
- name: Judge the rails of a DGX H100
  baremetal.dgx.ib_health:
    rails:
      - {rail: 0, pci: "18:00.0", rate_gbps: 400}
      - {rail: 1, pci: "40:00.0", rate_gbps: 400}
    max_read_request: 4096
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
links:
  description:
    - Readings of the links of the last ten days, for M(baremetal.dgx.evidence_add). Each is a list
      of values, described in C(docs/records.md).
  returned: always
  type: list
  elements: list
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
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.ask import ask_rails
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.judge import wanted_from_data
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.link_log import LOG

RAIL: dict[str, Any] = {
    "rail": {"type": "int", "required": True},
    "pci": {"type": "str"},
    "rate_gbps": {"type": "float", "required": True},
    "width": {"type": "str"},
    "link_layer": {"choices": ["InfiniBand", "Ethernet"], "default": "InfiniBand"},
    "pcie_generation": {"type": "int"},
    "pcie_width": {"type": "int"},
    "devices": {"type": "list", "elements": "str", "default": []},
}
ARGUMENT_SPEC: dict[str, Any] = {
    **check_options("node", timeout_s=20),
    "rails": {"type": "list", "elements": "dict", "required": True, "options": RAIL},
    "firmware": {"type": "str", "default": ""},
    "psid": {"type": "str", "default": ""},
    "names": {"type": "bool", "default": True},
    "max_read_request": {"type": "int", "default": 0},
    "acs_off": {"type": "bool", "default": False},
    "optics": {"type": "bool", "default": True},
    "window_s": {"type": "float", "default": 720},
    "state_file": {"type": "path", "default": "/var/lib/baremetal-dgx/ib_health.json"},
    "link_log": {"type": "path", "default": LOG},
    "sysfs": {"type": "path", "default": "/sys"},
}


def main() -> None:
    """Ask, judge, keep the reading, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    with reported(module, {}, ValueError):
        wanted = wanted_from_data(module.params["rails"])
    started = time.monotonic()
    run, write = ModuleRunner(module), not module.check_mode
    records, links, warning = ask_rails(run, node_of(module), wanted, module.params, write)
    took_s = time.monotonic() - started
    if warning:
        module.warn(warning)
    finish(module, records, took_s=took_s, links=links)


if __name__ == "__main__":
    main()
