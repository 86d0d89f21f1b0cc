#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: service_probe
short_description: Read the world again and name what is dead
description:
  - Asks systemd for the state of units and daemons for an answer, and fails with every finding at
    once, one line each,
    with what to do about it. It never changes anything.
  - A probe that hangs, or whose tool is not installed, has measured nothing. It is reported as
    C(not_measured), apart from
    what has been found broken.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: In check mode findings are reported but do not fail the task, since earlier tasks have
      only pretended.
  diff_mode:
    support: none
    details: Nothing is ever changed.
  idempotent:
    support: full
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
  not_measured_ok:
    description: Whether probes that measured nothing leave the task green.
    type: bool
    default: false
seealso:
  - module: baremetal.dgx.service_sync
"""

EXAMPLES = r"""
- name: Prove that the controller schedules
  baremetal.dgx.service_probe:
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
  description: One record for each question.
  returned: always
  type: list
  elements: dict
  contains:
    check:
      description: The kind of question, V(unit_running), V(unit_enabled) or V(probe).
      type: str
    subject:
      description: The unit, or the probe's name.
      type: str
    status:
      description: V(pass), V(fail) or V(not_measured).
      type: str
    measured:
      description: C(value) and C(unit) of what was found.
      type: dict
    threshold:
      description: C(op), C(value), C(unit) and C(source) of what it was compared with.
      type: dict
    evidence:
      description: What the unit or the command said last.
      type: str
    remedy:
      description: What to do; empty for a pass.
      type: str
    at:
      description: When the question was put (UTC).
      type: str
    took_s:
      description: Seconds the answer took.
      type: float
findings:
  description: One line for each record that is not a pass.
  returned: always
  type: list
  elements: str
  sample: ["slurmd.service is failed (exit-code 1): fatal: Unable to determine this slurmd's
    NodeName; do: ..."]
"""

import re
import time
from typing import Any, Sequence

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.baremetal.dgx.plugins.module_utils._probe import (
    NOT_MEASURED,
    PASS,
    Probe,
    findings,
    is_up,
    judge_probe,
    judge_unit,
    record,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    CommandRunner,
    ModuleRunner,
    ToolError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._units import full_name
from ansible_collections.baremetal.dgx.plugins.module_utils._units_host import last_words, show

_POLL_S = 1.0

ARGUMENT_SPEC: dict[str, Any] = {
    "units": {"type": "list", "elements": "raw", "default": []},
    "probes": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "command": {"type": "list", "elements": "str", "required": True},
            "expect": {"type": "str", "default": ""},
            "reject": {"type": "str", "default": ""},
            "rc": {"type": "int", "default": 0},
            "timeout_s": {"type": "float", "default": 10},
            "remedy": {"type": "str", "default": ""},
        },
    },
    "wait_s": {"type": "float", "default": 0},
    "not_measured_ok": {"type": "bool", "default": False},
}


def parse_units(entries: Sequence[Any]) -> dict[str, bool]:
    """Unit name → whether it must be enabled; raises ToolError for anything else."""
    units: dict[str, bool] = {}
    for entry in entries:
        if isinstance(entry, str):
            units[full_name(entry)] = True
        elif isinstance(entry, dict) and set(entry) <= {"name", "enabled"} and "name" in entry:
            units[full_name(str(entry["name"]))] = boolean(entry.get("enabled", True))
        else:
            raise ToolError(f"units: {entry!r} is neither a name nor a dict of name and enabled")
    return units


def parse_probes(entries: Sequence[dict[str, Any]]) -> list[Probe]:
    """The probes; raises ToolError for a pattern that is none."""
    probes = []
    for entry in entries:
        for option in ("expect", "reject"):
            try:
                re.compile(entry[option])
            except re.error as error:
                raise ToolError(
                    f"probes: {entry['name']}: {option} is no regular expression: {error}"
                ) from error
        probes.append(Probe(**{**entry, "command": tuple(entry["command"])}))
    return probes


def measure(
    run: CommandRunner, units: dict[str, bool], probes: Sequence[Probe]
) -> list[dict[str, Any]]:
    """One record for each question."""
    records: list[dict[str, Any]] = []
    started = time.monotonic()
    try:
        states = show(run, list(units))
    except ToolError as error:
        # systemd itself does not answer: that says nothing about the units
        states = {}
        records += [
            record(
                "unit_running",
                name,
                NOT_MEASURED,
                "",
                {"value": "active (running)"},
                str(error),
                "",
                now(),
                time.monotonic() - started,
            )
            for name in units
        ]
    took = time.monotonic() - started
    for name, state in states.items():
        said = "" if is_up(state) else last_words(run, name)
        records += judge_unit(state, units[name], said, now(), took)
    for probe in probes:
        at = now()
        records.append(judge_probe(probe, run(probe.command, timeout_s=probe.timeout_s), at))
    return records


def now() -> str:
    """The present time in UTC, ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def main() -> None:
    """Measure, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    run = ModuleRunner(module)
    try:
        units, probes = parse_units(module.params["units"]), parse_probes(module.params["probes"])
        deadline = time.monotonic() + module.params["wait_s"]
        while True:
            records = measure(run, units, probes)
            all_pass = all(rec["status"] == PASS for rec in records)
            if all_pass or module.check_mode or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
    except ToolError as error:
        module.fail_json(msg=str(error), records=[], findings=[], **error.details)
    red = findings(records, module.params["not_measured_ok"])
    result: dict[str, Any] = {
        "changed": False,
        "records": records,
        "findings": findings(records, False),
    }
    if red and not module.check_mode:
        module.fail_json(msg="\n".join(red), **result)
    if red:
        result["msg"] = f"check mode: {len(red)} findings are reported and do not fail the task"
    module.exit_json(**result)


if __name__ == "__main__":
    main()
