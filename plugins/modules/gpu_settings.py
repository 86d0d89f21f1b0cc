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
steps:
  description: Steps of Slurm jobs that run on the node.
  returned: success
  type: list
  elements: str
"""

from dataclasses import asdict
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_settings import (
    QUERY,
    Gpu,
    compare,
    layout_of,
    parse_instances,
    parse_modes,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._kernel_arguments import running_steps
from ansible_collections.baremetal.dgx.plugins.module_utils._nvidia_host import titles
from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    CommandRunner,
    ModuleRunner,
    ToolError,
)

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
_ENVIRONMENT = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def ask(run: CommandRunner, *words: str) -> str:
    """Return what nvidia-smi says; ToolError when it does not."""
    answer = run(words, timeout_s=60, env=_ENVIRONMENT)
    if not answer.ok:
        raise ToolError(f"the GPUs cannot be asked: {answer.describe()}")
    return answer.out


def load(run: CommandRunner) -> list[Gpu]:
    """Return the GPUs with their MIG instances."""
    gpus = parse_modes(ask(run, *QUERY))
    if not gpus:
        raise ToolError("nvidia-smi lists no GPU")
    instances = parse_instances(ask(run, "nvidia-smi", "-L"))
    return [Gpu(**{**vars(gpu), "instances": instances.get(gpu.index, ())}) for gpu in gpus]


def main() -> None:
    """Load, compare, set, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    run = ModuleRunner(module)
    done: list[str] = []
    try:
        gpus = load(run)
        differing, pending, cannot = compare(
            gpus, params["ecc"], layout_of(params["mig"], len(gpus))
        )
        if cannot:
            raise ToolError("\n".join(cannot))
        steps = running_steps(titles(params["proc"]))
        todo = [d for d in differing if d.setting == "ecc"] if params["ecc_allowed"] else []
        if todo and steps:
            raise ToolError(
                f"job steps run here ({', '.join(steps)}); drain this node and run again"
            )
        for one in todo:
            done.append(f"GPU {one.gpu} ({one.pci}): ecc {one.before} becomes {one.after}")
            if not module.check_mode:
                ask(run, "nvidia-smi", "-i", str(one.gpu), "-e", str(int(one.after == "on")))
        if todo and not module.check_mode:
            _wrong, pending, _cannot = compare(load(run), params["ecc"], {})
    except (ToolError, ValueError) as error:
        module.fail_json(msg=str(error), changed=bool(done) and not module.check_mode)
    result: dict[str, Any] = {
        "changed": bool(done),
        "differences": [asdict(one) for one in differing],
        "reset_pending": [asdict(one) for one in pending],
        "steps": steps,
    }
    if module._diff and done:
        result["diff"] = {"prepared": "\n".join(done) + "\n"}
    module.exit_json(**result)


if __name__ == "__main__":
    main()
