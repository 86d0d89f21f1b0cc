# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Mounts of one host compared with each other, and what must be reached through them. Pure."""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...module_utils._core.schema import Problem, words
from .._inventory.values import Value
from .networks import Network

# The variables that mount something; the first is shared, the second the node's own disks.
_SHARED, _LOCAL = "cephfs_mounts", "local_storage_volumes"
_FOLDERS = ("local_storage_folders", "node_health_disks")
# What health_warnings knows places by.
PLACES = frozenset((_SHARED, _LOCAL, *_FOLDERS))

# An address with or without a port: 10.1.2.31, 10.1.2.31:3300, [fd00::1]:3300, fd00::1.
_ADDRESS = re.compile(r"\[(?P<bracketed>[^]]+)\](:\d+)?|(?P<plain>[0-9.]+)(:\d+)?|(?P<bare>.*:.*)")


def _mounted(variables: Mapping[str, Value]) -> Iterator[tuple[str, str, str]]:
    """Yield variable, path and mountpoint of all that the host mounts."""
    for name in (_SHARED, _LOCAL):
        if name in variables:
            for index, item in enumerate(variables[name].value):
                place = item.get("mountpoint")
                if isinstance(place, str) and item.get("state", "present") != "absent":
                    yield name, f"{variables[name].path}[{index}]", posixpath.normpath(place)


def check_mounts(variables: Mapping[str, Value]) -> Iterator[Problem]:
    """Yield mounts on a place that another one has: the later covers the earlier."""
    seen: dict[str, str] = {}
    for _name, path, place in _mounted(variables):
        if place in seen:
            wrong = f"'{place}' is also the place of {seen[place]}"
            yield Problem(f"{path}.mountpoint", wrong, "write another place")
        seen.setdefault(place, path)


def login_warnings(variables: Mapping[str, Value], login: Value | None) -> Iterator[str]:
    """Yield that a mount may hide the key by which Ansible logs in.

    CephFS may hold that home and key, and sshd may read keys elsewhere: the host knows. Of whom
    node_base_users does not have, a directory may have home and keys.
    """
    if login is None or login.value == "root":
        return
    users = variables["node_base_users"].value if "node_base_users" in variables else ()
    if not all(isinstance(one, Mapping) and isinstance(one.get("name"), str) for one in users):
        # They come from a fact.
        return
    user = next((one for one in users if one["name"] == login.value), None)
    if user is None and (
        "identity_domain" in variables or _says(variables, "cluster_user_directory")
    ):
        return
    home = (user or {}).get("home") or f"/home/{login.value}"
    if not isinstance(home, str):
        return
    hidden = {posixpath.normpath(home), *_parents(posixpath.normpath(home))}
    for index, item in enumerate(variables[_SHARED].value if _SHARED in variables else ()):
        place = item.get("mountpoint")
        # Without over the host refuses what would hide files.
        if item.get("over") is True and isinstance(place, str) and item.get("state") != "absent":
            if posixpath.normpath(place) in hidden:
                yield (
                    f"{login.path}: {variables[_SHARED].path}[{index}] hides the home of "
                    f"'{login.value}', {home}, and a host on which that hides each key of "
                    f"'{login.value}' refuses the mount; write root, or another user with a home "
                    f"elsewhere in node_base_users, and bootstrap_user: {login.value}"
                )


def health_warnings(variables: Mapping[str, Value], others: Iterable[str] = ()) -> Iterator[str]:
    """Yield places that node health asks for and nothing of the inventory mounts.

    others are mount points of the site's own. With a type, or a folder below it, the site knows
    what is there, as /raid of DGX OS.
    """
    name = "node_health_mounts"
    if name not in variables or not _says(variables, "node_health_enabled"):
        return
    places = {place for _name, _path, place in _mounted(variables)}
    places.update(map(posixpath.normpath, others))
    for folders in _FOLDERS:
        for item in variables[folders].value if folders in variables else ():
            if isinstance(item.get("path"), str):
                folder = posixpath.normpath(item["path"])
                places.update((folder, *_parents(folder)))
    for index, item in enumerate(variables[name].value):
        path = item.get("path")
        if isinstance(path, str) and not item.get("fstype"):
            if posixpath.normpath(path) not in places:
                yield (
                    f"{variables[name].path}[{index}].path: nothing of the inventory mounts "
                    f"'{path}', and a node without it drains itself; remove it, or, where the site "
                    f"mounts it, write its fstype as `findmnt -no FSTYPE {path}` shows it, or its "
                    "path in cluster_validation.canary.mounts"
                )


def _address(text: str) -> str | None:
    """Return the address in the text; None for a host's name, which is not known here."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None:
        return None
    return found.group("bracketed") or found.group("plain") or found.group("bare")


def check_monitors(
    variables: Mapping[str, Value], networks: Mapping[str, Network], complete: bool
) -> Iterator[Problem]:
    """Yield monitors that are in none of the networks: clients find the others, until those die.

    complete says that all declared networks are among the given.
    """
    if "cephfs_monitors" not in variables:
        return
    value = variables["cephfs_monitors"]
    for index, text in enumerate(value.value):
        where = f"{value.path}[{index}]"
        if isinstance(text, str) and re.search(r"[,\s]", text.strip()):
            wrong = f"'{text}' is more than one monitor"
            yield Problem(where, wrong, "write each as an item of the list")
            continue
        given = _address(text) if isinstance(text, str) else None
        if given is None:
            continue
        try:
            address = ipaddress.ip_address(given)
        except ValueError:
            yield Problem(where, f"'{text}' is not an IP address", "write one like 10.1.2.31")
            continue
        nets = [network.net for network in networks.values()]
        if complete and not any(address.version == net.version and address in net for net in nets):
            wrong = f"{address} is in no network of cluster_networks"
            remedy = f"write an address in {words(networks)}, or add the network that it is in"
            yield Problem(where, wrong, remedy)


def _mounted_folders(variables: Mapping[str, Mapping[str, Value]]) -> set[tuple[str, str]]:
    """Return file system and folder of each mount of CephFS, on any host."""
    return {
        (item["fs"], posixpath.normpath(item.get("path") or "/"))
        for values in variables.values()
        if _SHARED in values
        for item in values[_SHARED].value
        if isinstance(item.get("path") or "/", str)
    }


def check_home_quotas(
    variables: Mapping[str, Mapping[str, Value]],
    administrators: Iterable[str],
    complete: bool = True,
) -> Iterator[Problem]:
    """Yield quotas of homes that no host would set, or that are of a folder without homes.

    variables are those of each host, administrators the hosts of storage_nodes. complete says that
    the mounts of all hosts are among them.
    """
    name = "cephfs_home_quotas"
    asked = {
        values[name].path: values[name] for values in variables.values() if _says(values, name)
    }
    setting = {
        variables[host][name].path
        for host in administrators
        if _says(variables.get(host, {}), name) and _says(variables[host], "cephfs_admin")
    }
    mounted = _mounted_folders(variables)
    for path, value in asked.items():
        if path not in setting:
            yield Problem(
                path,
                "only a host of storage_nodes with cephfs_admin: true sets quotas, and none has it",
                "write it and cephfs_admin: true in group_vars/storage_nodes",
            )
        for index, item in enumerate(value.value if complete else ()):
            if not (isinstance(item["fs"], str) and isinstance(item["path"], str)):
                # It comes from a fact.
                continue
            folder = posixpath.normpath(item["path"])
            above = {folder, *(_parents(folder))}
            if not any(fs == item["fs"] and place in above for fs, place in mounted):
                yield Problem(
                    f"{path}[{index}].path",
                    f"no host mounts '{folder}' of CephFS {item['fs']}, so that no home is there",
                    "write fs and path of the mount in cephfs_mounts that has the homes; on other "
                    "storage quotas are its own",
                )


def unknown_mounts(written: Mapping[str, Value], valid: Mapping[str, Value]) -> bool:
    """Return whether the host mounts something that is not known here, or is wrong."""
    return any(name in written and name not in valid for name in (_SHARED, _LOCAL))


def _says(values: Mapping[str, Value], name: str) -> bool:
    return name in values and bool(values[name].value)


def _parents(folder: str) -> Iterator[str]:
    while folder not in ("/", "."):
        folder = posixpath.dirname(folder) or "/"
        yield folder


def check_state_folder(
    variables: Mapping[str, Value], controllers: Sequence[str], others: Iterable[str] = ()
) -> Iterator[Problem]:
    """Yield that the stand-by controller would not find the state of the primary.

    others are mount points of the site's own.
    """
    name = "slurm_controller_state_save_location"
    value = variables.get(name)
    if len(controllers) < 2 or value is None or not isinstance(value.value, str):
        return
    folder = posixpath.normpath(value.value)
    above: list[tuple[str, str]] = [
        (place, kind)
        for kind, place in [
            *((kind, place) for kind, _path, place in _mounted(variables)),
            *((_SHARED, posixpath.normpath(place)) for place in others),
        ]
        if folder == place or folder.startswith(place.rstrip("/") + "/")
    ]
    if not above:
        whose = words(controllers, "and")
        wrong = f"'{folder}' is on no mount of the inventory, and {whose} must share it"
        remedy = (
            "write a folder below one of cephfs_mounts, or what the site mounts there as "
            "cluster_validation.canary.mounts, with groups: [slurm_controllers]"
        )
        yield Problem(value.path, wrong, remedy)
        return
    place, kind = max(above, key=lambda item: len(item[0]))
    if kind != _SHARED:
        wrong = f"'{folder}' is on {place}, a disk of each controller's own"
        remedy = f"write a folder that {words(controllers, 'and')} share"
        yield Problem(value.path, wrong, remedy)
