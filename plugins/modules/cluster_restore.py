#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_restore
short_description: Bring back a copy that the role backup has made
description:
  - Finds the newest copy, fetches it and compares it with its manifest, says what becomes of
    running jobs, and puts it in place.
  - What is there already is replaced only by consent (O(over)), and kept beside. What was put in
    place before stays as it is, and is brought back again if it is lost again.
  - While it fetches or puts in place, this host neither copies nor proves.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: What changes is a folder or a database as a whole.
  idempotent:
    support: full
options:
  state:
    description:
      - V(looked) returns what is on the host and which copy would come. V(fetched) fetches it and
        compares each file. V(compared) has slurmctld read the fetched queue, in a separate
        network, and says what becomes of O(running). V(placed) puts it where it belongs.
      - V(unpacked), on the control machine, puts what is missing in O(folder) there from
        O(archive), the packed copy of O(kind=control).
    type: str
    choices: [looked, fetched, compared, placed, unpacked]
    required: true
  kind:
    description: What comes back.
    type: str
    choices: [controller, database, control, metrics]
    required: true
  config:
    description: The configuration that the role backup has written.
    type: path
    default: /etc/baremetal-dgx/cluster-backup.json
  not_after:
    description: >-
      The copy is the newest that is not newer than this, such as V(2026-01-31T23:59:59Z); by
      default the newest.
    type: str
    default: ""
  version:
    description: The release of Slurm that is to run; one that does not take over is refused.
    type: str
    default: ""
  over:
    description: Whether what is there is replaced, also what was put in place from another copy.
    type: bool
    default: false
  running:
    description: >-
      For O(state=compared), what C(scontrol listpids) printed on each node, by its name.
    type: dict
    default: {}
  numbers:
    description: For O(state=compared), numbers of jobs that were seen elsewhere.
    type: list
    elements: int
    default: []
  archive:
    description: For O(state=unpacked), a tar archive, packed by gzip.
    type: path
  folder:
    description:
      - For O(state=unpacked), the control machine's folder. A folder C(.restoring) is in it until
        all that was missing is there.
    type: path
"""

EXAMPLES = r"""
- name: Fetch the queue
  baremetal.dgx.cluster_restore:
    state: fetched
    kind: controller
    version: "24.11"
"""

RETURN = r"""
there:
  description: Whether something would be replaced.
  returned: when O(state=looked)
  type: bool
done:
  description: Whether a copy was put in place before, and is there.
  returned: when O(state=looked)
  type: bool
at:
  description: When the copy was begun.
  returned: >-
    when O(state=looked) or O(state=fetched), unless done, or there is no copy of O(kind=control)
  type: str
age_s:
  description: Its age in seconds.
  returned: when O(state=looked), unless done
  type: int
next_job:
  description: The number that the next job would have.
  returned: when O(state=fetched)
  type: int
folder:
  description: Where the fetched copy is.
  returned: when O(state=fetched)
  type: str
files:
  description: SHA-256 of each file of the host in the copy, by its path.
  returned: when O(state=fetched)
  type: dict
ended:
  description: Jobs that run and that slurmctld would end.
  returned: when O(state=compared)
  type: list
  elements: str
over:
  description: Jobs that ran when the copy was made, and run no more.
  returned: when O(state=compared)
  type: list
  elements: int
go_on:
  description: Jobs that run and go on.
  returned: when O(state=compared)
  type: list
  elements: int
queued:
  description: Jobs that wait in the copy.
  returned: when O(state=compared)
  type: list
  elements: int
first_job:
  description: A number above all that were given.
  returned: when O(state=compared)
  type: int
kept:
  description: Where what was there is kept; empty where nothing was.
  returned: when O(state=placed)
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._backup import restore
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner

ARGUMENT_SPEC: dict[str, Any] = {
    "state": {
        "type": "str",
        "required": True,
        "choices": ["looked", "fetched", "compared", "placed", "unpacked"],
    },
    "kind": {
        "type": "str",
        "required": True,
        "choices": ["controller", "database", "control", "metrics"],
    },
    "config": {"type": "path", "default": "/etc/baremetal-dgx/cluster-backup.json"},
    "not_after": {"type": "str", "default": ""},
    "version": {"type": "str", "default": ""},
    "over": {"type": "bool", "default": False},
    "running": {"type": "dict", "default": {}},
    "numbers": {"type": "list", "elements": "int", "default": []},
    "archive": {"type": "path"},
    "folder": {"type": "path"},
}


def main() -> None:
    """Do one step."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
        required_if=[("state", "unpacked", ("archive", "folder"))],
    )
    with reported(module, None, ValueError):
        result = restore.step(ModuleRunner(module), module.params, module.check_mode)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
