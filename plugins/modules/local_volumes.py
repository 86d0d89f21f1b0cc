#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: local_volumes
short_description: Build scratch volumes of local disks, and never touch what others wrote
description:
  - Builds an md RAID 0, a striped LVM volume or a single disk, with a file system, from disks that
    are named by stable names. What is there as declared is left alone.
  - A disk that carries a partition table, a file system, a RAID or LVM member or anything else that
    this module has not written is never written to, with or without consent. What the module has
    written is known by its UUIDs, which it keeps in O(notes).
  - Consent (O(wipe)) is for volumes that the module has made itself, and that are no longer as
    declared, for instance since a disk was replaced.
  - Disks are probed (C(wipefs --no-act)), since C(lsblk) calls a disk blank that udev has not
    looked at.
  - All volumes are planned before anything is written, and each disk is looked at again
    immediately before its first step.
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
  volumes:
    description: The volumes.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Its name; also that of the array or volume group.
        type: str
        required: true
      kind:
        description: How the disks are put together.
        type: str
        choices: [md, lvm, plain]
        default: md
      disks:
        description: Names below C(/dev/disk/by-id) or C(/dev/disk/by-path).
        type: list
        elements: path
        required: true
      mountpoint:
        description: Where another role or program mounts it.
        type: path
        required: true
      label:
        description: Label of the file system, of twelve characters at most.
        type: str
        required: true
      fstype:
        description: The file system.
        type: str
        choices: [xfs, ext4]
        default: xfs
      chunk_kib:
        description: KiB that go to one disk before the next.
        type: int
        default: 512
      mkfs_options:
        description: Options of mkfs.
        type: list
        elements: str
        default: []
  wipe:
    description: Consent to destroy volumes that this module has made, and that are not as declared.
    type: bool
    default: false
  notes:
    description: Where it is kept what this module has written.
    type: path
    default: /var/lib/baremetal-dgx/local_volumes.json
"""

EXAMPLES = r"""
- name: Build scratch of two disks
  baremetal.dgx.local_volumes:
    volumes:
      - name: scratch
        disks: [/dev/disk/by-id/nvme-eui.0001, /dev/disk/by-id/nvme-eui.0002]
        mountpoint: /scratch
        label: dgx-scratch
"""

RETURN = r"""
devices:
  description: Device of each volume by its name; it exists once the module has run.
  returned: always
  type: dict
steps:
  description: The commands, done or in check mode to be done, with what they are for.
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.volumes_host import (
    Disks,
    make_all,
    plan_all,
    volumes_of,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "volumes": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "name": {"type": "str", "required": True},
            "kind": {"type": "str", "choices": ["md", "lvm", "plain"], "default": "md"},
            "disks": {"type": "list", "elements": "path", "required": True},
            "mountpoint": {"type": "path", "required": True},
            "label": {"type": "str", "required": True},
            "fstype": {"type": "str", "choices": ["xfs", "ext4"], "default": "xfs"},
            "chunk_kib": {"type": "int", "default": 512},
            "mkfs_options": {"type": "list", "elements": "str", "default": []},
        },
    },
    "wipe": {"type": "bool", "default": False},
    "notes": {"type": "path", "default": "/var/lib/baremetal-dgx/local_volumes.json"},
}


def main() -> None:
    """Plan all, then make; refuse all when one is refused."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, disks = module.params, Disks(ModuleRunner(module))
    steps: list[str] = []
    with reported(module, {"steps": steps}):
        volumes = volumes_of(params["volumes"])
        outcomes = plan_all(disks, volumes, params)
        planned = (step for outcome in outcomes.values() for step in outcome.steps)
        steps += [f"{' '.join(step.argv)}  # {step.why}" for step in planned]
        if not module.check_mode:
            make_all(disks, volumes, outcomes, params)
    module.exit_json(
        changed=bool(steps),
        steps=steps,
        devices={name: outcome.device for name, outcome in outcomes.items()},
        diff={"before": "", "after": "".join(f"{line}\n" for line in steps)},
    )


if __name__ == "__main__":
    main()
