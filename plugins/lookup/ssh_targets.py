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
  - Returns the address of each host as OpenSSH takes it, from C(ansible_host), C(ansible_user) and
    C(ansible_port), just as Ansible does. Hosts that are declared absent are left out.
options:
  _terms:
    description: Names of the hosts.
    type: list
    elements: str
    required: true
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
  description: By host, the address.
  type: list
  elements: dict
  sample: [{dgx-01: "ssh://root@10.0.0.1:22"}]
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.plugins.lookup import LookupBase


def target(host: str, variables: Mapping[str, Any]) -> str:
    """Return the address of one host."""
    address = str(variables.get("ansible_host", host))
    user = f"{variables['ansible_user']}@" if "ansible_user" in variables else ""
    port = f":{variables['ansible_port']}" if "ansible_port" in variables else ""
    return f"ssh://{user}{f'[{address}]' if ':' in address else address}{port}"


class LookupModule(LookupBase):
    """Reads the variables of the hosts."""

    def run(
        self, terms: Sequence[Any], variables: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> list[dict[str, str]]:
        """Return one mapping."""
        self.set_options(var_options=variables, direct=kwargs)
        known = (variables or {})["hostvars"]
        hosts = [
            host
            for host in self._flatten(terms)
            if known[host].get("node_state", "present") == "present"
        ]
        return [{host: target(host, known[host]) for host in hosts}]
