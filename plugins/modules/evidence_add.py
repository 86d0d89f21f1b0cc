#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: evidence_add
short_description: Keep records and raw evidence
description:
  - Adds records to a store of plain files that is only ever added to. When the module has ended,
    what it was given is on disk. When it is killed, nothing that was acknowledged before is lost,
    and readers recognise and report a truncated batch.
  - A run has a folder C(runs/RUN) with C(records.jsonl) and C(raw/). Each part that names itself
    (UUID, GUID or serial number) has a line for each run in C(history/SERIAL.jsonl), wherever it is
    plugged in.
  - To be run on the controller (C(delegate_to=localhost)). Many hosts may do so at the same time.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: Nothing is written.
  diff_mode:
    support: none
    details: Records are new by nature.
  idempotent:
    support: none
    details: Each call adds what it is given.
options:
  folder:
    description: The store; it is made where it does not exist.
    type: path
    required: true
  state:
    description:
      - V(begun) makes a run, completes the histories of runs that were killed, and compresses and
        removes what is old.
      - V(added) adds records to a run.
      - V(replaced) makes a run that takes the place of all that is known of the node O(scope),
        layer by layer, with a record that nothing was measured. It does so once, until there are
        other records of the node.
    type: str
    choices: [begun, added, replaced]
    default: added
  playbook:
    description: What makes the run; for O(state=begun) and O(state=replaced).
    type: str
  run:
    description: Name of the run, as O(state=begun) returned it.
    type: str
  scope:
    description: The node that was asked, or V(fabric). A later batch of a scope replaces this one.
    type: str
    default: fabric
  by_node:
    description: Whether the records of each node are a batch with the node as O(scope); those of no
      node have O(scope) itself.
    type: bool
    default: false
  source:
    description: Who asked.
    type: str
    default: ""
  level:
    description: How deeply.
    type: str
    default: ""
  simulated:
    description: What was not real, in words; empty where all was.
    type: str
    default: ""
  records:
    description: The records.
    type: list
    elements: dict
    default: []
  records_files:
    description:
      - JSON files on the same host with more of them, as a list or as C(records) of a mapping. One
        that does not exist fails the task.
      - C(links) of the mapping are readings of links, as M(baremetal.dgx.ib_health) returns them.
        They are kept in C(links/NODE.jsonl) for half a year.
      - C(standing) of the mapping are failures that its run did not measure; those of the layers of
        its records are added to them. C(ended) are layers that are asked no more; what is known of
        them counts no more.
    type: list
    elements: path
    default: []
  failures:
    description:
      - Folder of failures that stand, a file for each node, C(NODE.json). For records of nodes that
        were loaded together, of which not all are each time.
      - A failure of a node, of one of its parts or of one of its cables is added there. It stands
        until a later record of the same check and subject passes or fails, or until records of
        pair tests, which have each part of the plan, are without its cable or adapter. Until then
        each call with records of its layer adds it to them. M(baremetal.dgx.node_parts) removes
        those of parts that were replaced.
    type: path
  replaced:
    description: The parts that were replaced, for people; for O(state=replaced).
    type: list
    elements: str
    default: []
  raw_files:
    description: Files to keep copies of. Those that do not exist are left out, and reported.
    type: list
    elements: path
    default: []
  compress_days:
    description: Age in days from which on a run is compressed; V(0) is never.
    type: float
    default: 30
  keep_days:
    description:
      - Age in days from which on a run is removed; V(0) is never. The two newest runs of each
        playbook, and all histories, are kept.
    type: float
    default: 400
seealso:
  - module: baremetal.dgx.acceptance_report
"""

EXAMPLES = r"""
- name: Begin a run
  baremetal.dgx.evidence_add:
    folder: "{{ inventory_dir }}/.dgx/evidence"
    state: begun
    playbook: validate_nodes
  delegate_to: localhost
  run_once: true
  register: evidence

- name: Keep what was found
  baremetal.dgx.evidence_add:
    folder: "{{ inventory_dir }}/.dgx/evidence"
    run: "{{ evidence.run }}"
    scope: "{{ inventory_hostname }}"
    source: gpu_health
    records: "{{ health.records }}"
  delegate_to: localhost

- name: Take back what is known of a node, since a part was replaced
  baremetal.dgx.evidence_add:
    folder: "{{ inventory_dir }}/.dgx/evidence"
    state: replaced
    playbook: replace_node
    scope: dgx-07
    replaced: [gpu:3]
  delegate_to: localhost
"""

RETURN = r"""
run:
  description: Name of the run; a made-up one in check mode, empty where none was made.
  returned: always
  type: str
records:
  description: How many records were added.
  returned: when state is added or replaced
  type: int
raw:
  description: The files that were copied, below C(raw/) of the run.
  returned: when state is added
  type: list
  elements: str
removed:
  description: The runs that were removed since they are old.
  returned: when state is begun
  type: list
  elements: str
problems:
  description: What is wrong with the store, such as a line that a killed run has truncated.
  returned: when state is begun
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import finish_in_time
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.store import bring_about

# Many runs may have to be compressed.
_LIMIT_S = 600.0

ARGUMENT_SPEC: dict[str, Any] = {
    "folder": {"type": "path", "required": True},
    "state": {"type": "str", "choices": ["begun", "added", "replaced"], "default": "added"},
    "playbook": {"type": "str"},
    "run": {"type": "str"},
    "scope": {"type": "str", "default": "fabric"},
    "by_node": {"type": "bool", "default": False},
    "source": {"type": "str", "default": ""},
    "level": {"type": "str", "default": ""},
    "simulated": {"type": "str", "default": ""},
    "records": {"type": "list", "elements": "dict", "default": []},
    "records_files": {"type": "list", "elements": "path", "default": []},
    "failures": {"type": "path"},
    "replaced": {"type": "list", "elements": "str", "default": []},
    "raw_files": {"type": "list", "elements": "path", "default": []},
    "compress_days": {"type": "float", "default": 30},
    "keep_days": {"type": "float", "default": 400},
}


def main() -> None:
    """Load, add, report."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
        required_if=[
            ("state", "begun", ["playbook"]),
            ("state", "added", ["run"]),
            ("state", "replaced", ["playbook"]),
        ],
    )

    def work() -> None:
        with reported(module, None, ValueError):
            result = bring_about(module)
        module.exit_json(**result)

    finish_in_time(module, module.params["folder"], work, _LIMIT_S)


if __name__ == "__main__":
    main()
