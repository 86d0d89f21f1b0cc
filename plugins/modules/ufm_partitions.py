#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ufm_partitions
short_description: Keep the partitions of a fabric under UFM as declared
description:
  - Compares declared partitions with those that UFM has, through its REST interface, and sends only
    what differs. Partitions that are not named are left alone.
  - Members are added before others are taken out. After a change UFM is asked again until it has
    the partitions as declared; when it does not in O(wait_s), the module fails.
  - Taking members out, or making full ones limited, cuts their connections. Without
    O(removal_allowed) the module fails then, lists what it would send, and sends nothing.
  - Tested against a server that answers as the REST API guide of UFM Enterprise 6.12 to 6.22 says;
    never with UFM itself.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.ufm
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  partitions:
    description: The partitions.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: What people call it. UFM knows the PKey alone.
        type: str
      pkey:
        description: PKey from V(0x1) to V(0x7ffe). V(0x7fff) is the default partition, which UFM
          keeps itself.
        type: str
        required: true
      state:
        description: Whether it exists.
        type: str
        choices: [present, absent]
        default: present
      ipoib:
        description: Whether it has the multicast group that IPoIB needs. UFM does not change it in
          a partition that exists; the module fails then.
        type: bool
        default: false
      full:
        description: GUIDs of ports that are full members.
        type: list
        elements: str
        default: []
      limited:
        description: GUIDs of ports that are limited members. They do not reach each other.
        type: list
        elements: str
        default: []
  removal_allowed:
    description: Whether members may lose a partition.
    type: bool
    default: false
  timeout_s:
    default: 30
  wait_s:
    description: Seconds until UFM must have what it was sent.
    type: int
    default: 60
seealso:
  - module: baremetal.dgx.fabric_verify
"""

EXAMPLES = r"""
- name: Add the partition of a tenant
  baremetal.dgx.ufm_partitions:
    url: https://ufm.example.org
    token: "{{ ufm_token }}"
    ca_certificate: "{{ lookup('ansible.builtin.file', 'site_ca.pem') }}"
    partitions:
      - name: tenant
        pkey: "0x0010"
        full: ["0xa088c20300e4a1b0", "0xa088c20300e4a1b4"]
"""

RETURN = r"""
requests:
  description: What was sent, or would be in check mode, a line each.
  returned: always
  type: list
  elements: str
  sample: ["add partition 0x10"]
release:
  description: UFM's release.
  returned: success
  type: str
  sample: 6.15.1-4
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._ufm.apply import (
    bring_about,
    ufm_options,
)

PARTITION_SPEC: dict[str, Any] = {
    "name": {"type": "str"},
    "pkey": {"type": "str", "required": True, "no_log": False},
    "state": {"choices": ["present", "absent"], "default": "present"},
    "ipoib": {"type": "bool", "default": False},
    "full": {"type": "list", "elements": "str", "default": []},
    "limited": {"type": "list", "elements": "str", "default": []},
}
ARGUMENT_SPEC: dict[str, Any] = {
    **ufm_options(timeout_s=30),
    "partitions": {"type": "list", "elements": "dict", "default": [], "options": PARTITION_SPEC},
    "removal_allowed": {"type": "bool", "default": False},
    "wait_s": {"type": "int", "default": 60},
}


def main() -> None:
    """Ask, compare, send, ask again, report."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
    )
    sent: list[str] = []
    with reported(module, lambda: {"requests": sent, "changed": bool(sent)}):
        result = bring_about(module.params, module.tmpdir, module.check_mode, sent)
    if not module._diff:
        result.pop("diff")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
