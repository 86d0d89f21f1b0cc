#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: system_packages
short_description: Keep packages installed, held and removed as declared
description:
  - Works with APT (Debian, Ubuntu) and with DNF (Enterprise Linux), without their Python bindings.
  - A node that has what is declared costs one query of the package database. Package lists are read
    again only when something is to be installed and they are old, or older than the sources.
  - Packages that a killed run left unpacked or half configured are finished first, and so are those
    of which a killed run of dnf left two versions. Scripts of packages that dnf did not come to are
    not known of, and are not run.
  - Nothing is removed that is not declared, nor before the sources have shown that they have what
    is to be installed. An install or a removal that would take other packages along is refused, and
    the error names them.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: Whether the sources have the packages is not asked.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  present:
    description: Packages that are installed; C(NAME), or C(NAME=VERSION) where the version may end
      in C(*).
    type: list
    elements: str
    default: []
  absent:
    description: Packages that are not installed. Their configuration files stay.
    type: list
    elements: str
    default: []
  held:
    description: Packages that upgrades leave alone (C(apt-mark hold), C(dnf versionlock)). One that
      is neither installed nor declared is passed over.
    type: list
    elements: str
    default: []
  unheld:
    description: Packages that are no longer held. Holds that are not named are left alone.
    type: list
    elements: str
    default: []
  holds_file:
    description: File with what earlier runs have put into O(held), a name on each line. What is
      in it and is in O(held) no more is released, even if others held it as well. Empty keeps no
      such record.
    type: str
    default: ""
  removals_allowed:
    description: Packages that an install may replace.
    type: list
    elements: str
    default: []
  recommends:
    description: Whether recommended (weak) dependencies are installed, too.
    type: bool
    default: false
  lists_max_age_s:
    description: Seconds after which the package lists count as old (APT).
    type: int
    default: 3600
  lock_timeout_s:
    description: Seconds to wait for another package manager to finish.
    type: int
    default: 300
  timeout_s:
    description: Seconds one run of the package manager may take.
    type: int
    default: 1800
"""

EXAMPLES = r"""
- name: Have chrony, keep the driver where it is, and do without automatic upgrades
  baremetal.dgx.system_packages:
    present: [chrony]
    held: [nvidia-driver-570-open]
    absent: [unattended-upgrades]
    removals_allowed: [systemd-timesyncd]
"""

RETURN = r"""
actions:
  description: What was done, or would be in check mode, in order.
  returned: always
  type: list
  elements: str
  sample: ["install chrony", "hold nvidia-driver-570-open"]
lists_updated:
  description: Whether the package lists were read again.
  returned: success
  type: bool
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner, ToolError
from ansible_collections.baremetal.dgx.plugins.module_utils._host.packages import managers
from ansible_collections.baremetal.dgx.plugins.module_utils._host.packages.plan import (
    apply,
    make_plan,
    parse_wanted,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "present": {"type": "list", "elements": "str", "default": []},
    "absent": {"type": "list", "elements": "str", "default": []},
    "held": {"type": "list", "elements": "str", "default": []},
    "unheld": {"type": "list", "elements": "str", "default": []},
    "holds_file": {"type": "str", "default": ""},
    "removals_allowed": {"type": "list", "elements": "str", "default": []},
    "recommends": {"type": "bool", "default": False},
    "lists_max_age_s": {"type": "int", "default": 3600},
    "lock_timeout_s": {"type": "int", "default": 300},
    "timeout_s": {"type": "int", "default": 1800},
}


def main() -> None:
    """Load, plan, apply, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, debian = module.params, module.get_bin_path("dpkg-query")
    manager = (managers.Apt if debian else managers.Dnf)(ModuleRunner(module), params)
    actions: list[str] = []
    with reported(module, {"actions": actions}):
        holds = managers.Holds(params["holds_file"], params["held"])
        lists = params["absent"], params["held"], [*params["unheld"], *holds.released]
        plan = make_plan(manager.load(), parse_wanted(params["present"]), *lists)
        if plan.errors:
            raise ToolError("; ".join(plan.errors), errors=list(plan.errors))
        interrupted = manager.interrupted()
        if interrupted and not plan.repair:
            actions.append("finish an interrupted run of dpkg")
        actions += [*plan.actions, *holds.actions]
        changed = bool(actions)
        if not module.check_mode:
            changed = apply(manager, plan, params["held"], interrupted)
            changed = holds.write() or changed
    result: dict[str, Any] = {
        "changed": changed,
        "actions": actions if changed else [],
        "lists_updated": manager.lists_updated,
    }
    if module._diff and result["actions"]:
        result["diff"] = {"prepared": "\n".join(actions) + "\n"}
    module.exit_json(**result)


if __name__ == "__main__":
    main()
