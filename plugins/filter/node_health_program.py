# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter node_health_program."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_health_program
short_description: The health program of the nodes, as one file
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal)
description:
  - Makes the program that the role C(node_health) installs, of the sources of this collection.
  - It is the same for the same release, and needs nothing on the node but Python 3.8.
options:
  _input:
    description: Where Python is on the node.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Install the program
  baremetal.dgx.managed_files:
    files:
      - path: /usr/local/libexec/baremetal-dgx/node-health
        content: "{{ '/usr/bin/python3' | baremetal.dgx.node_health_program }}"
        encoding: base64
        mode: "0755"
"""

RETURN = r"""
_value:
  description: The file in base64.
  type: str
"""

import base64
from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError


def node_health_program(python: str) -> str:
    """Return the program in base64; AnsibleFilterError for a Python that is no path."""
    from ansible_collections.baremetal.dgx.plugins.module_utils._health_program import program

    if not python.startswith("/") or len(python.split()) != 1:
        raise AnsibleFilterError(f"node_health_program: {python!r} is no absolute path")
    return base64.b64encode(program(python)).decode("ascii")


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"node_health_program": node_health_program}
