#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fio_check
short_description: Measure the scratch disks of a node with fio, and verify what they keep
description:
  - Writes a file with checksums and reads it back, then measures sequential and random reads and
    writes, with direct I/O, in a hidden folder of its own in O(folder).
  - It takes at most a quarter of what is free, leaves a tenth of the file system free, and does not
    start on the root file system, on a shared one, or in memory.
  - Nothing is left behind. What it writes is removed when it ends and when it is killed; what a
    power cut has left is removed by the next run.
  - A missing fio, a hang, a full disk and an answer that is cut short are C(not_measured). A wrong
    block or an I/O error is a failure.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: In check mode the commands that would run are returned. Nothing is written.
  diff_mode:
    support: none
    details: Nothing is ever changed.
  idempotent:
    support: full
options:
  node:
    description: Name of the node in the records; its host name when not given.
    type: str
    default: ""
  folder:
    description: A folder on the disks to measure.
    type: path
    required: true
  size_mib:
    description: Size of the file at most. More than the disks' own cache says more.
    type: int
    default: 8192
  seconds:
    description: Seconds of each of the four measurements.
    type: float
    default: 10
  jobs:
    description: How many jobs read and write at random at the same time.
    type: int
    default: 4
  marks:
    description:
      - C(read_mb_s), C(write_mb_s), C(read_iops) and C(write_iops) that must be reached, as C(nvme)
        of the profile has them. Where one is missing, a floor is used that only a broken array
        misses.
    type: dict
    default: {}
  mark_source:
    description: Where O(marks) come from; it is kept in the records.
    type: str
    default: profile of the node
  engine:
    description: How fio does I/O.
    type: str
    default: libaio
  extra_arguments:
    description: More arguments for fio.
    type: list
    elements: str
    default: []
  root_ok:
    description: Whether O(folder) may be on the root file system.
    type: bool
    default: false
  shared_ok:
    description: Whether it may be on a file system that other machines use, too.
    type: bool
    default: false
  tool:
    description: Name or path of fio.
    type: str
    default: fio
  findings_ok:
    description: Whether findings leave the task green.
    type: bool
    default: false
  not_measured_ok:
    description: Whether the task stays green where something was not measured.
    type: bool
    default: false
seealso:
  - module: baremetal.dgx.cpu_memory_check
"""

EXAMPLES = r"""
- name: Measure scratch
  baremetal.dgx.fio_check:
    folder: /raid
    marks: {read_mb_s: 20000, write_mb_s: 8000}
    mark_source: slowest of twelve nodes that are well, less a tenth
"""

RETURN = r"""
verdict:
  description: V(pass), V(fail) or V(not_measured); not_measured in check mode.
  returned: always
  type: str
counts:
  description: How many records there are of each status.
  returned: always
  type: dict
records:
  description: All records.
  returned: always
  type: list
  elements: dict
findings:
  description: A line for each record that is no pass.
  returned: always
  type: list
  elements: str
commands:
  description: What was run, or would be in check mode.
  returned: always
  type: list
  elements: list
removed:
  description: Folders of earlier runs that were killed by force.
  returned: always
  type: list
  elements: str
"""

import hashlib
import os
import signal
import socket
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._fio import (
    Place,
    is_over,
    judge_step,
    marks_of,
    refuse,
    size_mib,
    steps,
    unmeasured,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_tool_report import (
    add_result,
    end,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._health_local import mounted
from ansible_collections.baremetal.dgx.plugins.module_utils._lock import BusyError, host_lock
from ansible_collections.baremetal.dgx.plugins.module_utils._own_folder import (
    PREFIX,
    own_folder,
    remove_old,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    NOT_MEASURED,
    Record,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import ModuleRunner

ARGUMENT_SPEC: dict[str, Any] = {
    "node": {"type": "str", "default": ""},
    "folder": {"type": "path", "required": True},
    "size_mib": {"type": "int", "default": 8192},
    "seconds": {"type": "float", "default": 10},
    "jobs": {"type": "int", "default": 4},
    "marks": {"type": "dict", "default": {}},
    "mark_source": {"type": "str", "default": "profile of the node"},
    "engine": {"type": "str", "default": "libaio"},
    "extra_arguments": {"type": "list", "elements": "str", "default": []},
    "root_ok": {"type": "bool", "default": False},
    "shared_ok": {"type": "bool", "default": False},
    "tool": {"type": "str", "default": "fio"},
    "findings_ok": {"type": "bool", "default": False},
    "not_measured_ok": {"type": "bool", "default": False},
}


def place_of(folder: str) -> Place:
    """Return what is known of the file system below a folder; OSError."""
    point = os.path.realpath(folder)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as stream:
        table = mounted(stream.read())
    while point not in table and point != "/":
        point = os.path.dirname(point)
    space = os.statvfs(folder)
    return Place(
        space.f_bavail * space.f_frsize,
        space.f_blocks * space.f_frsize,
        point,
        table.get(point, ""),
    )


def measure(module: AnsibleModule, node: str, place: Place, result: dict[str, Any]) -> list[Record]:
    """Run one step after the other and judge each."""
    params, folder = module.params, module.params["folder"]
    run = ModuleRunner(module)
    records: list[Record] = []
    marks = marks_of(params["marks"], params["mark_source"])
    mib = size_mib(place, params["size_mib"])
    name = hashlib.sha256(folder.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    with host_lock(f"fio_check-{name}", 0):
        result["removed"] = remove_old(folder)
        with own_folder(folder) as own:
            for step in plan(params, own, mib):
                result["commands"].append(list(step.argv))
                records += judge_step(node, folder, step, run(step.argv, step.limit_s), marks)
                if is_over(records):
                    break
    return records


def plan(params: dict[str, Any], own: str, mib: int) -> list[Any]:
    """Return the steps in the folder `own`."""
    return steps(
        params["tool"], own, mib, params["seconds"], params["engine"], params["jobs"],
        params["extra_arguments"],
    )  # fmt: skip


def main() -> None:
    """Look where it is, write, measure, judge, clean up, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    # Else Python ends at once, and leaves the cleaning up to the shell.
    signal.signal(signal.SIGTERM, lambda *_which: module.fail_json(msg="was told to end (TERM)"))
    if params["seconds"] < 1 or params["size_mib"] < 1 or params["jobs"] < 1:
        module.fail_json(msg="seconds, size_mib and jobs must be 1 or more")
    node, folder = params["node"] or socket.gethostname().split(".")[0], params["folder"]
    result: dict[str, Any] = {"changed": False, "commands": [], "removed": []}
    why, place = "", Place(0, 0, "", "")
    try:
        place = place_of(folder)
        why = refuse(place, params["root_ok"], params["shared_ok"])
        if not why and not module.get_bin_path(params["tool"]):
            why = f"{params['tool']} is not installed"
    except OSError as error:
        why = f"{folder}: {error.strerror}"
    if module.check_mode:
        shown = (
            []
            if why
            else plan(params, os.path.join(folder, PREFIX), size_mib(place, params["size_mib"]))
        )
        result["commands"] = [list(step.argv) for step in shown]
        module.exit_json(
            **result, verdict=NOT_MEASURED, counts={}, records=[], findings=[why] * bool(why)
        )
    try:
        records = [] if why else measure(module, node, place, result)
    except BusyError as error:
        why = f"another fio_check is running there: process {error.holder}"
        records = []
    except OSError as error:
        why = f"{folder}: {error.strerror}"
        records = []
    if why:
        remedy = "settings: mount scratch, install fio, or name another folder"
        records = [unmeasured(node, folder, why, remedy)]
    add_result(result, records)
    end(module, result, records)


if __name__ == "__main__":
    main()
