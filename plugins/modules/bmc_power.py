#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: bmc_power
short_description: Switch machines on and off by their BMCs, all in one call, never under a job
description:
  - Switches machines on, off, off and on, or cycles their AC power, over Redfish or IPMI, and reads
    the result back. It runs on the control machine, once for all nodes.
  - A machine is switched off only if O(nodes) says that its node is out of service without a job,
    and O(held) that a reservation keeps jobs away (M(baremetal.dgx.slurm_node_hold)). Others are
    C(not_measured), with the reason.
  - With O(state=planned) nothing is switched; RV(due) has the nodes to take out of service first,
    never more than O(share) of the fleet. It fails if a cycle would take more, since the next run
    would begin with the same machines.
  - An operating system gets O(soft_s) to end. AC power counts as cycled when the BMC itself was
    gone and is back. What a BMC cannot do is C(not_measured), by name.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.check
  - baremetal.dgx.check.timeout
  - baremetal.dgx.bmc
  - baremetal.dgx.bmc.outing
attributes:
  check_mode:
    support: full
    details: The BMCs are not asked with O(state=switched). Findings do not fail the task.
options:
  action:
    description: What the machines get. V(cycle) is off and on; one that is off is switched on.
    type: str
    choices: ["on", "off", cycle, ac_cycle]
    required: true
  state:
    description:
      - V(planned) asks for the power of the machines, and says which would be switched.
      - V(switched) switches them.
    type: str
    choices: [planned, switched]
    default: switched
  change_s:
    default: 600
  poll_s:
    default: 2
  at_once:
    default: 512
  each_s:
    default: 1800
  total_s:
    default: 3600
  timeout_s:
    description: Seconds that one answer may take.
    default: 15
seealso:
  - module: baremetal.dgx.bmc_info
  - module: baremetal.dgx.slurm_node_hold
"""

EXAMPLES = r"""
- name: Switch the machines on
  baremetal.dgx.bmc_power:
    action: "on"
    bmcs: "{{ query('baremetal.dgx.bmc_access', groups['gpu_nodes'], plan=plan_folder) }}"
  delegate_to: localhost
  run_once: true
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
due:
  description: Nodes that are switched, or would be.
  returned: always
  type: list
  elements: str
fresh:
  description: With O(state=planned), those of RV(due) that leave service for it.
  returned: always
  type: list
  elements: str
done:
  description: Nodes whose machines are as asked for.
  returned: always
  type: list
  elements: str
refused:
  description: Nodes that must not be switched off now, each with C(node) and C(why).
  returned: always
  type: list
  elements: dict
power:
  description: With O(state=planned), the power of each machine.
  returned: always
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.access import (
    bmc_options,
    outing_options,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.power import bring_about
from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported

ARGUMENT_SPEC: dict[str, Any] = {
    **check_options(timeout_s=15),
    **bmc_options(each_s=1800, total_s=3600),
    **outing_options(change_s=600, poll_s=2),
    "action": {"choices": ["on", "off", "cycle", "ac_cycle"], "required": True},
    "state": {"choices": ["planned", "switched"], "default": "switched"},
}


def main() -> None:
    """Look, switch, read back, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    with reported(module):
        result = bring_about(module.params, module.check_mode)
    finish(module, result.pop("records"), **result)


if __name__ == "__main__":
    main()
