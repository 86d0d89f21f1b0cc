# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Local volumes over whole disks: from what the tools say to steps, or to refusals. Pure.

The rule that nothing may break: a disk that carries anything this role has not written is never
written to, whatever is consented to. Consent is only for volumes that the role has made itself.
Formats: lsblk(8) --json, mdadm(8) --detail --export, and labels that only this role gives.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any, Iterable, Iterator, Mapping, Sequence

MD, LVM, PLAIN = "md", "lvm", "plain"
# What is asked of lsblk for this. Without --all it hides what has no size, such as an array that
# lacks one of its members and holds the others.
LSBLK = (
    "lsblk", "--all", "--json", "--bytes", "--paths", "--tree", "--output",
    "NAME,KNAME,TYPE,SIZE,RO,MODEL,SERIAL,FSTYPE,LABEL,UUID,PARTTYPE,PTTYPE,MOUNTPOINTS",
)  # fmt: skip
# What wipefs calls tables of partitions.
_TABLES = ("gpt", "dos", "PMBR", "sun", "mac", "bsd", "sgi", "atari", "aix")
# A name of a whole disk that stays: neither of what is written on it, nor of a partition.
_STABLE = re.compile(r"/dev/disk/by-(id|path)/(?!.*-part\d+$)[^/]+$")
# What is asked of LVM.
PVS = ("pvs", "--reportformat", "json", "--options", "pv_name,vg_name,lv_count")
# xfs takes labels of twelve characters.
LABEL_MOST = 12
# What is cleared of a disk before it becomes a part of a volume. mdadm begins at up to 130 MiB, and
# LVM at 1 MiB: where an earlier volume began there, its file system would show in the new one, with
# the right type and label, and without what lay on a disk that was replaced.
_CLEARED = "1GiB"


@dataclass(frozen=True)
class Volume:
    """One volume as it must be. `disks` are stable names below /dev/disk; chunk in KiB."""

    name: str
    kind: str
    disks: tuple[str, ...]
    mountpoint: str
    label: str
    fstype: str = "xfs"
    chunk_kib: int = 512
    mkfs_options: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        """Return the device that carries the file system, unless it is a single disk."""
        return f"/dev/md/{self.name}" if self.kind == MD else f"/dev/{self.group}/{self.name}"

    @property
    def group(self) -> str:
        """Return the group of LVM that it is in."""
        return f"dgx-{self.name}"


@dataclass(frozen=True)
class Device:
    """A block device, and what lies on it or is built of it."""

    name: str
    kind: str
    size: int
    read_only: bool
    fstype: str
    label: str
    uuid: str
    table: str
    mounts: tuple[str, ...]
    model: str
    serial: str
    children: tuple[Device, ...] = ()

    def walk(self) -> Iterator[Device]:
        """Yield it and all that is built of it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class Array:
    """What mdadm reports about an array."""

    name: str
    level: str
    members: tuple[str, ...]
    state: str = ""


@dataclass(frozen=True)
class Step:
    """A command, and what it is for."""

    argv: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Outcome:
    """Steps or refusals of one volume; `device` carries its file system, in the end."""

    steps: tuple[Step, ...] = ()
    refused: tuple[str, ...] = ()
    device: str = ""


def devices(data: Mapping[str, Any]) -> list[Device]:
    """Return the devices of `lsblk --json --tree`; ValueError for what is none."""
    listed = data.get("blockdevices")
    if not isinstance(listed, list):
        raise ValueError("lsblk has listed no devices")
    return [_device(one) for one in listed]


def _device(data: Mapping[str, Any]) -> Device:
    mounts = data.get("mountpoints") or [data.get("mountpoint")]
    return Device(
        name=str(data["name"]),
        kind=str(data.get("type") or ""),
        size=int(data.get("size") or 0),
        # Older releases of lsblk say "0".
        read_only=data.get("ro") in (True, 1, "1"),
        fstype=str(data.get("fstype") or ""),
        label=str(data.get("label") or ""),
        uuid=str(data.get("uuid") or ""),
        table=str(data.get("pttype") or ""),
        mounts=tuple(str(one) for one in mounts if one),
        model=str(data.get("model") or "").strip(),
        serial=str(data.get("serial") or "").strip(),
        children=tuple(_device(one) for one in data.get("children") or ()),
    )


def signatures(text: str) -> list[dict[str, str]]:
    """Return what `wipefs --no-act --json` has found on a device; ValueError for no JSON.

    lsblk repeats what udev once noted, and calls a disk with data on it blank
    where udev has not looked. Only a probe of the disk itself can call it blank.
    """
    if not text.strip():
        return []
    listed = json.loads(text).get("signatures")
    if not isinstance(listed, list):
        raise ValueError("wipefs has listed no signatures")
    return [{str(key): str(value or "") for key, value in one.items()} for one in listed]


def probed(
    device: Device, found: Mapping[str, Sequence[Mapping[str, str]]], written: Iterable[str]
) -> Device:
    """Return a device with what probes have found on it, and on all that is built of it.

    Of several signatures the one that this role has not written counts; KeyError for a device that
    was not probed.
    """
    known = frozenset(written)
    signatures = list(found[device.name])
    tables = [one for one in signatures if one.get("type") in _TABLES]
    others = [one for one in signatures if one.get("type") not in _TABLES]
    children = tuple(probed(child, found, known) for child in device.children)
    device = replace(device, children=children)
    if tables:
        device = replace(device, table=tables[0]["type"])
    if others:
        foreign = [one for one in others if one.get("uuid", "") not in known]
        one = (foreign or others)[0]
        device = replace(
            device,
            fstype=one.get("type") or "something",
            label=one.get("label", ""),
            uuid=one.get("uuid", ""),
        )
    return device


def array(text: str) -> Array | None:
    """Return what `mdadm --detail --export` says; None for no array.

    The host's name before the colon is left out: an array may have been made under another.
    """
    reported = dict(
        line.partition("=")[::2] for line in text.splitlines() if "=" in line
    )  # fmt: skip
    if not reported.get("MD_LEVEL"):
        return None
    members = sorted(
        value for key, value in reported.items() if re.fullmatch(r"MD_DEVICE_\w+_DEV", key)
    )
    name = reported.get("MD_NAME", reported.get("MD_DEVNAME", ""))
    return Array(name.rpartition(":")[2], reported["MD_LEVEL"], tuple(members))


def empty_groups(text: str) -> dict[str, tuple[str, ...]]:
    """Return the groups without a volume, and the disks of each, of PVS; LookupError, ValueError.

    A disk that is missing is called [unknown].
    """
    found: dict[str, tuple[str, ...]] = {}
    for one in json.loads(text)["report"][0]["pv"]:
        group = str(one["vg_name"])
        if group and str(one["lv_count"]) == "0":
            found[group] = (*found.get(group, ()), str(one["pv_name"]))
    return found


def refusals(volumes: Sequence[Volume]) -> list[str]:
    """Return what is wrong with the declarations themselves."""
    messages = []
    for volume in volumes:
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,15}", volume.name):
            messages.append(f"{volume.name!r}: write a name of lower-case letters, digits, hyphens")
        if not volume.disks:
            messages.append(f"{volume.name}: no disks are declared")
        if volume.kind == PLAIN and len(volume.disks) > 1:
            messages.append(f"{volume.name}: a plain volume has one disk; write md or lvm")
        if len(volume.label) > LABEL_MOST:
            messages.append(
                f"{volume.name}: the label {volume.label} has more than {LABEL_MOST} characters"
            )
        unstable = [disk for disk in volume.disks if not _STABLE.match(disk)]
        if unstable:
            messages.append(
                f"{volume.name}: {', '.join(unstable)}: write names of disks below "
                "/dev/disk/by-id or by-path; others change from boot to boot, or are a "
                "part of a disk"
            )
    for what, values in (
        ("disk", [disk for volume in volumes for disk in volume.disks]),
        ("name", [volume.name for volume in volumes]),
        ("mount point", [volume.mountpoint for volume in volumes]),
        ("label", [volume.label for volume in volumes]),
    ):
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            messages.append(f"the {what} {', '.join(twice)} is declared twice")
    return messages


def plan(
    volume: Volume,
    paths: Mapping[str, str],
    found: Sequence[Device],
    arrays: Mapping[str, Array],
    written: Iterable[str],
    consent: bool,
    groups: Mapping[str, Sequence[str]],
) -> Outcome:
    """Return how a volume comes to be as declared.

    `paths` is stable name -> kernel's name of the disks that are there; `arrays` is by the name of
    the device; `written` are the UUIDs that this role has written before, as it noted them;
    `consent` allows to build again what the role has made itself, and has fallen apart; `groups`
    are the disks of LVM's groups without a volume.
    """
    missing = [disk for disk in volume.disks if disk not in paths]
    by_name = {device.name: device for device in found}
    disks = [by_name.get(paths[disk]) for disk in volume.disks if disk in paths]
    whole = [disk for disk in disks if disk is not None]
    if len({disk.name for disk in whole}) < len(whole):
        names = ", ".join(disk.name for disk in whole)
        return Outcome(refused=(f"{volume.name}: two names are the same disk: {names}",))
    ready = _carrier(volume, whole, arrays)
    if ready is not None and not missing:
        return _with_file_system(volume, ready, consent, frozenset(written))
    if missing or len(whole) < len(volume.disks):
        gone = missing or [disk for disk in volume.disks if paths.get(disk) not in by_name]
        message = f"{len(gone)} of {len(volume.disks)} disks are not there: {', '.join(gone)}"
        return Outcome(refused=(f"{volume.name}: {message}; nothing is done without them",))
    if _is_empty_group(volume, whole, groups):
        # What a killed run left: a group, but no volume yet.
        return Outcome(_in_group(volume, whole), device=volume.device)
    foreign = [line for disk in whole for line in _foreign(disk, frozenset(written))]
    if foreign:
        return Outcome(refused=tuple(f"{volume.name}: {line}" for line in foreign))
    ours = [disk for disk in whole if _is_marked(disk)]
    if ours and not consent:
        names = ", ".join(disk.name for disk in ours)
        message = (
            f"{names} carries parts of an earlier volume of this role, which is not as declared; "
            "local_storage_wipe: true builds it again, and destroys what is on it"
        )
        return Outcome(refused=(f"{volume.name}: {message}",))
    return Outcome(_make(volume, whole, ours), device=_target(volume, whole))


def _target(volume: Volume, disks: Sequence[Device]) -> str:
    return disks[0].name if volume.kind == PLAIN else volume.device


def _carrier(volume: Volume, disks: Sequence[Device], arrays: Mapping[str, Array]) -> Device | None:
    """Return the device that is built of exactly these disks, as declared."""
    names = {disk.name for disk in disks}
    if not disks:
        return None
    if volume.kind == PLAIN:
        return disks[0] if disks[0].fstype and disks[0].label == volume.label else None
    for child in disks[0].children:
        if volume.kind == MD:
            seen = arrays.get(child.name)
            if seen and seen.level == "raid0" and set(seen.members) == names:
                return child if seen.name == volume.name else None
        elif child.kind == "lvm" and all(
            child.name in {one.name for one in disk.children} for disk in disks
        ):
            wanted = f"dgx--{volume.name.replace('-', '--')}-{volume.name.replace('-', '--')}"
            return child if child.name.rpartition("/")[2] == wanted else None
    return None


def _is_empty_group(
    volume: Volume, disks: Sequence[Device], groups: Mapping[str, Sequence[str]]
) -> bool:
    """Return whether the group of the volume is over exactly these disks, with nothing else."""
    return (
        volume.kind == LVM
        and set(groups.get(volume.group, ())) == {disk.name for disk in disks}
        and all(disk.fstype == "LVM2_member" for disk in disks)
        and not any(disk.table or disk.children for disk in disks)
    )


def _with_file_system(
    volume: Volume, device: Device, consent: bool, written: frozenset[str]
) -> Outcome:
    if device.fstype == volume.fstype and device.label == volume.label:
        return Outcome(device=device.name)
    if not device.fstype and not device.children and not device.mounts:
        # What a killed run left: built, but not yet formatted.
        return Outcome((_mkfs(volume, device.name),), device=device.name)
    what = f"{device.name} carries {device.fstype or 'something'} labelled {device.label!r}"
    if device.mounts:
        return Outcome(refused=(f"{volume.name}: {what}, mounted on {device.mounts[0]}",))
    if device.uuid not in written:
        return Outcome(refused=(f"{volume.name}: {what}, which this role has not written",))
    if not consent:
        message = f"{what}, not {volume.fstype} {volume.label!r}"
        return Outcome(
            refused=(f"{volume.name}: {message}; local_storage_wipe: true builds it again",)
        )
    return Outcome((_mkfs(volume, device.name, over=True),), device=device.name)


def _is_marked(disk: Device) -> bool:
    return bool(disk.fstype or disk.table or disk.children)


def _foreign(disk: Device, written: frozenset[str]) -> Iterator[str]:
    """Yield why a disk must not be written to."""
    called = f"{disk.name} ({disk.model or 'no model'}, {disk.serial or 'no serial'})"
    if disk.kind not in ("disk", "loop"):
        yield f"{called} is a {disk.kind}, no whole disk"
    if disk.read_only:
        yield f"{called} is read only"
    for one in disk.walk():
        if one.mounts:
            yield f"{one.name} on {called} is mounted on {', '.join(one.mounts)}"
    if disk.table:
        yield f"{called} has a partition table ({disk.table}), which this role never writes"
    for one in disk.walk():
        if one.fstype and one.uuid not in written:
            label = f" labelled {one.label!r}" if one.label else ""
            yield (f"{called} carries {one.fstype}{label} ({one.uuid or 'no UUID'}), which this "
                   f"role has not written; look what it is, then wipefs it by hand")  # fmt: skip


def _make(volume: Volume, disks: Sequence[Device], ours: Sequence[Device]) -> tuple[Step, ...]:
    names = [disk.name for disk in disks]
    steps = []
    # From the top: an array whose parts are wiped below it would still be there. What is built of
    # several disks is listed with each of them.
    above = [one for disk in ours for one in reversed(list(disk.walk())) if one is not disk]
    for one in {one.name: one for one in above}.values():
        # An array that lacks a member has neither a size nor a level.
        if one.kind == "raid0" or not one.size:
            steps.append(Step(("mdadm", "--stop", one.name), "take the old array apart"))
        elif one.kind == "lvm":
            steps.append(Step(("lvremove", "--yes", one.name), "remove the old volume"))
    steps += [
        Step(("wipefs", "--all", disk.name), "an earlier volume of this role") for disk in ours
    ]
    if volume.kind != PLAIN:
        # Of blank disks, too: a run may have been killed after it wiped them. Last, since udev
        # assembles the array again when a disk is written to that still looks like a member.
        steps += [
            Step(("blkdiscard", "--zeroout", "--length", _CLEARED, name), "what lay further in")
            for name in names
        ]
    if volume.kind == MD:
        steps.append(Step(
            ("mdadm", "--create", volume.device, "--run", "--level=0", "--metadata=1.2",
             # Its own name would be another one after a rename.
             "--homehost=any", f"--name={volume.name}", f"--chunk={volume.chunk_kib}", "--force",
             f"--raid-devices={len(names)}", *names),
            f"RAID 0 over {len(names)} disks",
        ))  # fmt: skip
    elif volume.kind == LVM:
        group = ("vgcreate", "--yes", volume.group, *names)
        steps.append(Step(group, f"volume group over {len(names)} disks"))
        return (*steps, *_in_group(volume, disks))
    return (*steps, _mkfs(volume, _target(volume, disks)))


def _in_group(volume: Volume, disks: Sequence[Device]) -> tuple[Step, ...]:
    return (
        Step(
            ("lvcreate", "--yes", "--wipesignatures", "n", "--name", volume.name, "--stripes",
             str(len(disks)), "--stripesize", str(volume.chunk_kib), "--extents", "100%FREE",
             volume.group),
            "striped volume",
        ),
        _mkfs(volume, volume.device),
    )  # fmt: skip


def _mkfs(volume: Volume, device: str, over: bool = False) -> Step:
    """`over` destroys what is there."""
    force = ("-f" if volume.fstype == "xfs" else "-F",) if over else ()
    return Step(
        (f"mkfs.{volume.fstype}", *force, *volume.mkfs_options, "-L", volume.label, device),
        f"{volume.fstype} labelled {volume.label}",
    )


def uuids(device: str, found: Sequence[Device]) -> list[str]:
    """Return the UUIDs of a volume and of all that it is built of, to be noted as written."""
    ids = []
    for disk in found:
        below = list(disk.walk())
        if any(one.name == device for one in below):
            ids += [one.uuid for one in below if one.uuid]
    return sorted(set(ids))
