#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_account
short_description: Keep the accounts and users of a Slurm cluster as declared
description:
  - Registers the cluster in the accounting database, and compares declared accounts, users and
    their limits with
    what is there. Only what differs is sent, through C(sacctmgr).
  - An entry is complete. A limit that it does not name is unset and then inherited from the parent
    account. Only a
    description and an organization that are not given are left alone, and everything of the account
    C(root).
  - Accounts are made before what is below them, moved to another parent, and removed from the
    leaves up.
  - Nothing is removed that has jobs in the queue; the error names the jobs.
  - After a change the database is read again; what did not take effect is an error.
  - Runs on any host with C(sacctmgr) from where slurmdbd can be reached. Tried with Slurm 22.05 and
    24.11.
notes:
  - Associations of single partitions are passed over, but a change of a user's limits reaches them
    as well.
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
  cluster:
    description: Name of the cluster, as in C(ClusterName) of C(slurm.conf).
    type: str
    required: true
  accounts:
    description: The accounts, in any order.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name, in lower case. Of V(root) only what is given is changed.
        type: str
        required: true
      state:
        description: Whether it exists on this cluster. Its users are removed with it.
        type: str
        choices: [present, absent]
        default: present
      parent:
        description: The account it is below.
        type: str
        default: root
      description:
        description: Some words; Slurm keeps them in lower case.
        type: str
      organization:
        description: Some words; Slurm keeps them in lower case.
        type: str
      fairshare:
        description: Shares, V(1) when not given.
        type: str
      qos:
        description: QOS that may be used; inherited when not given. They must exist, see
          M(baremetal.dgx.slurm_qos).
        type: list
        elements: str
      default_qos:
        description: QOS of jobs that ask for none; inherited when not given.
        type: str
      grp_tres:
        description:
          - 'Resources of all running jobs of the account and below it, such as C({gres/gpu: 64}).'
        type: dict
      grp_jobs:
        description: Running jobs of the account and what is below it.
        type: int
      grp_submit_jobs:
        description: Queued and running jobs of the account and what is below it.
        type: int
      max_jobs:
        description: Running jobs of each user.
        type: int
      max_submit_jobs:
        description: Queued and running jobs of each user.
        type: int
      max_tres_per_job:
        description: Resources of one job.
        type: dict
      max_wall:
        description:
          - Longest run time of a job as a quoted string, V("D-HH:MM:SS"), V("HH:MM:SS") or minutes.
          - A number is refused, since YAML reads an unquoted C(2:00:00) as 7200.
        type: raw
      users:
        description:
          - Members. Each is a name, or a dictionary of C(name) and any of C(state), C(admin_level)
            (V(none), V(operator),
            V(administrator)), C(default_account) (whether this account is the user's default), and
            the
            limits of an account (C(fairshare), where V(parent) shares that of the account, C(qos),
            C(default_qos),
            C(grp_tres), C(grp_jobs), C(grp_submit_jobs), C(max_jobs), C(max_submit_jobs),
            C(max_tres_per_job), C(max_wall)).
          - A name with capitals is refused, unless C(slurmdbd.conf) has C(Parameters) with
            C(PreserveCaseUser). By default Slurm keeps it in lower case, and knows no such user.
          - The admin level belongs to the user. It is enough to give it in one account, and it
            is V(none) when it is given nowhere (the user C(root) keeps its own).
        type: list
        elements: raw
        default: []
      group:
        description:
          - Group of the host, such as one of a directory, whose members are users of the account
            beside O(accounts[].users), without limits for each.
          - Those whose primary group it is are members where the host lists its users (C(getent
            passwd)). sssd by default lists none; name them in O(accounts[].users), or make them
            members of the group.
          - Names with capitals are left out, unless C(slurmdbd.conf) has C(PreserveCaseUser).
          - A user of the account who is declared nowhere and leaves the group leaves the account,
            once no job of the user is in the queue, nor one of a user whose name is gone. A group
            that is empty or unknown all at once removes none.
        type: str
  leaving_share:
    description: Share of the users of an account, and of all accounts with groups together, who may
      leave in one run because they have left the group, from 0 to 1; one always may. If more would,
      none does, with one warning.
    type: float
    default: 0.2
  exclusive:
    description:
      - Whether accounts of this cluster, and users of declared accounts, that are not declared are
        removed.
      - The account C(root) and the user C(root) in it are never removed.
    type: bool
    default: false
seealso:
  - module: baremetal.dgx.slurm_qos
"""

EXAMPLES = r"""
- name: Give two teams their shares
  baremetal.dgx.slurm_account:
    cluster: dgx
    accounts:
      - name: research
        description: all research
        fairshare: 10
        qos: [normal, interactive]
        default_qos: normal
        grp_tres: {gres/gpu: 64}
      - name: vision
        parent: research
        users:
          - alice
          - {name: bob, admin_level: operator, default_account: true, max_jobs: 4}
      - {name: old_team, state: absent}
"""

RETURN = r"""
notes:
  description: Users who stay although they have left the group, members who are left out, groups
    that are empty, and why.
  returned: always
  type: list
  elements: str
commands:
  description: The C(sacctmgr) commands that were run, or would be in check mode, without C(sacctmgr
    -i).
  returned: always
  type: list
  elements: str
  sample: ["add account vision cluster=dgx parent=research", "add user name=alice cluster=dgx
    account=vision"]
errors:
  description: Everything that is wrong, when nothing was changed because of it.
  returned: when the declaration was refused
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._accounting import (
    plan as accounting,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ModuleRunner

ACCOUNT_SPEC: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "state": {"choices": ["present", "absent"], "default": "present"},
    "parent": {"type": "str", "default": "root"},
    "description": {"type": "str"},
    "organization": {"type": "str"},
    "fairshare": {"type": "str"},
    "qos": {"type": "list", "elements": "str"},
    "default_qos": {"type": "str"},
    "grp_tres": {"type": "dict"},
    "grp_jobs": {"type": "int"},
    "grp_submit_jobs": {"type": "int"},
    "max_jobs": {"type": "int"},
    "max_submit_jobs": {"type": "int"},
    "max_tres_per_job": {"type": "dict"},
    "max_wall": {"type": "raw"},
    "users": {"type": "list", "elements": "raw", "default": []},
    "group": {"type": "str"},
}
ARGUMENT_SPEC: dict[str, Any] = {
    "cluster": {"type": "str", "required": True},
    "accounts": {"type": "list", "elements": "dict", "default": [], "options": ACCOUNT_SPEC},
    "leaving_share": {"type": "float", "default": 0.2},
    "exclusive": {"type": "bool", "default": False},
}


def main() -> None:
    """Load, plan, apply, read again, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    done: list[str] = []
    with reported(module, lambda: {"commands": done, "changed": bool(done)}):
        plan = accounting.keep(module, ModuleRunner(module), done)
    for note in plan.notes:
        module.warn(note)
    module.exit_json(**accounting.result_of(plan, done, module._diff))


if __name__ == "__main__":
    main()
