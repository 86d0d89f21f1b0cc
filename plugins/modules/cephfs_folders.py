#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cephfs_folders
short_description: Keep folders of a CephFS with their owners, quotas and layouts
description:
  - Makes folders and sets owner, mode, quotas and layouts, each only where it differs. Nothing is
    ever removed, and what is not declared is left alone.
  - Goes through libcephfs, so that the file system need not be mounted. A client that is confined
    to a folder can only mount what is there already, which is why this comes first.
  - A layout holds for files that are made later, and cannot be set on a folder that has files.
  - All of it happens in a child process with a time limit.
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
requirements:
  - python3-cephfs, which comes with ceph-common
options:
  fs:
    description: The file system.
    type: str
    required: true
  folders:
    description: The folders, parents first.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Path from the root of the file system.
        type: str
        required: true
      owner:
        description: Name or number of the user. Kept when not given.
        type: str
      group:
        description: Name or number of the group. Kept when not given.
        type: str
      mode:
        description: Quoted octal string such as V("0755"). Kept when not given.
        type: str
      max_bytes:
        description: Bytes that may be below it; V(0) means no limit. Kept when not given.
        type: int
      max_files:
        description: Files and folders that may be below it; V(0) means no limit. Kept when not
          given.
        type: int
      layout:
        description: C(pool), C(object_size), C(stripe_unit) and C(stripe_count) of new files.
        type: dict
  client:
    description: Name of the client that may do this; it needs C(p) for quotas and layouts.
    type: str
    default: admin
  timeout_s:
    description: Seconds all of it may take.
    type: float
    default: 60
"""

EXAMPLES = r"""
- name: Make the folders that the nodes mount
  baremetal.dgx.cephfs_folders:
    fs: cephfs
    folders:
      - {path: /home, mode: "0755"}
      - {path: /scratch, mode: "1777", max_bytes: 1099511627776}
"""

RETURN = r"""
steps:
  description: What was done, one line a folder.
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.child import DONE, limited
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.cephfs_folders import (
    bring_about,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "fs": {"type": "str", "required": True},
    "folders": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "path": {"type": "str", "required": True},
            "owner": {"type": "str"},
            "group": {"type": "str"},
            "mode": {"type": "str"},
            "max_bytes": {"type": "int"},
            "max_files": {"type": "int"},
            "layout": {"type": "dict"},
        },
    },
    "client": {"type": "str", "default": "admin"},
    "timeout_s": {"type": "float", "default": 60},
}


def main() -> None:
    """Do all of it in a child, and report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    arguments = (params["client"], params["fs"], params["folders"], module.check_mode)
    outcome = limited(lambda: bring_about(*arguments), params["timeout_s"])
    if outcome.how != DONE:
        module.fail_json(
            msg=f"folders of {params['fs']}: {outcome.message}; does the cluster answer? (ceph -s)"
        )
    steps = outcome.value.get("steps", [])
    if "wrong" in outcome.value:
        module.fail_json(msg=outcome.value["wrong"], steps=steps, changed=bool(steps))
    after = "".join(f"{line}\n" for line in steps)
    module.exit_json(changed=bool(steps), steps=steps, diff={"before": "", "after": after})


if __name__ == "__main__":
    main()
