#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_check
short_description: Run a job in an image on each node, and see from its text whether it did
description:
  - A job that asks for an image and gets none runs on the bare host, and srun returns 0. It returns
    0 as well when a broken plug-in keeps the job from starting. So the return code is never asked.
    The job prints a file of the image, and that text is the answer.
  - Nodes that take no job now, since they are drained, down or busy, are C(not_measured).
  - One job is run on all nodes of a partition, the default one where it has the node. Nodes that
    stay silent are asked again, alone, since the fault of one of them may have ended the job of
    all.
  - It warns where no node was measured although some are idle.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.check
  - baremetal.dgx.check.timeout
attributes:
  check_mode:
    details: No job is run in check mode.
options:
  nodes:
    description: The nodes.
    type: list
    elements: str
    required: true
  image:
    description: The image, as C(--container-image) takes it.
    type: str
    required: true
  marker:
    description: File of the image that holds O(token), and that no host has.
    type: str
    default: /etc/baremetal-dgx-image
  token:
    description: What is in it.
    type: str
    required: true
  user:
    description: As whom the job is submitted. Root sees faults of permissions less than users do.
    type: str
    default: root
  arguments:
    description: Other arguments of srun. Where they name a partition, only its nodes are asked,
      and the others are C(not_measured).
    type: list
    elements: str
    default: []
  wait_s:
    description: Seconds to wait for the job to start.
    type: int
    default: 30
  timeout_s:
    description: Seconds for each job as a whole.
    default: 120
  alone:
    description: How many silent nodes of a job are asked again.
    type: int
    default: 8
seealso:
  - module: baremetal.dgx.slurm_plugstack
"""

EXAMPLES = r"""
- name: See that containers run on every node
  baremetal.dgx.container_check:
    nodes: [dgx-01, dgx-02]
    image: /var/lib/baremetal-dgx/pyxis/verify.sqsh
    token: 5d41402abc4b
    user: alice
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
passed:
  description: Nodes whose job ran in the image.
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import PASS
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.containers.job import ask_nodes

ARGUMENT_SPEC: dict[str, Any] = {
    **check_options(timeout_s=120),
    "nodes": {"type": "list", "elements": "str", "required": True},
    "image": {"type": "str", "required": True},
    "marker": {"type": "str", "default": "/etc/baremetal-dgx-image"},
    # It is in a file of the image that every user may read.
    "token": {"type": "str", "required": True, "no_log": False},
    "user": {"type": "str", "default": "root"},
    "arguments": {"type": "list", "elements": "str", "default": []},
    "wait_s": {"type": "int", "default": 30},
    "alone": {"type": "int", "default": 8},
}


def main() -> None:
    """Ask, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    asked = module.params["nodes"] and not module.check_mode
    records, warning = ask_nodes(ModuleRunner(module), module.params) if asked else ([], "")
    if warning:
        module.warn(warning)
    passed = [one.subject.partition(":")[2] for one in records if one.status == PASS]
    finish(module, records, passed=passed)


if __name__ == "__main__":
    main()
