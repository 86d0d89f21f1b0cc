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
        description: Serial number that the machine must have; nothing is sent to another one. Not
          judged if empty.
        type: str
        default: ""
      firmware:
        description: By the id of a component, or a pattern of ids, C(exact), C(minimum) or
          C(alike).
        type: dict
        default: {}
      former_password:
        description: The password before this one, which is replaced where the BMC still has it.
        type: str
        default: ""
      accounts:
        description: Other accounts of the BMC; those that are not named stay as they are.
        type: list
        elements: dict
        default: []
        suboptions:
          user:
            description: Name of the account.
            type: str
            required: true
          password:
            description: Its password; not needed for one that is absent.
            type: str
            default: ""
          role:
            description: Its role.
            type: str
            choices: [Administrator, Operator, ReadOnly]
            default: ReadOnly
          state:
            description: Whether it is there.
            type: str
            choices: [present, absent]
            default: present
      time_servers:
        description: NTP servers of the BMC.
        type: list
        elements: str
        default: []
      log_server:
        description: Where the BMC sends its events, C(udp://10.1.0.11:514), tcp or tls.
        type: str
        default: ""
      bios:
        description: Attributes of the BIOS by name.
        type: dict
        default: {}
      boot_order:
        description: Names or patterns of boot options that come first, in their order.
        type: list
        elements: str
        default: []
      packages:
        description: Firmware packages in their order.
        type: list
        elements: dict
        default: []
        suboptions:
          file:
            description: The package on the control machine.
            type: path
            required: true
          sha256:
            description: Its checksum in 64 hexadecimal digits.
            type: str
            required: true
          components:
            description: By id or pattern of ids, the version that the package brings.
            type: dict
            required: true
          activation:
            description: What makes the new version run; V(none) if the BMC does by itself.
            type: str
            choices: [none, dc, ac]
            required: true
          cycle:
            description: V(own) cycles the machine before the next package is sent; V(next) leaves
              that to the cycle of the packages after it.
            type: str
            choices: [own, next]
            default: own
          targets:
            description: Paths of Redfish that the package is for; all that it fits without.
            type: list
            elements: str
            default: []
          uri:
            description: Where a BMC that takes no file fetches the same package (C(SimpleUpdate)).
            type: str
            default: ""
  at_once:
    description: BMCs that are asked together.
    type: int
  each_s:
    description: Seconds that one BMC may take for everything.
    type: float
  total_s:
    description: Seconds that all of them may take.
    type: float
"""

    OUTING = r"""
options:
  nodes:
    description: What C(scontrol show node -o) prints; a machine is switched off only by it.
    type: str
    default: ""
  held:
    description: Nodes that are held against jobs.
    type: list
    elements: str
    default: []
  share:
    description: Share of the nodes, 0 to 1, that may be out of service for this at a time.
    type: float
    default: 0.1
  serving:
    description:
      - Nodes that run services of the cluster, too. They are left alone, since the controller that
        this run asks may be one of them.
    type: list
    elements: str
    default: []
  soft_s:
    description: Seconds that an operating system may take to end, before its power is cut.
    type: float
    default: 120
  change_s:
    description: Seconds that a change of power may take, an AC cycle with the start of the BMC and
      a new version that must show too.
    type: float
  poll_s:
    description: Seconds between two looks at a machine or a task that changes.
    type: float
"""
