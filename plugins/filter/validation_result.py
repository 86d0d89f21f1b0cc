# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter validation_result."""

from __future__ import annotations

DOCUMENTATION = r"""
name: validation_result
short_description: One answer out of those of the parts of validate_nodes
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal)
description:
  - Takes what the tasks of the parts returned. A part that was asked for and has no records gets
    one that says why; it is not measured. So is a record that cannot be counted.
positional: node, asked, in_the_way, nothing, level
options:
  _input:
    description: By part, what its task returned.
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
  in_the_way:
    description: By part, why it was not begun.
    type: dict
    default: {}
  nothing:
    description: By part, why it has nothing to ask of this node.
    type: dict
    default: {}
  level:
    description: The level of the run.
    type: str
    default: quick
"""

EXAMPLES = r"""
- name: Fold the answers
  ansible.builtin.set_fact:
    folded: "{{ answers | baremetal.dgx.validation_result(inventory_hostname, asked) }}"
"""

RETURN = r"""
_value:
  description: C(records), the C(level) that they prove, the C(asked_level) of the run, whether it
    has C(begun) to load the node, C(verdict), C(counts), C(lines) of what did not pass,
    C(not_asked), and all in one line as C(text).
  type: dict
"""

from collections.abc import Callable, Mapping
from typing import Any


def validation_result(
    answers: Mapping[str, Any],
    node: str,
    asked: Mapping[str, str],
    in_the_way: Mapping[str, str] | None = None,
    nothing: Mapping[str, str] | None = None,
    level: str = "quick",
) -> dict[str, Any]:
    """Return one answer."""
    from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import utc_text
    from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.levels import fold

    return fold(node, asked, answers, utc_text(), in_the_way, nothing, level)


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"validation_result": validation_result}
