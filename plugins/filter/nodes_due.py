# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter nodes_due."""

from __future__ import annotations

DOCUMENTATION = r"""
name: nodes_due
short_description: Idle nodes that nobody has looked at under load for some days
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Takes what C(scontrol show node -o) says, and the verdicts of nodes, and returns those to look
    at now, the longest unseen first.
  - A node that is drained, reserved, planned for a job, or not answering is never among them.
options:
  _input:
    description: The output of C(scontrol show node -o).
    type: str
    required: true
  verdicts:
    description: Verdicts as the lookup P(baremetal.dgx.node_verdicts#lookup) gives them.
    type: list
    elements: dict
    required: true
  level:
    description: How deeply a node must have been looked at for it to count.
    type: str
    choices: [quick, standard, burn_in]
    default: standard
  days:
    description: For how long a look counts.
    type: float
    default: 7
  most:
    description: Nodes at once.
    type: int
    default: 1
seealso:
  - plugin: baremetal.dgx.node_verdicts
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Show who is due
  ansible.builtin.debug:
    msg: "{{ shown.stdout | baremetal.dgx.nodes_due(verdicts, days=7, most=4) }}"
"""

RETURN = r"""
_value:
  description: Names of nodes.
  type: list
  elements: str
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError


def nodes_due(
    shown: str,
    verdicts: Sequence[Mapping[str, Any]],
    level: str = "standard",
    days: float = 7,
    most: int = 1,
) -> list[str]:
    """Return the nodes to look at now; AnsibleFilterError for a level that there is not."""
    from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import parse_nodes
    from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.levels import due

    try:
        found: list[str] = due(
            parse_nodes(shown), verdicts, time.time(), level, float(days), int(most)
        )
    except (TypeError, ValueError) as error:
        raise AnsibleFilterError(f"nodes_due: {error}") from error
    return found


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"nodes_due": nodes_due}
