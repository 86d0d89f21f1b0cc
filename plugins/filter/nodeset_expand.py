# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter nodeset_expand."""

from __future__ import annotations

DOCUMENTATION = r"""
name: nodeset_expand
short_description: Names of the nodes that a Slurm hostlist means
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Takes a hostlist as Slurm reads and prints it, C(dgx-[01-04,07]), and returns the names.
  - Needs no library and no Slurm.
options:
  _input:
    description: The hostlist, several of them separated by commas.
    type: str
    required: true
"""

EXAMPLES = r"""
# dgx-01, dgx-02, dgx-07
nodes: "{{ 'dgx-[01-02,07]' | baremetal.dgx.nodeset_expand }}"
"""

RETURN = r"""
_value:
  description: The names, in the hostlist's order, each once.
  type: list
  elements: str
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError


def nodeset_expand(text: str) -> list[str]:
    """Return the names that the hostlist means; AnsibleFilterError says what is wrong with it."""
    from ansible_collections.baremetal.dgx.plugins.module_utils._core import nodeset as _nodeset

    if not isinstance(text, str):
        raise AnsibleFilterError("nodeset_expand: text is wanted; join a list with commas first")
    try:
        return _nodeset.expand(text)
    except ValueError as exc:
        raise AnsibleFilterError(f"nodeset_expand: {exc}") from exc


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"nodeset_expand": nodeset_expand}
