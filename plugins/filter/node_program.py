# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter node_program."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_program
short_description: A program of the nodes, as one file
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal)
description:
  - Makes a program that a role installs, of the sources of this collection.
  - It is the same for the same release, and needs nothing on the host but Python 3.8.
options:
  _input:
    description: Where Python is on the host.
    type: str
    required: true
  name:
    description:
      - Which program. V(cluster-backup) copies Slurm's memory and proves the copies, V(node-health)
        checks a node, V(fabric-metrics) and V(slurm-metrics) collect metrics, V(home-quotas) sets
        quotas of homes, V(node-apply) has a node apply its own roles, V(user-folders) makes the
        folders of users for containers.
    type: str
    choices:
      - cluster-backup
      - fabric-metrics
      - home-quotas
      - node-apply
      - node-health
      - slurm-metrics
      - user-folders
    required: true
"""

EXAMPLES = r"""
- name: Install the program
  baremetal.dgx.managed_files:
    files:
      - path: /usr/local/libexec/baremetal-dgx/user-folders
        content: "{{ '/usr/bin/python3' | baremetal.dgx.node_program('user-folders') }}"
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


def node_program(python: str, name: str) -> str:
    """Return a program in base64; AnsibleFilterError for no path, or an unknown name."""
    from ansible_collections.baremetal.dgx.plugins.plugin_utils._programs import PROGRAMS, program

    if not python.startswith("/") or len(python.split()) != 1:
        raise AnsibleFilterError(f"node_program: {python!r} is not an absolute path")
    if name not in PROGRAMS:
        raise AnsibleFilterError(f"node_program: {name!r} is none of {', '.join(PROGRAMS)}")
    return base64.b64encode(program(name, python)).decode("ascii")


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"node_program": node_program}
