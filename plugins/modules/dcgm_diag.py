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
    check C(dcgm.settings), and fails no GPU; of a test above level 2 it is
    C(dcgm.settings_under_load).
  - A test that was skipped or has no result, a hang, a host engine that does not answer, a
    truncated answer, and unexpected text are C(not_measured), with what to do next.
  - From level 2 on the diagnostics load the GPUs. They are not started while a process holds a GPU,
    or if that is not known.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.check
  - baremetal.dgx.check.node
  - baremetal.dgx.check.timeout
attributes:
  check_mode:
    details: In check mode the command that would run is returned. Nothing is run.
options:
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
  timeout_s:
    description:
      - Seconds until the diagnostics are ended. By default V(120), V(1800), V(3600) and V(10800)
        for the levels 1 to 4.
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
records:
  description:
    - One record for each question; C(verdict) folds them into one, C(counts) has how many there are
      of each status, C(findings) and C(not_measured) a line for each that did not pass.
      C(docs/records.md) describes them all.
  returned: always
  type: list
  elements: dict
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
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
    node_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import FAIL
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.dcgm import (
    command_of,
    diagnose,
    without_skips,
)

ARGUMENT_SPEC: dict[str, Any] = {
    **check_options("node", "timeout_s"),
    "level": {"type": "int", "choices": [1, 2, 3, 4], "default": 1},
    "expected_gpus": {"type": "int"},
    "gpus": {"type": "list", "elements": "int", "default": []},
    "parameters": {"type": "dict", "default": {}},
    "extra_arguments": {"type": "list", "elements": "str", "default": []},
    "host_engine": {"type": "str", "default": ""},
    "skips_ok": {"type": "list", "elements": "str", "default": []},
    "busy_ok": {"type": "bool", "default": False},
    "nvml_library": {"type": "str", "default": ""},
    "pci": {"type": "list", "elements": "str", "default": []},
    "tool": {"type": "str", "default": "dcgmi"},
}


def main() -> None:
    """Check whether the GPUs are free, run, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    result: dict[str, Any] = {"command": command_of(params), "dcgm_version": ""}
    if module.check_mode:
        finish(module, [], gpus_failed=[], left_out=[], **result)
    records, report = diagnose(ModuleRunner(module), node_of(module), params)
    records, left = without_skips(records, params["skips_ok"])
    failed = {one.subject for one in records if one.status == FAIL}
    result["dcgm_version"] = report.version
    result["gpus_failed"] = sorted(subject for subject in failed if subject.startswith("gpu:"))
    finish(module, records, left_out=[f"{one.check} {one.subject}" for one in left], **result)


if __name__ == "__main__":
    main()
