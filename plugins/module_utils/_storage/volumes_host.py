# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Local volumes on this host: what its disks hold, and the steps that make a volume."""

from __future__ import annotations

import glob
import json
import os
import re
import stat
from typing import Any, Sequence

from .._core.files import write_atomic
from .._core.run import CommandRunner, ToolError
from .mounts.read import read
from .volumes import (
    LSBLK,
    LVM,
    PVS,
    Array,
    Device,
    Outcome,
    Volume,
    array,
    devices,
    empty_groups,
    plan,
    probed,
    refusals,
    signatures,
    uuids,
)

# How udev names an NVMe disk by its place: address and number of the namespace.
_PLACE = re.compile(r"/dev/disk/by-path/pci-([0-9a-f:.]+)-nvme-(\d+)")
_STEP_S = 600
_ASK_S = 60


class Disks:
    """What the node has, asked again each time."""

    def __init__(self, run: CommandRunner) -> None:
        self.run = run

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
            reported: dict[str, list[dict[str, str]]] = {}
            # An array that lacks a member has no size, and nothing that could be read.
            above = {one.name for one in disk.walk() if one is not disk and not one.size}
            reported.update({name: [] for name in above})
            for name in sorted({one.name for one in disk.walk()} - above):
                done = self.run(["wipefs", "--no-act", "--json", name], timeout_s=_ASK_S)
                try:
                    if not done.ok:
                        raise ValueError(done.describe(2))
                    reported[name] = signatures(done.out)
                except (ValueError, AttributeError) as error:
                    raise ToolError(
                        f"{name} cannot be probed, and is left alone: {error}"
                    ) from error
            found.append(probed(disk, reported, known))
        return found

    def arrays(self, found: list[Device]) -> dict[str, Array]:
        """Ask mdadm about each array."""
        names = {
            one.name
            for disk in found
            for one in disk.walk()
            # Of one that lacks a member mdadm may print nothing.
            if one.kind.startswith("raid") and one.size
        }
        reported = {}
        for name in sorted(names):
            done = self.run(["mdadm", "--detail", "--export", name], timeout_s=_ASK_S)
            one = array(done.out) if done.ok else None
            if one is None:
                raise ToolError(
                    f"{name} is an array, about which mdadm prints nothing: {done.describe(2)}"
                )
            reported[name] = one
        return reported

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Ask LVM which groups have no volume, and which disks are theirs."""
        done = self.run(PVS, timeout_s=_ASK_S)
        try:
            if not done.ok:
                raise ValueError(done.describe(2))
            found = empty_groups(done.out)
        except (ValueError, LookupError, TypeError) as error:
            raise ToolError(f"LVM's groups are not known, and left alone: {error}") from error
        return {group: tuple(map(os.path.realpath, names)) for group, names in found.items()}


def disk_at(name: str, sysfs: str = "/sys") -> str:
    """Return the NVMe disk that a name below by-path means, by its PCI address; empty for none.

    A disk with two ports is below /sys/devices/virtual where nvme_core.multipath is on. Before 252
    udev gave such a one no name by its place (github.com/systemd/systemd/pull/24766), and not in
    all later releases either (issue 31535 there). The kernel calls its path nvme3c1n1, and the disk
    nvme3n1 (nvme_set_disk_name, drivers/nvme/host/multipath.c).
    """
    place = _PLACE.fullmatch(name)
    if place is None:
        return ""
    folder = os.path.join(sysfs, "bus/pci/devices", place.group(1), "nvme/nvme*/nvme*n*")
    for path in sorted(glob.glob(folder)):
        disk = re.sub(r"c\d+(?=n\d+$)", "", os.path.basename(path))
        if read(os.path.join(path, "nsid")).strip() == place.group(2):
            return f"/dev/{disk}"
    return ""


def resolve(names: list[str]) -> dict[str, str]:
    """Return stable name -> device of those that lead to one."""
    found = {}
    for name in names:
        path = os.path.realpath(name) if os.path.exists(name) else disk_at(name)
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
    write_atomic(path, json.dumps({"uuids": known}))


def outcome_of(disks: Disks, volume: Volume, params: dict[str, Any]) -> Outcome:
    """Plan one volume with what is there now."""
    paths, known = resolve(list(volume.disks)), written(params["notes"])
    names = set(paths.values())
    found = disks.probe(names, known)
    in_group = any(disk.name in names and disk.fstype == "LVM2_member" for disk in found)
    groups = disks.groups() if volume.kind == LVM and in_group else {}
    return plan(volume, paths, found, disks.arrays(found), known, params["wipe"], groups)


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


def volumes_of(data: Sequence[dict[str, Any]]) -> list[Volume]:
    """Return the volumes of the module's option; ToolError for what cannot be."""
    lists = ("disks", "mkfs_options")
    volumes = [Volume(**{**one, **{key: tuple(one[key]) for key in lists}}) for one in data]
    wrong = refusals(volumes)
    if wrong:
        raise ToolError("\n".join(wrong))
    return volumes


def plan_all(disks: Disks, volumes: Sequence[Volume], params: dict[str, Any]) -> dict[str, Outcome]:
    """Plan every volume; ToolError when one is refused."""
    outcomes = {volume.name: outcome_of(disks, volume, params) for volume in volumes}
    wrong = [line for outcome in outcomes.values() for line in outcome.refused]
    if wrong:
        raise ToolError("\n".join(wrong), devices={})
    return outcomes


def make_all(
    disks: Disks,
    volumes: Sequence[Volume],
    outcomes: dict[str, Outcome],
    params: dict[str, Any],
) -> None:
    """Make what is planned, and note what is there already; ToolError."""
    for volume in volumes:
        if outcomes[volume.name].steps:
            make(disks, volume, outcomes[volume.name], params)
        elif outcomes[volume.name].device:
            own = set(resolve(list(volume.disks)).values())
            found = uuids(outcomes[volume.name].device, disks.probe(own, []))
            if set(found) - set(written(params["notes"])):
                keep(params["notes"], found)
