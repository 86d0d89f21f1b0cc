#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_settings
short_description: Compare ECC mode and MIG layout of GPUs with what is declared
description:
  - Reads both with C(nvidia-smi) and names each GPU that differs. The ECC mode is set with consent;
    it comes into effect when the GPU is reset or the node reboots, which the module never does.
  - A MIG layout is only compared. It is lost at each boot, so that what applies it is a unit of the
    role nvidia_driver.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  ecc:
    description: ECC mode of all GPUs.
    type: str
    choices: [keep, "on", "off"]
    default: keep
  mig:
    description: MIG layouts. A GPU that none names keeps what it has.
    type: list
    elements: dict
    default: []
    suboptions:
      gpus:
        description: Numbers of the GPUs in PCI order; all others when empty.
        type: list
        elements: int
        default: []
      profiles:
        description: Instances by the names of their profiles; none switches MIG off.
        type: list
        elements: str
        required: true
  ecc_allowed:
    description: Consent to set the ECC mode. Never used while a Slurm step runs on the node.
    type: bool
    default: false
  proc:
    description: The tree of processes, in which steps of jobs are looked for.
    type: path
    default: /proc
"""

EXAMPLES = r"""
- name: See that ECC is on and that the last GPU is divided
  baremetal.dgx.gpu_settings:
    ecc: "on"
    mig:
      - {gpus: [7], profiles: [1g.10gb, 1g.10gb, 2g.20gb, 3g.40gb]}
"""

RETURN = r"""
differences:
  description: Settings that are not as declared, before this run.
  returned: success
  type: list
  elements: dict
  contains:
    gpu:
      description: Number of the GPU.
      type: int
    pci:
      description: Its PCI address.
      type: str
    setting:
      description: V(ecc) or V(mig).
      type: str
    before:
      description: What it has.
      type: str
    after:
      description: What is declared.
      type: str
reset_pending:
  description: Settings that are stored and wait for a reset of the GPU, in the same form.
  returned: success
  type: list
  elements: dict
in_service:
  description: Why a job may start on the node although a setting differs or waits for a reset, or
    that Slurm does not answer although slurmd runs; empty otherwise.
  returned: success
  type: str
steps:
  description: Steps of Slurm jobs that run on the node.
  returned: success
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._driver.states import in_service
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.settings import bring_about

ARGUMENT_SPEC: dict[str, Any] = {
    "ecc": {"type": "str", "choices": ["keep", "on", "off"], "default": "keep"},
    "mig": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "gpus": {"type": "list", "elements": "int", "default": []},
            "profiles": {"type": "list", "elements": "str", "required": True},
        },
    },
    "ecc_allowed": {"type": "bool", "default": False},
    "proc": {"type": "path", "default": "/proc"},
}


def main() -> None:
    """Load, compare, set, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    check = module.check_mode
    done: list[str] = []
    with reported(module, lambda: {"changed": bool(done) and not check}, ValueError):
        run = ModuleRunner(module)
        result = bring_about(run, module.params, check, done)
        waits = result["differences"] or result["reset_pending"]
        result["in_service"] = in_service(run) if waits else ""
    if module._diff and done:
        result["diff"] = {"prepared": "\n".join(done) + "\n"}
    module.exit_json(**result)


if __name__ == "__main__":
    main()
