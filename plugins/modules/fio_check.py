#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fio_check
short_description: Measure the scratch disks of a node with fio, and verify what they keep
description:
  - Writes a file with checksums and reads it back, then measures sequential and random reads and
    writes, with direct I/O, in its own hidden folder in O(folder).
  - It takes at most a quarter of what is free, leaves a tenth of the file system free, and does not
    start on the root file system, on a shared one, or in memory.
  - Nothing is left behind. What it writes is removed when it ends and when it is killed; what a
    power cut has left is removed by the next run.
  - A missing fio, a hang, a full disk and a truncated answer are C(not_measured). A wrong
    block or an I/O error is a failure.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.check
  - baremetal.dgx.check.node
  - baremetal.dgx.check.thresholds
attributes:
  check_mode:
    details: In check mode the commands that would run are returned. Nothing is written.
options:
  folder:
    description:
      - A folder on the disks to measure.
      - It belongs to root, and is sticky if other users may write into it; else nothing is written
        and the outcome is C(not_measured), since another user could exchange what root makes there.
    type: path
    required: true
  size_mib:
    description: Size of the file at most. More than the disks' own cache says more.
    type: int
    default: 8192
  seconds:
    description: Seconds of each of the four measurements.
    type: float
    default: 10
  jobs:
    description: How many jobs read and write at random at the same time.
    type: int
    default: 4
  thresholds:
    description:
      - C(read_mb_s), C(write_mb_s), C(read_iops) and C(write_iops) that must be reached, as C(nvme)
        of the profile has them. Where one is missing, a floor is used that only a broken array
        misses.
  threshold_source:
    description: Where O(thresholds) come from; it is kept in the records.
    type: str
    default: profile of the node
  engine:
    description: How fio does I/O.
    type: str
    default: libaio
  extra_arguments:
    description: More arguments for fio.
    type: list
    elements: str
    default: []
  root_ok:
    description: Whether O(folder) may be on the root file system.
    type: bool
    default: false
  shared_ok:
    description: Whether it may be on a file system that other machines use, too.
    type: bool
    default: false
  tool:
    description: Name or path of fio.
    type: str
    default: fio
seealso:
  - module: baremetal.dgx.cpu_memory_check
"""

EXAMPLES = r"""
- name: Measure scratch
  baremetal.dgx.fio_check:
    folder: /raid
    thresholds: {read_mb_s: 20000, write_mb_s: 8000}
    threshold_source: slowest of twelve nodes that are well, less a tenth
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
commands:
  description: What was run, or would be in check mode.
  returned: always
  type: list
  elements: list
removed:
  description: Folders of earlier runs that were killed by force.
  returned: always
  type: list
  elements: str
"""

import signal
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
    node_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.ask_fio import ask_fio

ARGUMENT_SPEC: dict[str, Any] = {
    **check_options("node", "thresholds"),
    "folder": {"type": "path", "required": True},
    "size_mib": {"type": "int", "default": 8192},
    "seconds": {"type": "float", "default": 10},
    "jobs": {"type": "int", "default": 4},
    "threshold_source": {"type": "str", "default": "profile of the node"},
    "engine": {"type": "str", "default": "libaio"},
    "extra_arguments": {"type": "list", "elements": "str", "default": []},
    "root_ok": {"type": "bool", "default": False},
    "shared_ok": {"type": "bool", "default": False},
    "tool": {"type": "str", "default": "fio"},
}


def main() -> None:
    """Look where it is, write, measure, judge, clean up, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    # Else Python ends at once, and leaves the cleaning up to the shell.
    signal.signal(signal.SIGTERM, lambda *_which: module.fail_json(msg="was interrupted (TERM)"))
    if params["seconds"] < 1 or params["size_mib"] < 1 or params["jobs"] < 1:
        module.fail_json(msg="seconds, size_mib and jobs must be 1 or more")
    result: dict[str, Any] = {"commands": [], "removed": []}
    records = ask_fio(
        ModuleRunner(module),
        node_of(module),
        params,
        module.get_bin_path,
        result,
        module.check_mode,
    )
    finish(module, records, **result)


if __name__ == "__main__":
    main()
