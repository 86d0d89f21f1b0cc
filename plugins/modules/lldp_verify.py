#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: lldp_verify
short_description: Compare an Ethernet fabric with the plan, cable by cable
description:
  - Judges what the nodes received over LLDP, as M(baremetal.dgx.fabric_verify) judges a sweep of
    InfiniBand. Missing, exchanged, moved and unexpected cables and slow links are found; each is
    reported once, with both ends and what to do. Nothing is asked here, and nothing is changed.
  - A cable of which nothing was received is C(not_measured) if its node did not answer, its link is
    up and hears no switch, or the interface does not have the name of its rail yet.
  - Cables between switches are C(not_measured), unless O(switch_neighbor_files) has the answer of
    one of the two; LLDP does not show the rate of those. What of such an answer cannot be read, the
    name of a port or of a switch, fails no cable either.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.fabric
  - baremetal.dgx.fabric.plan
  - baremetal.dgx.fabric.known
  - baremetal.dgx.check
options:
  neighbors:
    description: What M(baremetal.dgx.lldp_info) returned, by node. A node without an answer is left
      out.
    type: dict
    required: true
  switch_neighbor_files:
    description: Paths of what C(lldpcli -f json0 show neighbors) printed on switches, by name of
      the switch. A name that the plan does not have is C(not_measured).
    type: dict
    default: {}
  ports_per_cage:
    description:
      - How many ports a divided cage has. V(2) makes C(swp12s1) port 24.
      - Names are those of Cumulus Linux (C(swp12), C(swp12s1)), of Onyx (C(Eth1/12), C(Eth1/12/2))
        and the descriptions of SONiC (C(etp12), C(etp12b)).
    type: int
    default: 2
seealso:
  - module: baremetal.dgx.lldp_info
  - module: baremetal.dgx.fabric_verify
"""

EXAMPLES = r"""
- name: Prove every cable
  baremetal.dgx.lldp_verify:
    plan: "{{ lookup('ansible.builtin.file', cluster_state_dir ~ '/plan/fabric/cables.json')
      | from_json }}"
    neighbors:
      dgx-01: "{{ lldp }}"
"""

RETURN = r"""
records:
  description:
    - One record for each question; C(verdict) folds them into one, C(counts) has how many there are
      of each status, C(findings) and C(not_measured) a line for each that did not pass.
      C(docs/records.md) describes them all.
  returned: always
  type: list
  elements: dict
causes:
  description: One for each thing that has to be done, with both ends and the cables that it
    explains, as C(findings) of C(records.json) in C(docs/fabric.md); what costs the jobs most
    comes first.
  returned: when the fabric was judged
  type: list
  elements: dict
doubts:
  description: What could not be judged, in the form of RV(causes).
  returned: when the fabric was judged
  type: list
  elements: dict
information:
  description: Empty; RV(baremetal.dgx.fabric_verify#module:information) has it.
  returned: when the fabric was judged
  type: list
  elements: str
bandwidth:
  description: Empty; RV(baremetal.dgx.fabric_verify#module:bandwidth) has it.
  returned: when the fabric was judged
  type: list
  elements: dict
summary:
  description: The verdict in one line, and numbers of cables by status, of all and, as
    C(node_cables), of nodes.
  returned: when the fabric was judged
  type: dict
text:
  description: The whole of C(findings.txt).
  returned: when the fabric was judged
  type: str
files:
  description: The files that were written.
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import look_in_time
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.ask import (
    KNOWN,
    PLAN,
    REPORT,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge import OtherClusterError
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import load_plan
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.report import COUNTED
from ansible_collections.baremetal.dgx.plugins.module_utils._lldp.sweep import PORTS_PER_CAGE
from ansible_collections.baremetal.dgx.plugins.module_utils._lldp.verify import verify

ARGUMENT_SPEC: dict[str, Any] = {
    **check_options(),
    **REPORT,
    **PLAN,
    **KNOWN,
    "neighbors": {"type": "dict", "required": True},
    "switch_neighbor_files": {"type": "dict", "default": {}},
    "ports_per_cage": {"type": "int", "default": PORTS_PER_CAGE},
}


def main() -> None:
    """Judge, report."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
        mutually_exclusive=[("plan", "plan_file")],
        required_one_of=[("plan", "plan_file")],
    )
    params = module.params
    saved = [str(path) for path in params["switch_neighbor_files"].values()]
    look_in_time(module, [params["plan_file"], params["output"], *saved])
    with reported(module, {"files": []}, OtherClusterError):
        records, result = verify(load_plan(params), params, module.check_mode)
    finish(module, records, msg=result["text"], at="", counted=COUNTED, all_records=False, **result)


if __name__ == "__main__":
    main()
