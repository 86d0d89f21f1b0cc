#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_config
short_description: Render Slurm's configuration for the whole cluster, once
description:
  - Turns the description of a cluster into C(slurm.conf), C(cgroup.conf), C(gres.conf),
    C(topology.conf) or C(topology.yaml), and C(plugstack.conf), in the words of the declared
    release.
  - What Slurm itself would accept silently is refused here, such as two default partitions. All
    errors are listed at once, each with its path and what to write instead.
  - Runs where Ansible runs (C(delegate_to=localhost), C(run_once=true)); the cost does not grow
    with the number of hosts.
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
  version:
    description:
      - Release of Slurm as MAJOR.MINOR.
      - Known are V(22.05), V(23.02), V(23.11), V(24.05), V(24.11), V(25.05), V(25.11) and V(26.05).
    type: str
    required: true
  cluster_name:
    description: Name of the cluster.
    type: str
    required: true
  controllers:
    description:
      - Hosts that run slurmctld, the primary first. Each is a name, or a dictionary of C(name) and
        C(address) where the name does not resolve to the address to use.
    type: list
    elements: raw
    required: true
  databases:
    description: Hosts that run slurmdbd, the primary first; none for no accounting.
    type: list
    elements: str
    default: []
  auth:
    description: How Slurm's parts prove who they are. V(slurm) from 24.11 on.
    type: str
    choices: [munge, slurm]
    default: munge
  configless:
    description: Whether slurmctld serves the configuration to the nodes.
    type: bool
    default: true
  nodes:
    description:
      - The nodes, as C(slurm.nodes) of the plan that M(baremetal.dgx.cluster_plan) makes, with
        C(name), C(cpus), C(sockets), C(cores_per_socket), C(threads_per_core), C(real_memory_mb),
        C(gres), C(features) and C(weight). C(name) may mean several nodes that are alike,
        C(dgx-[01-12]).
      - Of C(gres), each has C(name), C(type), C(count), and either none or one for each device of
        C(files), C(cores) (in Slurm's own numbers of cores, see C(gres.conf(5))) and C(links).
        A device of several files has them with commas between, as a MIG instance.
    type: list
    elements: dict
    required: true
  node_sets:
    description: Named sets, each with C(name) and either C(nodes) or C(feature).
    type: list
    elements: dict
    default: []
  partitions:
    description:
      - Partitions, each with C(name) and C(nodes), which may hold node names, node sets like
        C(dgx-[01-04]), names of O(node_sets) and C(ALL).
      - Further C(default), C(state), C(default_time), C(max_time), C(max_nodes), C(qos),
        C(allow_accounts), C(allow_groups), C(allow_qos), C(priority_tier), C(preempt_mode),
        C(oversubscribe), C(topology), and C(options) for any other key of the line.
      - C(topology) is V(tree), V(block) or V(flat), where the partition departs from
        O(topology_plugin). The file is then C(topology.yaml), from Slurm 25.05 on.
      - A partition whose nodes have more memory or CPUs a GPU than the smallest of the cluster gets
        its own defaults for jobs that do not say what they need.
    type: list
    elements: dict
    required: true
  topology:
    description:
      - Pseudo-switches with C(switch) and either C(nodes) or C(switches), as C(slurm.topology) of
        the plan.
      - With O(topology_plugin=block), those with nodes are the blocks.
    type: list
    elements: dict
    default: []
  topology_plugin:
    description: How Slurm places jobs on the topology. V(block) from 23.11 on.
    type: str
    choices: [none, tree, block]
    default: tree
  topology_format:
    description:
      - Whether the topology is written as C(topology.conf), which all releases read, or as
        C(topology.yaml), which Slurm knows from 25.05 on and which wins when both are there.
      - Slurm serves C(topology.yaml) to nodes without their own files from 25.05.2 on, and needs
        to be built with YAML.
    type: str
    choices: [conf, yaml]
    default: conf
  block_sizes:
    description: Sizes in nodes that jobs are packed into; powers of two of the first.
    type: list
    elements: int
    default: []
  gres_autodetect:
    description:
      - How slurmd finds the GPUs. V(off) uses the files of O(nodes).
      - V(nvml) needs a Slurm that was built with NVML; V(nvidia) needs 24.11 and finds no MIG.
    type: str
    choices: ['off', nvml, nvidia]
    default: 'off'
  cgroup:
    description:
      - How jobs are confined, with C(plugin) (C(autodetect), C(cgroup/v2), C(cgroup/v1),
        C(disabled)), C(mountpoint), C(constrain_cores), C(constrain_ram), C(constrain_swap) and
        C(constrain_devices), all of which are true when not given.
      - With C(disabled), processes are tracked without cgroups, devices are not confined, and an
        ssh login outlives its job.
    type: dict
    default: {}
  pretended_hardware:
    description:
      - The nodes claim hardware they do not have. Only for the virtual pod.
      - Cores, memory and swap are not confined then, since what does not exist cannot be given.
    type: bool
    default: false
  state_save_location:
    description: Where slurmctld keeps jobs and node states.
    type: path
    default: /var/lib/slurm/slurmctld
  spool_dir:
    description: Where slurmd keeps its state.
    type: path
    default: /var/lib/slurm/slurmd
  log_dir:
    description: Where the daemons write their logs.
    type: path
    default: /var/log/slurm
  prolog:
    description:
      - Scripts before a job, on the compute nodes, as paths or patterns.
      - At least one file must match a pattern, or every node that a job starts on is drained.
    type: list
    elements: str
    default: []
  epilog:
    description: Scripts after a job, likewise.
    type: list
    elements: str
    default: []
  health_check:
    description:
      - What slurmd runs to judge its node, with C(program), C(interval_s) (300 when not given),
        C(node_state) (a list; idle nodes in turn when not given), and from 26.05 on C(timeout_s).
    type: dict
    default: {}
  return_to_service:
    description:
      - What Slurm does when a node that was DOWN registers again, see C(ReturnToService).
      - When not given, V(1), and V(2) with O(pretended_hardware=true).
    type: int
    choices: [0, 1, 2]
  mpi_default:
    description: >-
      What C(srun) starts MPI programs with. V(pmix) needs a Slurm that was built with PMIx, and the
      library on every node, or every C(srun) fails.
    type: str
    default: none
  accounting_enforce:
    description: What jobs must have and keep to. Needs O(databases).
    type: list
    elements: str
    default: [associations, limits, qos, safe]
  default_cpus_per_gpu:
    description: CPUs for each GPU of a job that does not say. V(0) is the share of a GPU.
    type: int
    default: 0
  default_mem_per_gpu_mb:
    description: Memory in MiB for each GPU of a job that does not say. V(0) is its share.
    type: int
    default: 0
  default_mem_per_cpu_mb:
    description: Memory in MiB for each CPU of a job without GPUs. V(0) is its share.
    type: int
    default: 0
  reboot_program:
    description: What C(scontrol reboot) runs on the nodes.
    type: str
    default: /sbin/reboot
  resume_timeout_s:
    description: Seconds a rebooted node may take to come back. A DGX takes 6 to 10 minutes.
    type: int
    default: 1800
  plugstack:
    description:
      - Lines of C(plugstack.conf).
      - With O(configless=true) an C(include) with a path or a pattern is refused, since slurmctld
        does not serve it.
    type: list
    elements: str
    default: []
  options:
    description:
      - Any other key of C(slurm.conf); wins over what the module writes. A key that an input sets
        is refused, with the name of the input.
      - What C(PrologFlags), C(LaunchParameters), C(SlurmctldParameters) and C(SlurmdParameters)
        name is added to what the collection needs there.
    type: dict
    default: {}
  extra_lines:
    description: Lines for C(slurm.conf) as they are, for what has no other way.
    type: list
    elements: str
    default: []
  dest:
    description:
      - Directory on this machine that holds exactly the rendered files afterwards, and whatever
        else is there; made when missing.
      - Without it nothing is written.
    type: path
seealso:
  - module: baremetal.dgx.cluster_plan
  - module: baremetal.dgx.slurm_config_check
"""

EXAMPLES = r"""
- name: Render Slurm's configuration for twelve DGX
  baremetal.dgx.slurm_config:
    version: "24.11"
    cluster_name: core
    controllers: [head-01, head-02]
    databases: [head-01]
    nodes: "{{ plan.slurm.nodes }}"
    partitions:
      - {name: batch, nodes: [ALL], default: true, max_time: "7-00:00:00"}
      - {name: debug, nodes: ["dgx-[11-12]"], max_time: "00:30:00", priority_tier: 10}
    health_check: {program: /usr/sbin/node_health}
    options:
      # a site that wants arrays of this size
      MaxArraySize: 10001
    dest: build/slurm
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
files:
  description: File name and text.
  returned: success
  type: dict
  sample: {slurm.conf: "ClusterName=core\n...", cgroup.conf: "CgroupPlugin=autodetect\n..."}
restart_key:
  description: >-
    Digest of what this release of Slurm takes only by a restart of slurmctld, for
    O(baremetal.dgx.service_sync#module:restart_key). Empty where C(scontrol reconfigure) takes
    everything, which it does from 23.11 on unless O(options) sets ports or further ways of
    authentication.
  returned: success
  type: str
remarks:
  description: What is legal, but less than a cluster should have. Also given as warnings.
  returned: success
  type: list
  elements: str
errors:
  description: Everything that is wrong with the description.
  returned: failure
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import finish_in_time
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.conf.render import bring_about

ARGUMENT_SPEC: dict[str, Any] = {
    "version": {"type": "str", "required": True},
    "cluster_name": {"type": "str", "required": True},
    "controllers": {"type": "list", "elements": "raw", "required": True},
    "databases": {"type": "list", "elements": "str", "default": []},
    "auth": {"type": "str", "choices": ["munge", "slurm"], "default": "munge"},
    "configless": {"type": "bool", "default": True},
    "nodes": {"type": "list", "elements": "dict", "required": True},
    "node_sets": {"type": "list", "elements": "dict", "default": []},
    "partitions": {"type": "list", "elements": "dict", "required": True},
    "topology": {"type": "list", "elements": "dict", "default": []},
    "topology_plugin": {"type": "str", "choices": ["none", "tree", "block"], "default": "tree"},
    "topology_format": {"type": "str", "choices": ["conf", "yaml"], "default": "conf"},
    "block_sizes": {"type": "list", "elements": "int", "default": []},
    "gres_autodetect": {"type": "str", "choices": ["off", "nvml", "nvidia"], "default": "off"},
    "cgroup": {"type": "dict", "default": {}},
    "pretended_hardware": {"type": "bool", "default": False},
    "state_save_location": {"type": "path", "default": "/var/lib/slurm/slurmctld"},
    "spool_dir": {"type": "path", "default": "/var/lib/slurm/slurmd"},
    "log_dir": {"type": "path", "default": "/var/log/slurm"},
    "prolog": {"type": "list", "elements": "str", "default": []},
    "epilog": {"type": "list", "elements": "str", "default": []},
    "health_check": {"type": "dict", "default": {}},
    "return_to_service": {"type": "int", "choices": [0, 1, 2]},
    "mpi_default": {"type": "str", "default": "none"},
    "accounting_enforce": {
        "type": "list",
        "elements": "str",
        "default": ["associations", "limits", "qos", "safe"],
    },
    "default_cpus_per_gpu": {"type": "int", "default": 0},
    "default_mem_per_gpu_mb": {"type": "int", "default": 0},
    "default_mem_per_cpu_mb": {"type": "int", "default": 0},
    "reboot_program": {"type": "str", "default": "/sbin/reboot"},
    "resume_timeout_s": {"type": "int", "default": 1800},
    "plugstack": {"type": "list", "elements": "str", "default": []},
    "options": {"type": "dict", "default": {}},
    "extra_lines": {"type": "list", "elements": "str", "default": []},
    "dest": {"type": "path"},
}


def main() -> None:
    """Work in a child, which a mount that does not answer may keep."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    what = module.params["dest"] or "slurm_config"
    finish_in_time(module, what, lambda: module.exit_json(**bring_about(module)))


if __name__ == "__main__":
    main()
