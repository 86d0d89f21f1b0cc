#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_saved_state
short_description: See that a release of Slurm can take over the state that is there
description:
  - A controller whose system was upgraded or reinstalled has the new packages and the old state.
    Its slurmctld would refuse the state, or, if it ignores that, purge the jobs. This module reads
    from the files of StateSaveLocation which release wrote them, and fails when the declared one
    does not take over from it.
  - It fails, too, where slurmctld, or its C(slurm.conf), has the jobs in another folder than
    O(path), or in a cluster of another name than O(cluster_name), and where a slurmctld that
    answers has them on another host than the first of O(controllers).
  - Of a state that another release wrote it keeps a copy before that is converted, if O(copies)
    names a folder.
  - It changes nothing of the state. A state on a mount that does not answer is
    given up after 60 seconds, a copy after O(copy_limit_s), and the mount is named.
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
    details: The state is never changed.
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
  cluster_name:
    description: The name of the cluster; without it the Slurm that is there is not asked.
    type: str
    default: ""
  controllers:
    description: Hosts that are to run slurmctld, the primary first; none are not compared.
    type: list
    elements: str
    default: []
  configuration:
    description: C(slurm.conf) of the Slurm that is there.
    type: path
    default: /etc/slurm/slurm.conf
  files:
    description: Files that tell, of which the first that does counts.
    type: list
    elements: str
    default: [job_state, node_state, part_state, assoc_usage, resv_state]
  copies:
    description:
      - Folder, made with mode 0700, for the copy C(slurmctld-RELEASE) of a state that another
        release than O(version) wrote. A copy that is there stays as it is.
    type: path
  copy_limit_s:
    description: Seconds that the copying may take.
    type: float
    default: 900
seealso:
  - plugin: baremetal.dgx.slurm_upgrade_refusal
    plugin_type: filter
"""

EXAMPLES = r"""
- name: See that 24.11 can take over
  baremetal.dgx.slurm_saved_state:
    path: /var/lib/slurm/slurmctld
    version: "24.11"

- name: Keep a copy of what an older release wrote
  baremetal.dgx.slurm_saved_state:
    path: /var/lib/slurm/slurmctld
    version: "24.11"
    copies: /var/backups/baremetal-dgx
"""

RETURN = r"""
release:
  description: Release that wrote the state; empty where there is none, or where it does not say.
  returned: always
  type: str
  sample: "22.05"
file:
  description: The file that shows it.
  returned: always
  type: str
copied_to:
  description: Folder of the copy.
  returned: when O(copies) is given and another release wrote the state
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import (
    LIMIT_S,
    finish_in_time,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.saved_state import bring_about

ARGUMENT_SPEC: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "version": {"type": "str", "required": True},
    "cluster_name": {"type": "str", "default": ""},
    "controllers": {"type": "list", "elements": "str", "default": []},
    "configuration": {"type": "path", "default": "/etc/slurm/slurm.conf"},
    "files": {
        "type": "list",
        "elements": "str",
        "default": ["job_state", "node_state", "part_state", "assoc_usage", "resv_state"],
    },
    "copies": {"type": "path"},
    "copy_limit_s": {"type": "float", "default": 900},
}


def main() -> None:
    """Work in a child, which a mount that does not answer may keep."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, run = module.params, ModuleRunner(module)
    limit_s = params["copy_limit_s"] if params["copies"] else LIMIT_S

    def work() -> None:
        module.exit_json(**bring_about(run, params, module.check_mode))

    finish_in_time(module, params["path"], work, limit_s)


if __name__ == "__main__":
    main()
