#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cephfs_client
short_description: Find out how a node can mount CephFS, and write its mounts down accordingly
description:
  - Checks whether the running kernel can mount CephFS, and which release of C(mount.ceph) there is.
    Then it turns each declared mount into one for M(baremetal.dgx.storage_mounts), for the kernel's
    client or for ceph-fuse.
  - A mount with driver V(auto) uses the kernel's client where there is one, and says why where
    there is none. A mount that insists on the kernel fails on a node that lacks it.
  - Nothing is changed, and no key is read.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: Nothing is changed.
  idempotent:
    support: full
options:
  mounts:
    description:
      - The mounts, as for the role cephfs (C(name), C(fs), C(path), C(mountpoint), C(client),
        C(driver), C(options), and what overrides O(common)).
    type: list
    elements: dict
    required: true
  driver:
    description: What mounts that do not say otherwise use.
    type: str
    choices: [auto, kernel, fuse]
    default: auto
  fsid:
    description: The cluster's id.
    type: str
    required: true
  monitors:
    description: Addresses of the monitors, with a port if it is not one of the usual ones.
    type: list
    elements: str
    required: true
  common:
    description: What all mounts have that do not say otherwise; C(ms_mode), C(recover_session),
      C(options), C(automount), C(before) and C(limit_s).
    type: dict
    required: true
  answer_s:
    description: Seconds that monitors have to take a connection on the ports that the mounts use.
      One that does not is a warning, since a mount needs one of them. V(0) asks none.
    type: float
    default: 0
  marker:
    description: Line by which a keyring that the role has written is recognised.
    type: str
    default: "# Managed by Ansible: baremetal.dgx"
"""

EXAMPLES = r"""
- name: See how this node mounts CephFS
  baremetal.dgx.cephfs_client:
    fsid: 0f2ad38e-6f3c-4d3f-9d65-b7cf4a2a9a10
    monitors: [10.0.0.31, 10.0.0.32, 10.0.0.33]
    mounts:
      - {name: home, fs: cephfs, path: /home, mountpoint: /home, client: node}
    common: {ms_mode: prefer-crc, recover_session: clean, options: [noatime], automount: false,
             before: [slurmd.service], limit_s: 90}
"""

RETURN = r"""
mounts:
  description: The mounts for M(baremetal.dgx.storage_mounts).
  returned: always
  type: list
  elements: dict
drivers:
  description: V(kernel) or V(fuse) by the name of the mount.
  returned: always
  type: dict
lines:
  description: One line for each mount, on what it uses and why, and one on monitors that take no
    connection.
  returned: always
  type: list
  elements: str
kernel:
  description: Whether the kernel can mount CephFS.
  returned: always
  type: bool
stale:
  description: Keyrings and secrets that the role has written for clients that no mount uses.
  returned: always
  type: list
  elements: str
keyed:
  description: Clients of the mounts that have a key on this node already.
  returned: always
  type: list
  elements: str
conf_monitors:
  description: C(mon_host) for C(ceph.conf).
  returned: always
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.cephfs_host import (
    client_of,
    write_down,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "mounts": {"type": "list", "elements": "dict", "required": True},
    "driver": {"type": "str", "choices": ["auto", "kernel", "fuse"], "default": "auto"},
    "fsid": {"type": "str", "required": True},
    "monitors": {"type": "list", "elements": "str", "required": True},
    "common": {"type": "dict", "required": True},
    "answer_s": {"type": "float", "default": 0},
    "marker": {"type": "str", "default": "# Managed by Ansible: baremetal.dgx"},
}


def main() -> None:
    """Look at the node, write the mounts down."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    with reported(module, None, ValueError):
        result = write_down(client_of(ModuleRunner(module)), module.params)
        for line in result.pop("warnings"):
            module.warn(line)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
