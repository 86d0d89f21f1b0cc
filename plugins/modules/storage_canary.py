#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: storage_canary
short_description: Write to mounts, read it back, and see what other nodes wrote
description:
  - On each mount a small file is written, synced and read back, all within a time limit; then what
    the peers have written in the same run is looked for. Each answer is a record.
  - A mount that is missing, full, over its quota, refused, read only, or that gives back something
    else, fails. One that hangs has measured nothing, since its servers may only be restarting; the
    module comes back in time all the same.
  - The file is C(.baremetal-dgx-canary/NODE) on the mount, which is never removed.
  - Call it twice when there are peers, with O(stage=write) first on all nodes, then with
    O(stage=peers). What is missing after that is a finding.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: Nothing is written; only the table of mounts is judged.
  diff_mode:
    support: none
    details: The canary's own file is no change.
  idempotent:
    support: full
options:
  mounts:
    description: What is asked.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: What it is called.
        type: str
        required: true
      path:
        description: The mount point.
        type: path
        required: true
      fstype:
        description: Type that it must have; any when empty.
        type: str
        default: ""
      write:
        description: Whether to write. With V(false) the folder is only read.
        type: bool
        default: true
      peers:
        description: Nodes that have written to it in this run.
        type: list
        elements: str
        default: []
      most_s:
        description: Seconds that writing and syncing may take.
        type: float
        default: 10
      limit_s:
        description: Seconds after which it counts as hung.
        type: float
        default: 30
  stage:
    description: What is done; V(write) writes and reads back, V(peers) looks for what others wrote.
    type: str
    choices: [write, peers]
    default: write
  run:
    description: Word that is the same on all nodes and another in each run. Required with
      O(stage=peers).
    type: str
    default: alone
  node:
    description: Name of the node in the records; its host name when not given.
    type: str
    default: ""
  fail:
    description: Whether the task fails when a record does, or when nothing was measured.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: See that home takes a file
  baremetal.dgx.storage_canary:
    mounts:
      - {name: home, path: /home}
"""

RETURN = r"""
records:
  description: One record for each question; see docs/records.md.
  returned: always
  type: list
  elements: dict
verdict:
  description: The records folded into one; V(pass), V(fail) or V(not_measured).
  returned: always
  type: str
findings:
  description: One line for each record that failed.
  returned: always
  type: list
  elements: str
not_measured:
  description: One line for each record that measured nothing.
  returned: always
  type: list
  elements: str
"""

import os
import re
import socket
import time
from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._canary import (
    FOLDER,
    Canary,
    judge_mounted,
    judge_peers,
    judge_written,
    lines,
    token_of,
    token_text,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._limited import limited
from ansible_collections.baremetal.dgx.plugins.module_utils._mounts import table, waiting
from ansible_collections.baremetal.dgx.plugins.module_utils._mounts_host import read
from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    FAIL,
    NOT_MEASURED,
    Record,
    Tally,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "mounts": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "name": {"type": "str", "required": True},
            "path": {"type": "path", "required": True},
            "fstype": {"type": "str", "default": ""},
            "write": {"type": "bool", "default": True},
            "peers": {"type": "list", "elements": "str", "default": []},
            "most_s": {"type": "float", "default": 10},
            "limit_s": {"type": "float", "default": 30},
        },
    },
    "stage": {"type": "str", "choices": ["write", "peers"], "default": "write"},
    "run": {"type": "str", "default": "alone"},
    "node": {"type": "str", "default": ""},
    "fail": {"type": "bool", "default": True},
}
# A peer's file may be behind a lease that its client gives back a moment later.
_SEEN_S = 10
_PAUSE_S = 0.5


def write_token(path: str, node: str, run: str) -> dict[str, Any]:
    """Write, sync and read back; the answer has same and took_s, or error and step."""
    folder = os.path.join(path, FOLDER)
    target, text = os.path.join(folder, node), token_text(node, run)
    begun, step = time.monotonic(), "make the canary's folder"
    try:
        # All nodes do this at once: another may have made it since anybody looked.
        os.makedirs(folder, 0o700, exist_ok=True)
        step = "write"
        # A name of its own: a reader sees the old file or the whole new one.
        with open(target + ".new", "w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            step = "sync"
            os.fsync(handle.fileno())
        step = "rename"
        os.replace(target + ".new", target)
        took, step = time.monotonic() - begun, "read back"
        with open(target, encoding="utf-8", errors="replace") as handle:
            return {"same": handle.read() == text, "took_s": took}
    except OSError as error:
        return {"error": error.errno or 5, "step": step}


def list_folder(path: str) -> dict[str, Any]:
    """Read a folder's first entry; the answer has took_s, or error and step."""
    begun = time.monotonic()
    try:
        with os.scandir(path) as entries:
            next(entries, None)
    except OSError as error:
        return {"error": error.errno or 5, "step": "read the folder"}
    return {"took_s": time.monotonic() - begun}


def read_tokens(path: str, peers: tuple[str, ...], run: str) -> dict[str, Any]:
    """Read what the peers wrote; waits a little for those that are not there yet."""
    found: dict[str, Any] = {}
    until = time.monotonic() + _SEEN_S
    while True:
        for peer in peers:
            if token_of(found.get(peer, {}).get("text", "")) == (peer, run):
                continue
            try:
                # Listed first: a name that was missing a moment ago is remembered as missing.
                os.listdir(os.path.join(path, FOLDER))
                name = os.path.join(path, FOLDER, peer)
                with open(name, encoding="utf-8", errors="replace") as handle:
                    found[peer] = {"text": handle.read()}
            except OSError as error:
                found[peer] = {"error": error.errno or 5, "step": "read"}
        seen = [token_of(one.get("text", "")) == (peer, run) for peer, one in found.items()]
        if all(seen) or time.monotonic() > until:
            return found
        time.sleep(_PAUSE_S)


def ask(canary: Canary, node: str, stage: str, run: str, check: bool) -> list[Record]:
    """Return the records of one mount."""
    mountinfo = read("/proc/self/mountinfo")
    if canary.path in waiting(mountinfo) and not check:
        # Whoever looks first mounts it.
        limited(lambda: os.listdir(canary.path) and 0, canary.limit_s)
        mountinfo = read("/proc/self/mountinfo")
    mounted = judge_mounted(node, canary, table(mountinfo).get(canary.path))
    # Never below a mount point that is none: the canary would write to the disk of the system.
    if mounted.status == FAIL or check:
        return [mounted]
    if stage == "peers":
        limit_s = canary.limit_s + _SEEN_S
        outcome = limited(lambda: read_tokens(canary.path, canary.peers, run), limit_s)
        return list(judge_peers(node, canary, run, outcome))
    if canary.write:
        outcome = limited(lambda: write_token(canary.path, node, run), canary.limit_s)
    else:
        outcome = limited(lambda: list_folder(canary.path), canary.limit_s)
    return [mounted, *judge_written(node, canary, outcome)]


def main() -> None:
    """Ask each mount, judge, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    if not re.fullmatch(r"[\w.:+-]+", params["run"]):
        module.fail_json(msg=f"run {params['run']!r}: write one word of letters, digits and .:+-_")
    node = params["node"] or socket.gethostname().split(".")[0]
    records: list[Record] = []
    for data in params["mounts"]:
        path = data["path"].rstrip("/") or "/"
        canary = Canary(**{**data, "path": path, "peers": tuple(data["peers"])})
        if params["stage"] == "peers" and not canary.peers:
            continue
        begun = time.monotonic()
        asked = ask(canary, node, params["stage"], params["run"], module.check_mode)
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        took = round(time.monotonic() - begun, 3)
        records += [replace(record, at=at, took_s=took) for record in asked]
    result: dict[str, Any] = {
        "changed": False,
        "records": [record.as_data() for record in records],
        "verdict": Tally.of(records).verdict,
        "findings": lines(records, FAIL),
        "not_measured": lines(records, NOT_MEASURED),
    }
    wrong = result["findings"] + result["not_measured"]
    if wrong and params["fail"] and not module.check_mode:
        module.fail_json(msg="\n".join(wrong), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
