# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Local accounts: declared and found, read from the text of the account files. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

NAME_PATTERN = re.compile(r"^[a-z_][a-z0-9_-]{0,30}$")
# crypt(5): "$id$...", or a lock character for "no password".
HASH_PATTERN = re.compile(r"^(\$[0-9a-z]+\$[^\s:]+|[!*]{1,2})$")
KEY_TYPES = (
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)
# Homes that belong to the system: never removed, whatever consent was given.
PROTECTED_HOMES = ("/", "/root", "/home", "/nonexistent", "/var", "/usr", "/etc", "/opt", "/srv")
KEYS_HEADER = "# Managed by Ansible: baremetal.dgx. Local changes will be overwritten."


@dataclass(frozen=True)
class GroupEntry:
    """One line of group(5)."""

    name: str
    gid: int
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class UserEntry:
    """One line of passwd(5)."""

    name: str
    uid: int
    gid: int
    comment: str
    home: str
    shell: str


@dataclass(frozen=True)
class WantedGroup:
    """A group as declared; a gid of None means "any"."""

    name: str
    gid: int | None = None
    system: bool = False
    present: bool = True


@dataclass(frozen=True)
class WantedUser:
    """A user as declared; None means "leave as it is" (or the default for a new user)."""

    name: str
    uid: int | None = None
    group: str | None = None
    groups: tuple[str, ...] | None = None
    shell: str | None = None
    home: str | None = None
    comment: str | None = None
    create_home: bool = True
    system: bool = False
    keys: tuple[str, ...] = ()
    keys_exclusive: bool = False
    password: str | None = field(default=None, repr=False)
    present: bool = True
    remove_home: bool = False


@dataclass(frozen=True)
class State:
    """What is on the node. ``foreign_*`` are names that only a directory service knows."""

    users: Mapping[str, UserEntry]
    groups: Mapping[str, GroupEntry]
    hashes: Mapping[str, str] = field(default_factory=dict, repr=False)
    foreign_users: Mapping[str, int] = field(default_factory=dict)
    foreign_groups: Mapping[str, int] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    homes: set[str] = field(default_factory=set)
    processes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    login_user: str = ""


@dataclass(frozen=True)
class Step:
    """One act. ``kind``: command, password, home, keys, remove_home or remove_group."""

    kind: str
    subject: str
    summary: str
    command: tuple[str, ...] = ()
    path: str = ""
    content: str = ""
    secret: str = field(default="", repr=False)


@dataclass(frozen=True)
class Plan:
    """Errors (nothing may be done when there are any) and the steps in order."""

    errors: tuple[str, ...]
    steps: tuple[Step, ...]


def parse_passwd(text: str) -> dict[str, UserEntry]:
    """Return the entries of passwd(5) by name; lines that are not an entry are skipped.

    Only the line feed ends a line: users write every other character into their GECOS fields.
    """
    entries: dict[str, UserEntry] = {}
    for line in text.split("\n"):
        parts = line.split(":")
        if len(parts) == 7 and parts[2].isdigit() and parts[3].isdigit():
            name, _password, uid, gid, comment, home, shell = parts
            entries.setdefault(name, UserEntry(name, int(uid), int(gid), comment, home, shell))
    return entries


def parse_group(text: str) -> dict[str, GroupEntry]:
    """Return the entries of group(5) by name."""
    entries: dict[str, GroupEntry] = {}
    for line in text.split("\n"):
        parts = line.split(":")
        if len(parts) == 4 and parts[2].isdigit():
            members = tuple(sorted(member for member in parts[3].split(",") if member))
            entries.setdefault(parts[0], GroupEntry(parts[0], int(parts[2]), members))
    return entries


def parse_shadow(text: str) -> dict[str, str]:
    """Return the password hashes of shadow(5) by user name."""
    hashes: dict[str, str] = {}
    for line in text.split("\n"):
        parts = line.split(":")
        if len(parts) >= 2:
            hashes.setdefault(parts[0], parts[1])
    return hashes


def key_identity(line: str) -> str | None:
    """Return the base64 body of an authorized_keys line, or None when it holds no key.

    Options may stand before the key type and may contain quoted blanks (sshd(8),
    AUTHORIZED_KEYS FILE FORMAT), therefore the type is searched for, not counted to.
    """
    stripped = line.strip()
    if not stripped or stripped.startswith("#"):
        return None
    words = stripped.split()
    for number, word in enumerate(words[:-1]):
        if word in KEY_TYPES:
            body = words[number + 1]
            try:
                raw = base64.b64decode(body, validate=True)
            except (binascii.Error, ValueError):
                return None
            # RFC 4253, 6.6: the blob starts with the length and the name of its type.
            name = word.encode("ascii")
            if raw[:4] != len(name).to_bytes(4, "big") or raw[4 : 4 + len(name)] != name:
                return None
            return body
    return None


def merge_keys(text: str, keys: Sequence[str], exclusive: bool) -> str:
    """Return the text of authorized_keys with ``keys`` in it, each once.

    Without ``exclusive`` every other line stays as and where it is. A key that is there with other
    options or another comment is replaced by the declared line. The result is ``text`` itself when
    nothing has to change.
    """
    wanted = {key_identity(key): key.strip() for key in keys}
    if exclusive:
        return "\n".join([KEYS_HEADER, *wanted.values()]) + "\n"
    lines: list[str] = []
    seen: set[str | None] = set()
    *found, last = text.split("\n")
    for line in [*found, last] if last else found:
        identity = key_identity(line)
        if identity is not None and identity in wanted:
            if identity in seen:
                continue
            seen.add(identity)
            lines.append(wanted[identity])
        else:
            lines.append(line)
    lines.extend(key for identity, key in wanted.items() if identity not in seen)
    merged = "\n".join(lines) + "\n" if lines else ""
    return text if merged.rstrip("\n") == text.rstrip("\n") else merged


def count_keys(text: str) -> int:
    """Return how many keys an authorized_keys text admits."""
    return sum(1 for line in text.split("\n") if key_identity(line) is not None)


def desired_groups(params: Mapping[str, Any]) -> list[WantedGroup]:
    """The groups as declared."""
    return [
        WantedGroup(
            name=entry["name"],
            gid=entry["gid"],
            system=entry["system"],
            present=entry["state"] == "present",
        )
        for entry in params["groups"]
    ]


def desired_users(params: Mapping[str, Any]) -> list[WantedUser]:
    """The users as declared; a key given as several lines counts as several keys."""
    return [
        WantedUser(
            name=entry["name"],
            uid=entry["uid"],
            group=entry["group"],
            groups=None if entry["groups"] is None else tuple(entry["groups"]),
            shell=entry["shell"],
            home=entry["home"],
            comment=entry["comment"],
            create_home=entry["create_home"],
            system=entry["system"],
            keys=tuple(
                line for key in entry["ssh_keys"] for line in key.splitlines() if line.strip()
            ),
            keys_exclusive=entry["ssh_keys_exclusive"],
            password=entry["password"],
            present=entry["state"] == "present",
            remove_home=entry["remove_home"],
        )
        for entry in params["users"]
    ]


def desired(params: Mapping[str, Any]) -> tuple[list[WantedGroup], list[WantedUser]]:
    """The groups and the users as declared."""
    return desired_groups(params), desired_users(params)
