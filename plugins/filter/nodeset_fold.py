# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter nodeset_fold."""

from __future__ import annotations

DOCUMENTATION = r"""
name: nodeset_fold
short_description: Slurm hostlist of some nodes
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Takes names and returns the short expression for them that Slurm and slurm.conf accept.
  - Needs no library and no Slurm.
options:
  _input:
    description: The names.
    type: list
    elements: str
    required: true
seealso:
  - plugin: baremetal.dgx.nodeset_expand
    plugin_type: filter
"""

EXAMPLES = r"""
# dgx-[01-02,07]
nodes: "{{ ['dgx-01', 'dgx-02', 'dgx-07'] | baremetal.dgx.nodeset_fold }}"
"""

RETURN = r"""
_value:
  description: The hostlist, sorted.
  type: str
"""

from collections.abc import Callable, Iterable
from typing import Any

from ansible.errors import AnsibleFilterError


def nodeset_fold(names: Iterable[str]) -> str:
    """Return the hostlist of the names; AnsibleFilterError when they are no list of texts."""
    from ansible_collections.baremetal.dgx.plugins.module_utils._core import nodeset as _nodeset

    if isinstance(names, (str, bytes)) or not all(isinstance(name, str) for name in names):
        raise AnsibleFilterError("nodeset_fold: takes a list of node names")
    return _nodeset.fold(names)


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"nodeset_fold": nodeset_fold}
