# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What all modules that work with BMCs document alike; module_utils/_bmc/access.py."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that ask many BMCs in one call."""

    DOCUMENTATION = r"""
requirements:
  - redfish (DMTF's client library from PyPI) for the Python of the control machine, or ipmitool for
    BMCs with C(protocol=ipmi)
options:
  bmcs:
    description: The BMCs, as the lookup P(baremetal.dgx.bmc_access#lookup) returns them.
    type: list
    elements: dict
    required: true
    suboptions:
      node:
        description: Name of the node.
        type: str
        required: true
      protocol:
        description: How the BMC is asked; V(ipmi) has no certificates and knows less.
        type: str
        choices: [redfish, ipmi]
        default: redfish
      address:
        description: Address of the BMC.
        type: str
        required: true
      port:
        description: Its port.
        type: int
        default: 443
      cipher:
        description: Cipher suite of IPMI; V(17) has SHA-256, V(3) SHA-1.
        type: int
        choices: [3, 17]
        default: 17
      user:
        description: Account.
        type: str
        required: true
      password:
        description: Its password.
        type: str
        required: true
      certificate:
        description: V(sha256:) and the fingerprint of the BMC's certificate in 64 hexadecimal
          digits, or the path of a file (PEM) with the authorities that it is checked with. With
          Redfish there is no session without it.
        type: str
        default: ""
      profile:
        description: The node's profile; versions that must be alike are compared within it.
        type: str
        default: ""
      system:
        description: Id of the machine in Redfish. If it is empty the BMC must have only one.
        type: str
        default: ""
      serial:
        description: Serial number that the machine must have; not judged if empty.
        type: str
        default: ""
      firmware:
        description: By the id of a component, or a pattern of ids, C(exact), C(minimum) or
          C(alike).
        type: dict
        default: {}
  at_once:
    description: BMCs that are asked together.
    type: int
    default: 512
  each_s:
    description: Seconds that one BMC may take for everything.
    type: float
  total_s:
    description: Seconds that all of them may take.
    type: float
"""
