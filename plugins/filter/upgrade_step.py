# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter upgrade_step."""

from __future__ import annotations

DOCUMENTATION = r"""
name: upgrade_step
short_description: Which nodes a rolling upgrade changes next
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Takes what C(scontrol show node -o) says of all nodes, and what an upgrade has come to.
  - Nodes that are out for this upgrade come first, and no other leaves before they are back.
  - So many nodes are in service at any moment as O(in_service) says.
options:
  _input:
    description: The output of C(scontrol show node -o).
    type: str
    required: true
  name:
    description: The name of the upgrade, which is in the reason of the nodes that are out for it.
    type: str
    required: true
  what:
    description: The playbooks that it runs.
    type: list
    elements: str
    required: true
  targets:
    description: The nodes to upgrade, in the order in which they are taken.
    type: list
    elements: str
    required: true
  progress:
    description: What the file of this upgrade holds; nothing for one that begins.
    type: dict
  batch:
    description: Nodes at once.
    type: int
    required: true
  first:
    description: Nodes in the first batch.
    type: int
    default: 1
  in_service:
    description: Nodes of Slurm that must stay in service, or a share of them such as V(75%).
    type: raw
    required: true
  skip:
    description: Nodes to go on without.
    type: list
    elements: str
    default: []
seealso:
  - module: baremetal.dgx.slurm_node
"""

EXAMPLES = r"""
- name: Show the batches
  ansible.builtin.debug:
    msg: >-
      {{ (shown.stdout | baremetal.dgx.upgrade_step(
           'driver', ['install_gpu_stack'], groups['gpu_nodes'], batch=4, in_service=24)).batches }}
"""

RETURN = r"""
_value:
  description: C(batch) are the nodes to change, C(fresh) those of them that leave service for it,
    C(left) those that are left alone with why, C(refusal) is why nothing may be done, C(remaining)
    how many come after, C(batches) all that is to come, C(reason) the text of the reason, and
    C(done) those that are done.
  type: dict
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError


def upgrade_step(
    shown: str,
    name: str,
    what: Sequence[str],
    targets: Sequence[str],
    progress: Mapping[str, Any] | None = None,
    batch: int = 1,
    first: int = 1,
    in_service: Any = None,
    skip: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the next step as data; AnsibleFilterError names what is wrong."""
    from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import parse_nodes
    from ansible_collections.baremetal.dgx.plugins.plugin_utils._operations.upgrade import (
        Policy,
        floor_of,
        plan_step,
        preview,
        progress_from_data,
    )

    nodes = parse_nodes(shown)
    if not nodes:
        raise AnsibleFilterError("upgrade_step: scontrol shows no node")
    try:
        policy = Policy(int(batch), floor_of(in_service, len(nodes)), int(first))
        if min(policy.batch, policy.first) < 1:
            raise ValueError("upgrade_batch and upgrade_first must be 1 or more")
        done = progress_from_data(progress or None, name, [str(one) for one in what]).done
    except ValueError as error:
        raise AnsibleFilterError(f"upgrade_step: {error}") from error
    asked = (nodes, [str(one) for one in targets], done, skip, name, policy)
    step = plan_step(*asked)
    return {
        "batch": list(step.batch),
        "fresh": list(step.fresh),
        "left": [{"node": one.node, "why": one.why} for one in step.left],
        "refusal": step.refusal,
        "remaining": step.remaining,
        "batches": [list(one) for one in preview(*asked)],
        "reason": name,
        "done": list(done),
    }


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"upgrade_step": upgrade_step}
