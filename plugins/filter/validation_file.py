# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter validation_file."""

from __future__ import annotations

DOCUMENTATION = r"""
name: validation_file
short_description: What validate_nodes keeps of a node beside the inventory
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal)
description:
  - Takes the answer of a run, and adds what is left of the runs before, the failures of layers that
    this one has not measured, and when deeper levels were last asked.
positional: node, asked, links, former
options:
  _input:
    description: What P(baremetal.dgx.validation_result#filter) returned.
    type: dict
    required: true
  node:
    description: Name of the node.
    type: str
    required: true
  asked:
    description: What P(baremetal.dgx.validation_parts#filter) returned.
    type: dict
    required: true
  links:
    description: Readings of the node's links.
    type: list
    elements: raw
    default: []
  former:
    description: What the file says until now; anything but a mapping where it cannot be read.
    type: raw
"""

EXAMPLES = r"""
- name: Show what is kept
  ansible.builtin.debug:
    msg: "{{ folded | baremetal.dgx.validation_file('dgx-01', asked, [], former) }}"
"""

RETURN = r"""
_value:
  description: C(records) of the run with C(node), C(level), C(asked_level), C(begun), C(links) and
    C(ended), the layers that are asked no more, and C(standing) and C(looks) of the runs before.
  type: dict
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def validation_file(
    result: Mapping[str, Any],
    node: str,
    asked: Mapping[str, str],
    links: Sequence[Any] = (),
    former: Any = None,
) -> dict[str, Any]:
    """Return the content of the file."""
    from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.node_file import (
        node_file,
    )

    return node_file(result, node, asked, links, former)


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"validation_file": validation_file}
