# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter slurm_fewer_gres."""

from __future__ import annotations

DOCUMENTATION = r"""
name: slurm_fewer_gres
short_description: Which nodes would have fewer GPUs in Slurm than they have
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Slurm ends the jobs of a node that has fewer generic resources after a change of C(slurm.conf).
    This compares what Slurm has with what is declared, name by name, whatever the types are.
  - A node that is not declared, or that is not asked about, is passed over.
options:
  _input:
    description: Lines of nodes and their generic resources, as C(sinfo --format="%N %G") prints
      them.
    type: list
    elements: str
    required: true
  declared:
    description: The nodes that are declared, with their C(gres), as M(baremetal.dgx.slurm_config)
      takes them.
    type: list
    elements: dict
    required: true
  nodes:
    description: Names of the nodes that are asked about.
    type: list
    elements: str
    required: true
seealso:
  - module: baremetal.dgx.slurm_config
"""

EXAMPLES = r"""
# dgx-[01-02] would go from 8 to 4 gpu
why: >-
  {{ ['dgx-[01-12] gpu:h100:8(S:0-1)'] | baremetal.dgx.slurm_fewer_gres(
       [{'name': 'dgx-[01-12]', 'gres': [{'name': 'gpu', 'count': 4}]}], ['dgx-01', 'dgx-02']) }}
"""

RETURN = r"""
_value:
  description: One phrase for all nodes that lose the same.
  type: list
  elements: str
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def slurm_fewer_gres(
    present: list[str], declared: list[Mapping[str, Any]], nodes: list[str]
) -> list[str]:
    """Return the losses; AnsibleFilterError for invalid names."""
    from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan import gres as _gres

    try:
        return _gres.fewer(present, declared, nodes)
    except ValueError as exc:
        raise AnsibleFilterError(f"slurm_fewer_gres: {exc}") from exc


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"slurm_fewer_gres": slurm_fewer_gres}
