#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_arguments
short_description: Keep arguments of the kernel's command line as declared
description:
  - Writes the arguments where the boot loader takes them from, and tells whether the running kernel
    has them. It never reboots.
  - On Debian and Ubuntu this is the last file in C(/etc/default/grub.d), on Enterprise Linux the
    entries are changed by C(grubby). Arguments that others have set are left alone.
  - An argument is in force where it is the last of its name. Of C(console), C(pci) and other names
    each word counts, so that it need only be there.
  - While a reboot is pending, C(/run/baremetal-dgx/reboot-required) says why. It is gone after the
    reboot.
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
  arguments:
    description:
      - Arguments, each one word. What was declared once and no longer is goes away.
      - One with C(;), C(<) or C(>) is refused, since GRUB ends a word there.
      - With a name twice, such as C(hugepagesz), they are in force as a whole, in this order.
    type: list
    elements: str
    default: []
  removed:
    description: Arguments that must not be there, whatever set them; C(NAME=*) for any value.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Let the IOMMU pass devices through, and show the kernel's messages at boot
  baremetal.dgx.kernel_arguments:
    arguments: [iommu=pt, init_on_alloc=0]
    removed: [quiet, splash]
"""

RETURN = r"""
actions:
  description: What was done, or would be in check mode, in order.
  returned: success
  type: list
  elements: str
missing:
  description: Declared arguments that the running kernel does not have.
  returned: success
  type: list
  elements: str
unwanted:
  description: Arguments that the running kernel has and must not have.
  returned: success
  type: list
  elements: str
reboot_needed:
  description: Whether the running kernel differs from what is declared.
  returned: success
  type: bool
running_steps:
  description: Steps of Slurm jobs on this node, which a reboot would kill. Looked for only when a
    reboot is needed.
  returned: success
  type: list
  elements: str
in_service:
  description: Why Slurm may start a job on this node, or that it does not say although
    slurmd runs; empty if it cannot. Asked only when a reboot is needed.
  returned: success
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core import steps
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.names import short_name
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._host import kernel_arguments as kernel
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.service import in_service

ARGUMENT_SPEC: dict[str, Any] = {
    "arguments": {"type": "list", "elements": "str", "default": []},
    "removed": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    """Load, plan, apply, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    arguments, removed = module.params["arguments"], module.params["removed"]
    run = ModuleRunner(module)
    with reported(module):
        kernel.require_plain(arguments, removed)
        boot = kernel.loader(module.get_bin_path, run, arguments, removed)
        actions = boot.plan() if boot else []
        words = kernel.running_words()
        lacks, surplus = kernel.missing(words, arguments), kernel.unwanted(words, removed)
        if not module.check_mode:
            if boot:
                boot.apply(actions)
            kernel.mark(lacks, surplus)
    pending = bool(lacks or surplus)
    result: dict[str, Any] = {
        "changed": bool(actions),
        "actions": actions,
        "missing": lacks,
        "unwanted": surplus,
        "reboot_needed": pending,
        "running_steps": steps.running_steps(steps.titles()) if pending else [],
        "in_service": in_service(run, short_name()) if pending else "",
    }
    if module._diff and actions:
        result["diff"] = {"prepared": "\n".join(actions) + "\n"}
    module.exit_json(**result)


if __name__ == "__main__":
    main()
