#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: acceptance_report
short_description: Write the report of a cluster from its records
description:
  - Reads the store of evidence, takes for each node and layer the records with the last word, and
    makes one HTML page that needs nothing beside itself, the same as JSON, and JUnit for a CI.
  - With O(thresholds) everything that was ever measured is judged again, without measuring.
  - What was simulated is labelled so. Secrets are taken out.
  - Runs on the controller, as an action plugin.
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
    details: Reports are new by nature.
  idempotent:
    support: none
    details: Each report has its time.
options:
  evidence:
    description: The store of evidence.
    type: path
    required: true
  plan:
    description:
      - C(plan.json), whose nodes must all have records. Without it, nodes are those with records.
    type: path
  groups:
    description: Only nodes of these groups are expected to have records; all when empty.
    type: list
    elements: str
    default: [gpu_nodes]
  output:
    description: Folder for C(report.html), C(report.json) and C(junit.xml).
    type: path
    required: true
  cluster:
    description: Name of the cluster.
    type: str
    default: ""
  fabric:
    description:
      - Whether records of the fabric are expected. Those that there are count in any case.
    type: bool
    default: true
  fabric_svg:
    description: Picture of the fabric; left out where there is no such file.
    type: path
  cables:
    description:
      - C(fabric/cables.json) of the plan, which says where the far end of a link is; left out where
        there is no such file.
    type: path
  pairs:
    description: C(pairs.jsonl) of the pair tests; left out where there is no such file.
    type: path
  thresholds:
    description:
      - New thresholds by check, such as C(burn.rate_bf16). Operator and unit stay.
      - A check of which no record has a threshold is a warning.
    type: dict
    default: {}
  threshold_source:
    description: Whose thresholds they are.
    type: str
    default: set in the inventory
  fleet_failing:
    description: Checks whose outliers among their like fail, although they meet their thresholds.
    type: list
    elements: str
    default: []
  most_share:
    description:
      - Share of the nodes above which one failure of all is reported as a question about the
        checker.
    type: float
    default: 0.2
  cables_fail_nodes:
    description: Whether a failed cable fails the nodes that it is plugged into.
    type: bool
    default: false
  evidence_days:
    description:
      - Days after which a validation shows nothing about the present, so that its node or fabric is
        not measured. With V(0) it counts at any age.
    type: float
    default: 0
  failures:
    description:
      - Folder of the failures of pair and group tests that stand, as M(baremetal.dgx.evidence_add)
        keeps it. One that is not there any more is not measured, since its part was replaced.
        Without the folder all of them count.
    type: path
  states:
    description: State and reason of nodes in Slurm, by node, with C(state) and C(reason).
    type: dict
    default: {}
  versions:
    description: More releases to show, by name.
    type: dict
    default: {}
  tables:
    description: More tables to show, title to rows of texts, such as the reliability arithmetic.
    type: dict
    default: {}
  secret_values:
    description: Secrets that are in no file, such as those of a vault, none of which may appear.
    type: list
    elements: str
    default: []
  secrets:
    description: Folder with secrets, none of which may appear.
    type: path
seealso:
  - module: baremetal.dgx.evidence
"""

EXAMPLES = r"""
- name: Write the report
  baremetal.dgx.acceptance_report:
    evidence: "{{ inventory_dir }}/.dgx/evidence"
    plan: "{{ inventory_dir }}/.dgx/plan/plan.json"
    output: "{{ inventory_dir }}/.dgx/report"
    cluster: "{{ cluster_name }}"
    secrets: "{{ inventory_dir }}/.dgx/secrets"
  run_once: true

- name: What would have failed with a stricter threshold?
  baremetal.dgx.acceptance_report:
    evidence: "{{ inventory_dir }}/.dgx/evidence"
    output: /tmp/stricter
    thresholds: {burn.rate_bf16: 700}
  run_once: true
"""

RETURN = r"""
verdict:
  description: That of all nodes and the fabric; V(pass), V(fail) or V(not_measured).
  returned: always
  type: str
summary:
  description: How many nodes, and records, have which verdict.
  returned: always
  type: dict
gate:
  description:
    - For each node C(node), C(verdict), C(at), C(level), C(first_failing) and C(fleet_share).
  returned: always
  type: list
  elements: dict
questions:
  description: Checks that too many nodes fail to blame the nodes.
  returned: always
  type: list
  elements: dict
trends:
  description: The outlook of the links in one line; empty without O(fabric).
  returned: always
  type: str
will_fail:
  description: Links that get worse and will fail, but have not failed; the soonest first.
  returned: always
  type: list
  elements: str
failing:
  description: Subject and check of each failure.
  returned: always
  type: list
  elements: str
files:
  description: The files that were written.
  returned: always
  type: list
  elements: str
problems:
  description: What is wrong with the store.
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

# The action plugin, which does the work, takes the same.
ARGUMENTS: dict[str, Any] = {
    "evidence": {"type": "path", "required": True},
    "plan": {"type": "path"},
    "groups": {"type": "list", "elements": "str", "default": ["gpu_nodes"]},
    "output": {"type": "path", "required": True},
    "cluster": {"type": "str", "default": ""},
    "fabric": {"type": "bool", "default": True},
    "fabric_svg": {"type": "path"},
    "cables": {"type": "path"},
    "pairs": {"type": "path"},
    "thresholds": {"type": "dict", "default": {}},
    "threshold_source": {"type": "str", "default": "set in the inventory"},
    "fleet_failing": {"type": "list", "elements": "str", "default": []},
    "most_share": {"type": "float", "default": 0.2},
    "cables_fail_nodes": {"type": "bool", "default": False},
    "evidence_days": {"type": "float", "default": 0},
    "failures": {"type": "path"},
    "states": {"type": "dict", "default": {}},
    "versions": {"type": "dict", "default": {}},
    "tables": {"type": "dict", "default": {}},
    "secret_values": {"type": "list", "elements": "str", "default": [], "no_log": True},
    "secrets": {"type": "path", "no_log": False},
}


def main() -> None:
    """Say that the work is not done here: the action plugin of this name never comes this far."""
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        supports_check_mode=True,
    )
    module.fail_json(
        msg="acceptance_report reads the evidence on the controller and cannot run on a host"
    )


if __name__ == "__main__":
    main()
