#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: run_lock
short_description: Let one run at a time do something to the cluster
description:
  - Keeps on one host of the cluster who does something to all of it, from the first task of a run
    to its last, whatever control machine it comes from.
  - A run that was killed comes back under the same name and goes on. Another one is refused, in one
    line that names who holds it and since when. A reboot of the host ends it.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: In check mode it refuses as ever, and keeps nothing.
  diff_mode:
    support: none
    details: A lock has no former text.
  idempotent:
    support: full
options:
  name:
    description: What is done.
    type: str
    required: true
  owner:
    description: Name of the run, from the lookup P(baremetal.dgx.run_owner#lookup).
    type: str
    required: true
  former:
    description: Names of runs that are over, whose lock this one takes over.
    type: list
    elements: str
    default: []
  state:
    description: V(held) before, V(released) after.
    type: str
    choices: [held, released]
    default: held
  folder:
    description: Where it is kept. Without it, C(/run/baremetal-dgx/runs), where root alone writes.
    type: path
seealso:
  - plugin: baremetal.dgx.run_owner
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Lock upgrades against other runs
  baremetal.dgx.run_lock:
    name: upgrade
    owner: "{{ owner }}"
"""

RETURN = r"""
held_by:
  description: The run that holds it now; empty if none does.
  returned: always
  type: str
since:
  description: Since when.
  returned: always
  type: str
"""

import os
import re
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import finish_in_time
from ansible_collections.baremetal.dgx.plugins.module_utils._core.lock import (
    host_lock,
    lock_folder,
    lock_run,
)

# More than the lock of the host may take.
_LIMIT_S = 60.0

ARGUMENT_SPEC: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "owner": {"type": "str", "required": True},
    "former": {"type": "list", "elements": "str", "default": []},
    "state": {"type": "str", "choices": ["held", "released"], "default": "held"},
    "folder": {"type": "path"},
}


def main() -> None:
    """Look and act under a lock of the host, in a child: the folder may be on a mount."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, name = module.params, module.params["name"]
    if not re.fullmatch(r"[a-z_]+", name):
        module.fail_json(msg=f"name: '{name}' does not fit; write lower-case letters and _")
    with reported(module):
        folder = params["folder"] or os.path.join(lock_folder(), "runs")
    path = os.path.join(folder, f"{name}.json")

    def work() -> None:
        with reported(module, None, ValueError), host_lock(f"run_lock-{name}", 30):
            result = lock_run(params, path, module.check_mode)
        module.exit_json(**result)

    finish_in_time(module, folder, work, _LIMIT_S)


if __name__ == "__main__":
    main()
