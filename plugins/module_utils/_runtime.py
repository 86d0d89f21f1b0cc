# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Values that the running kernel and systemd hold: what was read in, what to change out. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Mapping, Sequence

CAP_SYS_TIME = 25
_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_INFINITE = ("infinity", "18446744073709551615")


@dataclass(frozen=True)
class Change:
    """One value that differs. kind is hostname, sysctl, sysfs or manager; subject a key or path."""

    kind: str
    subject: str
    before: str
    after: str

    def describe(self) -> str:
        """One line on it."""
        return f"{self.subject} is {self.before or 'empty'}, wanted {self.after}"


@dataclass(frozen=True)
class Absent:
    """A value that this node cannot have, and why."""

    subject: str
    reason: str


def normal(value: object) -> str:
    """Return a value as the kernel prints it: numbers in a row are parted by one blank."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return " ".join(str(value).split())


def sysctl_path(key: str) -> str:
    """Return the path of a key below /proc/sys.

    As in sysctl.d(5): the first separator decides, so that `net/ipv4/conf/eth0.1/rp_filter` and
    `net.ipv4.conf.eth0/1.rp_filter` name the same value.
    """
    first = re.search(r"[./]", key)
    if first and first.group() == ".":
        key = key.translate(str.maketrans("./", "/."))
    return "/proc/sys/" + key


def selected(text: str) -> str:
    """Return the value of a sysfs file; of a list of choices the one in brackets."""
    match = re.search(r"\[([^\]]+)\]", text)
    return match.group(1) if match else normal(text)


def parse_size(text: str) -> str:
    """Return one value of a resource limit as systemd prints it: bytes, a number or infinity."""
    text = text.strip()
    if text in _INFINITE:
        return "infinity"
    if text[-1:] in _SIZES and text[:-1].isdigit():
        return str(int(text[:-1]) * _SIZES[text[-1]])
    return text


def expand_manager(settings: Mapping[str, str]) -> dict[str, str]:
    """Return what `systemctl show` must print for settings of systemd-system.conf(5).

    A limit is written as `soft:hard` or as one value for both and shown as two properties.
    """
    shown: dict[str, str] = {}
    for name, value in settings.items():
        if name.startswith("DefaultLimit"):
            soft, colon, hard = str(value).partition(":")
            shown[name] = parse_size(hard if colon else soft)
            shown[name + "Soft"] = parse_size(soft)
        else:
            shown[name] = normal(value)
    return shown


def parse_properties(text: str) -> dict[str, str]:
    """Return the properties of `systemctl show`; limits are brought to one spelling."""
    properties: dict[str, str] = {}
    for line in text.splitlines():
        name, sign, value = line.partition("=")
        if sign:
            properties[name] = parse_size(value) if name.startswith("DefaultLimit") else value
    return properties


def compare(
    kind: str, wanted: Mapping[str, str], have: Mapping[str, str | None]
) -> tuple[list[Change], list[Absent]]:
    """Return the values that differ, and those that are not there at all (None)."""
    changes: list[Change] = []
    absent: list[Absent] = []
    for subject, value in wanted.items():
        present = have.get(subject)
        if present is None:
            absent.append(Absent(subject, "this kernel does not have it"))
        elif present != value:
            changes.append(Change(kind, subject, present, value))
    return changes, absent


def has_capability(status: str, number: int) -> bool:
    """Whether /proc/PID/status lists a capability in the bounding set."""
    match = re.search(r"^CapBnd:\s*([0-9a-fA-F]+)", status, re.M)
    return bool(match and int(match.group(1), 16) >> number & 1)


def one_line(changes: Sequence[Change]) -> str:
    """Return all differences in one message."""
    return "; ".join(change.describe() for change in changes)
