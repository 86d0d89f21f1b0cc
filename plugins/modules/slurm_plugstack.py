#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_plugstack
short_description: Try a line of plugstack.conf before it is used, or verify the one in use
description:
  - One unknown or missing plug-in in C(plugstack.conf) breaks every job of the cluster, in ways
    that srun's return code does not tell. This module loads the whole C(plugstack.conf) with
    C(srun --help) and reads what it prints.
  - With O(state=tried) that is done with a copy beside Slurm's own files, so that nothing on the
    host changes.
  - With O(state=verified) the C(plugstack.conf) that this host uses is read, too, and compared with
    the line that every host must have.
  - It starts no job. M(baremetal.dgx.container_check) does.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: Findings do not fail the task in check mode, since earlier tasks have only pretended.
  diff_mode:
    support: none
    details: Nothing is ever changed.
  idempotent:
    support: full
options:
  state:
    description:
      - V(tried) says whether O(lines) would work here.
      - V(verified) says whether O(line) is in use here and works.
      - V(absent) says whether the plug-in of O(line) is named here no longer.
    type: str
    choices: [tried, verified, absent]
    default: verified
  line:
    description: The line of the plug-in, as all hosts have it.
    type: str
    required: true
  lines:
    description: With O(state=tried), the other lines of C(plugstack.conf).
    type: list
    elements: str
    default: []
  option:
    description: An option of srun that the plug-in brings.
    type: str
    default: --container-image
  runs_jobs:
    description: Whether this host is a compute node; it tells what a fault does.
    type: bool
    default: false
  folders:
    description: Where Slurm's files may lie; the first one with a C(slurm.conf) is used.
    type: list
    elements: path
    default: [/etc/slurm, /run/slurm/conf]
  wait_s:
    description: Seconds to ask again while something is wrong, until a host has fetched the file.
    type: int
    default: 0
  fail:
    description: Whether findings fail the task.
    type: bool
    default: true
seealso:
  - module: baremetal.dgx.container_check
"""

EXAMPLES = r"""
- name: Try the line where it will be used
  baremetal.dgx.slurm_plugstack:
    state: tried
    line: required /usr/local/lib/slurm/spank_pyxis-5d41402abc4b.so runtime_path=/run/pyxis
"""

RETURN = r"""
folder:
  description: Where the files of Slurm lie that this host uses; empty when there are none.
  returned: always
  type: str
findings:
  description: One line for each thing that is wrong, which begins with the host's name.
  returned: always
  type: list
  elements: str
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import look_in_time
from ansible_collections.baremetal.dgx.plugins.module_utils._core.names import short_name
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.containers import plugstack

ARGUMENT_SPEC: dict[str, Any] = {
    "state": {"choices": ["tried", "verified", "absent"], "default": "verified"},
    "line": {"type": "str", "required": True},
    "lines": {"type": "list", "elements": "str", "default": []},
    "option": {"type": "str", "default": "--container-image"},
    "runs_jobs": {"type": "bool", "default": False},
    "folders": {"type": "list", "elements": "path", "default": ["/etc/slurm", "/run/slurm/conf"]},
    "wait_s": {"type": "int", "default": 0},
    "fail": {"type": "bool", "default": True},
}


def main() -> None:
    """Load, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = {**module.params, "wait_s": 0 if module.check_mode else module.params["wait_s"]}
    host = short_name()
    if not plugstack.parse_stack(params["line"]):
        module.fail_json(msg=f"line: `{params['line']}` is not a line of plugstack.conf")
    look_in_time(
        module,
        [*params["folders"], os.path.dirname(plugstack.parse_stack(params["line"])[0].path)],
    )
    folder, findings = plugstack.ask_again(ModuleRunner(module), params)
    lines = [f"{host}: {line}" for line in findings]
    answer = {"changed": False, "folder": folder, "findings": lines}
    if lines and params["fail"] and not module.check_mode:
        module.fail_json(msg="\n".join(lines), **answer)
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
