#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ib_info
short_description: Read the RDMA adapters of a node
description:
  - Reads from sysfs which RDMA devices a node has, what their ports do and how they are linked to
    the root of PCI Express.
    It changes nothing and judges nothing; M(baremetal.dgx.ib_health) does that.
  - Devices that are not ports of the fabric are listed with the reason in RV(hcas[].ignored);
    these are other vendors' devices, virtual functions, and the functions of a DGX B200 that lead
    to its NVSwitches.
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
  sysfs:
    description: The tree to read; a copy of one can be read on any host.
    type: path
    default: /sys
  rails:
    description: PCI address of each rail, to tell in RV(misnamed) which ones lack their name.
    type: list
    elements: dict
    default: []
    suboptions:
      rail:
        description: Number of the rail.
        type: int
        required: true
      pci:
        description: PCI address of its adapter.
        type: str
        required: true
seealso:
  - module: baremetal.dgx.ib_health
"""

EXAMPLES = r"""
- name: Read the adapters
  baremetal.dgx.ib_info:
  register: adapters

- name: Show the firmware of all adapters that count
  ansible.builtin.debug:
    msg: "{{ adapters.hcas | rejectattr('ignored') | map(attribute='firmware') | unique }}"
"""

RETURN = r"""
hcas:
  description: The RDMA devices, by PCI address. A value that sysfs did not show is null.
  returned: always
  type: list
  elements: dict
  contains:
    device:
      description: Name of the RDMA device.
      type: str
    pci:
      description: PCI address.
      type: str
    vendor:
      description: PCI vendor.
      type: str
    model:
      description: Kind of adapter, C(MT4129) for a ConnectX-7.
      type: str
    psid:
      description: Board id, which says what firmware fits.
      type: str
    firmware:
      description: Release of the firmware.
      type: str
    node_guid:
      description: GUID of the device, 16 hexadecimal digits.
      type: str
    serial:
      description: Serial number in the vital product data; null if the adapter does not tell it.
      type: str
    description:
      description: NodeDescription.
      type: str
    numa:
      description: NUMA node.
      type: int
    netdevs:
      description: Network interfaces.
      type: list
      elements: str
    max_read_request:
      description: Largest PCIe read request in bytes.
      type: int
    acs_redirecting:
      description: Bridges above it whose ACS sends traffic between peers to the root.
      type: list
      elements: str
    ignored:
      description: Why no check looks at it; empty for a port of the fabric.
      type: str
    pcie:
      description: The PCIe links up to the root, with what runs and what both ends are able to.
      type: list
      elements: dict
    ports:
      description: The ports with state, rate, GUID, PKeys and counters.
      type: list
      elements: dict
adapters:
  description: Address and GUIDs of the devices that are not ignored, for
    O(baremetal.dgx.fabric_verify#module:adapters).
  returned: always
  type: list
  elements: dict
  contains:
    device:
      description: Name of the RDMA device.
      type: str
    pci:
      description: PCI address.
      type: str
    guids:
      description: GUIDs of the device and of its ports.
      type: list
      elements: str
    serial:
      description: Serial number; null if the adapter does not tell it.
      type: str
firmwares:
  description: Devices by release of firmware, of those that are not ignored.
  returned: always
  type: dict
  sample: {"28.39.1002": [mlx5_rail0, mlx5_rail1]}
psids:
  description: Devices by board id, of those that are not ignored.
  returned: always
  type: dict
misnamed:
  description: Rails of O(rails) whose RDMA device is there under another name.
  returned: always
  type: list
  elements: dict
  contains:
    rail:
      description: Number of the rail.
      type: int
    device:
      description: Its present name.
      type: str
    name:
      description: The name it is to have.
      type: str
    netdevs:
      description: Its network interfaces.
      type: list
      elements: str
users:
  description: Processes that hold an RDMA device open, as C(PID (NAME)).
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._host.pci import Tree
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.read import (
    adapter_data,
    ask_serials,
    grouped,
    hca_data,
    misnamed,
    users_of_verbs,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.sysfs import load_hcas

ARGUMENT_SPEC: dict[str, Any] = {
    "sysfs": {"type": "path", "default": "/sys"},
    "rails": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "rail": {"type": "int", "required": True},
            "pci": {"type": "str", "required": True},
        },
    },
}


def main() -> None:
    """Load and report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    tree = Tree(module.params["sysfs"])
    hcas = load_hcas(tree)
    serials, why = ask_serials(tree, [hca for hca in hcas if not hca.ignored])
    if why:
        module.warn(f"serial numbers are missing: {why}")
    module.exit_json(
        changed=False,
        hcas=[hca_data(hca, serials.get(hca.device)) for hca in hcas],
        adapters=[adapter_data(hca, serials.get(hca.device)) for hca in hcas if not hca.ignored],
        firmwares=grouped(hcas, lambda hca: hca.firmware),
        psids=grouped(hcas, lambda hca: hca.psid),
        misnamed=misnamed(hcas, module.params["rails"]),
        users=users_of_verbs(),
    )


if __name__ == "__main__":
    main()
