#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cephfs_authorize
short_description: Let clients into CephFS, with what they may do and no more
description:
  - A client that the cluster does not know is made with C(ceph fs authorize). One whose
    capabilities differ gets them with C(ceph auth caps), since C(fs authorize) refuses to change
    paths of a client that is there. Its key stays.
  - Clients that are not declared are never touched.
  - No key is ever part of a command line. The keys that the cluster has given are returned, so use
    C(no_log) on the task.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: The key of a client that would be made is not there yet.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  clients:
    description: The clients.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name without C(client.).
        type: str
        required: true
      grants:
        description: What it may do.
        type: list
        elements: dict
        required: true
        suboptions:
          fs:
            description: The file system.
            type: str
            required: true
          path:
            description: Folder in it that the grant is for.
            type: str
            default: /
          perms:
            description: V(r) or V(rw), then C(p) for quotas and layouts, then C(s) for snapshots.
            type: str
            default: rw
          root_squash:
            description: Whether root may change nothing.
            type: bool
            default: false
  admin:
    description: Name of the client that may do this.
    type: str
    default: admin
  timeout_s:
    description: Seconds one question to the cluster may take.
    type: float
    default: 30
"""

EXAMPLES = r"""
- name: Let the nodes in
  baremetal.dgx.cephfs_authorize:
    clients:
      - name: node
        grants:
          - {fs: cephfs, path: /home, perms: rw}
          - {fs: cephfs, path: /images, perms: r}
  no_log: true
"""

RETURN = r"""
client_keys:
  description: The key of each client.
  returned: always
  type: dict
steps:
  description: What was done, one line each, without keys.
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.cephfs_cluster import (
    Authorized,
    Cluster,
    authorize,
    require_perms,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "clients": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "name": {"type": "str", "required": True},
            "grants": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "fs": {"type": "str", "required": True},
                    "path": {"type": "str", "default": "/"},
                    "perms": {"type": "str", "default": "rw"},
                    "root_squash": {"type": "bool", "default": False},
                },
            },
        },
    },
    "admin": {"type": "str", "default": "admin"},
    "timeout_s": {"type": "float", "default": 30},
}


def main() -> None:
    """Look, make or change, look again."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, done = module.params, Authorized()
    with reported(module, {"steps": done.steps, "client_keys": done.keys}):
        require_perms(params["clients"])
        cluster = Cluster(ModuleRunner(module), params["admin"], params["timeout_s"])
        authorize(cluster, params["clients"], module.check_mode, done)
    module.exit_json(**done.as_result())


if __name__ == "__main__":
    main()
