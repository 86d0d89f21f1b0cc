# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter parts_without."""

from __future__ import annotations

DOCUMENTATION = r"""
name: parts_without
short_description: What is known of the parts of a node, without those that were replaced
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Takes values by subject, such as V(gpu:dgx-07/3), and leaves out those of replaced parts.
options:
  _input:
    description: What is known, by subject.
    type: dict
    required: true
  node:
    description: The node.
    type: str
    required: true
  replaced:
    description: The parts, as V(gpu:3), V(hca:rail5), or V(node) for all of them.
    type: list
    elements: str
    required: true
seealso:
  - plugin: baremetal.dgx.part_identities
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Forget who sat in slot 3
  ansible.builtin.debug:
    msg: "{{ known | baremetal.dgx.parts_without('dgx-07', ['gpu:3']) }}"
"""

RETURN = r"""
_value:
  description: What is left.
  type: dict
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError


def parts_without(known: Mapping[str, Any], node: str, replaced: Sequence[str]) -> dict[str, Any]:
    """Return what is left; AnsibleFilterError for what is no part."""
    from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.identities import (
        subjects_of,
        without,
    )

    try:
        left: dict[str, Any] = without(known, subjects_of(node, replaced))
    except ValueError as error:
        raise AnsibleFilterError(f"parts_without: {error}") from error
    return left


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"parts_without": parts_without}
