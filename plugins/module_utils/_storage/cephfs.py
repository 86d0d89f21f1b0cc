# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""CephFS: clients, their configuration, capabilities, and folders with quotas. Pure.

Sources: mount.ceph(8), ceph-fuse(8), ceph(8), and the kernel's Documentation/filesystems/ceph.rst.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

KERNEL, FUSE, AUTO = "kernel", "fuse", "auto"
V1_PORT, V2_PORT = 6789, 3300
# mount.ceph of Quincy is the first that takes NAME@FSID.FS=/PATH.
_NEW_SYNTAX = 17
# Kernels before 5.11 speak version 1 of the protocol alone.
_MS_MODE_KERNEL = (5, 11)
_FOLDER = "/etc/ceph"


@dataclass(frozen=True)
class Client:
    """What a node has: `reason` says why there is (no) kernel client; `release` is mount.ceph's."""

    kernel: bool
    reason: str
    release: int = 0
    ms_mode: bool = True


def kernel_client(
    release: str, filesystems: str, modules: str, builtin: str, can_load: bool
) -> tuple[bool, str]:
    """Return whether the kernel can mount CephFS, and what proves it.

    `filesystems` is /proc/filesystems; `modules` and `builtin` are modules.dep and modules.builtin
    of the running kernel; `can_load` is false where a container may not load modules.
    """
    if re.search(r"(?m)\bceph$", filesystems):
        return True, f"kernel {release} has ceph loaded"
    if re.search(r"(?m)(^|/)ceph\.ko$", builtin):
        return True, f"kernel {release} has ceph built in"
    if not re.search(r"(?m)^\S*/ceph\.ko(\.\w+)?:", modules):
        return False, f"kernel {release} has no module ceph"
    if not can_load:
        return False, f"kernel {release} has a module ceph, but may not load it here"
    return True, f"kernel {release} has the module ceph"


def knows_ms_mode(release: str) -> bool:
    """Return whether a kernel release speaks version 2; vendors' older ones may have it, too."""
    found = re.match(r"(\d+)\.(\d+)", release)
    if found is None:
        return True
    # EL8 and EL9 patch it into 4.18 and 5.14.
    return (int(found[1]), int(found[2])) >= _MS_MODE_KERNEL or ".el" in release


def release_of(text: str) -> int:
    """Return the major release of `ceph-conf --version`, 0 where there is none."""
    found = re.search(r"ceph version (\d+)\.", text)
    return int(found.group(1)) if found else 0


def split_address(text: str) -> tuple[str, int]:
    """Return host and port (0 where none is written); ValueError for what is not an address."""
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:,/\[\]]+)(?::(\d{1,5}))?", text)
    if found is None:
        raise ValueError(f"monitor {text!r}: write ADDRESS or ADDRESS:PORT, IPv6 in brackets")
    port = int(found.group(2) or 0)
    if port > 65535:
        raise ValueError(f"monitor {text!r}: there is no port {port}")
    return found.group(1), port


def mon_addresses(monitors: Iterable[str], ms_mode: str) -> list[str]:
    """Return each monitor with the port that the protocol needs."""
    default = V1_PORT if ms_mode == "legacy" else V2_PORT
    return [f"{host}:{port or default}" for host, port in map(split_address, monitors)]


def ms_mode_of(mount: Mapping[str, Any], driver: str, client: Client, default: str) -> str:
    """Return how a mount speaks to the cluster; an old kernel speaks version 1 alone."""
    return str(mount.get("ms_mode") or default) if driver == FUSE or client.ms_mode else "legacy"


def conf_monitors(monitors: Iterable[str]) -> str:
    """Return mon_host of ceph.conf; where no port is written, both protocols."""
    addresses = []
    for host, port in map(split_address, monitors):
        if port in (0, V2_PORT):
            tail = "" if port else f",v1:{host}:{V1_PORT}"
            addresses.append(f"[v2:{host}:{V2_PORT}{tail}]")
        else:
            addresses.append(f"[{'v1' if port == V1_PORT else 'v2'}:{host}:{port}]")
    return ",".join(addresses)


def driver_of(mount: Mapping[str, Any], default: str, client: Client) -> str:
    """Return kernel or fuse for a mount."""
    wanted = mount.get("driver") or default
    if wanted == AUTO:
        return KERNEL if client.kernel else FUSE
    return str(wanted)


def keyring_path(client: str) -> str:
    """Return where the keyring of a client lies."""
    return f"{_FOLDER}/ceph.client.{client}.keyring"


def secret_path(client: str) -> str:
    """Return where the bare key of a client lies, which mount.ceph reads."""
    return f"{_FOLDER}/ceph.client.{client}.secret"


def render(
    mount: Mapping[str, Any],
    driver: str,
    client: Client,
    fsid: str,
    monitors: Sequence[str],
    common: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a mount as the module storage_mounts takes it.

    `mount` has name, fs, path, mountpoint, client and what overrides `common`: ms_mode,
    recover_session, options, automount, before, limit_s.
    """
    user, path = mount["client"], mount.get("path") or "/"
    settings = {**common, **{key: value for key, value in mount.items() if value is not None}}
    options = [*common.get("options", ()), *(mount.get("options") or ())]
    if mount.get("read_only"):
        options.append("ro")
    if driver == FUSE:
        what, fstype = "none", "fuse.ceph"
        first = [f"ceph.id={user}", f"ceph.client_fs={mount['fs']}"]
        if path != "/":
            first.append(f"ceph.client_mountpoint={path}")
        # What only the kernel's client knows is left out.
        options = [*first, *(word for word in options if not _kernel_only(word))]
        watch = [keyring_path(user)]
    else:
        fstype, watch = "ceph", [secret_path(user)]
        ms_mode = ms_mode_of(mount, driver, client, common["ms_mode"])
        addresses = mon_addresses(monitors, ms_mode)
        first = [f"secretfile={secret_path(user)}"]
        if ms_mode != "legacy":
            first.append(f"ms_mode={ms_mode}")
        if settings["recover_session"] != "no":
            first.append(f"recover_session={settings['recover_session']}")
        if client.release >= _NEW_SYNTAX:
            what = f"{user}@{fsid}.{mount['fs']}={path}"
            # Commas separate options, so that monitors are separated by slashes.
            options = [f"mon_addr={'/'.join(addresses)}", *first, *options]
        else:
            what = f"{','.join(addresses)}:{path}"
            options = [f"name={user}", f"mds_namespace={mount['fs']}", *first, *options]
    return {
        "name": mount["name"],
        "what": what,
        "where": mount["mountpoint"],
        "fstype": fstype,
        "options": list(dict.fromkeys(options)),
        "automount": bool(settings["automount"]),
        "before": list(settings["before"]),
        "watch": watch,
        "limit_s": int(settings["limit_s"]),
        "over": bool(mount.get("over")),
    }


def _kernel_only(option: str) -> bool:
    names = (
        "rasize", "rsize", "wsize", "ms_mode", "recover_session", "mount_timeout", "caps_max",
        "caps_wanted_delay_min", "caps_wanted_delay_max", "wsync", "nowsync", "fsc", "nocrc",
        "read_from_replica", "crush_location", "readdir_max_entries", "readdir_max_bytes",
        "noquotadf", "acl", "noacl", "noasyncreaddir", "dcache", "nodcache", "rbytes", "norbytes",
        "noshare", "cephfs_uuid",
    )  # fmt: skip
    return option.partition("=")[0] in names


def wanted_caps(grants: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the capabilities of a client, as `ceph fs authorize` makes them (ceph(8)).

    Each grant is {fs, path, perms}, such as perms rwp: p is for quotas and layouts, s for
    snapshots.
    """
    mds, osd, mon = [], [], []
    for grant in grants:
        fs, path, perms = grant["fs"], grant.get("path") or "/", grant["perms"]
        squash = " root_squash" if grant.get("root_squash") else ""
        place = "" if path == "/" else f" path={path}"
        mds.append(f"allow {perms} fsname={fs}{place}{squash}")
        mon.append(f"allow r fsname={fs}")
        osd.append(f"allow {'rw' if 'w' in perms else 'r'} tag cephfs data={fs}")
    # One may write what another grant lets it only read.
    writable = {text.rpartition("=")[2] for text in osd if text.startswith("allow rw")}
    osd = [
        text for text in osd
        if text.startswith("allow rw") or text.rpartition("=")[2] not in writable
    ]  # fmt: skip
    unique = {"mds": mds, "mon": mon, "osd": osd}
    return {kind: ", ".join(dict.fromkeys(texts)) for kind, texts in unique.items()}


def perms_problem(perms: str) -> str:
    """Return what is wrong with a grant's letters; empty when nothing is."""
    if not re.fullmatch(r"rw?p?s?", perms):
        return f"perms {perms!r}: write r or rw, then p, then s: their order counts"
    return ""


def same_caps(found: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Return whether two sets of capabilities are the same, whatever their order and spaces."""
    return {kind: _grants(text) for kind, text in found.items() if text} == {
        kind: _grants(text) for kind, text in wanted.items() if text
    }


def _grants(text: str) -> set[str]:
    return {" ".join(part.replace('"', "").split()) for part in text.split(",") if part.strip()}


QUOTAS = {"max_bytes": "ceph.quota.max_bytes", "max_files": "ceph.quota.max_files"}
# In the order in which they must be set: the pool first, then what must divide the object size.
LAYOUTS = ("pool", "object_size", "stripe_unit", "stripe_count")
LAYOUT_PREFIX = "ceph.dir.layout."


@dataclass(frozen=True)
class Folder:
    """A folder as found; `attributes` by full name, those that are not set are missing."""

    exists: bool
    mode: int = 0
    uid: int = -1
    gid: int = -1
    attributes: Mapping[str, str] | None = None


def wanted_attributes(folder: Mapping[str, Any]) -> dict[str, str]:
    """Return attribute -> value of what is declared; a quota of 0 is none."""
    found = {
        name: str(int(folder[key])) for key, name in QUOTAS.items() if folder.get(key) is not None
    }
    layout = folder.get("layout") or {}
    found.update(
        {LAYOUT_PREFIX + key: str(layout[key]) for key in LAYOUTS if layout.get(key) is not None}
    )
    return found


def changes(folder: Mapping[str, Any], found: Folder, uid: int, gid: int) -> dict[str, Any]:
    """Return what has to be done: make, mode, owner, attributes; empty when it is as declared.

    uid and gid are -1 where nothing is declared.
    """
    todo: dict[str, Any] = {}
    if not found.exists:
        todo["make"] = True
    mode = folder.get("mode")
    if mode is not None and (not found.exists or int(str(mode), 8) != found.mode):
        todo["mode"] = int(str(mode), 8)
    wanted = (uid if uid >= 0 else found.uid, gid if gid >= 0 else found.gid)
    if (uid >= 0 or gid >= 0) and (not found.exists or wanted != (found.uid, found.gid)):
        todo["owner"] = [uid, gid]
    there = found.attributes or {}
    wrong = {
        name: value
        for name, value in wanted_attributes(folder).items()
        # No quota at all is reported as 0, or as no such attribute.
        if there.get(name, "0" if name in QUOTAS.values() else None) != value
    }
    if wrong:
        todo["attributes"] = wrong
    return todo


def describe(path: str, todo: Mapping[str, Any]) -> str:
    """Return what is done to a folder, in a line."""
    changes_made = []
    if "make" in todo:
        changes_made.append("made")
    if "mode" in todo:
        changes_made.append(f"mode {todo['mode']:04o}")
    if "owner" in todo:
        changes_made.append("owner {}:{}".format(*todo["owner"]))
    changes_made += [f"{name}={value}" for name, value in todo.get("attributes", {}).items()]
    return f"{path}: {', '.join(changes_made)}"
