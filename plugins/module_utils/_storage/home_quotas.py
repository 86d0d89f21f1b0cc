# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Quotas of homes on a CephFS, by the groups that their people are in.

A home is made at a login, on any host. Clients there may not set quotas: with that right, users
could lift their own. So this is a program of the host that administrates the file system, and a
timer runs it. The largest quota of a person's groups holds, the primary one included; who is in
none of them, and whose group is empty or unknown since no directory answers, keeps the quota that
is there.
"""

from __future__ import annotations

import argparse
import grp
import json
import pwd
import stat
import sys
from typing import Any, Callable, Iterator, Mapping, Sequence

from .cephfs import QUOTAS
from .cephfs_folders import connect

CONFIG = "/etc/baremetal-dgx/home-quotas.json"
_KEYS = ("client", "quotas", "version")
_QUOTA_KEYS = ("fs", "path", "group", *QUOTAS)
# As grp and pwd return them; LookupError for what this host does not know.
Group = Callable[[str], Any]
Person = Callable[[str], Any]


def read_config(stored: str) -> dict[str, Any]:
    """Return the configuration; ValueError says what is wrong with it."""
    data = json.loads(stored)
    if not isinstance(data, dict) or data.get("version") != 1 or sorted(data) != sorted(_KEYS):
        raise ValueError(f"must have version 1, and {', '.join(_KEYS)}")
    for one in data["quotas"]:
        if not {"fs", "path", "group"} <= set(one) <= set(_QUOTA_KEYS):
            raise ValueError(f"quotas: {one}: must have fs, path, group, and may have max_*")
    return data


def group_of(name: str) -> grp.struct_group:
    """Return a group; LookupError for one that this host does not know."""
    try:
        return grp.getgrnam(name)
    except KeyError:
        raise LookupError(f"{name}: this host knows no such group; see `getent group`") from None


def limits_of(
    name: str, gid: int | None, quotas: Sequence[tuple[Mapping[str, Any], Any]]
) -> dict[str, int]:
    """Return the quotas of a person by those of groups; 0, without limit, is more than any.

    No group lists whose primary group it is.
    """
    limits: dict[str, int] = {}
    for quota, group in quotas:
        if group.gr_gid == gid or name in group.gr_mem:
            for key in QUOTAS:
                if quota.get(key) is not None:
                    both = (limits.get(key, quota[key]), quota[key])
                    limits[key] = 0 if 0 in both else max(both)
    return limits


def _names(fs: Any, path: str) -> Iterator[str]:
    folder = fs.opendir(path)
    try:
        entry = fs.readdir(folder)
        while entry:
            yield entry.d_name.decode()
            entry = fs.readdir(folder)
    finally:
        fs.closedir(folder)


def _limit(fs: Any, path: str, name: str) -> int:
    try:
        return int(fs.getxattr(path, name))
    except type(fs).unset:
        return 0


def _refusal(fs: Any, home: str, name: str, person: Any) -> str:
    """Return why a home is passed over; empty for one of the person."""
    if person is None:
        # A member of a group may have no account.
        return f"this host knows no {name}"
    found = fs.stat(home)
    is_theirs = stat.S_ISDIR(found.st_mode) and found.st_uid == person.pw_uid
    return "" if is_theirs else f"it is not a folder of {name}"


def settle(
    fs: Any, path: str, quotas: Sequence[tuple[Mapping[str, Any], Any]], ask: Person
) -> Iterator[str]:
    """Set the quotas of the homes below a path that have others; yield what was done."""
    for name in sorted(set(_names(fs, path)) - {".", ".."}):
        home = f"{path.rstrip('/')}/{name}"
        try:
            person = ask(name)
        except KeyError:
            person = None
        limits = limits_of(name, person and person.pw_gid, quotas)
        differing = {
            key: limit for key, limit in limits.items() if _limit(fs, home, QUOTAS[key]) != limit
        }
        if not differing:
            continue
        try:
            why = _refusal(fs, home, name, person)
            if why:
                yield f"{home}: passed over, {why}"
                continue
            for key, limit in differing.items():
                fs.setxattr(home, QUOTAS[key], str(limit).encode(), 0)
        except type(fs).missing:
            # Removed since it was listed.
            continue
        yield f"{home}: " + ", ".join(f"{key} {limit}" for key, limit in differing.items())


def work(config: Mapping[str, Any], enter: Callable[[str, str], Any], ask: Group) -> Iterator[str]:
    """Set the quotas of all homes; yield what was done. Raises LookupError, OSError."""
    places: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for quota in config["quotas"]:
        places.setdefault(quota["fs"], {}).setdefault(quota["path"], []).append(quota)
    for name, paths in places.items():
        known = {
            path: [(quota, ask(quota["group"])) for quota in quotas]
            for path, quotas in paths.items()
        }
        fs = enter(config["client"], name)
        try:
            for path, quotas in known.items():
                yield from settle(fs, path, quotas, pwd.getpwnam)
        except type(fs).error as error:
            raise OSError(f"{name}: {error}") from error
        finally:
            fs.shutdown()


def main(words: Sequence[str]) -> int:
    """Set the quotas of the configuration's homes; 0 if that was possible."""
    parser = argparse.ArgumentParser(prog="home-quotas", description="Quotas of homes by group.")
    parser.add_argument("--config", default=CONFIG, metavar="FILE")
    parser.add_argument("--check-config", action="store_true", help="only read the configuration")
    given = parser.parse_args(words)
    try:
        with open(given.config, encoding="utf-8") as handle:
            config = read_config(handle.read())
        if not given.check_config:
            for line in work(config, connect, group_of):
                sys.stdout.write(f"{line}\n")
    except (ImportError, OSError, ValueError, LookupError) as error:
        sys.stderr.write(f"home-quotas: {error}\n")
        return 1
    return 0
