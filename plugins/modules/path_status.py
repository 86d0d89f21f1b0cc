#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: path_status
short_description: See what is at a path, which may be on a mount that does not answer
description:
  - Reports about each path whether something is there, whether it is a folder, and whether it is a
    mount point. Links are followed. Nothing is changed.
  - A child process asks. If a mount keeps it waiting, the module fails in time and names the mount,
    which M(ansible.builtin.stat) does not.
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
  idempotent:
    support: full
options:
  paths:
    description: Absolute paths.
    type: list
    elements: path
    required: true
  names:
    description: Pattern of file names, as of a shell, that are listed of each directory.
    type: str
    default: ""
  timeout_s:
    description: Seconds that all of them may take.
    type: float
    default: 20
"""

EXAMPLES = r"""
- name: Is the shared storage there?
  baremetal.dgx.path_status:
    paths: [/cephfs]
  register: found
"""

RETURN = r"""
paths:
  description: What is there, by path.
  returned: success
  type: dict
  sample: {"/cephfs": {"exists": true, "directory": true, "mount": true}}
names:
  description: What a directory has that O(names) means, sorted, by path.
  returned: success
  type: dict
  sample: {"/var/lib/grafana/dashboards": ["fabric.json"]}
hung:
  description: Whether it was given up.
  returned: on failure, when it was
  type: bool
"""

import fnmatch
import os
import stat
from typing import Any, Collection

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import finish_in_time
from ansible_collections.baremetal.dgx.plugins.module_utils._core.mounts import all_mounts

ARGUMENT_SPEC: dict[str, Any] = {
    "paths": {"type": "list", "elements": "path", "required": True},
    "names": {"type": "str", "default": ""},
    "timeout_s": {"type": "float", "default": 20},
}


def status_of(path: str, mounts: Collection[str]) -> dict[str, bool]:
    """Return what is at a path; OSError for what cannot be looked at."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return {"exists": False, "directory": False, "mount": False}
    is_mount = os.path.realpath(path) in mounts
    return {"exists": True, "directory": stat.S_ISDIR(found.st_mode), "mount": is_mount}


def names_in(folder: str, pattern: str) -> list[str]:
    """Return the names in a folder that a pattern means, none for no pattern; OSError."""
    return sorted(fnmatch.filter(os.listdir(folder), pattern)) if pattern else []


def main() -> None:
    """Look, and report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    paths = module.params["paths"]

    def body() -> None:
        mounts = all_mounts()
        found = {path: status_of(path, mounts) for path in paths}
        folders = [path for path, one in found.items() if one["directory"]]
        names = {path: names_in(path, module.params["names"]) for path in folders}
        module.exit_json(changed=False, paths=found, names=names)

    finish_in_time(module, ", ".join(paths), body, module.params["timeout_s"])


if __name__ == "__main__":
    main()
