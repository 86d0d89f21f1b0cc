#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: validation_records
short_description: Save what many nodes have answered to validate_nodes
description:
  - Takes the files that M(baremetal.dgx.validation_run) has made, and saves for each node its
    records, the serial numbers by slot and the evidence, as C(validate_nodes) does for one.
  - A part without an answer is not measured, by name of node and part.
  - Runs on the controller, as an action plugin.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: Nothing is written.
  diff_mode:
    support: none
    details: Records are new by nature.
  idempotent:
    support: none
    details: Each call adds evidence.
options:
  run:
    description: Name of the run, as M(baremetal.dgx.validation_program) returned it.
    type: str
    required: true
  files:
    description: The files on this machine.
    type: list
    elements: path
    required: true
  evidence_run:
    description: Name of the run in the store of evidence.
    type: str
    required: true
  level:
    description: The level of C(validate_nodes).
    type: str
    required: true
  simulated:
    description: What was not real, in words; empty where all was.
    type: str
    default: ""
  state_dir:
    description: The folder of the cluster's state.
    type: path
    required: true
  shown:
    description: For how many nodes the lines of what did not pass are shown.
    type: int
    default: 20
"""

EXAMPLES = r"""
- name: Save the records
  baremetal.dgx.validation_records:
    run: "{{ program.run }}"
    files: "{{ fetched }}"
    evidence_run: "{{ evidence.run }}"
    level: standard
    state_dir: "{{ inventory_dir }}/.dgx"
  run_once: true
"""

RETURN = r"""
nodes:
  description: By verdict, the nodes.
  returned: always
  type: dict
lines:
  description: A line for each node that did not pass, and for the first ones what it was.
  returned: always
  type: list
  elements: str
text:
  description: All in one line.
  returned: always
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

# The action plugin, which does the work, takes the same.
ARGUMENTS: dict[str, Any] = {
    "run": {"type": "str", "required": True},
    "files": {"type": "list", "elements": "path", "required": True},
    "evidence_run": {"type": "str", "required": True},
    "level": {"type": "str", "required": True},
    "simulated": {"type": "str", "default": ""},
    "state_dir": {"type": "path", "required": True},
    "shown": {"type": "int", "default": 20},
}


def main() -> None:
    """Say that the work is not done here: the action plugin of this name never comes this far."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    module.fail_json(msg="validation_records reads files of the controller, and runs there only")


if __name__ == "__main__":
    main()
