#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dcgm_diag
short_description: Run NVIDIA's diagnostics on the GPUs of this node, and judge every one of them
description:
  - Runs C(dcgmi diag) with a time limit and judges each test of each GPU, for DCGM 3 and 4.
  - A failure that is only of settings (persistence mode off) is a finding about the node with the
    check C(dcgm.settings), and condemns no GPU.
  - A test that was skipped or has no result, a hang, a host engine that does not answer, an answer
    that is cut short, and text that nobody expected are C(not_measured), with what to do next.
  - From level 2 on the diagnostics load the GPUs. They are not started while a process holds a GPU,
    or where that cannot be told.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: In check mode the command that would run is returned. Nothing is run.
  diff_mode:
    support: none
    details: Nothing is ever changed.
  idempotent:
    support: full
options:
  node:
    description: Name of the node in the records.
    type: str
    required: true
  level:
    description:
      - V(1) looks at software and takes seconds, V(2) about two minutes, V(3) about 15 minutes,
        V(4) one to two hours for eight GPUs.
    type: int
    choices: [1, 2, 3, 4]
    default: 1
  expected_gpus:
    description: How many GPUs the node has, by its profile. By default as many as DCGM finds.
    type: int
  gpus:
    description: Numbers of the GPUs to test, as DCGM counts. By default all.
    type: list
    elements: int
    default: []
  parameters:
    description: Parameters of tests, for example C(diagnostic.test_duration) and C(300).
    type: dict
    default: {}
  extra_arguments:
    description: More arguments for C(dcgmi diag).
    type: list
    elements: str
    default: []
  host_engine:
    description:
      - Address of the host engine, C(HOST:PORT) or C(unix:PATH). By default that of this node.
    type: str
    default: ""
  time_limit_s:
    description:
      - Seconds until the diagnostics are ended. By default V(120), V(1800), V(3600) and V(10800)
        for the levels 1 to 4.
    type: float
  skips_ok:
    description:
      - Tests that may be skipped, by DCGM's names, for example C(eud) where its package is not
        installed. Their skipping gives no record; RV(left_out) names them.
    type: list
    elements: str
    default: []
  busy_ok:
    description: Whether to run although processes hold GPUs, or it is not known whether.
    type: bool
    default: false
  nvml_library:
    description: Path of NVML, by which processes are found. By default the loader finds it.
    type: str
    default: ""
  pci:
    description: PCI addresses of the GPUs by the profile; records number them in this order.
    type: list
    elements: str
    default: []
  tool:
    description: Name or path of C(dcgmi).
    type: str
    default: dcgmi
  findings_ok:
    description: Whether findings leave the task green.
    type: bool
    default: false
  not_measured_ok:
    description: Whether the task stays green where something was not measured.
    type: bool
    default: false
seealso:
  - module: baremetal.dgx.nccl_all_reduce
"""

EXAMPLES = r"""
- name: Is the software of this node as DCGM wants it?
  baremetal.dgx.dcgm_diag:
    node: "{{ inventory_hostname }}"

- name: The long diagnostics of a drained node
  baremetal.dgx.dcgm_diag:
    node: "{{ inventory_hostname }}"
    level: 3
    expected_gpus: 8
    skips_ok: [eud, cpu_eud]
    parameters:
      diagnostic.test_duration: 300
"""

RETURN = r"""
verdict:
  description: V(pass), V(fail) or V(not_measured); not_measured in check mode.
  returned: always
  type: str
counts:
  description: How many records there are of each status.
  returned: always
  type: dict
records:
  description: All records, one for each GPU and test.
  returned: always
  type: list
  elements: dict
findings:
  description: A line for each record that is no pass.
  returned: always
  type: list
  elements: str
gpus_failed:
  description: Subjects of the GPUs with a failure that is not one of settings.
  returned: always
  type: list
  elements: str
command:
  description: What was run, or would be in check mode.
  returned: always
  type: list
  elements: str
dcgm_version:
  description: Release of DCGM, as the answer states it.
  returned: always
  type: str
left_out:
  description: Records that O(skips_ok) left out, as C(CHECK SUBJECT).
  returned: always
  type: list
  elements: str
took_s:
  description: Seconds that it ran.
  returned: always
  type: float
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._dcgm_diag import (
    TIME_LIMITS,
    Report,
    command,
    judge,
    judge_run,
    parse,
    worst,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_free import (
    Gpus,
    busy_record,
    evidence_of,
    look,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_tool_report import (
    add_result,
    end,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    FAIL,
    NOT_MEASURED,
    Record,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import ENDED, ModuleRunner

ARGUMENT_SPEC: dict[str, Any] = {
    "node": {"type": "str", "required": True},
    "level": {"type": "int", "choices": [1, 2, 3, 4], "default": 1},
    "expected_gpus": {"type": "int"},
    "gpus": {"type": "list", "elements": "int", "default": []},
    "parameters": {"type": "dict", "default": {}},
    "extra_arguments": {"type": "list", "elements": "str", "default": []},
    "host_engine": {"type": "str", "default": ""},
    "time_limit_s": {"type": "float"},
    "skips_ok": {"type": "list", "elements": "str", "default": []},
    "busy_ok": {"type": "bool", "default": False},
    "nvml_library": {"type": "str", "default": ""},
    "pci": {"type": "list", "elements": "str", "default": []},
    "tool": {"type": "str", "default": "dcgmi"},
    "findings_ok": {"type": "bool", "default": False},
    "not_measured_ok": {"type": "bool", "default": False},
}


def measure(
    params: dict[str, Any], run: ModuleRunner, argv: list[str], gpus: Gpus
) -> tuple[list[Record], Report]:
    """Run the diagnostics and judge what they say."""
    level, node = params["level"], params["node"]
    result = run(argv, params["time_limit_s"] or TIME_LIMITS[level])
    if result.outcome != ENDED:
        return judge_run(result, None, node), Report()
    report = parse(result.out)
    about_run = judge_run(result, report, node)
    # An answer that is not there needs no second record that says so.
    if about_run and not report.version:
        return about_run, report
    known = gpus.names(dict(report.serials), [*report.gpus, *params["gpus"]])
    names = {
        number: (f"gpu:{node}/{place}", evidence_of(gpu)) for number, (place, gpu) in known.items()
    }
    records = judge(report, node, level, names, params["expected_gpus"], params["gpus"])
    return worst([*records, *about_run]), report


def main() -> None:
    """Look whether the GPUs are free, run, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, node = module.params, module.params["node"]
    argv = command(
        params["tool"],
        params["level"],
        params["parameters"],
        params["host_engine"],
        params["gpus"],
        params["extra_arguments"],
    )
    result: dict[str, Any] = {"changed": False, "command": argv, "dcgm_version": "", "took_s": 0.0}
    if module.check_mode:
        module.exit_json(
            **result, verdict=NOT_MEASURED, counts={}, records=[], findings=[], gpus_failed=[],
            left_out=[],
        )  # fmt: skip
    gpus = look(params["nvml_library"], params["pci"])
    # Level 1 looks at software only; NVIDIA made it for prologs of jobs.
    busy = busy_record("dcgm.idle", node, gpus) if params["level"] > 1 else None
    report = Report()
    if busy is not None and not params["busy_ok"]:
        records = [busy]
    else:
        records, report = measure(params, ModuleRunner(module), argv, gpus)
    allowed = {f"dcgm.{name}" for name in params["skips_ok"]}
    left = [r for r in records if r.check in allowed and r.status == NOT_MEASURED]
    records = [record for record in records if record not in left]
    result["left_out"] = [f"{record.check} {record.subject}" for record in left]
    result["dcgm_version"] = report.version
    add_result(result, records)
    result["gpus_failed"] = sorted(
        {r.subject for r in records if r.status == FAIL and r.subject.startswith("gpu:")}
    )
    end(module, result, records)


if __name__ == "__main__":
    main()
