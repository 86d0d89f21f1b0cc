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
    C(plugstack.conf) and C(topology.conf) in the words of the declared release.
  - What Slurm itself would accept silently is refused here, such as two default partitions. All
    errors are listed at once.
  - Runs where Ansible runs (C(delegate_to=localhost), C(run_once=true)); the cost does not grow
    with the number of hosts.
version_added: 0.1.0
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
    description: Release of Slurm as MAJOR.MINOR.
    type: str
    required: true
  cluster_name:
    description: Name of the cluster.
    type: str
    required: true
  controllers:
    description: Hosts that run slurmctld, in order.
    type: list
    elements: str
    required: true
  databases:
    description: Hosts that run slurmdbd, in order; none for no accounting.
    type: list
    elements: str
    default: []
  auth:
    description: How Slurm's parts prove who they are.
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
        C(gres) and C(features).
    type: list
    elements: dict
    required: true
  node_sets:
    description: Named sets, each with C(name) and either C(nodes) or C(feature).
    type: list
    elements: dict
    default: []
  partitions:
    description: Partitions, as O(ignore:slurm_controller_partitions) of the role slurm_controller.
    type: list
    elements: dict
    required: true
  topology:
    description: Pseudo-switches with C(switch) and either C(nodes) or C(switches).
    type: list
    elements: dict
    default: []
  topology_plugin:
    description: How Slurm places jobs on the topology.
    type: str
    choices: [none, tree, block]
    default: tree
  gres_autodetect:
    description: How slurmd finds the GPUs; V(off) uses the files of O(nodes).
    type: str
    choices: ['off', nvml, nvidia]
    default: 'off'
  cgroup:
    description: >-
      How jobs are confined, with C(plugin), C(mountpoint), C(constrain_cores), C(constrain_ram),
      C(constrain_swap), C(constrain_devices).
    type: dict
    default: {}
  pretended_hardware:
    description: The nodes claim hardware they do not have. Only for the virtual pod.
    type: bool
    default: false
  state_save_location:
    description: Where slurmctld keeps jobs and node states.
    type: path
    default: /var/lib/slurm/slurmctld
  prolog:
    description: Scripts before a job, on the compute nodes.
    type: list
    elements: str
    default: []
  epilog:
    description: Scripts after a job, on the compute nodes.
    type: list
    elements: str
    default: []
  plugstack:
    description: Lines of plugstack.conf.
    type: list
    elements: str
    default: []
  options:
    description: Any other key of slurm.conf.
    type: dict
    default: {}
  dest:
    description:
      - Directory that holds exactly the rendered files afterwards; made when missing.
      - Without it nothing is written.
    type: path
seealso:
  - module: baremetal.dgx.cluster_plan
"""

EXAMPLES = r"""
- name: Render Slurm's configuration
  baremetal.dgx.slurm_config:
    version: "24.11"
    cluster_name: core
    controllers: [head-01]
    databases: [head-01]
    nodes: "{{ plan.slurm.nodes }}"
    partitions:
      - {name: batch, nodes: [ALL], default: true}
    dest: build/slurm
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
files:
  description: File name and text.
  returned: success
  type: dict
restart_key:
  description: >-
    Digest of what this release of Slurm takes only by a restart of slurmctld. Empty where
    C(scontrol reconfigure) takes everything.
  returned: success
  type: str
errors:
  description: Everything that is wrong with the description.
  returned: failure
  type: list
  elements: str
"""

import os
import tempfile
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_conf import (
    check,
    render,
    restart_key,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "version": {"type": "str", "required": True},
    "cluster_name": {"type": "str", "required": True},
    "controllers": {"type": "list", "elements": "str", "required": True},
    "databases": {"type": "list", "elements": "str", "default": []},
    "auth": {"type": "str", "choices": ["munge", "slurm"], "default": "munge"},
    "configless": {"type": "bool", "default": True},
    "nodes": {"type": "list", "elements": "dict", "required": True},
    "node_sets": {"type": "list", "elements": "dict", "default": []},
    "partitions": {"type": "list", "elements": "dict", "required": True},
    "topology": {"type": "list", "elements": "dict", "default": []},
    "topology_plugin": {"type": "str", "choices": ["none", "tree", "block"], "default": "tree"},
    "gres_autodetect": {"type": "str", "choices": ["off", "nvml", "nvidia"], "default": "off"},
    "cgroup": {"type": "dict", "default": {}},
    "pretended_hardware": {"type": "bool", "default": False},
    "state_save_location": {"type": "path", "default": "/var/lib/slurm/slurmctld"},
    "prolog": {"type": "list", "elements": "str", "default": []},
    "epilog": {"type": "list", "elements": "str", "default": []},
    "plugstack": {"type": "list", "elements": "str", "default": []},
    "options": {"type": "dict", "default": {}},
    "dest": {"type": "path"},
}

# All that render() may write; what it does not write this time is removed from dest.
FILES = ("slurm.conf", "cgroup.conf", "gres.conf", "plugstack.conf", "topology.conf")


def load(directory: str) -> dict[str, str]:
    """Return the files that lie in the directory now."""
    found = {}
    for name in FILES:
        path = os.path.join(directory, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as handle:
                found[name] = handle.read()
    return found


def apply(
    module: AnsibleModule, directory: str, before: dict[str, str], after: dict[str, str]
) -> None:
    """Write what differs, each file atomically, and remove what is no longer rendered."""
    os.makedirs(directory, exist_ok=True)
    for name, text in after.items():
        if before.get(name) == text:
            continue
        handle, path = tempfile.mkstemp(dir=module.tmpdir)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(path, 0o644)
        module.atomic_move(path, os.path.join(directory, name))
    for name in before.keys() - after.keys():
        os.unlink(os.path.join(directory, name))


def main() -> None:
    """Values → files."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    values = {
        **module.params,
        "controllers": [{"name": name} for name in module.params["controllers"]],
    }
    errors = check(values)
    if errors:
        module.fail_json(msg="\n".join(errors), errors=errors)
    files = render(values)
    directory = module.params["dest"]
    before = load(directory) if directory else files
    diff = [
        {
            "before_header": name,
            "after_header": name,
            "before": before.get(name, ""),
            "after": files.get(name, ""),
        }
        for name in FILES
        if before.get(name) != files.get(name)
    ]
    if diff and not module.check_mode:
        apply(module, directory, before, files)
    module.exit_json(
        changed=bool(diff),
        diff=diff,
        files=files,
        restart_key=restart_key(files["slurm.conf"], values["version"]),
    )


if __name__ == "__main__":
    main()
