#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: storage_mounts
short_description: Keep the mounts of one owner as declared, and never hang on a dead one
description:
  - Writes mount units (and automount units), or a block of C(/etc/fstab), and mounts what is not
    mounted. Other units and lines are never touched.
  - A mount that the owner has made and that is no longer declared is unmounted and removed. While
    a process uses it that is refused, with the names of the processes.
  - A mount that is declared otherwise now is mounted again if it is not in use. Otherwise it stays
    as it is until its next mount, which O(ignore:pending) tells.
  - A mount whose daemon is gone (C(ENOTCONN), as a killed ceph-fuse leaves it) is taken away and
    mounted again. One that hangs is left alone and named; its server must come back.
  - What would hide each file with keys of the user of this SSH connection is not mounted, as far as
    sshd says where they are (C(sshd -T)).
  - Whatever asks a mount does so in a child process with a time limit, so that a dead mount can
    hold neither the task nor the play.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  owner:
    description: Whose mounts they are, as a word. Only what carries this name is removed.
    type: str
    required: true
  mounts:
    description: The mounts; an empty list removes all that the owner has.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: What it is called in messages.
        type: str
        required: true
      what:
        description: What is mounted.
        type: str
        required: true
      where:
        description: The mount point; made where it is missing.
        type: path
        required: true
      fstype:
        description: Type of the file system, as for C(mount -t).
        type: str
        required: true
      options:
        description: Options. C(_netdev) is added to mounts of the network. No secrets belong here.
        type: list
        elements: str
        default: []
      automount:
        description: Whether it is only mounted on access.
        type: bool
        default: false
      before:
        description: Units that start after it, such as C(slurmd.service).
        type: list
        elements: str
        default: []
      requires:
        description: Units that must be up before it.
        type: list
        elements: str
        default: []
      watch:
        description: Files that it is made with, such as its key; a change mounts it again.
        type: list
        elements: path
        default: []
      limit_s:
        description: Seconds that mounting may take.
        type: int
        default: 90
      network:
        description: Whether it comes over the network, and therefore waits for it.
        type: bool
        default: true
      over:
        description: Whether it may hide files that are in its mount point.
        type: bool
        default: false
  style:
    description: Where the mounts are written down; the other place is cleared of them.
    type: str
    choices: [unit, fstab]
    default: unit
  keep_login:
    description:
      - Whether a mount is refused that hides each key of the user who has logged in here.
    type: bool
    default: true
  answer_s:
    description: Seconds after which a mount that does not answer counts as one that hangs.
    type: float
    default: 10
seealso:
  - module: baremetal.dgx.mount_check
notes:
  - Only for Linux with systemd.
"""

EXAMPLES = r"""
- name: Mount the shared file systems
  baremetal.dgx.storage_mounts:
    owner: cephfs
    mounts:
      - name: home
        what: node@.cephfs=/home
        where: /home
        fstype: ceph
        options: [mon_addr=10.0.0.31:3300, ms_mode=prefer-crc, noatime]
        before: [slurmd.service]
"""

RETURN = r"""
steps:
  description: What was done, or in check mode would be, one line each.
  returned: always
  type: list
  elements: str
pending:
  description: Mounts that stay as they were declared before until those who use them are gone.
  returned: always
  type: list
  elements: str
refused:
  description: What was not done, and why.
  returned: always
  type: list
  elements: str
hung:
  description: Mount points that do not answer. Nothing was done to them.
  returned: always
  type: list
  elements: str
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._host.accounts.apply import (
    key_files,
    login_user,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.mounts.apply import bring_about

ARGUMENT_SPEC: dict[str, Any] = {
    "owner": {"type": "str", "required": True},
    "mounts": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "name": {"type": "str", "required": True},
            "what": {"type": "str", "required": True},
            "where": {"type": "path", "required": True},
            "fstype": {"type": "str", "required": True},
            "options": {"type": "list", "elements": "str", "default": []},
            "automount": {"type": "bool", "default": False},
            "before": {"type": "list", "elements": "str", "default": []},
            "requires": {"type": "list", "elements": "str", "default": []},
            "watch": {"type": "list", "elements": "path", "default": []},
            "limit_s": {"type": "int", "default": 90},
            "network": {"type": "bool", "default": True},
            "over": {"type": "bool", "default": False},
        },
    },
    "style": {"type": "str", "choices": ["unit", "fstab"], "default": "unit"},
    "keep_login": {"type": "bool", "default": True},
    "answer_s": {"type": "float", "default": 10},
}


def main() -> None:
    """Look, plan, apply, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    with reported(module, None, ValueError):
        run, login = ModuleRunner(module), login_user(os.environ)
        known = key_files(run, login) if module.params["keep_login"] and login != "root" else None
        keys = [path for path, count in (known or {}).items() if count]
        result = bring_about(module, run, login, keys)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
