#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: bmc_info
short_description: Judge machines by what their BMCs say, all in one call
description:
  - Asks BMCs over Redfish, or IPMI where that is declared, for power, health, power supplies, fans,
    temperatures, serial number and versions of firmware, and compares them with what is declared.
    Nothing is changed.
  - Of their event logs the entries since the last look are judged. A look is the last one when
    this module is called with O(state=settled), after its records were kept, so that a run that is
    killed costs no entry.
  - Runs on the control machine (C(delegate_to=localhost), C(run_once=true)), once for all nodes.
    Each BMC gets one session, which is deleted at the end.
  - A BMC that does not answer in time, whose certificate is not the declared one, or that refuses
    the login is C(not_measured), and delays no other. So is what a BMC lacks, by name.
  - Certificates are always verified, proxies of the environment are not used, and redirections are
    not followed. With a factory password no login is tried.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.check
  - baremetal.dgx.check.timeout
  - baremetal.dgx.bmc
options:
  at_once:
    default: 256
  each_s:
    default: 120
  total_s:
    default: 900
  timeout_s:
    description: Seconds that one answer may take.
    default: 15
  output:
    description: Folder for C(records.json), and C(log.json) with what is new in the event logs.
      Nothing is written when not given.
    type: path
  log_folder:
    description: Folder that has for each node what the last look at its event log has seen. Without
      it event logs are not judged.
    type: path
  state:
    description:
      - V(asked) asks the BMCs.
      - V(settled) asks none, and makes O(look) the last one.
    type: str
    choices: [asked, settled]
    default: asked
  look:
    description: With O(state=settled), what RV(look) was.
    type: str
seealso:
  - module: baremetal.dgx.evidence_add
"""

EXAMPLES = r"""
- name: Judge the machines by their BMCs
  baremetal.dgx.bmc_info:
    bmcs: "{{ query('baremetal.dgx.bmc_access', groups['gpu_nodes'], plan=plan_folder) }}"
    output: "{{ cluster_state_dir }}/bmc"
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
look:
  description: The name of this look at the event logs, for O(state=settled).
  returned: with O(state=asked)
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.access import bmc_options
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.look import look, settled
from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported

ARGUMENT_SPEC: dict[str, Any] = {
    **check_options(timeout_s=15),
    # Twice as many threads take no less time, and four times the CPU seconds.
    **bmc_options(each_s=120, total_s=900, at_once=256),
    "output": {"type": "path"},
    "log_folder": {"type": "path"},
    "state": {"choices": ["asked", "settled"], "default": "asked"},
    "look": {"type": "str"},
}


def main() -> None:
    """Ask, judge, report."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
        required_if=[("state", "settled", ["log_folder", "look"])],
    )
    with reported(module):
        if module.params["state"] == "settled":
            module.exit_json(changed=bool(settled(module.params, not module.check_mode)))
        records, name = look(module.params, not module.check_mode)
    finish(module, records, all_records=False, look=name)


if __name__ == "__main__":
    main()
