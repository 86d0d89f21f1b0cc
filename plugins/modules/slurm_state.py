#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_state
short_description: See that a release of Slurm can take over the state that is there
description:
  - A controller whose system was upgraded or installed anew has the new packages and the old state.
    Its slurmctld would refuse the state, or, told to ignore that, purge the jobs. This module reads
    from the files of StateSaveLocation which release wrote them, and fails when the declared one
    does not take over from it.
  - It reads only, and needs no Slurm.
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
    details: Nothing is ever changed.
  idempotent:
    support: full
options:
  path:
    description: StateSaveLocation. Where there is none, there is nothing to take over.
    type: path
    required: true
  version:
    description: The release that is to run.
    type: str
    required: true
  files:
    description: Files that tell, of which the first that does counts.
    type: list
    elements: str
    default: [job_state, node_state, part_state, assoc_usage, resv_state]
seealso:
  - plugin: baremetal.dgx.slurm_upgrade_refusal
    plugin_type: filter
"""

EXAMPLES = r"""
- name: See that 24.11 can take over
  baremetal.dgx.slurm_state:
    path: /var/lib/slurm/slurmctld
    version: "24.11"
"""

RETURN = r"""
release:
  description: Release that wrote the state; empty where there is none, or where it does not say.
  returned: always
  type: str
  sample: "22.05"
file:
  description: The file that told.
  returned: always
  type: str
"""

import os
from typing import Any, Sequence

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_upgrade import (
    refusal,
    state_release,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "version": {"type": "str", "required": True},
    "files": {
        "type": "list",
        "elements": "str",
        "default": ["job_state", "node_state", "part_state", "assoc_usage", "resv_state"],
    },
}
_ENOUGH = 64


def read_release(folder: str, names: Sequence[str]) -> tuple[str, str]:
    """Return the release that wrote the state, and the file that says so; empty for none."""
    for name in names:
        path = os.path.join(folder, name)
        try:
            with open(path, "rb") as handle:
                release = state_release(handle.read(_ENOUGH))
        except (FileNotFoundError, NotADirectoryError):
            continue
        if release:
            return release, path
    return "", ""


def main() -> None:
    """Read, compare, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    try:
        release, path = read_release(params["path"], params["files"])
    except OSError as error:
        module.fail_json(msg=f"{params['path']} cannot be read: {error.strerror}")
    answer = {"changed": False, "release": release, "file": path}
    why = refusal(release, params["version"])
    if why:
        module.fail_json(msg=f"{path} is of Slurm {release}: {why}", **answer)
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
