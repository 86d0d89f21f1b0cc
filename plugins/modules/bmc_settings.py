#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: bmc_settings
short_description: Bring accounts and settings of BMCs to what is declared, all in one call
description:
  - Compares accounts, time servers, the syslog server, attributes of the BIOS and the boot order
    with what is declared, over Redfish, writes what differs, and reads it back. It runs on the
    control machine, once for all nodes, and interrupts no job.
  - The account's own password is replaced where the BMC still has the former one. The former
    session stays open until a login with the new password works; if none does, it puts the former
    password back.
  - BIOS and boot order come into force at the next boot of the machine. Until then they are
    findings, which say C(pending until the next boot), and RV(pending) has them.
  - What a BMC does not have is C(not_measured), by name.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.check
  - baremetal.dgx.check.timeout
  - baremetal.dgx.bmc
attributes:
  check_mode:
    support: full
    details: It logs in and reads. Findings do not fail the task.
options:
  at_once:
    default: 512
  each_s:
    default: 300
  total_s:
    default: 3600
  timeout_s:
    description: Seconds that one answer may take.
    default: 15
seealso:
  - module: baremetal.dgx.bmc_info
  - module: baremetal.dgx.bmc_power
"""

EXAMPLES = r"""
- name: Bring the BMCs to what is declared
  baremetal.dgx.bmc_settings:
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
pending:
  description: For each node the checks of what comes into force at the next boot.
  returned: always
  type: dict
only_pending:
  description: Whether that is all that differs.
  returned: always
  type: bool
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.access import bmc_options
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.configure import bring_about
from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported

ARGUMENT_SPEC: dict[str, Any] = {
    **check_options(timeout_s=15),
    **bmc_options(each_s=300, total_s=3600),
}


def main() -> None:
    """Compare, write, read back, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    with reported(module):
        records, more = bring_about(module.params, module.check_mode)
    finish(module, records, **more)


if __name__ == "__main__":
    main()
