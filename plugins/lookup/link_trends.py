# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup link_trends."""

from __future__ import annotations

DOCUMENTATION = r"""
name: link_trends
short_description: Which links of a cluster get worse and will fail
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Reads what C(validate_nodes) has collected of the nodes' links, and returns lines for people;
    the first one sums up all links. A link that will fail has not failed, and takes no node out.
options:
  _terms:
    description: The folder C(.dgx) beside the inventory.
    type: list
    elements: path
    required: true
  plan:
    description: The folder of the plan, whose cables say where the far ends are.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Show it
  ansible.builtin.debug:
    msg: "{{ query('baremetal.dgx.link_trends', '/srv/c/.dgx', plan='/srv/c/.dgx/plan') }}"
"""

RETURN = r"""
_raw:
  description: The sum, and a line for each link, switch or node that will fail.
  type: list
  elements: str
"""

import os
import time
from collections.abc import Sequence
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.baremetal.dgx.plugins.plugin_utils._trends.load import load_outlook


class LookupModule(LookupBase):
    """Reads the readings and the plan."""

    def run(self, terms: Sequence[Any], variables: Any = None, **kwargs: Any) -> list[Any]:
        """Return the lines; AnsibleLookupError where a file cannot be read."""
        self.set_options(var_options=variables, direct=kwargs)
        evidence = os.path.join(str(terms[0]), "evidence")
        cables = os.path.join(str(self.get_option("plan")), "fabric", "cables.json")
        try:
            found = load_outlook(evidence, cables, time.time())
        except (OSError, ValueError) as error:
            raise AnsibleLookupError(f"link_trends: {error}") from error
        return [
            found["text"],
            *(
                f"{one['word']}: {one['subject']} at {', '.join(one['places'])}: "
                f"{one['trends'][0]['text']}; do: {one['remedy']}"
                for one in found["will_fail"]
            ),
        ]
