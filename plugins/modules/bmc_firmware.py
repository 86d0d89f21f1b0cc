#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: bmc_firmware
short_description: Update the firmware of machines by their BMCs, never under a job, and never twice
description:
  - Sends packages to BMCs over Redfish, follows the task, cycles the machine where the package
    needs it, and reads the versions back. It runs on the control machine, once for all nodes.
  - Only a machine whose node is out of service without a job by O(nodes), and in O(held), is
    touched. The checksum of each package is compared before anything is sent.
  - What is done is written as lines into O(folder), before each step. After a run that was
    killed, the next one follows the task that was begun; where that cannot be known nothing is sent
    without O(again). Lines of a machine with another serial number do not count.
  - A package that is written and waits for its cycle is neither done nor failed; it is pending.
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
    details: It tells what it would update. Findings do not fail the task.
options:
  state:
    description:
      - V(planned) reads the versions, and says which machines would be updated.
      - V(updated) updates them.
    type: str
    choices: [planned, updated]
    default: updated
  folder:
    description: Folder of the lines, on the control machine.
    type: path
    required: true
  activate:
    description: Whether machines are cycled; without, packages stay pending.
    type: bool
    default: true
  again:
    description: Consent to send packages again that failed, that may have arrived, whose task is
      lost or has no end, or whose components are as declared except those whose version the BMC
      does not name. A task that runs since less than O(flash_s) is followed all the same.
    type: bool
    default: false
  flash_s:
    description: Seconds that the task of a package may take.
    type: float
    default: 3600
  change_s:
    default: 900
  poll_s:
    default: 10
  at_once:
    default: 32
  each_s:
    default: 14400
  total_s:
    default: 86400
  timeout_s:
    description: Seconds that one answer may take.
    default: 30
seealso:
  - module: baremetal.dgx.bmc_info
  - module: baremetal.dgx.bmc_power
"""

EXAMPLES = r"""
- name: Show which machines have old firmware
  baremetal.dgx.bmc_firmware:
    state: planned
    folder: /srv/cluster/.dgx/bmc
    bmcs: "{{ query('baremetal.dgx.bmc_access', groups['gpu_nodes'], plan=plan_folder) }}"
    nodes: "{{ shown.stdout }}"
  delegate_to: localhost
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
  description: Nodes that are updated, or would be.
  returned: always
  type: list
  elements: str
fresh:
  description: With O(state=planned), those of RV(due) that leave service for it.
  returned: always
  type: list
  elements: str
left:
  description:
    - With O(state=planned), nodes that an earlier run has taken out of service for this, and whose
      machines have what is declared.
  returned: always
  type: list
  elements: str
done:
  description: Nodes whose machines have what is declared.
  returned: always
  type: list
  elements: str
refused:
  description: Nodes that must not be touched now, each with C(node) and C(why).
  returned: always
  type: list
  elements: dict
versions:
  description: With O(state=planned), the components of each node of RV(due) that differ.
  returned: always
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.access import (
    bmc_options,
    outing_options,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.firmware import bring_about
from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported

ARGUMENT_SPEC: dict[str, Any] = {
    **check_options(timeout_s=30),
    **bmc_options(each_s=14400, total_s=86400, at_once=32),
    **outing_options(change_s=900, poll_s=10),
    "state": {"choices": ["planned", "updated"], "default": "updated"},
    "folder": {"type": "path", "required": True},
    "activate": {"type": "bool", "default": True},
    "again": {"type": "bool", "default": False},
    "flash_s": {"type": "float", "default": 3600},
}


def main() -> None:
    """Look, update, read back, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    with reported(module):
        result = bring_about(module.params, module.check_mode)
    finish(module, result.pop("records"), **result)


if __name__ == "__main__":
    main()
