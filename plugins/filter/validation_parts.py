# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter validation_parts."""

from __future__ import annotations

DOCUMENTATION = r"""
name: validation_parts
short_description: The parts of a level of validate_nodes
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal)
description:
  - Takes a level and returns for each part why it is not asked for, or an empty text.
positional: switches, nothing, run
options:
  _input:
    description: V(quick), V(standard) or V(burn_in).
    type: str
    required: true
  switches:
    description: Parts that are switched off, or on although there seems to be nothing to ask.
    type: dict
    default: {}
  nothing:
    description: For parts that have nothing to ask, why.
    type: dict
    default: {}
  run:
    description:
      - Parts that only this run switches off, or on. What it switches off although O(switches) does
        not has another reason.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Show what a quick look asks
  ansible.builtin.debug:
    msg: "{{ 'quick' | baremetal.dgx.validation_parts({'canary': false}) }}"
"""

RETURN = r"""
_value:
  description: By part, the reason.
  type: dict
  sample: {gpu_health: "", canary: switched off, burn: level standard}
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def validation_parts(
    level: str,
    switches: Mapping[str, Any] | None = None,
    nothing: Mapping[str, str] | None = None,
    run: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Return the parts with their reasons; AnsibleFilterError says which word is wrong."""
    from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.levels import reasons

    try:
        return reasons(str(level), switches or {}, nothing or {}, run or {})
    except ValueError as error:
        raise AnsibleFilterError(f"validation_parts: {error}") from error


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"validation_parts": validation_parts}
