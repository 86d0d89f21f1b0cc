#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_pairs
short_description: Load every link of the fabric by pairs of nodes, and find the slow part
description:
  - Makes a schedule of pair tests (C(ib_write_bw) of perftest) in which every cable of the plan is
    loaded by several different pairs in each direction, in as few rounds as possible; no node is in
    two pairs of a round, and no two flows share a link.
  - Runs it from this one host, which must reach all nodes by SSH or be able to run Slurm jobs.
    Servers are started first; the number of Ansible's forks does not matter.
  - Finds the parts (adapters, cables, cages, nodes, switches) that explain the slow flows, by the
    routes that are programmed (C(dump_fts)) or computed from the plan. What cannot be distinguished
    is named together, and measured further.
  - A pair that hangs, or a node that does not answer, is C(not_measured) and blames no part.
  - The tests load the fabric fully. Do not run them beside jobs, or run them as a Slurm job.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
  - baremetal.dgx.fabric.plan
  - baremetal.dgx.check
  - baremetal.dgx.check.timeout
attributes:
  check_mode:
    details: In check mode the schedule is returned. Nothing is run or written.
options:
  output:
    description:
      - Folder for everything that belongs to a run. It is made where it does not exist.
      - C(pairs.jsonl) gets a line for each flow as it is measured. A run that was killed goes on
        from there within a day; results of an older or complete run are set aside
        (C(pairs.jsonl.1) and so on).
    type: path
    required: true
  judge_only:
    description: Measure nothing, judge what is in O(output) again.
    type: bool
    default: false
  routes:
    description:
      - Where routes come from. V(tables) needs O(tables_file), or C(dump_fts) on this host.
      - V(computed) takes what a fat tree routing would do. V(auto) takes tables if it can get them.
      - V(one_switch) lets only adapters of one leaf switch meet, and leaves cables between switches
        out. Ethernet switches choose among equal ways by a hash, so that no other way is known.
    type: str
    choices: [auto, tables, computed, one_switch]
    default: auto
  tables_file:
    description: Output of C(dump_fts), or of C(ibroute) for every switch, on this host.
    type: path
  tool_options:
    description: Options for C(dump_fts), for example C(-C) and the device to look from.
    type: list
    elements: str
    default: []
  tool_environment:
    description: Environment variables for C(dump_fts), and for nothing else.
    type: dict
    default: {}
  timeout_s:
    description: Seconds that C(dump_fts) may take.
    default: 120
  exclude:
    description: Nodes that take no part, and rails, written as C(dgx-01/rail3).
    type: list
    elements: str
    default: []
  pairs_per_link:
    description: Different pairs that load each link in each direction, where there are so many.
    type: int
    default: 3
  loopback:
    description: Whether each adapter first sends to itself, which tells it from its cable.
    type: bool
    default: true
  cross_rail:
    description: Whether unlike rails meet where a link is loaded in no other way.
    type: bool
    default: true
  seed:
    description: The same seed gives the same schedule.
    type: int
    default: 1
  follow_ups:
    description: How often extra pairs are measured to tell apart what was left open.
    type: int
    default: 1
  memory:
    description:
      - Memory that data goes from and to. V(cuda) is GPUDirect with nvidia-peermem,
        V(cuda_dmabuf) with dma-buf; both need a perftest that was built with CUDA.
    type: str
    choices: [host, cuda, cuda_dmabuf]
    default: host
  gpus:
    description: GPU of a rail, by PCI order, for rails whose GPU has not the same number.
    type: dict
    default: {}
  both_ways:
    description:
      - Whether a pair sends in both directions at once (C(-b)). Only the sum is known then, so a
        fault of one direction is not distinguished from one of both.
    type: bool
    default: false
  size_bytes:
    description: Size of a message.
    type: int
    default: 8388608
  duration_s:
    description: Seconds of a test, at least V(3).
    type: int
    default: 10
  extra_arguments:
    description: More arguments for C(ib_write_bw), for RoCE C(-x) and the index of a GID.
    type: list
    elements: str
    default: []
  threshold_gbps:
    description: What a good flow reaches at least, whatever its rate. By default what is published
      for the rate of the slower of its adapters.
    type: float
  threshold_source:
    description: Where O(threshold_gbps) comes from; it is kept in the records.
    type: str
    default: set in the inventory
  transport:
    description:
      - How nodes are reached. V(slurm) makes one job that has all nodes to itself.
      - V(local) runs everything on this host, which must then pretend to be all nodes; for tests.
    type: str
    choices: [ssh, slurm, local]
    default: ssh
  addresses:
    description: Where a node's partner connects to it, by node. By default the node's name.
    type: dict
    default: {}
  targets:
    description: What SSH connects to (C(user@address)), by node, or all words of C(ssh) before a
      command, as P(baremetal.dgx.ssh_targets#lookup) returns them. By default as O(addresses).
    type: dict
    default: {}
  ssh_options:
    description: More arguments for C(ssh).
    type: list
    elements: str
    default: []
  slurm_options:
    description: More arguments for C(salloc), for example a partition or a reservation.
    type: list
    elements: str
    default: []
  slurm_gres:
    description: Generic resources of each node, V(gpu:8) for GPUDirect.
    type: str
    default: ""
  slurm_wait_s:
    description: Seconds to wait for the nodes.
    type: int
    default: 60
  connect_s:
    description: Seconds that connecting to a node may take.
    type: int
    default: 10
  listen_s:
    description: Seconds until a server must listen.
    type: int
    default: 20
  parallel:
    description: Pairs that run at the same time. Each takes two connections of this host.
    type: int
    default: 128
  sysfs_root:
    description: Where sysfs is on the nodes; C({node}) becomes the node's name.
    type: str
    default: /sys
seealso:
  - module: baremetal.dgx.fabric_verify
  - module: baremetal.dgx.cluster_plan
"""

EXAMPLES = r"""
- name: Load every link, GPU memory to GPU memory
  baremetal.dgx.fabric_pairs:
    plan: "{{ lookup('ansible.builtin.file', cluster_state_dir ~ '/plan/fabric/cables.json')
      | from_json }}"
    output: /var/lib/baremetal-dgx/pairs
    memory: cuda_dmabuf

- name: The same as one Slurm job
  baremetal.dgx.fabric_pairs:
    plan_file: /etc/dgx/cables.json
    output: /var/lib/baremetal-dgx/pairs
    transport: slurm
    slurm_gres: gpu:8
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
schedule:
  description: Rounds, how many all pairs would take, and links that no pair loads.
  returned: always
  type: dict
rounds:
  description: The pairs of each round.
  returned: in check mode
  type: list
  elements: list
routes:
  description: Where the routes come from, and what is wrong with them.
  returned: always
  type: dict
"""

import signal
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.check_module import (
    check_options,
    finish,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import look_in_time
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import NOT_MEASURED
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.ask import PLAN
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.options import ROUTES, ask_pairs
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.perftest import MEMORIES
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.session import QUIET

ARGUMENT_SPEC: dict[str, Any] = {
    **check_options(timeout_s=120),
    **PLAN,
    "output": {"type": "path", "required": True},
    "judge_only": {"type": "bool", "default": False},
    "routes": {"type": "str", "choices": ROUTES, "default": "auto"},
    "tables_file": {"type": "path"},
    "tool_options": {"type": "list", "elements": "str", "default": []},
    "tool_environment": {"type": "dict", "default": {}},
    "exclude": {"type": "list", "elements": "str", "default": []},
    "pairs_per_link": {"type": "int", "default": 3},
    "loopback": {"type": "bool", "default": True},
    "cross_rail": {"type": "bool", "default": True},
    "seed": {"type": "int", "default": 1},
    "follow_ups": {"type": "int", "default": 1},
    "memory": {"type": "str", "choices": list(MEMORIES), "default": "host"},
    "gpus": {"type": "dict", "default": {}},
    "both_ways": {"type": "bool", "default": False},
    "size_bytes": {"type": "int", "default": 8388608},
    "duration_s": {"type": "int", "default": 10},
    "extra_arguments": {"type": "list", "elements": "str", "default": []},
    "threshold_gbps": {"type": "float"},
    "threshold_source": {"type": "str", "default": "set in the inventory"},
    "transport": {"type": "str", "choices": ["ssh", "slurm", "local"], "default": "ssh"},
    "addresses": {"type": "dict", "default": {}},
    "targets": {"type": "dict", "default": {}},
    "ssh_options": {"type": "list", "elements": "str", "default": []},
    "slurm_options": {"type": "list", "elements": "str", "default": []},
    "slurm_gres": {"type": "str", "default": ""},
    "slurm_wait_s": {"type": "int", "default": 60},
    "connect_s": {"type": "int", "default": 10},
    "listen_s": {"type": "int", "default": 20},
    "parallel": {"type": "int", "default": 128},
    "sysfs_root": {"type": "str", "default": "/sys"},
}


def main() -> None:
    """Plan, measure, judge, report."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
        mutually_exclusive=[("plan", "plan_file")],
        required_one_of=[("plan", "plan_file")],
    )
    # Else the tests on the nodes would only end when they notice.
    signal.signal(signal.SIGTERM, lambda *_which: module.fail_json(msg="was interrupted (TERM)"))
    params = module.params
    look_in_time(module, [params["output"], params["plan_file"], params["tables_file"]])
    result: dict[str, Any] = {}
    with reported(module, result):
        outcome = ask_pairs(ModuleRunner(module), params, result, module.check_mode)
    if outcome is None:
        finish(module, [], **result)
    result["follow_ups"] = outcome.follow_ups
    finish(module, outcome.records, counted={NOT_MEASURED: QUIET}, all_records=False, **result)


if __name__ == "__main__":
    main()
