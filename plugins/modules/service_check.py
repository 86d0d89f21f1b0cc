#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: service_check
short_description: Read the world again and name what is dead
description:
  - Asks systemd for the state of units and daemons for an answer, and fails with every finding at
    once, one line each,
    with what to do about it. It never changes anything.
  - A unit that systemd had to start again within the last minute fails, unless it stays up until
    the minute is over; the module waits for that.
  - For a unit that M(baremetal.dgx.service_sync) keeps, the files on disk are compared with what
    the unit was started with, so a daemon that runs with another configuration is a finding.
  - A probe that hangs, or whose tool is not installed, has measured nothing. It is reported as
    C(not_measured), apart from
    what has been found broken.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.check
attributes:
  check_mode:
    details: In check mode findings are reported but do not fail the task, since earlier tasks have
      only pretended.
options:
  units:
    description:
      - Units that must be up. Each is a name, or a dictionary of C(name) and C(enabled).
      - With C(enabled) (V(true) when not given) the unit must also be enabled.
    type: list
    elements: raw
    default: []
  probes:
    description: Commands whose answer tells whether a daemon does its work. They must not change
      anything.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: What a good answer means; the subject of the finding.
        type: str
        required: true
      command:
        description: The command, run without a shell.
        type: list
        elements: str
        required: true
      expect:
        description: Regular expression that must be found in the output.
        type: str
        default: ""
      reject:
        description: Regular expression that must not be found in the output. It counts before
          everything else.
        type: str
        default: ""
      rc:
        description: The return code of a good answer.
        type: int
        default: 0
      timeout_s:
        description: Seconds the command may take.
        type: float
        default: 10
      remedy:
        description: What to do when the answer is bad.
        type: str
        default: ""
  wait_s:
    description:
      - Seconds to ask again while something is bad, for daemons that were started a moment ago.
        V(0) asks once.
      - What hangs or is not installed is asked again as well.
    type: float
    default: 0
seealso:
  - module: baremetal.dgx.service_sync
"""

EXAMPLES = r"""
- name: Prove that the controller schedules
  baremetal.dgx.service_check:
    units: [munge.service, slurmctld.service]
    wait_s: 20
    probes:
      - name: controller answers
        command: [scontrol, ping]
        expect: is UP
        # scontrol ends with 0 as long as one of several controllers answers
        reject: is DOWN
        remedy: systemctl restart slurmctld
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

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
    result_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units.ask import (
    ask_again,
    parse_probes,
    parse_units,
)

PROBE: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "command": {"type": "list", "elements": "str", "required": True},
    "expect": {"type": "str", "default": ""},
    "reject": {"type": "str", "default": ""},
    "rc": {"type": "int", "default": 0},
    "timeout_s": {"type": "float", "default": 10},
    "remedy": {"type": "str", "default": ""},
}
ARGUMENT_SPEC: dict[str, Any] = {
    **check_options(),
    "units": {"type": "list", "elements": "raw", "default": []},
    "probes": {"type": "list", "elements": "dict", "default": [], "options": PROBE},
    "wait_s": {"type": "float", "default": 0},
}


def main() -> None:
    """Ask, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    wait_s = -1.0 if module.check_mode else params["wait_s"]
    with reported(module):
        units, probes = parse_units(params["units"]), parse_probes(params["probes"])
        if not units and not probes:  # of a host on which nothing is to run
            module.exit_json(**result_of([]))
        records = ask_again(ModuleRunner(module), units, probes, wait_s)
    finish(module, records)


if __name__ == "__main__":
    main()
