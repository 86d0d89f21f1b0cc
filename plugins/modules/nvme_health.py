#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvme_health
short_description: Judge wear and errors of a node's NVMe disks
description:
  - Asks C(smartctl) about each disk, and gives a record of its critical warning, wear, spare and
    media errors. How many disks there must be is asked as well, if O(count) is given.
  - A disk that cannot be read, and a tool that is missing, gives C(not_measured).
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.check
  - baremetal.dgx.check.node
  - baremetal.dgx.check.timeout
options:
  count:
    description: How many NVMe disks there must be at least; V(0) does not ask.
    type: int
    default: 0
  wear_percent:
    description: Percent of its life that a disk may have used.
    type: int
    default: 90
  media_errors:
    description: Media errors that a disk may have had.
    type: int
    default: 0
  timeout_s:
    description: Seconds one disk may take.
    default: 30
  sysfs:
    description: The tree in which disks are looked for.
    type: path
    default: /sys
"""

EXAMPLES = r"""
- name: Judge the disks of a DGX H100
  baremetal.dgx.nvme_health:
    count: 10
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
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
    node_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    NOT_MEASURED,
    lines_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.nvme import ask_disks

ARGUMENT_SPEC: dict[str, Any] = {
    **check_options("node", timeout_s=30),
    "count": {"type": "int", "default": 0},
    "wear_percent": {"type": "int", "default": 90},
    "media_errors": {"type": "int", "default": 0},
    "sysfs": {"type": "path", "default": "/sys"},
}


def main() -> None:
    """Ask each disk, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, run = module.params, ModuleRunner(module)
    asked = ask_disks(
        run,
        node_of(module),
        params["sysfs"],
        params["count"],
        params["timeout_s"],
        wear_percent=params["wear_percent"],
        media_errors=params["media_errors"],
    )
    records = list(asked)
    for line in lines_of(records, NOT_MEASURED):
        module.warn(line)
    finish(module, records)


if __name__ == "__main__":
    main()
