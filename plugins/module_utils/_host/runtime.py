# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Values that the running kernel and systemd hold: what they are, what differs, the change."""

from __future__ import annotations

import glob
import re
import socket
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from .._core.files import text_if_readable
from .._core.run import CommandRunner, ToolError

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


def expand_manager(settings: Mapping[str, object]) -> dict[str, str]:
    """Return what `systemctl show` must print for settings of systemd-system.conf(5).

    A limit is written as `soft:hard` or as one value for both and shown as two properties.
    """
    shown: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, bool):
            shown[name] = "yes" if value else "no"
        elif name.startswith("DefaultLimit"):
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


def read(path: str) -> str | None:
    """The content of a kernel file without the last line end, None when it cannot be read."""
    text = text_if_readable(path)
    return None if text is None else text.strip("\n")


def write(path: str, value: str) -> str:
    """Write a kernel file; returns what the kernel says against it, empty when nothing."""
    try:
        with open(path, "w", encoding="utf-8") as handle:
            handle.write(value + "\n")
    except OSError as error:
        return error.strerror or str(error)
    return ""


def load_sysctl(wanted: Mapping[str, str]) -> dict[str, str | None]:
    """The present values of the kernel parameters."""
    values = {key: read(sysctl_path(key)) for key in wanted}
    return {key: None if value is None else normal(value) for key, value in values.items()}


def load_sysfs(entries: Sequence[Mapping[str, str]]) -> tuple[list[Change], list[Absent]]:
    """The sysfs values that differ, and the patterns that match nothing."""
    changes: list[Change] = []
    absent: list[Absent] = []
    for entry in entries:
        have = {path: read(path) for path in sorted(glob.glob(entry["path"]))}
        found = {path: selected(text) for path, text in have.items() if text is not None}
        if not found:
            absent.append(Absent(entry["name"], f"there is no {entry['path']} on this node"))
        differs, _none = compare("sysfs", dict.fromkeys(found, entry["value"]), found)
        changes += differs
    return changes, absent


def load_manager(run: CommandRunner, settings: Mapping[str, str]) -> list[Change]:
    """The settings of systemd that differ from what it runs with."""
    if not settings:
        return []
    wanted = expand_manager(settings)
    answer = run(["systemctl", "show", *[f"--property={name}" for name in wanted]])
    if not answer.ok:
        raise ToolError(f"systemd does not tell its settings: {answer.describe()}")
    changes, unknown = compare("manager", wanted, parse_properties(answer.out))
    if unknown:
        raise ToolError(
            "systemd has no setting " + ", ".join(entry.subject for entry in unknown)
            + "; see systemd-system.conf(5) of this release"
        )  # fmt: skip
    return changes


def apply_files(changes: Sequence[Change]) -> tuple[list[Change], list[Absent]]:
    """Write kernel values; returns what was changed and what the kernel refused."""
    done: list[Change] = []
    refused: list[Absent] = []
    for change in changes:
        path = sysctl_path(change.subject) if change.kind == "sysctl" else change.subject
        problem = write(path, change.after)
        now = read(path) or ""
        if (
            not problem
            and (normal(now) if change.kind == "sysctl" else selected(now)) != change.after
        ):
            problem = f"the kernel made it {normal(now)}"
        if problem:
            refused.append(Absent(change.subject, f"cannot become {change.after}: {problem}"))
        else:
            done.append(change)
    return done, refused


def apply_manager(run: CommandRunner, settings: Mapping[str, str]) -> None:
    """Let systemd read its configuration; old releases take defaults only when re-executed."""
    changes: list[Change] = []
    for word in ("daemon-reload", "daemon-reexec"):
        answer = run(["systemctl", word], timeout_s=90)
        if not answer.ok:
            raise ToolError(answer.describe())
        changes = load_manager(run, settings)
        if not changes:
            return
    raise ToolError(
        f"systemd does not take what its files say, some other file does: {one_line(changes)}"
    )


def apply(
    run: CommandRunner, params: Mapping[str, Any], changes: Sequence[Change]
) -> tuple[list[Change], list[Absent]]:
    """Change what differs; returns what was changed and what the kernel refused."""
    files = [change for change in changes if change.kind in ("sysctl", "sysfs")]
    others = [change for change in changes if change.kind not in ("sysctl", "sysfs")]
    done, refused = apply_files(files)
    fatal = [
        entry
        for entry in refused
        if params["sysctl_required"] or entry.subject not in params["sysctl"]
    ]
    if fatal:
        raise ToolError("; ".join(f"{entry.subject} {entry.reason}" for entry in fatal))
    for change in others:
        if change.kind == "hostname":
            try:
                socket.sethostname(change.after)
            except OSError as error:
                raise ToolError(f"the host name cannot be set: {error.strerror}") from error
    if any(change.kind == "manager" for change in others):
        apply_manager(run, params["manager"])
    return [*done, *others], refused


def differing(run: CommandRunner, params: Mapping[str, Any]) -> tuple[list[Change], list[Absent]]:
    """Return what differs from the module's options, and what this node does not have."""
    changes: list[Change] = []
    if params["hostname"] and socket.gethostname() != params["hostname"]:
        changes.append(Change("hostname", "host name", socket.gethostname(), params["hostname"]))
    wanted = {key: normal(value) for key, value in params["sysctl"].items()}
    differs, absent = compare("sysctl", wanted, load_sysctl(wanted))
    if absent and params["sysctl_required"]:
        raise ToolError(
            "this kernel does not have " + ", ".join(entry.subject for entry in absent)
            + "; take them out of sysctl, or set sysctl_required: false"
        )  # fmt: skip
    changes += differs
    differs, missing = load_sysfs(params["sysfs"])
    changes += differs
    changes += load_manager(run, params["manager"])
    return changes, [*absent, *missing]


def can_set_clock() -> bool:
    """Return whether this machine may set its clock; a container may not."""
    return has_capability(read("/proc/1/status") or "", CAP_SYS_TIME)
