#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: local_volumes
short_description: Build scratch volumes of local disks, and never touch what somebody else wrote
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
        description: Where it is mounted, by somebody else.
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

import json
import os
import stat
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._mounts_host import read
from ansible_collections.baremetal.dgx.plugins.module_utils._run import ModuleRunner, ToolError
from ansible_collections.baremetal.dgx.plugins.module_utils._volumes import (
    LSBLK,
    Array,
    Device,
    Outcome,
    Volume,
    array,
    devices,
    plan,
    probed,
    refusals,
    signatures,
    uuids,
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
_STEP_S = 600
_ASK_S = 60


class Disks:
    """What the node has, asked anew each time."""

    def __init__(self, module: AnsibleModule) -> None:
        self.run = ModuleRunner(module)

    def devices(self) -> list[Device]:
        """Ask lsblk; ToolError when it does not answer with devices."""
        done = self.run(LSBLK, timeout_s=_ASK_S)
        try:
            if not done.ok:
                raise ValueError(done.describe(2))
            return devices(json.loads(done.out))
        except (ValueError, KeyError, TypeError) as error:
            raise ToolError(f"the disks are not known, and left alone: {error}") from error

    def probe(self, names: set[str], known: list[str]) -> list[Device]:
        """Return the devices, those of these disks as probes find them; ToolError without one."""
        found = []
        for disk in self.devices():
            if disk.name not in names:
                found.append(disk)
                continue
            said = {}
            for name in sorted({one.name for one in disk.walk()}):
                done = self.run(["wipefs", "--no-act", "--json", name], timeout_s=_ASK_S)
                try:
                    if not done.ok:
                        raise ValueError(done.describe(2))
                    said[name] = signatures(done.out)
                except (ValueError, AttributeError) as error:
                    raise ToolError(
                        f"{name} cannot be probed, and is left alone: {error}"
                    ) from error
            found.append(probed(disk, said, known))
        return found

    def arrays(self, found: list[Device]) -> dict[str, Array]:
        """Ask mdadm about each array."""
        names = {one.name for disk in found for one in disk.walk() if one.kind.startswith("raid")}
        said = {}
        for name in sorted(names):
            done = self.run(["mdadm", "--detail", "--export", name], timeout_s=_ASK_S)
            one = array(done.out) if done.ok else None
            if one is None:
                raise ToolError(
                    f"{name} is an array, of which mdadm says nothing: {done.describe(2)}"
                )
            said[name] = one
        return said


def resolve(names: list[str]) -> dict[str, str]:
    """Return stable name -> device of those that lead to one."""
    found = {}
    for name in names:
        path = os.path.realpath(name)
        try:
            if stat.S_ISBLK(os.stat(path).st_mode):
                found[name] = path
        except OSError:
            continue
    return found


def written(path: str) -> list[str]:
    """Return the UUIDs that were noted; ToolError when the notes cannot be read."""
    text = read(path)
    try:
        return [str(one) for one in json.loads(text)["uuids"]] if text else []
    except (ValueError, LookupError, TypeError) as error:
        raise ToolError(f"{path} cannot be read: {error}; without it nothing is written") from error


def keep(path: str, more: list[str]) -> None:
    """Add UUIDs to the notes."""
    known = sorted({*written(path), *more})
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with open(path + ".new", "w", encoding="ascii") as handle:
        json.dump({"uuids": known}, handle)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(path + ".new", path)


def outcome_of(disks: Disks, volume: Volume, params: dict[str, Any]) -> Outcome:
    """Plan one volume with what is there now."""
    paths, known = resolve(list(volume.disks)), written(params["notes"])
    found = disks.probe(set(paths.values()), known)
    return plan(volume, paths, found, disks.arrays(found), known, params["wipe"])


def make(disks: Disks, volume: Volume, planned: Outcome, params: dict[str, Any]) -> None:
    """Do the steps of one volume; ToolError at the first that fails."""
    if outcome_of(disks, volume, params) != planned:
        raise ToolError(f"{volume.name}: its disks have changed since they were looked at")
    for step in planned.steps:
        done = disks.run(list(step.argv), timeout_s=_STEP_S)
        if not done.ok:
            raise ToolError(f"{volume.name}: {step.why}: {done.describe(3)}")
        # Noted after each, so that what a killed run has written is known as ours.
        disks.run(["udevadm", "settle"], timeout_s=_ASK_S)
        own = set(resolve(list(volume.disks)).values())
        mine = [disk for disk in disks.probe(own, []) if disk.name in own]
        keep(params["notes"], sorted({uuid for disk in mine for one in disk.walk()
                                      for uuid in [one.uuid] if uuid}))  # fmt: skip


def main() -> None:
    """Plan all, then make; refuse all when one is refused."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    volumes = [
        Volume(**{**one, "disks": tuple(one["disks"]), "mkfs_options": tuple(one["mkfs_options"])})
        for one in params["volumes"]
    ]
    wrong = refusals(volumes)
    if wrong:
        module.fail_json(msg="\n".join(wrong))
    disks = Disks(module)
    steps: list[str] = []
    try:
        outcomes = {volume.name: outcome_of(disks, volume, params) for volume in volumes}
        wrong = [line for outcome in outcomes.values() for line in outcome.refused]
        steps = [
            f"{' '.join(step.argv)}  # {step.why}"
            for outcome in outcomes.values()
            for step in outcome.steps
        ]
        if wrong:
            module.fail_json(msg="\n".join(wrong), steps=[], devices={})
        if not module.check_mode:
            for volume in volumes:
                if outcomes[volume.name].steps:
                    make(disks, volume, outcomes[volume.name], params)
                elif outcomes[volume.name].device:
                    own = set(resolve(list(volume.disks)).values())
                    found = uuids(outcomes[volume.name].device, disks.probe(own, []))
                    if set(found) - set(written(params["notes"])):
                        keep(params["notes"], found)
    except ToolError as error:
        module.fail_json(msg=str(error), steps=steps)
    module.exit_json(
        changed=bool(steps),
        steps=steps,
        devices={name: outcome.device for name, outcome in outcomes.items()},
        diff={"before": "", "after": "".join(f"{line}\n" for line in steps)},
    )


if __name__ == "__main__":
    main()
