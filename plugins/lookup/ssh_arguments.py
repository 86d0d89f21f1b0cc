# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup ssh_arguments."""

from __future__ import annotations

DOCUMENTATION = r"""
name: ssh_arguments
author:
  - The baremetal.dgx authors (@baremetal)
version_added: 1.0.0
short_description: Common arguments of ssh, with what ends a session that does not answer
description:
  - Returns what C(ansible_ssh_common_args) of the host would be without the play that asks, out of
    the inventory, the command line, the environment or ansible.cfg, followed by the terms.
  - ssh takes the first value that it is given of an option, so that a site's own settings win.
options:
  _terms:
    description: Arguments that are added at the end.
    required: true
"""

EXAMPLES = r"""
- name: Reach nodes, and give up those that freeze
  hosts: gpu_nodes
  vars:
    ansible_ssh_common_args: >-
      {{ lookup('baremetal.dgx.ssh_arguments', '-o ServerAliveInterval=15') }}
"""

RETURN = r"""
_raw:
  description: The arguments as one text.
  type: list
  elements: str
"""

from collections.abc import Mapping, Sequence
from typing import Any

import ansible.constants
from ansible.plugins.lookup import LookupBase

_NAME = "ansible_ssh_common_args"


class LookupModule(LookupBase):
    """Joins a site's arguments and ours."""

    def run(
        self, terms: Sequence[str], variables: Mapping[str, Any] | None = None, **_options: Any
    ) -> list[str]:
        """Return the one text."""
        known = variables or {}
        host = known.get("inventory_hostname", "")
        # What the inventory says, and not the play, whose value this is.
        own = (known.get("hostvars") or {}).get(host, {}).get(_NAME)
        if own is None:
            own = ansible.constants.config.get_config_value(
                "ssh_common_args", plugin_type="connection", plugin_name="ssh"
            )
        return [" ".join([own or "", *terms]).strip()]
