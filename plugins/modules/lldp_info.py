#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: lldp_info
short_description: Read the switch ports that the rails of a node lead to
description:
  - Asks lldpd for the neighbours of each interface (C(lldpcli -f json0 show neighbors)), and reads
    from sysfs whether the interface is up and at which rate.
  - It changes nothing and judges nothing; M(baremetal.dgx.fabric_verify) does that for all nodes.
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
  interfaces:
    description: Names of the interfaces. One that the node lacks is left out of RV(links).
    type: list
    elements: str
    required: true
  pci:
    description: PCI addresses of their adapters, by name of the interface, for RV(misnamed).
    type: dict
    default: {}
  sysfs:
    description: The tree to read.
    type: path
    default: /sys
  timeout_s:
    description: Seconds that lldpd may take.
    type: float
    default: 10
seealso:
  - module: baremetal.dgx.fabric_verify
"""

EXAMPLES = r"""
- name: Read the neighbours of the rails
  baremetal.dgx.lldp_info:
    interfaces: [rail0, rail1]
    pci: {rail0: "18:00.0", rail1: "40:00.0"}
  register: lldp
"""

RETURN = r"""
problem:
  description: Why lldpd has no answer; empty when it answered.
  returned: always
  type: str
links:
  description: The interfaces that the node has, in the order of O(interfaces).
  returned: always
  type: list
  elements: dict
  contains:
    interface:
      description: Its name.
      type: str
    carrier:
      description: Whether its link is up; null when sysfs does not say.
      type: bool
    rate_gbps:
      description: Its rate; null when sysfs does not say.
      type: float
    neighbors:
      description: The devices that it hears, each with C(name), and the names of its port in
        C(ports).
      type: list
      elements: dict
misnamed:
  description:
    - Of interfaces that the node lacks and whose adapter is at its address in O(pci), the name that
      the interface has instead. An adapter without any interface is not among them.
    - udev renames no interface that is up, so that a new name may wait for a boot.
  returned: always
  type: dict
  sample: {rail3: enp94s0np0}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._lldp.ask import ask_lldp

ARGUMENT_SPEC: dict[str, Any] = {
    "interfaces": {"type": "list", "elements": "str", "required": True},
    "pci": {"type": "dict", "default": {}},
    "sysfs": {"type": "path", "default": "/sys"},
    "timeout_s": {"type": "float", "default": 10},
}


def main() -> None:
    """Ask, return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    given = (params[name] for name in ("interfaces", "sysfs", "timeout_s", "pci"))
    answer = ask_lldp(ModuleRunner(module), *given)
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
