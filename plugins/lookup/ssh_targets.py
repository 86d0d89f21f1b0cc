# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup ssh_targets."""

from __future__ import annotations

DOCUMENTATION = r"""
name: ssh_targets
author:
  - The baremetal.dgx authors (@baremetal-dgx)
version_added: 1.0.0
short_description: How the controller reaches hosts by SSH
description:
  - Returns the words of C(ssh) that reach each host, as Ansible's own connection would, by the
    host's variables, the command line, the environment and ansible.cfg. A host that C(ssh) alone
    does not reach is an error. Hosts that are declared absent are left out.
options:
  _terms:
    description: Names of the hosts.
    type: list
    elements: str
    required: true
  by_key:
    description: Leaves passwords aside that are given for SSH, since a key is tried, and sudo.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Measure between all GPU nodes
  baremetal.dgx.fabric_pairs:
    transport: ssh
    targets: "{{ lookup('baremetal.dgx.ssh_targets', groups['gpu_nodes']) }}"
    plan: "{{ plan }}"
    output: /srv/pairs
"""

RETURN = r"""
_raw:
  description: By host, the words before a command.
  type: list
  elements: dict
  sample: [{dgx-01: [ssh, -o, 'User="root"', --, 10.0.0.1]}]
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.way import WayError, Ways


class LookupModule(LookupBase):
    """Reads the variables of the hosts."""

    def run(
        self, terms: Sequence[Any], variables: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> list[dict[str, list[str]]]:
        """Return the one mapping."""
        self.set_options(var_options=variables, direct=kwargs)
        known, ways = (
            (variables or {})["hostvars"],
            Ways(self._loader, by_key=self.get_option("by_key")),
        )
        hosts = [
            host
            for host in self._flatten(terms)
            if known[host].get("node_state", "present") == "present"
        ]
        try:
            found = {host: ways.to(host, known.raw_get(host)) for host in hosts}
        except WayError as error:
            raise AnsibleLookupError(str(error)) from error
        here = [host for host, way in found.items() if not way.ssh]
        if here:
            raise AnsibleLookupError(f"{here[0]}: is reached by local, and not by SSH")
        return [{host: [*way.ssh, "--", way.address] for host, way in found.items()}]
