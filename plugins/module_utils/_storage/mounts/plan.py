# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Mounts as they must be and as they are: units, fstab, the steps between, what errors mean. Pure.

Only units and fstab lines that carry the owner's label are ever changed or removed.
"""

from __future__ import annotations

import errno
import hashlib
import ipaddress
import posixpath
import re
import string
from dataclasses import dataclass, field
from typing import Iterable, Mapping, Sequence

from ..._core.mounts import GONE, Live, unescape

UNIT = "unit"
# In the order in which they are done: what goes, what comes.
REMOVE, REMOUNT, REVIVE, START = "remove", "remount", "revive", "start"

_PLAIN = frozenset(string.ascii_letters + string.digits + ":_.")
# By name; also where the disk is not there. Why a process was killed is none of them.
_GONE = frozenset(errno.errorcode[number] for number in (*GONE, errno.ENXIO))
# What the kernel shows of CephFS: USER@FSID.NAME=/PATH, or MONITORS:/PATH.
_CEPH = re.compile(r"([^@:/]*)@([^.]*)\.([^=]*)=(.*)")
_NFS = ("nfs", "nfs4")
_OF_CEPH = ("ceph", "fuse.ceph", "fuse.ceph-fuse")
# Types that are neither of a server nor of a device that the table names.
_OF_HOST = ("tmpfs", "overlay")
_OF_DISK = ("ext2", "ext3", "ext4", "xfs", "btrfs", *_OF_HOST)
# What mountinfo calls a type that a helper has mounted.
_LIVE_TYPES = {"fuse.ceph": "fuse.ceph-fuse"}
# Text of mount.ceph, ceph-fuse and the kernel, and what it means to the one who reads it.
_MEANINGS = (
    (r"not supported by the system|unknown filesystem type",
     "this kernel has no ceph module; write driver: fuse, or auto"),
    (r"unable to find a keyring|error reading secret file|secret is not valid base64",
     "the key does not lie where it should, or is none; see cephfs_keys"),
    # ceph-fuse reports of a wrong key only that it knows no other way to log in.
    (r"mount error 13|\(13\) Permission denied|mount error 1 |not permitted|handle_auth_bad_method",
     "the cluster refuses the key or the path; compare `ceph auth get client.NAME`"),
    (r"mount error 2 |\(2\) No such file|No such file or directory",
     "the path is not in the file system, or there is no file system of this name"),
    (r"no mds|mount error 113|mds is up|laggy",
     ("no metadata server is active; see `ceph fs status`. A kernel client that speaks version 1 "
      "to a cluster of version 2 says the same: see ms_mode")),
    (r"timed out|Timeout|mount error 110|\(110\)|mount error 5 |failed to fetch mon config",
     "no monitor answers; is the storage network up, are addresses and ports right?"),
    (r"fuse: device not found|/dev/fuse", "there is no /dev/fuse; load the module fuse"),
)  # fmt: skip


@dataclass(frozen=True)
class Mount:
    """One mount as it must be; `what` is what mount(8) gets first, `fstype` its type.

    `watch` are files that the mount is made with, such as its key; `limit_s` is how long mounting
    may take in seconds; `over` allows to hide files of the folder below.
    """

    name: str
    what: str
    where: str
    fstype: str
    options: tuple[str, ...] = ()
    automount: bool = False
    before: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    watch: tuple[str, ...] = ()
    limit_s: int = 90
    network: bool = True
    over: bool = False


@dataclass(frozen=True)
class Seen:
    """What is known of one mount point.

    `dead` is an errno's name, "hang", or why nothing is known; empty is well. `device` is the
    number of the declared device, empty where none is there. `login` is the file in the folder
    below that admits the user of this connection, empty for none.
    """

    live: Live | None = None
    applied: str = ""
    dead: str = ""
    users: tuple[str, ...] = ()
    hides: int = 0
    automount: bool = False
    device: str = ""
    login: str = ""


@dataclass(frozen=True)
class Step:
    """One thing to do with a mount point."""

    action: str
    where: str
    why: str


@dataclass(frozen=True)
class Plan:
    """Steps, what is refused, what waits for its users to go, and what hangs."""

    steps: tuple[Step, ...] = ()
    refused: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    hung: tuple[str, ...] = ()
    kept: frozenset[str] = field(default_factory=frozenset)


def escape(path: str) -> str:
    r"""Return the name of a path in units: /mnt/a-b is mnt-a\x2db (systemd.unit(5))."""
    words = [word for word in path.split("/") if word]
    if not words:
        return "-"
    text = "/".join(words)
    parts = []
    for place, char in enumerate(text):
        if char == "/":
            parts.append("-")
        elif char in _PLAIN and not (char == "." and place == 0):
            parts.append(char)
        else:
            parts.extend(f"\\x{byte:02x}" for byte in char.encode())
    return "".join(parts)


def unit_of(where: str, kind: str = "mount") -> str:
    """Return the unit of a mount point."""
    return f"{escape(where)}.{kind}"


def mark(owner: str) -> str:
    """Return the line that says whose file it is."""
    return f"# Managed by Ansible: baremetal.dgx, mounts of {owner}. Do not edit."


def owner_of(text: str) -> str:
    """Return whose mount a unit is; empty for any other."""
    found = re.match(r"# Managed by Ansible: baremetal\.dgx, mounts of (\S+)\. Do not edit\.", text)
    return found.group(1) if found else ""


def where_of(text: str) -> str:
    """Return the mount point that a unit's text names."""
    found = re.search(r"(?m)^Where=(.+)$", text)
    return found.group(1) if found else ""


def _percent(text: str) -> str:
    # A percent sign begins a specifier in units.
    return text.replace("%", "%%")


def wanted_by(mount: Mount) -> list[str]:
    """Return the units that bring a mount up at a boot.

    A device does, too: an array that is there only after the time in which the boot waits for it
    would otherwise stay unmounted until the next one.
    """
    if mount.network:
        return ["remote-fs.target"]
    late = mount.what.startswith("/dev/") and not mount.automount
    return ["local-fs.target", *([unit_of(mount.what, "device")] if late else [])]


def units(owner: str, mount: Mount) -> dict[str, str]:
    """Return the unit files of a mount, by name."""
    lines = [mark(owner), "[Unit]", f"Description=Mount {mount.name} of {owner} (baremetal.dgx)"]
    if mount.network:
        lines += ["Wants=network-online.target", "After=network-online.target"]
    if mount.requires:
        lines += [f"Requires={' '.join(mount.requires)}", f"After={' '.join(mount.requires)}"]
    before = mount.before
    if mount.network and not mount.automount:
        # The kernel's table does not show _netdev, so that systemd takes a mount by ceph-fuse for a
        # local one as soon as it is there, and drops its default ordering: remote-fs.target would
        # wait for it forever, and slurmd with it. Ordering that the unit itself has remains.
        before = (*before, "remote-fs.target")
    if before:
        lines.append(f"Before={' '.join(before)}")
    lines += ["", "[Mount]", f"What={_percent(mount.what)}", f"Where={_percent(mount.where)}"]
    lines.append(f"Type={mount.fstype}")
    options = ("_netdev", *mount.options) if mount.network else mount.options
    if options:
        lines.append(f"Options={_percent(','.join(options))}")
    lines.append(f"TimeoutSec={mount.limit_s}")
    install = ["", "[Install]", f"WantedBy={' '.join(wanted_by(mount))}"]
    files = {unit_of(mount.where): "\n".join(lines + ([] if mount.automount else install)) + "\n"}
    if mount.automount:
        lines = [mark(owner), "[Unit]", f"Description=Mount {mount.name} when it is used"]
        if mount.before:
            lines.append(f"Before={' '.join(mount.before)}")
        lines += ["", "[Automount]", f"Where={_percent(mount.where)}", *install]
        files[unit_of(mount.where, "automount")] = "\n".join(lines) + "\n"
    return files


def _fstab_word(text: str) -> str:
    # fstab(5): a space and its like are written in octal.
    return "".join(f"\\{ord(char):03o}" if char in " \t\n\\#" else char for char in text)


def fstab_line(mount: Mount) -> str:
    """Return the line of fstab for a mount."""
    options = ["_netdev", "nofail"] if mount.network else ["nofail"]
    options += mount.options
    options.append(f"x-systemd.mount-timeout={mount.limit_s}")
    if mount.automount:
        options.append("x-systemd.automount")
    options += [f"x-systemd.before={unit}" for unit in mount.before]
    options += [f"x-systemd.requires={unit}" for unit in mount.requires]
    words = (mount.what, mount.where, mount.fstype, ",".join(options))
    return " ".join(_fstab_word(word) for word in words) + " 0 0"


def _markers(owner: str) -> tuple[str, str]:
    return f"# BEGIN baremetal.dgx {owner}", f"# END baremetal.dgx {owner}"


def _parted(owner: str, text: str) -> tuple[list[str], list[str]]:
    """Return the lines of the owner's block of fstab, and all others.

    ValueError for a block without its end: which lines below are those of others is not known.
    """
    begin, end = _markers(owner)
    block: list[str] = []
    others: list[str] = []
    inside = False
    for line in text.splitlines():
        if inside and line.startswith("# BEGIN "):
            break
        if line == begin:
            inside = True
        elif inside and line == end:
            inside = False
        else:
            (block if inside else others).append(line)
    if inside:
        raise ValueError(
            f"/etc/fstab: {begin} without the line {end}; write it below the last mount of {owner}"
        )
    return block, others


def fstab(owner: str, text: str, mounts: Sequence[Mount]) -> str:
    """Return fstab with the owner's block as it must be; every other line stays. ValueError."""
    begin, end = _markers(owner)
    _block, kept = _parted(owner, text)
    if mounts:
        kept += [begin, *(fstab_line(mount) for mount in mounts), end]
    return "\n".join(kept) + "\n" if kept else ""


def fstab_owned(owner: str, text: str) -> dict[str, str]:
    """Return mount point -> line of the owner's block of fstab. ValueError."""
    lines, _others = _parted(owner, text)
    return {unescape(line.split()[1]): line for line in lines if len(line.split()) > 1}


def digest(mount: Mount, watched: Mapping[str, str]) -> str:
    """Return what a live mount is recognised by: its definition and the files it was made with."""
    parts = (mount.what, mount.where, mount.fstype, mount.options, mount.network)
    files = [(path, watched.get(path, "")) for path in mount.watch]
    return hashlib.sha256(repr((parts, files)).encode()).hexdigest()


def same_kind(mount: Mount, live: Live) -> bool:
    """Return whether what is mounted is of the declared type."""
    return live.fstype in (mount.fstype, _LIVE_TYPES.get(mount.fstype))


def _folder(path: str) -> str:
    return "/" + posixpath.normpath(f"/{path}").lstrip("/")


def _ceph(source: str, options: str = "", root: str = "") -> tuple[str, ...]:
    """Return user, cluster, file system and path, those that a source of CephFS shows.

    One that begins with monitors has the file system among the options.
    """
    found = _CEPH.fullmatch(source)
    if found:
        user, fsid, name, path = found.groups()
        return user, fsid, name, _folder(path + root)
    words = dict(word.partition("=")[::2] for word in options.split(","))
    _monitors, begun, path = source.partition(":/")
    name = words.get("mds_namespace") or words.get("fs", "")
    return "", "", name, _folder(path + root) if begun else ""


def _same_server(one: str, other: str) -> bool:
    """Return whether two names or addresses are of one server; a name and an address may be."""
    given = [text.strip("[]").rstrip(".").lower() for text in (one, other)]
    addresses = []
    for text in given:
        try:
            addresses.append(ipaddress.ip_address(text.partition("%")[0]))
        except ValueError:
            continue
    if addresses:
        return len(addresses) == 1 or addresses[0] == addresses[1]
    short = [text.partition(".")[0] for text in given]
    # One without its domain may be any of that name.
    return given[0] == given[1] or (short[0] == short[1] and any(word in short for word in given))


def _same_export(what: str, source: str) -> bool:
    """Return whether two sources of NFS are one; of several servers, one is mounted."""
    if what.count(":/") > 1:
        return any(_same_export(one, source) for one in what.split(","))
    (servers, known, path), (server, begun, there) = what.partition(":/"), source.partition(":/")
    if not (known and begun):
        return True
    return _folder(path) == _folder(there) and any(
        _same_server(one, server) for one in servers.split(",")
    )


def same_source(what: str, live: Live, device: str) -> bool:
    """Return whether what is mounted comes from where it is declared, as far as that shows.

    `what` is what mount(8) gets.
    The number of the declared device is empty where it is not there. Of btrfs and FUSE the
    number is none of a device; it has the major 0.
    """
    if _CEPH.fullmatch(what) and live.fstype not in _OF_CEPH:
        return False
    if ":/" in what and live.fstype in _OF_DISK:
        return False
    if what.startswith("/dev/") and device and live.fstype in (*_OF_CEPH, *_NFS, *_OF_HOST):
        return False
    if live.fstype == "ceph":
        pairs = zip(_ceph(what), _ceph(live.source, live.options, live.root))
        return all(one == other for one, other in pairs if one and other)
    if live.fstype in _NFS:
        return _same_export(what, live.source)
    return not device or live.number.startswith("0:") or live.number == device


def plan(
    wanted: Sequence[Mount],
    owned: Iterable[str],
    seen: Mapping[str, Seen],
    digests: Mapping[str, str],
    login: str = "",
) -> Plan:
    """Return the steps from what was seen to what is wanted.

    `owned` are the mount points that the owner has units or lines for; `digests` is by mount point.
    Nothing that is in use is taken away, and nothing that hangs is touched.
    """
    steps: list[Step] = []
    refused: list[str] = []
    pending: list[str] = []
    hung: list[str] = []
    kept = set()
    owned = frozenset(owned)
    declared = {mount.where for mount in wanted}
    # What lies inside another goes first.
    for where in sorted(owned - declared, key=lambda path: (-path.count("/"), path)):
        at = seen.get(where, Seen())
        if at.live is not None and at.users:
            refused.append(f"{where} is no longer declared, but in use by {users_text(at.users)}")
            kept.add(where)
        elif at.live is not None and at.dead and at.dead not in _GONE:
            refused.append(f"{where} is no longer declared, but does not answer ({at.dead}): its "
                           "users are not known")  # fmt: skip
            kept.add(where)
        else:
            steps.append(Step(REMOVE, where, "no longer declared"))
    for mount in sorted(wanted, key=lambda one: (one.where.count("/"), one.where)):
        at = seen.get(mount.where, Seen())
        if at.live is None:
            if at.hides and not mount.over:
                refused.append(
                    f"{mount.where} holds {at.hides} files or folders, which a mount would hide; "
                    "move them away, or write over: true"
                )
            elif at.login:
                other = (
                    "where CephFS has the key, too, write cephfs_login_hidden_allowed: true"
                    if mount.fstype in _OF_CEPH
                    else "or write another mountpoint"
                )
                refused.append(
                    f"{mount.where} would hide {at.login}, by which {login} logs in here; log in "
                    "as root, or as another user whose home is elsewhere, whom bootstrap admits; "
                    f"{other}"
                )
            elif not (mount.automount and at.automount):
                steps.append(Step(START, mount.where, "not mounted"))
        elif mount.where not in owned and not (
            same_kind(mount, at.live) and same_source(mount.what, at.live, at.device)
        ):
            refused.append(
                f"{mount.where} is a foreign mount: {at.live.source} "
                f"({at.live.fstype}); unmount it, and take it out of what mounts it"
            )
        elif at.dead == "hang":
            hung.append(mount.where)
        elif at.dead in _GONE:
            steps.append(Step(REVIVE, mount.where, at.dead))
        elif at.dead:
            refused.append(
                f"{mount.where} was left alone, since it is not known whether it answers: {at.dead}"
            )
        elif at.applied and at.applied != digests[mount.where]:
            if at.users:
                pending.append(
                    f"{mount.where} is mounted as it was declared before, in use by "
                    f"{users_text(at.users)}; the next mount will be the new one"
                )
            else:
                steps.append(Step(REMOUNT, mount.where, "declared otherwise now"))
    return Plan(tuple(steps), tuple(refused), tuple(pending), tuple(hung), frozenset(kept))


def users_text(users: Sequence[str], most: int = 8) -> str:
    """Return who uses a mount, in words."""
    more = f" and {len(users) - most} more" if len(users) > most else ""
    return ", ".join(users[:most]) + more


def meaning(text: str) -> str:
    """Return what a failed mount means; empty when its text is unknown."""
    for pattern, message in _MEANINGS:
        if re.search(pattern, text):
            return message
    return ""


def inside(path: str, where: str) -> bool:
    """Return whether a path is the mount point, or below it."""
    return path == where or path.startswith(where.rstrip("/") + "/")
