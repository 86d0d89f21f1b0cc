#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_parts
short_description: Keep which part belongs into which slot of a node
description:
  - Keeps a JSON file about one node, in which values stand by subject, such as C(gpu:dgx-07/3).
  - With O(records_file), adds the GPUs that were identified. A slot keeps the GPU that was seen
    there first, so that one that changed without a word is a finding.
  - With O(replaced), forgets parts that were replaced on purpose, with an adapter its cables.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  path:
    description: The file about the node.
    type: path
    required: true
  records_file:
    description: JSON file whose C(records) are those of M(baremetal.dgx.gpu_health).
    type: path
  node:
    description: The node whose parts were replaced.
    type: str
  replaced:
    description: The parts, as V(gpu:3), V(hca:rail5), or V(node) for all of them.
    type: list
    elements: str
seealso:
  - module: baremetal.dgx.gpu_health
  - module: baremetal.dgx.evidence_add
"""

EXAMPLES = r"""
- name: Save the serial numbers by slot
  baremetal.dgx.node_parts:
    path: /srv/cluster/.dgx/identities/dgx-07.json
    records_file: /srv/cluster/.dgx/nodes/dgx-07.json
  delegate_to: localhost

- name: Take the new GPU in slot 3 for right
  baremetal.dgx.node_parts:
    path: /srv/cluster/.dgx/identities/dgx-07.json
    node: dgx-07
    replaced: [gpu:3]
  delegate_to: localhost
"""

RETURN = r"""
removed:
  description: What was known of the parts that were forgotten, by subject.
  returned: success
  type: dict
  sample:
    "gpu:dgx-07/3": {pci: "0000:61:00.0", uuid: "GPU-51a7ed00", serial: "1650000000004"}
"""

import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.files import (
    read_json,
    write_atomic,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import finish_in_time
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.parts import (
    known_parts,
    merged,
    subjects_of,
    without,
)

_LIMIT_S = 60.0

ARGUMENT_SPEC: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "records_file": {"type": "path"},
    "node": {"type": "str"},
    "replaced": {"type": "list", "elements": "str"},
}


def main() -> None:
    """Read, compare, write, in a child: the folder may be on a mount."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
        mutually_exclusive=[("records_file", "replaced")],
        required_one_of=[("records_file", "replaced")],
        required_by={"replaced": ("node",)},
    )
    params = module.params

    def work() -> None:
        with reported(module, None, ValueError):
            before = known_parts(params["path"])
            if params["replaced"] is not None:
                after = without(before, subjects_of(params["node"], params["replaced"]))
            else:
                after = merged(before, read_json(params["records_file"])["records"])
            if after != before and not module.check_mode:
                write_atomic(params["path"], json.dumps(after, indent=1) + "\n", 0o640)
        gone = {subject: before[subject] for subject in before if subject not in after}
        module.exit_json(changed=after != before, removed=gone)

    finish_in_time(module, params["path"], work, _LIMIT_S)


if __name__ == "__main__":
    main()
