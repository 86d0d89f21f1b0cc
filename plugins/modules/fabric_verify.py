#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_verify
short_description: Compare the InfiniBand fabric with the plan, cable by cable
description:
  - Looks at the subnet once, from a host that is attached to it, and compares every cable with the
    plan. Missing, exchanged, moved and unexpected cables, absent and silent devices, slow links,
    growing error counters and missing subnet managers are found; each is reported once, with both
    ends and what to do.
  - One discovery is made (C(ibnetdiscover)); states, where cables are missing, and counters are
    read with its cache (C(iblinkinfo), C(ibqueryerrors)). With O(interval_s) the counters are read
    twice, so that rates are judged and not totals.
  - Nothing is changed, in the fabric or on its devices. Counters are not cleared.
  - Return codes of these tools say little, and are not trusted. What they complain of, a truncated
    answer, and a tool that hangs, crashes or is not installed leave C(not_measured),
    never a pass, and never fail a cable.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.fabric
  - baremetal.dgx.fabric.plan
  - baremetal.dgx.fabric.known
  - baremetal.dgx.fabric.sweep
  - baremetal.dgx.check
  - baremetal.dgx.check.timeout
options:
  subnet_managers:
    description: Nodes or switches that run a subnet manager. When not given, only the number of
      masters is judged. Not used with another O(subnet_manager_provider) than V(opensm).
    type: list
    elements: str
    default: []
  subnet_manager_provider:
    description:
      - Who manages the subnet, as of the role subnet_manager. With V(ufm) and V(switch) the
        inventory does not know where subnet managers run. They are reported, exactly one must be
        master, and none may run on a node of the plan.
    type: str
    choices: [opensm, ufm, switch]
    default: opensm
  subnet_manager_guids:
    description: GUIDs of all ports that run a subnet manager, those of UFM for example. Others are
      then unexpected, and one that is missing is a finding.
    type: list
    elements: str
    default: []
  adapters:
    description:
      - For each node that answered, the adapters that it sees itself, which is
        RV(baremetal.dgx.ib_info#module:adapters).
      - The PCI address tells which rail of the profile an adapter is, and the GUID which device of
        the fabric; names and places then decide nothing.
      - Tells an adapter that is gone (C(hca_absent)) from a cable that is (C(missing)).
      - An adapter of a node that did not answer, and without a name of the plan, is known by its
        place alone. Its cable is then C(not_measured), since an exchanged one would look the same.
    type: dict
    default: {}
  oversubscription_max:
    description: Rate from below over the rate upward that a leaf may have at most. When not given
      the plan's own is right.
    type: float
  node_names:
    description: Names of switches by GUID, for switches without their own system.
    type: dict
    default: {}
  switch_health:
    description:
      - Whether C(ibswinfo) is asked for power supplies, fans and temperature of each switch of the
        plan, a second or two for each. The tool is not part of infiniband-diags; without it they
        are C(not_measured), as they are with O(sweep_files).
    type: bool
    default: false
  learn:
    description:
      - Path of a list of cables (CSV) to make of this sweep, for C(cluster_fabric.cabling) with
        C(source=learned). The fabric is then not compared with the plan's cables, only with its
        devices.
      - What breaks the pattern of most of the fabric, an exchanged cable or a missing uplink, is
        refused, since it would be the reference from then on.
    type: path
  learn_allowed:
    description: Findings that O(learn) takes into the list as they are, each as the refusal names
      it, V(swapped cable:dgx-01/rail0--leaf-01/1) for example. The list names them in comments.
    type: list
    elements: str
    default: []
seealso:
  - module: baremetal.dgx.cluster_plan
  - module: baremetal.dgx.ib_health
"""

EXAMPLES = r"""
- name: Prove every cable
  baremetal.dgx.fabric_verify:
    plan: "{{ lookup('ansible.builtin.file', cluster_state_dir ~ '/plan/fabric/cables.json')
      | from_json }}"
    subnet_managers: "{{ groups['subnet_managers'] }}"
    interval_s: 720
    output: /var/lib/baremetal-dgx/fabric

- name: Judge answers that were saved elsewhere
  baremetal.dgx.fabric_verify:
    plan_file: cables.json
    sweep_files:
      ibnetdiscover: raw/ibnetdiscover.txt
      iblinkinfo: raw/iblinkinfo.txt
    output: judged
  delegate_to: localhost
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
complaints:
  description: What makes it doubtful whether everything was seen.
  returned: when the fabric was judged
  type: list
  elements: str
information:
  description: Subnet managers, bandwidth and uplinks that are left, counters that are not a fault
    of a link.
  returned: when the fabric was judged
  type: list
  elements: str
bandwidth:
  description: What the fabric can carry in Gb/s, as planned and as found. C(of) is C(bisection),
    half of what all leaves together can pass on, or a rail. Empty where the sweep is doubtful.
  returned: when the fabric was judged
  type: list
  elements: dict
summary:
  description: The verdict in one line, and numbers of cables by status.
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

import gc
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import look_in_time
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.ask import (
    KNOWN,
    PLAN,
    REPORT,
    SWEEP,
    expectation,
    load_places,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge import (
    EmptyPlanError,
    OtherClusterError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge_subnet_managers import (
    OPENSM,
    PROVIDERS,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import load_plan
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.report import COUNTED, verify
from ansible_collections.baremetal.dgx.plugins.module_utils._inspection.learn import learn

ARGUMENT_SPEC: dict[str, Any] = {
    **check_options(timeout_s=120),
    **REPORT,
    **PLAN,
    **KNOWN,
    **SWEEP,
    "subnet_managers": {"type": "list", "elements": "str", "default": []},
    "subnet_manager_provider": {"type": "str", "choices": list(PROVIDERS), "default": OPENSM},
    "subnet_manager_guids": {"type": "list", "elements": "str", "default": []},
    "adapters": {"type": "dict", "default": {}},
    "oversubscription_max": {"type": "float"},
    "node_names": {"type": "dict", "default": {}},
    "switch_health": {"type": "bool", "default": False},
    "learn": {"type": "path"},
    "learn_allowed": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    """Observe, judge, report."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
        mutually_exclusive=[("plan", "plan_file")],
        required_one_of=[("plan", "plan_file")],
    )
    params, run = module.params, ModuleRunner(module)
    saved = [str(path) for path in (params["sweep_files"] or {}).values()]
    folders = [params["output"], os.path.dirname(params["learn"] or "")]
    look_in_time(module, [params["plan_file"], *folders, *saved])
    # A large fabric is many small objects that all stay: to look for garbage among them, again and
    # again, would be most of the work.
    gc.disable()
    with reported(module, {"files": []}, EmptyPlanError, OtherClusterError):
        plan, _places = load_plan(params), load_places(params["places"])
        wanted = expectation(params)
        # Ansible copies each option into the answer: these are tens of thousands of values.
        params.update(plan=None, adapters={})
        if params["learn"]:
            module.exit_json(**learn(run, plan, wanted, params, module.check_mode))
        records, result = verify(run, plan, wanted, params, module.check_mode)
    # The interval of one reading is what was asked for, and no shortcoming.
    judged = [record for record in records if record.check != "fabric.interval"]
    finish(module, judged, msg=result["text"], at="", counted=COUNTED, all_records=False, **result)


if __name__ == "__main__":
    main()
