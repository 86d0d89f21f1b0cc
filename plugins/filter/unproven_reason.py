# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter unproven_reason."""

from __future__ import annotations

DOCUMENTATION = r"""
name: unproven_reason
short_description: The reason with which the gate holds a node that is new
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Takes the name of a node and returns the signed text behind C(dgx-gate:). A node that is drained
    with it by the user that the gate is in Slurm is let in by the gate when it passes.
positional: replaced
options:
  _input:
    description: The node.
    type: str
    required: true
  replaced:
    description: Parts that were replaced. With them only evidence from after the drain lets it in.
    type: list
    elements: str
    default: []
seealso:
  - module: baremetal.dgx.slurm_gate
  - module: baremetal.dgx.slurm_node
"""

EXAMPLES = r"""
- name: Hand a repaired node to the gate
  baremetal.dgx.slurm_node:
    nodes: [dgx-07]
    state: drained
    owner: dgx-gate
    reason: "{{ 'dgx-07' | baremetal.dgx.unproven_reason(['gpu:3']) }}"
    force: true
"""

RETURN = r"""
_value:
  description: The text.
  type: str
"""

from collections.abc import Callable, Sequence
from typing import Any


def unproven_reason(node: str, replaced: Sequence[str] = ()) -> str:
    """Return what stands behind the owner."""
    from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import (
        REPLACED,
        UNPROVEN,
        sign,
    )

    if replaced:
        text = f"replaced {', '.join(replaced)}, run validate_nodes"
        return str(sign(node, REPLACED, text))
    return str(sign(node, UNPROVEN, "unproven, run validate_nodes"))


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"unproven_reason": unproven_reason}
