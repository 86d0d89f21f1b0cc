#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_evidence
short_description: Collect what a node reports before a repair changes it
description:
  - Collects the kernel log, C(nvidia-smi -q), PCI devices, failed units, and NVIDIA's bug report
    where its program is installed. Each part has a limit of time and of size, and so have all of
    them together; one that hangs is noted as such, and the others are collected.
  - Takes secrets, and the names of the host and of people, out of the texts.
  - Only the user of the task may read the archive. The caller removes it.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: none
  diff_mode:
    support: none
  idempotent:
    support: none
options:
  parent:
    description: Folder below which the archive is written.
    type: path
    default: /var/tmp
  names:
    description: More names to take out, such as that of the host in the inventory.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Collect evidence
  baremetal.dgx.node_evidence:
  register: evidence
"""

RETURN = r"""
path:
  description: The archive.
  returned: success
  type: str
parts:
  description: By part, V(collected) or why it was not.
  returned: success
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.collect import collect

ARGUMENT_SPEC: dict[str, Any] = {
    "parent": {"type": "path", "default": "/var/tmp"},
    "names": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    """Ask, pack, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC)
    with reported(module):
        result = collect(ModuleRunner(module), module.params["parent"], module.params["names"])
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
