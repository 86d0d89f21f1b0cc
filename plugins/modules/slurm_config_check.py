#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_config_check
short_description: Have slurmctld itself read a configuration before it replaces the one in use
description:
  - Slurm has no option to test a configuration, and before 23.11 a wrong one ends a running
    slurmctld at C(scontrol reconfigure).
  - This module first has C(scontrol) read C(slurm.conf). Then it starts the real slurmctld on a
    copy, in its own namespaces, where it can reach neither nodes nor database nor the state of
    the real one, and kills it as soon as it has taken everything. It never changes anything.
  - Found are, beyond what C(scontrol) finds, unknown nodes in partitions and node sets, duplicate
    nodes and partitions, unknown plug-ins, and mistakes in the topology. What only slurmd reads
    (C(gres.conf)) is not; M(baremetal.dgx.slurm_config) checks that.
  - Runs as root on a host with slurmctld, with munged running or C(slurm.key) in place.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: In check mode a host without slurmctld measures nothing, and the task stays green.
  diff_mode:
    support: none
    details: Nothing is ever changed.
  idempotent:
    support: full
options:
  files:
    description:
      - File name and text, as M(baremetal.dgx.slurm_config) returns them. C(slurm.conf) must be
        among them.
    type: dict
    required: true
  installed:
    description:
      - The directory where the files will lie. Files that are the same as there have been rehearsed
        before, and nothing is done.
      - Scripts and includes that are there and are not among O(files) take part in the rehearsal.
    type: path
    default: /etc/slurm
  names_resolve:
    description: Whether a name of a node or controller that does not resolve here is a mistake.
    type: bool
    default: true
  timeout_s:
    description: Seconds slurmctld may take to read everything.
    type: int
    default: 30
seealso:
  - module: baremetal.dgx.slurm_config
"""

EXAMPLES = r"""
- name: Have slurmctld read the new configuration
  baremetal.dgx.slurm_config_check:
    files: "{{ rendered.files }}"
"""

RETURN = r"""
rehearsed:
  description: Whether slurmctld has read the files.
  returned: always
  type: bool
reason:
  description: Why it has not; empty when it has.
  returned: always
  type: str
findings:
  description: What must be corrected, in Slurm's words.
  returned: always
  type: list
  elements: str
  sample: ["fatal: Invalid node names in partition batch"]
remarks:
  description: What else slurmctld logged that is not in every rehearsal.
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import look_in_time
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner, ToolError
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.conf import rehearsal

ARGUMENT_SPEC: dict[str, Any] = {
    "files": {"type": "dict", "required": True},
    "installed": {"type": "path", "default": "/etc/slurm"},
    "names_resolve": {"type": "bool", "default": True},
    "timeout_s": {"type": "int", "default": 30},
}


def main() -> None:
    """Compare, rehearse, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    files, installed = module.params["files"], module.params["installed"]
    answer: dict[str, Any] = {"changed": False, "rehearsed": False, "findings": [], "remarks": []}
    if "slurm.conf" not in files:
        module.fail_json(msg="files: slurm.conf is missing", reason="", **answer)
    look_in_time(module, [installed])
    if rehearsal.installed_already(files, installed):
        module.exit_json(reason=f"the files are those in {installed}", **answer)
    try:
        verdict = rehearsal.rehearse(
            ModuleRunner(module), files, installed, module.params["timeout_s"]
        )
    except (ToolError, KeyError, ValueError) as error:
        reason = str(error)
        if module.check_mode:
            module.exit_json(reason=f"not measured: {reason}", **answer)
        module.fail_json(msg=f"slurm.conf was not rehearsed: {reason}", reason=reason, **answer)
    names = rehearsal.host_names(files["slurm.conf"]) if module.params["names_resolve"] else ()
    missing = [] if module.check_mode else rehearsal.unresolved(names)
    findings = rehearsal.compact([*verdict.findings, *missing])
    answer.update(rehearsed=True, reason="", findings=findings, remarks=list(verdict.remarks))
    if findings:
        lines = "\n".join(findings)
        module.fail_json(msg=f"slurmctld would not take this configuration:\n{lines}", **answer)
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
