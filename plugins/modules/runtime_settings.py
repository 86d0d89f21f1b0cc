#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: runtime_settings
short_description: Make the running kernel and systemd have the values that are declared
description:
  - Compares host name, kernel parameters, sysfs values and defaults of systemd, as they are right
    now, with what is declared, and changes what differs, in one call.
  - It writes no configuration file. Files say what holds after a boot, and
    M(baremetal.dgx.managed_files) writes them. This module reads the world, so it also finds what
    was changed by hand and what another file overrode.
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
  hostname:
    description: Name the kernel has. Left alone when not given.
    type: str
    default: ""
  sysctl:
    description: Kernel parameters and their values.
    type: dict
    default: {}
  sysctl_required:
    description: Whether a parameter that this kernel does not have, or does not let change, is an
      error. If not, it is reported in RV(not_applicable).
    type: bool
    default: true
  sysfs:
    description: Values of files below C(/sys). What is not there is reported in RV(not_applicable).
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Path or pattern.
        type: str
        required: true
      value:
        description: The value, or the choice of a list like C(always [madvise] never).
        type: str
        required: true
      name:
        description: What the value is, for messages.
        type: str
        required: true
  manager:
    description: Settings of systemd as in systemd-system.conf(5). Systemd reads its configuration
      again when they differ.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Have the values now that the files set at boot
  baremetal.dgx.runtime_settings:
    hostname: dgx-01
    sysctl:
      vm.zone_reclaim_mode: 0
    sysfs:
      - name: transparent huge pages
        path: /sys/kernel/mm/transparent_hugepage/enabled
        value: madvise
    manager:
      DefaultLimitMEMLOCK: infinity
"""

RETURN = r"""
changes:
  description: What was changed, or would be in check mode.
  returned: success
  type: list
  elements: dict
  contains:
    subject:
      description: The key, path or name.
      type: str
    before:
      description: The value that was found.
      type: str
    after:
      description: The value that is declared.
      type: str
not_applicable:
  description: What this node cannot have, and why. It was neither measured nor changed.
  returned: success
  type: list
  elements: dict
  contains:
    subject:
      description: What it is about.
      type: str
    reason:
      description: Why it does not apply.
      type: str
can_set_clock:
  description: Whether programs on this node may set the clock. They may not in most containers.
  returned: success
  type: bool
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._host.runtime import (
    apply,
    can_set_clock,
    differing,
    one_line,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "hostname": {"type": "str", "default": ""},
    "sysctl": {"type": "dict", "default": {}},
    "sysctl_required": {"type": "bool", "default": True},
    "sysfs": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "str", "required": True},
            "value": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
        },
    },
    "manager": {"type": "dict", "default": {}},
}


def main() -> None:
    """Load, plan, apply, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, run = module.params, ModuleRunner(module)
    with reported(module):
        changes, absent = differing(run, params)
        if not module.check_mode:
            changes, refused = apply(run, params, changes)
            absent += refused
    rows = [(change.subject, change.before, change.after) for change in changes]
    result: dict[str, Any] = {
        "changed": bool(changes),
        "changes": [dict(zip(("subject", "before", "after"), row)) for row in rows],
        "not_applicable": [{"subject": entry.subject, "reason": entry.reason} for entry in absent],
        "can_set_clock": can_set_clock(),
    }
    if changes:
        result["msg"] = one_line(changes)
    if module._diff and changes:
        result["diff"] = {
            "before": "".join(f"{subject} = {before}\n" for subject, before, _after in rows),
            "after": "".join(f"{subject} = {after}\n" for subject, _before, after in rows),
        }
    module.exit_json(**result)


if __name__ == "__main__":
    main()
