#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: mlxconfig
short_description: Compare and set the firmware settings of adapters
description:
  - Compares what is stored for the next start of each adapter's firmware with what is declared, and
    sets what differs where O(set_allowed) gives consent.
  - A setting takes effect when the firmware is reset (C(mlxfwreset)) or the node is powered off and
    on. The module never does that; RV(reset_pending) says what waits for it.
  - Asks C(mlxconfig) of NVIDIA's MFT, or C(mstconfig) of the package mstflint.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  devices:
    description: PCI addresses of the adapters.
    type: list
    elements: str
    required: true
  settings:
    description:
      - Settings and their values, as numbers, names or both (V(1), V(IB), V(IB(1\))).
      - A setting that one of the adapters does not have is an error, and nothing is set.
    type: dict
    default: {}
  set_allowed:
    description: Consent to change what is stored in the adapters.
    type: bool
    default: false
  timeout_s:
    description: Seconds one run of the tool may take.
    type: float
    default: 60
seealso:
  - module: baremetal.dgx.ib_info
"""

EXAMPLES = r"""
- name: Have both ports run InfiniBand after the next reset
  baremetal.dgx.mlxconfig:
    devices: ["0000:18:00.0", "0000:40:00.0"]
    settings:
      LINK_TYPE_P1: IB
      SRIOV_EN: false
    set_allowed: true
"""

RETURN = r"""
differences:
  description: What is stored otherwise than declared, before this run.
  returned: success
  type: list
  elements: dict
  contains:
    device:
      description: PCI address.
      type: str
    setting:
      description: Name of the setting.
      type: str
    before:
      description: The stored value.
      type: str
    after:
      description: The declared value.
      type: str
allowed:
  description: Whether the differences were set, or would be in check mode.
  returned: success
  type: bool
reset_pending:
  description: What is stored, but not yet what the firmware runs with.
  returned: success
  type: list
  elements: dict
  contains:
    device:
      description: PCI address.
      type: str
    setting:
      description: Name of the setting.
      type: str
    before:
      description: The running value.
      type: str
    after:
      description: The stored value.
      type: str
reset_unknown:
  description: Adapters whose tool does not tell what the firmware runs with.
  returned: success
  type: list
  elements: str
deferred:
  description: Settings, as C(DEVICE NAME), that an adapter shows only after a reset.
  returned: success
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner, ToolError
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.mlxconfig import (
    bring_about,
    diff_of,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "devices": {"type": "list", "elements": "str", "required": True},
    "settings": {"type": "dict", "default": {}},
    "set_allowed": {"type": "bool", "default": False},
    "timeout_s": {"type": "float", "default": 60},
}


def main() -> None:
    """Load, plan, apply, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    with reported(module):
        try:
            result = bring_about(ModuleRunner(module), module.params, module.check_mode)
        except ToolError as error:
            # An earlier task has only pretended to install it.
            if not (module.check_mode and error.details.get("absent")):
                raise
            module.exit_json(changed=False, msg=f"nothing is compared in check mode: {error}")
    if module._diff and result["changed"]:
        result["diff"] = diff_of(result["differences"])
    module.exit_json(**result)


if __name__ == "__main__":
    main()
