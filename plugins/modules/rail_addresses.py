#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rail_addresses
short_description: Compare addresses, MTU, rules and routes of rails, and apply what lacks
description:
  - Compares what C(ip) shows of the interfaces with what is declared. With O(apply) the network
    service reads its files again for the interfaces that lack something, and for no others.
  - An interface that does not exist is not applied. One that is renamed at the next boot gets its
    address then.
  - If C(ip) fails or hangs, nothing is applied and the task fails; without O(apply) it is
    C(not_measured).
  - What still lacks after O(apply) was run is a finding like any other; O(fail_on) decides.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.check
  - baremetal.dgx.check.node
attributes:
  check_mode:
    details: Nothing is applied, and findings do not fail the task.
  diff_mode:
    details: What lacks is in the records.
options:
  addresses:
    description: Addresses of the ports.
    type: list
    elements: dict
    required: true
    suboptions:
      port:
        description: Name of the port, C(rail0) for instance.
        type: str
        required: true
      address:
        description: Address and prefix length.
        type: str
        required: true
      mtu:
        description: Bytes of a packet; V(0) and no value ask for none.
        type: int
      source:
        description: The address without its length. A rule leads from it to O(addresses[].table).
        type: str
      gateway:
        description: The router that the default route of this table leads to.
        type: str
      table:
        description: Number of the routing table of the port. Without it no rule and no route is
          asked for.
        type: int
      routes:
        description: Other routes by this port. A default route among them is that of
          O(addresses[].gateway).
        type: list
        elements: dict
        suboptions:
          to:
            description: Network and prefix length.
            type: str
            required: true
          via:
            description: The router. Without it the network is on the link.
            type: str
          table:
            description: Number of the routing table; the main one when not given.
            type: int
  prefix:
    description: What the name of the interface has before that of the port, C(ib) for instance.
    type: str
    default: ""
  manager:
    description: Who configures the interfaces; it is named in what to do.
    type: str
    default: the network service
  apply:
    description: Command that applies the files to the interfaces whose names are added to it. When
      empty, nothing is changed.
    type: list
    elements: str
    default: []
  wait_s:
    description: Seconds to ask again while something lacks. In check mode it is asked once.
    type: float
    default: 0
seealso:
  - module: baremetal.dgx.ib_health
"""

EXAMPLES = r"""
- name: Configure the rails that lack something
  baremetal.dgx.rail_addresses:
    addresses:
      - {port: rail0, address: 10.1.16.101/24, mtu: 4092}
    prefix: ib
    apply: [sh, -c, 'networkctl reload && networkctl reconfigure "$@"', sh]
    wait_s: 10
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
applied:
  description: The interfaces that lacked something and were given to O(apply), or would be in check
    mode.
  returned: success
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
    node_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.addresses import bring_about

ROUTE: dict[str, Any] = {
    "to": {"type": "str", "required": True},
    "via": {"type": "str"},
    "table": {"type": "int"},
}
ADDRESS: dict[str, Any] = {
    "port": {"type": "str", "required": True},
    "address": {"type": "str", "required": True},
    "mtu": {"type": "int"},
    "source": {"type": "str"},
    "gateway": {"type": "str"},
    "table": {"type": "int"},
    "routes": {"type": "list", "elements": "dict", "options": ROUTE},
}
ARGUMENT_SPEC: dict[str, Any] = {
    **check_options("node"),
    "addresses": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": ADDRESS,
        "required_by": {"table": ["source", "gateway"]},
    },
    "prefix": {"type": "str", "default": ""},
    "manager": {"type": "str", "default": "the network service"},
    "apply": {"type": "list", "elements": "str", "default": []},
    "wait_s": {"type": "float", "default": 0},
}


def main() -> None:
    """Ask, apply, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    node = node_of(module)
    with reported(module):
        records, applied = bring_about(ModuleRunner(module), module.params, node, module.check_mode)
    finish(module, records, changed=bool(applied), applied=applied)


if __name__ == "__main__":
    main()
