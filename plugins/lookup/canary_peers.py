# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup canary_peers."""

from __future__ import annotations

DOCUMENTATION = r"""
name: canary_peers
author:
  - The baremetal.dgx authors (@baremetal-dgx)
version_added: 1.0.0
short_description: Hosts that try the same mounts in this run
description:
  - Returns for each mount of C(cephfs_mounts) which of the next three hosts of the run write to it,
    so that each host looks for the files of a few others.
options:
  _terms:
    description: The hosts of the run, the host itself included.
    type: list
    elements: str
    required: true
  mounts:
    description: The mounts of the host, as in C(cephfs_mounts).
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Mount storage
  hosts: cluster
  vars:
    cephfs_canary_peers: >-
      {{ lookup('baremetal.dgx.canary_peers', ansible_play_hosts, mounts=cephfs_mounts) }}
"""

RETURN = r"""
_raw:
  description: By name of the mount, the hosts.
  type: list
  elements: dict
  sample: [{scratch: [dgx-02, dgx-03, dgx-04]}]
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.plugins.lookup import LookupBase

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.canary import canary_peers


class LookupModule(LookupBase):
    """Reads what the inventory has about the other hosts."""

    def run(
        self, terms: Sequence[Any], variables: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> list[dict[str, list[str]]]:
        """Return one mapping."""
        self.set_options(var_options=variables, direct=kwargs)
        known = variables or {}
        return [
            canary_peers(
                str(known["inventory_hostname"]),
                [str(host) for host in terms[0]],
                self.get_option("mounts"),
                lambda host: known["hostvars"][host].get("cephfs_mounts") or (),
            )
        ]
