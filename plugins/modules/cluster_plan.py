#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_plan
short_description: Check the whole inventory and compute the cluster's plan from it
description:
  - Reads the inventory of the running ansible-playbook, checks all of it against the inventory
    contract and against the argument specs of the collection's roles, and writes down what the
    cluster must look like.
  - Everything that is wrong is reported at once, one line each, with its path, what is wrong, and
    what to write instead. The path is C(GROUP.HOST.VARIABLE) for what is written for one host, and
    C(GROUP.VARIABLE) for what is written for a group. No host is contacted.
  - Writes C(plan/plan.json), C(plan/nodes/NAME.json) with the part of each node, and C(plan/hosts),
    the text of C(/etc/hosts) for all nodes, below the state directory. They hold the inventory and
    nothing else, so check mode writes them too.
  - Writes C(plan/inputs/NAME.json), the inputs of each host's roles, which the playbooks read as
    variables. What the inventory sets for a role is not repeated there but referred to.
  - Extra variables that change the plan lead to a plan for runs with the same values alone, in
    C(extra_plans/DIGEST) instead of C(plan), and leave the plan of the inventory's files as it is.
  - Where there is a compute fabric, plans every cable of it and writes C(plan/fabric), with
    C(cables.json) for other modules, C(cables.csv) and C(cables.html) for technicians, C(ufm.csv),
    C(node-name-map), C(ibsim.net), and for leaf and spine Slurm's C(topology.conf) and
    C(topology.yaml). The cables are those of the reference design, or those of the list that
    C(cluster_fabric.cabling) names; every mistake in that list is reported as one of the inventory.
  - Runs on the controller, as an action plugin.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: The plan on the controller is written in check mode too. It is a copy of the inventory.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  state_dir:
    description:
      - Where the controller keeps the cluster's state; the plan goes to C(plan) below it.
      - Without it, the variable C(cluster_state_dir), and without that, C(.dgx) in the inventory's
        directory.
    type: path
  made:
    description:
      - What this module has returned before in the same run; then the plan is not made once more.
    type: dict
    default: {}
  hosts:
    description:
      - Patterns of the hosts that the playbook is for, each as in C(hosts) of a play. Fails, in one
        line, where one of them means no host that is present, or C(--limit) leaves none.
      - Without it the plan alone is made, and the playbooks that follow in the same run are parts
        of a whole; C(--limit) may leave a part without hosts then.
    type: list
    elements: raw
    default: []
  groups:
    description: Groups that the playbook can do something for; others do not count as its hosts.
    type: list
    elements: str
    default: [cluster]
  fabric:
    description:
      - Kinds of fabric that the playbook can look at. Fails where none of them is planned. In
        O(hosts), C(__fabric_host) means the host that looks at it.
    type: list
    elements: str
    choices: [infiniband, ethernet]
    default: []
  part:
    description:
      - Whether another playbook has imported this one for what follows from its own work. Then
        it may have nothing to do, as a part of a whole run.
    type: bool
    default: false
  declared:
    description:
      - What makes the playbook do something on a host. Fails, in one line, where no host of
        O(hosts) has it. It is not asked of a part of a whole run.
    type: dict
    suboptions:
      roles:
        description: Roles, of which the plan has at least one for the host.
        type: list
        elements: str
        required: true
      write:
        description: What to write in the inventory so that there is something to do.
        type: str
        required: true
      write_here:
        description:
          - What to write for these hosts if others have something to do. Without it,
            O(declared.write).
        type: str
        default: ""
notes:
  - Secrets are neither templated nor written.
  - A value that depends on a fact of a host is checked on that host, by the role that takes it.
seealso:
  - module: ansible.builtin.validate_argument_spec
"""

EXAMPLES = r"""
- name: Check the inventory before any host is touched
  hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - name: Compute the plan
      baremetal.dgx.cluster_plan:
      register: plan

    - name: Show how many GPUs the cluster has
      ansible.builtin.debug:
        msg: "{{ plan.summary.gpus }}"
"""

RETURN = r"""
problems:
  description: Everything that is wrong with the inventory, one line each, sorted.
  returned: failure
  type: list
  elements: str
  sample:
    - "gpu_nodes.dgx-07.node_rack_unit: units 11-18 of rack r03 are filled by gpu_nodes.dgx-06
      (units 9-16); write a free unit, or another node_rack"
plan_dir:
  description: The folder with C(plan.json) and C(hosts).
  returned: success
  type: str
  sample: /home/operator/inventories/core_12/.dgx/plan
whole:
  description: Whether the plan was made for the whole cluster, without O(hosts).
  returned: success
  type: bool
fabric_host:
  description: The host that looks at the fabric; empty where none is planned.
  returned: when O(hosts)
  type: str
  sample: head-01
report:
  description: The summary as lines for the operator.
  returned: success
  type: list
  elements: str
  sample: ["cluster core: 16 nodes, 96 GPUs, 5 racks"]
summary:
  description: The plan in numbers. Nodes declared absent count only in RV(summary.absent).
  returned: success
  type: dict
  contains:
    cluster:
      description: Name of the cluster.
      type: str
      sample: core
    nodes:
      description: Nodes in the cluster.
      type: int
      sample: 16
    absent:
      description: Nodes that the inventory declares absent.
      type: int
      sample: 0
    groups:
      description: Nodes by group.
      type: dict
      sample: {gpu_nodes: 12, login_nodes: 2, slurm_controllers: 2, slurm_databases: 1}
    gpus:
      description: GPUs that Slurm has.
      type: int
      sample: 96
    cables:
      description: Cables by kind; empty without a compute fabric.
      type: dict
      sample: {node-leaf: 96, leaf-leaf: 16}
    networks:
      description: Networks by name.
      type: dict
      sample: {management: 10.1.0.0/24}
    racks:
      description: Racks with nodes in them.
      type: int
      sample: 4
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

# The action plugin, which does the work, takes the same.
ARGUMENTS: dict[str, Any] = {
    "state_dir": {"type": "path"},
    "made": {"type": "dict", "default": {}},
    "hosts": {"type": "list", "elements": "raw", "default": []},
    "groups": {"type": "list", "elements": "str", "default": ["cluster"]},
    "part": {"type": "bool", "default": False},
    "fabric": {
        "type": "list",
        "elements": "str",
        "choices": ["infiniband", "ethernet"],
        "default": [],
    },
    "declared": {
        "type": "dict",
        "options": {
            "roles": {"type": "list", "elements": "str", "required": True},
            "write": {"type": "str", "required": True},
            "write_here": {"type": "str", "default": ""},
        },
    },
}


def main() -> None:
    """Say that the work is not done here: the action plugin of this name never comes this far."""
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        supports_check_mode=True,
    )
    module.fail_json(
        msg="cluster_plan reads the inventory on the controller and cannot run on a host"
    )


if __name__ == "__main__":
    main()
