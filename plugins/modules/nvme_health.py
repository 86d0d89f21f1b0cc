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
    media errors. How many disks there must be is asked as well, where O(count) says so.
  - A disk that cannot be read, and a tool that is missing, gives C(not_measured).
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: Nothing is changed.
  idempotent:
    support: full
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
  node:
    description: Name of the node in the records; its host name when not given.
    type: str
    default: ""
  timeout_s:
    description: Seconds one disk may take.
    type: float
    default: 30
  sysfs:
    description: The tree in which disks are looked for.
    type: path
    default: /sys
  fail:
    description: Whether the task fails when a record does.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Judge the disks of a DGX H100
  baremetal.dgx.nvme_health:
    count: 10
"""

RETURN = r"""
records:
  description: One record for each question; see docs/records.md.
  returned: always
  type: list
  elements: dict
verdict:
  description: The records folded into one; V(pass), V(fail) or V(not_measured).
  returned: always
  type: str
findings:
  description: One line for each record that failed.
  returned: always
  type: list
  elements: str
not_measured:
  description: One line for each record that measured nothing.
  returned: always
  type: list
  elements: str
"""

import os
import re
import socket
import time
from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._canary import lines
from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    FAIL,
    NOT_MEASURED,
    Record,
    Tally,
    Threshold,
    judge,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._smart import Marks, judge_disk

ARGUMENT_SPEC: dict[str, Any] = {
    "count": {"type": "int", "default": 0},
    "wear_percent": {"type": "int", "default": 90},
    "media_errors": {"type": "int", "default": 0},
    "node": {"type": "str", "default": ""},
    "timeout_s": {"type": "float", "default": 30},
    "sysfs": {"type": "path", "default": "/sys"},
    "fail": {"type": "bool", "default": True},
}


def controllers(sysfs: str) -> list[str]:
    """Return the controllers of NVMe disks, in the order of their numbers."""
    folder = os.path.join(sysfs, "class", "nvme")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    # Disks of the network (nvme over fabrics) have a controller, too, and are not this node's.
    local = []
    for name in names:
        try:
            with open(os.path.join(folder, name, "transport"), encoding="ascii") as handle:
                transport = handle.read().strip()
        except OSError:
            transport = "pcie"
        if re.fullmatch(r"nvme\d+", name) and transport == "pcie":
            local.append(name)
    return sorted(local, key=lambda name: int(name[4:]))


def main() -> None:
    """Ask each disk, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    node = params["node"] or socket.gethostname().split(".")[0]
    run = ModuleRunner(module)
    marks = Marks(params["wear_percent"], params["media_errors"])
    names = controllers(params["sysfs"])
    records: list[Record] = []
    if params["count"]:
        records.append(judge(
            "nvme.present", f"node:{node}", len(names),
            Threshold(">=", params["count"], "disks", "profile of the node"), ", ".join(names),
            "look: a disk is not seen; nvme list, dmesg, then reseat it",
        ))  # fmt: skip
    for name in names:
        begun = time.monotonic()
        asked = run(["smartctl", "--json", "--all", f"/dev/{name}"], timeout_s=params["timeout_s"])
        took = round(time.monotonic() - begun, 3)
        records += [
            replace(record, took_s=took)
            for record in judge_disk(node, f"/dev/{name}", asked, marks)
        ]
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    records = [replace(record, at=at) for record in records]
    result: dict[str, Any] = {
        "changed": False,
        "records": [record.as_data() for record in records],
        "verdict": Tally.of(records).verdict,
        "findings": lines(records, FAIL),
        "not_measured": lines(records, NOT_MEASURED),
    }
    for line in result["not_measured"]:
        module.warn(line)
    if result["findings"] and params["fail"] and not module.check_mode:
        module.fail_json(msg="\n".join(result["findings"]), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
