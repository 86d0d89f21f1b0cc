#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: runtime_settings
short_description: Make the running kernel and systemd have the values that are declared
description:
  - Compares host name, kernel parameters, sysfs values and defaults of systemd, as they are right
    now, with what is declared, and changes what differs, in one call.
  - It writes no configuration file. Files say what holds after a boot, and
    M(baremetal.dgx.managed_files) writes them. This module reads the world, so it also finds what
    somebody changed by hand and what another file overrode.
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
  hostname:
    description: Name the kernel has. Left alone when not given.
    type: str
    default: ""
  sysctl:
    description: Kernel parameters and their values.
    type: dict
    default: {}
  sysctl_required:
    description: Whether a parameter that this kernel does not have, or does not let change, is an
      error. If not, it is told in RV(not_applicable).
    type: bool
    default: true
  sysfs:
    description: Values of files below C(/sys). What is not there is told in RV(not_applicable).
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Path or pattern.
        type: str
        required: true
      value:
        description: The value, or the choice of a list like C(always [madvise] never).
        type: str
        required: true
      name:
        description: What the value is, for messages.
        type: str
        required: true
  manager:
    description: Settings of systemd as in systemd-system.conf(5). Systemd reads its configuration
      anew when they differ.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Have the values now that the files set at boot
  baremetal.dgx.runtime_settings:
    hostname: dgx-01
    sysctl:
      vm.zone_reclaim_mode: 0
    sysfs:
      - name: transparent huge pages
        path: /sys/kernel/mm/transparent_hugepage/enabled
        value: madvise
    manager:
      DefaultLimitMEMLOCK: infinity
"""

RETURN = r"""
changes:
  description: What was changed, or would be in check mode.
  returned: success
  type: list
  elements: dict
  contains:
    subject:
      description: The key, path or name.
      type: str
    before:
      description: The value that was found.
      type: str
    after:
      description: The value that is declared.
      type: str
not_applicable:
  description: What this node cannot have, and why. It was neither measured nor changed.
  returned: success
  type: list
  elements: dict
  contains:
    subject:
      description: What it is about.
      type: str
    reason:
      description: Why it does not apply.
      type: str
can_set_clock:
  description: Whether programs on this node may set the clock. They may not in most containers.
  returned: success
  type: bool
"""

import glob
import socket
from typing import Any, Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    CommandRunner,
    ModuleRunner,
    ToolError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._runtime import (
    CAP_SYS_TIME,
    Absent,
    Change,
    compare,
    expand_manager,
    has_capability,
    normal,
    one_line,
    parse_properties,
    selected,
    sysctl_path,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "hostname": {"type": "str", "default": ""},
    "sysctl": {"type": "dict", "default": {}},
    "sysctl_required": {"type": "bool", "default": True},
    "sysfs": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "str", "required": True},
            "value": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
        },
    },
    "manager": {"type": "dict", "default": {}},
}


def read(path: str) -> str | None:
    """The content of a kernel file without the last line end, None when it is not there."""
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read().strip("\n")
    except OSError:
        return None


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


def main() -> None:
    """Load, plan, apply, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    run = ModuleRunner(module)
    changes: list[Change] = []
    try:
        if params["hostname"] and socket.gethostname() != params["hostname"]:
            changes.append(
                Change("hostname", "host name", socket.gethostname(), params["hostname"])
            )
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
        absent += missing
        changes += load_manager(run, params["manager"])
        if not module.check_mode:
            changes, refused = apply(run, params, changes)
            absent += refused
    except ToolError as error:
        module.fail_json(msg=str(error), **error.details)
    result: dict[str, Any] = {
        "changed": bool(changes),
        "changes": [
            {"subject": change.subject, "before": change.before, "after": change.after}
            for change in changes
        ],
        "not_applicable": [{"subject": entry.subject, "reason": entry.reason} for entry in absent],
        "can_set_clock": has_capability(read("/proc/1/status") or "", CAP_SYS_TIME),
    }
    if changes:
        result["msg"] = one_line(changes)
    if module._diff and changes:
        result["diff"] = {
            "before": "".join(f"{change.subject} = {change.before}\n" for change in changes),
            "after": "".join(f"{change.subject} = {change.after}\n" for change in changes),
        }
    module.exit_json(**result)


if __name__ == "__main__":
    main()
