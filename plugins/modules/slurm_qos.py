#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_qos
short_description: Keep the QOS of a Slurm accounting database as declared
description:
  - Compares declared QOS with those in the database and sends only what differs, through
    C(sacctmgr).
  - An entry is complete. A limit that it does not name is unset, and a flag that it does not name
    is cleared. Only a
    description that is not given is left alone.
  - After a change the database is read again; what did not take effect is an error, since
    C(sacctmgr) does not always
    tell.
  - Slurmdbd 22.05 remembers a preemption that was removed until it is restarted, and takes the
    opposite one for a loop.
    The error names it.
  - Runs on any host with C(sacctmgr) from where slurmdbd can be reached. Tried with Slurm 22.05 and
    24.11.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
    details: Where the database cannot be asked, because earlier tasks have only pretended, it is
      taken to be empty.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  qos:
    description: The QOS.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name.
        type: str
        required: true
      state:
        description: Whether it exists.
        type: str
        choices: [present, absent]
        default: present
      description:
        description: Some words; Slurm keeps them in lower case.
        type: str
      priority:
        description: Priority, V(0) when not given.
        type: int
      flags:
        description: Flags such as V(DenyOnLimit), V(OverPartQOS), V(NoDecay).
        type: list
        elements: str
      grace_time:
        description: Seconds that a preempted job still gets, or a quoted time such as V("0:02:00").
        type: str
      preempt:
        description: QOS whose jobs those of this one may preempt.
        type: list
        elements: str
      preempt_mode:
        description: V(cluster) (the cluster's own mode, when not given), V(cancel), V(requeue),
          V(suspend) or V(within).
        type: str
      usage_factor:
        description: What a job's usage is multiplied with; V(1) when not given.
        type: float
      max_wall:
        description:
          - Longest run time of a job as a quoted string, V("D-HH:MM:SS"), V("HH:MM:SS") or minutes.
          - A number is refused, since YAML reads an unquoted C(2:00:00) as 7200.
        type: raw
      max_jobs_per_user:
        description: Running jobs of one user.
        type: int
      max_submit_jobs_per_user:
        description: Queued and running jobs of one user.
        type: int
      max_jobs_per_account:
        description: Running jobs of one account.
        type: int
      max_submit_jobs_per_account:
        description: Queued and running jobs of one account.
        type: int
      max_tres_per_user:
        description:
          - 'Resources of all running jobs of one user, such as C({gres/gpu: 16, mem: 2T}).'
        type: dict
      max_tres_per_job:
        description: Resources of one job.
        type: dict
      max_tres_per_account:
        description: Resources of all running jobs of one account.
        type: dict
      grp_tres:
        description: Resources of all running jobs of the QOS.
        type: dict
      grp_jobs:
        description: Running jobs of the QOS.
        type: int
      grp_submit_jobs:
        description: Queued and running jobs of the QOS.
        type: int
      min_tres_per_job:
        description: Resources that a job must ask for at least.
        type: dict
  create_only:
    description:
      - Whether QOS that exist are left as they are, so that only missing ones are created.
      - For a new cluster. A partition may name only a QOS that exists when slurmctld starts, and a
        limit on GPUs can be set only after slurmctld has registered them.
    type: bool
    default: false
  exclusive:
    description:
      - Whether QOS that are not declared are removed (all but C(normal), which is Slurm's own).
      - A QOS that an association, a partition or a queued job uses is never removed; the error
        names them.
    type: bool
    default: false
seealso:
  - module: baremetal.dgx.slurm_account
"""

EXAMPLES = r"""
- name: Let interactive jobs start soon, and let no user take the whole cluster
  baremetal.dgx.slurm_qos:
    qos:
      - name: normal
        max_tres_per_user: {gres/gpu: 32}
      - name: interactive
        description: short jobs that start soon
        priority: 100
        flags: [DenyOnLimit]
        max_wall: "4:00:00"
        max_jobs_per_user: 2
        max_tres_per_user: {gres/gpu: 2}
        preempt: [scavenger]
      - name: scavenger
        usage_factor: 0.1
        preempt_mode: requeue
    exclusive: true
"""

RETURN = r"""
commands:
  description: The C(sacctmgr) commands that were run, or would be in check mode, without C(sacctmgr
    -i).
  returned: always
  type: list
  elements: str
  sample: ["add qos interactive priority=100 flags=denyonlimit"]
changed_names:
  description: Names of the QOS that were added, modified or removed.
  returned: success
  type: list
  elements: str
errors:
  description: Everything that is wrong, when nothing was changed because of it.
  returned: when the declaration was refused
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._accounting import qos
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner

QOS_SPEC: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "state": {"choices": ["present", "absent"], "default": "present"},
    "description": {"type": "str"},
    "priority": {"type": "int"},
    "flags": {"type": "list", "elements": "str"},
    "grace_time": {"type": "str"},
    "preempt": {"type": "list", "elements": "str"},
    "preempt_mode": {"type": "str"},
    "usage_factor": {"type": "float"},
    "max_wall": {"type": "raw"},
    "max_jobs_per_user": {"type": "int"},
    "max_submit_jobs_per_user": {"type": "int"},
    "max_jobs_per_account": {"type": "int"},
    "max_submit_jobs_per_account": {"type": "int"},
    "max_tres_per_user": {"type": "dict"},
    "max_tres_per_job": {"type": "dict"},
    "max_tres_per_account": {"type": "dict"},
    "grp_tres": {"type": "dict"},
    "grp_jobs": {"type": "int"},
    "grp_submit_jobs": {"type": "int"},
    "min_tres_per_job": {"type": "dict"},
}
ARGUMENT_SPEC: dict[str, Any] = {
    "qos": {"type": "list", "elements": "dict", "default": [], "options": QOS_SPEC},
    "create_only": {"type": "bool", "default": False},
    "exclusive": {"type": "bool", "default": False},
}


def main() -> None:
    """Load, plan, apply, read again, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    run, params = ModuleRunner(module), module.params
    done: list[str] = []
    with reported(module, lambda: {"commands": done, "changed": bool(done)}):
        declared, absent = qos.desired(params["qos"])
        present = qos.present_in(module, run)
        plan = qos.make_plan(run, declared, absent, params, present)
        if not module.check_mode:
            qos.bring_about(run, declared, absent, params, plan, done)
    module.exit_json(**qos.result_of(plan, module._diff))


if __name__ == "__main__":
    main()
