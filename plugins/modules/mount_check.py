#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: mount_check
short_description: Write to mounts, read it back, and see what other nodes wrote
description:
  - On each mount a small file is written, synced and read back, all within a time limit; then what
    the peers have written in the same run is looked for. Each answer is a record.
  - A mount that is missing, full, over its quota, refused, read only, or that gives back something
    else, fails. One that hangs has measured nothing, since its servers may only be restarting; the
    module comes back in time all the same.
  - The file is C(.baremetal-dgx-canary/NODE) on the mount, which is never removed.
  - Call it twice when there are peers, with O(stage=write) first on all nodes, then with
    O(stage=peers). What is missing after that is a finding.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.check
  - baremetal.dgx.check.node
attributes:
  check_mode:
    details: Nothing is written; only the table of mounts is judged.
options:
  mounts:
    description: What is asked.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: What it is called.
        type: str
        required: true
      path:
        description: The mount point.
        type: path
        required: true
      what:
        description: What must be mounted there, as mount(8) takes it; anything when empty, and of a
          type that does not show it, such as that of ceph-fuse.
        type: str
        default: ""
      fstype:
        description: Type that it must have, or one of several with commas; any when empty.
        type: str
        default: ""
      write:
        description: Whether to write. With V(false) the folder is only read.
        type: bool
        default: true
      peers:
        description: Nodes that have written to it in this run.
        type: list
        elements: str
        default: []
      most_s:
        description: Seconds that writing and syncing may take.
        type: float
        default: 10
      limit_s:
        description: Seconds after which it counts as hung.
        type: float
        default: 30
  stage:
    description: What is done; V(write) writes and reads back, V(peers) looks for what others wrote.
    type: str
    choices: [write, peers]
    default: write
  run:
    description: Word that is the same on all nodes and another in each run. Required with
      O(stage=peers).
    type: str
    default: alone
"""

EXAMPLES = r"""
- name: See that home takes a file
  baremetal.dgx.mount_check:
    mounts:
      - {name: home, path: /home}
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

import re
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
    node_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.ask_mounts import ask_mounts

MOUNT: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "path": {"type": "path", "required": True},
    "what": {"type": "str", "default": ""},
    "fstype": {"type": "str", "default": ""},
    "write": {"type": "bool", "default": True},
    "peers": {"type": "list", "elements": "str", "default": []},
    "most_s": {"type": "float", "default": 10},
    "limit_s": {"type": "float", "default": 30},
}
ARGUMENT_SPEC: dict[str, Any] = {
    **check_options("node"),
    "mounts": {"type": "list", "elements": "dict", "required": True, "options": MOUNT},
    "stage": {"type": "str", "choices": ["write", "peers"], "default": "write"},
    "run": {"type": "str", "default": "alone"},
}


def main() -> None:
    """Ask each mount, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    if not re.fullmatch(r"[\w.:+-]+", params["run"]):
        module.fail_json(msg=f"run {params['run']!r}: write one word of letters, digits and .:+-_")
    records = ask_mounts(
        params["mounts"], node_of(module), params["stage"], params["run"], module.check_mode
    )
    finish(module, records)


if __name__ == "__main__":
    main()
